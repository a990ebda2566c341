"""`unperturbed curve`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from .. import recipe as recipe_files
from .. import report as reports
from ..comparison import Run, compared
from ..curves import (
    CLEAN,
    Duration,
    Panel,
    over_perturbation,
    over_time,
    over_unlabeled,
    over_weight,
    training_curves,
)
from ..datasets import load
from ..figures import draw_panels, files_for, save
from ..files import require_writable
from ..neighborhoods import Linf
from ..printing import nearest, printable, quoted
from ..progress import watching
from ..recipes import usual_budget
from ..recipes.against import attacks_for
from ..recipes.budgets import SETS, Budget, chosen, expanded
from ..solvers import require_count
from ..sweeps import FILE, Sweep, sweep
from .evaluate import warn_of_other_data, warn_of_untested_classes
from .options import leading_words, parse_with_budget, refuse_options

KINDS = {
    "perturbation": "accuracy against the perturbation fraction or eps; attacks what has not been attacked yet",
    "unlabeled": "accuracy against the number of unlabeled images",
    "lambda": "accuracy against lambda",
    "time": "accuracy against the length of training, a line for each peak rate",
    "training": "what the logs say: both terms, rate, ramp, C(x), speed",
}

OPTIONS = {
    "perturbation": ("--against", "--fractions", "--budget.", "--images", "--seed"),
    "time": ("--unit",),
    "training": ("--show",),
}
"""those that one kind alone has a use for"""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Draw curves of one or several runs: `unperturbed curve KIND DIR [DIR …]`.

    Kinds: perturbation, accuracy against the perturbation fraction or eps, which attacks what has not been attacked
    yet; unlabeled, accuracy against the number of unlabeled images; lambda; time, against the length of training; and
    training, what the logs say. All but the first and the last read the reports that `unperturbed evaluate` wrote.
    """

    attacks: str | None = None
    """names separated by commas, or of sets, or clean where reports are read; else those all reports hold, and for
    perturbation compound, with blur and color where a DIR was trained against them"""
    against: Literal["fraction", "eps"] = "fraction"
    """perturbation: what accuracy is drawn against; eps is for attacks in the Linf ball"""
    fractions: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """perturbation: shares of the budget at which models are attacked"""
    budget: Budget = field(default_factory=Budget)
    """perturbation: how far attacks go at fraction 1; what is not given is as usual on the data set of the first
    DIR"""
    images: int | None = None
    """perturbation: attack only the first so many test images"""
    unit: Duration = "steps"
    """time: steps, or seconds"""
    show: tuple[str, ...] = ()
    """training: which quantities of the log, all if not given"""
    columns: int = 4
    """panels side by side"""
    out: Path | None = None
    """file for the figure, .png, .pdf or .svg; a name without ending is for PNG and PDF; curve-KIND if not given"""
    seed: int = 0
    """perturbation: seed of the attacks"""
    data: Path | None = None
    """folder with the data set's files"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""
    json: bool = False
    """print the numbers of the curves as JSON"""


def curve(arguments: list[str]) -> None:
    """Draw accuracy against what was varied, or how training went."""
    needed = f"curve needs a kind ({', '.join(KINDS)}) and directories of runs first: unperturbed curve KIND DIR …"
    words, rest = leading_words(arguments, needed)
    paths = [Path(word) for word in words[1:]]
    if words and words[0] not in KINDS:
        known = f"{nearest(words[0], KINDS)} (there are {', '.join(KINDS)})"
        raise ValueError(f"there is no curve {quoted(words[0])}{known}")
    runs = compared(paths)
    default = Curve(budget=usual_budget(runs[0].recipe.data.name)) if runs else Curve()
    command = parse_with_budget(Curve, rest, default=default, usage="curve KIND DIR [DIR …]")
    if not runs:
        raise ValueError(needed)
    for kind, options in OPTIONS.items():
        if kind != words[0]:
            refuse_options(rest, f"it is for curve {kind}: draw that", *options)
    require_count("--columns", command.columns)
    files = files_for(command.out or Path(f"curve-{words[0]}"))
    require_writable(files)
    panels = panels_of(words[0], command, runs)
    save(draw_panels(panels, columns=command.columns), files)
    written = printable(f"written: {', '.join(map(str, files))}")
    print(json.dumps(finite([asdict(panel) for panel in panels])) if command.json else written)


def finite(value: Any) -> Any:
    """The same with nothing in the place of NaN and infinity, which JSON has not."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in cast(Sequence[Any], value)]
    return reports.finite_or_none(value) if isinstance(value, float) else value


def panels_of(kind: str, command: Curve, runs: Sequence[Run]) -> tuple[Panel, ...]:
    """The curves of that kind."""
    named = expanded(command.attacks) if command.attacks is not None else []
    match kind:
        case "perturbation":
            attacks = require_attacks(command, named or usual_attacks(runs))
            return over_perturbation(runs, swept(command, runs, attacks), attacks, against=command.against)
        case "unlabeled":
            return over_unlabeled(runs, named, folder=command.data)
        case "lambda":
            return over_weight(runs, named)
        case "time":
            return over_time(runs, named, unit=command.unit)
        case _:
            if named:
                raise ValueError("logs hold no attacks: leave --attacks out, and choose what is drawn by --show")
            return training_curves(runs, command.show)


def usual_attacks(runs: Sequence[Run]) -> list[str]:
    """Those of the compound scenario, and blur and color where one of these runs was trained against them."""
    trained = {name for run in runs for name in attacks_for(run.recipe.objective)}
    return [*SETS["compound"], *(name for name in SETS["appearance"] if name in trained)]


def require_attacks(command: Curve, named: Sequence[str]) -> list[str]:
    """The attacks of a sweep; one without an eps is refused on an axis of eps."""
    if CLEAN in named:
        raise ValueError("clean is no attack, and where every curve begins, at fraction 0: leave it out of --attacks")
    attacks = chosen(command.budget.attacks(), ",".join(named))
    for name, attack in attacks.items():
        if command.against == "eps" and not isinstance(attack.within, Linf):
            raise ValueError(f"{name} does not keep to an Linf ball, so it has no eps: use --against fraction")
    return list(attacks)


def swept(command: Curve, runs: Sequence[Run], attacks: Sequence[str]) -> list[Sweep]:
    """Every run attacked at every fraction."""
    if command.images is not None:
        require_count("--images", command.images)
    dataset = load(runs[0].recipe.data.name, command.data)
    images, labels = dataset.test_images[: command.images], dataset.test_labels[: command.images]
    models = [run.model(dataset) for run in runs]
    require_writable([run.path / FILE for run in runs])
    warn_of_other_data(runs, dataset)
    warn_of_untested_classes(dataset, command.images)
    with watching() as watcher:
        found: list[Sweep] = []
        for run, model in zip(runs, models, strict=True):
            watcher.title = run.label
            at_most = reports.read(run.directory.report) if run.directory.report.exists() else None
            found.append(
                sweep(
                    model,
                    images,
                    labels,
                    lambda fraction: chosen(scaled(command.budget, fraction).attacks(), ",".join(attacks)),
                    command.fractions,
                    run.path,
                    eps=command.budget.fraction * command.budget.eps,
                    at_most=at_most,
                    seed=command.seed,
                    device=command.device,
                    watcher=watcher,
                    recipe=recipe_files.plain(run.recipe),
                )
            )
    return found


def scaled(budget: Budget, fraction: float) -> Budget:
    """That share of the budget."""
    return replace(budget, fraction=fraction * budget.fraction)
