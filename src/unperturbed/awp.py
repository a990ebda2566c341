"""Adversarial weight perturbation (Wu et al. 2020): the outer gradient is taken where nearby weights are worst."""

from collections import abc
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from .losses import Loss
from .objectives import Objective, with_solvers
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

    def remembered(solver: Solver) -> Solver:
        memories.append(Remembered(solver))
        return memories[-1]

    return with_solvers(objective, remembered), memories


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
