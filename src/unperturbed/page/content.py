"""What is on a page, in plain values: every number of its tables and charts, from the reports of the runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..comparison import differing_settings
from ..curves import Panel, is_whole, training_curves
from ..recipes.published import published
from ..recipes.words import ATTACKS
from ..report import AttackResult, Report, measured
from .evaluated import EvaluatedRun, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """An attack with its settings, under which runs may be compared."""

    name: str
    budget: str
    settings: str
    label: str
    """the attack as the paper writes it, with what tells it from others of its name"""

    @property
    def title(self) -> str:
        """The attack as the paper writes it."""
        return ATTACKS.get(self.name, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """A measured share of images, and what the paper reports for it."""

    share: float
    low: float
    high: float
    best: bool = False
    paper: tuple[float, str] | None = None
    """accuracy in percent, and where it stands"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """The three risks under one attack, averaged over the images."""

    robust: float
    adversarial: float
    standard_and_robust: float
    """the share of images that are wrong and change too: counted once, as Lemma 1 has it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The numbers of one run, in the order of the columns."""

    title: str
    images: int
    standard_risk: float
    clean: Accuracy
    attacked: tuple[Accuracy | None, ...]
    worst: Accuracy | None
    """over all attacks, image by image; none where runs met different attacks"""
    risks: tuple[Risks | None, ...]


def columns_of(group: Group) -> list[Column]:
    """The attacks of all runs, each with its settings once."""
    found = (result for run in group.runs for result in run.report.attacks)
    unique = {(result.name, result.settings): result for result in found}
    return [
        Column(
            name=result.name, budget=result.budget, settings=result.settings, label=label_of(result, unique.values())
        )
        for result in unique.values()
    ]


def label_of(result: AttackResult, others: Iterable[AttackResult]) -> str:
    """The attack as the paper writes it; with its budget, or else what it differs by, where others have its name."""
    namesakes = [other for other in others if other.name == result.name]
    title = ATTACKS.get(result.name, result.name)
    if len(namesakes) == 1:
        return title
    alike = [other.settings for other in namesakes if other.budget == result.budget]
    differing = dict(zip(alike, differing_settings(*alike), strict=True))[result.settings]
    return f"{title}, {result.budget if len(alike) == 1 else differing}"


def result_of(report: Report, column: Column) -> AttackResult | None:
    """What the attack of that column did, where it was run."""
    matching = (each for each in report.attacks if (each.name, each.settings) == (column.name, column.settings))
    return next(matching, None)


def rows_of(group: Group) -> list[Row]:
    """The table of all runs, the best of each column marked."""
    columns = columns_of(group)
    complete = all(result_of(run.report, column) is not None for run in group.runs for column in columns)
    rows = [row_of(run, columns, worst=complete and len(columns) > 1) for run in group.runs]
    return marked(rows)


def row_of(run: EvaluatedRun, columns: Sequence[Column], *, worst: bool) -> Row:
    """One run, nothing marked yet."""
    report, whole = run.report, run.report.survivors()
    results = [result_of(report, column) for column in columns]
    return Row(
        title=run.title,
        images=len(report.labels),
        standard_risk=1 - report.accuracy(),
        clean=accuracy_of(whole, published(run.recipe)),
        attacked=tuple(
            None
            if result is None
            else accuracy_of(report.survivors(result.name), published(run.recipe, result.name, result.settings))
            for result in results
        ),
        worst=accuracy_of(report.worst_case()) if worst else None,
        risks=tuple(None if result is None else risks_of(report, result) for result in results),
    )


def accuracy_of(survives: Tensor, paper: tuple[float, str] | None = None) -> Accuracy:
    """An accuracy with its interval."""
    found = measured(survives)
    low, high = found["interval"]
    return Accuracy(share=found["accuracy"], low=low, high=high, paper=paper)


def risks_of(report: Report, result: AttackResult) -> Risks:
    """The risks of a report under an attack."""
    standard, robust, adversarial = report.risks_by_image(result)
    both = standard.bool() & robust.bool()
    shares = [part.double().mean().item() for part in (robust, adversarial, both)]
    return Risks(robust=shares[0], adversarial=shares[1], standard_and_robust=shares[2])


def marked(rows: Sequence[Row]) -> list[Row]:
    """The rows with the best accuracy of each column marked, among the runs that were on the same images."""
    return [with_marks(row, [other for other in rows if other.images == row.images]) for row in rows]


def with_marks(row: Row, rivals: Sequence[Row]) -> Row:
    """The row with each of its cells marked that no rival's exceeds; a cell without a rival is not compared."""
    columns = zip(*((rival.clean, *rival.attacked, rival.worst) for rival in rivals), strict=True)
    shares = [[cell.share for cell in column if cell is not None] for column in columns]
    tops = [max(found) if len(found) > 1 else None for found in shares]
    cells = zip((row.clean, *row.attacked, row.worst), tops, strict=True)
    clean, *attacked, worst = [cell and replace(cell, best=cell.share == top) for cell, top in cells]
    return replace(row, clean=clean, attacked=tuple(attacked), worst=worst)


def confusions_of(group: Group) -> list[list[list[list[int]] | None]]:
    """For each run, clean and under each column: (class, prediction, count) of all pairs that occur.

    An image that is wrong already counts with C(x): x itself lies in its neighborhood. The diagonal is then just what
    the accuracies count.
    """
    columns = columns_of(group)
    tables: list[list[list[list[int]] | None]] = []
    for run in group.runs:
        report = run.report
        right = report.survivors()
        found: list[list[list[int]] | None] = [pairs(report.labels, report.clean)]
        for column in columns:
            result = result_of(report, column)
            said = None if result is None else torch.where(right, result.predicted, report.clean)
            found.append(None if said is None else pairs(report.labels, said))
        tables.append(found)
    return tables


def pairs(labels: Tensor, said: Tensor) -> list[list[int]]:
    """Each pair of class and prediction that occurs, with its count."""
    unique, counts = torch.stack([labels, said]).unique(dim=1, return_counts=True)
    return torch.cat([unique, counts.unsqueeze(0)]).t().tolist()


def curves_of(group: Group) -> tuple[Panel, ...]:
    """The training curves of all runs that hold a log."""
    logged = [run.run for run in group.runs if any(map(is_whole, run.log))]
    return training_curves(logged) if logged else ()


def rounded(value: object) -> float | None:
    """A number with the digits that a curve shows; what is no finite number is a gap."""
    if not isinstance(value, int | float) or value != value or abs(value) > 1e300:
        return None
    return float(f"{value:.4g}")


def training_seconds(run: EvaluatedRun) -> float:
    """The time that the steps in the log took."""
    return sum(found for line in run.log if (found := rounded(line.get("seconds"))) is not None)
