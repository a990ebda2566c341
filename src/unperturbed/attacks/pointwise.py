"""Pointwise (Schott et al. 2019): noise that fools a classifier, taken back pixel by pixel; it needs no gradient."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from ..answers import frozen
from ..neighborhoods import L0, changed_pixels
from ..risks import decided
from ..solvers import require_count
from .rounds import standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise:
    """Salt-and-pepper noise that fools f, as little as does, taken back pixel by pixel, in all channels at once.

    An image that no noise fools is left alone.
    """

    pixels: int = 12
    """number of changed pixels up to which a point counts; the search itself has no bound"""
    noises: int = 100
    """amounts of noise that are tried for a start"""
    restarts: int = 3
    """searches from other noise and in another order, of which the smallest change wins"""

    def __post_init__(self) -> None:
        for name in ("pixels", "noises", "restarts"):
            require_count(f"Pointwise.{name}", getattr(self, name))

    @property
    def within(self) -> L0:
        """The number of pixels up to which a point counts."""
        return L0(pixels=self.pixels)

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.within}, fewest pixels, {self.noises} noises, best of {self.restarts}"

    def size(self, x: Tensor, perturbed: Tensor) -> Tensor:
        """The number of changed pixels of each image."""
        return changed_pixels(perturbed - x)

    @torch.no_grad()
    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        found, fewest = x.detach().clone(), torch.full_like(y, x[:1].numel() + 1, dtype=torch.long)
        with frozen(f):
            rows = standing(f, x, y)
            for _ in range(self.restarts if len(rows) else 0):
                noisy, fooling = peppered(f, x[rows], y[rows], self.noises, rng)
                begun = rows[fooling]
                if len(begun):
                    answer = taken_back(f, x[begun], y[begun], noisy[fooling], rng)
                    count = self.size(x[begun], answer)
                    fewer = count < fewest[begun]
                    found[begun[fewer]], fewest[begun[fewer]] = answer[fewer], count[fewer]
        return found


def peppered(f: nn.Module, x: Tensor, y: Tensor, noises: int, rng: Generator) -> tuple[Tensor, Tensor]:
    """Images with the least salt-and-pepper noise, of so many amounts, that fools f, and which are fooled by any."""
    found, rows = x.clone(), torch.arange(len(x), device=x.device)
    for amount in range(1, noises + 1):
        if len(rows) == 0:
            break
        share = amount / noises / 2
        lots = torch.rand(len(rows), 1, *x.shape[-2:], generator=rng, device=x.device, dtype=x.dtype)
        noisy = x[rows].masked_fill(lots < share, 0.0).masked_fill(lots >= 1 - share, 1.0)
        fooled = decided(f(noisy)) != y[rows]
        found[rows[fooled]] = noisy[fooled]
        rows = rows[~fooled]
    fooling = torch.ones_like(y, dtype=torch.bool)
    fooling[rows] = False
    return found, fooling


def taken_back(f: nn.Module, x: Tensor, y: Tensor, noisy: Tensor, rng: Generator) -> Tensor:
    """Noisy images that fool f, from which no changed pixel can be taken back without f being right again.

    In each round every changed pixel of an image is tried once, in a random order. An image in which nothing could be
    taken back is done. Images with the most pixels come first, so that those still at work are the first ones, and
    nothing has to be known of what f answered before a round is over.
    """
    original, point = x.flatten(2), noisy.flatten(2).clone()
    rows = torch.arange(len(x), device=x.device)
    while len(rows):
        changed = (point[rows] != original[rows]).any(1)
        counts, by_count = changed.sum(1).sort(descending=True, stable=True)
        rows, changed = rows[by_count], changed[by_count]
        chance = torch.rand(changed.shape, generator=rng, device=x.device)
        order = chance.masked_fill(~changed, torch.inf).argsort(1)
        waiting, longest = counts.tolist(), order.T.contiguous()
        shorter = torch.zeros(len(rows), dtype=torch.bool, device=x.device)
        for turn in range(waiting[0]):
            while waiting[-1] <= turn:
                waiting.pop()
            at_work = rows[: len(waiting)]
            pixel = longest[turn, : len(waiting)]
            before, after = point[at_work, :, pixel], original[at_work, :, pixel]
            place = pixel.view(-1, 1, 1).expand(-1, x.shape[1], 1)
            tried = point[at_work].scatter_(2, place, after.unsqueeze(2))
            fooled = decided(f(tried.view(-1, *x.shape[1:]))) != y[at_work]
            point[at_work, :, pixel] = torch.where(fooled.unsqueeze(1), after, before)
            shorter[: len(waiting)] |= fooled
        rows = rows[shorter]
    return point.view_as(x)
