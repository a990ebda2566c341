"""What becomes of C(x) in the first steps of several runs of SRT, for benchmarks that compare their settings."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unperturbed import recipe as recipes
from unperturbed.datasets import load
from unperturbed.images import parts
from unperturbed.recipe import Recipe
from unperturbed.runtime import pick_device, provenance
from unperturbed.training import trainer_by

MOMENTS = (100, 200, 300, 400, 500, 600)
"""steps at which runs are looked at, each over the steps since the last record"""
LOG_EVERY = 25
"""steps"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    out: Path
    """file for the numbers; runs that it holds are kept"""
    data: Path | None = None
    """folder with the data set"""
    only: tuple[str, ...] = ()
    """names of runs; none: all"""
    device: str = "cpu"
    """on which they are trained"""


def markdown(result: dict[str, Any], readings: Mapping[str, Recipe]) -> str:
    """The table of docs/fidelity.md: accuracy of C(x) on labeled images, and the largest share of a class in it."""
    heading = " | ".join(f"step {moment}" for moment in MOMENTS)
    lines = [f"| run | {heading} |", f"|---|{'---:|' * len(MOMENTS)}"]
    for name in readings:
        log = {record["step"]: record for record in result["runs"][name]["log"]}
        cells = [f"{log[at]['labeled_accuracy']:.0%} ({log[at]['largest_class_share']:.0%})" for at in MOMENTS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def train(readings: Mapping[str, Recipe], options: Options) -> None:
    """Train those that are missing, and write JSON after every run."""
    if unknown := set(options.only) - set(readings):
        sys.exit(f"there is no run {min(unknown)!r} here: name some of {', '.join(map(repr, readings))}")
    device = pick_device(options.device)
    runs: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8"))["runs"] if options.out.exists() else {}
    for name in (each for each in options.only or readings if each not in runs):
        recipe, log = readings[name], list[dict[str, float]]()
        dataset = load(recipe.data.name, options.data)
        run = trainer_by(recipe, dataset, parts(dataset, recipe.data), device)
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
    if set(runs) == set(readings):
        print(markdown({"runs": runs}, readings))
