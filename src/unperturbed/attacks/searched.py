"""Attacks made of a solver and a loss: FGSM, PGD, MI-FGSM, C&W in Linf, RandAdv and GridAdv."""

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from ..answers import frozen
from ..losses import Against, PerImageLoss, cross_entropy, margin, of_each
from ..neighborhoods import L2, Box, Composed, Linf, Neighborhood, Spatial, require_around
from ..risks import NO_CLASS, decided
from ..solvers import (
    FGSM,
    PGD,
    Grid,
    MomentumPGD,
    Sequential,
    Solver,
    Strongest,
    WorstOfK,
    found_by,
    require_count,
    require_solver,
)

SPATIAL = Spatial(rotation=30.0, translation=3.0)
FOOLED = 32.0
"""what points that fool f come to at least; others to half of it at most, which their cross-entropy never reaches"""


class Attack(Protocol):
    """An adversary: for each x with label y an x' that f should get wrong."""

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        """The perturbed images, of the shape of x."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """An attack that says what it keeps to, so that an evaluation can check it and print it."""

    @property
    def within(self) -> Neighborhood:
        """The neighborhood in which every x' must lie to count."""
        ...

    @property
    def budget(self) -> str:
        """The budget in words, for the row of a report."""
        ...


@runtime_checkable
class MinimumNorm(Protocol):
    """An attack that looks for the smallest change that fools f, and may leave x alone or exceed its budget."""

    def size(self, x: Tensor, perturbed: Tensor) -> Tensor:
        """What is minimized, for each image, shape (B,)."""
        ...


@dataclass(frozen=True, slots=True)
class FoolingFirst:
    """A loss with the same slopes by which points that fool f come before all others.

    A point of larger cross-entropy may be classified correctly. For it, one found before that fools f would be left.
    """

    loss: PerImageLoss

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        said = decided(logits.detach())
        loss = of_each(self.loss(logits, target), logits)
        # A loss of NaN is greater than no other: a point without an answer, or with an infinite logit, of which
        # cross-entropy is NaN, would be left for any that has a loss.
        loss = loss.masked_fill((said == NO_CLASS) | loss.isnan(), 0.0)
        value = loss.detach()
        first, others = FOOLED + (-value).clamp_min(0), (FOOLED / 2 - value).clamp_max(0)
        return loss + torch.where(said != target, first, others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The attack of a solver that maximizes a loss over the neighborhood of x."""

    solver: Solver
    loss: PerImageLoss
    within: Neighborhood
    budget: str

    def __post_init__(self) -> None:
        require_solver("Searched.solver", self.solver)
        require_around("Searched.within", self.within)

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        with frozen(f):
            return found_by(self.solver, Against(FoolingFirst(self.loss), f, y), x, rng)


def fgsm(*, eps: float = 8 / 255) -> Searched:
    """The fast gradient sign method: one step of length eps from x."""
    ball = Linf(eps=eps)
    solver = FGSM(around=ball, step=1.0, start="identity")
    return Searched(solver=solver, loss=cross_entropy, within=ball, budget=str(ball))


def pgd(
    *,
    eps: float = 8 / 255,
    steps: int = 20,
    step_size: float | None = None,
    norm: type[Linf] | type[L2] = Linf,
    restarts: int = 1,
    loss: PerImageLoss = cross_entropy,
) -> Searched:
    """Projected gradient ascent from a uniform start, its best iterate; by default steps of 2.5 eps / steps."""
    if not isinstance(norm, type):
        raise ValueError(f"the norm of pgd must be Linf or L2 itself, as in pgd(norm=L2), got {norm!r}")
    require_count("the restarts of pgd", restarts)
    ball = norm(eps=eps)
    size = 2.5 * (eps or 1.0) / max(1, steps) if step_size is None else step_size
    once = PGD(around=ball, steps=steps, step_size=size, start="uniform", keep="best")
    solver = once if restarts == 1 else Strongest(solvers=(once,) * restarts)
    times = "" if restarts == 1 else f", {restarts} restarts"
    return Searched(solver=solver, loss=loss, within=ball, budget=f"{ball}, {steps} steps of {size:.3g}{times}")


def mi_fgsm(*, eps: float = 8 / 255, steps: int = 20, step_size: float | None = None) -> Searched:
    """The momentum iterative fast gradient sign method from x; by default steps of eps / steps."""
    ball = Linf(eps=eps)
    size = (eps or 1.0) / max(1, steps) if step_size is None else step_size
    solver = MomentumPGD(around=ball, steps=steps, step_size=size)
    return Searched(solver=solver, loss=cross_entropy, within=ball, budget=f"{ball}, {steps} steps of {size:.3g}")


def cw_linf(*, eps: float = 8 / 255, steps: int = 30, step_size: float | None = None, restarts: int = 1) -> Searched:
    """The margin loss of Carlini and Wagner in an Linf ball: PGD on it, its best iterate."""
    attack = pgd(eps=eps, steps=steps, step_size=step_size, restarts=restarts, loss=margin)
    return replace(attack, budget=f"{attack.budget}, margin loss")


def random(around: Neighborhood = SPATIAL, *, draws: int = 10) -> Searched:
    """RandAdv: the worst of some random points of the neighborhood of each image."""
    solver = WorstOfK(around=around, k=draws, enough=0.0)
    return Searched(solver=solver, loss=margin, within=around, budget=f"{around}, {draws} draws")


def grid(around: Box = SPATIAL, *, points: tuple[int, ...] = (31, 5, 5)) -> Searched:
    """GridAdv: the worst point of a grid over the neighborhood, searched until an image is misclassified."""
    solver = Grid(around=around, points=points, enough=0.0)
    counts = " x ".join(map(str, points))
    return Searched(solver=solver, loss=margin, within=around, budget=f"{around}, grid of {counts}")


def compound(*stages: PGD | Grid | WorstOfK) -> Searched:
    """Solvers in sequence on the margin: PGD+ searches a grid around what PGD found, GridAdv+ the other way round."""
    solver = Sequential(stages=stages)
    for stage in stages:
        require_around(f"{type(stage).__name__}.around, in compound,", getattr(stage, "around", None))
    within = Composed(parts=tuple(stage.around for stage in stages))
    words = ", then ".join(f"{type(stage).__name__} in {stage.around}" for stage in stages)
    return Searched(solver=solver, loss=margin, within=within, budget=words)
