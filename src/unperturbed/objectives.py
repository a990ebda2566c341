"""Training objectives: what is minimized, as differentiable surrogates of the risks.

An objective is a frozen value that maps a classifier and a batch to two terms. It never touches an optimizer,
never logs and never waits for a device, so `objective(f, Batch(x, y, u), rng).total` fits any training loop.
"""

from collections import abc
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from .losses import Against, cross_entropy
from .neighborhoods import require_radius
from .solvers import PGD, Solver


class Batch(NamedTuple):
    """A draw of D_L with its labels, (x, y), and a draw of D_U, u, which may be empty."""

    x: Tensor
    y: Tensor
    u: Tensor


class Terms(NamedTuple):
    """The two summands of an objective, each already weighted; a trainer may ramp the second."""

    standard: Tensor
    robust: Tensor

    @property
    def total(self) -> Tensor:
        """What is minimized."""
        return self.standard + self.robust


@runtime_checkable
class Objective(Protocol):
    """What is minimized over the weights of f."""

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        """The terms of the objective on this batch; f is called in the mode it is in, adversaries see it frozen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """Standard training: the surrogate of R_stand(D_L), Eq. (2), alone."""

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        standard = cross_entropy(f(batch.x), batch.y).mean()
        return Terms(standard=standard, robust=torch.zeros_like(standard))


@dataclass(frozen=True, slots=True, kw_only=True)
class AT:
    """Adversarial training: the surrogate of R_adv(D_L), Eq. (3). With WorstOfK it is the Worst-of-k defense."""

    solver: Solver = field(default_factory=PGD)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        with frozen(f):
            perturbed = self.solver(Against(cross_entropy, f, batch.y), batch.x, rng)
        adversarial = cross_entropy(f(perturbed), batch.y).mean()
        return Terms(standard=adversarial, robust=torch.zeros_like(adversarial))


@dataclass(frozen=True, slots=True, kw_only=True)
class SRT:
    """Semi-supervised robust training, Eq. (9), by (10) and (11); RT, Eq. (6), when the batch has no u."""

    solver: Solver = field(default_factory=PGD)
    weight: float = 1.0
    """lambda, the price of robust risk"""
    forward: Literal["separate", "together"] = "separate"
    """clean and perturbed images in two forward passes or in one: BatchNorm takes its statistics from a pass"""
    mean: Literal["terms", "images"] = "terms"
    """a mean for each term, as in Eq. (9), or one over all images of both, as in the authors' spatial code"""

    def __post_init__(self) -> None:
        require_radius("SRT.weight", self.weight)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        pool = torch.cat([batch.x, batch.u])
        with frozen(f):
            with torch.no_grad():
                predicted = f(pool).argmax(1)
            perturbed = self.solver(Against(cross_entropy, f, predicted), pool, rng)
        on_clean, on_perturbed = outer_logits(f, batch.x, perturbed, self.forward)
        standard, robust = cross_entropy(on_clean, batch.y), cross_entropy(on_perturbed, predicted)
        if self.mean == "images":
            images = len(standard) + len(robust)
            return Terms(standard=standard.sum() / images, robust=self.weight * robust.sum() / images)
        return Terms(standard=standard.mean(), robust=self.weight * robust.mean())


def outer_logits(
    f: nn.Module, clean: Tensor, perturbed: Tensor, forward: Literal["separate", "together"]
) -> tuple[Tensor, Tensor]:
    """The outer forward passes, clean first."""
    if forward == "separate":
        return f(clean), f(perturbed)
    on_clean, on_perturbed = f(torch.cat([clean, perturbed])).split([len(clean), len(perturbed)])
    return on_clean, on_perturbed


@contextmanager
def frozen(f: nn.Module) -> abc.Generator[None]:
    """Evaluation mode and no parameter gradients while an adversary queries f; both are restored, come what may."""
    modes = [(module, module.training) for module in f.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in f.parameters()]
    try:
        f.eval().requires_grad_(False)
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
