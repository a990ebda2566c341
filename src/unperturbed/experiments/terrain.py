"""Surfaces around several test images, in numbers: where answers stay right, and how high the loss rises."""

from typing import get_args

from torch import nn

from ..datasets import Dataset
from ..recipes import usual_budget
from ..surfaces import Scenario, Value, surface
from .definition import Trial
from .scales import Scale, narrowed

IMAGES = 20
"""test images whose surroundings are measured"""
POINTS = 41
MEASURES: tuple[tuple[str, Value], ...] = (("surface", "decision"), ("peak", "loss"))


def surfaces_around(f: nn.Module, dataset: Dataset, trial: Trial, scale: Scale) -> dict[str, list[float]]:
    """By scenario: the share of points with D > 0 in percent, and the highest loss, around each image."""
    smoke = scale == "smoke"
    budget = narrowed(trial.budget or usual_budget(trial.recipe.data.name), scale)
    found: dict[str, list[float]] = {}
    for scenario in get_args(Scenario):
        for name, value in MEASURES:
            surroundings = [
                surface(
                    f,
                    dataset.test_images[index],
                    dataset.test_labels[index],
                    scenario=scenario,
                    value=value,
                    points=5 if smoke else POINTS,
                    reach=budget.reach(scenario),
                    index=index,
                )
                for index in range(2 if smoke else min(IMAGES, len(dataset.test_images)))
            ]
            found[f"{name}.{scenario}"] = [
                round(each.bounds[1] if each.correct is None else 100 * each.correct, 4) for each in surroundings
            ]
    return found
