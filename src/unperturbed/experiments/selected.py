"""SRT++ with the weights that are best on held-out labels, beside SRT."""

from dataclasses import replace
from typing import Any

from ..objectives import solver_of
from ..recipe import Recipe, Validation
from ..recipes import named
from ..schedules import Ramp
from .definition import Trial
from .shortest import srt_with

HELD_OUT = 500
"""labeled images on which the checkpoint to keep is chosen"""
MEASUREMENTS = {"pixel": 20, "spatial": 60}
"""times in a run that this part is looked at, less often where a search on it takes gradients, by scenario"""
RAMP = 0.5
"""the part of a run over which lambda grows where a model labels for itself: with more than the paper's lambda C(x)
collapses early in a run; a teacher's labels are good from the first step on"""


def varied(trial: Trial, variant: str, words: str, **changes: Any) -> Trial:
    """A trial of SRT++ with another objective, and what tells it from the other in names and in words."""
    recipe = replace(trial.recipe, objective=srt_with(trial.recipe, **changes))
    return replace(trial, recipe=recipe, variant=trial.variant + variant, label=trial.called + words)


def beside_srt(scenario: str, attacks: tuple[str, ...]) -> tuple[Trial, Trial]:
    """SRT and SRT++ of a scenario."""
    plus = chosen_on_validation(named(f"{scenario}-srt-plusplus"))
    return (
        Trial(recipe=named(f"{scenario}-srt"), attacks=attacks),
        Trial(recipe=plus, attacks=attacks, variant="-selected"),
    )


def chosen_on_validation(recipe: Recipe, held_out: int = HELD_OUT) -> Recipe:
    """The recipe that keeps the weights that are best under its own solver on held-out images, lambda ramped."""
    solver = solver_of(recipe.objective)
    times = MEASUREMENTS[recipe.name.split("-")[1]]
    return replace(
        recipe,
        data=replace(recipe.data, validation=held_out),
        ramp=Ramp(over=0.0 if recipe.labeler == "teacher" else RAMP),
        validation=Validation(every=recipe.steps // times, solver=solver, keep="best"),
    )
