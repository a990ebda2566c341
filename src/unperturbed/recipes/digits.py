"""Handwritten digits shipped with scikit-learn, 8x8: 100 labels, 1,297 unlabeled images, minutes on a CPU.

The paper has no such experiment; the settings were chosen here so that its claim shows in seconds.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..data import Data
from ..models import DigitsCNN
from ..neighborhoods import Linf, Spatial
from ..recipe import SGD, Recipe
from ..schedules import Cyclic, Ramp
from ..solvers import PGD, WorstOfK
from .budgets import Budget
from .methods import defenses

BUDGET = Budget(eps=0.15, steps=20, step_size=0.02, rotation=30.0, translation=1.0)

SETTING = Recipe(
    data=Data(name="digits", labeled=100),
    model=DigitsCNN(),
    batch=100,
    ramp=Ramp(over=0.6),
    log_every=20,
)
PIXEL = replace(SETTING, name="digits-pixel", steps=400, optimizer=SGD(rate=Cyclic(peak=0.1, top=0.3)))
SPATIAL = replace(SETTING, name="digits-spatial", steps=800, optimizer=SGD(rate=Cyclic(peak=0.05, top=0.3)))


def recipes() -> Iterator[Recipe]:
    """Both scenarios."""
    pixel = PGD(around=Linf(eps=BUDGET.eps), steps=7, step_size=0.04)
    spatial = WorstOfK(around=Spatial(rotation=BUDGET.rotation, translation=BUDGET.translation), k=10)
    yield from defenses(PIXEL, pixel, weight=1.0, adversarial="at")
    yield from defenses(SPATIAL, spatial, weight=1.0, adversarial="worst-of-k")
