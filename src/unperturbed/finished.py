"""A finished run as a classifier to use: its model, what it takes, and what its answers stand for."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from . import datasets
from .engine import Engine
from .inputs import as_float, check_pixels, require, require_tensor
from .printing import printable
from .recipe import Recipe
from .runs import RunDirectory

AT_ONCE = 500
"""images that are answered at a time"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finished:
    """The model of a finished run."""

    model: nn.Module
    """takes float images (N, C, H, W) in [0, 1] and answers with logits; in evaluation mode"""
    shape: tuple[int, int, int]
    """channels, height and width of an image"""
    classes: tuple[str, ...]
    """what each answer stands for"""
    recipe: Recipe

    def __repr__(self) -> str:
        use = datasets.Use(self.shape, self.classes)
        return f"<Finished {printable(self.recipe.name)}: {type(self.recipe.model).__name__}, {use}>"

    def probabilities(self, images: Tensor) -> Tensor:
        """Of every class for each image, uint8 or float in [0, 1], on the device of the model."""
        require_tensor(images, "images")
        if tuple(images.shape[1:]) != self.shape:
            one = tuple(images.shape) == self.shape
            advice = "of one image, give images[None]" if one else "cut or scale them as the training images were"
            wanted = f"(N, {', '.join(map(str, self.shape))})"
            raise ValueError(f"images must have the shape {wanted}, got {tuple(images.shape)}: {advice}")
        check_pixels(images)
        weight = next(self.model.parameters())
        with torch.inference_mode(), Engine().arithmetic():  # As attacks judge.
            parts = [self.model(as_float(part).to(weight)).softmax(1).cpu() for part in images.split(AT_ONCE)]
        return torch.cat(parts) if parts else torch.empty(0, len(self.classes))


def load(run: Path | str, *, folder: Path | None = None) -> Finished:
    """The finished model in the directory of a run.

    What it takes and answers stands in the file of its weights; for one that does not say, the data set is looked up
    as `train` does, in that folder if one is named.
    """
    expected = f"a run must be named by its directory, got a {type(run).__name__}"
    require(isinstance(run, str | PathLike), f"{expected}: a network of your own is used as it is")
    directory = RunDirectory(Path(run))
    recipe = directory.read_recipe()
    use = directory.read_use() or datasets.load(recipe.data.name, folder).use
    with torch.random.fork_rng(devices=()):
        model = recipe.model(use.shape, len(use.classes))
    directory.read_weights(model)
    return Finished(model=model.eval(), shape=use.shape, classes=use.classes, recipe=recipe)
