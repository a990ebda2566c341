"""MNIST as in the paper: 10,000 labels, 50,000 unlabeled images, a small CNN."""

from collections.abc import Iterator
from dataclasses import replace

from ..data import Data
from ..models import SmallCNN
from ..neighborhoods import Linf, Spatial
from ..recipe import SGD, Recipe
from ..schedules import Piecewise
from ..solvers import PGD, WorstOfK
from .budgets import Budget
from .methods import defenses, epochs

BUDGET = Budget(eps=0.3, steps=40, step_size=0.01, rotation=30.0, translation=3.0)

PIXEL = Recipe(
    name="mnist-pixel",
    data=Data(name="mnist", labeled=10_000),
    model=SmallCNN(),
    steps=epochs(120, images=10_000),
    optimizer=SGD(rate=Piecewise(rate=0.05, milestones=(75 / 120, 90 / 120, 100 / 120))),
)

SPATIAL = replace(
    PIXEL,
    name="mnist-spatial",
    steps=80_000,
    optimizer=SGD(rate=Piecewise(rate=0.1, milestones=(40 / 80, 60 / 80)), weight_decay=2e-4),
)


def recipes() -> Iterator[Recipe]:
    """Both scenarios, with the settings of the paper's main tables."""
    pixel = PGD(around=Linf(eps=BUDGET.eps), steps=40, step_size=0.01)
    spatial = WorstOfK(around=Spatial(rotation=BUDGET.rotation, translation=BUDGET.translation), k=10)
    for recipe in defenses(PIXEL, pixel, weight=1.0, adversarial="at"):
        yield replace(recipe, steps=epochs(120, images=60_000)) if recipe.data.unlabeled is None else recipe
    yield from defenses(SPATIAL, spatial, weight=0.2, adversarial="worst-of-k")
