"""The demonstration: the paper's claim on real handwritten digits, in two to three minutes on two cores."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import nn

from ..attacks import Attack
from ..datasets import Dataset, load
from ..evaluation import evaluate
from ..files import numbers_in, write_whole
from ..page import Page, write_page
from ..progress import watching
from ..recipe import Recipe, plain
from ..recipes import named, usual_budget
from ..recipes.budgets import chosen
from ..report import Report
from ..runs import RunDirectory
from ..runtime import threads
from ..training import train
from .gallery import draw_gallery
from .gathered import seconds_of
from .scales import seeded

METHODS = {
    "Standard": "digits-pixel-standard",
    "AT, pixel-wise": "digits-pixel-at",
    "RT, pixel-wise": "digits-pixel-rt",
    "SRT, pixel-wise": "digits-pixel-srt",
    "Worst-of-k, spatial": "digits-spatial-worst-of-k",
    "RT, spatial": "digits-spatial-rt",
    "SRT, spatial": "digits-spatial-srt",
}
PAGE = Page(images=60, points=31)
COLUMNS = ("clean", "PGD", "GridAdv", "R_stand", "R_rob", "R_adv", "seconds")
NEXT = (
    "unperturbed evaluate {out}/digits-pixel-srt      attack one of these models in more ways",
    "unperturbed train digits-pixel-srt --out runs/mine --objective.weight 0.5      change a recipe",
    "unperturbed train mnist-pixel-srt --steps 500      start on a larger data set (see unperturbed list)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trained and attacked model."""

    method: str
    own_attack: str
    """the attack of its scenario, under which its risks are shown"""
    report: Report
    seconds: float
    """of training"""

    def numbers(self) -> tuple[float, ...]:
        """A number for each of the columns."""
        standard, robust, adversarial = self.report.risks_by_image(self.report[self.own_attack])
        return (
            100 * self.report.accuracy(),
            100 * self.report.accuracy("pgd"),
            100 * self.report.accuracy("gridadv"),
            standard.double().mean().item(),
            robust.double().mean().item(),
            adversarial.double().mean().item(),
            self.seconds,
        )


def run(out: Path, seed: int) -> None:
    """Train and attack the seven models, print the table, write report.json, demo.png and the page report.html."""
    dataset = load("digits")
    attacks = chosen(usual_budget("digits").attacks(), "pgd,gridadv")
    recipes = {method: seeded(named(name), seed) for method, name in METHODS.items()}
    rows: list[Row] = []
    models: dict[str, nn.Module] = {}
    with threads(1), watching() as watcher:
        for method, recipe in recipes.items():
            watcher.title = method
            models[method] = train(recipe, out / recipe.name, device="cpu", watcher=watcher)
            rows.append(measure(method, recipe, models[method], dataset, attacks, RunDirectory(out / recipe.name)))
    shown = {method: models[method] for method in ("Standard", "SRT, pixel-wise", "SRT, spatial")}
    draw_gallery(out / "demo.png", shown, dataset, attacks, seed=seed)
    write_whole(out / "report.json", json.dumps(combined(rows), indent=1).encode())
    page = out / "report.html"
    write_page([out / recipe.name for recipe in recipes.values()], page, PAGE, device="cpu")
    Console().print(table(rows))
    print(
        f"{verdict(rows)}\n\nwritten: {out / 'report.json'}, {out / 'demo.png'} and, to open in a browser:\n  {page}"
    )
    print("next:")
    print("\n".join(f"  {line.format(out=out)}" for line in NEXT))


def measure(
    method: str, recipe: Recipe, model: nn.Module, dataset: Dataset, attacks: Mapping[str, Attack], run: RunDirectory
) -> Row:
    """Attack one model and write its report."""
    report = evaluate(
        model,
        dataset.test_images,
        dataset.test_labels,
        attacks,
        seed=recipe.seed,
        device="cpu",
        recipe=plain(run.read_recipe()),
        weights=numbers_in(run.weights),
    )
    write_whole(run.report, report.dumps().encode())
    own = "gridadv" if "spatial" in recipe.name else "pgd"
    return Row(method=method, own_attack=own, report=report, seconds=seconds_of(run))


def table(rows: list[Row]) -> Table:
    """All models side by side, the best of each column marked."""
    title = "100 labels: accuracy in %; R_rob and R_adv under PGD, spatially under GridAdv"
    result = Table(title=title, padding=(0, 0, 0, 1))
    result.add_column("method", no_wrap=True)
    for heading in COLUMNS:
        result.add_column(heading, justify="right")
    numbers = [row.numbers() for row in rows]
    best = [max(column) if i < 3 else min(column) for i, column in enumerate(zip(*numbers, strict=True))]
    for row, values in zip(rows, numbers, strict=True):
        formats = ["{:.1f}"] * 3 + ["{:.3f}"] * 3 + ["{:.0f}"]
        cells = [form.format(value) for form, value in zip(formats, values, strict=True)]
        marked = [
            f"[bold green]{cell}*[/]" if value == top else cell
            for cell, value, top in zip(cells, values, best, strict=True)
        ]
        result.add_row(row.method, *marked, end_section=row.method in ("Standard", "SRT, pixel-wise"))
    return result


def verdict(rows: list[Row]) -> str:
    """What the table shows, in a sentence made from its numbers."""
    under = {row.method: 100 * row.report.accuracy(row.own_attack) for row in rows}
    crossed = {
        row.method: 100 * row.report.accuracy("pgd" if row.own_attack == "gridadv" else "gridadv") for row in rows
    }
    pixel = [under[name] for name in ("SRT, pixel-wise", "RT, pixel-wise", "AT, pixel-wise")]
    spatial = [under[name] for name in ("SRT, spatial", "RT, spatial", "Worst-of-k, spatial")]
    if not all(srt > max(rivals) for srt, *rivals in (pixel, spatial)):
        return "This time SRT is not above RT and its rival in both scenarios: 100 labels of small images are few."
    return (
        f"Unlabeled images pay: with the same 100 labels SRT keeps {pixel[0]:.1f} % under PGD, RT {pixel[1]:.1f} % "
        f"and AT {pixel[2]:.1f} %; under GridAdv SRT keeps {spatial[0]:.1f} %, RT {spatial[1]:.1f} % and Worst-of-k "
        f"{spatial[2]:.1f} %. Under the attack it was not trained for, pixel-wise SRT keeps "
        f"{crossed['SRT, pixel-wise']:.1f} % (GridAdv) and spatial SRT {crossed['SRT, spatial']:.1f} % (PGD)."
    )


def combined(rows: list[Row]) -> dict[str, object]:
    """All rows in plain values; the full reports lie beside each model."""
    keys = ("clean", "pgd", "gridadv", "standard_risk", "robust_risk", "adversarial_risk", "seconds")
    return {
        "command": "unperturbed " + " ".join(sys.argv[1:]),
        "verdict": verdict(rows),
        "rows": [
            {"method": row.method, "own_attack": row.own_attack}
            | dict(zip(keys, (round(number, 4) for number in row.numbers()), strict=True))
            for row in rows
        ],
        "provenance": dict(rows[0].report.provenance) | {"seed": rows[0].report.seed},
    }
