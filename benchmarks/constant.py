"""Whether C(x) becomes one class for all images: pixel-wise SRT on CIFAR-10 from its first step on.

    python benchmarks/constant.py --data FOLDER --out results/constant.json

WRN-10-1 in place of WRN-34-10 and five steps of search, else the recipe of Table 4: the rate of 0.05, lambda 1 from
the first step on. Beside it a smaller lambda, one that grows, clean and perturbed images in one pass, and clean ones
in two, as in the authors' code. The first 600 steps in float32, a quarter of an hour for each run on one core.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import tyro
from first_steps import LOG_EVERY, MOMENTS, Options, train

from unperturbed.models import WideResNet
from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe
from unperturbed.recipes import named
from unperturbed.schedules import Piecewise, Ramp
from unperturbed.solvers import PGD


def reading(*, ramp: float = 0.0, **changes: Any) -> Recipe:
    """SRT of Table 4 on a small network, with some things changed."""
    recipe = named("cifar10-pixel-srt")
    objective = cast(SRT, recipe.objective)
    search = replace(cast(PGD, objective.solver), steps=5, step_size=0.014)
    return replace(
        recipe,
        model=WideResNet(depth=10, width=1),
        objective=replace(objective, solver=search, **changes),
        steps=MOMENTS[-1],
        ramp=Ramp(over=ramp),
        optimizer=replace(recipe.optimizer, rate=Piecewise(rate=0.05, milestones=())),
        log_every=LOG_EVERY,
    )


READINGS = {
    "lambda 1": reading(),
    "lambda 1, clean and perturbed images in one pass": reading(forward="together"),
    "lambda 1, clean images once more in a pass of their own": reading(forward="clean-again"),
    "lambda 0.2": reading(weight=0.2),
    "lambda that grows to 1 over 300 steps": reading(ramp=0.5),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    train(READINGS, tyro.cli(Options, default=Options(out=Path("results/constant.json"))))
