"""The two ways into training: `fit` for a model and tensors of one's own, `train` for a recipe and a directory."""

from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from .data import Data, split
from .datasets import Dataset, load
from .objectives import SRT, Objective
from .recipe import SGD, Recipe
from .runs import RunDirectory
from .runtime import derived_seed, pick_device
from .schedules import Cyclic, Ramp
from .trainer import Images, Trainer, Watcher

Model = TypeVar("Model", bound=nn.Module)


def fit(
    model: Model,
    *,
    labeled: tuple[Tensor, Tensor],
    unlabeled: Tensor | None = None,
    objective: Objective | None = None,
    steps: int = 2_000,
    batch: int = 128,
    optimizer: SGD | None = None,
    ramp: Ramp | None = None,
    crop: int = 0,
    flip: bool = False,
    seed: int = 0,
    device: str = "auto",
    watcher: Watcher | None = None,
) -> Model:
    """Train the model in place and return it in evaluation mode.

    Images are (N, C, H, W), uint8 or float in [0, 1], and the model returns logits for such floats. By default
    SRT with PGD, a triangular rate with peak 0.05, and the robust term ramped over the first half of the run.
    """
    x, y = labeled
    nothing = x[:0]
    trainer = Trainer(
        f=model,
        images=Images(
            labeled=x,
            labels=y,
            unlabeled=nothing if unlabeled is None else unlabeled,
            validation=nothing,
            validation_labels=y[:0],
        ),
        objective=objective or SRT(),
        steps=steps,
        batch=batch,
        optimizer=optimizer or SGD(rate=Cyclic(peak=0.05)),
        ramp=ramp or Ramp(over=0.5),
        augmentation=Data(crop=crop, flip=flip),
        seed=seed,
        device=pick_device(device),
    )
    trainer.run(watcher=watcher)
    return model


def train(
    recipe: Recipe,
    out: Path,
    *,
    folder: Path | None = None,
    device: str = "auto",
    watcher: Watcher | None = None,
    checkpoint_seconds: float = 60.0,
) -> nn.Module:
    """Train by the recipe, in that directory; a run that was interrupted there goes on where it stopped."""
    where = pick_device(device)
    dataset = load(recipe.data.name, folder)
    model = fresh_model(recipe, dataset)
    trainer = Trainer(
        f=model,
        images=parts(dataset, recipe.data),
        objective=recipe.objective,
        steps=recipe.steps,
        batch=recipe.batch,
        optimizer=recipe.optimizer,
        ramp=recipe.ramp,
        augmentation=recipe.data,
        validation=recipe.validation,
        seed=recipe.seed,
        log_every=recipe.log_every,
        device=where,
    )
    run = RunDirectory(out)
    run.claim(recipe)
    state = run.read_checkpoint(where)
    if state is not None:
        trainer.resume(state)
    run.forget_log_after(trainer.step)
    trainer.run(
        watcher=watcher,
        write_log=run.write_log,
        write_checkpoint=lambda: run.write_checkpoint(trainer.state()),
        checkpoint_seconds=checkpoint_seconds,
    )
    weights = trainer.selected_weights()
    run.write_weights(weights)
    model.load_state_dict(weights)
    return model.eval()


def fresh_model(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """The recipe's network for that data set, with the weights of its seed."""
    channels, height, width = dataset.train_images.shape[1:]
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(derived_seed(recipe.seed, "weights"))
        return recipe.model((channels, height, width), len(dataset.classes))


def parts(dataset: Dataset, data: Data) -> Images:
    """D_L, D_U and the validation part of a data set; images that never had a label belong to D_U."""
    pool = torch.cat([dataset.train_images, dataset.unlabeled_images])
    rows = split(dataset.train_labels, data, len(dataset.classes), extra=len(dataset.unlabeled_images))
    return Images(
        labeled=pool[rows.labeled],
        labels=dataset.train_labels[rows.labeled],
        unlabeled=pool[rows.unlabeled],
        validation=pool[rows.validation],
        validation_labels=dataset.train_labels[rows.validation],
    )
