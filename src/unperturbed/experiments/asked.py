"""What counts of the attacks on a run: what else `evaluate` or `curve` left in its directory does not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..report import AttackResult, Report
from ..sameness import settings_of
from .definition import Trial
from .evidence import Evidence
from .scales import images_attacked


def as_asked(evidence: Evidence, trial: Trial) -> Evidence | None:
    """The evidence without attacks by other settings than the trial has; none where it is on other images.

    A sweep of other weights than those of the report, as one copied from another run, does not count either.
    """
    scale = evidence.scale
    images = images_attacked(scale)
    if len(evidence.report.labels) != images:
        return None
    known, sweep = trial.known_at(scale), evidence.sweep
    if sweep is not None:
        subject = evidence.report.subject
        sweep = replace(
            sweep,
            reports={
                part: limited(report, trial.known_at(scale, part))
                for part, report in sweep.reports.items()
                if report.subject == subject and len(report.labels) == images
            },
        )
    return replace(
        evidence,
        report=limited(evidence.report, known),
        other=None if evidence.other is None else limited(evidence.other, known),
        on_fewer=tuple(few for each in evidence.on_fewer if (few := limited(each, known)).attacks),
        sweep=sweep,
    )


def limited(report: Report, known: Mapping[str, Any]) -> Report:
    """The report with those of its attacks that have the settings known by their names."""
    settings = {name: settings_of(attack) for name, attack in known.items()}
    return replace(report, attacks=tuple(made for made in report.attacks if settings.get(made.name) == made.settings))


def is_whole(asked: Evidence, evidence: Evidence) -> bool:
    """Whether nothing of the evidence was left out, as what was not asked for is."""
    return attacks_in(asked) == attacks_in(evidence)


def attacks_in(evidence: Evidence) -> list[tuple[AttackResult, ...]]:
    """The attacks of each report; what one of them found equals nothing but itself."""
    other = () if evidence.other is None else (evidence.other,)
    swept = {} if evidence.sweep is None else evidence.sweep.reports
    return [report.attacks for report in (evidence.report, *other, *evidence.on_fewer, *swept.values())]
