"""Spatial neighborhoods: the image is moved, its colors are not."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .definition import MOST_PIXELS, beside, box_distance, box_grid, box_sample, lies_between, require_radius

Padding = Literal["zeros", "border", "reflection"]
MOST_DEGREES = 180.0
"""of a rotation either way, which make all that there are"""
MOST_ZOOM = 40.0
"""the logarithm of a zoom by which one pixel is wider than any image; far beyond, float32 holds no such factor"""


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
    padding: Padding = "zeros"
    """what lies outside the image; zeros equal padding widely, warping and cropping back"""

    def __post_init__(self) -> None:
        require_radius("Spatial.rotation", self.rotation, MOST_DEGREES)
        require_radius("Spatial.translation", self.translation, MOST_PIXELS)

    def __str__(self) -> str:
        return f"<= {self.rotation:g} degrees, <= {self.translation:g} px"

    def identity(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 3)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        return box_sample(x, self.radius(x), rng)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        angle = theta[:, 0].deg2rad()
        cos, sin = angle.cos(), angle.sin()
        return warp(x, shift=theta[:, 1:3], back=((cos, sin), (-sin, cos)), padding=self.padding)

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        radius = self.radius(x)
        return theta.clamp(-radius, radius)

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return box_distance(theta, self.radius(theta))

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign() * self.radius(gradient)

    def scaled(self, fraction: float) -> Self:
        return replace(self, rotation=fraction * self.rotation, translation=fraction * self.translation)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return may_be_a_warp(x, perturbed, self.padding)

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        radius = self.radius(x)
        return box_grid(-radius, radius, points, ("rotation", "shift right", "shift down"))

    def radius(self, x: Tensor) -> Tensor:
        """The bound of each parameter, shape (3,)."""
        return beside(x, self.rotation, self.translation, self.translation)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnThenShift:
    """Spatial with a second bilinear interpolation: what a rotation leaves is shifted, as in the authors' code.

    theta is that of Spatial, and so is T(x; theta) where an image is only turned or only shifted. Otherwise the
    second interpolation blurs what the first left; pixels that are turned out of the image and shifted back are kept.
    """

    rotation: float = 30.0
    """largest rotation in degrees, either way"""
    translation: float = 3.0
    """largest shift in pixels, along each axis and either way"""

    def __post_init__(self) -> None:
        require_radius("TurnThenShift.rotation", self.rotation, MOST_DEGREES)
        require_radius("TurnThenShift.translation", self.translation, MOST_PIXELS)

    def __str__(self) -> str:
        return f"<= {self.rotation:g} degrees, then <= {self.translation:g} px"

    def identity(self, x: Tensor) -> Tensor:
        return self.once.identity(x)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        return self.once.sample(x, rng)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        kept = ceil(self.translation) + 1
        turn, shift = F.pad(theta[:, :1], (0, 2)), F.pad(theta[:, 1:], (1, 0))
        turned = self.once.transform(F.pad(x, (kept,) * 4), turn)
        return self.once.transform(turned, shift)[..., kept:-kept, kept:-kept]

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        return self.once.project(x, theta)

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return self.once.distance(x, theta)

    def direction(self, gradient: Tensor) -> Tensor:
        return self.once.direction(gradient)

    def scaled(self, fraction: float) -> Self:
        return replace(self, rotation=fraction * self.rotation, translation=fraction * self.translation)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return self.once.contains(x, perturbed)

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        return self.once.grid(x, points)

    @property
    def once(self) -> Spatial:
        """The same warps by one interpolation."""
        return Spatial(rotation=self.rotation, translation=self.translation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """T(x; theta) = A x + b with zoom and shear besides rotation and translation: Spatial where these two are 0.

    The zoom comes first, then shear and rotation, all about the center, then the translation. theta = (rotation in
    degrees, shift to the right, shift down in pixels, logarithm of the zoom factor, shear in degrees); a positive
    shear moves what lies below the center to the right, by its tangent for each pixel.
    """

    rotation: float = 30.0
    """largest rotation in degrees, either way"""
    translation: float = 3.0
    """largest shift in pixels, along each axis and either way"""
    scale: float = 0.1
    """largest logarithm of the zoom factor, either way: 0.1 is between 0.905 and 1.105 times the size"""
    shear: float = 10.0
    """largest shear in degrees, either way; less than 90"""
    padding: Padding = "zeros"
    """what lies outside the image; zeros equal padding widely, warping and cropping back"""

    def __post_init__(self) -> None:
        require_radius("Affine.rotation", self.rotation, MOST_DEGREES)
        require_radius("Affine.translation", self.translation, MOST_PIXELS)
        require_radius("Affine.scale", self.scale, MOST_ZOOM)
        require_radius("Affine.shear", self.shear)
        if self.shear >= 90:
            raise ValueError(f"Affine.shear must be less than 90 degrees, which flatten the image, got {self.shear}")

    def __str__(self) -> str:
        moved = f"<= {self.rotation:g} degrees, <= {self.translation:g} px"
        return f"{moved}, zoom <= exp({self.scale:g}), shear <= {self.shear:g} degrees"

    def identity(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 5)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        return box_sample(x, self.radius(x), rng)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        angle, slope, shrink = theta[:, 0].deg2rad(), theta[:, 4].deg2rad().tan(), (-theta[:, 3]).exp()
        cos, sin = angle.cos() * shrink, angle.sin() * shrink
        back = ((cos + slope * sin, sin - slope * cos), (-sin, cos))
        return warp(x, shift=theta[:, 1:3], back=back, padding=self.padding)

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        radius = self.radius(x)
        return theta.clamp(-radius, radius)

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return box_distance(theta, self.radius(theta))

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign() * self.radius(gradient)

    def scaled(self, fraction: float) -> Self:
        return replace(
            self,
            rotation=fraction * self.rotation,
            translation=fraction * self.translation,
            scale=fraction * self.scale,
            shear=fraction * self.shear,
        )

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return may_be_a_warp(x, perturbed, self.padding)

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        radius = self.radius(x)
        return box_grid(-radius, radius, points, ("rotation", "shift right", "shift down", "zoom", "shear"))

    def radius(self, x: Tensor) -> Tensor:
        """The bound of each parameter, shape (5,)."""
        return beside(x, self.rotation, self.translation, self.translation, self.scale, self.shear)


Row = tuple[Tensor, Tensor]


def warp(x: Tensor, *, shift: Tensor, back: tuple[Row, Row], padding: Padding) -> Tensor:
    """Images moved by a linear map about their center, then by a shift to the right and down in pixels.

    The map is given by its inverse, a matrix of (B,) that takes (to the right, down) back to where it came from.
    """
    height, width = x.shape[-2:]
    right, down = shift.view(-1, 2, 1, 1).unbind(1)
    ((jj, ji), (ij, ii)) = ((entry.view(-1, 1, 1) for entry in row) for row in back)
    # Pixel centers of the output, seen from the center of the image, are carried back to where they came from.
    i = torch.arange(height, device=x.device, dtype=x.dtype).view(1, -1, 1) - (height - 1) / 2 - down
    j = torch.arange(width, device=x.device, dtype=x.dtype).view(1, 1, -1) - (width - 1) / 2 - right
    source_j = jj * j + ji * i
    source_i = ii * i + ij * j
    places = torch.stack([source_j * (2 / width), source_i * (2 / height)], dim=-1)
    # Weights that rounding leaves a little above 1 in sum would carry white pixels out of [0, 1].
    return F.grid_sample(x, places, mode="bilinear", padding_mode=padding, align_corners=False).clamp(0, 1)


def may_be_a_warp(x: Tensor, perturbed: Tensor, padding: Padding) -> Tensor:
    """Whether each image lies between the pixels of x and the fill, as interpolation leaves it; more is not told."""
    low, high = x.flatten(1).amin(1), x.flatten(1).amax(1)
    if padding == "zeros":
        low, high = low.clamp_max(0), high.clamp_min(0)
    return lies_between(perturbed, low, high)
