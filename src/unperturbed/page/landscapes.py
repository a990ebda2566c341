"""Decision surfaces of all runs around one test image, in the plain values of a page."""

from math import isnan
from typing import Any, get_args

import torch

from ..inputs import as_float
from ..printing import printable
from ..recipes import usual_budget
from ..surfaces import Scenario, surface
from .evaluated import Group


def require_image(group: Group, around: int | None) -> None:
    """Refuse to surround an image that is not there, before anything is computed."""
    count = len(group.dataset.test_labels)
    if around is not None and not 0 <= around < count:
        raise ValueError(f"there is no test image {around}: {printable(group.dataset.name)} has {count}, from 0 on")


def surfaces_of(group: Group, *, around: int | None, points: int, seed: int, device: torch.device) -> dict[str, Any]:
    """D(x') around one image, pixel-wise and spatially, for each run; as far as attacks on this data set go."""
    labels = group.dataset.test_labels
    place = easiest(group) if around is None else around
    budget = usual_budget(group.dataset.name)
    image, label = as_float(group.dataset.test_images[place]), int(labels[place])
    found: dict[str, Any] = {"place": place, "label": label, "scenarios": {}}
    for scenario in get_args(Scenario):
        drawn = [
            surface(
                run.model.to(device),
                image,
                label,
                scenario=scenario,
                points=points,
                reach=budget.reach(scenario),
                seed=seed,
                index=place,
            )
            for run in group.runs
        ]
        found["scenarios"][scenario] = {
            "axes": list(drawn[0].axes),
            "down": [round(value, 5) for value in drawn[0].down.tolist()],
            "across": [round(value, 5) for value in drawn[0].across.tolist()],
            "values": [[[rounded(value) for value in row] for row in one.values.tolist()] for one in drawn],
            "correct": [one.correct for one in drawn],
            "middle": [one.values[points // 2, points // 2].item() for one in drawn],
            "least": [one.bounds[0] for one in drawn],
        }
    return found


def rounded(value: float) -> float | None:
    """A value with the digits that a surface shows; where the model answers with NaN there is a gap."""
    return None if isnan(value) else round(value, 3)


def easiest(group: Group) -> int:
    """The first image that most runs classify correctly: around others there is no hill to look at."""
    right = torch.stack([run.report.survivors()[: group.shared_images] for run in group.runs])
    return int(right.sum(0).argmax())
