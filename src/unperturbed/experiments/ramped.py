"""Defenses whose lambda grows while C(x) is learned from the labels: at full strength C(x) may become constant."""

from dataclasses import replace
from typing import cast

from ..objectives import SRT, UAT
from ..recipes.methods import LEARNED_FIRST
from .definition import Trial

RAMPED, IN_ONE_PASS = "-ramped", "-one-pass"
GROWING = "with a lambda that grows over the first half of a run"
FIRST_LEARNED = f"{GROWING} and in one forward pass"
ALSO_GROWING = f"pixel-wise on CIFAR-10 SRT stands here also {FIRST_LEARNED}: docs/fidelity.md says why"


def ramped(trial: Trial, label: str) -> Trial:
    """The trial with a lambda that grows, as that of every short run does."""
    recipe = replace(trial.recipe, ramp=LEARNED_FIRST)
    return replace(trial, recipe=recipe, variant=RAMPED + trial.variant, by_schedule=True, label=label)


def first_learned(trial: Trial, label: str) -> Trial:
    """The trial with a lambda that grows, clean and perturbed images in one pass: C(x) has less room to fall."""
    grown = ramped(trial, label)
    recipe = replace(grown.recipe, objective=replace(cast(SRT | UAT, grown.recipe.objective), forward="together"))
    return replace(grown, recipe=recipe, variant=RAMPED + IN_ONE_PASS + trial.variant)
