"""The classifier under examination: how it is queried, how fast it answers, and what attacks made of it so far."""

import time
from collections import abc
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..attacks import Attack, Bounded, Searched, pgd
from ..defender import Defender, Rung
from ..engine import Engine
from ..evaluation import AttackWatcher, predictions, run_attack
from ..losses import Against, PerImageLoss, cross_entropy
from ..neighborhoods import L2, Linf, Spatial, TurnThenShift
from ..processes import Processes
from ..risks import decided
from ..runtime import generator
from ..solvers.ascent import ascent

Ball = Linf | L2
STEPS = 20
"""of the reference attack"""
BATCH = 250
"""images that are attacked at once"""
TIMED, RUNS = 128, 3
"""images in the batches whose time is taken, and how often it is"""


class Queries(NamedTuple):
    """How often a classifier is asked, for each image."""

    forwards: int = 0
    gradients: int = 0
    warps: int = 0
    """forward passes that move the image first"""


class Speed(NamedTuple):
    """Seconds that one query takes, for each image of a batch."""

    forward: float
    gradient: float
    warp: float

    def seconds(self, queries: Queries) -> float:
        """What so many queries of one image take."""
        forwards, gradients, warps = queries
        return forwards * self.forward + gradients * self.gradient + warps * (self.forward + self.warp)


class Connected(nn.Module):
    """f, with an output that depends on x for autograd even where f cuts it off: its gradient is then 0."""

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return connected(self.f(x), x)


def connected(answer: Tensor, x: Tensor) -> Tensor:
    """The answer to each x, unchanged, with a path back to x."""
    nothing = 0 * x.flatten(1).sum(1).view(-1, *[1] * (answer.dim() - 1))
    return answer.float() + nothing


class Memory:
    """Cross-entropy that remembers which images any query of an attack has misclassified."""

    def __init__(self, images: int, device: torch.device) -> None:
        self.fooled = torch.zeros(images, dtype=torch.bool, device=device)

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        self.fooled |= decided(logits.detach()) != target
        return cross_entropy(logits, target)


class Reference(NamedTuple):
    """What the reference attack did to the panel."""

    stands: Tensor
    """which images it did not break, for each row of the subject"""
    silent: Tensor
    """which of those it broke on its way and then left"""


@dataclass(kw_only=True)
class Subject:
    """The classifier, frozen, on the images of the examination; rows number those images."""

    f: Connected
    x: Tensor
    y: Tensor
    classes: int
    around: Ball
    spatial: Spatial | TurnThenShift | None
    sibling: nn.Module | None
    seed: int
    watcher: AttackWatcher | None
    stood: Tensor | None = None
    """for each row: whether it stands under the attacks of an evaluation; none where there is none to examine"""
    panel: Tensor = field(init=False)
    """rows that attacks are tried on: correctly classified ones, as many as time allows"""
    unbroken: Tensor = field(init=False)
    """for each row: whether no white-box attack has broken it so far"""
    fallen: Tensor = field(init=False)
    """for each row: whether any attack within the ball has broken it so far"""

    def __post_init__(self) -> None:
        self.unbroken = predictions(self.f, self.x, len(self.x), self.device).to(self.device) == self.y
        self.fallen = torch.zeros_like(self.unbroken)
        self.panel = self.unbroken.nonzero().flatten()

    @property
    def device(self) -> torch.device:
        return self.x.device

    def rng(self, purpose: str) -> Generator:
        """Random numbers for that purpose alone."""
        return generator(self.device, self.seed, purpose)

    def survivors(self, attack: Attack, rows: Tensor, name: str) -> Tensor:
        """Those of the rows that the attack does not break; its points are checked as in any evaluation."""
        if len(rows) == 0:
            return rows
        result = run_attack(
            Defender(f=self.f, rungs=(Rung(self.f, Engine()),), device=self.device),
            self.x[rows],
            self.y[rows].cpu(),
            name,
            attack,
            batch=BATCH,
            seed=self.seed,
            watcher=self.watcher,
            processes=Processes(),  # Others are not asked: how many images a check gets depends on the time it has.
        )
        stands = result.predicted.to(self.device) == self.y[rows]
        if isinstance(attack, Bounded) and attack.within == self.around:
            self.fallen[rows] |= ~stands
        return rows[stands]

    def white_box_survivors(self, attack: Attack, rows: Tensor, name: str) -> Tensor:
        """The same, and what the attack breaks counts as broken from now on."""
        left = self.survivors(attack, rows, name)
        self.unbroken[rows] &= torch.isin(rows, left)
        return left

    @cached_property
    def reference(self) -> Reference:
        """PGD of 20 steps on cross-entropy from one uniform start: what most evaluations rest on."""
        stands, silent = torch.zeros_like(self.unbroken), torch.zeros_like(self.unbroken)
        for place, part in enumerate(self.panel.split(BATCH)):
            memory = Memory(len(part), self.device)
            attack = gradient_ascent(self.around, loss=memory)
            stands[self.white_box_survivors(attack, part, f"reference PGD, part {place + 1}")] = True
            silent[part] = memory.fooled
        return Reference(stands=stands, silent=silent & stands)

    def standing(self, rows: Tensor) -> Tensor:
        """Those of the rows that the reference attack does not break."""
        return rows[self.reference.stands[rows]]

    def speed(self) -> Speed:
        """Measured on a batch of these images."""
        x, y = self.x[:TIMED], self.y[:TIMED]
        loss, plain = Against(cross_entropy, self.f, y), torch.zeros_like(x)
        warp = (self.spatial or Spatial()).transform
        theta = x.new_ones(len(x), 3)
        with torch.no_grad():
            forward = seconds_of(lambda: self.f(x))
            warping = seconds_of(lambda: warp(x, theta))
        gradient = seconds_of(lambda: ascent(loss, self.around, x, plain)[1])
        return Speed(forward=forward / len(x), gradient=gradient / len(x), warp=warping / len(x))


def gradient_ascent(
    around: Ball, *, steps: int = STEPS, restarts: int = 1, loss: PerImageLoss = cross_entropy
) -> Searched:
    """PGD in that ball, from uniform starts."""
    return pgd(eps=around.eps, steps=steps, norm=type(around), restarts=restarts, loss=loss)


def unbounded(around: Ball, x: Tensor) -> float:
    """The radius at which a ball of that kind holds every image."""
    return 1.0 if isinstance(around, Linf) else sqrt(x.shape[1:].numel())


def seconds_of(query: abc.Callable[[], Tensor]) -> float:
    """The shortest of a few runs, after one to warm up; reading a number waits for the device."""
    times: list[float] = []
    for _ in range(1 + RUNS):
        started = time.perf_counter()
        query().sum().item()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def spread(count: int, of: int) -> Tensor:
    """So many places, evenly spaced: images sorted by class are then no single class."""
    return torch.arange(count) * of // count
