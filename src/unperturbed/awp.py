"""Adversarial weight perturbation (Wu et al. 2020): the outer gradient is taken where nearby weights are worst."""

from collections import abc
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor, nn

from .answers import frozen, own_opinion
from .given import Batch, images_of
from .losses import Loss
from .objectives import SRT, Mixture, Objective, Terms, with_solvers
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


@dataclass(slots=True)
class SameLabels:
    """SRT whose C(x) is kept, so that perturbed weights are judged by the same labels."""

    objective: SRT
    opinions: list[Tensor] = field(default_factory=list[Tensor])
    asked: int = 0

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        if batch.opinion is None:
            if self.asked == len(self.opinions):
                with frozen(f):
                    self.opinions.append(own_opinion(f, images_of(batch)))
            self.asked += 1
            batch = batch._replace(opinion=self.opinions[self.asked - 1])
        return self.objective(f, batch, rng)


def remembering(objective: Objective) -> tuple[Objective, list[Remembered | SameLabels]]:
    """The same objective with solvers that remember, and SRT that does, wherever in it they are."""
    memories: list[Remembered | SameLabels] = []

    def remembered(solver: Solver) -> Solver:
        memory = Remembered(solver)
        memories.append(memory)
        return memory

    def labeled(part: Objective) -> Objective:
        if isinstance(part, Mixture):
            return replace(part, objectives=tuple(labeled(one) for one in part.objectives))
        if not isinstance(part, SRT):
            return part
        memory = SameLabels(part)
        memories.append(memory)
        return memory

    return labeled(with_solvers(objective, remembered)), memories


@contextmanager
@torch.no_grad()
def perturbed_weights(f: nn.Module, radius: float) -> abc.Generator[None]:
    """While this lasts, each weight tensor is moved along its gradient by that share of its own norm.

    What BatchNorm remembers meanwhile is forgotten: it belongs to weights that f does not keep.
    """
    originals = [tensor.detach().clone() for tensor in (*f.parameters(), *f.buffers())]
    for parameter in f.parameters():
        if parameter.grad is not None and parameter.dim() > 1:
            length = radius * parameter.norm() / parameter.grad.norm().clamp_min(1e-12)
            parameter.add_(length * parameter.grad)
    try:
        with torch.enable_grad():
            yield
    finally:
        # A forward pass may have put other buffers in the place of those that were there.
        for tensor, original in zip((*f.parameters(), *f.buffers()), originals, strict=True):
            tensor.copy_(original)
