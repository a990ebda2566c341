"""A picture of test images, what attacks made of them, and what models then said."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..attacks import Attack
from ..datasets import Dataset
from ..files import write_whole
from ..inputs import as_float
from ..runtime import generator

Array = np.ndarray[Any, Any]
RIGHT, WRONG = "#1a7f37", "#cf222e"
IMAGES = 5


def draw_gallery(
    path: Path,
    models: Mapping[str, nn.Module],
    dataset: Dataset,
    attacks: Mapping[str, Attack],
    *,
    seed: int,
) -> None:
    """A row for each of the first test images of different classes; for each model the image, clean and attacked."""
    rows = first_of_each_class(dataset.test_labels)[:IMAGES]
    x, y = as_float(dataset.test_images[rows]), dataset.test_labels[rows]
    columns = ["clean", *attacks]
    figure = Figure(figsize=(1.15 * len(models) * len(columns), 1.35 * len(rows) + 0.8), layout="constrained")
    blocks = figure.subfigures(1, len(models), wspace=0.04, squeeze=False)
    for block, (name, model) in zip(blocks[0], models.items(), strict=True):
        block.suptitle(name, fontweight="bold")
        axes = block.subplots(len(rows), len(columns), squeeze=False)
        for j, column in enumerate(columns):
            rng = generator(torch.device("cpu"), seed, "gallery", column)
            shown = x if column == "clean" else attacks[column](model, x, y, rng)
            said = model(shown).argmax(1)
            for i, axis in enumerate(axes[:, j]):
                axis.imshow(pixels(shown[i]), cmap="gray", vmin=0, vmax=1)
                axis.set_xticks([])
                axis.set_yticks([])
                right = bool(said[i] == y[i])
                axis.set_xlabel(
                    f"says {dataset.classes[said[i]]}", color=RIGHT if right else WRONG, fontsize=9, labelpad=1
                )
                for side in axis.spines.values():
                    side.set(color=RIGHT if right else WRONG, linewidth=1.5)
            axes[0, j].set_title(column, fontsize=9)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    write_whole(path, content.getvalue())


def first_of_each_class(labels: Tensor) -> list[int]:
    """The place of the first image of every class, in the order they appear."""
    places: dict[int, int] = {}
    for place, label in enumerate(labels.tolist()):
        places.setdefault(label, place)
    return sorted(places.values())


def pixels(image: Tensor) -> Array:
    """(C, H, W) as matplotlib wants it."""
    return (image[0] if len(image) == 1 else image.permute(1, 2, 0)).detach().cpu().numpy()
