"""How large a reproduction is: each scale is a function of recipes, and all of them stand here."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, cast

from ..attacks import DDN, AutoAttack
from ..models import DigitsCNN, ResNet18, WideResNet
from ..objectives import SRT, UAT, with_solvers
from ..recipe import Recipe
from ..recipes import named
from ..recipes.budgets import Budget, Stated
from ..schedules import Cyclic, Ramp
from ..solvers import Solver

Scale = Literal["smoke", "short", "paper"]
Network = Literal["own", "resnet-18"]
SCALES: Mapping[Scale, str] = {
    "smoke": "a few steps of a tiny network on the digits that scikit-learn ships: seconds on a CPU, no result",
    "short": "a cyclic rate and the same number of images for every defense of a scenario",
    "paper": "the paper's schedule",
}
NETWORKS: Mapping[Network, str] = {
    "own": "the paper's networks",
    "resnet-18": "ResNet-18 in place of WRN-34-10",
}
SHORT: Mapping[str, tuple[int, int, float]] = {
    "cifar10-pixel": (1_500_000, 512, 0.2),
    "cifar10-spatial": (2_560_000, 128, 0.1),
    "cifar10-compound": (1_500_000, 512, 0.2),
    "mnist-pixel": (1_200_000, 128, 0.05),
    "mnist-spatial": (2_560_000, 128, 0.05),
    "mnist-compound": (1_200_000, 128, 0.05),
}
"""by data set and scenario: images that a short run sees, labeled and unlabeled, with repetition; its batch; the
peak of its triangular rate"""
SHORT_RAMP = 0.8
"""the part of a short run over which lambda grows: at full strength from the start a self-labeled term collapses"""
SLOW_ATTACKS = ("pointwise", "autoattack")
"""attacks that take thousands of passes an image on CIFAR-10, and may be made on fewer images"""
LONG_ATTACKS = ("jsma", "ddn", *SLOW_ATTACKS)
"""attacks that come when all runs have had the others: stopped early, a table has most cells of every row"""
SMOKE_STEPS = 3
SMOKE_IMAGES = 8
"""test images that a smoke run is attacked on"""
TEST_IMAGES = 10_000
"""of both data sets of the paper"""


def scaled(recipe: Recipe, scale: Scale, network: Network = "own") -> Recipe:
    """The recipe at that scale, with that network in place of WRN-34-10."""
    if substituted(recipe, network):
        recipe = replace(recipe, model=ResNet18())
    return smoke(recipe) if scale == "smoke" else short(recipe) if scale == "short" else recipe


def substituted(recipe: Recipe, network: Network) -> bool:
    """Whether the recipe would get another network."""
    return network == "resnet-18" and isinstance(recipe.model, WideResNet)


def usual_network(scale: Scale) -> Network:
    """Short runs take ResNet-18 in place of WRN-34-10, others what the recipe says."""
    return "resnet-18" if scale == "short" else "own"


def seeded(recipe: Recipe, seed: int) -> Recipe:
    """The recipe with another split, other weights and other batches."""
    return replace(recipe, seed=seed, data=replace(recipe.data, seed=seed))


def short(recipe: Recipe) -> Recipe:
    """The same number of images for every defense of a scenario; of that, fast SRT keeps its share of SRT's.

    A teacher, whose batch grows along unless it has its own, sees as many images as at the paper's schedule.
    """
    scenario = "-".join(recipe.name.split("-")[:2])
    images, batch, peak = SHORT[scenario]
    share = 1.0
    if recipe.name.startswith(f"{scenario}-srt-fast") and isinstance(recipe.optimizer.rate, Cyclic):
        usual, whole = named(f"{scenario}-srt-fast"), named(f"{scenario}-srt")
        if recipe.batch != usual.batch:  # It has a short schedule of its own.
            return recipe
        share = recipe.steps / whole.steps
        peak *= recipe.optimizer.rate.peak / cast(Cyclic, usual.optimizer.rate).peak
    steps = round(share * images / batch)
    self_labeled = isinstance(recipe.objective, SRT | UAT) and recipe.labeler != "teacher"
    return checked_as_often(
        replace(
            recipe,
            steps=steps,
            batch=batch,
            optimizer=replace(recipe.optimizer, rate=Cyclic(peak=peak)),
            teacher=replace(recipe.teacher, steps=steps_of_teacher(recipe, batch)),
            ramp=Ramp(over=SHORT_RAMP) if self_labeled else recipe.ramp,
        ),
        recipe,
    )


def steps_of_teacher(recipe: Recipe, batch: int) -> int:
    """The steps in which the teacher of a recipe sees as many images where the batch of the run becomes that one."""
    return recipe.teacher.steps if recipe.teacher.batch else round(recipe.teacher.steps * recipe.batch / batch)


def smoke(recipe: Recipe) -> Recipe:
    """All that the recipe does, for three steps on small images."""
    unlabeled = recipe.data.unlabeled
    data = replace(
        recipe.data,
        name="digits",
        labeled=None if recipe.data.labeled is None else 200,
        unlabeled=unlabeled and unlabeled // 100,
        validation=min(recipe.data.validation, 20),
        crop=min(recipe.data.crop, 1),
    )
    return checked_as_often(
        replace(
            recipe,
            data=data,
            model=DigitsCNN(channels=(2, 2, 4), hidden=8),
            objective=with_solvers(recipe.objective, briefly),
            teacher=replace(
                recipe.teacher,
                model=None,
                batch=None,
                objective=with_solvers(recipe.teacher.objective, briefly),
                steps=SMOKE_STEPS,
            ),
            steps=SMOKE_STEPS,
            batch=32,
            log_every=1,
        ),
        recipe,
    )


def checked_as_often(changed: Recipe, recipe: Recipe) -> Recipe:
    """The recipe, whose validation part is looked at as often in a run as before its length changed."""
    every = max(1, round(changed.steps * recipe.validation.every / recipe.steps))
    return replace(changed, validation=replace(recipe.validation, every=every)) if recipe.data.validation else changed


def briefly(solver: Solver) -> Solver:
    """The solver with at most two steps or draws."""
    for name in ("steps", "k"):
        if hasattr(solver, name):
            return with_field(solver, name, min(getattr(solver, name), 2))
    for name in ("stages", "solvers"):
        if hasattr(solver, name):
            return with_field(solver, name, tuple(briefly(part) for part in getattr(solver, name)))
    return solver


def with_field(solver: Solver, name: str, value: object) -> Solver:
    """The solver with another value of that field."""
    return replace(cast(Any, solver), **{name: value})


def narrowed(budget: Budget, scale: Scale) -> Budget:
    """How far attacks go at that scale: in a smoke run PGD takes two steps, and shifts fit small images."""
    return replace(budget, steps=2, translation=1.0, pixels=2) if scale == "smoke" else budget


def images_attacked(scale: Scale) -> int:
    """How many of the test images are attacked, which are all but in a smoke run."""
    return SMOKE_IMAGES if scale == "smoke" else TEST_IMAGES


def briefly_made(attack: Stated, scale: Scale) -> Stated:
    """The attack at that scale: in a smoke run the longest ones are cut short."""
    if scale != "smoke":
        return attack
    if isinstance(attack, AutoAttack):
        return replace(attack, parts=("apgd-ce",))
    return replace(attack, steps=5) if isinstance(attack, DDN) else attack
