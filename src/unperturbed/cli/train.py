"""`unperturbed train`."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from .. import recipe as recipe_files
from ..datasets import BUILT_IN
from ..events import Events, require_tensorboard
from ..guards import done_in_vain, steps_taken
from ..misnamed import require_folder
from ..neighborhoods import require_radius
from ..printing import in_shell, printable, quoted
from ..processes import joined
from ..progress import HELD_OUT, Titled, watching
from ..recipe import Recipe
from ..recipes import named, usual_budget
from ..recipes.against import against
from ..runs import RunDirectory
from ..signals import stopping_after_a_step
from ..training import train_together
from .options import EXAMPLE, leading_words, parse, refuse_options, value_of, without_option
from .saying import say
from .wrong_options import ask_for_help

CALLED_HERE = {
    "--epochs": "--steps says how long a run is, in batches",
    "--lr": "the learning rate is --optimizer.rate.peak or --optimizer.rate.rate, as --help shows",
    "--learning-rate": "the learning rate is --optimizer.rate.peak or --optimizer.rate.rate, as --help shows",
    "--batch-size": "say --batch",
    "--lambda": "lambda is --objective.weight",
    "--objective.lambda": "lambda is --objective.weight",
}
"""what options are called here that have other names elsewhere"""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train by a recipe: `unperturbed train RECIPE --out DIR`, any field of the recipe overridden by its name.

    A run that was interrupted goes on with the same command. `unperturbed list` names the recipes, and
    `--from FILE` in place of RECIPE reads one from a recipe.json. `unperturbed train A B C --together` trains by
    several recipes at a time, in DIR/A, DIR/B and DIR/C; fields that are overridden are so for all of them.
    """

    recipe: Annotated[Recipe, tyro.conf.arg(name="")]
    out: Path | None = None
    """directory of the run; runs/RECIPE if not given"""
    data: Path | None = None
    """folder with the data set's files; else the environment variable UNPERTURBED_DATA, else a download"""
    against: str | None = None
    """pixels, warps, blur and color, or several of them separated by commas, searched together in place of what the
    recipe searches, as far as `evaluate` attacks on its data"""
    unlabeled: tuple[str, ...] = ()
    """files of unlabeled images besides those of the data set, .npy or raw bytes, or folders of them: the same as
    --data.unlabeled-files"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""
    together: bool = False
    """train by all recipes named, side by side on one device; each run's numbers are those it has alone"""
    checkpoint_seconds: float = 60.0
    """seconds between two checkpoints"""
    tensorboard: bool = False
    """write what the log holds to DIR/tensorboard too, for `tensorboard --logdir DIR`"""
    dry_run: bool = False
    """print the resolved recipe as JSON and stop"""


def train(arguments: list[str]) -> None:
    """Train by a recipe."""
    defaults, rest = recipes_named_first(arguments)
    if (names := value_of("--against", rest)) is not None:
        data = value_of("--data.name", rest)
        defaults = [against(default, names, usual_budget(data or default.data.name)) for default in defaults]
    commands = [
        with_files(parse(Train, rest, default=Train(recipe=default), usage="train RECIPE")) for default in defaults
    ]
    command = commands[0]
    if sum(word.partition("=")[0] == "--unlabeled" for word in rest) > 1:
        raise ValueError("--unlabeled is given twice, and the last would count alone: name all files behind one")
    if command.unlabeled:
        refuse_options(rest, "--unlabeled names such files too: name all of them there", "--data.unlabeled-files")
    require_use_of_options(rest, [each.recipe for each in commands])
    for recipe in (each.recipe for each in commands):
        for sentence in done_in_vain(recipe, recipe.data.validation):
            say(f"{recipe.name}: {sentence}")
    require_folder(command.data)
    if command.data is not None and all(each.recipe.data.name == BUILT_IN for each in commands):
        say(f"--data {command.data} changes nothing, for {BUILT_IN} need no files: name data by --data.name")
    if command.dry_run:
        for each in commands:
            print(recipe_files.dumps(each.recipe), end="")
        return
    runs = {directory_of(each, several=len(commands) > 1): each.recipe for each in commands}
    if len(commands) > 1 and not command.together:
        raise ValueError(f"{len(commands)} recipes are named: add --together to train by all of them at a time")
    if len(runs) < len(commands):
        raise ValueError("a recipe is named twice, but its runs would share a directory: name each once")
    require_radius("--checkpoint-seconds", command.checkpoint_seconds)
    if command.tensorboard:
        require_tensorboard()
    with (
        stopping_after_a_step() as stop,
        joined(command.device) as processes,
        watching() as watcher,
        ExitStack() as files,
    ):
        watchers: dict[Path, Titled | Events] = {out: Titled(watcher, recipe.name) for out, recipe in runs.items()}
        if command.tensorboard and processes.first:
            watchers = {out: files.enter_context(Events(out, titled)) for out, titled in watchers.items()}
        train_together(
            runs,
            folder=command.data,
            device=command.device,
            watchers=watchers if processes.first else None,
            checkpoint_seconds=command.checkpoint_seconds,
            stop=stop,
        )
    for out, recipe in runs.items() if processes.first else ():
        log = RunDirectory(out).read_log()
        taken = f"{steps_taken(log, recipe.steps)} step{'' if recipe.steps == 1 else 's'}{weights_kept(recipe, log)}"
        print(printable(f"trained {recipe.name} for {taken}; next: unperturbed evaluate {in_shell(out)}"))


def weights_kept(recipe: Recipe, log: Sequence[Mapping[str, float]]) -> str:
    """In words which weights a finished run kept, where held-out images chose them."""
    measured = {line["step"]: line[HELD_OUT] for line in log if HELD_OUT in line}
    if not measured or recipe.validation.keep == "last":
        return ""
    best = max(measured, key=lambda step: (measured[step], step))
    return f" and kept the weights of step {best}, by which {measured[best]:.1%} of the held-out images stand"


def with_files(command: Train) -> Train:
    """The command with the files behind --unlabeled in its recipe, which is all that decides a run."""
    if not command.unlabeled:
        return command
    data = replace(command.recipe.data, unlabeled_files=command.unlabeled)
    return replace(command, recipe=replace(command.recipe, data=data))


def require_use_of_options(words: list[str], recipes: list[Recipe]) -> None:
    """Refuse options of parts that no recipe uses: a teacher that labels nothing, a choice without labels."""
    if not any(recipe.labeler == "teacher" for recipe in recipes):
        refuse_options(words, "there is no teacher: add --labeler teacher", "--teacher.")
    if not any(recipe.data.validation for recipe in recipes):
        refuse_options(words, "no labels are held out: set --data.validation", "--validation.")


def directory_of(command: Train, *, several: bool) -> Path:
    """Where a run is kept; that of one among several has a directory of its own in the one that is named."""
    if command.out is not None and not several:
        return command.out
    name = command.recipe.name
    if name in ("", ".", "..") or Path(name).name != name:
        raise ValueError(f"the recipe's name {quoted(name)} is no name for a directory: name one by --out")
    return (command.out or Path("runs")) / name


def recipes_named_first(arguments: list[str]) -> tuple[list[Recipe], list[str]]:
    """The recipes that the first words name, or the one in the file behind --from, and the other words."""
    names, rest = leading_words(arguments)
    rest, files = without_option("--from", rest)
    if "--from" in rest and not ask_for_help(rest):
        raise ValueError("--from: expected a file behind it, as --from runs/mine/recipe.json")
    for word in (word.partition("=")[0] for word in rest):
        if word in CALLED_HERE:
            raise ValueError(f"train has no option {word}: {CALLED_HERE[word]}")
    if len(files) > 1 or (files and names):
        also = quoted(names[0]) if names else quoted(files[1])
        raise ValueError(f"--from {quoted(files[0])} stands in place of a recipe, and {also} is named too: name one")
    if names:
        return [named(name) for name in names], rest
    if files:
        return [recipe_files.read(Path(files[0]))], rest
    if ask_for_help(arguments):
        return [named(EXAMPLE)], rest
    raise ValueError(
        "train needs a recipe first: unperturbed train RECIPE, or train --from FILE (see unperturbed list)"
    )
