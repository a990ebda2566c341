"""The paper's statements, made of comparisons that numbers decide: pass, fail, or undecided.

A comparison is decided where the difference is more than two standard errors away from what is claimed: those of the
same test images, and of the seeds where several were run. A statement passes where all of its comparisons do, or as
many as it asks for, and fails where too few can.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from .definition import Cell, Difference, Finding, Found, Statement, Verdict

ERRORS = 2.0
"""standard errors within which a difference decides nothing"""
HARDLY_MORE = 1.2
"""times the wrong images of a cell that one which is said to be like it may have"""
WITH_HARDLY_MORE = f"with at most {HARDLY_MORE:g} times as many wrong images"
NOT_MEASURED = "not yet measured"
NOTHING_TO_COMPARE = "measured, but all accuracies have fallen too far to be compared"
Standing = Verdict | Literal["on few", "no rival"]
"""what becomes of one comparison: a verdict, or why it is none"""
WORST_FIRST: tuple[Standing, ...] = ("fail", "undecided", "on few", "no rival", "pass")
WORDS_OF: Mapping[Standing, str] = {
    "fail": "fail",
    "undecided": "too close to tell",
    "on few": "measured on fewer images",
    "no rival": "over one that has collapsed",
}
"""how a sentence counts those that do not hold"""
MOST_FIGURES = 4
"""comparisons that a sentence quotes"""


class Comparison(NamedTuple):
    """That one cell lies above another, by so many points at least; below 0: that it lies no more than that under."""

    higher: Cell
    lower: Cell
    by: float = 0.0
    alike: bool = False
    """whether it also asks that hardly more images are wrong there: where few are, points say little"""


def above(words: str, comparisons: Sequence[Comparison], *, while_above: float | None = None) -> Statement:
    """That all of these comparisons hold; those whose higher cell has fallen to `while_above` count not."""

    def check(found: Found) -> Finding:
        return summed_up(*compared(found, comparisons, while_above))

    return Statement(words=words, check=check)


def mostly_above(words: str, comparisons: Sequence[Comparison], *, least: int | None = None) -> Statement:
    """That at least so many of these comparisons hold; if no number is named, more than half."""

    def check(found: Found) -> Finding:
        return summed_up(*compared(found, comparisons), least or most_of(comparisons))

    return Statement(words=words, check=check)


def wider(words: str, leads: Sequence[tuple[Comparison, Comparison]]) -> Statement:
    """That in each pair of comparisons the first holds, and by more than the second."""

    def check(found: Found) -> Finding:
        told: list[Told] = []
        for lead, other in leads:
            gain = found.gain((lead.higher, lead.lower), (other.higher, other.lower))
            first, second = (found.difference(each.higher, each.lower) for each in (lead, other))
            if gain is None or first is None or second is None:
                continue
            verdict: Verdict = min((decided(gain, 0.0), decided(first, 0.0)), key=WORST_FIRST.index)
            figures = quoted_leads(lead, first.points, other, second.points, gain)
            told.append((verdict, min(gain.points, first.points), figures))
        return summed_up(told, len(leads) - len(told), len(leads))

    return Statement(words=words, check=check)


Told = tuple[Standing, float, str]
"""what becomes of a comparison, by how much it holds, and its numbers in words"""


def compared(
    found: Found, comparisons: Sequence[Comparison], while_above: float | None = None
) -> tuple[list[Told], int, int]:
    """What becomes of each comparison that can be made, how many cannot yet, and how many there are at all."""
    told: list[Told] = []
    missing = spent = 0
    for comparison in comparisons:
        difference = found.difference(comparison.higher, comparison.lower)
        higher = found.figure(comparison.higher)
        if difference is None or higher is None:
            missing += 1
        elif while_above is not None and higher.mean <= while_above:
            spent += 1
        else:
            verdict, margin = judged(found, comparison, difference)
            standing = over_rivals(found, [comparison.lower.trial], verdict)
            told.append((standing, margin, quoted(found, comparison, difference)))
    return told, missing, len(comparisons) - spent


def among_the_best(
    words: str,
    trial: str,
    rivals: Sequence[str],
    columns: Sequence[str],
    *,
    place: int = 2,
    least: int | None = None,
) -> Statement:
    """That in each of these columns, or in so many at least, fewer than `place` rivals lie above the trial.

    Rivals that are not measured yet cannot save a column that others have won.
    """

    def check(found: Found) -> Finding:
        told: list[Told] = []
        missing = 0
        for column in columns:
            differences = [found.difference(Cell(trial, column), Cell(rival, column)) for rival in rivals]
            known = [difference for difference in differences if difference is not None]
            verdicts = [decided(difference, 0.0) for difference in known]
            lost, open_ = verdicts.count("fail"), verdicts.count("undecided")
            if len(known) < len(rivals) and lost < place:
                missing += 1
                continue
            verdict: Verdict = "fail" if lost >= place else "pass" if lost + open_ < place else "undecided"
            rank = 1 + sum(difference.points < 0 for difference in known)
            figures = f"{Cell(trial, column).in_words} ({trial}): place {rank} of {len(known) + 1}"
            told.append((over_rivals(found, rivals, verdict), float(-rank), figures))
        return summed_up(told, missing, len(columns), least)

    return Statement(words=words, check=check)


def reaches(words: str, goals: Sequence[tuple[Cell, float]]) -> Statement:
    """That each of these cells reaches its goal on all images, in percent; by the mean over seeds alone."""
    return Statement(words=words, check=lambda found: beside_bounds(found, goals, reached=True))


def falls_under(words: str, limits: Sequence[tuple[Cell, float]]) -> Statement:
    """That each of these cells lies under its limit, in percent; by the mean over seeds alone."""
    return Statement(words=words, check=lambda found: beside_bounds(found, limits, reached=False))


def beside_bounds(found: Found, bounds: Sequence[tuple[Cell, float]], *, reached: bool, less: float = 0.0) -> Finding:
    """Whether each of these cells reaches its bound, less so many points, or whether each stays under it."""
    told: list[Told] = []
    missing = 0
    for cell, bound in bounds:
        figure = found.figure(cell)
        if figure is None:
            missing += 1
            continue
        least, most = figure.possible  # A bound is one on all images, and may be out of reach or passed before.
        may = [(number >= bound - less) == reached for number in (least, most)]
        standing: Standing = "pass" if all(may) else "on few" if any(may) else "fail"
        lead = figure.mean - bound if reached else bound - figure.mean
        number, allowed = shown(found, cell), f" less {less:g}" if less else ""
        if figure.first is not None:
            all_told = "" if standing == "on few" else f", {least:.2f} to {most:.2f} on all {figure.among:,}"
            number = f"{number} on the first {figure.first:,} images alone{all_told},"
        told.append((standing, lead, f"{number} against {bound:g}{allowed}"))
    return summed_up(told, missing, len(bounds))


def faster(words: str, quick: str, slow: str, times: float) -> Statement:
    """That training the one takes the other's time divided by so many, on one device."""

    def check(found: Found) -> Finding:
        quickly, slowly = found.minutes(quick), found.minutes(slow)
        if quickly is None or slowly is None:
            return Finding("undecided", NOT_MEASURED)
        if quickly[0] <= 0 or quickly[1] != slowly[1]:
            return Finding("undecided", f"not timed on one device: {quickly[1]} and {slowly[1]}")
        ratio = slowly[0] / quickly[0]
        figures = f"{slowly[0]:.1f} minutes ({slow}) / {quickly[0]:.1f} ({quick}) = {ratio:.1f}"
        return Finding("pass" if ratio >= times else "fail", figures)

    return Statement(words=words, check=check)


def decided(difference: Difference, by: float) -> Verdict:
    """Whether a difference is at least that large, as far as its error can tell."""
    margin, doubt = difference.points - by, ERRORS * difference.error
    if margin > doubt:
        return "pass"
    return "fail" if margin < -doubt else "undecided"


def judged(found: Found, comparison: Comparison, difference: Difference) -> tuple[Verdict, float]:
    """Whether a comparison holds, and by how many points: by those of wrong images where they decide it."""
    asked: list[tuple[Verdict, float]] = [(decided(difference, comparison.by), difference.points - comparison.by)]
    if comparison.alike and (spared := found.spared(comparison.higher, comparison.lower, HARDLY_MORE)) is not None:
        asked.append((decided(spared, 0.0), spared.points))
    return min(asked, key=lambda each: (WORST_FIRST.index(each[0]), each[1]))


def over_rivals(found: Found, rivals: Iterable[str], verdict: Verdict) -> Standing:
    """The verdict, unless it is that of a trial above rivals of which one has collapsed: whatever learns is."""
    return "no rival" if verdict == "pass" and any(map(found.collapsed, rivals)) else verdict


def shown(found: Found, cell: Cell, *, beside: Cell | None = None) -> str:
    """A number and whose it is; what it is, unless the cell before it has the same."""
    of_what = "" if beside is not None and beside.in_words == cell.in_words else f"{cell.in_words} "
    return f"{of_what}{found.figure(cell)} ({called(found, cell.trial)})"


def called(found: Found, trial: str) -> str:
    """The name of a trial, and that it has collapsed where it has."""
    return f"{trial}, collapsed" if found.collapsed(trial) else trial


def quoted(found: Found, comparison: Comparison, difference: Difference) -> str:
    """A comparison in numbers, which are over all seeds; the difference is over those that both cells have.

    Where it is of the first images alone, it stands for itself: numbers of other images would not add up to it.
    """
    first, second = comparison.higher, comparison.lower
    higher, lower = found.figure(first), found.figure(second)
    most = max(figure.seeds for figure in (higher, lower) if figure is not None)
    shared = f" over {difference.seeds} of {most} seeds" if difference.seeds < most else ""
    claimed = f" (at least {comparison.by:+g})" if comparison.by else ""
    if comparison.alike and higher is not None and lower is not None:
        wrong = f"{100 - higher.mean:.2f} wrong, at most {HARDLY_MORE:g} x {100 - lower.mean:.2f}"
        claimed = f" (at least {comparison.by:+g}; {wrong})"
    both = f"{shown(found, first)} - {shown(found, second, beside=first)}{':' if shared else ' ='}"
    if difference.first is not None:
        other = "that" if first.in_words == second.in_words else second.in_words
        images = f"on the first {difference.first:,} images"
        both = f"{first.in_words} of {first.trial} less {other} of {second.trial}, {images}:"
    return f"{both} {difference.points:+.2f} ± {difference.error:.2f}{shared}{claimed}"


def quoted_leads(first: Comparison, points: float, second: Comparison, less: float, gain: Difference) -> str:
    """By how much one lead is larger than another, in numbers; whose leads they are once, if they are of the same."""
    whose, others = (f" ({lead.higher.trial} over {lead.lower.trial})" for lead in (first, second))
    here = f"{first.higher.in_words} {points:+.2f}{'' if whose == others else whose}"
    there = f"{second.higher.in_words} {less:+.2f}{'' if whose == others else others}"
    return f"{here} - {there} = {gain.points:+.2f} ± {gain.error:.2f}{whose if whose == others else ''}"


def summed_up(told: Sequence[Told], missing: int, claims: int, least: int | None = None) -> Finding:
    """One finding of several, all or so many of which have to hold: what decides it first, the closest foremost."""
    if not told:
        return Finding("undecided", NOT_MEASURED if claims else NOTHING_TO_COMPARE)
    verdicts, needed = [verdict for verdict, _, _ in told], claims if least is None else least
    lost = claims - verdicts.count("fail") < needed
    verdict: Verdict = "pass" if verdicts.count("pass") >= needed else "fail" if lost else "undecided"
    shown = sorted(told, key=lambda item: (WORST_FIRST.index(item[0]), item[1]))[:MOST_FIGURES]
    counts = f"{verdicts.count('pass')} of {claims} hold"
    for words, count in (
        *((words, verdicts.count(standing)) for standing, words in WORDS_OF.items()),
        (NOT_MEASURED, missing),
    ):
        counts += f", {count} {words}" if count else ""
    return Finding(verdict, f"{counts}. " + "; ".join(figures for _, _, figures in shown))


def most_of(cases: Sequence[object]) -> int:
    """The least number that is more than half."""
    return len(cases) // 2 + 1


def alike(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The same, which also ask that hardly more images are wrong."""
    return [comparison._replace(alike=True) for comparison in comparisons]


def growing(cells: Sequence[Cell]) -> list[Comparison]:
    """That each cell lies above the one before it."""
    return [Comparison(later, earlier) for earlier, later in pairwise(cells)]


def over(higher: str, lower: str, columns: Sequence[str], by: float = 0.0) -> list[Comparison]:
    """That one trial lies above another in all of these columns."""
    return [Comparison(Cell(higher, column), Cell(lower, column), by) for column in columns]


def each_over(pairs: Iterable[tuple[str, str]], columns: Sequence[str], by: float = 0.0) -> list[Comparison]:
    """That in each pair the first trial lies above the second in all of these columns."""
    return [comparison for higher, lower in pairs for comparison in over(higher, lower, columns, by)]
