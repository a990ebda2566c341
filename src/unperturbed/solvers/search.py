"""Solvers that try points and need no gradient: worst of k draws, and a grid."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod

import torch
from torch import Generator, Tensor

from ..losses import Loss, of_each
from ..neighborhoods import Box, Neighborhood, Spatial, require_around
from .definition import chosen, greater, require_count, takes

Candidate = Callable[[Tensor], Tensor]
"""a theta for each of these rows of x"""
MANY = 1_000_000
"""points of a grid from which on it is not laid out just to see whether it can be"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstOfK:
    """The worst of k random points, drawn for each image on its own, and of x itself."""

    around: Neighborhood = field(default_factory=Spatial)
    k: int = 10
    """draws for each image"""
    enough: float | None = None
    """an image whose loss exceeds this is searched no further; none: all draws are tried"""
    at_once: int = 2048
    """images in one query of the loss"""

    def __post_init__(self) -> None:
        require_around("WorstOfK.around", self.around)
        require_count("WorstOfK.k", self.k)
        require_count("WorstOfK.at_once", self.at_once)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        def draw(rows: Tensor) -> Tensor:
            # All images are drawn for, so that what one gets does not depend on how others fare.
            theta = self.around.sample(x, rng)
            return theta if len(rows) == len(x) else theta[rows]

        # In an iterator of such functions torch.compile may lose itself.
        return worst(loss, self.around, x, [draw] * self.k, enough=self.enough, at_once=self.at_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The worst point of an equally spaced grid, and of x itself; far points come first."""

    around: Box = field(default_factory=Spatial)
    points: tuple[int, ...] = (31, 5, 5)
    """values of each parameter, in the order of theta: for Spatial rotation, shift right, shift down"""
    enough: float | None = None
    """an image whose loss exceeds this is searched no further; none: all points are tried"""
    at_once: int = 2048
    """images in one query of the loss"""

    def __post_init__(self) -> None:
        require_count("Grid.at_once", self.at_once)
        if not isinstance(self.points, Sequence):
            raise ValueError(f"Grid.points must be a count for each parameter, as (31, 5, 5), got {self.points!r}")
        for count in self.points:
            require_count("each of Grid.points", count)
        require_around("Grid.around", self.around, "Spatial(rotation=30.0)")
        if not isinstance(self.around, Box):
            raise ValueError(
                f"Grid.around must have a handful of parameters and a method grid, as Spatial has, got "
                f"{type(self.around).__name__}: search it with PGD or WorstOfK"
            )
        if prod(self.points) < MANY:  # It may be asked for, and refused, before anything is trained.
            self.around.grid(torch.zeros(1, 3, 8, 8), self.points)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        thetas = self.around.grid(x, self.points)
        far = self.around.distance(x, thetas).argsort(descending=True, stable=True)

        def point(theta: Tensor) -> Candidate:
            return lambda rows: theta.expand(len(rows), -1)

        return worst(loss, self.around, x, map(point, thetas[far]), enough=self.enough, at_once=self.at_once)


@torch.no_grad()
def worst(
    loss: Loss,
    around: Neighborhood,
    x: Tensor,
    candidates: Iterable[Candidate],
    *,
    enough: float | None,
    at_once: int,
) -> Tensor:
    """The point of greatest loss among x and the candidates.

    Several candidates are folded into one query, and images whose loss exceeds `enough` drop out; where none can, x
    itself goes along with the first candidates.
    """
    rows, remaining = torch.arange(len(x), device=x.device), iter(candidates)
    best, room = around.identity(x).clone(), at_once // max(1, len(x))
    along = islice(remaining, max(0, room - 1)) if enough is None else ()
    thetas, values = losses_of(loss, around, x, rows, [lambda _: best, *along], itself=True)
    untouched, best_loss = values[0], values[0].clone()
    while True:
        value, which = values.max(0)
        point = thetas[which, torch.arange(len(rows), device=x.device)]
        best[rows], best_loss[rows] = greater(value, point, best_loss[rows], best[rows])
        if enough is not None:
            rows = rows[best_loss[rows] <= enough]
        if len(rows) == 0 or not (fold := list(islice(remaining, max(1, at_once // len(rows))))):
            break
        thetas, values = losses_of(loss, around, x, rows, fold)
    return chosen(best_loss > untouched, around.transform(x, best), x)


def losses_of(
    loss: Loss, around: Neighborhood, x: Tensor, rows: Tensor, fold: list[Candidate], *, itself: bool = False
) -> tuple[Tensor, Tensor]:
    """Candidates for these rows of x and their losses, shape (candidates, rows); the first one may be x itself."""
    thetas = torch.stack([candidate(rows) for candidate in fold])
    points = x[rows]
    if moving := len(fold) - itself:
        warped = around.transform(x[rows.repeat(moving)], thetas[-moving:].flatten(0, 1))
        points = torch.cat([points, warped]) if itself else warped
    if not takes(loss, 1, "rows"):  # By name: lambda z, y=y: … would take rows for its labels.
        raise ValueError(
            "this search asks for the loss of some images several times at once, and tells which: write "
            "loss(images, rows=None) with the labels y[rows], or take Against(cross_entropy, f, y)"
        )
    values = of_each(loss(points, rows=rows.repeat(len(fold))), points)
    # The maximum of several losses is NaN if one is: a point without a loss would hide all that it is asked with.
    return thetas, values.nan_to_num(-torch.inf, torch.inf, -torch.inf).view(len(fold), len(rows))
