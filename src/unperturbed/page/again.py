"""What makes a run and its report again: the attacks of a report from their settings, and the commands."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

from .. import recipe as recipes
from ..attacks import Attack
from ..datasets import Dataset
from ..evaluation import settings_of
from ..printing import in_shell
from ..recipe import Recipe
from ..recipes import RECIPES, usual_budget
from ..recipes.budgets import Budget
from ..report import AttackResult
from ..runs import flat
from .evaluated import EvaluatedRun

MOST_STEPS = 10_000
"""of an attack that is made again; settings that ask for more are no habit of ours"""
CAPPED_BY_L2 = ("ddn", "cw-l2")


def budget_of(result: AttackResult, usual: Budget) -> Budget | None:
    """A budget within which the attack of that name has just these settings; none for an attack of somebody's own.

    It is the one that differs from the usual one in as little as possible.
    """
    stated: dict[str, float] = {}
    for name in ("eps", "steps", "step_size", "rotation", "translation", "pixels"):
        found = re.search(rf"\b{name}=([0-9.e+-]{{1,24}})", result.settings)
        if found is not None:
            stated["l2" if name == "eps" and result.name in CAPPED_BY_L2 else name] = number(found[1])
    for name in ("steps", "pixels"):
        if not 0 < stated.get(name, 1) <= MOST_STEPS:
            return None
    whole = {name: int(stated[name]) for name in ("steps", "pixels") if name in stated}
    some = (names for count in range(len(stated) + 1) for names in combinations(stated, count))
    tried = (changed(usual, {name: (stated | whole)[name] for name in names}) for names in some)
    return next((budget for budget in tried if budget is not None and makes(budget, [result])), None)


def changed(budget: Budget, changes: Mapping[str, Any]) -> Budget | None:
    """The budget with these changes, where there can be such a one."""
    try:
        return replace(budget, **changes)
    except (ValueError, ArithmeticError):
        return None


def makes(budget: Budget, results: Sequence[AttackResult]) -> bool:
    """Whether the attacks of these names have just these settings within the budget."""
    try:
        attacks = budget.attacks()
    except (ValueError, ArithmeticError):
        return False
    return all(result.name in attacks and settings_of(attacks[result.name]) == result.settings for result in results)


def common_budget(found: Sequence[tuple[AttackResult, Budget]], usual: Budget) -> Budget | None:
    """One budget that makes all of these results, put together from the ones that make each."""
    each = [changes_between(usual, budget) for _, budget in found]
    everything = {name: value for changes in each for name, value in changes.items()}
    tried = (changed(usual, everything | changes) for changes in each)
    results = [result for result, _ in found]
    return next((budget for budget in tried if budget is not None and makes(budget, results)), None)


def number(digits: str) -> float:
    """The number in a text of settings; what is none becomes one that no attack has."""
    try:
        return float(digits)
    except ValueError:
        return -1.0


def attack_of(result: AttackResult, data: str) -> Attack | None:
    """The attack that made this result, where it is one of ours."""
    budget = budget_of(result, usual_budget(data))
    return None if budget is None else budget.attacks()[result.name]


def commands(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """Command lines that train and evaluate such a run again, into the same directory."""
    train = f"unperturbed train {training_words(run)} --out {in_shell(run.directory)}"
    lines = evaluating(run, dataset)
    return [train, *lines] if run.card is None else [train, examining(run, dataset), *lines[1:]]


def examining(run: EvaluatedRun, dataset: Dataset) -> str:
    """The command that makes the trust card of a report: on its images, with its seed, within its budget."""
    first, *_ = evaluating(run, dataset) or [" ".join(["unperturbed evaluate", *subject(run, dataset)])]
    return f"{first} --trust"


def training_words(run: EvaluatedRun) -> str:
    """The recipe by its name with the options that differ, or else by its file."""
    options = options_between(RECIPES.get(run.recipe.name), run.recipe)
    if options is None:
        return f"--from {in_shell(run.directory / 'recipe.json')}"
    return " ".join([run.recipe.name, *options])


def options_between(named: Recipe | None, recipe: Recipe) -> list[str] | None:
    """Options that turn one recipe into another; none where the command line cannot say it."""
    if named is None:
        return None
    old, new = flat(recipes.plain(named)), flat(recipes.plain(recipe))
    if old.keys() != new.keys():
        return None
    options: list[str] = []
    for key, value in new.items():
        if key == "data.sha256" or value == old[key]:
            continue
        if key.endswith("type") or isinstance(value, list | bool):
            return None
        options += [f"--{key.replace('_', '-')}", shlex.quote(str(value))]
    return options


def evaluating(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """A command for the attacks in a report, for each budget where they have several."""
    usual = usual_budget(run.recipe.data.name)
    found = [(result, budget) for result in run.report.attacks if (budget := budget_of(result, usual)) is not None]
    common = common_budget(found, usual)
    together: dict[tuple[str, ...], list[str]] = {}
    for result, budget in found:
        together.setdefault(budget_options(common or budget, usual), []).append(result.name)
    directory, *images = subject(run, dataset)
    return [
        " ".join(["unperturbed evaluate", directory, "--attacks", ",".join(names), *options, *images])
        for options, names in together.items()
    ]


def subject(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """The directory of a run, and the options that ask for the images and the seed of its report."""
    images = len(run.report.labels)
    limit = [] if images == len(dataset.test_labels) else ["--images", str(images)]
    seed = [] if run.report.seed == 0 else ["--seed", str(run.report.seed)]
    return [in_shell(run.directory), *limit, *seed]


def budget_options(budget: Budget, usual: Budget) -> tuple[str, ...]:
    """The options by which a budget differs from the usual one."""
    changes = changes_between(usual, budget).items()
    return tuple(word for name, value in changes for word in (f"--budget.{name.replace('_', '-')}", repr(value)))


def changes_between(usual: Budget, budget: Budget) -> dict[str, float]:
    """The fields of a budget that differ from those of the usual one."""
    values: Mapping[str, float] = {slot.name: getattr(budget, slot.name) for slot in fields(budget)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}
