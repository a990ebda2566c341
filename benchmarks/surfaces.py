"""Seconds for decision surfaces on a CPU: 101 x 101 points of the paper's MNIST network, and of the digits'.

    python benchmarks/surfaces.py --out results/surface-speed.json

Weights are fresh, which takes as long as trained ones. Seconds are those of one core, the least of several rounds.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from unperturbed.models import DigitsCNN, SmallCNN
from unperturbed.runtime import provenance, threads
from unperturbed.surfaces import surface

NETWORKS = {
    "DigitsCNN, 8 x 8": (DigitsCNN(), (1, 8, 8)),
    "SmallCNN, 28 x 28": (SmallCNN(), (1, 28, 28)),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    out: Path = Path("results/surface-speed.json")
    """file for the numbers"""
    points: int = 101
    """points along each axis"""
    rounds: int = 8
    """times each surface is computed"""


def measured(options: Options) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, (network, shape) in NETWORKS.items():
        torch.manual_seed(0)
        f, x = network(shape, 10), torch.rand(shape)
        for scenario in ("pixel", "spatial"):
            seconds = []
            for _ in range(options.rounds):
                started = time.perf_counter()
                surface(f, x, 3, scenario=scenario, points=options.points)
                seconds.append(time.perf_counter() - started)
            rows.append({"network": name, "scenario": scenario, "points": options.points**2, "seconds": min(seconds)})
            print(rows[-1])
    return rows


def markdown(report: dict[str, Any]) -> str:
    lines = ["| network | scenario | points | seconds |", "|---|---|---:|---:|"]
    rows = [
        f"| {row['network']} | {row['scenario']} | {row['points']:,} | {row['seconds']:.1f} |"
        for row in report["rows"]
    ]
    return "\n".join(lines + rows)


def main(options: Options) -> None:
    with threads(1):
        report = {"provenance": provenance(torch.device("cpu")), "rows": measured(options)}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(markdown(report))


if __name__ == "__main__":
    main(tyro.cli(Options))
