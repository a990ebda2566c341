"""The defenses of a scenario, from what its data set decides: one table of methods for all data sets."""

from collections.abc import Iterator
from dataclasses import replace

from ..objectives import AT, SRT, Standard
from ..recipe import Recipe
from ..solvers import Solver


def defenses(setting: Recipe, solver: Solver, *, weight: float, adversarial: str) -> Iterator[Recipe]:
    """Standard, adversarial training, RT and SRT; those that use labels alone see no unlabeled image.

    `setting.name` is `<data>-<scenario>`, and `setting.steps` counts the epochs over the labeled images.
    """
    labels_only = replace(setting, data=replace(setting.data, unlabeled=0))
    yield replace(labels_only, name=f"{setting.name}-standard", objective=Standard())
    yield replace(labels_only, name=f"{setting.name}-{adversarial}", objective=AT(solver=solver))
    yield replace(labels_only, name=f"{setting.name}-rt", objective=SRT(solver=solver, weight=weight))
    yield replace(setting, name=f"{setting.name}-srt", objective=SRT(solver=solver, weight=weight))


def epochs(count: float, *, images: int, batch: int = 128) -> int:
    """The steps that show so many images so many times."""
    return round(count * images / batch)
