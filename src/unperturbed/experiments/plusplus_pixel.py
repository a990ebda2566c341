"""Pixel-wise SRT++ on CIFAR-10 and the rival that has all of its parts."""

from dataclasses import replace
from typing import Literal, cast

from ..averaging import Average
from ..objectives import TRADES
from ..recipe import Recipe
from ..recipes import named
from ..schedules import Piecewise
from .definition import Trial
from .ramped import first_learned
from .selected import MEASUREMENTS, beside_srt, chosen_on_validation, varied
from .shortest import THREE_STEPS, srt_with

TAUGHT_HELD_OUT = 1000
"""labels held out in three steps of search, whose parts were compared on these (benchmarks/plusplus.py)"""


def pixel_trials(attacks: tuple[str, ...]) -> tuple[Trial, ...]:
    """SRT as it is printed and as it learns, and SRT++ by labels of a teacher, with and without some of its parts."""
    srt, plus = beside_srt("cifar10-pixel", attacks)
    grown = first_learned(srt, "SRT, lambda that grows, one pass")
    awp = replace(
        plus,
        recipe=replace(plus.recipe, weight_perturbation=0.005),
        variant=f"{plus.variant}-awp",
        label="SRT++ with adversarial weight perturbation",
    )
    estimated = replace(
        plus,
        recipe=replace(
            plus.recipe,
            objective=srt_with(plus.recipe, mean="terms", forward="separate"),
            averaging=Average(decay=0.99, batchnorm="estimated"),
        ),
        variant=f"{plus.variant}-estimated",
        label="SRT++, a mean for each term, statistics of clean images",
    )
    shorter = varied(
        replace(plus, recipe=chosen_on_validation(plus.recipe, TAUGHT_HELD_OUT)),
        "-three-steps",
        ", three steps of search",
        solver=THREE_STEPS,
    )
    halved = replace(
        shorter,
        recipe=in_half_the_steps(shorter.recipe),
        variant=f"{shorter.variant}-60",
        by_schedule=True,
        label=f"{shorter.called}, 60 epochs",
    )
    joined = replace(
        plus,
        recipe=chosen_on_validation(in_one_mean(plus.recipe, radius=0.005), TAUGHT_HELD_OUT),
        variant=f"{plus.variant}-one-mean-awp",
        label="SRT++, lambda 1, three steps of search, the model's statistics, adversarial weight perturbation",
    )
    return srt, grown, plus, estimated, awp, shorter, halved, joined


def in_half_the_steps(recipe: Recipe) -> Recipe:
    """The recipe in half its steps, at its first rate but for the last tenth of them.

    On ResNet-18 the average was best on held-out labels when half of the steps were taken, before the rate fell.
    """
    steps = recipe.steps // 2
    rate = replace(cast(Piecewise, recipe.optimizer.rate), milestones=(0.9,))
    return replace(
        recipe,
        steps=steps,
        optimizer=replace(recipe.optimizer, rate=rate),
        validation=replace(recipe.validation, every=steps // MEASUREMENTS["pixel"]),
    )


def rival(plus: Trial) -> Trial:
    """RST with all that SRT++ has: its teacher, its average, its held-out labels, its search."""
    rst = named("cifar10-pixel-rst")
    objective = replace(cast(TRADES, rst.objective), solver=srt_with(plus.recipe).solver)
    return replace(
        plus,
        recipe=replace(plus.recipe, name=rst.name, objective=objective),
        variant=plus.variant.replace("-selected", "-taught-alike"),
        label=f"RST with teacher and average of {plus.called}",
    )


def in_one_mean(recipe: Recipe, targets: Literal["hard", "soft"] = "hard", radius: float = 0.0) -> Recipe:
    """SRT++ with lambda 1 in one mean over the images of both terms, in one pass, and three steps of search.

    The loss is then no larger than that of AT. The average has the model's statistics, which costs it robustness.
    """
    return replace(
        recipe,
        objective=srt_with(
            recipe, solver=THREE_STEPS, weight=1.0, mean="images", forward="together", targets=targets
        ),
        averaging=Average(decay=0.995),
        weight_perturbation=radius,
    )
