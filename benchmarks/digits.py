"""Every defense on the embedded digits, over several seeds: accuracy under single and compound attacks, and seconds.

python benchmarks/digits.py --out results/digits.json --seeds 0 1 2 --workers 2
python benchmarks/digits.py --out results/digits-own-statistics.json --only spatial-srt-plusplus --batchnorm own
python benchmarks/digits.py --only pixel-srt-plusplus --batchnorm estimated --out results/digits-clean-statistics.json
"""

import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import torch
import tyro
from measured_by import spelled_out

from unperturbed.averaging import Statistics
from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.recipes import RECIPES, usual_budget
from unperturbed.recipes.budgets import chosen
from unperturbed.training import train

ATTACKS = ("pgd", "cw", "gridadv", "pgd+", "gridadv+")
HALVED = ("pgd+", "gridadv+")
"""attacks that are also tried at half their size"""
COLUMNS = ("clean", *ATTACKS, *(f"{name} half" for name in HALVED), "seconds")


@dataclass(frozen=True)
class Options:
    """All digits recipes, or those whose names contain one of the given words."""

    out: Path = Path("results/digits.json")
    """file for the numbers"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """of split, weights, batches and attacks"""
    only: tuple[str, ...] = ()
    """words in the names of recipes"""
    workers: int = 2
    """runs side by side, each on one core"""
    batchnorm: Statistics | None = None
    """statistics of averaged weights, where not those of the recipe"""


def measure(job: tuple[str, int, Statistics | None]) -> dict[str, object]:
    name, seed, batchnorm = job
    torch.set_num_threads(1)
    recipe = RECIPES[name]
    averaging = replace(recipe.averaging, batchnorm=batchnorm or recipe.averaging.batchnorm)
    recipe = replace(recipe, seed=seed, data=replace(recipe.data, seed=seed), averaging=averaging)
    digits = load("digits")
    started = time.perf_counter()
    with TemporaryDirectory() as folder:
        model = train(recipe, Path(folder) / "run", device="cpu")
    seconds = time.perf_counter() - started
    budget = usual_budget("digits")
    attacks = dict(chosen(budget.attacks(), ",".join(ATTACKS)))
    halved = chosen(replace(budget, fraction=0.5).attacks(), ",".join(HALVED))
    attacks |= {f"{name} half": attack for name, attack in halved.items()}
    report = evaluate(model, digits.test_images, digits.test_labels, attacks, seed=seed, device="cpu")
    accuracy = {"clean": report.accuracy()} | {attack: report.accuracy(attack) for attack in attacks}
    percent = {key: round(100 * value, 2) for key, value in accuracy.items()}
    return {"recipe": name, "seed": seed, "seconds": round(seconds, 1), **percent, "provenance": report.provenance}


def markdown(result: dict[str, Any]) -> str:
    """A line for each recipe: mean and standard deviation over the seeds."""
    rows: list[dict[str, object]] = result["rows"]
    lines = ["| recipe | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    for name in dict.fromkeys(str(row["recipe"]) for row in rows):
        own = [row for row in rows if row["recipe"] == name]
        cells = [[float(str(row[column])) for row in own] for column in COLUMNS]
        lines.append(f"| `{name}` | " + " | ".join(map(over_seeds, cells)) + " |")
    return "\n".join(lines)


def over_seeds(figures: list[float]) -> str:
    """The mean, and the standard deviation as these seeds let it be estimated; one alone tells none."""
    spread = f" ± {stdev(figures):.1f}" if len(figures) > 1 else ""
    return f"{mean(figures):.1f}{spread}"


def measured(only: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The digits recipes, or those whose names contain one of these words."""
    names = (name for name in RECIPES if name.startswith("digits-"))
    return tuple(name for name in names if not only or any(word in name for word in only))


def main(options: Options) -> None:
    names = measured(options.only)
    jobs = list(product(names, options.seeds, [options.batchnorm]))
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(measure, jobs))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"rows": rows, "recipes": spelled_out(names)}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))


if __name__ == "__main__":
    main(tyro.cli(Options))
