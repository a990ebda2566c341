"""Adversarial weight perturbation (Wu et al. 2020): the outer gradient is taken where nearby weights are worst."""

from collections import abc
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from .losses import Loss
from .objectives import Objective
from .solvers import Solver


@dataclass(slots=True)
class Remembered:
    """A solver whose answers are kept, so that perturbed weights are judged on the same perturbed images."""

    solver: Solver
    answers: list[Tensor] = field(default_factory=list[Tensor])
    asked: int = 0

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        if self.asked == len(self.answers):
            self.answers.append(self.solver(loss, x, rng))
        self.asked += 1
        return self.answers[self.asked - 1]


def remembering(objective: Objective) -> tuple[Objective, list[Remembered]]:
    """The same objective with solvers that remember, wherever in it they are."""
    memories: list[Remembered] = []

    def wrapped(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(wrapped(item) for item in cast(tuple[object, ...], part))
        if not is_dataclass(part) or isinstance(part, type):
            return part
        changes: dict[str, Any] = {}
        for slot in fields(part):
            value = getattr(part, slot.name)
            if slot.name == "solver":
                memories.append(Remembered(value))
                changes[slot.name] = memories[-1]
            elif slot.name == "objectives":
                changes[slot.name] = wrapped(value)
        return replace(part, **changes)

    return wrapped(objective), memories


@contextmanager
@torch.no_grad()
def perturbed_weights(f: nn.Module, radius: float) -> abc.Generator[None]:
    """While this lasts, each weight tensor is moved along its gradient by that share of its own norm."""
    originals = [(parameter, parameter.detach().clone()) for parameter in f.parameters()]
    for parameter in f.parameters():
        if parameter.grad is not None and parameter.dim() > 1:
            length = radius * parameter.norm() / parameter.grad.norm().clamp_min(1e-12)
            parameter.add_(length * parameter.grad)
    try:
        with torch.enable_grad():
            yield
    finally:
        for parameter, original in originals:
            parameter.copy_(original)
