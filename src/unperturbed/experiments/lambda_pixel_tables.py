"""Tables 2 and 6: RT against SRT at each lambda under pixel-wise attacks, on CIFAR-10 and MNIST."""

from collections.abc import Iterator
from itertools import chain

from ..objectives import Standard
from ..recipes import cifar10, mnist, named
from ..recipes.methods import Scenario
from ..recipes.published import COMPARED_ON_CIFAR10, COMPARED_ON_MNIST
from .definition import COUNTED_OTHERWISE, Cell, Experiment, Statement, Trial, table_of
from .lambda_tables import SPATIAL_WEIGHTS, at_weight, srt_above_rt
from .ramped import FIRST_LEARNED, first_learned
from .statements import Comparison, above, each_over, mostly_above, over, wider

WEIGHTS = ("0.2", "0.4", "0.6", "0.8")
COLUMNS = ("fgsm", "pgd")
MUCH = 5.0
"""points by which SRT is above RT under PGD in most cases"""
Pairs = list[tuple[str, str]]
"""names of trials of SRT and of RT, from the smallest lambda to the largest"""


def experiments() -> Iterator[Experiment]:
    """Both tables."""
    yield pixel("table-2", "Table 2", "CIFAR-10", "cifar10")
    yield pixel("table-6", "Table 6", "MNIST", "mnist")


def pixel(name: str, place: str, title: str, data: str) -> Experiment:
    """RT and SRT over lambda, on CIFAR-10 also with one that grows."""
    scenario: Scenario = cifar10.COMPARED if data == "cifar10" else mnist.COMPARED
    budget = COMPARED_ON_CIFAR10 if data == "cifar10" else COMPARED_ON_MNIST
    attacks = (*COLUMNS, "pgd-10") if data == "cifar10" else COLUMNS
    standard = Trial(
        recipe=scenario.labels("standard", Standard()), variant="-compared", attacks=attacks, budget=budget
    )
    compared = tuple(
        Trial(recipe=named(f"{data}-pixel-{method}-lambda-{weight}"), attacks=attacks, budget=budget)
        for weight in WEIGHTS
        for method in ("rt", "srt")
    )
    readings: dict[str, tuple[Trial, ...]] = {"": compared}
    if data == "cifar10":
        readings[f", {FIRST_LEARNED}"] = tuple(
            first_learned(trial, f"{trial.called}, growing, one pass") for trial in compared
        )
    return Experiment(
        name=name,
        title=f"RT against SRT under pixel-wise attacks on {title}",
        tables=(table_of(title, (standard, *chain(*readings.values())), attacks, place=place),),
        statements=tuple(
            statement
            for how, rows in readings.items()
            for statement in statements(title, data, pairs_of([row.name for row in rows]), how)
        ),
        remarks=(
            "PGD takes 20 steps of 0.003 in this table; PGD-10 is that of Table 4",
            COUNTED_OTHERWISE,
            f"the last rows are trained {FIRST_LEARNED}: docs/fidelity.md says why",
        )
        if data == "cifar10"
        else (),
    )


def pairs_of(names: list[str]) -> Pairs:
    """RT and SRT in turn, as pairs of SRT and RT."""
    return list(zip(names[1::2], names[::2], strict=True))


def statements(title: str, data: str, pairs: Pairs, how: str) -> Iterator[Statement]:
    """What the text says of a table, for runs that were trained so."""
    yield from srt_above_rt(pairs, COLUMNS, how)
    spatially = [(at_weight(data, "srt", weight), at_weight(data, "rt", weight)) for weight in SPATIAL_WEIGHTS]
    yield wider(
        f"spatially unlabeled images pay more: on {title} SRT is above RT by more under GridAdv than here under PGD, "
        f"from the smallest lambda of each table to the largest{how}",
        list(zip(each_over(spatially, ("gridadv",)), each_over(pairs, ("pgd",)), strict=True)),
    )
    if data == "cifar10":
        yield mostly_above(
            f"under PGD SRT is more than {MUCH:g} points above RT in most cases{how}",
            each_over(pairs, ("pgd",), MUCH),
        )
        yield above(
            "pixel-wise there is a trade-off: from the smallest lambda to the largest clean accuracy falls and that "
            f"under PGD rises{how}",
            [
                comparison
                for small, large in zip(pairs[0], pairs[-1], strict=True)
                for comparison in (Comparison(Cell(small), Cell(large)), *over(large, small, ("pgd",)))
            ],
        )
