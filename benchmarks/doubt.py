"""What quick attacks on WRN-34-10 cost, as they are and as they were before two changes around a search, in one run.

    python benchmarks/doubt.py --run DIR --data FOLDER --out results/doubt.json

DIR is a run of WRN-34-10 with its weights, as `unperturbed reproduce table-9 --scale paper --network own` leaves it.
"""

import json
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import tyro
from card import GPU, require_gpu
from torch import Tensor, nn

from unperturbed import defender
from unperturbed.attacks import Attack, cw_linf, fgsm, pgd
from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.runs import RunDirectory
from unperturbed.runtime import provenance
from unperturbed.training import fresh_model

EPS, BATCH = 0.031, 125
ATTACKS: Mapping[str, Attack] = {
    "FGSM": fgsm(eps=EPS),
    "PGD-10": pgd(eps=EPS, steps=10, step_size=0.007),
    "margin PGD-30": cw_linf(eps=EPS),
}


def leave(*_: object) -> None:
    """Lay nothing out otherwise."""


WAYS: Mapping[str, dict[str, Any]] = {
    "images in doubt filled up to 32, judged with channels last": {"SMALLEST": 32, "lay_out": leave},
    "images in doubt filled up to 8, judged with channels last": {"lay_out": leave},
    "as it is": {},
}
"""names of the defender that are changed, and to what"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is attacked, and where the numbers go."""

    run: Path = Path("reproduced/paper/cifar10-pixel-srt-fast-seed-0")
    """directory of a run with its weights"""
    data: Path | None = None
    """folder with CIFAR-10"""
    images: int = 1000
    """first test images that are attacked"""
    out: Path = Path("results/doubt.json")
    """file for the numbers"""


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md."""
    lines = ["| attack | way | standing, % | seconds |", "|---|---|---:|---:|"]
    for name, ways in result["rows"].items():
        lines += [f"| {name} | {way} | {row['accuracy']:.2f} | {row['seconds']:.1f} |" for way, row in ways.items()]
    return "\n".join(lines)


def attacked(f: nn.Module, x: Tensor, y: Tensor, attack: Attack, changes: dict[str, Any]) -> dict[str, float]:
    """What an attack leaves standing, and its seconds, with these changes to the defender."""
    with mock.patch.multiple(defender, **changes) if changes else nullcontext():
        started = time.perf_counter()
        report = evaluate(f, x, y, {"attack": attack}, batch=BATCH, device="cuda")
    return {"seconds": time.perf_counter() - started, "accuracy": 100 * report.accuracy("attack")}


def main(options: Options) -> None:
    """Measure, print and write JSON."""
    require_gpu()
    directory = RunDirectory(options.run)
    recipe, dataset = directory.read_recipe(), load("cifar10", options.data)
    f = fresh_model(recipe, dataset)
    directory.read_weights(f)
    x, y = dataset.test_images[: options.images], dataset.test_labels[: options.images]
    evaluate(f, x[:BATCH], y[:BATCH], {"FGSM": ATTACKS["FGSM"]}, batch=BATCH, device="cuda")  # Libraries warm up.
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name, attack in ATTACKS.items():
        rows[name] = {way: attacked(f, x, y, attack, changes) for way, changes in WAYS.items()}
        print(name, json.dumps(rows[name]), flush=True)
    result = {"provenance": provenance(GPU), "recipe": recipe.name, "images": len(x), "rows": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(markdown(result))


if __name__ == "__main__":
    main(tyro.cli(Options))
