"""The command line: `unperturbed train | evaluate | list | demo`."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

from . import __version__
from . import recipe as recipe_files
from .datasets import load
from .evaluation import evaluate as evaluate_model
from .experiments import demo as demonstration
from .progress import watching
from .recipe import Recipe, nearest
from .recipes import RECIPES, named, usual_budget
from .recipes.budgets import Budget, chosen
from .runs import RunDirectory, write_whole
from .solvers import require_count
from .training import fresh_model
from .training import train as train_recipe

Command = TypeVar("Command")
EXAMPLE = "digits-pixel-srt"


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


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Attack the finished model of a run on the test images: `unperturbed evaluate DIR`; writes DIR/report.json."""

    attacks: str = "all"
    """names separated by commas, or all"""
    budget: Budget = field(default_factory=Budget)
    """how far the attacks may go"""
    images: int | None = None
    """attack only the first so many test images"""
    batch: int = 500
    """images attacked at once"""
    seed: int = 0
    """seed of the attacks"""
    data: Path | None = None
    """folder with the data set's files"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""
    json: bool = False
    """print the report as JSON"""


@dataclass(frozen=True, kw_only=True)
class List:
    """Name the recipes and what each of them does."""

    json: bool = False
    """for machines"""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train and attack seven models on embedded digits, in about two minutes on two cores."""

    out: Path = Path("runs/demo")
    """directory for report and figure"""
    seed: int = 0
    """seed of split, weights, batches and attacks"""


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


def evaluate(arguments: list[str]) -> None:
    """Attack the finished model of a run."""
    directory, rest = directory_first(arguments)
    recipe = RunDirectory(directory).read_recipe() if directory else RECIPES[EXAMPLE]
    default = Evaluate(budget=usual_budget(recipe.data.name))
    command = parse(Evaluate, rest, default=default, usage="evaluate DIR")
    if directory is None:
        raise ValueError("evaluate needs the directory of a run: unperturbed evaluate DIR")
    attacks = chosen(command.budget.attacks(), command.attacks)
    if command.images is not None:
        require_count("--images", command.images)
    run = RunDirectory(directory)
    dataset = load(recipe.data.name, command.data)
    model = fresh_model(recipe, dataset)
    run.read_weights(model)
    with watching() as watcher:
        watcher.title = recipe.name
        report = evaluate_model(
            model,
            dataset.test_images[: command.images],
            dataset.test_labels[: command.images],
            attacks,
            batch=command.batch,
            seed=command.seed,
            device=command.device,
            watcher=watcher,
            recipe=recipe_files.plain(recipe),
        )
    write_whole(run.report, report.dumps().encode())
    print(json.dumps(report.summary()) if command.json else report.table(color=sys.stdout.isatty()))


def list_recipes(arguments: list[str]) -> None:
    """Name what there is."""
    command = parse(List, arguments, usage="list")
    rows = [
        {
            "recipe": recipe.name,
            "model": type(recipe.model).__name__,
            "objective": type(recipe.objective).__name__,
            "labeled": recipe.data.labeled,
            "unlabeled": recipe.data.unlabeled,
            "steps": recipe.steps,
        }
        for recipe in RECIPES.values()
    ]
    attacks = {name: attack.budget for name, attack in Budget().attacks().items()}
    if command.json:
        print(json.dumps({"recipes": rows, "attacks": attacks}, indent=1))
        return
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows:
        words = {"unlabeled": "the rest" if row["unlabeled"] is None else "none"}
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in (row | words).values()))
    Console().print(table)
    print(f"attacks: {', '.join(attacks)}")


def demo(arguments: list[str]) -> None:
    """Show the paper's claim on real digits."""
    command = parse(Demo, arguments, usage="demo")
    demonstration.run(command.out, command.seed)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "evaluate": evaluate,
    "list": list_recipes,
    "demo": demo,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `unperturbed`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        dispatch(words)
    except (ValueError, OSError, ArithmeticError) as error:
        if os.environ.get("UNPERTURBED_TRACEBACK"):
            raise
        sys.exit(f"unperturbed: {error}")
    except KeyboardInterrupt:
        print("\nunperturbed: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        sys.exit(130)


def dispatch(words: list[str]) -> None:
    """Run the command that the first word names."""
    if not words or words[0] in ("-h", "--help"):
        print("unperturbed: robust training with few labels\n\ncommands (each has --help):")
        for name, command in COMMANDS.items():
            print(f"  {name:10} {(command.__doc__ or '').strip()}")
        return
    if words[0] == "--version":
        print(__version__)
        return
    if words[0] not in COMMANDS:
        raise ValueError(f"there is no command {words[0]!r}{nearest(words[0], COMMANDS)} (see unperturbed --help)")
    COMMANDS[words[0]](words[1:])


def parse(kind: type[Command], arguments: list[str], *, usage: str, default: Any = None) -> Command:
    """The command's options, from its dataclass; a part of a recipe is edited in place, not exchanged."""
    return tyro.cli(
        kind,
        args=arguments,
        default=default or kind(),
        prog=f"unperturbed {usage}",
        config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
    )


def recipe_named_first(arguments: list[str]) -> tuple[Recipe, list[str]]:
    """The recipe that the first word names, or the file behind --from, and the other words."""
    if arguments and not arguments[0].startswith("-"):
        return named(arguments[0]), arguments[1:]
    if len(arguments) > 1 and arguments[0] == "--from":
        return recipe_files.read(Path(arguments[1])), arguments[2:]
    if "-h" in arguments or "--help" in arguments:
        return named(EXAMPLE), arguments
    raise ValueError(
        "train needs a recipe first: unperturbed train RECIPE, or train --from FILE (see unperturbed list)"
    )


def directory_first(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """The directory that the first word names, and the other words."""
    if arguments and not arguments[0].startswith("-"):
        return Path(arguments[0]), arguments[1:]
    return None, arguments
