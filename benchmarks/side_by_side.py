"""Runs side by side on a GPU: how much more they make together than one after the other would.

    python benchmarks/side_by_side.py --out results/side-by-side.json

Each run is a case of benchmarks/training.py, with a line of its log every 50 steps as in a training. What a group
makes is the sum over its runs of their images a second, each over that of the same run alone: 1 where nothing is
gained.
"""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro
from card import GPU, require_gpu
from training import CASES, Case, started

from unperturbed.runtime import provenance
from unperturbed.trainer import Trainer
from unperturbed.turns import run_together

SMALL, SPATIAL, LARGE, _ = CASES
GROUPS = {
    "four SmallCNN": (SMALL,) * 4,
    "four spatial ResNets": (SPATIAL,) * 4,
    "two SmallCNN and two spatial ResNets": (SMALL, SMALL, SPATIAL, SPATIAL),
    "two ResNet-18": (LARGE,) * 2,
    "ResNet-18 and three spatial ResNets": (LARGE, SPATIAL, SPATIAL, SPATIAL),
}
LOG_EVERY = 50


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    out: Path = Path("results/side-by-side.json")
    """file for the numbers"""
    seconds: float = 6.0
    """of steps of each group"""


def warmed_up(case: Case) -> Trainer:
    """A run that replays its steps."""
    run, _, _ = started(case)
    run.recipe = replace(run.recipe, log_every=LOG_EVERY)
    return run


def images_a_second(runs: list[Trainer], seconds: float, device: torch.device = GPU) -> list[float]:
    """Of each of these runs side by side."""
    before, begun = [run.step for run in runs], time.perf_counter()
    run_together([run.steps_to_take() for run in runs], device, lambda: time.perf_counter() - begun >= seconds)
    took = time.perf_counter() - begun
    return [(run.step - step) * run.recipe.batch / took for run, step in zip(runs, before, strict=True)]


def gain(together: list[float], alone: list[float]) -> float:
    """What runs make together, as a multiple of what one after the other would."""
    return sum(one / other for one, other in zip(together, alone, strict=True))


def markdown(result: dict[str, Any]) -> str:
    """A line for each group."""
    lines = ["| side by side | images a second of each | alone | together they make |", "|---|---|---|---:|"]
    for name, group in result["groups"].items():
        numbers = (", ".join(f"{pace:,.0f}" for pace in group[which]) for which in ("together", "alone"))
        lines.append(f"| {name} | {' | '.join(numbers)} | {group['gain']:.2f} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Measure, print and write JSON after each group."""
    require_gpu()
    alone = {name: images_a_second([warmed_up(CASES[name])], options.seconds)[0] for name in (SMALL, SPATIAL, LARGE)}
    result: dict[str, Any] = {"provenance": provenance(GPU), "seconds": options.seconds, "groups": {}}
    for name, members in GROUPS.items():
        together = images_a_second([warmed_up(CASES[member]) for member in members], options.seconds)
        by_themselves = [alone[member] for member in members]
        figures = {"together": together, "alone": by_themselves, "gain": gain(together, by_themselves)}
        result["groups"][name] = figures
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))


if __name__ == "__main__":
    main(tyro.cli(Options))
