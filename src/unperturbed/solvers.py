"""Inner maximization, Eq. (10): x' <- argmax of the loss over the neighborhood of x.

A solver never sees a model or a label. It sees `loss`, which maps perturbed images to one number each, and x.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from .losses import Loss
from .neighborhoods import Box, Linf, Neighborhood, Spatial

Start = Literal["identity", "normal", "uniform"]


@runtime_checkable
class Solver(Protocol):
    """argmax over N(x), Eq. (10)."""

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        """An x' in the neighborhood of each x, with a loss as large as was found."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PGD:
    """Algorithm 1: K ascent steps, each projected back into the neighborhood."""

    around: Neighborhood = field(default_factory=Linf)
    steps: int = 10
    """K, the number of steps"""
    step_size: float = 2 / 255
    """alpha: in pixel values for Linf and L2, in units of the radius for Spatial"""
    start: Start = "normal"
    """at x, at x plus Gaussian noise, or uniformly in the neighborhood"""
    noise: float = 0.001
    """standard deviation of that Gaussian noise, in the units of theta"""
    keep: Literal["last", "best"] = "last"
    """which iterate is returned; the best costs one more forward pass"""

    def __post_init__(self) -> None:
        require_count("PGD.steps", self.steps)
        require_positive("PGD.step_size", self.step_size)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        theta = start_of(self.around, x, self.start, self.noise, rng)
        best, best_loss = theta, x.new_full((len(x),), -torch.inf)
        for _ in range(self.steps):
            value, gradient = ascent(loss, self.around, x, theta)
            if self.keep == "best":
                best, best_loss = greater(value, theta, best_loss, best)
            theta = self.around.project(x, theta + self.step_size * self.around.direction(gradient))
        if self.keep == "best":
            with torch.no_grad():
                theta, _ = greater(loss(self.around.transform(x, theta)), theta, best_loss, best)
        return self.around.transform(x, theta).detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class FGSM:
    """Algorithm 2: one long step from a uniform start, as fast SRT takes it."""

    around: Neighborhood = field(default_factory=Linf)
    step: float = 1.25
    """length of the step in units of the radius"""
    start: Start = "uniform"
    """at x, at x plus Gaussian noise, or uniformly in the neighborhood"""

    def __post_init__(self) -> None:
        require_positive("FGSM.step", self.step)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        theta = start_of(self.around, x, self.start, 0.001, rng)
        _, gradient = ascent(loss, self.around, x, theta)
        direction = self.around.direction(gradient)
        reach = self.around.distance(x, direction).clamp_min(1e-12)
        step = (self.step / reach).view(-1, *[1] * (theta.dim() - 1)) * direction
        return self.around.transform(x, self.around.project(x, theta + step)).detach()


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
        require_count("WorstOfK.k", self.k)
        require_count("WorstOfK.at_once", self.at_once)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        draws = (self.around.sample(x, rng) for _ in range(self.k))
        return worst(loss, self.around, x, draws, enough=self.enough, at_once=self.at_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The worst point of an equally spaced grid, and of x itself; far points come first."""

    around: Box = field(default_factory=Spatial)
    points: tuple[int, ...] = (31, 5, 5)
    """values of each parameter: rotation, shift right, shift down"""
    enough: float | None = None
    """an image whose loss exceeds this is searched no further; none: all points are tried"""
    at_once: int = 2048
    """images in one query of the loss"""

    def __post_init__(self) -> None:
        require_count("Grid.at_once", self.at_once)
        if not isinstance(self.around, Box):
            raise ValueError(
                f"Grid.around must have a handful of parameters, as Spatial has, got {type(self.around).__name__}: "
                "search it with PGD or WorstOfK"
            )

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        thetas = self.around.grid(x, self.points)
        far = self.around.distance(x, thetas).argsort(descending=True, stable=True)
        points = (theta.expand(len(x), -1) for theta in thetas[far])
        return worst(loss, self.around, x, points, enough=self.enough, at_once=self.at_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequential:
    """Compound: each stage starts where the one before stopped. PGD+ is (PGD, Grid), GridAdv+ is (Grid, PGD)."""

    stages: tuple[Solver, ...]

    def __post_init__(self) -> None:
        require_count("the number of Sequential.stages", len(self.stages))

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        for solve in self.stages:
            x = solve(loss, x, rng)
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class Strongest:
    """For each image the answer of the solver that found the largest loss: AT(max), and restarts."""

    solvers: tuple[Solver, ...]

    def __post_init__(self) -> None:
        require_count("the number of Strongest.solvers", len(self.solvers))

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        best, best_loss = x, x.new_full((len(x),), -torch.inf)
        for solve in self.solvers:
            found = solve(loss, x, rng)
            with torch.no_grad():
                best, best_loss = greater(loss(found), found, best_loss, best)
        return best


def start_of(around: Neighborhood, x: Tensor, start: Start, noise: float, rng: Generator) -> Tensor:
    """The theta an ascent starts from."""
    if start == "uniform":
        return around.sample(x, rng)
    theta = around.identity(x)
    if start == "normal":
        return around.project(x, theta + noise * torch.empty_like(theta).normal_(generator=rng))
    return theta


def ascent(loss: Loss, around: Neighborhood, x: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """The loss at T(x; theta) and its gradient with respect to theta."""
    with torch.enable_grad():
        theta = theta.detach().requires_grad_()
        value = loss(around.transform(x, theta))
        (gradient,) = torch.autograd.grad(value.sum(), theta)
    return value.detach(), gradient


def greater(value: Tensor, point: Tensor, best_value: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """Row by row the point of the greater value, and that value."""
    wins = value > best_value
    return torch.where(wins.view(-1, *[1] * (point.dim() - 1)), point, best), torch.where(wins, value, best_value)


@torch.no_grad()
def worst(
    loss: Loss,
    around: Neighborhood,
    x: Tensor,
    candidates: Iterable[Tensor],
    *,
    enough: float | None,
    at_once: int,
) -> Tensor:
    """The point of greatest loss among x and the candidates, each of which is a theta for every image.

    Several candidates are folded into one query, and images whose loss exceeds `enough` drop out.
    """
    rows = torch.arange(len(x), device=x.device)
    untouched = loss(x, rows)
    best, best_loss = around.identity(x), untouched.clone()
    remaining = iter(candidates)
    while len(rows) and (fold := list(islice(remaining, max(1, at_once // len(rows))))):
        thetas = torch.stack(fold)[:, rows]
        owners = rows.repeat(len(fold))
        values = loss(around.transform(x[owners], thetas.flatten(0, 1)), owners).view(len(fold), -1)
        value, which = values.max(0)
        point = thetas[which, torch.arange(len(rows), device=x.device)]
        best[rows], best_loss[rows] = greater(value, point, best_loss[rows], best[rows])
        if enough is not None:
            rows = rows[best_loss[rows] <= enough]
    moved = (best_loss > untouched).view(-1, 1, 1, 1)
    return torch.where(moved, around.transform(x, best), x)


def require_count(name: str, value: int) -> None:
    """Refuse a number of things below one."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def require_positive(name: str, value: float) -> None:
    """Refuse a length that is not a positive number."""
    if not 0 < value < torch.inf:
        raise ValueError(f"{name} must be a positive number, got {value}")
