"""One forward pass or two: SRT under warps on the embedded digits, clean and perturbed images in one pass, whose
statistics BatchNorm takes from both, and in a pass for each.

    python benchmarks/passes.py --out results/passes.json
"""

import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import torch
import tyro
from digits import over_seeds
from measured_by import spelled_out

from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.objectives import SRT
from unperturbed.recipes import named, usual_budget
from unperturbed.recipes.budgets import chosen
from unperturbed.training import train

Forward = Literal["separate", "together"]
PASSES: dict[Forward, str] = {"separate": "two", "together": "one"}
RECIPES = (
    "digits-spatial-rt",
    "digits-spatial-srt",
    "digits-spatial-srt-fast",
    "digits-spatial-srt-plusplus",
    "digits-compound-srt",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How often, and how many at a time."""

    out: Path = Path("results/passes.json")
    """file for the numbers"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """of split, weights, batches and attacks"""
    workers: int = 2
    """runs side by side, each on one core"""


def measure(job: tuple[str, Forward, int]) -> dict[str, Any]:
    """Train and attack one run."""
    name, forward, seed = job
    torch.set_num_threads(1)
    recipe = named(name)
    objective = replace(cast(SRT, recipe.objective), forward=forward)
    recipe = replace(recipe, seed=seed, data=replace(recipe.data, seed=seed), objective=objective)
    digits, started = load("digits"), time.perf_counter()
    with TemporaryDirectory() as folder:
        model = train(recipe, Path(folder) / "run", device="cpu")
    seconds = time.perf_counter() - started
    attacks = dict(chosen(usual_budget("digits").attacks(), "gridadv"))
    report = evaluate(model, digits.test_images, digits.test_labels, attacks, seed=seed, device="cpu")
    return {
        "recipe": name,
        "forward": forward,
        "seed": seed,
        "clean": 100 * report.accuracy(),
        "gridadv": 100 * report.accuracy("gridadv"),
        "seconds": seconds,
        "provenance": report.provenance,
    }


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/defenses.md: mean and standard deviation over the seeds."""
    lines = ["| recipe | passes | clean | gridadv |", "|---|---|---:|---:|"]
    for name, forward in product(RECIPES, PASSES):
        own = [row for row in result["rows"] if (row["recipe"], row["forward"]) == (name, forward)]
        cells = ([row[column] for row in own] for column in ("clean", "gridadv"))
        text = " | ".join(map(over_seeds, cells))
        lines.append(f"| `{name}` | {PASSES[forward]} | {text} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Train, attack, print and write JSON."""
    jobs = list(product(RECIPES, PASSES, options.seeds))
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(measure, jobs))
    result = {"rows": rows, "recipes": spelled_out(RECIPES)}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))


if __name__ == "__main__":
    main(tyro.cli(Options))
