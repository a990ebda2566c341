"""Evidence made at different times: what was found of the very same weights counts together."""

from collections.abc import Sequence
from dataclasses import replace

from ..report import Report
from ..sweeps import Sweep, added
from .evidence import Evidence, holds


def united(fresh: Evidence, there: Evidence) -> Evidence:
    """The fresh evidence with what there is of the same weights; alone where those are other weights.

    Minutes and log are those of the run that shared its device with fewer others.
    """
    on_same = fresh.report.subject == there.report.subject and fresh.report.clean.equal(there.report.clean)
    if there.recipe != fresh.recipe or not fresh.report.subject or not on_same:
        return fresh
    report = fresh.report.with_attacks_of(there.report)
    timed = min((fresh, there), key=lambda each: max(each.together, each.teacher_together))
    return replace(
        timed,
        report=report,
        other=there.other if fresh.other is None else fresh.other.with_attacks_of(there.other or fresh.other),
        on_fewer=on_most(report, (*fresh.on_fewer, *there.on_fewer)),
        sweep=both(fresh.sweep, there.sweep),
        selected=fresh.selected or there.selected,
        held_out=fresh.held_out or there.held_out,
        # What versions before measured does not count beside what was measured since: one of both, as a whole.
        surfaces=fresh.surfaces if fresh.surfaces.keys() >= there.surfaces.keys() else there.surfaces,
        log=timed.log or fresh.log or there.log,
    )


def on_most(report: Report, on_fewer: Sequence[Report]) -> tuple[Report, ...]:
    """Of reports under attacks on the first images alone, that on most for each which is not made on all."""
    most: dict[str, Report] = {}
    for each in on_fewer:
        for name in (result.name for result in each.attacks if not holds(report, result.name)):
            most[name] = max(most.get(name, each), each, key=lambda few: len(few.labels))
    return tuple({id(each): each for each in most.values()}.values())


def both(fresh: Sweep | None, there: Sweep | None) -> Sweep | None:
    """What both sweeps hold; the fresh one alone where the other is of another radius."""
    if fresh is None or there is None:
        return fresh or there
    return fresh if fresh.eps != there.eps else replace(fresh, reports=added(fresh.reports, there.reports))
