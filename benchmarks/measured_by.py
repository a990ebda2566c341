"""The recipes that a file of results was measured by, and whether they are still the same."""

import json
from collections.abc import Iterable
from typing import Any

from unperturbed.experiments.results import unlike
from unperturbed.recipe import loads, plain
from unperturbed.recipes import RECIPES


def spelled_out(names: Iterable[str]) -> dict[str, object]:
    """What these names of recipes stand for now."""
    return {name: plain(RECIPES[name]) for name in names}


def changes(result: dict[str, Any], names: Iterable[str]) -> list[str]:
    """How the recipes that a result holds differ from those that it should be measured by, one of each name."""
    held, wanted = result.get("recipes", {}), dict.fromkeys(names)
    return [
        *(f"{name} is not in it" for name in wanted if name not in held),
        *(f"{name} does not belong to it any more" for name in held if name not in wanted),
        *(change for name in wanted if name in held and (change := changed(name, held[name]))),
    ]


def changed(name: str, held: object) -> str | None:
    """In words, what is another in that recipe now; none where nothing is."""
    try:
        there = loads(json.dumps(held), name)
    except ValueError as error:
        return f"{name} is none any more: {error}"
    return None if there == RECIPES[name] else f"{name} has changed: {unlike(there, RECIPES[name])}"
