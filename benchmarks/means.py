"""Which mean the rate of 0.1 belongs to: spatial SRT on MNIST with a mean for each term of Eq. (9), with one over all
images, as in the authors' code, and with the first at the rate that the second amounts to.

    python benchmarks/means.py --data FOLDER --out results/means.json

SmallCNN, 10,000 labels and 50,000 unlabeled images, lambda 0.25, a constant rate, the first 600 steps in float32.
About a quarter of an hour for each run on one core.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
import tyro

from unperturbed import recipe as recipes
from unperturbed.datasets import load
from unperturbed.images import parts
from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe
from unperturbed.recipes import named
from unperturbed.runtime import pick_device, provenance
from unperturbed.schedules import Piecewise
from unperturbed.training import trainer_by

RATE = 0.1
LABELED, IMAGES = 10_000, 60_000
SCALE = LABELED / (LABELED + IMAGES)
"""what one mean over the images of both terms multiplies the mean over labeled images by"""
MOMENTS = (100, 200, 300, 400, 500, 600)
"""steps at which runs are looked at, each over the 25 steps before"""


def reading(mean: Literal["terms", "images"], rate: float) -> Recipe:
    """Spatial SRT at that rate, by that mean."""
    recipe = named("mnist-spatial-srt-lambda-0.25")
    return replace(
        recipe,
        objective=replace(cast(SRT, recipe.objective), mean=mean),
        steps=MOMENTS[-1],
        optimizer=replace(recipe.optimizer, rate=Piecewise(rate=rate, milestones=())),
        log_every=25,
    )


READINGS = {
    "a mean for each term, rate 0.1": reading("terms", RATE),
    "one mean over all images, rate 0.1": reading("images", RATE),
    f"a mean for each term, rate 0.1 / {1 / SCALE:.0f}": reading("terms", RATE * SCALE),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    data: Path | None = None
    """folder with MNIST"""
    out: Path = Path("results/means.json")
    """file for the numbers; runs that it holds are kept"""
    only: tuple[str, ...] = tuple(READINGS)
    """names of runs"""
    device: str = "cpu"
    """on which they are trained"""


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/fidelity.md: accuracy of C(x) on labeled images, and the largest share of a class in it."""
    heading = " | ".join(f"step {moment}" for moment in MOMENTS)
    lines = [f"| run | {heading} |", f"|---|{'---:|' * len(MOMENTS)}"]
    for name in READINGS:
        log = {record["step"]: record for record in result["runs"][name]["log"]}
        cells = [
            f"{log[step]['labeled_accuracy']:.0%} ({log[step]['largest_class_share']:.0%})" if step in log else "–"
            for step in MOMENTS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Train, and write JSON after every run."""
    dataset, device = load("mnist", options.data), pick_device(options.device)
    runs: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8"))["runs"] if options.out.exists() else {}
    for name in options.only:
        recipe, log = READINGS[name], []
        run = trainer_by(recipe, dataset, parts(dataset, recipe.data), device, None)
        run.run(write_log=lambda record, log=log: log.append(dict(record)))
        seconds = sum(record["seconds"] for record in log)
        runs[name] = {
            "recipe": recipes.plain(recipe),
            "provenance": provenance(device),
            "seconds": seconds,
            "log": log,
        }
        options.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {log[-1]['labeled_accuracy']:.0%} right, {seconds:.0f} s", flush=True)
    if set(runs) == set(READINGS):
        print(markdown({"runs": runs}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(tyro.cli(Options))
