"""Carlini and Wagner's attack in L2 (2017): the smallest change by descent on its square and a price for failing."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..answers import frozen
from ..losses import margin, slope_of
from ..neighborhoods import L2, norm
from ..risks import decided
from ..solvers import chosen, require_count, require_positive
from .rounds import State, repeated, standing

EDGE = 1 - 1e-6
"""how far pixels go to black and white: tanh reaches neither"""
MEMORY, MEMORY_OF_SQUARES, STEADY = 0.9, 0.999, 1e-8
"""of Adam"""
LOOKS = 10
"""times in a descent that somebody looks whether it still gains"""
GAIN = 1e-4
"""share of the loss that must have gone since the last look for a descent to go on"""


class Fall(NamedTuple):
    """What is known of each image, row by row."""

    found: Tensor
    """the nearest point that fooled f in any descent"""
    fooled: Tensor
    """whether there was one in this descent"""
    x: Tensor
    y: Tensor
    nearest: Tensor
    """how far the point found is from x"""
    c: Tensor
    """price of failing"""
    change: Tensor
    """of the pixels' inverse tanh"""
    slopes: Tensor
    """moving mean of the gradients, and of their squares"""
    squares: Tensor
    loss: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """Adam on |x' - x|^2 + c max(0, -margin), over images x' = (1 + tanh) / 2, which always are images."""

    steps: int
    step_size: float

    def begin(self, f: nn.Module, x: Tensor, y: Tensor, target: Tensor, rng: Generator) -> State:
        none, far = torch.zeros_like(x), x.new_full((len(x),), torch.inf)
        fooled = torch.zeros_like(y, dtype=torch.bool)
        return Fall(x, fooled, x, y, far, torch.zeros_like(far), none, none, none, far)

    def plan(self, x: Tensor) -> Tensor:
        """By how much moving means fall short of what they are means of."""
        step = torch.arange(1, self.steps + 1, dtype=x.dtype, device=x.device)
        return torch.stack([1 - MEMORY**step, 1 - MEMORY_OF_SQUARES**step], 1)

    def step(self, f: nn.Module, state: State, now: Tensor, rng: Generator) -> State:
        at = Fall(*state)
        with torch.enable_grad():
            change = at.change.detach().requires_grad_()
            image = (1 + (((2 * at.x - 1) * EDGE).atanh() + change).tanh()) / 2
            logits = f(image)
            ahead = margin(logits, at.y)
            loss = (image - at.x).square().sum((1, 2, 3)) + at.c * (-ahead).clamp_min(0)
            slope = slope_of(loss, change)
        image, distance = image.detach(), norm(image.detach() - at.x)
        wrong = decided(logits.detach()) != at.y
        closer = wrong & (distance < at.nearest)
        slopes = MEMORY * at.slopes + (1 - MEMORY) * slope
        squares = MEMORY_OF_SQUARES * at.squares + (1 - MEMORY_OF_SQUARES) * slope.square()
        pace = (slopes / now[0]) / ((squares / now[1]).sqrt() + STEADY)
        return at._replace(
            found=chosen(closer, image, at.found),
            fooled=at.fooled | wrong,
            nearest=torch.where(closer, distance, at.nearest),
            change=at.change - self.step_size * pace,
            slopes=slopes,
            squares=squares,
            loss=loss.detach(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CarliniWagnerL2:
    """Carlini and Wagner's attack in L2: descents whose price of failing is searched for each image."""

    eps: float = 2.0
    """Euclidean norm up to which a point counts; the search itself has no bound"""
    searches: int = 9
    """values of c that are tried, each after what the one before found"""
    steps: int = 1000
    """steps of Adam for each c, at most"""
    step_size: float = 0.01
    """learning rate of Adam"""
    first_c: float = 0.001
    """the first c, the weight of the margin"""

    def __post_init__(self) -> None:
        require_count("CarliniWagnerL2.searches", self.searches)
        require_count("CarliniWagnerL2.steps", self.steps)
        for name in ("eps", "step_size", "first_c"):
            require_positive(f"CarliniWagnerL2.{name}", getattr(self, name))

    @property
    def within(self) -> L2:
        """The ball in which a point counts."""
        return L2(eps=self.eps)

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.within}, minimum norm, {self.searches} x {self.steps} steps of {self.step_size:.3g}"

    def size(self, x: Tensor, perturbed: Tensor) -> Tensor:
        """The Euclidean norm of each change."""
        return norm(perturbed - x)

    @torch.no_grad()
    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        found = x.detach().clone()
        with frozen(f):
            rows = standing(f, x, y)
            if len(rows) == 0:
                return found
            search = Descent(steps=self.steps, step_size=self.step_size)
            begun = Fall(*search.begin(f, found[rows], y[rows], y[rows], rng))
            c = torch.full_like(begun.c, self.first_c)
            low, high = torch.zeros_like(c), torch.full_like(c, torch.inf)
            for _ in range(self.searches):
                after = descended(f, search, begun._replace(c=c), rng)
                begun = begun._replace(found=after.found, nearest=after.nearest)
                low, high = torch.where(after.fooled, low, c), torch.where(after.fooled, c, high)
                c = torch.where(high.isinf(), 10 * c, (low + high) / 2)
        found[rows] = begun.found
        return found


def descended(f: nn.Module, search: Descent, state: Fall, rng: Generator) -> Fall:
    """Where a descent ends: after its last step, or where the loss of all images has stopped to fall."""
    for plan in search.plan(state.x).split(-(-search.steps // LOOKS)):
        before, state = state.loss.nansum(), Fall(*repeated(f, search, state, plan, rng))
        if not state.loss.nansum() <= (1 - GAIN) * before:
            break
    return state
