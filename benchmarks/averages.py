"""How well a model and its moving average label while they are trained, by whose BatchNorm statistics.

    python benchmarks/averages.py --data FOLDER --out results/averages.json

A ResNet with one unit a group, standard training on 10,000 labels of CIFAR-10 with a cyclic rate; accuracy on 2,000
test images, all four of the same run at the same moments. Minutes on one core.
"""

import json
import time
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor, nn

from unperturbed import recipe as recipes
from unperturbed.averaging import Average, estimate_batchnorm
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.images import parts
from unperturbed.inputs import as_float
from unperturbed.models import ResNet
from unperturbed.objectives import Standard
from unperturbed.recipe import SGD, Recipe
from unperturbed.runtime import provenance
from unperturbed.schedules import Cyclic
from unperturbed.training import trainer_by

CPU = torch.device("cpu")
RECIPE = Recipe(
    name="cifar10-small-resnet-standard",
    data=Data(name="cifar10", labeled=10_000, unlabeled=0, crop=4, flip=True),
    model=ResNet(units=1),
    objective=Standard(),
    steps=800,
    batch=128,
    optimizer=SGD(rate=Cyclic(peak=0.2)),
    averaging=Average(decay=0.99),
)
MOMENTS = (100, 200, 320, 500, 700, 800)
"""steps at which the models are looked at; the rate is highest at 320"""
TEST, SAMPLE, AT_ONCE = 2000, 2048, 256
"""images: for accuracy, for statistics, and at once"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    data: Path | None = None
    """folder with CIFAR-10"""
    out: Path = Path("results/averages.json")
    """file for the numbers"""


@torch.no_grad()
def accuracy(f: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Percent of the images that f classifies correctly."""
    predicted = torch.cat([f(part).argmax(1) for part in images.split(AT_ONCE)])
    return 100 * (predicted == labels).float().mean().item()


def with_fresh_statistics(f: nn.Module, images: Tensor) -> nn.Module:
    """A copy of f whose BatchNorms know these images."""
    copy = deepcopy(f).eval()
    estimate_batchnorm(copy, list(images.split(AT_ONCE)))
    return copy


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/defenses.md."""
    names = list(result["rows"][0]["accuracy"])
    lines = [f"| step | {' | '.join(names)} |", "|---:|" + "---:|" * len(names)]
    for row in result["rows"]:
        figures = " | ".join(f"{row['accuracy'][name]:.1f}" for name in names)
        lines.append(f"| {row['step']} | {figures} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Train, look, print and write JSON."""
    dataset = load("cifar10", options.data)
    run = trainer_by(RECIPE, dataset, parts(dataset, RECIPE.data), CPU)
    images, labels = as_float(dataset.test_images[:TEST]), dataset.test_labels[:TEST]
    sample = as_float(run.images.some(SAMPLE, torch.Generator().manual_seed(0)))
    started, rows = time.perf_counter(), list[dict[str, Any]]()
    for moment in MOMENTS:
        while run.step < moment:
            run.advance()
        assert run.average is not None
        f, average = deepcopy(run.f).eval(), run.average.module
        models = {
            "model": f,
            "model, fresh statistics": with_fresh_statistics(f, sample),
            "average, the model's statistics": average,
            "average, fresh statistics": with_fresh_statistics(average, sample),
        }
        found = {name: accuracy(each, images, labels) for name, each in models.items()}
        rows.append({"step": moment, "accuracy": found})
        print(rows[-1], flush=True)
    result = {
        "recipe": recipes.plain(RECIPE),
        "rows": rows,
        "seconds": time.perf_counter() - started,
        "provenance": provenance(CPU),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
