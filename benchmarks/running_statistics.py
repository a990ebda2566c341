"""What a network answers by the statistics of BatchNorm that its training left, and by those of clean images.

    python benchmarks/running_statistics.py --runs RUN... --data FOLDER --out results/running-statistics.json

An objective that takes a pass for each term leaves running statistics of both kinds of images, by which C(x) and
every answer after the training is given. Those of clean images are estimated on some of the run's own training
images. A run that has not ended is taken at its checkpoint. Ten minutes for each run of ResNet-18 on one core.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from unperturbed import evaluate, recipe
from unperturbed.attacks import pgd
from unperturbed.averaging import freshly_estimated
from unperturbed.datasets import load
from unperturbed.images import for_statistics, parts
from unperturbed.recipes.cifar10 import BUDGET
from unperturbed.runs import RunDirectory
from unperturbed.runtime import pick_device, provenance
from unperturbed.training import fresh_model

KEPT, CLEAN = "as the training left them", "of clean images"
ATTACK = pgd(eps=BUDGET.eps, steps=BUDGET.steps, step_size=BUDGET.step_size)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    runs: tuple[Path, ...]
    """folders of runs on CIFAR-10"""
    data: Path | None = None
    """folder with CIFAR-10"""
    images: int = 300
    """the first of the test images"""
    device: str = "cpu"
    """on which they are attacked"""
    out: Path = Path("results/running-statistics.json")
    """file for the numbers; runs that it holds on as many images are kept"""


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/fidelity.md: accuracy and the most frequent answer by both kinds of statistics."""
    lines = ["| run | statistics | clean | most frequent answer | PGD |", "|---|---|---:|---:|---:|"]
    for name, row in result["runs"].items():
        for how, found in row["found"].items():
            numbers = f"{found['clean']:.2f} | {found['largest_class_share']:.0%} | {found['pgd']:.2f}"
            lines.append(f"| {name} | {how} | {numbers} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Attack, and write JSON after every run."""
    data, device = load("cifar10", options.data), pick_device(options.device)
    images, labels = data.test_images[: options.images], data.test_labels[: options.images]
    runs: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8"))["runs"] if options.out.exists() else {}
    for folder in options.runs:
        name = folder.name
        if runs.get(name, {}).get("images") == options.images:
            continue
        run = RunDirectory(folder)
        its = run.read_recipe()
        f, step = fresh_model(its, data), its.steps
        if run.weights.exists():
            run.read_weights(f)
        else:
            state = run.read_checkpoint(torch.device("cpu"))
            assert state is not None, f"{folder} has neither weights nor a checkpoint"
            f.load_state_dict(state["model"])
            step = state["step"]
        f = f.eval()
        clean = freshly_estimated(f, for_statistics(parts(data, its.data), its.seed))
        found: dict[str, Any] = {}
        for how, network in ((KEPT, f), (CLEAN, clean)):
            report = evaluate(network, images, labels, {"pgd": ATTACK}, device=options.device)
            found[how] = {
                "clean": 100 * report.accuracy(),
                "largest_class_share": report.clean.bincount().max().item() / len(labels),
                "pgd": 100 * report.accuracy("pgd"),
            }
        runs[name] = {
            "recipe": recipe.plain(its),
            "provenance": provenance(device),
            "step": step,
            "images": options.images,
            "found": found,
        }
        options.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
        print(name, step, found, flush=True)
    print(markdown({"runs": runs}))


if __name__ == "__main__":
    main(tyro.cli(Options))
