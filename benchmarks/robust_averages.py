"""How a moving average of the weights stands under attack while it is trained, by whose BatchNorm statistics.

    python benchmarks/robust_averages.py --data FOLDER --out results/robust-averages.json

The small ResNet of averages.py, adversarial training on all labels of CIFAR-10 in three steps of search with a cyclic
rate; accuracy under PGD on 500 test images, all of the same run at the same moments. Twenty minutes on one core.
"""

import json
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import averages
import torch
import tyro
from torch import nn

from unperturbed import recipe as recipes
from unperturbed.attacks import pgd
from unperturbed.averaging import Average, AveragedModel, freshly_estimated
from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.images import for_statistics, parts
from unperturbed.objectives import AT
from unperturbed.recipes.cifar10 import BUDGET, THREE_STEPS
from unperturbed.runtime import provenance
from unperturbed.training import trainer_by

RECIPE = replace(
    averages.RECIPE,
    name="cifar10-small-resnet-at",
    data=replace(averages.RECIPE.data, labeled=50_000),
    objective=AT(solver=THREE_STEPS),
    steps=1600,
    averaging=Average(),
)
DECAYS = (0.99, 0.995)
MOMENTS = (400, 800, 1200, 1440, 1600)
"""steps at which the models are looked at; the rate is highest at 640"""
TEST = 500
ATTACK = pgd(eps=BUDGET.eps, steps=BUDGET.steps, step_size=BUDGET.step_size)


def main(options: averages.Options) -> None:
    """Train, look, print and write JSON."""
    dataset = load("cifar10", options.data)
    run = trainer_by(RECIPE, dataset, parts(dataset, RECIPE.data), averages.CPU)
    images, labels = dataset.test_images[:TEST], dataset.test_labels[:TEST]
    kept = {
        (decay, how): AveragedModel(run.f, decay, batchnorm=how) for decay in DECAYS for how in ("copied", "averaged")
    }
    started, rows = time.perf_counter(), list[dict[str, Any]]()
    for moment in MOMENTS:
        while run.step < moment:
            run.advance()
            for average in kept.values():
                average.update(run.f, torch.tensor(average.share(run.step - 1)))
        models: dict[str, nn.Module] = {"model": deepcopy(run.f).eval()}
        for decay in DECAYS:
            copied, averaged = (kept[decay, how].module for how in ("copied", "averaged"))
            models |= {
                f"average of {decay}, the model's statistics": copied,
                f"{decay}, averaged ones": averaged,
                f"{decay}, those of clean images": freshly_estimated(copied, for_statistics(run.images, RECIPE.seed)),
            }
        reports = {name: evaluate(each, images, labels, {"pgd": ATTACK}) for name, each in models.items()}
        rows.append(
            {
                "step": moment,
                "accuracy": {name: 100 * report.accuracy("pgd") for name, report in reports.items()},
                "clean": {name: 100 * report.accuracy() for name, report in reports.items()},
            }
        )
        print(rows[-1], flush=True)
    result = {
        "recipe": recipes.plain(RECIPE),
        "rows": rows,
        "seconds": time.perf_counter() - started,
        "provenance": provenance(averages.CPU),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(averages.markdown(result))


if __name__ == "__main__":
    main(tyro.cli(averages.Options, default=averages.Options(out=Path("results/robust-averages.json"))))
