"""Spatial neighborhoods: the image is moved, its colors are not."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .definition import TOLERANCE, box_grid, relative, require_radius


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

    def __str__(self) -> str:
        return f"<= {self.rotation:g} degrees, <= {self.translation:g} px"

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
