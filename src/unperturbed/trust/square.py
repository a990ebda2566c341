"""A black-box attack: random search over squares of one color."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..losses import Loss
from ..neighborhoods import Linf
from ..solvers import require_count
from ..solvers.definition import greater
from .subject import Ball

FIRST_SHARE = 0.8
"""share of the pixels that the first squares cover"""
HALVINGS = (0.001, 0.005, 0.02, 0.1, 0.2, 0.4, 0.6, 0.8)
"""shares of the queries after which squares have half the area"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """Stripes, then squares at random places that stay where they raise the loss (Andriushchenko et al. 2020)."""

    around: Ball
    queries: int = 1_000
    """of the loss for each image; one whose loss is positive is searched no further"""

    def __post_init__(self) -> None:
        require_count("Square.queries", self.queries)

    @torch.no_grad()
    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        height, width = x.shape[-2:]
        stripes = signs((*x.shape[:2], 1, width), x, rng).expand_as(x)
        theta = self.around.project(x, self.around.eps * self.around.direction(stripes))
        best = loss(x + theta)
        # Two radii carry a pixel to its bound wherever it was; in L2 they would undo most of what was found.
        reach = self.around.eps * (2.0 if isinstance(self.around, Linf) else 0.5)
        for query in range(1, self.queries):
            rows = (best <= 0).nonzero().flatten()
            if len(rows) == 0:
                break
            share = FIRST_SHARE / 2 ** sum(query >= mark * self.queries for mark in HALVINGS)
            side = max(1, round((share * height * width) ** 0.5))
            down, right = (windows(len(rows), length, side, x, rng) for length in (height, width))
            squares = down.unsqueeze(3) * right.unsqueeze(2) * signs((len(rows), x.shape[1], 1, 1), x, rng)
            tried = self.around.project(x[rows], theta[rows] + reach * self.around.direction(squares))
            value = loss(x[rows] + tried, rows)
            theta[rows], best[rows] = greater(value, tried, best[rows], theta[rows])
        return x + theta


def signs(shape: tuple[int, ...], like: Tensor, rng: Generator) -> Tensor:
    """1 or -1, at random."""
    return (2 * torch.randint(0, 2, shape, generator=rng, device=like.device) - 1).to(like)


def windows(count: int, length: int, side: int, like: Tensor, rng: Generator) -> Tensor:
    """1 within a random interval of that side, 0 elsewhere, shape (count, 1, length)."""
    first = torch.randint(0, max(1, length - side + 1), (count, 1, 1), generator=rng, device=like.device)
    place = torch.arange(length, device=like.device)
    return ((place >= first) & (place < first + side)).to(like)
