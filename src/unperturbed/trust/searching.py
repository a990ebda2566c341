"""Checks by attacks that follow no gradient of the classifier: they must not find what gradient attacks miss."""

from dataclasses import dataclass
from math import prod

from torch import Generator, Tensor, nn, no_grad

from ..answers import frozen
from ..attacks import Attack, Searched, grid, random
from ..attacks.rounds import carried_out
from ..attacks.square import Square
from ..neighborhoods import Neighborhood
from .check import Check, Outcome, judged, noticeable, percent
from .subject import STEPS, Ball, Queries, Subject, gradient_ascent

DRAWS = 1_000
"""random points for each image"""
QUERIES = 1_000
"""of the black-box attack for each image"""
COARSE, DENSE = (31, 5, 5), (61, 9, 9)
"""the grid of GridAdv, and one twice as dense that contains it"""
TRANSFERRED, BY_NOISE, BLACK_BOX, BETWEEN = 2.0, 1.0, 2.0, 2.0
"""percentage points that each check lets pass"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """An attack on another classifier, whose points are shown to f."""

    attack: Searched
    source: nn.Module

    @property
    def within(self) -> Neighborhood:
        return self.attack.within

    @property
    def budget(self) -> str:
        return self.attack.budget

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        return self.attack(self.source, x, y, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Squares:
    """Square by itself, with fewer queries than AutoAttack's."""

    within: Ball

    @property
    def budget(self) -> str:
        return f"{self.within}, {QUERIES:,} queries"

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        with no_grad(), frozen(f):
            return carried_out(f, Square(around=self.within, steps=QUERIES), x, y, y, rng)[0]


def transfer(subject: Subject, rows: Tensor) -> Outcome:
    """Points made on a sibling."""
    if subject.sibling is None:
        return "skipped", "no sibling was given: a model of the same task, say one trained without a defense"
    attack = Transferred(attack=gradient_ascent(subject.around), source=subject.sibling)
    broken, left = beyond_gradients(subject, rows, attack, "PGD on the sibling")
    figure = f"points made on the sibling break {broken} of {len(rows)} images{left}"
    return judged(noticeable(broken, len(rows), TRANSFERRED), figure)


def noise(subject: Subject, rows: Tensor) -> Outcome:
    """Points drawn at random."""
    broken, left = beyond_gradients(subject, rows, random(subject.around, draws=DRAWS), "random noise")
    figure = f"{DRAWS:,} random points each break {broken} of {len(rows)} images{left}"
    return judged(noticeable(broken, len(rows), BY_NOISE), figure)


def black_box(subject: Subject, rows: Tensor) -> Outcome:
    """Points found by random search with squares."""
    broken, left = beyond_gradients(subject, rows, Squares(within=subject.around), "Square")
    figure = f"random search with {QUERIES:,} queries breaks {broken} of {len(rows)} images{left}"
    return judged(noticeable(broken, len(rows), BLACK_BOX), figure)


def denser_grid(subject: Subject, rows: Tensor) -> Outcome:
    """Warps between the points of the usual grid."""
    if subject.spatial is None:
        return "skipped", "no spatial neighborhood was given"
    coarse = subject.survivors(grid(subject.spatial, points=COARSE), rows, "GridAdv")
    dense = subject.survivors(grid(subject.spatial, points=DENSE), coarse, "GridAdv, twice as dense")
    drawn = subject.survivors(random(subject.spatial, draws=DRAWS), coarse, "RandAdv")
    by_grid, by_draws = len(coarse) - len(dense), len(coarse) - len(drawn)
    figure = (
        f"{percent(len(coarse), len(rows))} of {len(rows)} images stand on the usual grid; "
        f"a grid twice as dense breaks {by_grid} more, {DRAWS:,} random warps {by_draws} more"
    )
    return judged(noticeable(max(by_grid, by_draws), len(rows), BETWEEN), figure)


def beyond_gradients(subject: Subject, rows: Tensor, attack: Attack, name: str) -> tuple[int, str]:
    """How many images the attack breaks of those that every white-box attack so far left, and words for those."""
    left = subject.standing(rows)
    left = left[subject.unbroken[left]]
    broken = len(left) - len(subject.survivors(attack, left, name))
    return broken, f", {len(left)} of which stood under all white-box attacks"


SEARCH_CHECKS = (
    Check(
        name="transfer",
        measure=transfer,
        why="Points made on another model use less than an attack on the model itself, which they must not beat.",
        remedy="Suspect masked gradients: attack a smooth copy of the model and transfer its points.",
        queries=Queries(gradients=STEPS, forwards=2),
        most=250,
    ),
    Check(
        name="random noise",
        measure=noise,
        why="Blind guesses in the ball must not find what a search along gradients misses.",
        remedy="Suspect masked gradients: report the worst case over attacks with and without gradients.",
        queries=Queries(forwards=DRAWS),
        most=50,
    ),
    Check(
        name="black box",
        measure=black_box,
        why="A search that sees outputs alone knows less than the gradient; where it wins, the gradient misleads.",
        remedy="Report Square or AutoAttack beside PGD, and look for the layer that hides the gradient.",
        queries=Queries(forwards=QUERIES),
        most=100,
    ),
    Check(
        name="denser grid",
        measure=denser_grid,
        why="Images that stand on a grid of warps may fall between its points.",
        remedy="Report the denser grid, or the worst case of both.",
        queries=Queries(warps=prod(COARSE) + prod(DENSE) + DRAWS),
        most=100,
    ),
)
