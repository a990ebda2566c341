"""Tables 3 and 4: every defense under every attack, spatially and pixel-wise, on CIFAR-10 and MNIST."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from ..objectives import SRT
from ..recipes import mnist, named
from ..recipes.budgets import PIXEL_ROWS, SPATIAL_ROWS
from ..recipes.words import ATTACKS, DATA_SETS, enumerated
from .beside_print import as_printed, nearer_to_print
from .definition import CLEAN, COUNTED_OTHERWISE, Experiment, Statement, Trial, table_of
from .lambda_tables import BLUR
from .ramped import FIRST_LEARNED, GROWN, first_learned
from .statements import WITH_HARDLY_MORE, above, alike, among_the_best, each_over, most_of, over

SPATIAL_DEFENSES = ("standard", "at", "worst-of-k", "klr", "srt")
PIXEL_DEFENSES = ("standard", "at", "trades", "uat", "rst", "srt")
SIMILAR = 3.0
"""points within which RT and AT have a similar effect"""
MAY_BE_ABOVE = " (it may be above)"
NO_HELP = 5.0
"""points above Standard within which AT is no help against spatial attacks"""


def experiments() -> Iterator[Experiment]:
    """Both tables."""
    yield Experiment(
        name="table-3",
        title="Defenses under spatial attacks",
        tables=tuple(
            table_of(title, spatial_trials(data), SPATIAL_ROWS, place="Table 3") for data, title in DATA_SETS.items()
        ),
        statements=tuple(statement for data in DATA_SETS for statement in spatial_statements(data)),
        remarks=(
            "RandAdv is the worst of ten draws, as in the authors' code",
            "at the paper's schedule AT on MNIST takes 9,375 steps at the pixel-wise rate of the authors' script, "
            "all others 80,000: docs/fidelity.md says why",
            "Standard on CIFAR-10 is trained with crops, as the paper writes; without, as in the authors' code, it "
            "is nearer to the paper's (table-1)",
            BLUR,
        ),
    )
    yield Experiment(
        name="table-4",
        title="Defenses under pixel-wise attacks",
        tables=tuple(
            table_of(title, pixel_trials(data), (*PIXEL_ROWS, *stronger(data)), place="Table 4")
            for data, title in DATA_SETS.items()
        ),
        statements=tuple(statement for data in DATA_SETS for statement in pixel_statements(data)),
        remarks=(
            "the paper states no budget for JSMA, C&W, Pointwise and DDN: ours stand in docs/fidelity.md, so that "
            "these columns are to be compared between rows, not with the paper",
            COUNTED_OTHERWISE,
            "on MNIST the paper prints a rate of 0.05 and 120 epochs, but the authors' script has 0.01 and 100, and "
            "labels for the first 10,000 images: the last two rows do that",
            "at the printed rate UAT on MNIST is at an edge: trained once more, it fell to one answer for all images "
            "(docs/fidelity.md)",
            "the paper has no RT in this table: ours has lambda 1, and the labels alone",
            "on CIFAR-10 C(x) of SRT was one class for most of the time at the rate of 0.05, with ResNet-18, and "
            "that of UAT in the end: the last rows there have a lambda that grows, as short runs have it anyway "
            "(docs/fidelity.md)",
        ),
    )


def stronger(data: str) -> tuple[str, ...]:
    """Attacks that the paper does not have."""
    return ("pgd-20", "autoattack") if data == "cifar10" else ("autoattack",)


def spatial_trials(data: str) -> tuple[Trial, ...]:
    """The rows of Table 3 on that data set."""
    return tuple(Trial(recipe=named(f"{data}-spatial-{method}"), attacks=SPATIAL_ROWS) for method in SPATIAL_DEFENSES)


def pixel_trials(data: str) -> tuple[Trial, ...]:
    """The rows of Table 4 on that data set."""
    attacks = (*PIXEL_ROWS, *stronger(data))
    methods = (*PIXEL_DEFENSES, "rt")
    rows = tuple(Trial(recipe=named(f"{data}-pixel-{method}"), attacks=attacks) for method in methods)
    return (*rows, *(by_the_script if data == "mnist" else other_readings)(attacks))


def other_readings(attacks: tuple[str, ...]) -> Iterator[Trial]:
    """SRT on CIFAR-10 in the three passes of the authors' code, and UAT and SRT with a lambda that grows."""
    uat, srt = (Trial(recipe=named(f"cifar10-pixel-{method}"), attacks=attacks) for method in ("uat", "srt"))
    recounted = replace(cast(SRT, srt.recipe.objective), forward="clean-again")
    yield replace(
        srt,
        recipe=replace(srt.recipe, objective=recounted),
        variant="-clean-again",
        label="SRT, clean images once more",
    )
    yield first_learned(uat, "UAT, lambda that grows, one pass")
    yield first_learned(srt, "SRT, lambda that grows, one pass")


def by_the_script(attacks: tuple[str, ...]) -> Iterator[Trial]:
    """UAT and SRT on MNIST as the authors' script sets rate and epochs."""
    for method in ("uat", "srt"):
        recipe = mnist.by_the_script(named(f"mnist-pixel-{method}"))
        label = f"{method.upper()} (authors' rate)"
        yield Trial(recipe=recipe, variant="-authors", by_schedule=True, label=label, attacks=attacks)


def spatial_statements(data: str) -> Iterator[Statement]:
    """What the text says of Table 3."""
    srt, title = f"{data}-spatial-srt", DATA_SETS[data]
    rivals = [f"{data}-spatial-{method}" for method in SPATIAL_DEFENSES[:-1]]
    yield above(
        f"SRT exceeds every other defense under every spatial attack, and in clean accuracy, on {title}",
        each_over([(srt, rival) for rival in rivals], (CLEAN, *SPATIAL_ROWS)),
    )
    yield above(
        f"spatial defenses serve as augmentation: they are above standard training in clean accuracy on {title}",
        each_over([(f"{data}-spatial-{method}", rivals[0]) for method in ("worst-of-k", "klr", "srt")], (CLEAN,)),
    )
    if data == "cifar10":
        yield above(
            "SRT improves on KLR under any spatial attack on CIFAR-10 by more than 4.7 points (the text says 5)",
            over(srt, f"{data}-spatial-klr", SPATIAL_ROWS, 4.7),
        )
    yield as_printed(
        f"our spatial SRT is at most a point under the paper's on {title}, clean and under GridAdv{MAY_BE_ABOVE}",
        "Table 3",
        srt,
        (CLEAN, "gridadv"),
    )
    # On MNIST the paper's own table has AT above Standard by more than that under the other spatial attacks.
    columns, where = (SPATIAL_ROWS, "spatial attacks") if data == "cifar10" else (("gridadv",), "GridAdv")
    yield above(
        f"pixel-wise AT is no help against {where} on {title}: at most {NO_HELP:g} points above Standard"
        + ("" if data == "cifar10" else " (under RandAdv the paper has it 15.83 above)"),
        over(f"{data}-spatial-standard", f"{data}-spatial-at", columns, -NO_HELP),
    )


BETTER_RIVAL = {"cifar10": ("rst", "uat", ""), "mnist": ("uat", "rst", "jsma")}
"""which of the two semi-supervised rivals the paper finds better on each data set, and which worse, and the column in
which its table has it the other way round"""
READINGS = {"cifar10": {"": "", GROWN: f" {FIRST_LEARNED}"}, "mnist": {"": ""}}
"""variants of UAT and SRT, and what statements say of each: as they are printed, both collapsed on CIFAR-10"""
LABELS_WIN = {"cifar10": ("pointwise", ("uat", "rst")), "mnist": ("ddn", ("rst",))}
"""the column in which Table 4 has AT above semi-supervised defenses, and which"""
SRT_UNDER_UAT = "ddn"
"""the column in which Table 4 has UAT above SRT on MNIST"""


def pixel_statements(data: str) -> Iterator[Statement]:
    """What the text says of Table 4."""
    title = DATA_SETS[data]
    rivals = [f"{data}-pixel-{method}" for method in PIXEL_DEFENSES[:-1]]
    yield from ranks(f"{data}-pixel-srt", rivals, title)
    yield as_printed(
        f"our pixel-wise SRT is at most a point under the paper's on {title}, clean and under PGD{MAY_BE_ABOVE}",
        "Table 4",
        f"{data}-pixel-srt",
        (CLEAN, "pgd"),
    )
    column, theirs = LABELS_WIN[data]
    pairs = over_supervised(data, ("uat", "rst", "srt"))
    lost = [(f"{data}-pixel-{method}", f"{data}-pixel-at") for method in theirs]
    yield above(
        "semi-supervised UAT, RST and SRT are above supervised AT and TRADES under every pixel-wise attack on "
        f"{title} (but for {enumerated([method.upper() for method in theirs])} under {ATTACKS[column]}, where "
        "Table 4 has AT above; the text names no exception)",
        [
            *each_over(pairs, all_but(column)),
            *each_over([pair for pair in pairs if pair not in lost], (column,)),
        ],
    )
    winners = ("uat", "rst", "srt") if data == "cifar10" else ("uat", "srt")
    yield above(
        f"semi-supervised {'UAT, RST and SRT' if data == 'cifar10' else 'UAT and SRT'} are above supervised AT and "
        f"TRADES in clean accuracy on {title}"
        + ("" if data == "cifar10" else " (the text says RST too, which Table 4 has 0.16 points under both)"),
        each_over(over_supervised(data, winners), (CLEAN,)),
    )
    for variant, told in READINGS[data].items():
        yield above(
            f"SRT{told} is above AT and TRADES under AutoAttack too on {title}, which the paper does not have",
            each_over(over_supervised(data, (f"srt{variant}",)), ("autoattack",)),
        )
    rt, at = f"{data}-pixel-rt", f"{data}-pixel-at"
    yield above(
        f"RT at lambda 1 has an effect similar to that of AT on the same labels: both are within {SIMILAR:g} points "
        f"of each other on {title}, {WITH_HARDLY_MORE}, clean and under PGD",
        alike(each_over([(rt, at), (at, rt)], (CLEAN, "pgd"), -SIMILAR)),
    )
    if data == "cifar10":
        yield as_printed(
            f"our pixel-wise SRT in the three passes of the authors' code is at most a point under the paper's on "
            f"{title}, clean and under PGD{MAY_BE_ABOVE}",
            "Table 4",
            f"{data}-pixel-srt",
            (CLEAN, "pgd"),
            trial=f"{data}-pixel-srt-clean-again",
        )
        srt, uat = (f"{data}-pixel-{method}{GROWN}" for method in ("srt", "uat"))
        others = [rival for rival in rivals if rival != f"{data}-pixel-uat"]
        yield from ranks(srt, [*others, uat], title, f", SRT and UAT {FIRST_LEARNED}")
        yield as_printed(
            f"our pixel-wise SRT, {FIRST_LEARNED}, is at most a point under the paper's on {title}, clean and under "
            f"PGD{MAY_BE_ABOVE}",
            "Table 4",
            f"{data}-pixel-srt",
            (CLEAN, "pgd"),
            trial=srt,
        )
        yield above(
            f"our pixel-wise SRT, {FIRST_LEARNED}, is above AT and TRADES under every attack on {title}, and in "
            "clean accuracy, as Table 4 has SRT",
            each_over(over_supervised(data, (f"srt{GROWN}",)), (CLEAN, *PIXEL_ROWS)),
        )
        yield above(
            f"SRT is above UAT under every pixel-wise attack on {title}, as Table 4 has it, both {FIRST_LEARNED}",
            over(srt, uat, PIXEL_ROWS),
        )
    if data == "mnist":
        yield as_printed(
            f"our pixel-wise SRT at the rate of the authors' script is at most a point under the paper's on {title}, "
            f"clean and under PGD{MAY_BE_ABOVE}",
            "Table 4",
            f"{data}-pixel-srt",
            (CLEAN, "pgd"),
            trial=f"{data}-pixel-srt-authors",
        )
        yield nearer_to_print(
            "SRT on MNIST at the printed rate of 0.05, for 120 epochs, is nearer to the paper than at 0.01, for 100, "
            "as the authors' script has it, with its split",
            (f"{data}-pixel-srt", f"{data}-pixel-srt-authors"),
            f"{data}-pixel-srt",
            "Table 4",
            (CLEAN, "fgsm", "pgd"),
        )
        yield above(
            f"at the rate of the authors' script SRT is above UAT under every pixel-wise attack but "
            f"{ATTACKS[SRT_UNDER_UAT]} on {title}, as Table 4 has it",
            over(f"{data}-pixel-srt-authors", f"{data}-pixel-uat-authors", all_but(SRT_UNDER_UAT)),
        )
    better, worse, column = BETTER_RIVAL[data]
    for variant, told in READINGS[data].items():
        yield above(
            f"on {title} {better.upper()} is above {worse.upper()}{told} under every pixel-wise attack"
            + (f" but {ATTACKS[column]}" if column else "")
            + ": which of the two is better depends on the data set",
            over(f"{data}-pixel-{better}", f"{data}-pixel-{worse}{variant}", all_but(column)),
        )


def ranks(srt: str, rivals: Sequence[str], title: str, how: str = "") -> Iterator[Statement]:
    """That SRT is at the top of the table."""
    yield among_the_best(
        f"SRT is the best or the second in every pixel-wise column on {title}{how}", srt, rivals, PIXEL_ROWS
    )
    yield among_the_best(
        f"SRT is the best in most pixel-wise columns on {title}{how}",
        srt,
        rivals,
        PIXEL_ROWS,
        place=1,
        least=most_of(PIXEL_ROWS),
    )


def over_supervised(data: str, methods: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each of these methods, and each of the supervised defenses."""
    return [(f"{data}-pixel-{better}", f"{data}-pixel-{worse}") for better in methods for worse in ("at", "trades")]


def all_but(column: str) -> tuple[str, ...]:
    """The pixel-wise attacks of the paper without one."""
    return tuple(name for name in PIXEL_ROWS if name != column)
