"""A report: what an evaluation found, for each image, with all that is needed to make it again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from .files import NewerFormatError, numbers_in, refused_if_damaged
from .packing import MOST_BYTES, packed, unpacked
from .printing import counted, in_shell, printable, quoted, shown
from .risks import NO_CLASS, adversarial_risk, robust_risk, standard_risk
from .runtime import provenance_of_both

FORMAT = 1
ROUNDING = 1e-9
"""of an accuracy as text"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttackResult:
    """What one attack did to every image."""

    name: str
    budget: str
    settings: str
    predicted: Tensor
    """C(x') of each image, or C(x) where the attack returned no valid point; NO_CLASS where f answers x' with NaN"""
    rejected: int
    """points outside the budget, outside [0, 1] or no numbers: they do not count; 0 for minimum-norm attacks"""
    precision: str = "float32"
    """arithmetic of the search; whether what it found fools f is decided in float32 always"""
    median_size: float | None = None
    """of a minimum-norm attack: the median of the smallest changes that fooled f, infinite where most images stood"""
    seconds: float

    def __repr__(self) -> str:
        images = counted(len(self.predicted), "image")
        return f"<AttackResult {printable(self.name)}: {images}, {printable(self.budget)}>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """Clean and attacked predictions of one classifier on one set of images."""

    labels: Tensor
    clean: Tensor
    """C(x)"""
    attacks: tuple[AttackResult, ...]
    seed: int
    provenance: Mapping[str, str | int]
    recipe: object = None
    """the recipe of the run in JSON form, where there was one"""
    subject: str = ""
    """a hash of the model, the images and the seed: what was evaluated"""
    weights: str = ""
    """a hash of the numbers in the file that the model was read from, where it was read from one"""

    def __post_init__(self) -> None:
        counts = {len(self.labels), len(self.clean), *(len(result.predicted) for result in self.attacks)}
        if len(counts) > 1 or 0 in counts:
            raise ValueError(f"a report needs as many predictions as labels and at least one, got {sorted(counts)}")
        for result in self.attacks:
            standard, robust, adversarial = (risk.int() for risk in self.risks_by_image(result))
            if not torch.equal(adversarial, standard + (1 - standard) * robust):
                raise ArithmeticError(f"Lemma 1 does not hold on the predictions under {result.name}")

    def __repr__(self) -> str:
        found = (f"{printable(result.name)} {self.accuracy(result.name):.2%}" for result in self.attacks)
        accuracies = ", ".join((f"clean {self.accuracy():.2%}", *found))
        return f"<Report: {counted(len(self.labels), 'image')}, {accuracies}>"

    def risks_by_image(self, result: AttackResult) -> tuple[Tensor, Tensor, Tensor]:
        """R_stand, R_rob and R_adv of every image under an attack."""
        return (
            standard_risk(self.clean, self.labels),
            robust_risk(self.clean, result.predicted),
            adversarial_risk(self.clean, result.predicted, self.labels),
        )

    def survivors(self, name: str | None = None) -> Tensor:
        """Which images stay correctly classified: clean, or under the attack of that name."""
        if name is None:
            return self.clean == self.labels
        return ~self.risks_by_image(self[name])[2]

    def __getitem__(self, name: str) -> AttackResult:
        for result in self.attacks:
            if result.name == name:
                return result
        raise KeyError(f"no attack {name!r} in this report, which has {', '.join(r.name for r in self.attacks)}")

    def with_attacks_of(self, other: "Report") -> "Report":
        """The report with attacks that it lacks and another on the same subject holds; provenance tells of both."""
        names = {result.name for result in self.attacks}
        more = tuple(result for result in other.attacks if result.name not in names)
        if not (more and self.subject and self.subject == other.subject and self.clean.equal(other.clean)):
            return self
        return replace(
            self, attacks=(*self.attacks, *more), provenance=provenance_of_both(self.provenance, other.provenance)
        )

    def is_on(self, weights: Path) -> bool:
        """Whether it may be one on the weights in that file; where there are none, or it does not say, it may."""
        return not self.weights or not weights.is_file() or self.weights == numbers_in(weights)

    def accuracy(self, name: str | None = None) -> float:
        """The share of images correctly classified: clean, or under the attack of that name."""
        return self.survivors(name).double().mean().item()

    def worst_case(self) -> Tensor:
        """Which images survive every attack: the worst case is taken image by image, not over averages."""
        standing = self.survivors()
        for result in self.attacks:
            standing = standing & self.survivors(result.name)
        return standing

    def summary(self) -> dict[str, Any]:
        """The numbers of the report in plain values."""
        return {
            "images": len(self.labels),
            "clean": measured(self.survivors()),
            "standard_risk": standard_risk(self.clean, self.labels).double().mean().item(),
            "worst_case": measured(self.worst_case()),
            "attacks": [
                {
                    "name": result.name,
                    "budget": result.budget,
                    "settings": result.settings,
                    **measured(self.survivors(result.name)),
                    "robust_risk": self.risks_by_image(result)[1].double().mean().item(),
                    "adversarial_risk": self.risks_by_image(result)[2].double().mean().item(),
                    "rejected": result.rejected,
                    "unanswered": int((result.predicted == NO_CLASS).sum()),
                    "precision": result.precision,
                    "median_size": finite_or_none(result.median_size),
                    "seconds": round(result.seconds, 3),
                }
                for result in self.attacks
            ],
        }

    def table(self, *, color: bool = False, width: int = 118) -> str:
        """The report as a table for the terminal."""
        summary = self.summary()
        table = Table(
            "attack", title=f"{counted(summary['images'], 'image')}, R_stand {summary['standard_risk']:.4f}"
        )
        for heading in ("accuracy %", "95 % interval", "R_rob", "R_adv", "seconds"):
            table.add_column(heading, justify="right")
        table.add_column("budget", overflow="fold")
        table.add_row("none (clean)", *percent(summary["clean"]), "", "", "", "")
        for row in summary["attacks"]:
            risks = (f"{row['robust_risk']:.4f}", f"{row['adversarial_risk']:.4f}")
            note = f" ({counted(row['rejected'], 'point')} rejected)" if row["rejected"] else ""
            note += f" ({row['unanswered']} answered with NaN)" if row["unanswered"] else ""
            note += f", searched in {row['precision']}" if row["precision"] != "float32" else ""
            note += f", median {row['median_size']:.3g}" if row["median_size"] is not None else ""
            budget = printable(row["budget"] + note)
            table.add_row(printable(row["name"]), *percent(row), *risks, f"{row['seconds']:.1f}", budget)
        if len(self.attacks) > 1:
            table.add_row("worst case of all", *percent(summary["worst_case"]), "", "", "", "")
        return shown(table, color=color, width=width)

    def dumps(self) -> str:
        """The report as JSON text: the numbers to read, and the predictions they come from."""
        return json.dumps(
            {
                "format": FORMAT,
                **self.summary(),
                "seed": self.seed,
                "provenance": dict(self.provenance),
                "recipe": self.recipe,
                "subject": self.subject,
                "weights": self.weights,
                "samples": {
                    "labels": packed(self.labels),
                    "clean": packed(self.clean),
                    "attacked": {result.name: packed(result.predicted) for result in self.attacks},
                },
            },
            indent=1,
        )


def loads(text: str, source: str = "the report") -> Report:
    """The report that `dumps` wrote; its numbers are computed anew from predictions that fit the accuracies in it."""
    with refused_if_damaged(source, "report", "delete it and evaluate again"):
        tree = json.loads(text)
        if tree["format"] > FORMAT:
            raise NewerFormatError
        samples, rows = tree["samples"], tree["attacks"]
        if len({row["name"] for row in rows}) < len(rows):
            raise ValueError("it holds two attacks of one name")
        most = MOST_BYTES // (len(rows) + 2)
        attacks = tuple(
            AttackResult(
                name=typed(row, "name", str),
                budget=typed(row, "budget", str),
                settings=typed(row, "settings", str),
                predicted=unpacked(samples["attacked"][row["name"]], most),
                rejected=amount(row, "rejected", int),
                precision=typed({"precision": "float32", **row}, "precision", str),
                median_size=amount(row, "median_size", float) if row["median_size"] is not None else None,
                seconds=amount(row, "seconds", float),
            )
            for row in rows
        )
        report = Report(
            labels=unpacked(samples["labels"], most, least=0),
            clean=unpacked(samples["clean"], most),
            attacks=attacks,
            seed=typed(tree, "seed", int),
            provenance=typed(tree, "provenance", dict),
            recipe=tree["recipe"],
            subject=typed(tree, "subject", str),
            weights=typed({"weights": "", **tree}, "weights", str),
        )
        require_same(report, tree)
        return report


def require_same(report: Report, tree: Mapping[str, Any]) -> None:
    """Refuse predictions that are not those of the accuracies printed beside them, as where a file was edited."""
    for name, row in ((None, tree["clean"]), *((row["name"], row) for row in tree["attacks"])):
        if not abs(row["accuracy"] - report.accuracy(name)) <= ROUNDING:
            where = "of clean images" if name is None else f"under {name}"
            raise ValueError(f"its predictions {where} are not those of its accuracy there")


def typed(tree: Mapping[str, Any], key: str, kind: type) -> Any:
    """The value under that key; one of another type is refused."""
    if type(tree[key]) is not kind:
        raise ValueError(f"its {key} should be of type {kind.__name__}, got {quoted(tree[key])}")
    return tree[key]


def amount(tree: Mapping[str, Any], key: str, kind: type) -> Any:
    """The number under that key, of that type; one that is negative or not finite is refused."""
    value = typed(tree, key, kind)
    if not 0 <= value < inf:
        raise ValueError(f"its {key} should be a finite number from 0 on, got {quoted(value)}")
    return value


def read(path: Path) -> Report:
    """The report in that file."""
    if not path.is_file():
        command = f"unperturbed evaluate {in_shell(path.parent)}"
        raise FileNotFoundError(f"there is no {printable(path)}: make it with `{command}`")
    return loads(path.read_text(encoding="utf-8", errors="replace"), str(path))


def measured(survives: Tensor) -> dict[str, Any]:
    """An accuracy with its 95 % interval."""
    low, high = wilson(int(survives.sum().item()), len(survives))
    return {"accuracy": survives.double().mean().item(), "interval": [low, high]}


def finite_or_none(size: float | None) -> float | None:
    """The number, where it is one that JSON can hold."""
    return size if size is not None and isfinite(size) else None


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's interval of a share, at 95 %."""
    z = 1.959964
    share, scale = successes / trials, 1 + z * z / trials
    center = (share + z * z / (2 * trials)) / scale
    half = z / scale * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, center - half), min(1.0, center + half)


def percent(number: Mapping[str, Any]) -> tuple[str, str]:
    """An accuracy and its interval, in percent."""
    low, high = number["interval"]
    return f"{100 * number['accuracy']:.2f}", f"{100 * low:.2f} - {100 * high:.2f}"
