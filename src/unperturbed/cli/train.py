"""`unperturbed train`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .. import recipe as recipe_files
from ..progress import watching
from ..recipe import Recipe
from ..recipes import named
from ..training import train as train_recipe
from .options import EXAMPLE, leading_word, parse


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train by a recipe: `unperturbed train RECIPE --out DIR`, any field of the recipe overridden by its name.

    A run that was interrupted goes on with the same command. `unperturbed list` names the recipes, and
    `--from FILE` in place of RECIPE reads one from a recipe.json.
    """

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Path | None = None
    """directory of the run; runs/RECIPE if not given"""
    data: Path | None = None
    """folder with the data set's files; else the environment variable UNPERTURBED_DATA, else a download"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""
    checkpoint_seconds: float = 60.0
    """seconds between two checkpoints"""
    dry_run: bool = False
    """print the resolved recipe as JSON and stop"""


def train(arguments: list[str]) -> None:
    """Train by a recipe."""
    default, rest = recipe_named_first(arguments)
    command = parse(Train, rest, default=Train(recipe=default), usage="train RECIPE")
    if command.dry_run:
        print(recipe_files.dumps(command.recipe), end="")
        return
    out = command.out or Path("runs") / command.recipe.name
    with watching() as watcher:
        watcher.title = command.recipe.name
        train_recipe(
            command.recipe,
            out,
            folder=command.data,
            device=command.device,
            watcher=watcher,
            checkpoint_seconds=command.checkpoint_seconds,
        )
    print(f"trained {command.recipe.name} for {command.recipe.steps} steps; next: unperturbed evaluate {out}")


def recipe_named_first(arguments: list[str]) -> tuple[Recipe, list[str]]:
    """The recipe that the first word names, or the file behind --from, and the other words."""
    name, rest = leading_word(arguments)
    if name is not None:
        return named(name), rest
    if len(arguments) > 1 and arguments[0] == "--from":
        return recipe_files.read(Path(arguments[1])), arguments[2:]
    if "-h" in arguments or "--help" in arguments:
        return named(EXAMPLE), arguments
    raise ValueError(
        "train needs a recipe first: unperturbed train RECIPE, or train --from FILE (see unperturbed list)"
    )
