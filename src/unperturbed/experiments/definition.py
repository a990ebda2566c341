"""What an experiment is: the models it needs, the attacks on them, the tables it prints, the statements it checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from ..recipe import Recipe
from ..recipes import usual_budget
from ..recipes.budgets import Budget, Stated
from ..recipes.published import COMPARED_ON_CIFAR10
from ..recipes.words import ATTACKS, in_words
from .scales import Scale, briefly_made, narrowed

Verdict = Literal["pass", "fail", "undecided"]
CLEAN = "clean"
SURFACES = {
    "surface.pixel": "D > 0 around x, pixel-wise (%)",
    "surface.spatial": "D > 0 around x, spatially (%)",
    "decision-slope.pixel": "slope of D, pixel-wise (%)",
    "decision-slope.spatial": "slope of D, spatially (%)",
    "ruggedness.pixel": "ruggedness of D, pixel-wise (%)",
    "ruggedness.spatial": "ruggedness of D, spatially (%)",
    "peak.pixel": "highest loss around x, pixel-wise",
    "peak.spatial": "highest loss around x, spatially",
    "loss-slope.pixel": "slope of the loss, pixel-wise",
    "loss-slope.spatial": "slope of the loss, spatially",
}
"""what is measured on surfaces around test images, in words"""
COLUMNS: Mapping[str, str] = {
    **ATTACKS,
    **SURFACES,
    CLEAN: "clean",
    "minutes": "minutes",
    "pgd-10": "PGD-10",
    "pgd-20": "PGD-20",
}
"""whatever is measured, in words"""
OTHER_ASCENTS: Mapping[str, Budget] = {"pgd-10": usual_budget("cifar10"), "pgd-20": COMPARED_ON_CIFAR10}
"""the two PGDs that the paper's tables on CIFAR-10 use, under names that tell them apart"""
COUNTED_OTHERWISE = (
    "under FGSM the paper's numbers on CIFAR-10 fit images that end at their label, wherever they started, and ours "
    "are of those that stand (docs/fidelity.md)"
)
"""what differs in every table that has both"""


class Cell(NamedTuple):
    """A number of an experiment: a model, and what is measured on it."""

    trial: str
    column: str = CLEAN
    """clean, an attack or what is measured on surfaces"""
    fraction: float = 1.0
    """the perturbation fraction of the attack"""

    @property
    def in_words(self) -> str:
        """What is measured, as sentences name it."""
        return COLUMNS.get(self.column, self.column) + (f" at {self.fraction:g}" if self.fraction != 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A model that an experiment needs: how the paper trains it, and how it is attacked."""

    recipe: Recipe
    variant: str = ""
    """what tells it from the recipe of its name, `-unlabeled-5000` for example"""
    attacks: tuple[str, ...] = ()
    budget: Budget | None = None
    """how far the attacks go; none: as usual on its data set"""
    swept: tuple[str, ...] = ()
    """those attacks that are made at several perturbation fractions"""
    fractions: tuple[float, ...] = ()
    """these fractions"""
    surfaces: bool = False
    """whether surfaces around test images are measured"""
    timed: bool = False
    """whether its seconds are compared with others', so that it is trained alone on its device"""
    by_schedule: bool = False
    """whether its batch, rate or ramp is what tells it from others: short runs all have the same, so none is it"""
    label: str = ""
    """what tables call it; else its method in the paper's words"""

    @property
    def name(self) -> str:
        """The name of the trial, without its network and seed."""
        return self.recipe.name + self.variant

    @property
    def called(self) -> str:
        """What tables call it."""
        return self.label or in_words(self.recipe.name, scenario=False)

    @property
    def radius(self) -> float:
        """The Linf radius of its attacks at fraction 1."""
        return (self.budget or usual_budget(self.recipe.data.name)).eps

    def known_at(self, scale: Scale, fraction: float = 1.0) -> Mapping[str, Stated]:
        """Every attack by its name, as far as it goes against this model at that scale and fraction."""
        return attacks_within(replace(self.budget or usual_budget(self.recipe.data.name), fraction=fraction), scale)

    def attacks_at(self, scale: Scale, fraction: float = 1.0) -> Mapping[str, Stated]:
        """Those that are made on it."""
        known = self.known_at(scale, fraction)
        return {name: known[name] for name in self.attacks}

    def swept_at(self, scale: Scale, fraction: float) -> Mapping[str, Stated]:
        """Those of these that are made at several fractions."""
        return {name: attack for name, attack in self.attacks_at(scale, fraction).items() if name in self.swept}


@cache
def attacks_within(budget: Budget, scale: Scale) -> Mapping[str, Stated]:
    """Every attack by its name within a budget, those of the two PGDs within their own at its fraction."""
    known = dict(narrowed(budget, scale).attacks())
    for name, other in OTHER_ASCENTS.items():
        known[name] = narrowed(replace(other, fraction=budget.fraction), scale).attacks()["pgd"]
    return MappingProxyType({name: briefly_made(attack, scale) for name, attack in known.items()})


class Figure(NamedTuple):
    """A mean over seeds, in percent for accuracies, and its standard error where several were run."""

    mean: float
    error: float | None = None
    seeds: int = 1
    first: int | None = None
    """the images that it is of, where an attack was not made on all"""
    among: int | None = None
    """all images, where it is not of them"""

    @property
    def possible(self) -> tuple[float, float]:
        """What it is on all images at least and at most, whatever an attack does to the others."""
        if self.first is None or self.among is None:
            return self.mean, self.mean
        share = self.first / self.among
        return self.mean * share, 100 - (100 - self.mean) * share

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ± {self.error:.2f}" if self.error is not None else "")


class Difference(NamedTuple):
    """How far one cell lies above another, the standard error of that, and the seeds that it is over."""

    points: float
    error: float
    seeds: int = 1
    first: int | None = None
    """the images that it is of, where an attack on one of them was not made on all"""


class Found(Protocol):
    """Whatever knows numbers of an experiment: finished runs, or the paper."""

    def figure(self, cell: Cell, /) -> Figure | None:
        """The number in that cell, where it is known."""
        ...

    def difference(self, cell: Cell, other: Cell, /) -> Difference | None:
        """How far the one lies above the other, where both are known on the same images."""
        ...

    def gain(self, lead: tuple[Cell, Cell], other: tuple[Cell, Cell], /) -> Difference | None:
        """By how much more the first cell of one pair lies above its second than in the other pair."""
        ...

    def spared(self, cell: Cell, other: Cell, times: float, /) -> Difference | None:
        """By how many points fewer images are wrong in the one than so many times those in the other."""
        ...

    def collapsed(self, trial: str, /) -> bool:
        """Whether it answers nearly every clean image by one class."""
        ...

    def minutes(self, trial: str, /) -> tuple[float, str] | None:
        """Of training and the device, where runs were timed alone."""
        ...


class Finding(NamedTuple):
    """What becomes of a statement."""

    verdict: Verdict
    figures: str
    """the numbers it rests on, in words"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A sentence of the paper, and how numbers decide it."""

    words: str
    check: Callable[[Found], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows and columns as the paper prints them, or as a figure of the paper reads in numbers."""

    title: str
    place: str = ""
    """the paper's table; empty where the paper prints no numbers"""
    rows: tuple[Trial, ...]
    columns: tuple[tuple[str, float], ...]
    """what is measured, and at which perturbation fraction; `minutes` are those of training"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A table or a figure of the paper."""

    name: str
    title: str
    tables: tuple[Table, ...] = ()
    statements: tuple[Statement, ...] = ()
    counted: Callable[[], str] | None = None
    """a table of its own that needs no run"""
    remarks: tuple[str, ...] = ()
    """what differs from the paper, whatever the scale"""

    @property
    def heading(self) -> str:
        """What stands above it."""
        return f"{self.name}: {self.title}"

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All models it needs, each once."""
        return tuple(merged([row for table in self.tables for row in table.rows]).values())


def merged(trials: list[Trial]) -> dict[str, Trial]:
    """Trials by name; what is asked of one in several places is asked of it together."""
    found: dict[str, Trial] = {}
    for trial in trials:
        first = found.setdefault(trial.name, trial)
        if (first.recipe, first.budget) != (trial.recipe, trial.budget):
            raise ValueError(f"two trials are called {trial.name}, but are trained or attacked differently")
        found[trial.name] = replace(
            first,
            attacks=tuple(dict.fromkeys((*first.attacks, *trial.attacks))),
            swept=tuple(dict.fromkeys((*first.swept, *trial.swept))),
            fractions=tuple(sorted({*first.fractions, *trial.fractions})),
            surfaces=first.surfaces or trial.surfaces,
            timed=first.timed or trial.timed,
        )
    return found


def table_of(
    title: str, trials: tuple[Trial, ...], columns: tuple[str, ...], *, place: str = "", minutes: bool = False
) -> Table:
    """A table of clean accuracy and that under each attack, at full perturbation."""
    names = (CLEAN, *columns, *(("minutes",) if minutes else ()))
    return Table(title=title, place=place, rows=trials, columns=tuple((name, 1.0) for name in names))
