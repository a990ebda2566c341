"""`unperturbed evaluate`."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .. import recipe as recipe_files
from .. import report as reports
from ..attacks import Attack, Bounded
from ..comparison import Run
from ..datasets import Dataset, load
from ..engine import Precision
from ..evaluation import evaluate as evaluate_model
from ..files import numbers_in, require_writable, set_aside, write_whole
from ..locks import by_turns
from ..neighborhoods import Neighborhood
from ..page.again import EXTENTS, looked_at
from ..printing import in_shell, printable
from ..processes import joined
from ..progress import Bars, Lines, watching
from ..recipe import Recipe
from ..recipes import RECIPES, usual_budget
from ..recipes.against import attacks_for, without_attack
from ..recipes.budgets import Budget, chosen, expanded
from ..recipes.inferred import idle_options
from ..report import Report
from ..runs import RunDirectory
from ..sameness import holds_all, settings_of
from ..solvers import require_count, require_positive
from ..sweeps import Means, means_of
from ..trust import Card
from ..trust import card as cards
from ..trust import trust as examine
from ..untested import by_class, untested
from .options import EXAMPLE, leading_words, parse_with_budget, refuse_options
from .saying import columns, say

OF_TRUST = tuple(f"--budget.{name}" for name in EXTENTS)
"""the options of a budget that bound what a trust card looks at"""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Attack the finished model of a run on the test images: `unperturbed evaluate DIR`; writes DIR/report.json.

    Attacks that the report already holds for this model are not run again, so an interrupted evaluation goes on.
    A report on other images, or with attacks that go elsewhere under this budget, is kept under another name, and so
    is its trust card.
    """

    attacks: str = "quick"
    """names separated by commas, or of sets: quick, paper, pixel, spatial, compound, appearance, trust, all; if not
    given, quick and one for each kind of perturbation that DIR was trained against"""
    trust: bool = False
    """look for reasons not to believe what attacks on pixels and by warps found, print the card and write
    DIR/trust.json"""
    trust_seconds: float = 600.0
    """time for that"""
    budget: Budget = field(default_factory=Budget)
    """how far the attacks may go; what is not given is as usual on the data set of DIR"""
    images: int | None = None
    """attack only the first so many test images"""
    batch: int | None = None
    """images attacked at once; None: 500, on a GPU 1,000 of 32 x 32 in color and more of smaller ones"""
    seed: int = 0
    """seed of the attacks"""
    data: Path | None = None
    """folder with the data set's files"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""
    precision: Precision = "auto"
    """arithmetic of the search: bfloat16, tf32 or float32; what it finds is checked in float32 always"""
    json: bool = False
    """print the report as JSON"""


def evaluate(arguments: list[str]) -> None:
    """Attack the finished model of a run."""
    run, recipe, command, attacks = asked_for(arguments)
    dataset = load(recipe.data.name, command.data)
    if repeated := dataset.repeated():
        say(repeated)
    warn_of_untested_classes(dataset, command.images)
    subject = Run(directory=run, recipe=recipe, label=recipe.name)
    warn_of_other_data([subject], dataset)
    model = subject.model(dataset)
    images, labels = dataset.test_images[: command.images], dataset.test_labels[: command.images]
    with joined(command.device) as processes, watching() as watcher:
        watcher.title = recipe.name
        reporter = Reporter(run.report, command.budget)
        processes.collected(run.path)
        evaluated = partial(
            evaluate_model,
            model,
            images,
            labels,
            batch=command.batch,
            seed=command.seed,
            device=command.device,
            precision=command.precision,
            watcher=watcher if processes.first else None,
            recipe=recipe_files.plain(recipe),
            weights=numbers_in(run.weights),
            previous=reporter.previous,
        )
        try:
            require_writable([run.report])
        except OSError:
            if command.trust or not holds_all(evaluated({}), attacks):
                raise
        report = evaluated(attacks, save=reporter.save)
        if not processes.first:
            return
        report = reporter.settled(report)
        card = trusted(command, model, images, report, watcher) if command.trust else None
    if card is not None:
        card = replace(card, subject=report.subject)
        write_whole(reporter.card, json.dumps(card.plain(), indent=1).encode())
    if told := reporter.told():
        say(told)
    if command.json:
        print(as_json(report, card))
        return
    print(as_text(report, card))
    print(printable(f"kept in {run.report}; next: unperturbed report {in_shell(run.path)}"))


def asked_for(arguments: list[str]) -> tuple[RunDirectory, Recipe, Evaluate, Mapping[str, Attack]]:
    """The run, its recipe, the options and the attacks; what makes no sense is refused, what is in vain is told."""
    words, rest = leading_words(arguments, "evaluate needs the directory of a run first: unperturbed evaluate DIR")
    if len(words) > 1:
        raise ValueError(
            f"evaluate attacks one run at a time, got {len(words)} directories: call it for each of them"
        )
    recipe = RunDirectory(Path(words[0])).read_recipe() if words else RECIPES[EXAMPLE]
    further = [name for name in attacks_for(recipe.objective) if name not in expanded(Evaluate.attacks)]
    default = Evaluate(budget=usual_budget(recipe.data.name), attacks=",".join([Evaluate.attacks, *further]))
    command = parse_with_budget(Evaluate, rest, default=default, usage="evaluate DIR")
    attacks = chosen(command.budget.attacks(), command.attacks)
    if command.images is not None:
        require_count("--images", command.images)
    if command.trust:
        require_positive("--trust-seconds", command.trust_seconds)
        if command.budget.eps * command.budget.fraction == 0:
            raise ValueError("--trust looks around each image, and with eps or fraction 0 nothing is there: omit one")
    else:
        refuse_options(rest, "no trust card was asked for: add --trust", "--trust-seconds")
    for option in idle_options(command.budget, default.budget, attacks):
        if not (command.trust and option in OF_TRUST):
            say(f"{option} changes none of {', '.join(attacks)}: name other attacks")
    for around in without_attack(recipe.objective):
        never = f"this run was trained against {around}, which none of these attacks tries"
        say(f"{never}: up.attacks.random({around!r}) does")
    return RunDirectory(Path(words[0])), recipe, command, attacks


def warn_of_other_data(runs: Sequence[Run], dataset: Dataset) -> None:
    """Say on stderr which of these runs were trained on other images than those of that data set."""
    for run in runs:
        if (told := run.other_data(dataset)) is not None:
            say(told)


def warn_of_untested_classes(dataset: Dataset, images: int | None) -> None:
    """Say on stderr which classes no test image shows, or that the first so many lack some as they lie by class."""
    in_order = by_class(dataset.test_labels, images) if images is not None else None
    for told in filter(None, (untested(dataset.test_labels, dataset.classes), in_order)):
        say(told)


class Reporter:
    """Writes the report of a run, with what another evaluation of it has written meanwhile.

    A report that holds what the new one cannot is set aside first, with its card; so is a card of another subject, or
    of other neighborhoods than those of this budget.
    """

    def __init__(self, path: Path, budget: Budget) -> None:
        self.path, self.budget = path, budget
        found = self.found()
        self.previous = None if found is None else within(found, budget)
        """what of it the new report goes on from"""
        self.card = path.with_name("trust.json")
        self.aside: list[Path] = []
        self.kept: set[Means] = set()
        """what the reports hold that were set aside"""

    def found(self) -> Report | None:
        """The report that is there now."""
        return reports.read(self.path) if self.path.exists() else None

    def save(self, report: Report) -> None:
        """Write the report as it is after another attack."""
        self.settled(report, changed=True)

    def settled(self, report: Report, *, changed: bool = False) -> Report:
        """The report with what others have written meanwhile; it is written where it changed or the file differs."""
        with by_turns(self.path.parent):
            found = self.found()
            whole = report if found is None else report.with_attacks_of(within(found, self.budget))
            held = set[Means]() if found is None else means_of(found)
            loses = bool(held - means_of(whole) - self.kept)
            if loses:
                self.aside.append(set_aside(self.path))
                self.kept |= held
            if self.card.exists() and (loses or not self.fits(whole)):
                self.aside.append(set_aside(self.card))
                self.card.unlink()
            if changed or held != means_of(whole) or (found is not None and found.weights != whole.weights):
                write_whole(self.path, whole.dumps().encode())
            return whole

    def fits(self, report: Report) -> bool:
        """Whether the trust card that is there may stand beside the report; of one that is damaged others speak."""
        try:
            card = cards.loads(self.card.read_text(encoding="utf-8", errors="replace"))
        except ValueError:
            return True
        return card.belongs(report.subject) and card.looked_within(*looked_at(self.budget))

    def told(self) -> str:
        """What was set aside and why, in a sentence; empty where nothing was."""
        if not self.aside:
            return ""
        why = "was of other images, weights, seeds or settings"
        kept = f"it is kept as {' with '.join(map(str, self.aside))}"
        return f"what {self.path if self.kept else self.card} held {why}: {kept}"


def within(report: Report, budget: Budget) -> Report:
    """The report without attacks that are others under that budget: budgets that differ have no common worst case."""
    settings = {name: settings_of(attack) for name, attack in budget.attacks().items()}
    kept = (result for result in report.attacks if settings.get(result.name, result.settings) == result.settings)
    return replace(report, attacks=tuple(kept))


def trusted(command: Evaluate, model: nn.Module, images: Tensor, report: Report, watcher: Bars | Lines) -> Card:
    """The trust card of a model and of its report, within the budget of that."""
    around, spatial = looked_at(command.budget)
    attacks = command.budget.attacks()
    within = [each for each in report.attacks if reaches(attacks.get(each.name), around)]
    return examine(
        model,
        images,
        report.labels,
        around=around,
        spatial=spatial,
        seconds=command.trust_seconds,
        seed=command.seed,
        device=command.device,
        watcher=watcher,
        stood=replace(report, attacks=tuple(within)).worst_case() if within else None,
    )


def reaches(attack: Attack | None, around: Neighborhood) -> bool:
    """Whether an attack searches just that neighborhood."""
    return isinstance(attack, Bounded) and attack.within == around


def as_json(report: Report, card: Card | None) -> str:
    """One object for machines."""
    tree: dict[str, Any] = report.summary()
    return json.dumps(tree if card is None else tree | {"trust": card.plain()})


def as_text(report: Report, card: Card | None) -> str:
    """Tables for people."""
    color, width = sys.stdout.isatty(), columns()
    return report.table(color=color, width=width) + ("" if card is None else card.table(color=color, width=width))
