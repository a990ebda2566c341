"""Training steps and searches on a CPU: on the engine, and just as the network is written, in one run.

    python benchmarks/cpu.py --out results/cpu-speed.json

On the engine, a network that stands still has its BatchNorms folded into its convolutions and its weights laid out
with channels last. Seconds are those of one core, the least of several rounds in which the two take turns.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import nn

from unperturbed.attacks import grid, pgd
from unperturbed.engine import Accelerated, Engine
from unperturbed.images import Images
from unperturbed.models import Architecture, DigitsCNN, ResNet, ResNet18, SmallCNN
from unperturbed.neighborhoods import Linf, Spatial
from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe
from unperturbed.runtime import provenance
from unperturbed.solvers import FGSM, PGD, WorstOfK
from unperturbed.trainer import Trainer

CPU = torch.device("cpu")
ENGINES = {"as written": Engine(), "engine": Engine(folded=True)}
Shape = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    out: Path = Path("results/cpu-speed.json")
    """file for the numbers"""
    rounds: int = 5
    """turns of each of the two"""


def training(
    model: Architecture, shape: Shape, objective: SRT, batch: int
) -> Callable[[Engine], Callable[[], object]]:
    """Steps of SRT."""

    def start(engine: Engine) -> Callable[[], object]:
        torch.manual_seed(0)
        x, y = torch.rand(600, *shape), torch.arange(600) % 10
        images = Images(labeled=x[:100], labels=y[:100], unlabeled=x[100:], validation=x[:0], validation_labels=y[:0])
        f = model(shape, 10)
        recipe = Recipe(objective=objective, steps=10_000, batch=batch)
        run = Trainer(f=f, images=images, recipe=recipe, device=CPU, engine=engine)
        return run.advance

    return start


def attacking(
    model: Architecture, shape: Shape, attack: Callable[..., object]
) -> Callable[[Engine], Callable[[], object]]:
    """Searches of an attack on a hundred images."""

    def start(engine: Engine) -> Callable[[], object]:
        torch.manual_seed(0)
        f: nn.Module = model(shape, 10).eval()
        x, rng = torch.rand(100, *shape), torch.Generator().manual_seed(0)
        y = f(x).argmax(1)
        seen = f if engine.plain else Accelerated(f, engine, x[:2], say=print)
        return lambda: attack(seen, x, y, rng)

    return start


def ascent(steps: int) -> SRT:
    """SRT with PGD of so many steps."""
    return SRT(solver=PGD(around=Linf(eps=0.15), steps=steps, step_size=0.03))


TURNS = Spatial(rotation=30, translation=1)
CASES = {
    "step, DigitsCNN, PGD-10, batch 128": training(DigitsCNN(), (1, 8, 8), ascent(10), 128),
    "step, DigitsCNN, worst of 10, batch 128": training(
        DigitsCNN(), (1, 8, 8), SRT(solver=WorstOfK(around=TURNS)), 128
    ),
    "step, SmallCNN, PGD-4, batch 64": training(SmallCNN(), (1, 28, 28), ascent(4), 64),
    "step, spatial ResNet, worst of 10, batch 32": training(
        ResNet(), (3, 32, 32), SRT(solver=WorstOfK(around=TURNS)), 32
    ),
    "step, ResNet-18, FGSM, batch 16": training(ResNet18(), (3, 32, 32), SRT(solver=FGSM()), 16),
    "PGD-20, DigitsCNN, 100 images": attacking(DigitsCNN(), (1, 8, 8), pgd(eps=0.01, steps=20)),
    "GridAdv of 75 points, DigitsCNN, 100 images": attacking(DigitsCNN(), (1, 8, 8), grid(TURNS, points=(3, 5, 5))),
    "PGD-5, spatial ResNet, 100 images": attacking(ResNet(), (3, 32, 32), pgd(eps=0.01, steps=5)),
}


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md."""
    lines = ["| | as written, ms | on the engine, ms | times faster |", "|---|---:|---:|---:|"]
    for row in result["rows"]:
        milliseconds = f"{1000 * row['as written']:.1f} | {1000 * row['engine']:.1f}"
        lines.append(f"| {row['case']} | {milliseconds} | {row['times faster']:.2f} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Measure, print and write JSON."""
    torch.set_num_threads(1)
    rows: list[dict[str, str | float]] = []
    for name, start in CASES.items():
        steps = {engine: start(kind) for engine, kind in ENGINES.items()}
        least = dict.fromkeys(steps, float("inf"))
        for step in steps.values():
            step()
        for _ in range(options.rounds):
            for engine, step in steps.items():
                begun = time.process_time()
                step()
                least[engine] = min(least[engine], time.process_time() - begun)
        rows.append({"case": name, **least, "times faster": least["as written"] / least["engine"]})
        print(
            f"{name}: {1000 * least['as written']:.1f} ms, on the engine {1000 * least['engine']:.1f} ms", flush=True
        )
    result = {"provenance": provenance(CPU), "rows": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
