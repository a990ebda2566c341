"""The shortest training that reaches the paper's fast SRT."""

from dataclasses import replace
from typing import Any, cast

from ..averaging import Average
from ..models import ResNet18
from ..objectives import SRT
from ..recipe import SGD, Recipe, Teacher
from ..recipes import cifar10, named
from ..recipes.methods import epochs
from ..recipes.published import printed
from ..schedules import Cyclic
from ..solvers import Solver
from .definition import Trial

BATCH = 512
"""of these trainings and of their teachers"""
BY_LABELS = Teacher(steps=2000, optimizer=SGD(rate=Cyclic(peak=0.2)))
"""a teacher by standard training on the labels"""
QUICK = replace(
    cifar10.CONSISTENT,
    objective=replace(cast(SRT, cifar10.CONSISTENT.objective), weight=2.0),
    steps=epochs(30, images=50_000, batch=BATCH),
)
"""a teacher by SRT around warps and colors, in a third of the steps of the usual one"""
BRISK = Average(decay=0.99, batchnorm="averaged")
"""over a hundred steps: with one over a thousand clean accuracy was lower in 30 epochs (docs/defenses.md)"""
FAST_SRT = named("cifar10-pixel-srt-fast")
FAST_ACCURACY = {column: printed("Table 9", FAST_SRT.name)[column] for column in ("clean", "pgd")}


def srt_with(recipe: Recipe, **changes: Any) -> SRT:
    """The objective of a recipe of SRT, changed."""
    return replace(cast(SRT, recipe.objective), **changes)


def shortest() -> tuple[Trial, ...]:
    """Fast SRT on ResNet-18 in large batches, each timed alone, its teacher's time included."""
    one_step = cast(SRT, FAST_SRT.objective).solver
    three, quick, well = ", three steps of search", ", by SRT in 30 epochs", ", by SRT in 90 epochs"
    return (
        taught_trial("-taught", "", 30, BY_LABELS, one_step),
        taught_trial("-taught", "", 60, BY_LABELS, one_step),
        taught_trial("-well-taught-three-steps", well + three, 30, cifar10.CONSISTENT),
        taught_trial("-well-taught-three-steps", well + three, 60, cifar10.CONSISTENT),
        taught_trial("-quickly-taught-three-steps", quick + three, 60, QUICK),
        taught_trial(
            "-quickly-taught-three-steps-averaged", f"{quick}{three}, averaged weights", 45, QUICK, averaging=BRISK
        ),
    )


def taught_trial(
    variant: str, words: str, count: int, teacher: Teacher, solver: Solver = cifar10.THREE_STEPS, **changes: Any
) -> Trial:
    """So many epochs by the labels of a teacher, with that search."""
    objective = srt_with(FAST_SRT, weight=cifar10.TAUGHT_TIMES, solver=solver)
    words = f", labels of a teacher{words}"
    return short_trial(variant, words, count, objective=objective, labeler="teacher", teacher=teacher, **changes)


def short_trial(variant: str, words: str, count: int, **changes: Any) -> Trial:
    """So many epochs of fast SRT in large batches, with these changes."""
    steps = epochs(count, images=50_000, batch=BATCH)
    recipe = replace(
        FAST_SRT,
        model=ResNet18(),
        steps=steps,
        batch=BATCH,
        optimizer=replace(FAST_SRT.optimizer, rate=Cyclic(peak=0.2)),
        validation=replace(FAST_SRT.validation, every=max(1, steps // 20)),
        **changes,
    )
    label = f"fast SRT, ResNet-18, {count} epochs{words}"
    variant = f"-shortest{variant}-{count}"
    return Trial(recipe=recipe, variant=variant, attacks=("pgd", "autoattack"), timed=True, label=label)
