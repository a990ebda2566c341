"""Which teacher labels best: networks trained on 10,000 labels of CIFAR-10, alone or with 40,000 images without.

    python benchmarks/teachers.py --data FOLDER --out results/teachers.json

ResNet-18 in batches of 512. Of the labels 1,000 are held out: by the accuracy on these a teacher is to be chosen. How
many unlabeled images it labels right, which only somebody who knows their labels can say, is what it is chosen for.
"""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from unperturbed import recipe as recipes
from unperturbed.data import Data, split
from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.images import parts
from unperturbed.models import ResNet18
from unperturbed.neighborhoods import Composed, Neighborhood
from unperturbed.objectives import SRT
from unperturbed.recipe import SGD, Recipe, Teacher, Validation, of_teacher
from unperturbed.recipes.cifar10 import COLORS, CONSISTENT, WARPS
from unperturbed.recipes.methods import epochs
from unperturbed.runtime import pick_device, provenance
from unperturbed.schedules import Cyclic
from unperturbed.solvers import WorstOfK
from unperturbed.training import trainer_by

HELD_OUT = 1000
BATCH = 512
ALONE = Teacher(steps=2000, optimizer=SGD(rate=Cyclic(peak=0.2)))


def consistent(around: Neighborhood, count: float, *, k: int = 1, weight: float = 1.0) -> Teacher:
    """A teacher by so many epochs of SRT around all images, the paper's own idea; its average labels for it."""
    objective = SRT(solver=WorstOfK(around=around, k=k), weight=weight)
    return replace(CONSISTENT, objective=objective, steps=epochs(count, images=50_000, batch=BATCH))


BOTH = Composed(parts=(WARPS, COLORS))
TEACHERS = {
    "labels alone": ALONE,
    "labels alone, three times as long": replace(ALONE, steps=6000),
    "SRT over warps, 30 epochs": consistent(WARPS, 30),
    "SRT over colors, 30 epochs": consistent(COLORS, 30),
    "SRT over warps, then colors, 30 epochs": consistent(BOTH, 30),
    "the same, worst of three draws": consistent(BOTH, 30, k=3),
    "the same, lambda 2": consistent(BOTH, 30, weight=2.0),
    "SRT over warps, then colors, 90 epochs": consistent(BOTH, 90),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which teachers."""

    data: Path | None = None
    """folder with CIFAR-10"""
    out: Path = Path("results/teachers.json")
    """file for the numbers; teachers that it holds are kept"""
    only: tuple[str, ...] = ()
    """words in the names of teachers; all if none are given"""
    steps: int | None = None
    """of training; fewer to try it out"""


def markdown(result: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = ["| teacher | held-out images | unlabeled images | test images | seconds |", "|---|---:|---:|---:|---:|"]
    for row in result["teachers"]:
        right = " | ".join(f"{row[part]:.2f}" for part in ("held out", "unlabeled", "test"))
        lines.append(f"| {row['teacher']} | {right} | {row['seconds']:.0f} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Train, measure, print and write JSON."""
    device = pick_device()
    dataset = load("cifar10", options.data)
    data = Data(name="cifar10", labeled=10_000, validation=HELD_OUT, crop=4, flip=True)
    rows = split(dataset.train_labels, data, len(dataset.classes))
    known = json.loads(options.out.read_text(encoding="utf-8"))["teachers"] if options.out.exists() else []
    found = {row["teacher"]: row for row in known}
    for name, teacher in TEACHERS.items():
        if name in found or (options.only and not any(word in name for word in options.only)):
            continue
        student = Recipe(data=data, model=ResNet18(), batch=BATCH, teacher=teacher)
        recipe = of_teacher(replace(student, teacher=replace(teacher, steps=options.steps or teacher.steps)))
        recipe = replace(recipe, validation=Validation(every=recipe.steps, keep="last"), log_every=500)
        started = time.perf_counter()
        run = trainer_by(recipe, dataset, parts(dataset, recipe.data), device)
        run.run()
        seconds = time.perf_counter() - started
        measured = {
            "held out": (dataset.train_images[rows.validation], dataset.train_labels[rows.validation]),
            "unlabeled": (dataset.train_images[rows.unlabeled], dataset.train_labels[rows.unlabeled]),
            "test": (dataset.test_images, dataset.test_labels),
        }
        found[name] = {
            "teacher": name,
            **{
                part: 100 * evaluate(run.f, *its, {}, precision="float32").accuracy()
                for part, its in measured.items()
            },
            "seconds": seconds,
            "said": run.remarks,
            "recipe": recipes.plain(recipe),
            "provenance": provenance(device),
        }
        print(markdown({"teachers": [found[name]]}).splitlines()[-1], flush=True)
        options.out.write_text(json.dumps({"teachers": list(found.values())}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
