"""Seconds for decision surfaces on a CPU: 101 x 101 points of the paper's MNIST network, and of the digits'.

    python benchmarks/surfaces.py --out results/surface-speed.json

Weights are fresh, which takes as long as trained ones. All on one core, the least of several rounds: seconds of its
work, and seconds by the clock, which are more where other processes want the core too.
"""

import json
import os
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
    rounds: int = 3
    """times each surface is computed"""


def measured(options: Options) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, (network, shape) in NETWORKS.items():
        torch.manual_seed(0)
        f, x = network(shape, 10), torch.rand(shape)
        for scenario in ("pixel", "spatial"):
            worked, passed = [], []
            for _ in range(options.rounds):
                work, clock = time.process_time(), time.perf_counter()
                surface(f, x, 3, scenario=scenario, points=options.points)
                worked.append(time.process_time() - work)
                passed.append(time.perf_counter() - clock)
            found = {"points": options.points**2, "worked": min(worked), "seconds": min(passed)}
            rows.append({"network": name, "scenario": scenario} | found)
            print(rows[-1])
    return rows


def markdown(report: dict[str, Any]) -> str:
    lines = ["| network | scenario | points | seconds of work | by the clock |", "|---|---|---:|---:|---:|"]
    rows = [
        f"| {row['network']} | {row['scenario']} | {row['points']:,} | {row['worked']:.1f} | {row['seconds']:.1f} |"
        for row in report["rows"]
    ]
    return "\n".join(lines + rows)


def main(options: Options) -> None:
    with threads(1):
        machine = provenance(torch.device("cpu")) | {"load average": round(os.getloadavg()[0], 1)}
        report = {"provenance": machine, "rows": measured(options)}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(markdown(report))


if __name__ == "__main__":
    main(tyro.cli(Options))
