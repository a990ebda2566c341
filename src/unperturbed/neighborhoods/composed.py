"""Several neighborhoods at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

import torch
from torch import Generator, Tensor

from .definition import Box, Neighborhood, is_image, long_step, require_around, require_each


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """T(x; theta) = T_k(... T_2(T_1(x; theta_1); theta_2) ...; theta_k), each theta_i within the radius of its part.

    theta holds those of the parts side by side, one row for each image. Each part sees the image that the parts
    before it made, so that what a pixel-wise part adds to a warped image leaves a valid one.
    """

    parts: tuple[Neighborhood, ...]
    """what is done to an image, in this order"""

    def __post_init__(self) -> None:
        require_each("Composed.parts", self.parts, "neighborhood", require_around)

    def __str__(self) -> str:
        return ", then ".join(map(str, self.parts))

    def identity(self, x: Tensor) -> Tensor:
        return joined([part.identity(x) for part in self.parts])

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        thetas: list[Tensor] = []
        for part in self.parts:
            thetas.append(part.sample(x, rng))
            x = part.transform(x, thetas[-1])
        return joined(thetas)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        for part, own in self.pieces(x, theta):
            x = part.transform(x, own)
        return x

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        thetas: list[Tensor] = []
        for part, own in self.pieces(x, theta):
            thetas.append(part.project(x, own))
            x = part.transform(x, thetas[-1])
        return joined(thetas)

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return torch.stack([part.distance(x, own) for part, own in self.pieces(x, theta)]).amax(0)

    def direction(self, gradient: Tensor) -> Tensor:
        """The steepest step of each part, all as long as its radius: step sizes are in units of the radius.

        Without x, a part is taken to have so many parameters or one for each value of an image, as all of ours have.
        """
        gray = gradient.new_full((len(gradient), 1, 1, self.values_of_an_image(gradient.shape[1])), 0.5)
        return joined(
            [long_step(part, gray, part.identity(gray), own, 1.0) for part, own in self.pieces(gray, gradient)]
        )

    def long_step(self, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
        steps: list[Tensor] = []
        for (part, own), (_, slope) in zip(self.pieces(x, theta), self.pieces(x, gradient), strict=True):
            steps.append(long_step(part, x, own, slope, length))
            x = part.transform(x, own)
        return joined(steps)

    def climbed(self, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
        return self.project(x, theta + self.long_step(x, theta, gradient, length))

    def scaled(self, fraction: float) -> Self:
        return replace(self, parts=tuple(part.scaled(fraction) for part in self.parts))

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        # What one part did to an image cannot be told from what the next one did.
        return self.parts[0].contains(x, perturbed) if len(self.parts) == 1 else is_image(perturbed)

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        """Every combination of the grids of all parts; their counts stand side by side, as the parameters do."""
        boxes = [part for part in self.parts if isinstance(part, Box)]
        if others := [part for part in self.parts if not isinstance(part, Box)]:
            raise ValueError(
                "a grid needs parts with a handful of parameters and a method grid, as Spatial has, got "
                f"{type(others[0]).__name__}: search with PGD or WorstOfK, or leave that part out"
            )
        parameters = [part.identity(x[:0]).shape[1] for part in boxes]
        if len(points) != sum(parameters):
            raise ValueError(
                f"a grid over ({self}) takes {sum(parameters)} counts, one for each parameter of its parts in their "
                f"order, got {points}: write as many, as points={(5,) * sum(parameters)}"
            )
        counts = iter(points)
        grids = [part.grid(x, (*islice(counts, own),)) for part, own in zip(boxes, parameters, strict=True)]
        rows = torch.cartesian_prod(*(torch.arange(len(grid), device=x.device) for grid in grids))
        return torch.cat([grid[row] for grid, row in zip(grids, rows.view(-1, len(grids)).T, strict=True)], dim=1)

    def pieces(self, x: Tensor, theta: Tensor) -> Iterator[tuple[Neighborhood, Tensor]]:
        """Each part with its own theta, in its own shape."""
        shapes = [part.identity(x[:0]).shape[1:] for part in self.parts]
        blocks = theta.split([shape.numel() for shape in shapes], dim=1)
        for part, shape, block in zip(self.parts, shapes, blocks, strict=True):
            yield part, block.view(len(block), *shape)

    def values_of_an_image(self, length: int) -> int:
        """How many values an image has whose theta is that long, a part having some or one for each value."""
        of_none, of_one = (self.identity(torch.empty(0, 1, 1, values)).shape[1] for values in (0, 1))
        return (length - of_none) // (of_one - of_none) if of_one > of_none else 0


def joined(thetas: Sequence[Tensor]) -> Tensor:
    """The thetas of several parts side by side, one row for each image."""
    return torch.cat([theta.flatten(1) for theta in thetas], dim=1)
