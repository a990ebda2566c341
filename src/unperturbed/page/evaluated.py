"""Runs that have been trained and attacked, read from their directories for a page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from .. import report as reports
from ..datasets import Dataset, load
from ..printing import printable
from ..recipe import Recipe
from ..report import Report
from ..runs import RunDirectory
from ..training import fresh_model
from ..trust import card as cards
from ..trust.card import Card


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluatedRun:
    """What the directory of one run holds once it has been evaluated."""

    directory: Path
    title: str
    """its name on the page: the recipe's, with the directory's where several runs follow one recipe"""
    recipe: Recipe
    report: Report
    log: Sequence[Mapping[str, float]]
    card: Card | None
    """the trust card, where `evaluate --trust` made one"""
    model: nn.Module


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Runs on one data set, which may stand in one table."""

    dataset: Dataset
    runs: tuple[EvaluatedRun, ...]

    @property
    def shared_images(self) -> int:
        """How many test images, from the first on, all of these runs were evaluated on."""
        return min(len(run.report.labels) for run in self.runs)


def read_groups(directories: Sequence[Path], data: Path | None = None) -> list[Group]:
    """The runs in these directories, those on one data set together; one that is named twice counts once."""
    unique = list({directory.resolve(): directory for directory in directories}.values())
    recipes = {directory: RunDirectory(directory).read_recipe() for directory in unique}
    found = {directory: reports.read(RunDirectory(directory).report) for directory in unique}
    titles = dict(zip(unique, titled((recipes[each].name, each) for each in unique), strict=True))
    groups: list[Group] = []
    for name in dict.fromkeys(recipe.data.name for recipe in recipes.values()):
        dataset = load(name, data)
        runs = tuple(
            read_run(directory, titles[directory], recipe, found[directory], dataset)
            for directory, recipe in recipes.items()
            if recipe.data.name == name
        )
        groups.append(Group(dataset=dataset, runs=runs))
    return groups


def titled(runs: Iterable[tuple[str, Path]]) -> list[str]:
    """A name for each run that no other bears."""
    pairs = list(runs)
    counts = Counter(name for name, _ in pairs)
    places = Counter((name, path.name) for name, path in pairs)
    titles: list[str] = []
    for name, path in pairs:
        where = path.name if places[name, path.name] == 1 else str(path)
        titles.append(printable(name if counts[name] == 1 else f"{name} ({where})"))
    return titles


def read_run(directory: Path, title: str, recipe: Recipe, report: Report, dataset: Dataset) -> EvaluatedRun:
    """One run; a report on other test images than those of the data set is refused."""
    run = RunDirectory(directory)
    expected = dataset.test_labels[: len(report.labels)]
    if not torch.equal(expected, report.labels):
        raise ValueError(
            f"{printable(run.report)} is of other test images than {printable(dataset.name)} holds: "
            f"restore the data, or evaluate again with `unperturbed evaluate {printable(directory)}`"
        )
    most = max(int(said.max().item()) for said in (report.clean, *(result.predicted for result in report.attacks)))
    if most >= len(dataset.classes) or min(report.clean.min().item(), 0) < 0:
        raise ValueError(
            f"{printable(run.report)} predicts class {most} of {len(dataset.classes)}: delete it and evaluate again"
        )
    model = fresh_model(recipe, dataset)
    run.read_weights(model)
    file = directory / "trust.json"
    card = cards.loads(file.read_text(encoding="utf-8", errors="replace"), str(file)) if file.is_file() else None
    return EvaluatedRun(
        directory=directory,
        title=title,
        recipe=recipe,
        report=report,
        log=run.read_log(),
        card=card,
        model=model.eval(),
    )
