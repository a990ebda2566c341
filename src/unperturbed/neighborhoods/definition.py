"""What a neighborhood is, Definition 1, and what all of them share."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Protocol, Self, cast, runtime_checkable

import torch
from torch import Generator, Tensor

TOLERANCE = 1e-4
"""by what share of the radius a point may lie outside through rounding alone"""

LARGEST, SMALLEST = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
"""numbers that are as far from 0 and as near to it as those of float32"""
MOST_PIXELS = 1e6
"""more than any image is wide; a warp or a blur over so many leaves nothing of it"""


@runtime_checkable
class Neighborhood(Protocol):
    """N_{eps,T}(x), Definition 1."""

    def identity(self, x: Tensor) -> Tensor:
        """The theta with T(x; theta) = x."""
        ...

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        """A random feasible theta for each image."""
        ...

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        """T(x; theta), differentiable in both."""
        ...

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        """A feasible theta close to the given one, which itself is returned if it is feasible."""
        ...

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        """dist(T(x; theta), x) for each image, shape (B,), in units of the radius: 1 on the boundary."""
        ...

    def direction(self, gradient: Tensor) -> Tensor:
        """The step of unit length along which a linear function with this gradient grows fastest."""
        ...

    def scaled(self, fraction: float) -> Self:
        """The same neighborhood with its radius multiplied by the paper's perturbation fraction."""
        ...

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        """Whether each perturbed image can lie in N(x), shape (B,), as far as the image alone tells."""
        ...


@runtime_checkable
class Box(Neighborhood, Protocol):
    """A neighborhood with a handful of parameters, each between two bounds: it can be searched on a grid."""

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        """Equally spaced thetas, shape (product of points, parameters); a parameter without range gets one."""
        ...


@runtime_checkable
class Climber(Neighborhood, Protocol):
    """A neighborhood that takes a whole step of an ascent by itself."""

    def climbed(self, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
        """The projection of theta + length direction(gradient)."""
        ...


@runtime_checkable
class Strider(Neighborhood, Protocol):
    """A neighborhood that measures its own steps: they depend on x and theta, or no distance tells their length."""

    def long_step(self, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
        """The steepest step of that length from theta, in units of the radius."""
        ...


def long_step(around: Neighborhood, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
    """The steepest step of that length from theta, in units of the radius."""
    if isinstance(around, Strider):
        return around.long_step(x, theta, gradient, length)
    direction = around.direction(gradient)
    reach = around.distance(x, direction)
    reach = reach.masked_fill(reach == 0, 1)  # A slope of nothing is no step, in any arithmetic.
    return (length / reach).view(-1, *[1] * (direction.dim() - 1)) * direction


def beside(x: Tensor, *numbers: float) -> Tensor:
    """These numbers as a vector where x is and of its type, made there: a copy from the host would wait for it."""
    return torch.cat([x.new_full((1,), number) for number in numbers])


def to_be_drawn(x: Tensor) -> Tensor:
    """Room for random numbers in the shape of x; which pixel gets which does not depend on how x lies in memory."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def box_sample(x: Tensor, radius: Tensor, rng: Generator) -> Tensor:
    """A point of the box [-radius, radius] for each image, drawn uniformly."""
    unit = torch.rand(len(x), len(radius), generator=rng, device=x.device, dtype=x.dtype)
    return (2 * unit - 1) * radius


def box_distance(theta: Tensor, radius: Tensor) -> Tensor:
    """The largest parameter of each row, each in units of its own radius; with radius 0 only 0 is within reach."""
    return torch.where(theta == 0, 0.0, theta.abs() / radius).amax(1)


def box_grid(low: Tensor, high: Tensor, points: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
    """Equally spaced points of the box [low, high]; 0 alone on an axis without range or with one point."""
    if len(points) != len(names) or min(points) < 1:
        counts = "1 positive count" if len(names) == 1 else f"{len(names)} positive counts"
        example = (5,) * len(names)
        raise ValueError(
            f"a grid over ({', '.join(names)}) takes {counts}, got {points}: write as many, as points={example}"
        )
    axes = [
        torch.linspace(a, b, n, dtype=low.dtype, device=low.device) if a < b and n > 1 else low.new_zeros(1)
        for a, b, n in zip(low.tolist(), high.tolist(), points, strict=True)
    ]
    return torch.cartesian_prod(*axes).view(-1, len(axes))


def is_image(perturbed: Tensor) -> Tensor:
    """Whether all pixels of each image lie in [0, 1], shape (B,)."""
    return lies_between(perturbed, 0.0, 1.0)


def lies_between(images: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Whether all pixels of each image lie between two bounds, shape (B,)."""
    pixels = images.flatten(1)
    return (pixels.amin(1) >= low - TOLERANCE) & (pixels.amax(1) <= high + TOLERANCE)


def relative(size: Tensor, radius: float) -> Tensor:
    """Size in units of the radius; with radius 0 only size 0 is within reach."""
    return size / radius if radius > 0 else torch.where(size == 0, 0.0, torch.inf).to(size)


def require_radius(name: str, value: float, most: float = LARGEST) -> None:
    """Refuse a radius that is negative, not a number, none of float32, or more than the most that can be meant."""
    if not (isinstance(value, Real) and 0 <= value < torch.inf):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    require_float32(name, value)
    if value > most:
        raise ValueError(f"{name} must be at most {most:,.0f}, got {value!r}: lower it")


def require_float32(name: str, value: float) -> None:
    """Refuse a number of at least 0 that tensors would take for infinity, or for 0 where it is more."""
    if value > LARGEST:
        raise ValueError(
            f"{name} must be at most {LARGEST:.2g}, the largest number of float32, got {in_a_line(value)}: lower it"
        )
    if 0 < value < SMALLEST:
        raise ValueError(
            f"{name} must be at least {SMALLEST:.2g}, the smallest number of float32 above 0, got {value!r}: raise "
            "it, or write 0 where that is allowed"
        )


def require_around(name: str, around: object, example: str = "Linf(eps=8 / 255)") -> None:
    """Refuse what is no neighborhood: a radius alone, or a class without its parentheses."""
    if isinstance(around, type) or not hasattr(around, "transform"):
        raise ValueError(f"{name} must be a neighborhood, as {example}, got {in_a_line(around)}")


def require_each(name: str, parts: object, kind: str, require: Callable[[str, object], None]) -> None:
    """Refuse what is no tuple of parts that are all as required: a part alone, or none."""
    if not isinstance(parts, tuple | list) or not parts:
        raise ValueError(f"{name} must be a tuple of at least one {kind}, got {in_a_line(parts)}")
    for part in cast(Sequence[object], parts):
        require(f"each of {name}", part)


def in_a_line(given: object) -> str:
    """What was given in place of a part, as Python writes it, in one line that is not too long."""
    line = " ".join(repr(given).split())
    return line if len(line) <= 100 else f"{line[:100]} …"
