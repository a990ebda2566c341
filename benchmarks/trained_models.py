"""What stronger attacks leave of the trained models in examples than the usual ones do.

    python benchmarks/trained_models.py --data FOLDER --out results/trained-models.json

An attack goes on where a file stops, so that the command may be interrupted. With 100 images it takes an
hour on one core.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import stdev
from typing import Any

import torch
import tyro

from unperturbed import PGD, Composed, Grid, Linf, Sequential, Spatial, Strongest, evaluate, load
from unperturbed.attacks import Attack, Searched
from unperturbed.datasets import load as load_images
from unperturbed.files import numbers_in
from unperturbed.losses import margin
from unperturbed.recipes import usual_budget
from unperturbed.runtime import provenance
from unperturbed.sameness import settings_of

EXAMPLES = Path(__file__).parents[1] / "examples"
BUDGET = usual_budget("mnist")
BALL, WARPS = Linf(eps=BUDGET.eps), Spatial(rotation=BUDGET.rotation, translation=BUDGET.translation)
LONGER = PGD(around=BALL, steps=100, step_size=2.5 * BUDGET.eps / 100, start="uniform", keep="best")
"""the ascent of pgd-restarts"""
RESTARTS = 5
ATTACKS: Mapping[str, Attack] = {
    **{name: BUDGET.attacks()[name] for name in ("pgd", "pgd-restarts", "autoattack", "gridadv+")},
    "gridadv+ with restarts": Searched(
        solver=Sequential(stages=(Grid(around=WARPS, enough=0.0), Strongest(solvers=(LONGER,) * RESTARTS))),
        loss=margin,
        within=Composed(parts=(WARPS, BALL)),
        budget=f"Grid in {WARPS}, then PGD in {BALL}, 100 steps, {RESTARTS} restarts",
    ),
}
WORDS = {
    "pgd": "PGD",
    "pgd-restarts": "PGD, 100 steps, 5 restarts",
    "autoattack": "AutoAttack",
    "gridadv+": "GridAdv+",
    "gridadv+ with restarts": "GridAdv+, its PGD with 100 steps, 5 restarts",
}
USUAL = {"pgd-restarts": "pgd", "autoattack": "pgd", "gridadv+ with restarts": "gridadv+"}
"""the attack that each stronger one is held against"""
MODELS = {"mnist-srt": ("pgd", "pgd-restarts"), "mnist-srt-plus": tuple(ATTACKS)}
"""the attacks on each model; SRT is attacked by AutoAttack on all images where its evidence is"""
AT_ONCE = 20
"""images of an attack between two writes"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    data: Path | None = None
    """folder with MNIST"""
    images: int = 100
    """the first of the test images"""
    models: tuple[str, ...] = tuple(MODELS)
    """folders of examples"""
    attacks: tuple[str, ...] = tuple(ATTACKS)
    """attacks to make or to go on with"""
    out: Path = Path("results/trained-models.json")
    """file for the numbers"""


def lost(stronger: str, usual: str) -> tuple[float, float]:
    """The points that a stronger attack takes beyond the usual one on the same images, and their standard error."""
    each = [100.0 * (int(before) - int(after)) for after, before in zip(stronger, usual, strict=False)]
    return sum(each) / len(each), stdev(each) / sqrt(len(each))


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/trust.md: what stands, and how much less that is than under the usual attack."""
    lines = ["| model | attack | images | standing, % | less than usual, points |", "|---|---|---:|---:|---:|"]
    for name, found in result["models"].items():
        for attack in (each for each in WORDS if each in found):
            standing, usual = found[attack]["standing"], found.get(USUAL.get(attack, ""))
            less = "–" if usual is None else "{:.1f} ± {:.1f}".format(*lost(standing, usual["standing"]))
            accuracy = 100 * standing.count("1") / len(standing)
            lines.append(f"| {name} | {WORDS[attack]} | {len(standing)} | {accuracy:.1f} | {less} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Attack, and write JSON after every few images."""
    data = load_images("mnist", options.data)
    result: dict[str, Any] = {"provenance": provenance(torch.device("cpu")), "weights": {}, "models": {}}
    if options.out.exists():
        result = json.loads(options.out.read_text(encoding="utf-8"))
    for name in options.models:
        model, found = load(EXAMPLES / name).model, result["models"].setdefault(name, {})
        result["weights"][name] = numbers_in(EXAMPLES / name / "model.safetensors")
        for attack in (each for each in MODELS[name] if each in options.attacks):
            made = ATTACKS[attack]
            row = found.setdefault(attack, {"settings": settings_of(made), "seconds": 0.0, "standing": ""})
            while (done := len(row["standing"])) < options.images:
                images = slice(done, min(done + AT_ONCE, options.images))
                x, y = data.test_images[images], data.test_labels[images]
                report = evaluate(model, x, y, {attack: made}, device="cpu")
                row["standing"] += "".join(str(int(each)) for each in report.survivors(attack))
                row["seconds"] += report[attack].seconds
                options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
                print(f"{name}, {attack}: {len(row['standing'])} of {options.images} images", flush=True)
    print(markdown(result))


if __name__ == "__main__":
    main(tyro.cli(Options))
