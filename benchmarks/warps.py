"""What the second interpolation of the authors' warps costs: RandAdv and GridAdv by one, as here, and by two.

    python benchmarks/warps.py --runs RUN... --data FOLDER --out results/warps.json

Their code turns an image, interpolating between its pixels, and then shifts what came out, interpolating again. The
models are those of finished runs, which were trained on warps of one interpolation. With 300 test images about ten
minutes for each run on one core; `--images 10000 --device cuda` takes all.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor, nn

from unperturbed import Spatial, load, recipe
from unperturbed.datasets import load as load_images
from unperturbed.inputs import as_float
from unperturbed.recipes.cifar10 import BUDGET
from unperturbed.recipes.published import printed
from unperturbed.runtime import generator, pick_device, provenance

ONE, TWO = "one", "two"
COLUMNS = {"randadv": "RandAdv", "gridadv": "GridAdv"}
MARGIN = 5
"""pixels around an image that are kept between turn and shift: shifts are of three at most"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice(Spatial):
    """A rotation and a translation, each with an interpolation of its own."""

    def transform(self, x: Tensor, theta: Tensor) -> Tensor:
        # A warp that only turns, or only shifts, is the same by one interpolation and by two.
        turn, shift = theta * theta.new_tensor([1.0, 0.0, 0.0]), theta * theta.new_tensor([0.0, 1.0, 1.0])
        once = Spatial(rotation=self.rotation, translation=self.translation)
        turned = once.transform(F.pad(x, (MARGIN,) * 4), turn)
        return once.transform(turned, shift)[..., MARGIN:-MARGIN, MARGIN:-MARGIN]


WARPS = {
    ONE: Spatial(rotation=BUDGET.rotation, translation=BUDGET.translation),
    TWO: Twice(rotation=BUDGET.rotation, translation=BUDGET.translation),
}
DRAWS, POINTS, AT_ONCE = 10, (31, 5, 5), 8
"""draws of RandAdv for each image; points of GridAdv; warps that are tried before images are given up"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    runs: tuple[Path, ...]
    """folders of finished runs on CIFAR-10"""
    data: Path | None = None
    """folder with CIFAR-10"""
    images: int = 300
    """the first of the test images"""
    device: str = "cpu"
    """on which they are attacked"""
    out: Path = Path("results/warps.json")
    """file for the numbers; runs that it holds on as many images are kept"""


@torch.no_grad()
def answers(f: nn.Module, x: Tensor, *, rounded: bool) -> Tensor:
    """C(x), in bfloat16 or in float32."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=rounded):
        parts = x.contiguous(memory_format=torch.channels_last).split(64 if x.device.type == "cpu" else 8192)
        return torch.cat([f(part).argmax(1) for part in parts])


def survives(f: nn.Module, x: Tensor, y: Tensor, around: Spatial, tried: Iterable[Tensor]) -> float:
    """The accuracy in percent after all of these warps, of shape (warps, images, 3): what bfloat16 finds wrong and
    float32 too is lost.
    """
    standing = answers(f, x, rounded=False) == y
    for theta in tried:
        rows = standing.nonzero().squeeze(1)
        points = around.transform(x[rows].repeat(len(theta), 1, 1, 1), theta[:, rows].flatten(0, 1))
        labels = y[rows].repeat(len(theta))
        wrong = (answers(f, points, rounded=True) != labels).nonzero().squeeze(1)
        if len(wrong):
            wrong = wrong[answers(f, points[wrong], rounded=False) != labels[wrong]]
            standing[rows[wrong % len(rows)]] = False
        if not standing.any():
            break
    return 100 * standing.double().mean().item()


def attacked(f: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracies after each attack by each kind of warp, RandAdv with the same draws for both."""
    found: dict[str, float] = {}
    for times, around in WARPS.items():
        rng = generator(x.device, 0, "warps")
        draws = torch.stack([around.sample(x, rng) for _ in range(DRAWS)])
        thetas = around.grid(x, POINTS)
        far = thetas[around.distance(x, thetas).argsort(descending=True, stable=True)]
        grid = (part[:, None].expand(-1, len(x), -1) for part in far.split(AT_ONCE))
        found[f"randadv, {times}"] = survives(f, x, y, around, draws.split(AT_ONCE))
        found[f"gridadv, {times}"] = survives(f, x, y, around, grid)
    return found


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
    test, device = load_images("cifar10", options.data), pick_device(options.device)
    runs: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8"))["runs"] if options.out.exists() else {}
    for folder in options.runs:
        name = folder.name.rpartition("-seed-")[0]
        if runs.get(name, {}).get("images") == options.images:
            continue
        finished = load(folder)
        f = finished.model.to(device)
        x, y = (part[: options.images].to(device) for part in (test.test_images, test.test_labels))
        runs[name] = {
            "recipe": recipe.plain(finished.recipe),
            "provenance": provenance(device),
            "images": options.images,
            "accuracy": attacked(f, as_float(x), y),
            "printed": printed("Table 3", finished.recipe.name) or printed("Table 1", finished.recipe.name),
        }
        options.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
        print(name, runs[name]["accuracy"], flush=True)
    print(markdown({"runs": runs}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(tyro.cli(Options))
