"""Evidence made at different times: what was found of the very same weights counts together."""

from collections.abc import Sequence
from dataclasses import replace

from ..report import Report
from ..sweeps import Sweep, added, with_others
from .evidence import Evidence, holds


def united(fresh: Evidence, there: Evidence) -> Evidence:
    """The fresh evidence with what there is of the same weights; alone where those are other weights.

    Minutes and log are those of the run that shared its device with fewer others.
    """
    if there.recipe != fresh.recipe or not on_same(fresh.report, there.report):
        return fresh
    report = with_others(fresh.report, there.report)
    timed = min((fresh, there), key=lambda each: max(each.together, each.teacher_together))
    return replace(
        fresh,
        report=report,
        other=there.other if fresh.other is None else with_others(fresh.other, there.other),
        on_fewer=on_most(report, (*fresh.on_fewer, *there.on_fewer)),
        sweep=both(fresh.sweep, there.sweep),
        selected=fresh.selected or there.selected,
        surfaces={**there.surfaces, **fresh.surfaces},
        seconds=timed.seconds,
        teacher_seconds=timed.teacher_seconds,
        teacher_together=timed.teacher_together,
        together=timed.together,
        trained_on=timed.trained_on,
        trained_by=timed.trained_by,
        log=timed.log,
    )


def on_same(report: Report, other: Report) -> bool:
    """Whether two reports are on the same weights and images: one that does not say is on none."""
    return bool(report.subject) and report.subject == other.subject and report.clean.equal(other.clean)


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
