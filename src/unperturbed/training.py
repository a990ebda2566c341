"""Training by a recipe, in a directory."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from torch import nn

from . import recipe as recipes
from .datasets import Dataset, load
from .engine import Engine
from .guards import require_teachable, require_use_by, with_checksum
from .images import Images, parts, repeats_in_files
from .inputs import require
from .own_parts import TO_GO_ON, is_by, made_by, own_parts, require_recipe, source_of_own_parts
from .processes import own_device, present
from .progress import Watcher, watcher_of_teacher
from .recipe import Recipe
from .runs import RunDirectory
from .runtime import cache, derived_seed, pick_device
from .stopping import agreed, kept_where_one_diverges, leave_checkpoints, running, waiting_for_others
from .trainer import Trainer
from .turns import run_together


def train(
    recipe: Recipe,
    out: Path | str,
    *,
    folder: Path | None = None,
    device: str = "auto",
    watcher: Watcher | None = None,
    checkpoint_seconds: float = 60.0,
    stop: Callable[[], bool] = bool,  # never
    patient: bool = False,
) -> nn.Module:
    """Train by the recipe, in that directory; a run that was interrupted there goes on where it stopped."""
    out = Path(out)
    (model,) = train_together(
        {out: recipe},
        folder=folder,
        device=device,
        watchers=None if watcher is None else {out: watcher},
        checkpoint_seconds=checkpoint_seconds,
        stop=stop,
        patient=patient,
    )
    return model


def train_together(
    recipes: Mapping[Path, Recipe],
    *,
    folder: Path | None = None,
    device: str = "auto",
    watchers: Mapping[Path, Watcher] | None = None,
    checkpoint_seconds: float = 60.0,
    stop: Callable[[], bool] = bool,  # never
    patient: bool = False,
    teachers: Path | None = None,
) -> list[nn.Module]:
    """Train by several recipes at a time, each in its directory and each as if it were alone.

    Small networks leave most of a GPU idle; their steps are taken in turn, and there each run has its own stream.
    Between steps it is asked whether to stop; then each run leaves a checkpoint. A directory in which another process
    trains is refused, unless patience is asked for. Teachers are kept in a folder of their own, in the cache if none
    is named.
    """
    where = pick_device(own_device(device))
    checked = {out: ready(recipe, out, folder, where, alone=len(recipes) == 1) for out, recipe in recipes.items()}
    teach = partial(
        trained_teacher,
        teachers=cache() / "teachers" if teachers is None else teachers,
        folder=folder,
        device=str(where),
        stop=stop,
        checkpoint_seconds=checkpoint_seconds,
    )
    with ExitStack() as held:
        prepared: list[tuple[RunDirectory, Trainer]] = []
        for out, its in checked.items():
            watcher = watchers[out] if watchers else None
            waiting = waiting_for_others(watcher, stop) if patient else None
            prepared.append(prepare(*its, out, where, watcher=watcher, held=held, waiting=waiting, teach=teach))
        steps = [
            running(
                run,
                trainer,
                dataset.use,
                watchers[run.path] if watchers else None,
                checkpoint_seconds,
                alone=len(recipes) == 1,
            )
            for (run, trainer), (_, dataset, _) in zip(prepared, checked.values(), strict=True)
        ]
        with kept_where_one_diverges(prepared):
            ended = run_together(steps, where, agreed(stop, where))
        if not ended:
            leave_checkpoints(prepared)
    return [trainer.f for _, trainer in prepared]


def ready(
    recipe: Recipe, out: Path, folder: Path | None, device: torch.device, *, alone: bool
) -> tuple[Recipe, Dataset, Trainer]:
    """All that a run needs, checked before any directory is written; among several the one refused is named."""
    require_recipe(recipe)
    try:
        dataset = load(recipe.data.name, folder)
        images = parts(dataset, recipe.data)
        require_use_by(recipe, len(images.unlabeled))
        require_teachable(recipe, len(images.labeled))
        if recipe.labeler == "teacher":
            check_teacher(recipe, dataset, device)
        recipe = with_checksum(recipe, images.checksum())
        trainer = trainer_by(recipe, dataset, images, device)
        if trainer.processes.first:
            RunDirectory(out).check(recipe)
    except ValueError as error:
        raise error if alone else ValueError(f"{recipe.name}: {error}") from error
    return recipe, dataset, trainer


def prepare(
    recipe: Recipe,
    dataset: Dataset,
    trainer: Trainer,
    out: Path,
    device: torch.device,
    *,
    watcher: Watcher | None,
    held: ExitStack,
    waiting: Callable[[str], None] | None,
    teach: Callable[..., nn.Module],
) -> tuple[RunDirectory, Trainer]:
    """The directory of a run, claimed and held, and its trainer, as far as an earlier process took it."""
    run = RunDirectory(out)
    if trainer.processes.first:
        held.enter_context(run.alone(waiting))
        run.claim(recipe)
        run.mend(None if watcher is None else watcher.warned)
        if watcher is not None:
            in_files = repeats_in_files(dataset.test_images, trainer.images.unlabeled)
            for sentence in filter(None, (dataset.repeated(), in_files)):
                watcher.warned(sentence)
    trainer.processes.wait_for_all()  # The first may have waited for whoever trained there.
    state = run.read_checkpoint(device)
    if state is not None:
        require(is_by(recipe, state.get("recipe")), f"the checkpoint in {out} is of another recipe: {TO_GO_ON}")
        trainer.resume(state)
    if recipe.labeler == "teacher" and not trainer.ended:
        trainer.outer.teacher = teach(recipe, dataset, watcher=watcher)
    if trainer.processes.first:
        run.forget_log_after(trainer.step)
    return run, trainer


def trainer_by(
    recipe: Recipe, dataset: Dataset, images: Images, device: torch.device, engine: Engine | None = None
) -> Trainer:
    """The trainer of a fresh model by a recipe, on an engine other than the usual one if that is asked for."""
    return Trainer(f=fresh_model(recipe, dataset), images=images, recipe=recipe, device=device, engine=engine)


def check_teacher(recipe: Recipe, dataset: Dataset, device: torch.device) -> None:
    """Refuse a recipe whose teacher could not be trained."""
    stage_one = recipes.of_teacher(recipe)
    try:
        trainer_by(stage_one, dataset, parts(dataset, stage_one.data), device)
    except ValueError as error:
        told = str(error).replace("--batch", "--teacher.batch")
        raise ValueError(f"the teacher cannot be trained: {told}") from error


def trained_teacher(
    recipe: Recipe,
    dataset: Dataset,
    teachers: Path,
    *,
    folder: Path | None,
    device: str,
    watcher: Watcher | None,
    stop: Callable[[], bool],
    checkpoint_seconds: float = 60.0,
) -> nn.Module:
    """The model that labels for this recipe: trained once, kept among the teachers, shared by all runs it serves."""
    stage_one = recipes.of_teacher(recipe)
    digest = hashlib.sha256((recipes.dumps(stage_one) + source_of_own_parts(stage_one)).encode())
    for tensor in (dataset.train_images, dataset.train_labels):
        digest.update(tensor.numpy().tobytes())
    if recipe.teacher.unlabeled:
        digest.update(parts(dataset, stage_one.data).checksum().encode())
    finished, processes = RunDirectory(teachers / digest.hexdigest()[:20]), present()
    if not processes.of_first(finished.weights.is_file()):
        its = watcher_of_teacher(watcher)
        train(
            stage_one,
            finished.path,
            folder=folder,
            device=device,
            watcher=its,
            checkpoint_seconds=checkpoint_seconds,
            stop=stop,
            patient=True,
        )
        processes.collected(finished.path)  # From here on its weights are there.
    elif watcher is not None and (own := sorted({part.__name__ for part in own_parts(stage_one)})):
        watcher.warned(
            f"labels come from the teacher that was trained before, in {finished.path}: delete it where what "
            f"{' and '.join(own)} does has changed since"
        )
    teacher = fresh_model(stage_one, dataset)
    finished.read_weights(teacher)
    return teacher.to(device).eval().requires_grad_(False)


def fresh_model(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """The recipe's network for that data set, with the weights of its seed."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(derived_seed(recipe.seed, "weights"))
        return made_by(recipe, dataset.use.shape, len(dataset.classes))
