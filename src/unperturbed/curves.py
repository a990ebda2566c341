"""Curves of the paper's figures, as numbers: accuracy against what was varied, and how a run went.

Each function returns panels. `figures` draws them with matplotlib; whoever draws them otherwise needs nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from torch import Tensor

from .comparison import (
    UNTOLD,
    Run,
    attacks_of_all,
    comparable_reports,
    evaluating,
    fields_of,
    require_other_seeds,
    require_same_images,
    told_by_fields,
)
from .data import split
from .datasets import load
from .printing import in_shell, is_number, printable
from .progress import HELD_OUT
from .recipe import Recipe
from .recipes.budgets import require_attack
from .recipes.words import ATTACKS, told_apart
from .report import Report, measured
from .reservoir import image_files
from .sweeps import Sweep

Duration = Literal["steps", "seconds"]
TRAINING: Mapping[str, tuple[str, str]] = {
    "standard": ("standard term", "loss"),
    "robust": ("robust term", "loss"),
    "rate": ("learning rate", "rate"),
    "robust_weight": ("ramp of the robust term", "share that counts"),
    "labeled_accuracy": ("C(x) on labeled images", "accuracy (%)"),
    "largest_class_share": ("largest class of C(x)", "share (%)"),
    HELD_OUT: ("accuracy on held-out images", "accuracy (%)"),
    "images_per_second": ("speed", "images a second"),
}
"""what a line of the log holds: the title of its panel and what is measured"""
CLEAN = "clean"
"""stands for no attack where attacks are named"""
SEEDS = UNTOLD | {"seed"}
"""fields in which runs may differ that are one run with several seeds, and make up one line"""
IN_PERCENT = ("labeled_accuracy", "largest_class_share", HELD_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a panel; with a single x it is a level to compare the others with."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    """of a 95 % interval, or of several seeds the lowest; empty where neither is known"""
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]

    @property
    def percent(self) -> bool:
        """Whether y goes from 0 to 100."""
        return self.y_label.endswith("(%)")


def over_perturbation(
    runs: Sequence[Run], sweeps: Sequence[Sweep], attacks: Sequence[str], *, against: Literal["fraction", "eps"]
) -> tuple[Panel, ...]:
    """Accuracy against the perturbation fraction, or against eps: a panel for each attack, a line for each run."""
    require_same_images(runs, [next(iter(sweep.reports.values())) for sweep in sweeps])
    return tuple(
        Panel(
            title=ATTACKS.get(attack, attack),
            x_label="eps" if against == "eps" else "perturbation fraction",
            y_label="accuracy (%)",
            lines=tuple(
                accuracies(
                    run.label,
                    [
                        (
                            fraction * (sweep.eps if against == "eps" else 1.0),
                            [report.survivors(attack if fraction else None)],
                        )
                        for fraction, report in sweep.reports.items()
                    ],
                )
                for run, sweep in zip(runs, sweeps, strict=True)
            ),
        )
        for attack in attacks
    )


def over_unlabeled(
    runs: Sequence[Run], attacks: Sequence[str] = (), *, folder: Path | None = None
) -> tuple[Panel, ...]:
    """Accuracy against |D_U|: a panel for each attack, a line for each series of runs that differ in it alone."""

    def unlabeled(run: Run) -> float:
        return float(unlabeled_images(run.recipe, folder))

    return varied(runs, attacks, unlabeled, "unlabeled images", ignored={"data.unlabeled", "data.unlabeled_files"})


def over_weight(runs: Sequence[Run], attacks: Sequence[str] = ()) -> tuple[Panel, ...]:
    """Accuracy against lambda."""

    def weight(run: Run) -> float:
        found = getattr(run.recipe.objective, "weight", None)
        if found is None:
            name = type(run.recipe.objective).__name__
            raise ValueError(f"{printable(run.path)} minimizes {name}, which has no lambda: leave it out")
        return float(found)

    return varied(runs, attacks, weight, "lambda", ignored={"objective.weight"}, named_by_weight=False)


def over_time(runs: Sequence[Run], attacks: Sequence[str] = (), *, unit: Duration = "steps") -> tuple[Panel, ...]:
    """Accuracy against the length of the training; runs with another peak rate are lines of their own.

    No two seeds take equally long, and a guard may end one of them early: they stand together at their mean.
    """

    def taken(run: Run) -> float:
        if unit == "seconds":
            return sum(record["seconds"] for record in log_of(run))
        log = run.directory.read_log()
        return log[-1]["step"] if log else run.recipe.steps

    def duration(run: Run) -> float:
        return fmean(taken(other) for other in runs if fields_of(other.recipe, SEEDS) == fields_of(run.recipe, SEEDS))

    return varied(
        runs,
        attacks,
        duration,
        "training steps" if unit == "steps" else "seconds of training",
        ignored={"steps", "validation.every"},
    )


def training_curves(runs: Sequence[Run], quantities: Sequence[str] = ()) -> tuple[Panel, ...]:
    """What log.jsonl says of each run: both terms, rate, ramp, C(x) and speed, a panel each."""
    if unknown := [word for word in quantities if word not in TRAINING]:
        raise ValueError(
            f"the log holds no {printable(unknown[0])!r} (there are {', '.join(TRAINING)}): choose of these"
        )
    logs = [log_of(run) for run in runs]
    panels = [
        Panel(
            title=TRAINING[quantity][0],
            x_label="step",
            y_label=TRAINING[quantity][1],
            lines=tuple(
                line for run, log in zip(runs, logs, strict=True) if (line := line_of(quantity, run.label, log)).x
            ),
        )
        for quantity in quantities or TRAINING
    ]
    if quantities and not all(panel.lines for panel in panels):
        raise ValueError(f"no labels were held out of these runs, so that no log holds {HELD_OUT}: choose others")
    return tuple(panel for panel in panels if panel.lines)


def line_of(quantity: str, label: str, log: Sequence[Mapping[str, float]]) -> Line:
    """How this went in a run, at the steps at which its log holds it."""
    shown = [record for record in log if isinstance(record.get(quantity), int | float)]
    factor = 100 if quantity in IN_PERCENT else 1
    steps, values = (tuple(float(record[name]) for record in shown) for name in ("step", quantity))
    return Line(label=label, x=steps, y=tuple(factor * value for value in values))


def varied(
    runs: Sequence[Run],
    attacks: Sequence[str],
    x_of: Callable[[Run], float],
    x_label: str,
    *,
    ignored: set[str],
    named_by_weight: bool = True,
) -> tuple[Panel, ...]:
    """Accuracy under each attack against a number of each run; runs alike in all else make up a line."""
    reports = comparable_reports(runs)
    shown = list(attacks) or attacks_of_all(reports)
    if not shown:
        raise ValueError(
            "no attack is in all of these reports: evaluate every run with one, as by "
            f"`{evaluating(runs[0], ['pgd'], reports[0])}`"
        )
    standing = {run.path: survivors_in(report) for run, report in zip(runs, reports, strict=True)}
    for run, report in zip(runs, reports, strict=True):
        if missing := [attack for attack in shown if attack not in standing[run.path]]:
            require_attack(missing[0])
            raise ValueError(
                f"the report of {printable(run.path)} does not hold {', '.join(missing)}: "
                f"`{evaluating(run, missing, report)}` adds it"
            )
    groups = series(runs, ignored=ignored, named_by_weight=named_by_weight)
    places = {run.path: x_of(run) for run in runs}
    for members in groups.values():
        for place in {places[run.path] for run in members}:
            require_other_seeds([run for run in members if places[run.path] == place])
    return tuple(
        Panel(
            title=ATTACKS.get(attack, attack),
            x_label=x_label,
            y_label="accuracy (%)",
            lines=tuple(
                accuracies(label, grouped(members, places, standing, attack)) for label, members in groups.items()
            ),
        )
        for attack in shown
    )


def survivors_in(report: Report) -> dict[str, Tensor]:
    """Which images survive each attack of a report, and which are right without one."""
    return {CLEAN: report.survivors()} | {each.name: report.survivors(each.name) for each in report.attacks}


def grouped(
    members: Sequence[Run],
    places: Mapping[Path, float],
    standing: Mapping[Path, Mapping[str, Tensor]],
    attack: str,
) -> list[tuple[float, list[Tensor]]]:
    """For each x in order, which images survive the attack in each of the runs there."""
    found: dict[float, list[Tensor]] = {}
    for run in members:
        found.setdefault(places[run.path], []).append(standing[run.path][attack])
    return sorted(found.items(), key=lambda item: item[0])


def accuracies(label: str, points: Sequence[tuple[float, Sequence[Tensor]]]) -> Line:
    """Accuracy at each x: of one run with its 95 % interval, of several seeds the mean, lowest and highest."""
    rows: list[tuple[float, float, float]] = []
    for _, survivors in points:
        found = [measured(each) for each in survivors]
        each = [row["accuracy"] for row in found]
        low, high = found[0]["interval"] if len(found) == 1 else (min(each), max(each))
        rows.append((100 * fmean(each), 100 * low, 100 * high))
    y, low, high = zip(*rows, strict=True)
    return Line(label=label, x=tuple(x for x, _ in points), y=y, low=low, high=high)


def series(runs: Sequence[Run], *, ignored: set[str], named_by_weight: bool) -> dict[str, list[Run]]:
    """Runs whose recipes agree in all fields but the ignored ones, under a label that tells them from the others."""
    ignored = ignored | SEEDS
    groups: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(fields_of(run.recipe, ignored).items()), []).append(run)
    firsts = [members[0].recipe for members in groups.values()]
    names = told_apart([recipe.name for recipe in firsts], weight=named_by_weight)
    labeled: dict[str, list[Run]] = {}
    for label, members in zip(told_by_fields(names, firsts, ignored), groups.values(), strict=True):
        labeled[label if label not in labeled else f"{label} ({members[0].path})"] = members
    return labeled


def unlabeled_images(recipe: Recipe, folder: Path | None) -> int:
    """The size of D_U, with the images in files."""
    data = recipe.data
    if data.unlabeled is not None and not data.unlabeled_files:
        return data.unlabeled
    dataset = load(data.name, folder)
    extra = len(dataset.unlabeled_images)
    own = split(dataset.train_labels, data, len(dataset.classes), extra=extra).unlabeled
    return len(own) + sum(file.count for file in image_files(data.unlabeled_files, dataset.use.shape))


def log_of(run: Run) -> list[dict[str, float]]:
    """The lines of a run's log; a run without any is refused."""
    records = [record for record in run.directory.read_log() if is_whole(record)]
    if not records:
        anew = f"unperturbed train --from {in_shell(run.path / 'recipe.json')} --out DIR"
        command = anew if run.directory.weights.exists() else run.directory.training_again()
        raise ValueError(f"{printable(run.path)} holds no log of its training (log.jsonl): make it with `{command}`")
    return records


def is_whole(record: Mapping[str, object]) -> bool:
    """Whether a line of a log holds the numbers that each of them has."""
    return all(is_number(record.get(name)) for name in (*TRAINING, "seconds") if name != HELD_OUT)
