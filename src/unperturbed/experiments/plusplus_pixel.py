"""Pixel-wise SRT++ on CIFAR-10 and the rival that has all of its parts."""

from dataclasses import replace
from typing import Literal, cast

from ..averaging import Average
from ..objectives import TRADES
from ..recipe import Recipe
from ..recipes import cifar10, named
from ..schedules import Piecewise
from .definition import Trial
from .ramped import first_learned
from .selected import chosen_on_validation
from .shortest import srt_with


def pixel_trials(attacks: tuple[str, ...]) -> tuple[Trial, ...]:
    """SRT as it is printed and as it learns, SRT++ in two lengths, and with some of its parts exchanged."""
    srt = Trial(recipe=named("cifar10-pixel-srt"), attacks=attacks)
    grown = first_learned(srt, "SRT, lambda that grows, one pass")
    plus = Trial(recipe=named("cifar10-pixel-srt-plusplus"), attacks=attacks, variant="-selected-three-steps")
    halved = replace(
        plus,
        recipe=in_half_the_steps(plus.recipe),
        variant=f"{plus.variant}-60",
        by_schedule=True,
        label=f"{plus.called}, 60 epochs",
    )
    longer_search = srt_with(plus.recipe, solver=cifar10.ASCENT, mean="terms", forward="separate")
    estimated = replace(
        plus,
        recipe=chosen_on_validation(
            replace(
                plus.recipe,
                objective=longer_search,
                averaging=Average(decay=0.99, batchnorm="estimated"),
            )
        ),
        variant="-selected-estimated",
        label="SRT++, ten steps of search, a mean for each term, statistics of clean images",
    )
    joined = replace(
        plus,
        recipe=chosen_on_validation(in_one_mean(plus.recipe, radius=0.005), cifar10.HELD_OUT),
        variant="-selected-one-mean-awp",
        label="SRT++, lambda 1, the model's statistics, adversarial weight perturbation",
    )
    return srt, grown, plus, halved, estimated, joined


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
        validation=replace(recipe.validation, every=steps // cifar10.LOOKS),
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
            recipe,
            solver=cifar10.THREE_STEPS,
            weight=1.0,
            mean="images",
            forward="together",
            targets=targets,
        ),
        averaging=Average(decay=0.995),
        weight_perturbation=radius,
    )
