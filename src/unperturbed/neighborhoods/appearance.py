"""Neighborhoods of appearance: everything stays in its place, but looks different."""

from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import Self

import torch
from torch import Generator, Tensor

from .definition import (
    MOST_PIXELS,
    beside,
    box_distance,
    box_grid,
    box_sample,
    is_image,
    lies_between,
    require_radius,
)

LUMA = (0.299, 0.587, 0.114)
"""how much red, green and blue add to the brightness of a pixel"""
BESIDE = 1e-3
"""pixels of blur whose slope stands for that at no blur"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blur:
    """T(x; theta) = exp(theta^2 / 2 * Laplacian) x: Gaussian blur with a standard deviation of theta pixels.

    It is diffusion on the grid of pixels, whose kernel has the variance theta^2 at any theta; that of a sampled
    Gaussian, and with it the gradient, vanishes well before theta does. Nothing flows over the border, so no border
    darkens. Blur by -theta is blur by theta, hence x itself is stationary, and no ascent would leave it: the slope
    there is taken to be the one beside it.
    """

    sigma: float = 1.0
    """largest standard deviation in pixels"""

    def __post_init__(self) -> None:
        require_radius("Blur.sigma", self.sigma, MOST_PIXELS)

    def __str__(self) -> str:
        return f"blur <= {self.sigma:g} px"

    def identity(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 1)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        return self.sigma * torch.rand(len(x), 1, generator=rng, device=x.device, dtype=x.dtype)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        variance = torch.where(theta == 0, 2 * BESIDE * theta, theta.square())
        x = x + spread(variance, height) @ x
        # Averages of pixels lie between them, but rounding carries some of them out of [0, 1].
        return (x + x @ spread(variance, width)).clamp(0, 1)

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        return theta.abs().clamp_max(self.sigma)

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return box_distance(theta, self.radius(theta))

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign() * self.radius(gradient)

    def scaled(self, fraction: float) -> Self:
        return replace(self, sigma=fraction * self.sigma)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        # A blur is not read off an image; but averages lie between the pixels they are taken of.
        return lies_between(perturbed, x.flatten(1).amin(1), x.flatten(1).amax(1))

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        radius = self.radius(x)
        return box_grid(torch.zeros_like(radius), radius, points, ("blur",))

    def radius(self, x: Tensor) -> Tensor:
        """The upper bound of the parameter, shape (1,); the lower one is 0."""
        return beside(x, self.sigma)


@dataclass(frozen=True, slots=True, kw_only=True)
class Color:
    """Brightness, contrast, saturation and hue, theta in this order; images kept in [0, 1] by clamping at the end.

    A hue is turned about the gray axis and a saturation changed at the luma the pixel has; contrast is about the mean
    luma of the image. So the four commute before the clamping, and no order has to be chosen. Images that are not
    RGB have neither saturation nor hue: these parameters are without effect there.
    """

    brightness: float = 0.1
    """largest shift of all pixels, either way, on the scale of [0, 1]"""
    contrast: float = 0.2
    """largest change of the contrast, either way: 0.2 is between 0.8 and 1.2 times the contrast of x"""
    saturation: float = 0.2
    """largest change of the saturation, either way: 0.2 is between 0.8 and 1.2 times that of x, and -1 is gray"""
    hue: float = 15.0
    """largest turn of the hue in degrees, either way; 120 takes red to green"""

    def __post_init__(self) -> None:
        require_radius("Color.brightness", self.brightness)
        require_radius("Color.contrast", self.contrast)
        require_radius("Color.saturation", self.saturation)
        require_radius("Color.hue", self.hue)

    def __str__(self) -> str:
        light = f"brightness <= {self.brightness:g}, contrast <= {self.contrast:g}"
        return f"{light}, saturation <= {self.saturation:g}, hue <= {self.hue:g} degrees"

    def identity(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), 4)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        return box_sample(x, self.radius(x), rng)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        brightness, contrast, saturation, hue = theta.view(-1, 4, 1, 1, 1).unbind(1)
        gray = luma(x)
        middle = gray.mean((2, 3), keepdim=True)
        if is_rgb(x):
            chroma = x - gray
            x = x + ((1 + saturation) * turned_hue(chroma, hue.deg2rad()) - chroma)
        return (x + contrast * (x - middle) + brightness).clamp(0, 1)

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
            brightness=fraction * self.brightness,
            contrast=fraction * self.contrast,
            saturation=fraction * self.saturation,
            hue=fraction * self.hue,
        )

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return is_image(perturbed)

    def grid(self, x: Tensor, points: tuple[int, ...]) -> Tensor:
        radius = self.radius(x)
        if not is_rgb(x):
            radius[2:] = 0
        return box_grid(-radius, radius, points, ("brightness", "contrast", "saturation", "hue"))

    def radius(self, x: Tensor) -> Tensor:
        """The bound of each parameter, shape (4,)."""
        return beside(x, self.brightness, self.contrast, self.saturation, self.hue)


def spread(variance: Tensor, size: int) -> Tensor:
    """exp(variance / 2 * Laplacian) - 1 on a row of pixels with closed ends, shape (B, 1, size, size).

    Cosines are the eigenvectors of that Laplacian, (1, -2, 1); without the 1, no spread is exactly nothing,
    nor has the constant one, which does not decay, a part in it.
    """
    k = torch.arange(size, device=variance.device, dtype=variance.dtype)
    waves = torch.cos(pi / size * torch.outer(k, k + 0.5)) * sqrt(2 / size)
    decay = torch.expm1(variance * (torch.cos(pi / size * k) - 1))
    return (waves.T @ (decay.unsqueeze(2) * waves)).unsqueeze(1)


def is_rgb(x: Tensor) -> bool:
    """Whether images have colors."""
    return x.shape[1] == len(LUMA)


def luma(x: Tensor) -> Tensor:
    """How bright each pixel looks, shape (B, 1, H, W)."""
    return (x * beside(x, *LUMA).view(-1, 1, 1)).sum(1, keepdim=True) if is_rgb(x) else x.mean(1, keepdim=True)


def turned_hue(chroma: Tensor, angle: Tensor) -> Tensor:
    """Colors without luma, turned about the gray axis from red towards green and left without luma."""
    aside = (chroma.roll(1, 1) - chroma.roll(-1, 1)) / sqrt(3)
    return angle.cos() * chroma + angle.sin() * (aside - luma(aside))
