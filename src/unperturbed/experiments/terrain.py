"""Surfaces around several test images, in numbers: where answers stay right, and how high the loss rises."""

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
    scenarios: tuple[tuple[Scenario, tuple[float, float]], ...] = (
        ("pixel", (budget.eps, budget.eps)),
        ("spatial", (budget.rotation, budget.translation)),
    )
    found: dict[str, list[float]] = {}
    for scenario, reach in scenarios:
        for name, value in MEASURES:
            surroundings = [
                surface(
                    f,
                    dataset.test_images[index],
                    dataset.test_labels[index],
                    scenario=scenario,
                    value=value,
                    points=5 if smoke else POINTS,
                    reach=reach,
                    index=index,
                )
                for index in range(2 if smoke else min(IMAGES, len(dataset.test_images)))
            ]
            found[f"{name}.{scenario}"] = [
                round(
                    100 * (each.values > 0).double().mean().item()
                    if value == "decision"
                    else each.values.max().item(),
                    4,
                )
                for each in surroundings
            ]
    return found
