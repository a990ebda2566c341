"""Runs that have been trained and attacked, read from their directories for a page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..comparison import Run, read_report
from ..datasets import Dataset, load
from ..printing import in_shell, printable
from ..recipe import Recipe
from ..recipes.words import told_apart
from ..report import Report
from ..runs import RunDirectory
from ..trust import card as cards
from ..trust.card import Card


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluatedRun:
    """What the directory of one run holds once it has been evaluated."""

    run: Run
    """its label is its name on the page"""
    report: Report
    log: Sequence[Mapping[str, float]]
    card: Card | None
    """the trust card, where `evaluate --trust` made one of the same weights and images, with the same seed"""
    model: nn.Module

    @property
    def title(self) -> str:
        """Its name on the page."""
        return self.run.label

    @property
    def directory(self) -> Path:
        """Where it lies."""
        return self.run.path

    @property
    def recipe(self) -> Recipe:
        """How it was trained."""
        return self.run.recipe


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Runs on one data set, which may stand in one table."""

    dataset: Dataset
    runs: tuple[EvaluatedRun, ...]
    title: str
    """what the data set is called: the name of its file, or the whole path where another file has that name"""

    @property
    def shared_images(self) -> int:
        """How many test images, from the first on, all of these runs were evaluated on."""
        return min(len(run.report.labels) for run in self.runs)


def read_groups(directories: Sequence[Path], data: Path | None = None) -> list[Group]:
    """The runs in these directories, each of which is named once; those on one data set together."""
    recipes = {directory: RunDirectory(directory).read_recipe() for directory in directories}
    found = {directory: read_report(RunDirectory(directory)) for directory in directories}
    groups: list[Group] = []
    names = list(dict.fromkeys(recipe.data.name for recipe in recipes.values()))
    files = Counter(Path(name).name for name in names)
    for name in names:
        dataset = load(name, data)
        chosen = [directory for directory, recipe in recipes.items() if recipe.data.name == name]
        labels = titled([(recipes[directory].name, directory) for directory in chosen])
        runs = [
            Run(directory=RunDirectory(directory), recipe=recipes[directory], label=label)
            for directory, label in zip(chosen, labels, strict=True)
        ]
        read = tuple(read_run(run, found[run.path], dataset) for run in runs)
        title = Path(name).name if files[Path(name).name] == 1 else name
        groups.append(Group(dataset=dataset, runs=read, title=title))
    return groups


def titled(runs: Sequence[tuple[str, Path]]) -> list[str]:
    """A name for each run that no other bears: the paper's word for its recipe, with its directory where need be."""
    names = told_apart([name for name, _ in runs])
    counts = Counter(names)
    places = Counter((name, path.name) for name, (_, path) in zip(names, runs, strict=True))
    titles: list[str] = []
    for name, (_, path) in zip(names, runs, strict=True):
        where = path.name if places[name, path.name] == 1 else str(path)
        titles.append(printable(name if counts[name] == 1 else f"{name} ({where})"))
    return titles


def read_run(run: Run, report: Report, dataset: Dataset) -> EvaluatedRun:
    """One run; a report on other test images than those of the data set is refused."""
    directory, file = run.path, printable(run.directory.report)
    expected = dataset.test_labels[: len(report.labels)]
    if not torch.equal(expected, report.labels):
        raise ValueError(
            f"{file} is of other test images than {printable(dataset.name)} holds: "
            f"restore the data, or evaluate again with `unperturbed evaluate {in_shell(directory)}`"
        )
    most = max(int(said.max().item()) for said in (report.clean, *(result.predicted for result in report.attacks)))
    if most >= len(dataset.classes) or min(report.clean.min().item(), 0) < 0:
        raise ValueError(f"{file} predicts class {most} of {len(dataset.classes)}: delete it and evaluate again")
    trust = directory / "trust.json"
    card = cards.loads(trust.read_text(encoding="utf-8", errors="replace"), str(trust)) if trust.is_file() else None
    if card is not None and not card.belongs(report.subject):
        card = None
    return EvaluatedRun(run=run, report=report, log=run.directory.read_log(), card=card, model=run.model(dataset))
