"""APGD (Croce and Hein 2020): ascent with momentum whose steps grow shorter where it stops to gain."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from ..losses import cross_entropy, margin, slope_of
from ..neighborhoods import L2, Linf
from .rounds import State, chosen

INERTIA = 0.25
"""share of the last move in the next one"""
RISING = 0.75
"""share of the steps between two looks that must have gained, or the steps are too long"""
LONGEST, SHRINK, SHORTEST = 0.22, 0.03, 0.06
"""steps between two looks, as shares of all: at first, how many fewer each time, and at least"""
TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class APGD:
    """A search for the largest loss in a ball; the first point that fools f counts."""

    around: Linf | L2
    loss: Literal["ce", "dlr", "targeted dlr"] = "ce"
    steps: int = 100

    def begin(self, f: nn.Module, x: Tensor, y: Tensor, target: Tensor, rng: Generator) -> State:
        here = x + self.around.sample(x, rng)
        loss, gradient, fooled = self.judged(f, here, y, target)
        size = torch.full_like(loss, 2 * self.around.eps)
        found, none = chosen(fooled, here, x), torch.zeros_like(loss)
        shrunk = torch.ones_like(fooled)
        # The last six: the best point, its loss and gradient, gains since the last look, and what that look saw.
        return (
            found,
            fooled,
            x,
            y,
            target,
            here,
            here,
            gradient,
            size,
            loss,
            here,
            loss,
            gradient,
            none,
            loss,
            shrunk,
        )

    def plan(self, x: Tensor) -> Tensor:
        """How much a step follows its gradient, and how many steps the look after it looks back on: 0 for no look."""
        looks, window, at = [0] * self.steps, max(1, int(LONGEST * self.steps)), 0
        while (at := at + window) <= self.steps:
            looks[at - 1] = window
            window = max(window - max(1, int(SHRINK * self.steps)), max(1, int(SHORTEST * self.steps)))
        rows = [(1.0 if step == 0 else 1 - INERTIA, float(look)) for step, look in enumerate(looks)]
        return torch.tensor(rows, dtype=x.dtype, device=x.device)

    def step(self, f: nn.Module, state: State, now: Tensor, rng: Generator) -> State:
        found, fooled, x, y, target, here, before, gradient, size, loss, *memory = state
        best, best_loss, best_gradient, gains, seen, shrunk = memory
        follows, look = now[0], now[1]
        length = size.view(-1, 1, 1, 1)
        climbed = self.inside(x, here + length * self.around.direction(gradient))
        moved = self.inside(x, here + follows * (climbed - here) + (1 - follows) * (here - before))
        here, before, last = moved, here, loss
        loss, gradient, wrong = self.judged(f, here, y, target)
        found, fooled = chosen(wrong & ~fooled, here, found), fooled | wrong
        better = loss > best_loss
        best, best_gradient = chosen(better, here, best), chosen(better, gradient, best_gradient)
        best_loss, gains = torch.where(better, loss, best_loss), gains + (loss > last)
        looks = look > 0
        too_long = looks & ((gains <= RISING * look) | (~shrunk & (seen >= best_loss)))
        size = torch.where(too_long, size / 2, size)
        here, gradient = chosen(too_long, best, here), chosen(too_long, best_gradient, gradient)
        gains, seen = gains.masked_fill(looks, 0), torch.where(looks, best_loss, seen)
        shrunk = torch.where(looks, too_long, shrunk)
        memory = (best, best_loss, best_gradient, gains, seen, shrunk)
        return (found, fooled, x, y, target, here, before, gradient, size, loss, *memory)

    def inside(self, x: Tensor, point: Tensor) -> Tensor:
        """The point, or one near it in the ball around x."""
        return x + self.around.project(x, point - x)

    def judged(self, f: nn.Module, here: Tensor, y: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of each image, its gradient, and whether f is wrong."""
        with torch.enable_grad():
            here = here.detach().requires_grad_()
            logits = f(here)
            loss = self.losses(logits, y, target)
            gradient = slope_of(loss, here)
        return loss.detach(), gradient, logits.detach().argmax(1) != y

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
    ahead = (logits.gather(1, target.unsqueeze(1)) - logits.gather(1, y.unsqueeze(1))).squeeze(1)
    return ahead / (largest[:, 0] - (largest[:, 2] + largest[:, 3]) / 2 + TINY)
