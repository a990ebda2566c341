"""Solvers made of solvers: one after the other, or the best of several."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..losses import Loss
from ..neighborhoods import require_each
from .definition import Solver, greater, require_solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential:
    """Compound: each stage starts where the one before stopped. PGD+ is (PGD, Grid), GridAdv+ is (Grid, PGD)."""

    stages: tuple[Solver, ...]

    def __post_init__(self) -> None:
        require_each("Sequential.stages", self.stages, "solver", require_solver)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        for solve in self.stages:
            x = solve(loss, x, rng)
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class Strongest:
    """For each image the answer of the solver that found the largest loss: AT(max), and restarts."""

    solvers: tuple[Solver, ...]

    def __post_init__(self) -> None:
        require_each("Strongest.solvers", self.solvers, "solver", require_solver)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        best, best_loss = x, x.new_full((len(x),), -torch.inf)
        for solve in self.solvers:
            found = solve(loss, x, rng)
            with torch.no_grad():
                best, best_loss = greater(loss(found.clone()), found, best_loss, best)
        return best
