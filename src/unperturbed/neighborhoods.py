"""The perturbed neighborhood N_{eps,T}(x) = {T(x; theta) : dist(T(x; theta), x) <= eps}, Eq. (1).

A neighborhood is a set of parameters theta and the transformation T(x; theta) that turns them into
images. It holds hyper-parameters only: x always arrives as an argument, float in [0, 1], (B, C, H, W).
The budget lies on theta, so a rotation by 30 degrees and a ball in pixel space are the same kind of thing.
"""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, Protocol, Self, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

TOLERANCE = 1e-4
"""by what share of the radius a point may lie outside through rounding alone"""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Linf:
    """Pixel-wise: T(x; theta) = x + theta with max |theta| <= eps, images kept in [0, 1]."""

    eps: float = 8 / 255
    """largest change of a pixel, on the scale of [0, 1]"""

    def __post_init__(self) -> None:
        require_radius("Linf.eps", self.eps)

    def identity(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        return self.project(x, torch.empty_like(x).uniform_(-self.eps, self.eps, generator=rng))

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        return x + theta

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        return (x + theta.clamp(-self.eps, self.eps)).clamp(0, 1) - x

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return relative(theta.abs().flatten(1).amax(1), self.eps)

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign()

    def scaled(self, fraction: float) -> Self:
        return replace(self, eps=fraction * self.eps)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return self.distance(x, perturbed - x) <= 1 + TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class L2:
    """Pixel-wise: T(x; theta) = x + theta with |theta|_2 <= eps, images kept in [0, 1]."""

    eps: float = 0.5
    """largest Euclidean norm of the change, on the scale of [0, 1]"""

    def __post_init__(self) -> None:
        require_radius("L2.eps", self.eps)

    def identity(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        ray = self.direction(torch.empty_like(x).normal_(generator=rng))
        share = torch.rand(len(x), 1, 1, 1, generator=rng, device=x.device, dtype=x.dtype)
        return self.project(x, self.eps * share ** (1 / x[0].numel()) * ray)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        return x + theta

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        shrink = (self.eps / norm(theta).clamp_min(1e-12)).clamp_max(1)
        # Clamping to a valid image moves every pixel towards x, so the norm cannot grow again.
        return (x + shrink.view(-1, 1, 1, 1) * theta).clamp(0, 1) - x

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return relative(norm(theta), self.eps)

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient / norm(gradient).clamp_min(1e-12).view(-1, 1, 1, 1)

    def scaled(self, fraction: float) -> Self:
        return replace(self, eps=fraction * self.eps)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return self.distance(x, perturbed - x) <= 1 + TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Spatial:
    """T(x; theta) = A x + b: a rotation about the center, then a translation; bilinear interpolation.

    theta = (rotation in degrees, shift to the right, shift down in pixels); a positive rotation is clockwise
    on the screen, which is the paper's A(theta) with y pointing down.
    """

    rotation: float = 30.0
    """largest rotation in degrees, either way"""
    translation: float = 3.0
    """largest shift in pixels, along each axis and either way"""
    padding: Literal["zeros", "border", "reflection"] = "zeros"
    """what lies outside the image; zeros equal padding widely, warping and cropping back"""

    def __post_init__(self) -> None:
        require_radius("Spatial.rotation", self.rotation)
        require_radius("Spatial.translation", self.translation)

    def identity(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 3)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        unit = torch.rand(len(x), 3, generator=rng, device=x.device, dtype=x.dtype)
        return (2 * unit - 1) * self.radius(x)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        angle = theta[:, 0].deg2rad().view(-1, 1, 1)
        right, down = theta[:, 1].view(-1, 1, 1), theta[:, 2].view(-1, 1, 1)
        # Pixel centers of the output, seen from the center of the image, are carried back to where they came from.
        i = torch.arange(height, device=x.device, dtype=x.dtype).view(1, -1, 1) - (height - 1) / 2 - down
        j = torch.arange(width, device=x.device, dtype=x.dtype).view(1, 1, -1) - (width - 1) / 2 - right
        source_j = angle.cos() * j + angle.sin() * i
        source_i = angle.cos() * i - angle.sin() * j
        places = torch.stack([source_j * (2 / width), source_i * (2 / height)], dim=-1)
        return F.grid_sample(x, places, mode="bilinear", padding_mode=self.padding, align_corners=False)

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        radius = self.radius(x)
        return theta.clamp(-radius, radius)

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        rotation, right, down = (theta.abs()).unbind(1)
        shift = torch.maximum(right, down)
        return torch.maximum(relative(rotation, self.rotation), relative(shift, self.translation))

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign() * self.radius(gradient)

    def scaled(self, fraction: float) -> Self:
        return replace(self, rotation=fraction * self.rotation, translation=fraction * self.translation)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        # A warp is not read off an image; but interpolation leaves every pixel between those of x and the fill.
        low, high = x.flatten(1).amin(1), x.flatten(1).amax(1)
        if self.padding == "zeros":
            low, high = low.clamp_max(0), high.clamp_min(0)
        pixels = perturbed.flatten(1)
        return (pixels.amin(1) >= low - TOLERANCE) & (pixels.amax(1) <= high + TOLERANCE)

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        return box_grid(self.radius(x), points, ("rotation", "shift right", "shift down"))

    def radius(self, x: Tensor) -> Tensor:
        """The bound of each parameter, shape (3,)."""
        return x.new_tensor([self.rotation, self.translation, self.translation])


def box_grid(radius: Tensor, points: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
    """Equally spaced points of the box [-radius, radius]; the middle alone where the radius is 0."""
    if len(points) != len(names) or min(points) < 1:
        raise ValueError(f"a grid over ({', '.join(names)}) takes {len(names)} positive counts, got {points}")
    axes = [
        torch.linspace(-r, r, n, dtype=radius.dtype, device=radius.device) if r > 0 and n > 1 else radius.new_zeros(1)
        for r, n in zip(radius.tolist(), points, strict=True)
    ]
    return torch.cartesian_prod(*axes).view(-1, len(axes))


def norm(theta: Tensor) -> Tensor:
    """The Euclidean norm of each row, shape (B,)."""
    return theta.flatten(1).norm(dim=1)


def relative(size: Tensor, radius: float) -> Tensor:
    """Size in units of the radius; with radius 0 only size 0 is within reach."""
    return size / radius if radius > 0 else torch.where(size > 0, torch.inf, 0.0).to(size)


def require_radius(name: str, value: float) -> None:
    """Refuse a radius that is negative or not a number."""
    if not (isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
