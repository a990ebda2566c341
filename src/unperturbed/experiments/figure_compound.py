"""Figures 1 and 7: compound attacks and defenses over perturbation fractions, on both data sets."""

from collections.abc import Iterator, Sequence

from ..recipes import named
from ..recipes.words import DATA_SETS, in_words
from .definition import CLEAN, Cell, Experiment, Statement, Table, Trial
from .ramped import ALSO_GROWING, GROWN, first_learned
from .statements import Comparison, above, each_over, falls_under, over

BOTH = ("pgd+", "gridadv+")
"""the compound attacks"""
ATTACKS = ("pgd", "gridadv", *BOTH)
FRACTIONS = (0.25, 0.5, 0.75, 1.0)
GROWING = f"pixel-srt{GROWN}"
PIXEL = {"cifar10": ("pixel-at", "pixel-srt", GROWING), "mnist": ("pixel-at", "pixel-srt")}
SPATIAL = ("spatial-worst-of-k", "spatial-srt")
OURS = ("compound-srt", "compound-at")
"""the paper's own compound defenses"""
COMPOUND = ("compound-at", "compound-srt", "compound-at-average", "compound-at-max")
NOTHING_LEFT = 1.0
"""percent under an attack at which no stronger one can show that it is"""
SOON = 0.25
"""the fraction from which a defense is of little use against another perturbation than its own"""
NOT_MUCH_UNDER = -5.0
"""points under a defense against a single perturbation by which one against both still defends well there"""
NEARLY_NOTHING = 5.0
"""percent under PGD to which they have fallen there on CIFAR-10"""


def experiment() -> Experiment:
    """Both figures in one, since they share their attacks and fractions."""
    return Experiment(
        name="figure-compound",
        title="Compound attacks and defenses over perturbation fractions (Figures 1 and 7)",
        tables=tuple(
            Table(
                title=title,
                rows=trials(data),
                columns=((CLEAN, 1.0), *((attack, fraction) for attack in ATTACKS for fraction in FRACTIONS)),
            )
            for data, title in DATA_SETS.items()
        ),
        statements=tuple(statement for data in DATA_SETS for statement in statements(data)),
        remarks=(
            "the paper does not state the network of the compound defenses: on CIFAR-10 ours is that of the spatial "
            "experiments, with the schedule of the pixel-wise ones; lambda of SRT+ is 1 and grows over half of a "
            "run",
            "the paper gives the fractions only as a picture: ours are our own choice; the grid of a smaller one has "
            "as many points, closer to each other, and so is no part of that of a larger one",
            "SRT+ takes five times as many steps as the other compound defenses, on MNIST six times, as SRT does "
            "beside AT: an epoch of it is one of all images, labeled or not",
            "within PGD+ and GridAdv+ PGD starts from x and climbs the margin, as the grid does; the PGD of its own "
            "columns starts anywhere in the ball and climbs the cross-entropy",
            "accuracies here are by the paper's attacks; longer ones with restarts leave less of SRT+ on MNIST: "
            "docs/trust.md says how much",
            ALSO_GROWING,
        ),
    )


def trials(data: str) -> tuple[Trial, ...]:
    """The lines of both figures."""
    return tuple(line(data, method) for method in (*PIXEL[data], *SPATIAL, *COMPOUND))


def line(data: str, method: str) -> Trial:
    """One of them."""
    if method == GROWING:
        srt = line(data, "pixel-srt")
        return first_learned(srt, f"{srt.label}, lambda that grows")
    recipe = named(f"{data}-{method}")
    return Trial(recipe=recipe, attacks=ATTACKS, swept=ATTACKS, fractions=FRACTIONS, label=in_words(recipe.name))


def statements(data: str) -> Iterator[Statement]:
    """What the text says of them."""
    title, single_ones = DATA_SETS[data], (*PIXEL[data], *SPATIAL)
    every = [f"{data}-{method}" for method in (*single_ones, *COMPOUND)]
    srt, others = f"{data}-compound-srt", [f"{data}-{method}" for method in COMPOUND if method != "compound-srt"]
    at, *both_at_once = others
    yield above(
        "compound attacks are stronger than PGD and GridAdv by themselves, at every perturbation fraction and "
        f"against every defense on {title} of which those leave anything",
        [
            Comparison(Cell(trial, single, fraction), Cell(trial, both, fraction))
            for trial in every
            for single in ("pgd", "gridadv")
            for both in BOTH
            for fraction in FRACTIONS
        ],
        while_above=NOTHING_LEFT,
    )
    yield above(
        f"SRT+ is above AT+, AT (average) and AT (max) under PGD+ and GridAdv+ on {title}",
        each_over([(srt, other) for other in others], BOTH),
    )
    yield throughout("SRT+ is the best of the compound defenses", title, srt, others)
    yield above(
        f"AT+ is above AT (average) and AT (max) under PGD+ and GridAdv+ on {title}",
        each_over([(at, other) for other in both_at_once], BOTH),
    )
    yield throughout("AT+ is above AT (average) and AT (max)", title, at, both_at_once)
    yield above(
        f"against compound attacks SRT+ and AT+ are above the defenses against one perturbation on {title}",
        each_over([(f"{data}-{both}", f"{data}-{one}") for both in OURS for one in single_ones], BOTH),
    )
    yield above(
        "SRT+ and AT+ defend against single attacks too: they are above the spatial defenses under PGD, and above "
        f"the pixel-wise ones under GridAdv, on {title}",
        [
            Comparison(Cell(f"{data}-{both}", attack), Cell(f"{data}-{one}", attack))
            for both in OURS
            for weak_there, attack in ((SPATIAL, "pgd"), (PIXEL[data], "gridadv"))
            for one in weak_there
        ],
    )
    yield above(
        "SRT+ and AT+ defend well against single attacks (the text gives no number): they are at most "
        f"{-NOT_MUCH_UNDER:g} points under the defenses made for them, on {title}",
        [
            Comparison(Cell(f"{data}-{both}", attack), Cell(f"{data}-{one}", attack), NOT_MUCH_UNDER)
            for both in OURS
            for made_for_it, attack in ((PIXEL[data], "pgd"), (SPATIAL, "gridadv"))
            for one in made_for_it
        ],
    )
    yield above(f"SRT+ is above AT+ under PGD and GridAdv too, on {title}", over(srt, at, ("pgd", "gridadv")))
    if data == "cifar10":
        yield falls_under(
            f"spatial defenses have limited benefit against PGD: on {title} they are under {NEARLY_NOTHING:g} % at "
            f"the perturbation fraction {SOON:g}",
            [(Cell(f"{data}-{method}", "pgd", SOON), NEARLY_NOTHING) for method in SPATIAL],
        )
    else:
        yield above(
            f"spatial defenses have limited benefit against PGD: on {title} they are under the pixel-wise ones at "
            "every perturbation fraction",
            across(data, PIXEL[data], SPATIAL, "pgd"),
        )
    yield above(
        f"pixel-wise defenses have limited benefit against GridAdv: on {title} they are under the spatial ones at "
        "every perturbation fraction",
        across(data, SPATIAL, PIXEL[data], "gridadv"),
    )
    if data == "mnist":
        yield above(
            "on MNIST SRT+ is more than 7 points above AT+ under PGD+, and more than 10 under GridAdv+",
            [*over(srt, at, ("pgd+",), 7.0), *over(srt, at, ("gridadv+",), 10.0)],
        )


def throughout(words: str, title: str, best: str, rivals: Sequence[str]) -> Statement:
    """That one defense is above its rivals under compound attacks also at smaller fractions."""
    return above(
        f"{words} under PGD+ and GridAdv+ at every smaller perturbation fraction too, on {title}",
        [
            Comparison(Cell(best, both, fraction), Cell(other, both, fraction))
            for other in rivals
            for both in BOTH
            for fraction in FRACTIONS
            if fraction < 1
        ],
    )


def across(data: str, better: Sequence[str], worse: Sequence[str], attack: str) -> list[Comparison]:
    """Each defense made against an attack over each that is not, from the smallest fraction on."""
    return [
        Comparison(Cell(f"{data}-{one}", attack, fraction), Cell(f"{data}-{other}", attack, fraction))
        for one in better
        for other in worse
        for fraction in FRACTIONS
    ]
