"""How many pixels JSMA and Pointwise need, of which the paper states no cap: what stands at several caps.

    python benchmarks/pixels.py --runs RUN... --data FOLDER --out results/pixels.json

Both look for the smallest change that fools a model, so that one search tells what stands at every smaller cap. With
200 test images five minutes at most for each run on one core.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import of_runs
import torch
import tyro
from torch import Tensor, nn

from unperturbed import frozen, load, recipe
from unperturbed.attacks import JSMA, Pointwise
from unperturbed.datasets import load as load_images
from unperturbed.inputs import as_float
from unperturbed.recipes.published import printed
from unperturbed.risks import decided
from unperturbed.runtime import provenance

CAPS = (12, 25, 50, 80, 112)
"""pixels: ours, and up to JSMA's own, 14.5 % of them on MNIST"""
ATTACKS = {"jsma": JSMA(pixels=max(CAPS)), "pointwise": Pointwise(pixels=max(CAPS))}
WORDS = {"jsma": "JSMA", "pointwise": "Pointwise"}
AT_ONCE = 50
"""images"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    runs: tuple[Path, ...]
    """folders of finished runs on MNIST"""
    data: Path | None = None
    """folder with MNIST"""
    images: int = 200
    """the first of the test images"""
    out: Path = Path("results/pixels.json")
    """file for the numbers; runs that it holds on as many images are kept"""


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/fidelity.md: what stands at each cap, beside the paper's."""
    lines = [
        f"| run | attack | {' | '.join(f'{cap} pixels' for cap in CAPS)} | the paper |",
        f"|---|---|{'---:|' * (len(CAPS) + 1)}",
    ]
    for name, row in result["runs"].items():
        for attack, words in WORDS.items():
            cells = [f"{row['accuracy'][attack][str(cap)]:.1f}" for cap in CAPS]
            theirs = f"{row['printed'][attack]:.2f}" if row["printed"] else "–"
            lines.append(f"| {name} | {words} | {' | '.join(cells)} | {theirs} |")
    return "\n".join(lines)


def pixels_needed(f: nn.Module, x: Tensor, y: Tensor, attack: JSMA | Pointwise) -> Tensor:
    """The pixels that were changed where f was fooled, 0 where it errs by itself, infinite where it was not."""
    rng = torch.Generator().manual_seed(0)
    needed: list[Tensor] = []
    with frozen(f):
        for images, labels in zip(x.split(AT_ONCE), y.split(AT_ONCE), strict=True):
            said = decided(f(images))
            perturbed = attack(f, images, said, rng)
            size = torch.where(decided(f(perturbed)) != said, attack.size(images, perturbed).float(), torch.inf)
            needed.append(size.masked_fill(said != labels, 0.0))
    return torch.cat(needed)


def main(options: Options) -> None:
    """Attack, and write JSON after every run."""
    data, cpu = load_images("mnist", options.data), torch.device("cpu")
    x, y = as_float(data.test_images[: options.images]), data.test_labels[: options.images]

    def measure(folder: Path) -> dict[str, Any]:
        finished, started = load(folder), time.perf_counter()
        needed = {attack: pixels_needed(finished.model, x, y, made) for attack, made in ATTACKS.items()}
        return {
            "recipe": recipe.plain(finished.recipe),
            "provenance": provenance(cpu),
            "seconds": time.perf_counter() - started,
            "accuracy": {
                attack: {cap: 100 * (size > cap).double().mean().item() for cap in CAPS}
                for attack, size in needed.items()
            },
            "printed": printed("Table 4", finished.recipe.name),
        }

    print(markdown(of_runs.each_of(options.runs, options.images, options.out, measure)))


if __name__ == "__main__":
    main(tyro.cli(Options))
