"""What makes a run and its report again: the attacks of a report from their settings, and the commands."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import fields, replace

from .. import recipe as recipes
from ..attacks import Attack
from ..datasets import Dataset
from ..evaluation import settings_of
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
    """The budget with which the attack of that name has just these settings; none for an attack of somebody's own."""
    stated: dict[str, float] = {}
    for name in ("eps", "steps", "step_size", "rotation", "translation", "pixels"):
        found = re.search(rf"\b{name}=([0-9.e+-]{{1,24}})", result.settings)
        if found is not None:
            stated["l2" if name == "eps" and result.name in CAPPED_BY_L2 else name] = number(found[1])
    steps, pixels = int(stated.get("steps", usual.steps)), int(stated.get("pixels", usual.pixels))
    if not (0 < steps <= MOST_STEPS and 0 < pixels <= MOST_STEPS):
        return None
    changed = stated | {"steps": steps, "pixels": pixels, "fraction": 1.0}
    for changes in ({}, changed):
        try:
            budget = replace(usual, **changes)
            attack = budget.attacks().get(result.name)
        except (ValueError, ArithmeticError):
            continue
        if attack is not None and settings_of(attack) == result.settings:
            return budget
    return None


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
    out = shlex.quote(str(run.directory))
    return [f"unperturbed train {training_words(run)} --out {out}", *evaluating(run, dataset, out)]


def training_words(run: EvaluatedRun) -> str:
    """The recipe by its name with the options that differ, or else by its file."""
    options = options_between(RECIPES.get(run.recipe.name), run.recipe)
    if options is None:
        return f"--from {shlex.quote(str(run.directory / 'recipe.json'))}"
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


def evaluating(run: EvaluatedRun, dataset: Dataset, out: str) -> list[str]:
    """A command for each budget of the attacks in a report, and for the trust card."""
    usual = usual_budget(run.recipe.data.name)
    together: dict[tuple[str, ...], list[str]] = {}
    for result in run.report.attacks:
        budget = budget_of(result, usual)
        if budget is not None:
            together.setdefault(budget_options(budget, usual), []).append(result.name)
    images = len(run.report.labels)
    limit = [] if images == len(dataset.test_labels) else ["--images", str(images)]
    seed = [] if run.report.seed == 0 else ["--seed", str(run.report.seed)]
    lines = [
        " ".join(["unperturbed evaluate", out, "--attacks", ",".join(names), *options, *limit, *seed])
        for options, names in together.items()
    ]
    if run.card is not None:
        first, *others = lines or [" ".join(["unperturbed evaluate", out, *limit, *seed])]
        lines = [f"{first} --trust", *others]
    return lines


def budget_options(budget: Budget, usual: Budget) -> tuple[str, ...]:
    """The options by which a budget differs from the usual one."""
    values: Mapping[str, float] = {slot.name: getattr(budget, slot.name) for slot in fields(budget)}
    changed = {name: value for name, value in values.items() if value != getattr(usual, name)}
    return tuple(
        word for name, value in changed.items() for word in (f"--budget.{name.replace('_', '-')}", repr(value))
    )
