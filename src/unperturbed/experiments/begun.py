"""Attacks that were interrupted: what they did to the first images counts as if they had been made on those alone."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from ..recipes.budgets import Stated
from ..report import AttackResult, Report
from ..sameness import settings_of
from ..unfinished import FILE, Part, Unfinished
from .definition import Trial
from .evidence import Evidence


def with_begun(evidence: Evidence, directory: Path, trial: Trial) -> Evidence:
    """The evidence with every attack that was interrupted, beside those made on fewer images on purpose."""
    unfinished, known = Unfinished(directory / FILE), trial.known_at(evidence.scale)
    found = [few for whole in (evidence.report, *evidence.on_fewer) for few in begun(unfinished, whole, known)]
    return replace(evidence, on_fewer=tuple(few for few in (*evidence.on_fewer, *found) if few.attacks))


def begun(unfinished: Unfinished, report: Report, known: Mapping[str, Stated]) -> Iterator[Report]:
    """A report on the first images for each known attack that was interrupted on this subject."""
    done = {result.name for result in report.attacks}
    for subject, name, settings, precision in unfinished.held():
        if subject != report.subject or name in done or name not in known or settings_of(known[name]) != settings:
            continue
        if parts := from_the_start(unfinished.read((subject, name, settings, precision))):
            predicted = torch.cat([part.predicted for part in parts])
            sizes = [part.sizes for part in parts if part.sizes is not None]
            result = AttackResult(
                name=name,
                budget=known[name].budget,
                settings=settings,
                predicted=predicted,
                rejected=sum(part.rejected for part in parts),
                precision=precision,
                median_size=torch.cat(sizes).median().item() if sizes else None,
                seconds=sum(part.seconds for part in parts),
            )
            first = slice(len(predicted))
            yield replace(
                report, labels=report.labels[first], clean=report.clean[first], attacks=(result,), subject=""
            )


def from_the_start(parts: dict[int, Part]) -> list[Part]:
    """The parts that follow each other from the first image on."""
    found: list[Part] = []
    while (part := parts.get(sum(len(each.predicted) for each in found))) is not None:
        found.append(part)
    return found
