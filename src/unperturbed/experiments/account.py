"""Experiments as text: the paper's tables with ours beside them, statements with verdicts, hours and what differs."""

from collections.abc import Sequence, Set

from ..printing import counted
from ..recipe import of_teacher
from ..recipes.published import printed
from ..recipes.words import enumerated
from ..report import Report
from .definition import COLUMNS, Cell, Experiment, Figure, Table, Trial
from .editions import Edition, fills, runs_in, shown_in, tables_told, told_of
from .evidence import Evidence, attacked_on
from .layout import aligned
from .measured import NEARLY_ALL, Measured
from .verdicts import OPEN, lines_of, told_by, waiting

NOTHING = "–"
FOR_A_WHILE = 0.05
"""the share of a run in which one class takes nearly all of C(x) that is worth a word"""


def table_text(table: Table, edition: Edition | None) -> str:
    """A table with the paper's number and ours in each cell, and a row more where a run kept other weights.

    Where the paper prints no numbers, it has rows for those of ours alone, and says how many there will be.
    """
    found = Measured(edition.evidence if edition else ())
    other = Measured(found.evidence, of_other=True)
    heading = ["paper / ours" if table.place else "ours", *(column_words(*column) for column in table.columns)]
    rows: list[list[str]] = []
    shown, by_paper = rows_of(table, edition), edition is None or edition.scale == "paper"
    for trial in shown:
        rows.append([trial.called, *(cell_text(table, trial, column, found) for column in table.columns)])
        if apart := [each for each in found.evidence if each.name == trial.name and each.has_other]:
            cells = [cell_text(table, trial, column, other, ours_alone=True) for column in table.columns]
            rows.append([f"{trial.called}, {other_words(apart)} weights", *cells])
    parts = [aligned(heading, rows)] if rows else []
    if by_paper and (open_ := len(table.rows) - len(shown)):
        parts.append(f"{open_} row{'s are' if open_ > 1 else ' is'} not measured yet.")
    return "\n\n".join(parts)


def rows_of(table: Table, edition: Edition | None) -> Sequence[Trial]:
    """The rows that a table has: those of the paper by its schedule, else those with a number."""
    if table.place and (edition is None or edition.scale == "paper"):
        return table.rows
    there = {each.name for each in edition.evidence if fills(each, table)} if edition else set[str]()
    return [trial for trial in table.rows if trial.name in there]


def other_words(runs: Sequence[Evidence]) -> str:
    """What the weights are called that runs did not keep."""
    kept = {each.kept for each in runs}
    return "other" if len(kept) > 1 else "last" if kept == {"best"} else "best"


def column_words(column: str, fraction: float) -> str:
    """The heading of a column."""
    return COLUMNS.get(column, column) + (f" {fraction:g}" if fraction != 1 else "")


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
    return (
        f"{counted(len(runs), 'run')} of {models} (seeds {seeds}) on {devices}: {training:.2f} hours of training, "
        f"{attacks:.2f} of attacks on {images} test images{where}{few}.{fallen(runs)}"
    )


def fallen(runs: Sequence[Evidence]) -> str:
    """The runs of which C(x) was one class for a while, which no accuracy in the end tells from another weakness."""
    shares = {each.file_name.removesuffix(".json"): share_of_one_answer(each) for each in runs}
    told = [f"{name} ({share:.0%})" for name, share in sorted(shares.items()) if share >= FOR_A_WHILE]
    if not told:
        return ""
    taken = f"one class took {NEARLY_ALL:.0%} of C(x) or more"
    return f" After the first tenth of training {taken} for so much of the time: {enumerated(told)}."


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


def experiment_text(experiment: Experiment, evidence: Sequence[Evidence]) -> str:
    """A whole experiment in Markdown: each edition's tables, statements and hours, then what was not run yet."""
    parts = [f"## {experiment.heading}"]
    if experiment.counted is not None:
        without_runs = Edition("paper", "own", ())
        (said,) = told_by(experiment, [without_runs])
        return "\n\n".join([*parts, experiment.counted(), "\n".join(lines_of(experiment, said, without_runs))])
    told = told_of(experiment, evidence)
    found = told_by(experiment, told)
    for edition, said in zip(told, found, strict=True):
        parts.append(f"### {edition.title[0].upper()}{edition.title[1:]}")
        own = tables_told(experiment, edition, evidence)
        parts.extend(f"{table.title}:\n\n{table_text(table, edition)}" for table in own)
        if said:
            parts.append("\n".join(lines_of(experiment, said, edition)))
        parts.append(spent(own, edition))
    missing = [table for table in experiment.tables if not any(shown_in(table, edition) for edition in told)]
    open_ = [f"- {OPEN}: {words}" for words in waiting(experiment, found)]
    if told and (missing or open_):
        parts.append("### Not measured yet")
    parts.extend(f"{table.title}:\n\n{table_text(table, None)}" for table in missing)
    if open_:
        parts.append("\n".join(open_))
    parts.extend(f"What differs: {remark}." for remark in experiment.remarks)
    return "\n\n".join(parts)
