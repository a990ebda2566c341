"""What a network answers by the statistics of BatchNorm that its training left, and by those of clean images.

    python benchmarks/running_statistics.py --runs RUN... --data FOLDER --out results/running-statistics.json

An objective that takes a pass for each term leaves running statistics of both kinds of images, by which C(x) and
every answer after the training is given. Those of clean images are estimated on some of the run's own training
images. A run that has not ended is taken at its checkpoint. Ten minutes for each run of ResNet-18 on one core.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import of_runs
import torch
import tyro
from torch import nn

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
class Options(of_runs.Options):
    """What is measured."""

    out: Path = Path("results/running-statistics.json")


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/fidelity.md: accuracy and the most frequent answer by both kinds of statistics."""
    lines = ["| run | statistics | clean | most frequent answer | PGD |", "|---|---|---:|---:|---:|"]
    for name, row in result["runs"].items():
        for how, found in row["found"].items():
            numbers = f"{found['clean']:.2f} | {found['largest_class_share']:.0%} | {found['pgd']:.2f}"
            lines.append(f"| {name} | {how} | {numbers} |")
    return "\n".join(lines)


def at_its_end(run: RunDirectory, f: nn.Module) -> int:
    """Give f the weights of a run, or those of its checkpoint where it has not ended, and tell its step."""
    if run.weights.exists():
        run.read_weights(f)
        return run.read_recipe().steps
    state = run.read_checkpoint(torch.device("cpu"))
    assert state is not None, f"{run.path} has neither weights nor a checkpoint"
    f.load_state_dict(state["model"])
    return state["step"]


def main(options: Options) -> None:
    """Attack, and write JSON after every run."""
    data, device = load("cifar10", options.data), pick_device(options.device)
    images, labels = data.test_images[: options.images], data.test_labels[: options.images]

    def measure(folder: Path) -> dict[str, Any]:
        run = RunDirectory(folder)
        its = run.read_recipe()
        f = fresh_model(its, data).eval()
        step, found = at_its_end(run, f), dict[str, Any]()
        clean = freshly_estimated(f, for_statistics(parts(data, its.data), its.seed))
        for how, network in ((KEPT, f), (CLEAN, clean)):
            report = evaluate(network, images, labels, {"pgd": ATTACK}, device=options.device)
            found[how] = {
                "clean": 100 * report.accuracy(),
                "largest_class_share": report.clean.bincount().max().item() / len(labels),
                "pgd": 100 * report.accuracy("pgd"),
            }
        return {"recipe": recipe.plain(its), "provenance": provenance(device), "step": step, "found": found}

    print(markdown(of_runs.each_of(options.runs, options.images, options.out, measure, lambda folder: folder.name)))


if __name__ == "__main__":
    main(tyro.cli(Options))
