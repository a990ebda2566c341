"""Experiments as text: the paper's tables with ours beside them, statements with verdicts, hours and what differs."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from ..recipe import of_teacher
from ..recipes.published import printed
from ..recipes.words import ATTACKS, enumerated
from ..report import Report
from .definition import CLEAN, SURFACES, Cell, Experiment, Figure, Table, Trial
from .evidence import Evidence, attacked_on
from .layout import aligned
from .measured import Measured, concerned, of_edition
from .scales import NETWORKS, SCALES, Network, Scale
from .statements import NOT_MEASURED

NOTHING = "–"
VERDICTS = {"pass": "**pass**", "fail": "**fail**", "undecided": "not decided"}
NO_RESULT = "not judged by a smoke run"
NEARLY_ALL, FOR_A_WHILE = 0.9, 0.05
"""the share of C(x) that one class takes where it has fallen, and the share of a run that is worth a word"""


@dataclass(frozen=True, slots=True)
class Edition:
    """All evidence of one scale, with one network in place of WRN-34-10 or with that itself."""

    scale: Scale
    network: Network
    evidence: Sequence[Evidence]

    @property
    def title(self) -> str:
        """What it is called."""
        words = SCALES[self.scale]
        return words if self.scale == "smoke" else f"{words}, {NETWORKS[self.network]}"


def editions(evidence: Sequence[Evidence]) -> list[Edition]:
    """Every scale and network of which there is evidence, the paper's schedule first."""
    scales: tuple[Scale, ...] = ("paper", "short", "smoke")
    networks: tuple[Network, ...] = ("own", "resnet-18")
    return [
        Edition(scale, network, of_edition(evidence, scale, network))
        for scale in scales
        for network in networks
        if any(each.scale == scale and each.network == network for each in evidence)
    ]


def table_text(table: Table, edition: Edition | None) -> str:
    """A table with the paper's number and ours in each cell, and a row more where a run kept other weights."""
    found = Measured(edition.evidence if edition else ())
    other = Measured(found.evidence, of_other=True)
    heading = ["paper / ours" if table.place else "ours", *(column_words(*column) for column in table.columns)]
    rows: list[list[str]] = []
    for trial in table.rows:
        rows.append([trial.called, *(cell_text(table, trial, column, found) for column in table.columns)])
        if apart := [each for each in found.evidence if each.name == trial.name and each.has_other]:
            cells = [cell_text(table, trial, column, other, ours_alone=True) for column in table.columns]
            rows.append([f"{trial.called}, {other_words(apart)} weights", *cells])
    return aligned(heading, rows)


def other_words(runs: Sequence[Evidence]) -> str:
    """What the weights are called that runs did not keep."""
    kept = {each.kept for each in runs}
    return "other" if len(kept) > 1 else "last" if kept == {"best"} else "best"


def column_words(column: str, fraction: float) -> str:
    """The heading of a column."""
    words = {CLEAN: "clean", "minutes": "minutes", "pgd-10": "PGD-10", "pgd-20": "PGD-20"} | SURFACES
    shown = words.get(column, ATTACKS.get(column, column))
    return shown if fraction == 1 else f"{shown} {fraction:g}"


def cell_text(
    table: Table, trial: Trial, column: tuple[str, float], found: Measured, *, ours_alone: bool = False
) -> str:
    """A cell: the paper's number, where the paper has one, and ours."""
    name, fraction = column
    if name == "minutes":
        ours = minutes_text(found, trial.name)
        theirs = printed(table.place, trial.name).get("minutes")
    else:
        ours = figure_text(found.figure(Cell(trial.name, name, fraction)))
        theirs = printed(table.place, trial.name).get(name) if fraction == 1 else None
    if not table.place or ours_alone:
        return ours
    return f"{NOTHING if theirs is None else printed_text(name, theirs)} / {ours}"


def figure_text(figure: Figure | None) -> str:
    """Our number, if there is one, and of how many images where that is not all."""
    if figure is None:
        return NOTHING
    return str(figure) if figure.first is None else f"{figure} ({figure.first:,})"


def minutes_text(found: Measured, trial: str) -> str:
    """The minutes of our training, if it was timed."""
    timed = found.minutes(trial)
    return NOTHING if timed is None else f"{timed[0]:.1f}"


def printed_text(column: str, number: float) -> str:
    """A number of the paper's as it prints it."""
    return f"{number:,.0f}" if column == "minutes" else f"{number:.2f}"


def statement_lines(experiment: Experiment, edition: Edition) -> list[str]:
    """Every statement of which an edition measured something: its verdict and the figures.

    Smoke runs, which are no results, decide none.
    """
    findings = [(statement, statement.check(Measured(edition.evidence))) for statement in experiment.statements]
    return [
        f"- {NO_RESULT if edition.scale == 'smoke' else VERDICTS[verdict]}: {statement.words} ({figures})"
        for statement, (verdict, figures) in findings
        if figures != NOT_MEASURED
    ]


def open_statements(experiment: Experiment, told: Sequence[Edition]) -> list[str]:
    """Every statement of which none of these editions measured anything."""
    found = [Measured(edition.evidence) for edition in told]
    return [
        f"- not yet: {statement.words}"
        for statement in experiment.statements
        if all(statement.check(each).figures == NOT_MEASURED for each in found)
    ]


def spent(tables: Sequence[Table], edition: Edition) -> str:
    """Hours, devices, seeds and networks of the runs in these tables."""
    runs = runs_in(tables, edition)
    training = seconds_trained(runs) / 3600
    made = [report for each in runs for report in reports_made(each)]
    attacks = sum(result.seconds for report in made for result in report.attacks) / 3600
    devices, attacking = (
        " and ".join(sorted(each))
        for each in (
            {device for run in runs for device in run.device.split(", ")},
            {device for report in made for device in attacked_on(report).split(", ")},
        )
    )
    where = f", made on {attacking}" if attacking != devices else ""
    models = ", ".join(sorted({type(each.recipe.model).__name__ for each in runs}))
    images = ", ".join(sorted({f"{len(each.report.labels):,}" for each in runs}))
    seeds = ", ".join(str(seed) for seed in sorted({each.seed for each in runs}))
    attacked, counts = on_fewer_images(runs, {column for table in tables for column, _ in table.columns})
    few = f", {enumerated(attacked)} on the first {enumerated(counts)} where a cell says so" if counts else ""
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return (
        f"{count} of {models} (seeds {seeds}) on {devices}: {training:.2f} hours of training, "
        f"{attacks:.2f} of attacks on {images} test images{where}{few}.{fallen(runs)}"
    )


def runs_in(tables: Sequence[Table], edition: Edition) -> list[Evidence]:
    """The evidence of an edition that these tables show."""
    return [each for each in edition.evidence if any(fills(each, table) for table in tables)]


def fills(evidence: Evidence, table: Table) -> bool:
    """Whether a run has a row in a table, and anything to show in it."""
    cells = (Cell(evidence.name, column, fraction) for column, fraction in table.columns)
    return any(trial.name == evidence.name for trial in table.rows) and any(
        evidence.samples(cell) is not None for cell in cells
    )


def fallen(runs: Sequence[Evidence]) -> str:
    """The runs of which C(x) was one class for a while, which no accuracy in the end tells from another weakness."""
    shares = {each.file_name.removesuffix(".json"): share_of_one_answer(each) for each in runs}
    told = [f"{name} ({share:.0%})" for name, share in sorted(shares.items()) if share >= FOR_A_WHILE]
    if not told:
        return ""
    began = "after the first tenth of the training"
    return f" One class took {NEARLY_ALL:.0%} of C(x) or more for a part of the time {began} of {enumerated(told)}."


def share_of_one_answer(evidence: Evidence) -> float:
    """The share of a run's records, but for its first tenth, in which one class took nearly all of C(x)."""
    records = zip(evidence.log.get("step", ()), evidence.log.get("largest_class_share", ()), strict=False)
    later = [share for step, share in records if step > evidence.recipe.steps / 10]
    return sum(share >= NEARLY_ALL for share in later) / len(later) if later else 0.0


def seconds_trained(runs: Sequence[Evidence]) -> float:
    """How long a device was busy with training these runs; a teacher that several share, before them, once."""
    teachers = {(of_teacher(each.recipe), each.teacher_seconds / each.teacher_together) for each in runs}
    own = sum((each.seconds - each.teacher_seconds) / each.together for each in runs)
    return own + sum(seconds for _, seconds in teachers)


def on_fewer_images(runs: Sequence[Evidence], columns: Set[str]) -> tuple[list[str], list[str]]:
    """The attacks in these columns that were made on the first images alone, and on how many."""
    found = {
        (column_words(name, 1.0), len(few.labels))
        for each in runs
        for name in {result.name for report in each.on_fewer for result in report.attacks} & columns
        if (few := each.of_fewer(name)) is not None
    }
    return sorted({name for name, _ in found}), [f"{count:,}" for count in sorted({count for _, count in found})]


def reports_made(evidence: Evidence) -> list[Report]:
    """All reports on a run: on both weights, on fewer images and at all fractions; that of the whole counts once."""
    swept = evidence.sweep.reports if evidence.sweep is not None else {}
    parts = [report for fraction, report in swept.items() if fraction != 1]
    other = () if evidence.other is None else (evidence.other,)
    return [evidence.report, *other, *evidence.on_fewer, *parts]


def shown_in(table: Table, edition: Edition) -> bool:
    """Whether a table has a row that is this edition's own; rows without WRN-34-10 belong to the paper's networks."""
    mine = [each for each in edition.evidence if edition.network == "own" or concerned(each)]
    return any(fills(each, table) for each in mine)


def experiment_text(experiment: Experiment, evidence: Sequence[Evidence]) -> str:
    """A whole experiment in Markdown: each edition's tables, statements and hours, then what was not run yet."""
    parts = [f"## {experiment.name}: {experiment.title}"]
    if experiment.counted is not None:
        without_runs = Edition("paper", "own", ())
        return "\n\n".join([*parts, experiment.counted(), "\n".join(statement_lines(experiment, without_runs))])
    told = [edition for edition in editions(evidence) if any(shown_in(table, edition) for table in experiment.tables)]
    # Runs without WRN-34-10 belong to both editions of a scale: what rests on them alone is said once.
    said: set[tuple[str, str]] = set()
    for edition in told:
        parts.append(f"### {edition.title[0].upper()}{edition.title[1:]}")
        own = [table for table in experiment.tables if shown_in(table, edition)]
        parts.extend(f"{table.title}:\n\n{table_text(table, edition)}" for table in own)
        lines = [(edition.scale, line) for line in statement_lines(experiment, edition)]
        if fresh := [line for scale, line in lines if (scale, line) not in said]:
            parts.append("\n".join(fresh))
        said.update(lines)
        parts.append(spent(own, edition))
    missing = [table for table in experiment.tables if not any(shown_in(table, edition) for edition in told)]
    waiting = open_statements(experiment, told)
    if told and (missing or waiting):
        parts.append("### Not measured yet")
    parts.extend(f"{table.title}:\n\n{table_text(table, None)}" for table in missing)
    if waiting:
        parts.append("\n".join(waiting))
    parts.extend(f"What differs: {remark}." for remark in experiment.remarks)
    return "\n\n".join(parts)
