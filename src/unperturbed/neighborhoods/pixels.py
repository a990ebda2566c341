"""Pixel-wise neighborhoods: T(x; theta) = x + theta, bounded in a norm, images kept in [0, 1]."""

from dataclasses import dataclass, replace
from math import floor
from typing import Self

import torch
from torch import Generator, Tensor

from .definition import SMALLEST, TOLERANCE, is_image, relative, require_radius, to_be_drawn

CHANGE = 1e-6
"""how much a channel must differ to count as changed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linf:
    """Pixel-wise: T(x; theta) = x + theta with max |theta| <= eps, images kept in [0, 1]."""

    eps: float = 8 / 255
    """largest change of a pixel, on the scale of [0, 1]"""

    def __post_init__(self) -> None:
        require_radius("Linf.eps", self.eps)
        if self.eps > 1:
            raise ValueError(
                f"Linf.eps must be at most 1, the scale of pixels, got {self.eps}: write 8 of 255 as 8/255"
            )

    def __str__(self) -> str:
        return f"Linf {self.eps:.4g}"

    def identity(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        return self.project(x, to_be_drawn(x).uniform_(-self.eps, self.eps, generator=rng))

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        return x + theta

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        return (x + theta.clamp(-self.eps, self.eps)).clamp(0, 1) - x

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return relative(theta.abs().flatten(1).amax(1), self.eps)

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign()

    def scaled(self, fraction: float) -> Self:
        return replace(self, eps=min(1.0, fraction * self.eps))

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return at_most((perturbed - x).abs().flatten(1).amax(1), self.eps, 1) & is_image(perturbed)


@dataclass(frozen=True, slots=True, kw_only=True)
class L2:
    """Pixel-wise: T(x; theta) = x + theta with |theta|_2 <= eps, images kept in [0, 1]."""

    eps: float = 0.5
    """largest Euclidean norm of the change, on the scale of [0, 1]"""

    def __post_init__(self) -> None:
        require_radius("L2.eps", self.eps)

    def __str__(self) -> str:
        return f"L2 {self.eps:.4g}"

    def identity(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        ray = self.direction(to_be_drawn(x).normal_(generator=rng))
        return self.project(x, somewhere_along(ray, self.eps, rng))

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        return x + theta

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        shrink = (self.eps / norm(theta).clamp_min(1e-12)).clamp_max(1)
        # Clamping to a valid image moves every pixel towards x, so the norm cannot grow again.
        return (x + shrink.view(-1, 1, 1, 1) * theta).clamp(0, 1) - x

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return relative(norm(theta), self.eps)

    def direction(self, gradient: Tensor) -> Tensor:
        # Squares of a tiny gradient underflow, so its largest entry is brought to 1 first.
        peaked = with_peak_of_one(gradient)
        return peaked / norm(peaked).clamp_min(torch.finfo(gradient.dtype).tiny).view(-1, 1, 1, 1)

    def scaled(self, fraction: float) -> Self:
        return replace(self, eps=fraction * self.eps)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return at_most(norm(perturbed - x), self.eps, x[0].numel() ** 0.5) & is_image(perturbed)


@dataclass(frozen=True, slots=True, kw_only=True)
class L1:
    """Pixel-wise: T(x; theta) = x + theta with |theta|_1 <= eps, images kept in [0, 1].

    The steepest step of unit length moves one value alone, the one of the largest gradient. As in the sparse descent
    of Tramèr and Boneh, a step here moves a share of them, all by the same amount: less steep, but far fewer steps.
    In an ascent these are values that can move: black ones get no darker, and white ones no lighter.
    """

    eps: float = 10.0
    """largest sum of the absolute changes, on the scale of [0, 1]"""
    share: float = 0.01
    """fraction of the values that a step moves, those of the largest gradient; never fewer than one"""

    def __post_init__(self) -> None:
        require_radius("L1.eps", self.eps)
        if not 0 <= self.share <= 1:
            raise ValueError(f"L1.share must be a fraction between 0 and 1, got {self.share}")

    def __str__(self) -> str:
        return f"L1 {self.eps:.4g}"

    def identity(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        # Signed exponential variables, divided by their sum, lie uniformly on the sphere of this norm.
        lots = to_be_drawn(x).exponential_(generator=rng)
        signs = to_be_drawn(x).uniform_(-1, 1, generator=rng).sign()
        ray = signs * lots / lots.flatten(1).sum(1).view(-1, 1, 1, 1)
        return self.project(x, somewhere_along(ray, self.eps, rng))

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        return x + theta

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        nearest = nearest_in_l1_ball(theta.flatten(1), self.eps).view_as(theta)
        # Clamping to a valid image moves every pixel towards x, so the norm cannot grow again.
        return (x + nearest).clamp(0, 1) - x

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return relative(theta.abs().flatten(1).sum(1), self.eps)

    def direction(self, gradient: Tensor) -> Tensor:
        slopes = gradient.flatten(1)
        steepest = slopes.abs().topk(max(1, round(self.share * slopes.shape[1]))).indices
        moves = torch.zeros_like(slopes).scatter(1, steepest, slopes.gather(1, steepest).sign())
        return (moves / moves.abs().sum(1, keepdim=True).clamp_min(1)).view_as(gradient)

    def climbed(self, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
        return self.project(x, theta + length * self.direction(self.movable(x, theta, gradient)))

    def long_step(self, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
        return length * self.eps * self.direction(self.movable(x, theta, gradient))

    def movable(self, x: Tensor, theta: Tensor, gradient: Tensor) -> Tensor:
        """The slopes of values that are not at the end of their range; others would take its share and stay."""
        value = x + theta
        ended = ((value < CHANGE) & (gradient < 0)) | ((value > 1 - CHANGE) & (gradient > 0))
        return gradient.masked_fill(ended, 0.0)

    def scaled(self, fraction: float) -> Self:
        return replace(self, eps=fraction * self.eps)

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return at_most((perturbed - x).abs().flatten(1).sum(1), self.eps, x[0].numel()) & is_image(perturbed)


@dataclass(frozen=True, slots=True, kw_only=True)
class L0:
    """Pixel-wise: T(x; theta) = x + theta with at most so many pixels changed, images kept in [0, 1]."""

    pixels: int = 20
    """largest number of changed pixels; a pixel is changed if any of its channels is"""

    def __post_init__(self) -> None:
        if not isinstance(self.pixels, int) or self.pixels < 0:
            raise ValueError(f"L0.pixels must be a whole number of at least 0, got {self.pixels}")

    def __str__(self) -> str:
        return f"L0 {self.pixels} pixel{'' if self.pixels == 1 else 's'}"

    def identity(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def sample(self, x: Tensor, rng: Generator) -> Tensor:
        lots = torch.rand(x[:, 0].shape, generator=rng, device=x.device, dtype=x.dtype)
        colors = torch.rand(x.shape, generator=rng, device=x.device, dtype=x.dtype)
        return largest(lots, self.pixels) * (colors - x)

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        return x + theta

    def project(self, x: Tensor, theta: Tensor) -> Tensor:
        valid = (x + theta).clamp(0, 1) - x
        # Zeroing a pixel costs its square, keeping it costs only what the clamping cuts off.
        saved = theta.square() - (theta - valid).square()
        return largest(saved.sum(1), self.pixels) * valid

    def distance(self, x: Tensor, theta: Tensor) -> Tensor:
        return relative(changed_pixels(theta).to(theta), self.pixels)

    def direction(self, gradient: Tensor) -> Tensor:
        # No step in this set is steepest, its pixels having no bound but the image: the largest one moves by 1.
        return with_peak_of_one(gradient)

    def long_step(self, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
        """As direction has it: a number of pixels, the distance here, is the same for steps of any length."""
        return length * self.direction(gradient)

    def scaled(self, fraction: float) -> Self:
        require_radius("the fraction of L0.pixels", fraction)
        return replace(self, pixels=floor(fraction * self.pixels + 1e-9))

    def contains(self, x: Tensor, perturbed: Tensor) -> Tensor:
        return (self.distance(x, perturbed - x) <= 1) & is_image(perturbed)


def somewhere_along(ray: Tensor, eps: float, rng: Generator) -> Tensor:
    """Each ray at a random length, so that points on rays to anywhere lie uniformly in the ball of that radius."""
    share = torch.rand(len(ray), 1, 1, 1, generator=rng, device=ray.device, dtype=ray.dtype)
    return eps * share ** (1 / ray.shape[1:].numel()) * ray


def with_peak_of_one(gradient: Tensor) -> Tensor:
    """Each gradient divided by the size of its largest entry; one of nothing but 0 stays as it is."""
    peak = gradient.flatten(1).abs().amax(1)
    return gradient / peak.clamp_min(torch.finfo(gradient.dtype).tiny).view(-1, 1, 1, 1)


def at_most(size: Tensor, eps: float, roundings: float) -> Tensor:
    """Whether sizes are at most eps, but for rounding: a pixel near 1 is stored to so much, whatever eps is."""
    return size <= eps * (1 + TOLERANCE) + roundings * torch.finfo(size.dtype).eps


def changed_pixels(theta: Tensor) -> Tensor:
    """How many pixels of each image have a channel that theta changes, shape (B,)."""
    return (theta.abs() > CHANGE).any(1).flatten(1).sum(1)


def largest(score: Tensor, count: int) -> Tensor:
    """A mask, shape (B, 1, H, W), of that many pixels of each image: those of the largest score, (B, H, W)."""
    scores = score.flatten(1)
    chosen = scores.topk(min(count, scores.shape[1])).indices
    return torch.zeros_like(scores).scatter(1, chosen, 1).view_as(score).unsqueeze(1)


def nearest_in_l1_ball(rows: Tensor, eps: float) -> Tensor:
    """For each row the nearest one with |row|_1 <= eps: every entry goes towards 0 by the same amount, or to 0."""
    descending = rows.abs().sort(1, descending=True).values
    counts = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=rows.dtype)
    # Of all ways to spend eps on the largest entries alone, the one that cuts off most cuts off the right amount.
    amount = ((descending.cumsum(1) - eps) / counts).amax(1, keepdim=True).clamp_min(0)
    nearest = rows.sign() * (rows.abs() - amount).clamp_min(0)
    # The difference of two large numbers leaves a rounding error that is large beside a small eps.
    excess = nearest.abs().sum(1, keepdim=True) / max(eps, SMALLEST)
    return nearest / excess.clamp_min(1)


def norm(theta: Tensor) -> Tensor:
    """The Euclidean norm of each row, shape (B,)."""
    return theta.flatten(1).norm(dim=1)
