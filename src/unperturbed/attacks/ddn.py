"""The smallest Euclidean change that fools a classifier."""

from dataclasses import dataclass
from math import cos, pi

import torch
from torch import Generator, Tensor, nn

from ..answers import frozen
from ..losses import cross_entropy, slope_of
from ..neighborhoods import L2, norm, to_be_drawn
from ..risks import decided
from ..solvers import chosen, require_count, require_positive
from .rounds import followed

LAST_STEP = 0.01
"""length of the last step, to which a cosine anneals the first one, of length 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DDN:
    """Decoupled direction and norm (Rony et al. 2019): steps along the gradient on a sphere that breathes.

    The sphere around x shrinks by gamma while the image fools f, and grows by gamma while it does not.
    """

    eps: float = 2.0
    """Euclidean norm up to which a point counts; the search itself has no bound"""
    steps: int = 100
    """gradients for each image"""
    init_norm: float = 1.0
    """radius of the sphere at the start"""
    gamma: float = 0.05
    """share by which the radius changes in a step"""
    levels: int | None = None
    """number of values a pixel can take, 256 for images of bytes; None: any value"""

    def __post_init__(self) -> None:
        require_count("DDN.steps", self.steps)
        require_positive("DDN.eps", self.eps)
        require_positive("DDN.init_norm", self.init_norm)
        if not 0 < self.gamma < 1:
            raise ValueError(f"DDN.gamma must lie between 0 and 1, got {self.gamma}")
        if self.levels is not None and self.levels < 2:
            raise ValueError(f"DDN.levels must be at least 2, or None for any value, got {self.levels}")

    @property
    def within(self) -> L2:
        """The ball in which a point counts."""
        return L2(eps=self.eps)

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.within}, minimum norm, {self.steps} steps"

    def size(self, x: Tensor, perturbed: Tensor) -> Tensor:
        """The Euclidean norm of each change."""
        return norm(perturbed - x)

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        x = x.detach()
        farthest = norm(torch.maximum(x, 1 - x))
        radius, best_norm = torch.full_like(farthest, self.init_norm), torch.full_like(farthest, torch.inf)
        tried = best = x
        with frozen(f):
            for step in range(self.steps):
                logits, gradient = logits_and_gradient(f, tried, y)
                fooled = decided(logits) != y
                best, best_norm = closer(x, tried, fooled, best, best_norm)
                radius = torch.where(fooled, (1 - self.gamma) * radius, (1 + self.gamma) * radius).minimum(farthest)
                length = LAST_STEP + (1 - LAST_STEP) * (1 + cos(pi * step / self.steps)) / 2
                moved = tried - x + length * unit(gradient, rng)
                on_sphere = moved * (radius / norm(moved).clamp_min(1e-12)).view(-1, 1, 1, 1)
                tried = self.rounded((x + on_sphere).clamp(0, 1))
            with torch.no_grad():
                fooled = decided(f(tried)) != y
        return closer(x, tried, fooled, best, best_norm)[0]

    def rounded(self, image: Tensor) -> Tensor:
        """The nearest image whose pixels take one of the levels."""
        return image if self.levels is None else (image * (self.levels - 1)).round() / (self.levels - 1)


def logits_and_gradient(f: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """f(x), and the gradient of its cross-entropy with respect to x."""
    with torch.enable_grad():
        x, logits = followed(f, x)
        gradient = slope_of(cross_entropy(logits, y).sum(), x)
    return logits.detach(), gradient


def closer(x: Tensor, tried: Tensor, fooled: Tensor, best: Tensor, best_norm: Tensor) -> tuple[Tensor, Tensor]:
    """Row by row the closer of two images that fooled f, and its norm."""
    size = norm(tried - x)
    wins = fooled & (size < best_norm)
    return chosen(wins, tried, best), chosen(wins, size, best_norm)


def unit(gradient: Tensor, rng: Generator) -> Tensor:
    """The direction of each gradient, and a random one where it vanishes."""
    noise = to_be_drawn(gradient).normal_(generator=rng)
    peak = gradient.flatten(1).abs().amax(1).view(-1, 1, 1, 1)
    # A confident f has gradients so small that their squares are 0: they are scaled before their norm is taken.
    ray = torch.where(peak > 0, gradient / peak, noise)
    return ray / norm(ray).view(-1, 1, 1, 1)
