"""What speed costs in accuracy: fast SRT on CIFAR-10 on the engine and run plainly, same recipe, same seed; and
what a teacher's labels bring.

    python benchmarks/quality.py --data FOLDER --out results/quality.json --models FOLDER --seeds 0 1 2

ResNet-18, 10,000 labels and 40,000 unlabeled images, 30 epochs; attacked by PGD-20 with steps of 0.003 in the Linf
ball of radius 0.031 on all 10,000 test images, in float32. The models are kept for benchmarks/attack_speed.py.
"""

import json
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import tyro
from card import GPU, require_gpu
from safetensors.torch import save_file

from unperturbed import recipe as recipes
from unperturbed.attacks import pgd
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.engine import Engine
from unperturbed.evaluation import evaluate
from unperturbed.images import parts
from unperturbed.models import ResNet18
from unperturbed.neighborhoods import Linf
from unperturbed.objectives import SRT
from unperturbed.recipe import SGD, Recipe, Teacher
from unperturbed.runtime import provenance
from unperturbed.schedules import Cyclic, Ramp
from unperturbed.solvers import FGSM
from unperturbed.training import trained_teacher, trainer_by

RECIPE = Recipe(
    name="cifar10-resnet18-fast-srt",
    data=Data(name="cifar10", labeled=10_000, crop=4, flip=True),
    model=ResNet18(),
    objective=SRT(solver=FGSM(around=Linf(eps=0.031))),
    steps=30 * 50_000 // 512,
    batch=512,
    optimizer=SGD(rate=Cyclic(peak=0.2)),
    ramp=Ramp(over=0.8),
    log_every=500,
)
TAUGHT = replace(
    RECIPE,
    name="cifar10-resnet18-fast-srt-taught",
    objective=replace(RECIPE.objective, weight=3.0),
    ramp=Ramp(),
    labeler="teacher",
    teacher=Teacher(steps=2000, optimizer=SGD(rate=Cyclic(peak=0.2))),
)
"""a teacher's labels are good from the first step on: no ramp, and more weight on the robust term"""
RUNS: dict[str, tuple[Recipe, Engine | None]] = {
    "engine, bfloat16": (RECIPE, None),
    "plain, TF32 convolutions": (RECIPE, Engine(precision="tf32")),
    "taught, engine, labels of a teacher": (TAUGHT, None),
}
"""no engine: what the device gets by itself"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which runs."""

    data: Path | None = None
    """folder with CIFAR-10"""
    out: Path = Path("results/quality.json")
    """file for the numbers; runs that it holds are kept"""
    models: Path | None = None
    """folder for the trained weights"""
    only: tuple[str, ...] = ()
    """words in the names of runs; all if none are given"""
    seeds: tuple[int, ...] = (0,)
    """of weights, split and batches; a run for each"""
    steps: int = RECIPE.steps
    """of training; fewer to try it out"""
    beside_others: bool = False
    """other work shares the GPU: accuracies are those of a run alone, times are not and are left out"""


def seeds_of(result: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each run, one for each seed."""
    return {name: [row for row in result["runs"] if row["run"] == name] for name in RUNS}


def shown(rows: list[dict[str, Any]], key: str) -> str:
    """The mean over seeds, with its standard error where there are several."""
    figures = [row[key] for row in rows]
    error = f" ± {stdev(figures) / len(figures) ** 0.5:.2f}" if len(figures) > 1 else ""
    return f"{mean(figures):.2f}{error}"


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md: means over seeds, times of runs that were alone."""
    lines = ["| run | seeds | clean | PGD-20 | images a second | seconds |", "|---|---:|---:|---:|---:|---:|"]
    for name, rows in seeds_of(result).items():
        if rows:
            timed = [row for row in rows if row["seconds"] is not None]
            pace = f"{mean(row['images_per_second'] for row in timed):,.0f}" if timed else "–"
            seconds = f"{mean(row['seconds'] for row in timed):.0f}" if timed else "–"
            accuracy = f"{shown(rows, 'clean')} | {shown(rows, 'pgd-20')}"
            lines.append(f"| {name} | {len(rows)} | {accuracy} | {pace} | {seconds} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Train, attack, print and write JSON."""
    require_gpu()
    dataset = load("cifar10", options.data)
    known = json.loads(options.out.read_text(encoding="utf-8"))["runs"] if options.out.exists() else []
    rows = {(row["run"], row["recipe"]["seed"]): row for row in known}
    chosen = [name for name in RUNS if not options.only or any(word in name for word in options.only)]
    for seed, name in product(options.seeds, chosen):
        recipe, engine = RUNS[name]
        started = time.perf_counter()
        recipe = replace(recipe, steps=options.steps, seed=seed, data=replace(recipe.data, seed=seed))
        run = trainer_by(recipe, dataset, parts(dataset, recipe.data), GPU, engine)
        if recipe.labeler == "teacher":
            with tempfile.TemporaryDirectory() as teachers:
                run.outer.teacher = trained_teacher(
                    recipe, dataset, Path(teachers), folder=options.data, device="cuda", watcher=None, stop=bool
                )
        speeds: list[float] = []
        run.run(write_log=lambda record, speeds=speeds: speeds.append(record["images_per_second"]))
        seconds = time.perf_counter() - started
        attack = {"pgd-20": pgd(eps=0.031, steps=20, step_size=0.003)}
        report = evaluate(run.f, dataset.test_images, dataset.test_labels, attack, device="cuda", precision="float32")
        rows[name, seed] = {
            "run": name,
            "clean": 100 * report.accuracy(),
            "pgd-20": 100 * report.accuracy("pgd-20"),
            "seconds": None if options.beside_others else seconds,
            "images_per_second": None if options.beside_others else max(speeds),
            "said": run.remarks,
            "recipe": recipes.plain(recipe),
            "provenance": provenance(GPU),
        }
        print(seed, {key: rows[name, seed][key] for key in ("run", "clean", "pgd-20", "seconds")}, flush=True)
        options.out.write_text(json.dumps({"runs": list(rows.values())}, indent=1) + "\n", encoding="utf-8")
        if options.models is not None and seed == options.seeds[0]:
            weights = {key: value.cpu().contiguous() for key, value in run.f.state_dict().items()}
            save_file(weights, options.models / f"{name.split(',')[0]}.safetensors")


if __name__ == "__main__":
    main(tyro.cli(Options))
