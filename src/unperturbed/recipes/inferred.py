"""The budget within which the attacks of a report were made, from their settings, and the options that ask for it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from math import inf, nextafter
from typing import Any

from ..neighborhoods import Color, TurnThenShift
from ..report import AttackResult
from ..sameness import settings_of
from .budgets import Budget

MOST_STEPS = 10_000
"""of an attack that is made again; settings that ask for more are no habit of ours"""
SLOTS = {
    **{name: name for name in ("eps", "steps", "step_size", "rotation", "translation", "pixels")},
    "sigma": "blur",
    "brightness": "color",
}
"""the words of settings, and the fields of a budget that they tell"""
CAPPED_BY_L2 = ("ddn", "cw-l2")


def budget_of(result: AttackResult, usual: Budget) -> Budget | None:
    """A budget within which the attack of that name has just these settings; none for an attack of somebody's own.

    It is the one that differs from the usual one in as little as possible.
    """
    stated: dict[str, float] = {}
    for name, slot in SLOTS.items():
        if (number := stated_number(name, result.settings)) is not None:
            stated["l2" if name == "eps" and result.name in CAPPED_BY_L2 else slot] = number
    if "color" in stated:
        stated["color"] = change_of_colors(stated["color"], result.settings)
    if f"{TurnThenShift.__name__}(" in result.settings:
        stated["interpolations"] = 2
    for name in ("steps", "pixels"):
        if not 0 < stated.get(name, 1) <= MOST_STEPS:
            return None
    whole = {name: int(stated[name]) for name in ("steps", "pixels", "interpolations") if name in stated}
    some = (names for count in range(len(stated) + 1) for names in combinations(stated, count))
    tried = (changed(usual, {name: (stated | whole)[name] for name in names}) for names in some)
    return next((budget for budget in tried if budget is not None and makes(budget, [result])), None)


def change_of_colors(brightness: float, settings: str) -> float:
    """The number that all parameters of Color were multiplied by in these settings.

    It is written as people write it where that makes the same; the product of such a one and a fraction is not.
    """
    about = brightness / Color().brightness
    usual = round(about, 12)
    if not 0 <= usual < inf:
        return usual
    near = (usual, about, nextafter(about, 0.0), nextafter(about, inf))
    return next((number for number in near if repr(Color().scaled(number)) in settings), usual)


def changed(budget: Budget, changes: Mapping[str, Any]) -> Budget | None:
    """The budget with these changes, its steps going with its eps as on the command line; none where none can be."""
    try:
        return replace(budget.with_radius(changes["eps"]) if "eps" in changes else budget, **changes)
    except (ValueError, ArithmeticError):
        return None


def makes(budget: Budget, results: Sequence[AttackResult]) -> bool:
    """Whether the attacks of these names have just these settings within the budget."""
    try:
        attacks = budget.attacks()
    except (ValueError, ArithmeticError):
        return False
    return all(result.name in attacks and settings_of(attacks[result.name]) == result.settings for result in results)


def budgets_of(results: Sequence[AttackResult], usual: Budget) -> list[tuple[AttackResult, Budget]]:
    """Those of these results that attacks of ours made, each with its budget: the same for all where there is one."""
    found = [(result, budget) for result in results if (budget := budget_of(result, usual)) is not None]
    common = common_budget(found, usual)
    return [(result, common or budget) for result, budget in found]


def common_budget(found: Sequence[tuple[AttackResult, Budget]], usual: Budget) -> Budget | None:
    """One budget that makes all of these results, put together from the ones that make each."""
    each = [changes_between(usual, budget) for _, budget in found]
    everything = {name: value for changes in each for name, value in changes.items()}
    tried = (changed(usual, everything | changes) for changes in each)
    results = [result for result, _ in found]
    return next((budget for budget in tried if budget is not None and makes(budget, results)), None)


def stated_number(name: str, settings: str) -> float | None:
    """The number that settings state under a name, if any; what is no number becomes one that no attack has."""
    found = re.search(rf"\b{name}=([0-9.e+-]{{1,24}})", settings)
    try:
        return None if found is None else float(found[1])
    except ValueError:
        return -1.0


def budget_options(budget: Budget, usual: Budget) -> tuple[str, ...]:
    """The options by which a budget differs from the usual one."""
    changes = changes_between(usual, budget).items()
    return tuple(word for name, value in changes for word in (option_of(name), repr(value)))


def idle_options(budget: Budget, usual: Budget, names: Collection[str]) -> list[str]:
    """The options by which a budget differs from the usual one and which change none of these attacks."""
    changes = changes_between(usual, budget)
    settings = settings_within(budget, names)
    others = {name: replace(budget, **{name: getattr(usual, name)}) for name in changes}
    idle = (name for name, other in others.items() if settings_within(other, names) == settings)
    return [option_of(name) for name in idle]


def option_of(name: str) -> str:
    """The option that sets a field of a budget."""
    return f"--budget.{name.replace('_', '-')}"


def settings_within(budget: Budget, names: Collection[str]) -> list[str]:
    """The settings of these attacks under a budget."""
    attacks = budget.attacks()
    return [settings_of(attacks[name]) for name in names]


def changes_between(usual: Budget, budget: Budget) -> dict[str, float]:
    """The fields of a budget that differ from those of the usual one, but for steps that only go with its eps."""
    usual = replace(usual.with_radius(budget.eps), eps=usual.eps)
    values: Mapping[str, float] = {slot.name: getattr(budget, slot.name) for slot in fields(budget)}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}
