"""Which mean the rate of 0.1 belongs to: spatial SRT on MNIST with a mean for each term of Eq. (9), with one over all
images, as in the authors' code, and with the first at the rate that the second amounts to.

    python benchmarks/means.py --data FOLDER --out results/means.json

SmallCNN, 10,000 labels and 50,000 unlabeled images, lambda 0.25, a constant rate, the first 600 steps in float32.
About a quarter of an hour for each run on one core.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import torch
import tyro
from first_steps import LOG_EVERY, MOMENTS, Options, train

from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe
from unperturbed.recipes import named
from unperturbed.schedules import Piecewise

RATE = 0.1
LABELED, IMAGES = 10_000, 60_000
SCALE = LABELED / (LABELED + IMAGES)
"""what one mean over the images of both terms multiplies the mean over labeled images by"""


def reading(mean: Literal["terms", "images"], rate: float) -> Recipe:
    """Spatial SRT at that rate, by that mean."""
    recipe = named("mnist-spatial-srt-lambda-0.25")
    return replace(
        recipe,
        objective=replace(cast(SRT, recipe.objective), mean=mean),
        steps=MOMENTS[-1],
        optimizer=replace(recipe.optimizer, rate=Piecewise(rate=rate, milestones=())),
        log_every=LOG_EVERY,
    )


READINGS = {
    "a mean for each term, rate 0.1": reading("terms", RATE),
    "one mean over all images, rate 0.1": reading("images", RATE),
    f"a mean for each term, rate 0.1 / {1 / SCALE:.0f}": reading("terms", RATE * SCALE),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    train(READINGS, tyro.cli(Options, default=Options(out=Path("results/means.json"))))
