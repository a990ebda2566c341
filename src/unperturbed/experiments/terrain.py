"""Surfaces around several test images, in numbers: how much of them is right, how steep, rugged and high they are."""

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import get_args

import torch
from torch import Tensor, nn

from ..datasets import Dataset
from ..recipes import usual_budget
from ..surfaces import Scenario, Surface, Value, surface
from .definition import Trial
from .scales import Scale, narrowed

IMAGES = 20
"""test images whose surroundings are measured"""
POINTS = 41


def inside(found: Surface) -> Tensor:
    """Which points lie in the neighborhood of x, whose reach the surface has: eps, or degrees and pixels.

    Pixel-wise that is the diamond |s| + |t| <= eps. The corners of the square are 2 eps away: no defense is for that.
    """
    far = len(found.values) - 1
    away = (2 * torch.arange(far + 1) - far).abs()
    return away.unsqueeze(1) + away <= (far if found.scenario == "pixel" else 2 * far)


def heights(found: Surface) -> Tensor:
    """The values in the neighborhood, D in percent, and gaps elsewhere."""
    return found.values.double().where(inside(found), nan) * (100 if found.value == "decision" else 1)


def spacing(found: Surface) -> float:
    """The distance of neighbors, in units of the reach: axes go from -1 to 1, so that scenarios are comparable."""
    return 2 / (len(found.values) - 1)


def percent_right(found: Surface) -> float:
    """The share of points with D > 0; gaps are not right."""
    return 100 * (found.values > 0)[inside(found)].double().mean().item()


def highest(found: Surface) -> float:
    """The greatest value, but for gaps."""
    return heights(found).nan_to_num(-inf).max().item()


def slope(found: Surface) -> float:
    """The mean length of the gradient: by how much the value changes over one reach, straight up the slope.

    Differences are those of neighbors, in which no wave cancels out as it does in central ones; not those at gaps.
    """
    values = heights(found)
    down, across = values.diff(dim=0)[:, :-1], values.diff(dim=1)[:-1]
    return down.hypot(across).nanmean().item() / spacing(found)


def ruggedness(found: Surface) -> float:
    """How far one goes up and down again on a straight way over one reach, along either axis.

    Of all that the value rises on a way across and all that it falls, the lesser counts; over the length of all ways.
    It is 0 on a plane and wherever the value only rises or only falls, so that neither steep nor curved is rugged; n
    teeth are n times as rugged as one. The distance from the best plane, which is common too, is no larger for many
    hills than for one, and second differences grow with the number of points wherever there is a cliff.
    """
    values = heights(found)
    ways = torch.cat([values.diff(dim=1), values.diff(dim=0).T])
    risen, fallen = ways.clamp(min=0).nansum(1), -ways.clamp(max=0).nansum(1)
    return (torch.minimum(risen, fallen).sum() / ways.isfinite().sum()).item() / spacing(found)


MEASURES: Mapping[Value, Mapping[str, Callable[[Surface], float]]] = {
    "decision": {"surface": percent_right, "decision-slope": slope, "ruggedness": ruggedness},
    "loss": {"peak": highest, "loss-slope": slope},
}
"""what is measured on a decision surface and on a loss surface, by the names of columns without the scenario"""


def surfaces_around(f: nn.Module, dataset: Dataset, trial: Trial, scale: Scale) -> dict[str, list[float]]:
    """All that is measured on surfaces, around each image; each surface is computed once for all its measures."""
    smoke = scale == "smoke"
    budget = narrowed(trial.budget or usual_budget(trial.recipe.data.name), scale)
    found: dict[str, list[float]] = {}
    for scenario in get_args(Scenario):
        for value, measures in MEASURES.items():
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
            for name, measured in measures.items():
                found[f"{name}.{scenario}"] = [round(measured(each), 4) for each in surroundings]
    return found
