"""FAB (Croce and Hein 2020): the nearest point beyond a boundary of f, by hyperplanes that stand for it."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from ..losses import ahead_of, slope_of
from ..neighborhoods import L2, SMALLEST, Linf, norm
from ..risks import decided
from ..solvers import chosen
from .rounds import State, followed

BEYOND = 1.05
"""how far a step goes, in units of the way to the hyperplane"""
TOWARDS = 0.1
"""largest share that the way from x itself has in a step"""
BACK = 0.9
"""share of its way from x that a point keeps which is beyond the boundary already"""
NEWTON = 12
"""steps to the length that reaches a hyperplane; each passes all pixels that the last one brought to an end"""
TINY = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class FAB:
    """A search for the smallest change that fools f; it counts once it lies in the ball."""

    around: Linf | L2
    targeted: bool = True
    """aim at one class, or else at whichever looks nearest in each step"""
    steps: int = 100

    def begin(self, f: nn.Module, x: Tensor, y: Tensor, target: Tensor, rng: Generator) -> State:
        nearest = x.new_full((len(x),), torch.inf)
        return (x, torch.zeros_like(y, dtype=torch.bool), x, y, target, x, nearest)

    def plan(self, x: Tensor) -> Tensor:
        """All steps are alike."""
        return x.new_empty(self.steps, 0)

    def step(self, f: nn.Module, state: State, now: Tensor, rng: Generator) -> State:
        found, _, x, y, target, here, nearest = state
        ahead, slope = self.nearest_boundary(f, here, y, target)
        ahead = ahead.to(slope)  # A network may answer in more digits than images have.
        ahead_at_x = ahead + (slope * (x - here)).flatten(1).sum(1)
        both = torch.cat([here, x]), torch.cat([slope, slope]), torch.cat([ahead, ahead_at_x])
        on, from_x = self.way(*both).chunk(2)
        a, b = self.size(on).clamp_min(1e-8), self.size(from_x).clamp_min(1e-8)
        share = (a / (a + b)).clamp_max(TOWARDS).view(-1, 1, 1, 1)
        here = ((1 - share) * (here + BEYOND * on) + share * (x + BEYOND * from_x)).clamp(0, 1)
        wrong, size = decided(f(here)) != y, self.size(here - x)
        closer = wrong & (size < nearest)
        found, nearest = chosen(closer, here, found), torch.where(closer, size, nearest)
        here = chosen(wrong, x + BACK * (here - x), here)
        return found, nearest <= self.around.eps, x, y, target, here, nearest

    def nearest_boundary(self, f: nn.Module, here: Tensor, y: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """By how much the logit of another class is ahead of that of y, and the gradient of that."""
        with torch.enable_grad():
            here, logits = followed(f, here)
            if self.targeted:
                ahead = ahead_of(logits, y, target)
                return ahead.detach(), slope_of(ahead, here)
            classes = torch.arange(logits.shape[1], device=y.device)
            others = classes[:-1] + (classes[:-1] >= y.unsqueeze(1))  # all but y
            each = [ahead_of(logits, y, other) for other in others.unbind(1)]
            slopes = torch.stack([slope_of(ahead, here, again=True) for ahead in each], 1)
        ahead = torch.stack(each, 1).detach()
        steep = slopes.flatten(2).abs().sum(2) if isinstance(self.around, Linf) else slopes.flatten(2).norm(dim=2)
        pick = (ahead.abs() / (steep + TINY)).argmin(1, keepdim=True)
        rows = torch.arange(len(y), device=y.device)
        return ahead.gather(1, pick).squeeze(1), slopes[rows, pick.squeeze(1)]

    def way(self, point: Tensor, slope: Tensor, ahead: Tensor) -> Tensor:
        """The smallest change of an image that brings a linear function from this value to 0, pixels kept in [0, 1].

        The pixel i goes along +-slope_i as far as length times its pace, or to the end of its range. What that gains
        is concave in the length, and linear between the ends of pixels: Newton's method comes from below and ends.
        """
        slope, pixels, ahead = slope.flatten(1), point.flatten(1), ahead.unsqueeze(1)
        downwards = (ahead > 0) == (slope > 0)
        room = torch.where(downwards, pixels, 1 - pixels)
        peak = slope.abs().amax(1, keepdim=True).clamp_min(SMALLEST)  # Squares of tiny slopes would underflow.
        steep, lacking = slope.abs() / peak, ahead.abs() / peak
        pace = torch.ones_like(steep) if isinstance(self.around, Linf) else steep
        length, longest = torch.zeros_like(ahead), torch.finfo(ahead.dtype).max  # Infinity times a slope of 0 is NaN.
        for _ in range(NEWTON):
            reached = length * pace
            gain = (steep * torch.minimum(reached, room)).sum(1, keepdim=True)
            rate = (steep * pace * (reached < room)).sum(1, keepdim=True)
            length = (length + (lacking - gain).clamp_min(0) / (rate + TINY)).clamp_max(longest)
        move = torch.minimum(length * pace, room)
        return torch.where(downwards, -move, move).masked_fill(slope == 0, 0.0).view_as(point)

    def size(self, change: Tensor) -> Tensor:
        """The length of each change."""
        return change.flatten(1).abs().amax(1) if isinstance(self.around, Linf) else norm(change)
