"""What the second interpolation of the authors' warps costs: RandAdv and GridAdv by one, as here, and by two.

    python benchmarks/warps.py --runs RUN... --data FOLDER --out results/warps.json

Their code turns an image, interpolating between its pixels, and then shifts what came out, interpolating again. The
models are those of finished runs, which were trained on warps of one interpolation. With 300 test images twenty
minutes at most for each run on one core; `--images 10000 --device cuda` takes all.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import of_runs
import tyro

from unperturbed import Spatial, TurnThenShift, evaluate, load, recipe
from unperturbed.attacks import grid, random
from unperturbed.datasets import load as load_images
from unperturbed.recipes.cifar10 import BUDGET
from unperturbed.recipes.published import printed
from unperturbed.runtime import pick_device, provenance

ONE, TWO = "one", "two"
COLUMNS = {"randadv": "RandAdv", "gridadv": "GridAdv"}
WARPS = {
    ONE: Spatial(rotation=BUDGET.rotation, translation=BUDGET.translation),
    TWO: TurnThenShift(rotation=BUDGET.rotation, translation=BUDGET.translation),
}
ATTACKS = {
    f"{name}, {times}": attack(around)
    for times, around in WARPS.items()
    for name, attack in (("randadv", random), ("gridadv", grid))
}


@dataclass(frozen=True, kw_only=True)
class Options(of_runs.Options):
    """What is measured; the runs have ended."""

    out: Path = Path("results/warps.json")


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/fidelity.md: what is left by one interpolation and by two, beside the paper's."""
    heads = [f"{words}, {times}" for words in COLUMNS.values() for times in (ONE, TWO, "the paper")]
    lines = [f"| run | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for name, row in result["runs"].items():
        cells = [
            f"{value:.2f}"
            for column in COLUMNS
            for value in (*(row["accuracy"][f"{column}, {times}"] for times in (ONE, TWO)), row["printed"][column])
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Attack, and write JSON after every run."""
    data, device = load_images("cifar10", options.data), pick_device(options.device)
    images, labels = data.test_images[: options.images], data.test_labels[: options.images]

    def measure(folder: Path) -> dict[str, Any]:
        finished = load(folder)
        report = evaluate(finished.model, images, labels, ATTACKS, device=options.device)
        return {
            "recipe": recipe.plain(finished.recipe),
            "provenance": provenance(device),
            "accuracy": {attack: 100 * report.accuracy(attack) for attack in ATTACKS},
            "printed": printed("Table 3", finished.recipe.name) or printed("Table 1", finished.recipe.name),
        }

    print(markdown(of_runs.each_of(options.runs, options.images, options.out, measure)))


if __name__ == "__main__":
    main(tyro.cli(Options))
