"""Which parts of SRT++ pay on CIFAR-10 by the labels of a teacher: one part changed at a time, on held-out labels.

    python benchmarks/plusplus.py --data FOLDER --out results/plusplus.json

ResNet-18, 30 epochs in batches of 512, a search of three steps; all runs have one teacher, whose seconds count among
those of a run that needs it first. Of the 10,000 labels 1,000 are held out: accuracy on these, clean and under
attack, is all that is looked at, so that test images stay unseen while parts are chosen.
"""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tyro

from unperturbed import recipe as recipes
from unperturbed.averaging import Average
from unperturbed.data import split
from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.experiments.plusplus_pixel import in_one_mean
from unperturbed.experiments.shortest import srt_with
from unperturbed.models import ResNet18
from unperturbed.objectives import AT, TRADES
from unperturbed.recipe import SGD, Recipe, Validation
from unperturbed.recipes import cifar10, named
from unperturbed.recipes.methods import epochs
from unperturbed.runs import RunDirectory
from unperturbed.runtime import pick_device, provenance
from unperturbed.schedules import Cyclic
from unperturbed.training import train

BATCH = 512
USUAL = named("cifar10-pixel-srt-plusplus")
STEPS = epochs(30, images=50_000, batch=BATCH)
BASE = replace(
    USUAL,
    name="cifar10-pixel-srt-plusplus-parts",
    data=replace(USUAL.data, validation=cifar10.HELD_OUT),
    model=ResNet18(),
    objective=srt_with(USUAL, solver=cifar10.THREE_STEPS, mean="terms", forward="separate"),
    averaging=Average(decay=0.99),
    steps=STEPS,
    batch=BATCH,
    optimizer=SGD(rate=Cyclic(peak=0.2)),
    validation=Validation(every=STEPS, keep="last"),
    log_every=500,
)
ONE_MEAN = in_one_mean(BASE)
ADVERSARIAL = replace(BASE, objective=AT(solver=cifar10.THREE_STEPS))


def with_rate(recipe: Recipe, peak: float) -> Recipe:
    """The recipe with another peak of its rate."""
    return replace(recipe, optimizer=replace(recipe.optimizer, rate=Cyclic(peak=peak)))


def with_parts(recipe: Recipe, **changes: Any) -> Recipe:
    """The recipe with other parts of its objective."""
    return replace(recipe, objective=srt_with(recipe, **changes))


def steadily(recipe: Recipe) -> Recipe:
    """The recipe with an average whose statistics are averaged too."""
    return replace(recipe, averaging=cifar10.STEADY)


def with_all_labels(recipe: Recipe) -> Recipe:
    """The recipe with the labels of all images but those held out, which are the same, in place of a teacher's."""
    return replace(recipe, data=replace(recipe.data, labeled=None, unlabeled=0), labeler="current")


RUNS = {
    "SRT++, lambda 3": BASE,
    "one mean over all images, one pass, a slower average": ONE_MEAN,
    "that, the teacher's probabilities": in_one_mean(BASE, "soft"),
    "that, perturbed weights": in_one_mean(BASE, "hard", 0.005),
    "that, both": in_one_mean(BASE, "soft", 0.005),
    "RST, a slower average": replace(ONE_MEAN, objective=TRADES(solver=cifar10.THREE_STEPS)),
    "SRT++, averaged statistics": steadily(BASE),
    "one mean, averaged statistics, lambda 1": steadily(ONE_MEAN),
    "one mean, averaged statistics, lambda 3": with_parts(steadily(ONE_MEAN), weight=3.0),
    "one mean, averaged statistics, two passes": with_parts(steadily(ONE_MEAN), forward="separate"),
    "RST, averaged statistics": steadily(replace(BASE, objective=TRADES(solver=cifar10.THREE_STEPS))),
    "AT on the teacher's labels, averaged statistics": steadily(ADVERSARIAL),
    "AT on the right labels of all images, averaged statistics": with_all_labels(steadily(ADVERSARIAL)),
    "SRT++, a quarter of the rate": with_rate(BASE, 0.05),
    "SRT++, no average": replace(BASE, averaging=Average()),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which runs."""

    data: Path | None = None
    """folder with CIFAR-10"""
    out: Path = Path("results/plusplus.json")
    """file for the numbers; runs that it holds are kept"""
    only: tuple[str, ...] = ()
    """words in the names of runs; all if none are given"""
    steps: int | None = None
    """of training, for runs and teacher; fewer to try it out"""


def markdown(result: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = ["| run | clean | PGD | C&W | seconds |", "|---|---:|---:|---:|---:|"]
    for row in result["runs"]:
        right = " | ".join(f"{row[part]:.2f}" for part in ("clean", "pgd", "cw"))
        lines.append(f"| {row['run']} | {right} | {row['seconds']:.0f} |")
    return "\n".join(lines)


def shortened(recipe: Recipe, steps: int | None) -> Recipe:
    """The recipe as it is, or in so many steps."""
    return recipe if steps is None else replace(recipe, steps=steps, teacher=replace(recipe.teacher, steps=steps))


def main(options: Options) -> None:
    """Train, measure, print and write JSON."""
    dataset = load("cifar10", options.data)
    rows = split(dataset.train_labels, BASE.data, len(dataset.classes)).validation
    held_out = dataset.train_images[rows], dataset.train_labels[rows]
    attacks = {name: cifar10.BUDGET.attacks()[name] for name in ("pgd", "cw")}
    known = json.loads(options.out.read_text(encoding="utf-8"))["runs"] if options.out.exists() else []
    found = {row["run"]: row for row in known}
    for name, recipe in RUNS.items():
        if name in found or (options.only and not any(word in name for word in options.only)):
            continue
        recipe, started = shortened(recipe, options.steps), time.perf_counter()
        with TemporaryDirectory() as folder:
            model = train(recipe, Path(folder) / "run", folder=options.data)
            last = RunDirectory(Path(folder) / "run").read_log()[-1]
        seconds = time.perf_counter() - started
        report = evaluate(model, *held_out, attacks)
        found[name] = {
            "run": name,
            "clean": 100 * report.accuracy(),
            **{attack: 100 * report.accuracy(attack) for attack in attacks},
            "seconds": seconds,
            "last": {term: last[term] for term in ("standard", "robust", "labeled_accuracy")},
            "recipe": recipes.plain(recipe),
            "provenance": provenance(pick_device()),
        }
        print(markdown({"runs": [found[name]]}).splitlines()[-1], flush=True)
        options.out.write_text(json.dumps({"runs": list(found.values())}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
