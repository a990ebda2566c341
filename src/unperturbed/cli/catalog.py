"""`unperturbed list`."""

import json
from dataclasses import dataclass
from textwrap import TextWrapper
from typing import Literal

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from ..experiments.catalog import experiments
from ..printing import nearest
from ..recipe import PARTS
from ..recipes import RECIPES, usual_budget
from ..recipes.budgets import REASONS, SETS, Budget
from ..recipes.words import DEFENSES
from .options import leading_words, parse

WIDE, NARROW = (0, 2, 0, 0), (0, 1, 0, 0)
"""blanks around a cell: above it, behind it, below it, before it"""
MOST_COLUMNS = 10_000
"""columns of text that any table fits into"""
FEWEST_COLUMNS = 20
"""columns of text that lines are broken for in even narrower terminals"""
Row = dict[str, str | int | None]
KINDS = ("recipes", "defenses", "attacks", "experiments", "parts")
OF_DATA = ("recipes", "attacks")
"""what depends on the data set"""


@dataclass(frozen=True, kw_only=True)
class List:
    """Name what there is: `unperturbed list [recipes | defenses | attacks | experiments | parts]`."""

    data: Literal["digits", "mnist", "cifar10", "other"] | None = None
    """only recipes for that data set, and attacks with the budget that is usual there; if not given, all recipes, and
    attacks as on other data"""
    json: bool = False
    """everything, for machines"""


def catalog(arguments: list[str]) -> None:
    """Name the recipes, defenses, attacks, experiments and parts."""
    words, rest = leading_words(arguments)
    kind, *more = words or KINDS[:1]
    command = parse(List, [*more, *rest], usage="list [KIND]")
    if kind not in KINDS:
        raise ValueError(f"there is no list of {kind!r}{nearest(kind, KINDS)} (there are {', '.join(KINDS)})")
    if command.data is not None and kind not in OF_DATA and not command.json:
        raise ValueError(
            f"there is one list of {kind} for all data: leave --data out, or list {' or '.join(OF_DATA)}"
        )
    attacks = attack_rows(usual_budget(command.data or "other"))
    recipes = recipe_rows(command.data)
    if command.json:
        everything = {
            "recipes": recipes,
            "defenses": {name: defense.gist for name, defense in DEFENSES.items()},
            "attacks": attacks,
            "experiments": {name: experiment.title for name, experiment in experiments().items()},
            "attack_sets": {name: list(members) for name, members in SETS.items()},
        }
        parts = {kind.__name__.lower() + "s": names(choices) for kind, choices in PARTS.items()}
        print(json.dumps(everything | parts, indent=1))
        return
    match kind:
        case "recipes":
            if not recipes:
                raise ValueError(
                    "recipes are for digits, mnist and cifar10: train by one of them with --data.name FILE"
                )
            show(recipes)
        case "defenses":
            show([{"defense": name, "what it is": defense.gist} for name, defense in DEFENSES.items()])
        case "attacks":
            show(attacks)
            show([{"set": name, "attacks": ", ".join(members)} for name, members in SETS.items()])
        case "experiments":
            show([{"experiment": name, "what it is": each.title} for name, each in experiments().items()])
        case _:
            show([{"kind": kind.__name__, "parts": ", ".join(names(choices))} for kind, choices in PARTS.items()])


def names(choices: tuple[type, ...]) -> list[str]:
    """The names of some classes."""
    return [choice.__name__ for choice in choices]


def recipe_rows(data: str | None) -> list[Row]:
    """A row for each recipe, or for each on that data set."""
    return [
        {
            "recipe": recipe.name,
            "model": type(recipe.model).__name__,
            "objective": type(recipe.objective).__name__,
            "labeled": recipe.data.labeled,
            "unlabeled": "the rest" if recipe.data.unlabeled is None else recipe.data.unlabeled,
            "steps": recipe.steps,
        }
        for recipe in RECIPES.values()
        if data in (None, recipe.data.name)
    ]


def attack_rows(budget: Budget) -> list[Row]:
    """A row for each attack, with its budget and the reason for it."""
    return [
        {"attack": name, "budget": attack.budget, "why": REASONS[name]} for name, attack in budget.attacks().items()
    ]


def show(rows: list[Row]) -> None:
    """Rows as a table, whose columns stand closer where it fits into the terminal so and not otherwise.

    In a terminal in which words of the table would break, each row has lines of its own.
    """
    headings = list(rows[0])
    cells = [[f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()] for row in rows]
    table = Table(box=None, pad_edge=False, padding=WIDE)
    for i, heading in enumerate(headings):
        numbers = any(isinstance(row[heading], int) for row in rows)
        longest = max(len(word) for row in cells for word in (heading, *row[i].split()))
        table.add_column(heading, no_wrap=i == 0, min_width=longest, justify="right" if numbers else "left")
    for row in cells:
        table.add_row(*row)
    console = Console(markup=False, highlight=False)
    unlimited, needs = console.options.update(width=MOST_COLUMNS), dict[tuple[int, ...], Measurement]()
    for table.padding in (NARROW, WIDE):
        needs[table.padding] = console.measure(table, options=unlimited)
    if needs[NARROW].maximum <= console.width < needs[WIDE].maximum:
        table.padding = NARROW
    elif needs[WIDE].minimum > console.width:
        print(lines(headings, cells, console.width))
        return
    console.print(table)


def lines(headings: list[str], rows: list[list[str]], width: int) -> str:
    """Rows below each other: the first cell, and the others behind their headings in lines that are set in."""
    wrapper = TextWrapper(
        max(width, FEWEST_COLUMNS),
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    told: list[str] = []
    for name, *others in rows:
        behind = [f"{heading} {cell}" for heading, cell in zip(headings[1:], others, strict=True)]
        told += [name, *wrapper.wrap("; ".join(behind))]
    return "\n".join(told)
