"""Several runs side by side: read from their directories, named, and refused where they cannot be compared."""

import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import torch
from torch import nn

from .datasets import Dataset
from .images import parts
from .printing import in_shell, printable, quoted
from .recipe import Recipe, plain
from .recipes import usual_budget
from .recipes.inferred import budget_options, budgets_of
from .recipes.words import told_apart
from .report import Report, read
from .runs import RunDirectory, flat
from .training import fresh_model

FIELDS = {"peak": "peak rate", "weight": "lambda", "labeled": "labels", "unlabeled": "unlabeled images"}
"""fields of a recipe by which runs are told apart, in words"""
UNTOLD = {"name", "data.seed", "data.sha256", "log_every", "precision"}
"""fields that tell nothing of a run"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that takes part in a comparison."""

    directory: RunDirectory
    recipe: Recipe
    label: str
    """what it is called there"""

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.directory.path

    def model(self, dataset: Dataset) -> nn.Module:
        """Its finished model, in evaluation mode; a data set whose classes are others to the model is refused."""
        require_same_classes(self.directory, dataset)
        f = fresh_model(self.recipe, dataset)
        self.directory.read_weights(f)
        return f.eval()

    def other_data(self, dataset: Dataset) -> str | None:
        """What is to be said where the run was trained on other images than those of that data set.

        Nothing is where nobody can tell: no checksum was noted, or files of unlabeled images are not here.
        """
        try:
            found = self.recipe.data.sha256 and parts(dataset, self.recipe.data).checksum()
        except OSError:
            return None
        except ValueError:  # It cannot even be split as the recipe says.
            found = ""
        if found == self.recipe.data.sha256:
            return None
        return (
            f"{printable(dataset.name)} is not the data that {printable(self.path)} was trained on: its test images "
            "may have been trained on"
        )

    def report(self) -> Report:
        """What an evaluation found."""
        return read_report(self.directory)


def read_report(directory: RunDirectory) -> Report:
    """What an evaluation found on a run; a report on other weights than those that lie there is refused."""
    if directory.recipe.is_file() and not (directory.report.exists() or directory.weights.exists()):
        raise FileNotFoundError(
            f"{printable(directory.path)} holds neither a report nor a finished model: "
            f"{directory.to_be_finished()}, then attack it with `unperturbed evaluate {in_shell(directory.path)}`"
        )
    report = read(directory.report)
    if not report.is_on(directory.weights):
        raise ValueError(
            f"{printable(directory.report)} is of other weights than {directory.weights.name} beside it: restore "
            f"them, or evaluate again with `unperturbed evaluate {in_shell(directory.path)}`"
        )
    return report


def require_same_classes(directory: RunDirectory, dataset: Dataset) -> None:
    """Refuse a data set whose classes have other names, or another order, than those that the model answers with.

    A file without names of classes has their numbers for names, which say nothing of the names of another file.
    """
    use = directory.read_use()
    if use is None:
        return
    told, here = use.classes, tuple(map(printable, dataset.classes))
    unnamed = any(names == tuple(map(str, range(len(names)))) for names in (told, here))
    if told == here or (unnamed and len(told) == len(here) and not set(told) & set(here)):
        return
    place = next((place for place, (one, other) in enumerate(zip(told, here, strict=False)) if one != other), None)
    differ = (
        f"{len(told)} classes and {printable(dataset.name)} has {len(here)}"
        if place is None
        else f"{quoted(told[place])} for class {place} and {printable(dataset.name)} has {quoted(here[place])}"
    )
    raise ValueError(
        f"the model of {printable(directory.path)} has {differ}: its answers would be scored as other classes; "
        "restore the data that it was trained on, or pack the data with the same classes in the same order"
    )


def compared(paths: Sequence[Path]) -> tuple[Run, ...]:
    """The runs in these directories, all of one data set; those of one name are told apart by their fields."""
    directories = [RunDirectory(path) for path in paths]
    recipes = [directory.read_recipe() for directory in directories]
    sets = {recipe.data.name: path for recipe, path in zip(reversed(recipes), reversed(paths), strict=True)}
    if len(sets) > 1:
        found = ", ".join(f"{printable(path)} of {printable(name)}" for name, path in sets.items())
        raise ValueError(f"runs of {len(sets)} data sets cannot share a figure ({found}): draw one for each data set")
    require_named_once(paths)
    labels = told_by_fields(told_apart([recipe.name for recipe in recipes]), recipes, UNTOLD)
    count = Counter(labels)
    return tuple(
        Run(directory=directory, recipe=recipe, label=label if count[label] == 1 else f"{label} ({directory.path})")
        for directory, recipe, label in zip(directories, recipes, labels, strict=True)
    )


def require_named_once(paths: Sequence[Path]) -> None:
    """Refuse a run that is named more than once, also by another path."""
    if repeated := [str(path) for path, count in Counter(path.resolve() for path in paths).items() if count > 1]:
        raise ValueError(f"{printable(repeated[0])} is named more than once: name each run once")


def require_other_seeds(runs: Sequence[Run]) -> None:
    """Refuse runs that would count as several seeds of one recipe and have the same: a copy counts no second time."""
    for first, second in combinations(runs, 2):
        if replace(first.recipe, name=second.recipe.name) == second.recipe:
            raise ValueError(
                f"{printable(first.path)} and {printable(second.path)} would count as two seeds of one run, and both "
                f"have seed {second.recipe.seed}: leave one of them out, or train it with another --seed"
            )


def told_by_fields(labels: Sequence[str], recipes: Sequence[Recipe], ignored: Set[str]) -> list[str]:
    """These labels of recipes; to equal ones the first two fields are added in which their recipes differ."""
    trees = [fields_of(recipe, ignored) for recipe in recipes]
    told: list[str] = []
    for label, tree in zip(labels, trees, strict=True):
        rivals = [other for theirs, other in zip(labels, trees, strict=True) if theirs == label]
        differing = [name for name, value in tree.items() if any(other.get(name) != value for other in rivals)]
        told.append(", ".join([label, *(f"{spoken_field(name)} {tree[name]}" for name in differing[:2])]))
    return told


def fields_of(recipe: Recipe, ignored: Set[str]) -> dict[str, str]:
    """The fields of a recipe by their dotted names, but for the ignored ones."""
    return {name: str(value) for name, value in flat(plain(recipe)).items() if name not in ignored}


def spoken_field(name: str) -> str:
    """The last part of a field's dotted name, in words; a solver's steps and what is a teacher's are called so."""
    *above, word = name.split(".")
    spoken = "solver steps" if word == "steps" and "solver" in above else FIELDS.get(word, word.replace("_", " "))
    return f"teacher's {spoken}" if above[:1] == ["teacher"] else spoken


def comparable_reports(runs: Sequence[Run]) -> tuple[Report, ...]:
    """The reports of these runs, which must be on the same test images; attacks of one name must be the same."""
    reports = tuple(run.report() for run in runs)
    require_same_images(runs, reports)
    for run, report in zip(runs, reports, strict=True):
        for result in report.attacks:
            for first, other in zip(runs, reports, strict=True):
                theirs = next((each for each in other.attacks if each.name == result.name), result)
                if (theirs.budget, theirs.settings) != (result.budget, result.settings):
                    ours, its = result.budget, theirs.budget
                    if ours == its:
                        ours, its = differing_settings(result.settings, theirs.settings)
                    raise ValueError(
                        f"{printable(result.name)} goes to {printable(its)} in the report of "
                        f"{printable(first.path)} and to {printable(ours)} in that of "
                        f"{printable(run.path)}: evaluate both with one budget"
                    )
    return reports


def differing_settings(*settings: str) -> tuple[str, ...]:
    """Of the settings of several attacks, each in words, those in which they differ; all of them where none does."""
    pairs = [re.findall(r"\w+=[^\s,()]+", each) for each in settings]
    differing = [[pair for pair in mine if any(pair not in its for its in pairs)] for mine in pairs]
    return tuple(", ".join(mine) or each for mine, each in zip(differing, settings, strict=True))


def require_same_images(runs: Sequence[Run], reports: Sequence[Report]) -> None:
    """Refuse reports on different test images; those on fewer than another are to be made on as many."""
    widest = max(reports, key=lambda report: len(report.labels))
    images, first = len(widest.labels), printable(runs[reports.index(widest)].path)
    for run, report in zip(runs, reports, strict=True):
        if len(report.labels) < images:
            command = evaluating(run, [result.name for result in widest.attacks] or ["quick"], widest)
            raise ValueError(
                f"{printable(run.path)} was evaluated on {len(report.labels)} test images and {first} on {images}: "
                f"evaluate it on as many, by `{command}`"
            )
        if not torch.equal(report.labels, widest.labels):
            raise ValueError(
                f"the test images of {printable(run.path)} have other labels than those of {first}: "
                "evaluate both again, on the same data"
            )


def evaluating(run: Run, attacks: Sequence[str], like: Report) -> str:
    """The command that attacks a run on as many images, with the seed and within the budget of that report."""
    usual = usual_budget(run.recipe.data.name)
    budgets = {budget_options(budget, usual) for _, budget in budgets_of(like.attacks, usual)}
    options = next(iter(budgets)) if len(budgets) == 1 else ()  # Several of them no one command asks for.
    seed = ("--seed", str(like.seed)) if like.seed else ()
    words = ["--attacks", in_shell(",".join(attacks)), *options, "--images", str(len(like.labels)), *seed]
    return " ".join(["unperturbed evaluate", in_shell(run.path), *words])


def attacks_of_all(reports: Sequence[Report]) -> list[str]:
    """The names of the attacks that every report holds, in the order of the first."""
    return [
        result.name
        for result in reports[0].attacks
        if all(result.name in {theirs.name for theirs in report.attacks} for report in reports)
    ]
