"""What the paper reports: accuracy in percent of each recipe, clean and under each attack.

Where two tables of the paper give one recipe different numbers, the table of the main text counts; what else the
tables print stands in REPEATED.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..recipe import Recipe
from ..sameness import settings_of
from . import RECIPES, cifar10, mnist
from .budgets import PIXEL_ROWS, SPATIAL_ROWS, Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of the paper, or the rows in it that share one data set."""

    place: str
    """where it stands in the paper"""
    budget: Budget
    """how far its attacks went"""
    attacks: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    """by recipe: clean accuracy, then that under each attack"""


COMPARED_ON_CIFAR10 = replace(cifar10.BUDGET, steps=20, step_size=0.003)
COMPARED_ON_MNIST = replace(mnist.BUDGET, eps=0.1, step_size=0.005)
WITHOUT_POINTWISE = tuple(name for name in PIXEL_ROWS if name != "pointwise")
TABLES = (
    PublishedTable(
        place="Table 4",
        budget=cifar10.BUDGET,
        attacks=PIXEL_ROWS,
        rows={
            "cifar10-pixel-standard": (88.43, 7.26, 0.0, 0.0, 9.98, 0.14, 2.06, 0.01),
            "cifar10-pixel-at": (77.17, 50.35, 37.37, 36.97, 10.80, 33.42, 14.27, 20.87),
            "cifar10-pixel-trades": (76.23, 51.98, 40.20, 39.79, 11.90, 36.09, 12.32, 22.37),
            "cifar10-pixel-uat": (78.45, 56.35, 44.96, 44.56, 13.23, 40.03, 12.62, 24.08),
            "cifar10-pixel-rst": (79.99, 59.55, 48.38, 47.97, 13.78, 42.99, 13.42, 27.73),
            "cifar10-pixel-srt": (78.46, 59.34, 48.66, 48.24, 16.99, 43.33, 18.80, 27.71),
        },
    ),
    PublishedTable(
        place="Table 4",
        budget=mnist.BUDGET,
        attacks=PIXEL_ROWS,
        rows={
            "mnist-pixel-standard": (99.01, 41.06, 2.87, 4.37, 10.18, 0.01, 0.04, 16.44),
            "mnist-pixel-at": (98.99, 96.61, 94.69, 93.57, 20.99, 94.67, 2.47, 95.35),
            "mnist-pixel-trades": (98.99, 96.92, 95.12, 93.98, 18.48, 92.37, 2.08, 94.12),
            "mnist-pixel-uat": (99.16, 97.51, 96.14, 95.65, 23.79, 96.16, 5.52, 96.39),
            "mnist-pixel-rst": (98.83, 97.21, 95.47, 95.05, 26.63, 95.34, 3.30, 94.25),
            "mnist-pixel-srt": (99.28, 97.77, 96.60, 95.79, 26.79, 96.19, 5.81, 96.10),
        },
    ),
    PublishedTable(
        place="Table 3",
        budget=cifar10.BUDGET,
        attacks=SPATIAL_ROWS,
        rows={
            "cifar10-spatial-standard": (80.63, 8.82, 0.09, 33.61, 19.67, 19.55, 10.73),
            "cifar10-spatial-at": (65.59, 4.92, 0.22, 16.23, 7.49, 14.47, 8.37),
            "cifar10-spatial-worst-of-k": (82.02, 70.92, 54.80, 75.49, 69.45, 73.18, 68.22),
            "cifar10-spatial-klr": (85.40, 72.77, 56.28, 77.43, 72.71, 74.80, 71.04),
            "cifar10-spatial-srt": (88.87, 78.99, 64.83, 82.16, 78.47, 80.84, 77.24),
        },
    ),
    PublishedTable(
        place="Table 3",
        budget=mnist.BUDGET,
        attacks=SPATIAL_ROWS,
        rows={
            "mnist-spatial-standard": (97.19, 14.01, 0.00, 35.31, 5.12, 65.06, 51.32),
            "mnist-spatial-at": (97.96, 29.84, 0.01, 51.83, 10.72, 71.66, 57.71),
            "mnist-spatial-worst-of-k": (98.05, 94.77, 84.64, 96.07, 93.99, 95.70, 94.24),
            "mnist-spatial-klr": (98.43, 95.26, 86.08, 96.63, 95.07, 95.92, 94.48),
            "mnist-spatial-srt": (98.64, 97.02, 92.12, 97.68, 96.85, 97.33, 96.54),
        },
    ),
    PublishedTable(
        place="Table 1",
        budget=cifar10.BUDGET,
        attacks=("randadv", "gridadv"),
        rows={
            "cifar10-spatial-rt-lambda-0.15": (85.24, 64.45, 41.23),
            "cifar10-spatial-srt-lambda-0.15": (88.04, 78.03, 62.97),
            "cifar10-spatial-rt-lambda-0.2": (85.71, 66.43, 44.28),
            "cifar10-spatial-srt-lambda-0.2": (88.87, 78.99, 64.83),
            "cifar10-spatial-rt-lambda-0.25": (85.59, 67.95, 45.93),
            "cifar10-spatial-srt-lambda-0.25": (88.40, 78.39, 64.15),
            "cifar10-spatial-rt-lambda-0.3": (84.99, 67.47, 45.72),
            "cifar10-spatial-srt-lambda-0.3": (87.99, 78.12, 62.73),
        },
    ),
    PublishedTable(
        place="Table 2",
        budget=COMPARED_ON_CIFAR10,
        attacks=("fgsm", "pgd"),
        rows={
            "cifar10-pixel-rt-lambda-0.2": (83.24, 48.94, 31.91),
            "cifar10-pixel-srt-lambda-0.2": (83.83, 51.39, 34.94),
            "cifar10-pixel-rt-lambda-0.4": (81.05, 51.15, 36.01),
            "cifar10-pixel-srt-lambda-0.4": (82.28, 56.06, 41.84),
            "cifar10-pixel-rt-lambda-0.6": (79.93, 51.56, 37.73),
            "cifar10-pixel-srt-lambda-0.6": (81.03, 56.83, 44.60),
            "cifar10-pixel-rt-lambda-0.8": (78.37, 51.97, 37.91),
            "cifar10-pixel-srt-lambda-0.8": (80.23, 58.14, 47.24),
        },
    ),
    PublishedTable(
        place="Table 5",
        budget=mnist.BUDGET,
        attacks=("randadv", "gridadv"),
        rows={
            "mnist-spatial-rt-lambda-0.15": (98.47, 92.88, 72.85),
            "mnist-spatial-srt-lambda-0.15": (98.61, 96.85, 91.52),
            "mnist-spatial-rt-lambda-0.2": (98.33, 93.66, 76.68),
            "mnist-spatial-srt-lambda-0.2": (98.64, 97.02, 92.12),
            "mnist-spatial-rt-lambda-0.25": (98.29, 93.91, 78.00),
            "mnist-spatial-srt-lambda-0.25": (98.63, 96.91, 91.70),
            "mnist-spatial-rt-lambda-0.3": (98.42, 93.86, 77.74),
            "mnist-spatial-srt-lambda-0.3": (98.62, 97.08, 91.44),
        },
    ),
    PublishedTable(
        place="Table 6",
        budget=COMPARED_ON_MNIST,
        attacks=("fgsm", "pgd"),
        rows={
            "mnist-pixel-rt-lambda-0.2": (99.06, 97.18, 95.84),
            "mnist-pixel-srt-lambda-0.2": (99.31, 98.10, 97.18),
            "mnist-pixel-rt-lambda-0.4": (99.14, 97.57, 96.23),
            "mnist-pixel-srt-lambda-0.4": (99.40, 98.28, 97.55),
            "mnist-pixel-rt-lambda-0.6": (99.06, 97.78, 96.92),
            "mnist-pixel-srt-lambda-0.6": (99.34, 98.47, 97.81),
            "mnist-pixel-rt-lambda-0.8": (99.11, 97.90, 97.06),
            "mnist-pixel-srt-lambda-0.8": (99.35, 98.53, 97.86),
        },
    ),
    PublishedTable(
        place="Table 8",
        budget=cifar10.BUDGET,
        attacks=("gridadv", "gridadv.t", "gridadv.r"),
        rows={"cifar10-spatial-srt-fast": (89.21, 64.81, 78.57, 77.24)},
    ),
    PublishedTable(
        place="Table 9",
        budget=cifar10.BUDGET,
        attacks=WITHOUT_POINTWISE,
        rows={"cifar10-pixel-srt-fast": (82.27, 58.27, 44.93, 44.45, 12.27, 40.85, 26.12)},
    ),
)
REPEATED = (
    PublishedTable(
        place="Table 1",
        budget=cifar10.BUDGET,
        attacks=("randadv", "gridadv"),
        rows={"cifar10-spatial-standard": (80.63, 8.82, 0.09)},
    ),
    PublishedTable(
        place="Table 2",
        budget=COMPARED_ON_CIFAR10,
        attacks=("fgsm", "pgd"),
        rows={"cifar10-pixel-standard-compared": (87.69, 6.65, 0.0)},
    ),
    PublishedTable(
        place="Table 5",
        budget=mnist.BUDGET,
        attacks=("randadv", "gridadv"),
        rows={"mnist-spatial-standard": (97.19, 71.00, 40.49)},
    ),
    PublishedTable(
        place="Table 6",
        budget=COMPARED_ON_MNIST,
        attacks=("fgsm", "pgd"),
        rows={"mnist-pixel-standard-compared": (99.02, 93.80, 86.12)},
    ),
    PublishedTable(
        place="Table 8",
        budget=cifar10.BUDGET,
        attacks=("gridadv", "gridadv.t", "gridadv.r"),
        rows={
            "cifar10-spatial-worst-of-k": (82.02, 54.80, 69.45, 68.22),
            "cifar10-spatial-klr": (85.40, 56.28, 72.71, 71.04),
            "cifar10-spatial-srt": (88.87, 64.83, 78.47, 77.24),
        },
    ),
    PublishedTable(
        place="Table 9",
        budget=cifar10.BUDGET,
        attacks=WITHOUT_POINTWISE,
        rows={
            "cifar10-pixel-at": (77.17, 50.35, 37.37, 36.97, 10.80, 33.42, 20.87),
            "cifar10-pixel-trades": (76.72, 51.98, 40.20, 39.79, 11.90, 36.09, 22.37),
            "cifar10-pixel-srt": (78.46, 59.34, 48.66, 48.24, 16.99, 43.33, 27.71),
        },
    ),
)
"""rows that a table prints beside those above: of recipes with another table of their own, or of no recipe's name"""
ONE_TRAINING: Mapping[str, str] = {
    f"{data}-spatial-srt": f"{data}-spatial-srt-lambda-0.2" for data in ("cifar10", "mnist")
}
"""recipes that some tables print as another one, which is the same but for its name"""
MINUTES: Mapping[str, Mapping[str, float]] = {
    "Table 8": {
        "cifar10-spatial-worst-of-k": 1654,
        "cifar10-spatial-klr": 1697,
        "cifar10-spatial-srt": 1573,
        "cifar10-spatial-srt-fast": 855,
    },
    "Table 9": {
        "cifar10-pixel-at": 895,
        "cifar10-pixel-trades": 1094,
        "cifar10-pixel-srt": 2916,
        "cifar10-pixel-srt-fast": 257,
    },
}
"""of training on a GTX 1080, by table and row"""


def printed(place: str, row: str) -> dict[str, float]:
    """What a table of the paper prints in that row: by attack, with `clean` and, where it tells them, `minutes`."""
    for table in (*REPEATED, *TABLES):
        if table.place == place and row in table.rows:
            numbers = dict(zip(("clean", *table.attacks), table.rows[row], strict=True))
            minutes = MINUTES.get(place, {}).get(row)
            return numbers if minutes is None else numbers | {"minutes": minutes}
    return printed(place, ONE_TRAINING[row]) if row in ONE_TRAINING else {}


def published(recipe: Recipe, attack: str | None = None, settings: str = "") -> tuple[float, str] | None:
    """The paper's accuracy in percent, clean or under that attack, and its place; none where ours differs.

    Ours is the paper's experiment where the recipe is, up to seeds and arithmetic, and the attack has the settings of
    the paper's table.
    """
    table = next((table for table in TABLES if recipe.name in table.rows), None)
    if table is None or not followed(recipe):
        return None
    clean, *attacked = table.rows[recipe.name]
    if attack is None:
        return clean, table.place
    if attack not in table.attacks or settings_of(table.budget.attacks()[attack]) != settings:
        return None
    return attacked[table.attacks.index(attack)], table.place


def followed(recipe: Recipe) -> bool:
    """Whether a recipe is ours of its name, but for seeds, precision and how often it is logged."""
    ours = RECIPES[recipe.name]
    same = replace(
        recipe,
        seed=ours.seed,
        data=replace(recipe.data, seed=ours.data.seed),
        precision=ours.precision,
        microbatch=ours.microbatch,
        batchnorm=ours.batchnorm,
        log_every=ours.log_every,
    )
    return same == ours
