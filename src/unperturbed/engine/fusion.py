"""Solvers and neighborhoods with their chains of small operations compiled: the same values, fewer kernels."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from types import FunctionType
from typing import cast

from torch import Generator, Tensor

from ..losses import Against, Loss, PerImageLoss
from ..neighborhoods import Box, Neighborhood, long_step
from ..objectives import Objective, with_solvers
from ..solvers import Solver, climbed
from .network import Accelerated, Hastener
from .recording import stateless

PACKAGE = __name__.split(".")[0]


@dataclass(frozen=True, slots=True)
class InOnePiece:
    """x' -> L(f(x'), target), network and loss compiled together."""

    judge: Callable[[Tensor, Tensor], Tensor]
    target: Tensor

    def __call__(self, images: Tensor, /, rows: Tensor | None = None) -> Tensor:
        return self.judge(images, self.target if rows is None else self.target[rows])


@dataclass(frozen=True, slots=True)
class Hastened:
    """A solver whose loss is computed in one piece."""

    solver: Solver

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        if isinstance(loss, Against) and is_known_again(loss.loss):
            f = loss.f
            if isinstance(f, Accelerated) and f.stands_still:
                loss = InOnePiece(f.judging(loss.loss), loss.target)
        return self.solver(loss, x, rng)


def is_known_again(loss: PerImageLoss) -> bool:
    """Whether it is the same loss in each step: of one that is made anew, as a lambda, each would be compiled."""
    if isinstance(loss, FunctionType):
        return "<locals>" not in loss.__qualname__
    return is_dataclass(loss) and stateless(loss)


class Mapped:
    """A neighborhood whose maps are one kernel each."""

    def __init__(self, around: Neighborhood, hasten: Hastener) -> None:
        def step(x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
            return climbed(around, x, theta, gradient, length)

        def stride(x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
            return long_step(around, x, theta, gradient, length)

        self.identity, self.sample, self.distance = around.identity, around.sample, around.distance
        self.scaled, self.contains, self.direction = around.scaled, around.contains, around.direction
        self.transform, self.project, self.climbed, self.long_step = map(
            hasten, (around.transform, around.project, step, stride)
        )
        self.grid = around.grid if isinstance(around, Box) else None


def fused(objective: Objective, hasten: Hastener) -> Objective:
    """The same objective, with all solvers and neighborhoods in it hastened."""
    if not hasten.engine.compiled:
        return objective
    return with_solvers(objective, lambda solver: Hastened(cast(Solver, mapped(solver, hasten))))


def mapped(part: object, hasten: Hastener) -> object:
    """A solver, or a part of one, with neighborhoods whose maps are one kernel each; a stranger's is left alone."""
    if isinstance(part, tuple):
        return tuple(mapped(item, hasten) for item in cast(tuple[object, ...], part))
    if isinstance(part, Neighborhood):
        return Mapped(part, hasten)
    if not is_dataclass(part) or isinstance(part, type) or type(part).__module__.split(".")[0] != PACKAGE:
        return part
    return replace(
        part, **{slot.name: mapped(getattr(part, slot.name), hasten) for slot in fields(part) if slot.init}
    )
