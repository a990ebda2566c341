"""Square (Andriushchenko et al. 2020): squares at random places, kept where f gets less sure, without gradients."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from ..losses import margin
from ..neighborhoods import L2, Linf
from ..risks import NO_CLASS, decided
from ..solvers import chosen
from .rounds import State

SHARE = 0.8
"""of the image that the first squares cover; half as much after each of the moments, in 10,000ths of the search"""
MOMENTS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
TILES = 5
"""squares along a side of an image, of which the first change in L2 consists"""
TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """A random search for the largest margin in a ball."""

    around: Linf | L2
    steps: int = 5000

    def begin(self, f: nn.Module, x: Tensor, y: Tensor, target: Tensor, rng: Generator) -> State:
        change = stripes(x, rng) if isinstance(self.around, Linf) else tiles(x, rng)
        here = self.at_the_border(x, change)
        ahead = margin_at(f, here, y)
        return here, ahead > 0, x, y, ahead

    def plan(self, x: Tensor) -> Tensor:
        """The side of a square; in L2 it has a middle."""
        height, width = x.shape[-2:]
        sides: list[list[float]] = []
        for step in range(self.steps):
            halvings = sum(int(10_000 * step / self.steps) > moment for moment in MOMENTS)
            side = round((SHARE / 2**halvings * height * width) ** 0.5)
            side = max(side, 1) if isinstance(self.around, Linf) else max(side, 3) | 1
            sides.append([float(min(side, height, width))])
        return torch.tensor(sides, dtype=x.dtype, device=x.device)

    def step(self, f: nn.Module, state: State, now: Tensor, rng: Generator) -> State:
        here, fooled, x, y, ahead = state
        square = placed(x, now[0], rng)
        if isinstance(self.around, Linf):
            change = here - x + 2 * self.around.eps * square[0] * signs(x, rng)
            tried = x + self.around.project(x, change)
        else:
            other = placed(x, now[0], rng)
            tried = self.at_the_border(x, moved(here - x, square, other, now[0], self.around.eps, rng))
        value = margin_at(f, tried, y)
        better = (value > ahead) & ~fooled
        ahead = torch.where(better, value, ahead)
        return chosen(better, tried, here), ahead > 0, x, y, ahead

    def at_the_border(self, x: Tensor, change: Tensor) -> Tensor:
        """The change made as large as the ball allows, and cut where the image ends."""
        return x + self.around.project(x, self.around.eps * self.around.direction(change))


def margin_at(f: nn.Module, points: Tensor, y: Tensor) -> Tensor:
    """The margin of each point, above 0 wherever f is wrong: a tie may be lost, and what is NaN is never right."""
    logits = f(points)
    answer = decided(logits)
    # Nothing is greater than NaN, as that of two infinite logits: any other margin is better.
    ahead = margin(logits, y).nan_to_num(-torch.inf, torch.inf, -torch.inf)
    ahead = torch.where(answer == y, ahead, ahead.clamp_min(TINY))
    return ahead.masked_fill(answer == NO_CLASS, torch.inf)


Placed = tuple[Tensor, Tensor, Tensor]
"""where the square of an image lies, (B, 1, H, W), and how far rows and columns are from its first, (B, H), (B, W)"""


def placed(x: Tensor, side: Tensor, rng: Generator) -> Placed:
    """A square of that side somewhere in each image."""
    height, width = x.shape[-2:]
    chance = torch.rand(len(x), 2, generator=rng, device=x.device, dtype=x.dtype)
    top, left = (chance[:, 0] * (height - side + 1)).floor(), (chance[:, 1] * (width - side + 1)).floor()
    down = torch.arange(height, device=x.device) - top.unsqueeze(1)
    along = torch.arange(width, device=x.device) - left.unsqueeze(1)
    rows, columns = ((place >= 0) & (place < side) for place in (down, along))
    return (rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1).to(x.dtype), down, along


def signs(x: Tensor, rng: Generator, *shape: int) -> Tensor:
    """1 or -1 for each channel of each image, and for each place of that shape in it."""
    lots = torch.rand(*x.shape[:2], *(shape or (1, 1)), generator=rng, device=x.device, dtype=x.dtype)
    return 2 * (lots < 0.5).to(x.dtype) - 1


def stripes(x: Tensor, rng: Generator) -> Tensor:
    """A change of 1 or -1 for each column and channel."""
    return signs(x, rng, 1, x.shape[-1]).expand_as(x)


def tiles(x: Tensor, rng: Generator) -> Tensor:
    """Two opposite pyramids on each square of a grid."""
    height, width = x.shape[-2:]
    side = max(min(height, width) // TILES, 3) | 1
    down, along = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    shape = pyramids(x.new_tensor(float(side)), height, width)[down % side][:, along % side]
    sign = signs(x, rng, -(-height // side), -(-width // side))
    return shape * sign[:, :, down // side][:, :, :, along // side]


def pyramids(side: Tensor, height: int, width: int) -> Tensor:
    """The shape of a change in L2: an upper half above 0 and a lower one below it, each highest in its middle.

    It lies in the first corner of an image, and has the length 1.
    """
    down = torch.arange(height, device=side.device, dtype=side.dtype).unsqueeze(1)
    along = torch.arange(width, device=side.device, dtype=side.dtype).unsqueeze(0)
    half = (side / 2).floor()
    steps = torch.arange(1, max(height, width) + 2, device=side.device, dtype=side.dtype)
    heights = torch.cat([steps.new_zeros(1), steps.pow(-2).cumsum(0)])
    total = side.new_zeros(height, width)
    for sign, first, last in ((1.0, torch.zeros_like(half), half), (-1.0, half, side)):
        middle = first + ((last - first) / 2).floor()
        apart = torch.maximum((down - middle).abs(), (along - half).abs()).minimum(half + 1)
        one = heights.index_select(0, (half + 1).long().view(1)) - heights[apart.long()]
        one = one * ((down >= first) & (down < last) & (along < side))
        total = total + sign * one / (one.square().sum().sqrt() + TINY)
    return total / (total.square().sum().sqrt() + TINY)


def moved(change: Tensor, to: Placed, out_of: Placed, side: Tensor, eps: float, rng: Generator) -> Tensor:
    """The change, with what it spent in one square, and what it has not spent at all, spent in another."""
    here, down, along = to
    height, width = change.shape[-2:]
    shape = pyramids(side, height, width)
    flips = torch.rand(len(change), 1, 1, generator=rng, device=change.device) < 0.5
    i, j = down.clamp(0, height - 1).long().unsqueeze(2), along.clamp(0, width - 1).long().unsqueeze(1)
    # Only pixels of the square count, and there both places lie within its sides, so the shape may be turned.
    turned = shape[j.clamp_max(height - 1), i.clamp_max(width - 1)]
    fresh = torch.where(flips, turned, shape[i, j]).unsqueeze(1) * here * signs(change, rng)
    old = change * here
    mixed = fresh + old / (length_of_channels(old) + TINY)
    both = torch.maximum(here, out_of[0])
    unspent = (eps**2 - change.square().sum((1, 2, 3), keepdim=True)).clamp_min(0) / change.shape[1]
    budget = (unspent + (change * both).square().sum((2, 3), keepdim=True)).sqrt()
    return change * (1 - both) + budget * mixed / (length_of_channels(mixed) + TINY)


def length_of_channels(change: Tensor) -> Tensor:
    """The Euclidean norm of each channel."""
    return change.square().sum((2, 3), keepdim=True).sqrt()
