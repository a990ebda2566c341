"""A sweep: one model attacked at several perturbation fractions, kept in the directory of its run."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from . import report as reports
from .attacks import Attack
from .evaluation import AttackWatcher, evaluate, settings_of
from .files import set_aside, write_whole
from .printing import printable, shortened
from .report import Report
from .schedules import require_fractions
from .unfinished import Unfinished

FORMAT = 1
FILE = "sweep.json"
"""its name in the directory of a run"""
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
    try:
        tree = json.loads(text)
        if tree["format"] > FORMAT:
            raise ValueError("a newer version of unperturbed wrote it: update unperturbed")
        found = {float(row["fraction"]): reports.loads(json.dumps(row["report"])) for row in tree["sweep"]}
        require_fractions("a fraction", tuple(found))
        if len({report.subject for report in found.values()}) > 1:
            raise ValueError("its reports are on different models or images")
        return Sweep(eps=float(tree["eps"]), reports=found)
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"no sweep of unperturbed ({type(error).__name__}: {shortened(error)})"
    except ValueError as error:
        reason = f"no sweep that can be read ({shortened(error)})"
    raise ValueError(f"{printable(source)} is {reason}: delete it, and the same command makes it anew")


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
    before = read(directory)
    asides: list[Path] = []
    found = dict(before.reports) if before is not None and before.eps == eps else {}
    for fraction in sorted(set(fractions)):
        attacks = attacks_at(fraction) if fraction else {}
        earlier = joined(found.get(1.0), at_most, attacks) if fraction == 1 else found.get(fraction)

        def keep(report: Report, fraction: float = fraction) -> None:
            alike = {other: theirs for other, theirs in found.items() if theirs.subject == report.subject}
            found.clear()
            found.update(alike | {fraction: report})
            if before is not None and not asides and lost(before, Sweep(eps=eps, reports=found)):
                asides.append(set_aside(directory / FILE))
            write_whole(directory / FILE, Sweep(eps=eps, reports=found).dumps().encode())

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
        )
        keep(report)
    return Sweep(eps=eps, reports={fraction: found[fraction] for fraction in sorted(set(fractions))})


def joined(earlier: Report | None, at_hand: Report | None, attacks: Mapping[str, Attack]) -> Report | None:
    """What an earlier sweep and a report at hand know of these attacks; the sweep's alone where they do not fit."""
    if at_hand is None or (earlier is not None and earlier.subject != at_hand.subject):
        return earlier
    known = tuple(result for result in at_hand.attacks if result.name in attacks)
    if earlier is None:
        return replace(at_hand, attacks=known)
    others = tuple(result for result in earlier.attacks if result.name not in {each.name for each in known})
    return replace(at_hand, attacks=(*others, *known))


def lost(before: Sweep, now: Sweep) -> bool:
    """Whether what an earlier sweep found by attacks is not in this one, so that it has to be set aside."""
    return any(
        report.attacks
        and (before.eps != now.eps or fraction not in now.reports or now.reports[fraction].lacks(report))
        for fraction, report in before.reports.items()
    )


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
