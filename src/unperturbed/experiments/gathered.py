"""Evidence gathered from the directory of a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from .. import report as reports
from .. import sweeps
from ..own_parts import is_by
from ..printing import printable
from ..progress import HELD_OUT
from ..recipe import Recipe
from ..report import Report
from ..runs import RunDirectory
from .evidence import Evidence
from .notes import is_duration, read_notes
from .scales import Network, Scale
from .settled import OTHER_WEIGHTS

LOG_LINES = 100
"""lines of a log that are kept"""
OTHER_REPORT = "report-other.json"
"""what an evaluation found on the weights that a run did not keep"""
SLOW_REPORT = "report-slow.json"
"""what attacks that take long found on fewer images"""


def of_run(directory: Path, name: str, seed: int, scale: Scale, network: Network) -> Evidence | None:
    """The evidence in the directory of a run, be its weights elsewhere; none where it is not attacked yet."""
    run = RunDirectory(directory)
    if not run.report.is_file():
        return None
    recipe, log, notes = run.read_recipe(), run.read_log(), read_notes(directory)
    teacher_seconds = float(notes.get("teacher_seconds", 0.0))
    other, slow = directory / OTHER_REPORT, directory / SLOW_REPORT
    return Evidence(
        name=name,
        seed=seed,
        scale=scale,
        network=network,
        recipe=recipe,
        report=report_of(recipe, run.report),
        other=report_of(recipe, other) if other.is_file() else None,
        on_fewer=(report_of(recipe, slow),) if slow.is_file() else (),
        sweep=sweeps.read(directory),
        selected=notes.get("selected", {}),
        held_out=held_out(log),
        surfaces=notes.get("surfaces", {}),
        seconds=seconds_of(run) + teacher_seconds,
        teacher_seconds=teacher_seconds,
        teacher_together=notes.get("teacher_together", 1),
        together=notes.get("together", 1),
        trained_on=str(notes.get("trained_on", "")),
        trained_by=str(notes.get("trained_by", "")),
        log=thinned(log),
    )


def report_of(recipe: Recipe, path: Path) -> Report:
    """The report in a file, which has to be one on a run by that recipe, and on the weights that lie there."""
    report = reports.read(path)
    if not is_of(recipe, report):
        raise ValueError(
            f"{printable(path)} is a report on a run by another recipe than the one beside it: move it elsewhere, "
            "and the same command without --collect makes it again"
        )
    if not report.is_on(weights_under(path)):
        raise ValueError(
            f"{printable(path)} is of other weights than {weights_under(path).name} beside it: restore them, or make "
            "it again by the same command without --collect"
        )
    return report


def own_report(path: Path) -> Report | None:
    """The report in a file; none where there is none, or one on other weights than those that lie there."""
    report = reports.read(path) if path.is_file() else None
    return report if report is not None and report.is_on(weights_under(path)) else None


def weights_under(report: Path) -> Path:
    """The file of the weights that the report in that file is on."""
    return report.with_name(OTHER_WEIGHTS) if report.name == OTHER_REPORT else RunDirectory(report.parent).weights


def is_of(recipe: Recipe, report: Report) -> bool:
    """Whether a report is one on a run by that recipe, or does not say."""
    return report.recipe is None or is_by(recipe, json.dumps(report.recipe))


def seconds_of(run: RunDirectory) -> float:
    """How long a run was trained, by its log."""
    seconds = [record.get("seconds") for record in run.read_log()]
    if not all(map(is_duration, seconds)):
        raise ValueError(
            f"{printable(run.path / 'log.jsonl')} has a line without its seconds: restore it, or delete "
            f"{printable(run.path)} to start anew"
        )
    return sum(cast(list[float], seconds))


def thinned(log: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The log as columns of at most so many lines, evenly spread, the last among them; four digits of each number."""
    if not log:
        return {}
    count = min(len(log), LOG_LINES)
    lines = [log[(index + 1) * len(log) // count - 1] for index in range(count)]
    names = [name for name, value in lines[0].items() if isinstance(value, int | float) and name != HELD_OUT]
    return {
        name: [float(f"{line.get(name, 0.0):.4g}") if name != "step" else line["step"] for line in lines]
        for name in names
    }


def held_out(log: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The steps at which held-out images were looked at, and accuracy there; nothing where there were none."""
    lines = [record for record in log if isinstance(record.get(HELD_OUT), int | float)]
    return {"step": [line["step"] for line in lines], "accuracy": [line[HELD_OUT] for line in lines]} if lines else {}
