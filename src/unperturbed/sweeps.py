"""A sweep: one model attacked at several perturbation fractions, kept in the directory of its run."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from . import report as reports
from .attacks import Attack
from .defender import Defender
from .engine import Precision, layout_kept
from .evaluation import AttackWatcher, evaluate
from .files import NewerFormatError, refused_if_damaged, set_aside, write_whole
from .locks import by_turns
from .report import Report
from .runtime import provenance_of_both
from .sameness import settings_of
from .schedules import require_fractions
from .unfinished import Unfinished

FORMAT = 1
FILE = "sweep.json"
"""its name in the directory of a run"""
Means = tuple[str, str, str, str]
"""what tells the results of attacks apart: the subject, the attack's name and settings, and the precision"""
AttacksAt = Callable[[float], Mapping[str, Attack]]
"""perturbation fraction -> attacks that go that far"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """Reports on one model and one set of images, by perturbation fraction."""

    eps: float
    """the Linf radius at fraction 1"""
    reports: Mapping[float, Report]

    def dumps(self) -> str:
        """The sweep as JSON text."""
        found = [
            {"fraction": fraction, "report": json.loads(report.dumps())}
            for fraction, report in sorted(self.reports.items())
        ]
        return json.dumps({"format": FORMAT, "eps": self.eps, "sweep": found}, indent=1)


def loads(text: str, source: str = "the sweep") -> Sweep:
    """The sweep that `dumps` wrote."""
    with refused_if_damaged(source, "sweep", "delete it, and the same command makes it anew"):
        tree = json.loads(text)
        if tree["format"] > FORMAT:
            raise NewerFormatError
        found = {float(row["fraction"]): reports.loads(json.dumps(row["report"])) for row in tree["sweep"]}
        require_fractions("a fraction", tuple(found))
        if len({report.subject for report in found.values()}) > 1:
            raise ValueError("its reports are on different models or images")
        return Sweep(eps=float(tree["eps"]), reports=found)


def read(directory: Path) -> Sweep | None:
    """The sweep in the directory of a run, if there is one."""
    path = directory / FILE
    return loads(path.read_text(encoding="utf-8", errors="replace"), str(path)) if path.is_file() else None


def sweep(
    f: nn.Module,
    images: Tensor,
    labels: Tensor,
    attacks_at: AttacksAt,
    fractions: Sequence[float],
    directory: Path,
    *,
    eps: float,
    at_most: Report | None = None,
    batch: int | None = None,
    seed: int = 0,
    device: str = "auto",
    watcher: AttackWatcher | None = None,
    recipe: object = None,
    unfinished: Unfinished | None = None,
) -> Sweep:
    """Attack f at each fraction, and keep what is found in that directory; what is there already is not done again.

    At fraction 0 no attack is made: that is clean accuracy. `at_most` is a report at fraction 1, if one is at hand:
    it is taken over where it was made in batches of the same size, as it is where neither says of which.
    """
    require_fractions("a perturbation fraction", tuple(fractions))
    require_growth(attacks_at)
    before, kept = read(directory), set[tuple[float, float, Means]]()
    found = dict(before.reports) if before is not None and before.eps == eps else {}
    defenders: dict[Precision, Defender] = {}  # One copy of the network serves the whole curve.
    with layout_kept(f):
        for fraction in sorted(set(fractions)):
            attacks = attacks_at(fraction) if fraction else {}
            earlier = joined(found.get(1.0), at_most, attacks) if fraction == 1 else found.get(fraction)

            def keep(report: Report, fraction: float = fraction) -> None:
                alike = {other: theirs for other, theirs in found.items() if theirs.subject == report.subject}
                found.clear()
                found.update(alike | {fraction: report})
                with by_turns(directory):
                    now = read(directory)  # Another process may have written there since.
                    whole = Sweep(
                        eps=eps, reports=found if now is None or now.eps != eps else added(found, now.reports)
                    )
                    if now is not None and held_by(now) - held_by(whole) - kept:
                        set_aside(directory / FILE)
                        kept.update(held_by(now))
                    write_whole(directory / FILE, whole.dumps().encode())

            report = evaluate(
                f,
                images,
                labels,
                attacks,
                batch=batch,
                seed=seed,
                device=device,
                watcher=watcher,
                recipe=recipe,
                previous=earlier,
                save=keep,
                unfinished=unfinished,
                defenders=defenders,
            )
            keep(report)
    return Sweep(eps=eps, reports={fraction: found[fraction] for fraction in sorted(set(fractions))})


def joined(earlier: Report | None, at_hand: Report | None, attacks: Mapping[str, Attack]) -> Report | None:
    """What an earlier sweep and a report at hand know of these attacks; the sweep's alone where they do not fit."""
    if at_hand is None or (earlier is not None and earlier.subject != at_hand.subject):
        return earlier
    wanted = {(name, settings_of(attack)) for name, attack in attacks.items()}
    known = tuple(result for result in at_hand.attacks if (result.name, result.settings) in wanted)
    names = {result.name for result in known}
    others = () if earlier is None else tuple(result for result in earlier.attacks if result.name not in names)
    ways = provenance_of_both(at_hand.provenance, earlier.provenance) if earlier and others else at_hand.provenance
    return replace(at_hand, attacks=(*others, *known), provenance=ways)


def added(found: Mapping[float, Report], others: Mapping[float, Report]) -> dict[float, Report]:
    """These reports, with what others on the same model and images hold by attacks that these do not have."""
    subjects = {report.subject for report in found.values()}
    alike = {fraction: report for fraction, report in others.items() if report.subject in subjects}
    joined = {part: report.with_attacks_of(alike.get(part, report)) for part, report in found.items()}
    return dict(sorted((alike | joined).items()))


def means_of(report: Report) -> set[Means]:
    """All that a report found by attacks: on what, and by what means."""
    return {(report.subject, result.name, result.settings, result.precision) for result in report.attacks}


def held_by(sweep: Sweep) -> set[tuple[float, float, Means]]:
    """All that a sweep found by attacks, with its eps and the fraction."""
    return {(sweep.eps, fraction, means) for fraction, report in sweep.reports.items() for means in means_of(report)}


def require_growth(attacks_at: AttacksAt) -> None:
    """Refuse attacks that go as far at half the fraction as at the whole."""
    half, whole = attacks_at(0.5), attacks_at(1.0)
    for name, attack in whole.items():
        if settings_of(half[name]) == settings_of(attack):
            budget = getattr(attack, "budget", "fixed")
            raise ValueError(
                f"the perturbation fraction does not scale {name}, whose budget is {budget}: "
                "choose an attack in an Linf or an L2 ball, by warps, blur or color, and a budget above 0"
            )
