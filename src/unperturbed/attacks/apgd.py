"""APGD (Croce and Hein 2020): ascent with momentum whose steps grow shorter where it stops to gain."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..losses import ahead_of, cross_entropy, margin, slope_of
from ..neighborhoods import L2, Linf
from ..risks import decided
from ..solvers import chosen
from .rounds import State, followed

INERTIA = 0.25
"""share of the last move in the next one"""
RISING = 0.75
"""share of the steps between two looks that must have gained, or the steps are too long"""
LONGEST, SHRINK, SHORTEST = 0.22, 0.03, 0.06
"""steps between two looks, as shares of all: at first, how many fewer each time, and at least"""
TINY = 1e-12


class Climb(NamedTuple):
    """What is known of each image, row by row."""

    found: Tensor
    """the first point that fooled f, x before there is one"""
    fooled: Tensor
    x: Tensor
    y: Tensor
    target: Tensor
    here: Tensor
    before: Tensor
    """the point before this one"""
    gradient: Tensor
    loss: Tensor
    size: Tensor
    """length of a step"""
    best: Tensor
    """the point of the largest loss, with its loss and gradient"""
    best_loss: Tensor
    best_gradient: Tensor
    gains: Tensor
    """steps since the last look that raised the loss"""
    seen: Tensor
    """the largest loss that the last look saw"""
    shrunk: Tensor
    """whether steps grew shorter then"""


@dataclass(frozen=True, slots=True, kw_only=True)
class APGD:
    """A search for the largest loss in a ball; the first point that fools f counts."""

    around: Linf | L2
    loss: Literal["ce", "dlr", "targeted dlr"] = "ce"
    steps: int = 100

    def begin(self, f: nn.Module, x: Tensor, y: Tensor, target: Tensor, rng: Generator) -> State:
        # The first step has no gradient yet and stays here: it is what f says of this point, and no gain.
        here, gradient = x + self.around.sample(x, rng), torch.zeros_like(x)
        fooled, loss = torch.zeros_like(y, dtype=torch.bool), x.new_full((len(x),), -torch.inf)
        return Climb(
            *(x, fooled, x, y, target, here, here, gradient, loss),
            size=torch.full_like(loss, 2 * self.around.eps),
            best=here,
            best_loss=loss,
            best_gradient=gradient,
            gains=torch.full_like(loss, -1),
            seen=loss,
            shrunk=torch.ones_like(fooled),
        )

    def plan(self, x: Tensor) -> Tensor:
        """How much a step follows its gradient, and how many steps the look after it looks back on: 0 for no look."""
        looks, window, at = [0] * self.steps, max(1, int(LONGEST * self.steps)), 0
        while (at := at + window) <= self.steps:
            looks[at - 1] = window
            window = max(window - max(1, int(SHRINK * self.steps)), max(1, int(SHORTEST * self.steps)))
        rows = [(1.0 if step == 0 else 1 - INERTIA, float(look)) for step, look in enumerate(looks)]
        return torch.tensor([(1.0, 0.0), *rows], dtype=x.dtype, device=x.device)

    def step(self, f: nn.Module, state: State, now: Tensor, rng: Generator) -> State:
        at, follows, look = Climb(*state), now[0], now[1]
        length = at.size.view(-1, 1, 1, 1)
        climbed = self.inside(at.x, at.here + length * self.around.direction(at.gradient))
        inertia = (1 - follows) * (at.here - at.before)
        here = self.inside(at.x, at.here + follows * (climbed - at.here) + inertia)
        loss, gradient, wrong = self.judged(f, here, at.y, at.target)
        better = loss > at.best_loss
        best, best_loss = chosen(better, here, at.best), torch.where(better, loss, at.best_loss)
        best_gradient = chosen(better, gradient, at.best_gradient)
        gains, looks = at.gains + (loss > at.loss), look > 0
        stuck = (gains <= RISING * look) | (~at.shrunk & (at.seen >= best_loss))
        too_long = looks & stuck
        return at._replace(
            found=chosen(wrong & ~at.fooled, here, at.found),
            fooled=at.fooled | wrong,
            here=chosen(too_long, best, here),
            before=at.here,
            gradient=chosen(too_long, best_gradient, gradient),
            loss=loss,
            size=torch.where(too_long, at.size / 2, at.size),
            best=best,
            best_loss=best_loss,
            best_gradient=best_gradient,
            gains=gains.masked_fill(looks, 0),
            seen=torch.where(looks, best_loss, at.seen),
            shrunk=torch.where(looks, stuck, at.shrunk),
        )

    def inside(self, x: Tensor, point: Tensor) -> Tensor:
        """The point, or one near it in the ball around x."""
        return x + self.around.project(x, point - x)

    def judged(self, f: nn.Module, here: Tensor, y: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of each image, its gradient, and whether f is wrong."""
        with torch.enable_grad():
            here, logits = followed(f, here)
            loss = self.losses(logits, y, target)
            gradient = slope_of(loss, here)
        return loss.detach(), gradient, decided(logits.detach()) != y

    def losses(self, logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """What is maximized."""
        if self.loss == "ce":
            return cross_entropy(logits, y)
        if self.loss == "dlr":
            return difference_of_logits_ratio(logits, y)
        return targeted_difference_of_logits_ratio(logits, y, target)


def difference_of_logits_ratio(logits: Tensor, y: Tensor) -> Tensor:
    """DLR: the margin in units that a rescaled network cannot change."""
    largest = logits.topk(3).values
    return margin(logits, y) / (largest[:, 0] - largest[:, 2] + TINY)


def targeted_difference_of_logits_ratio(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """The same of one class alone."""
    largest = logits.topk(4).values
    return ahead_of(logits, y, target) / (largest[:, 0] - (largest[:, 2] + largest[:, 3]) / 2 + TINY)
