"""Defenses whose lambda grows while C(x) is learned from the labels: at full strength C(x) may become constant."""

from dataclasses import replace
from typing import cast

from ..objectives import SRT, UAT
from ..recipes.methods import LEARNED_FIRST
from .definition import Trial

GROWN = "-ramped-one-pass"
FIRST_LEARNED = "with a lambda that grows over the first half of a run and in one forward pass"
ALSO_GROWING = f"pixel-wise on CIFAR-10 SRT stands here also {FIRST_LEARNED}: docs/fidelity.md says why"


def first_learned(trial: Trial, label: str) -> Trial:
    """The trial with a lambda that grows, as that of every short run does, clean and perturbed images in one pass."""
    objective = replace(cast(SRT | UAT, trial.recipe.objective), forward="together")
    return replace(
        trial,
        recipe=replace(trial.recipe, objective=objective, ramp=LEARNED_FIRST),
        variant=GROWN + trial.variant,
        by_schedule=True,
        label=label,
    )
