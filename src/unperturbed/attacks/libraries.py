"""Attacks that another library has right: C&W in L2 and Pointwise's noise by foolbox."""

import os
import warnings
from collections.abc import Generator as Steps
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from ..neighborhoods import L0, L2, changed_pixels, norm
from ..objectives import frozen
from ..solvers import require_count, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class CarliniWagnerL2:
    """Carlini and Wagner's attack in L2 (2017), by foolbox: Adam on |change|^2 + c margin, and a search over c."""

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

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        foolbox = library("foolbox", "CarliniWagnerL2")
        attack = foolbox.attacks.L2CarliniWagnerAttack(
            binary_search_steps=self.searches,
            steps=self.steps,
            stepsize=self.step_size,
            initial_const=self.first_c,
        )
        found = x.detach().clone()
        with frozen(f), sealed(rng, x.device):
            rows = standing(f, found, y)
            if len(rows) == 0:
                return found
            model = foolbox.PyTorchModel(f, bounds=(0, 1), device=x.device)
            answer = attack.run(model, found[rows], y[rows])
            # An image that was not fooled comes back black.
            won = f(answer).argmax(1) != y[rows]
            found[rows[won]] = answer[won]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise:
    """Schott et al. (2019): salt-and-pepper noise of foolbox that fools f, taken back point by point.

    It needs no gradient. A point is one channel of a pixel; an image that no noise fools is left alone.
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

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        foolbox = library("foolbox", "Pointwise")
        noise = foolbox.attacks.SaltAndPepperNoiseAttack(steps=self.noises)
        found, fewest = x.detach().clone(), y.new_full((len(x),), x[:1].numel() + 1)
        with frozen(f), torch.no_grad(), sealed(rng, x.device):
            rows = standing(f, x, y)
            model = foolbox.PyTorchModel(f, bounds=(0, 1), device=x.device)
            for _ in range(self.restarts if len(rows) else 0):
                noisy = noise.run(model, x[rows], y[rows])
                fooling = f(noisy).argmax(1) != y[rows]
                begun = rows[fooling]
                if len(begun):
                    answer = taken_back(f, x[begun], y[begun], noisy[fooling], rng)
                    count = self.size(x[begun], answer)
                    fewer = count < fewest[begun]
                    found[begun[fewer]], fewest[begun[fewer]] = answer[fewer], count[fewer]
        return found


def taken_back(f: nn.Module, x: Tensor, y: Tensor, noisy: Tensor, rng: Generator) -> Tensor:
    """Noisy images that fool f, from which no changed point can be taken back without f being right again.

    In each round every changed point of an image is tried once, in a random order. An image in which nothing could be
    taken back is done. Images with the most points come first, so that those still at work are the first ones, and
    nothing has to be known of what f answered before a round is over.
    """
    original, point = x.flatten(1), noisy.flatten(1).clone()
    rows = torch.arange(len(x), device=x.device)
    while len(rows):
        changed = point[rows] != original[rows]
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
            feature = longest[turn, : len(waiting)]
            before, after = point[at_work, feature], original[at_work, feature]
            tried = point[at_work].scatter_(1, feature.unsqueeze(1), after.unsqueeze(1))
            fooled = f(tried.view(-1, *x.shape[1:])).argmax(1) != y[at_work]
            point[at_work, feature] = torch.where(fooled, after, before)
            shorter[: len(waiting)] |= fooled
        rows = rows[shorter]
    return point.view_as(x)


def library(name: str, attack: str) -> Any:
    """The library of that name, imported only when an attack needs it."""
    # foolbox asks for git, which none of its attacks needs; without this word it refuses to load where there is none.
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Please import `\w+` from the `scipy\.ndimage`", DeprecationWarning)
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ModuleNotFoundError(
                f"{attack} needs {name}: pip install 'unperturbed[attacks]'", name=name
            ) from None


def standing(f: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The rows that f classifies as y."""
    with torch.no_grad():
        return (f(x).argmax(1) == y).nonzero().squeeze(1)


@contextmanager
def sealed(rng: Generator, device: torch.device) -> Steps[None]:
    """Seed what a library draws from with a number of `rng`, and put back the random numbers of torch and numpy."""
    seed, numpy_state = int(torch.randint(2**31, (), generator=rng, device=rng.device)), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            np.random.seed(seed)
            yield
    finally:
        np.random.set_state(numpy_state)
