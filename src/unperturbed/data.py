"""What training needs of a data set: splits and augmentation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from .inputs import check_labels
from .printing import shortened
from .runtime import generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Which images are labeled, which are not, and how they are augmented."""

    name: str = "digits"
    """data set, by name or by the path of an .npz file"""
    labeled: int | None = 10_000
    """labeled training images, |D_L|; None: all"""
    unlabeled: int | None = None
    """unlabeled training images of the data set; None: all that remain, 0: none"""
    unlabeled_files: tuple[str, ...] = ()
    """files of more unlabeled images, .npy or raw bytes, or folders of them: read while training, however large"""
    validation: int = 0
    """images held out of the labeled ones, for choosing a checkpoint"""
    split: Literal["balanced", "first"] = "balanced"
    """balanced: seeded, the same number of each class; first: in file order, as the authors did"""
    seed: int = 0
    """seed of the split"""
    crop: int = 0
    """pixels of zero padding before a random crop; 0: no crop"""
    flip: bool = False
    """whether to mirror images left to right half of the time"""
    sha256: str | None = field(default=None, compare=False)
    """checksum of the images and labels, which a run fills in; others are refused then"""

    def __post_init__(self) -> None:
        if self.labeled is not None and self.labeled < 1:
            raise ValueError(f"--data.labeled must be at least 1, got {self.labeled}: raise it, or use None for all")
        if self.unlabeled is not None and self.unlabeled < 0:
            raise ValueError(
                f"--data.unlabeled must be at least 0, got {self.unlabeled}: use 0 for none, None for all"
            )
        if self.validation < 0:
            raise ValueError(f"--data.validation must be at least 0, got {self.validation}: use 0 for none")
        if self.labeled is not None and self.validation >= self.labeled:
            raise ValueError(_no_training_left(self.validation, self.labeled))
        if self.split not in ("balanced", "first"):
            raise ValueError(f"--data.split must be balanced or first, got {self.split!r}: choose one of the two")
        if not isinstance(self.crop, Integral) or self.crop < 0:
            raise ValueError(f"--data.crop must be a whole number of at least 0, got {self.crop}: use 0 for no crop")

    @property
    def sources(self) -> str:
        """Where the images come from, in words."""
        return self.name + (" or its unlabeled files" if self.unlabeled_files else "")


class Split(NamedTuple):
    """Disjoint index tensors into the training images."""

    labeled: Tensor
    """images to train on with their labels"""
    validation: Tensor
    """images held out, whose labels choose a checkpoint"""
    unlabeled: Tensor
    """images to train on without their labels"""


def split(labels: Tensor, spec: Data, classes: int, *, extra: int = 0, names: Sequence[str] = ()) -> Split:
    """Split the training images as `spec` says, a function of the arguments alone.

    The `extra` images that never had a label are numbered from `len(labels)` on. `names` are those of the classes.
    """
    check_labels(labels, len(labels), classes)
    labeled, unlabeled = _sizes(spec, len(labels), extra)
    if spec.split == "first":
        in_file_order = torch.arange(len(labels) + extra)
        trained, held_out, rest = in_file_order.tensor_split([labeled - spec.validation, labeled])
    else:
        trained, held_out, rest = _balanced(labels, spec, labeled, classes, extra)
    counts = torch.bincount(labels[trained], minlength=classes)
    if len(empty := (counts == 0).nonzero()):
        label, advice = int(empty[0]), "raise --data.labeled"
        advice += ", or lower --data.validation" if spec.validation else ""
        advice += ", or choose --data.split balanced" if spec.split == "first" else ""
        if not (labels == label).any():
            advice = (
                f"no training image has that label; add some, or leave this one of the {classes} classes out, of the "
                "test images too, and number the others from 0 without a gap"
            )
        name = f" ({shortened(names[label])})" if names and names[label] != str(label) else ""
        raise ValueError(f"no labeled image of class {label}{name} is among the {len(trained)} to train on: {advice}")
    return Split(trained, held_out, rest[:unlabeled])


def _sizes(spec: Data, images: int, extra: int) -> tuple[int, int]:
    """Numbers of labeled images, with validation, and of unlabeled ones."""
    labeled = images if spec.labeled is None else spec.labeled
    if labeled > images:
        raise ValueError(
            f"--data.labeled {labeled} is more than the {images} images with a label: lower it, or set None for all"
        )
    if spec.validation >= labeled:
        raise ValueError(_no_training_left(spec.validation, labeled))
    left = images - labeled + extra
    unlabeled = left if spec.unlabeled is None else spec.unlabeled
    if unlabeled > left:
        raise ValueError(
            f"--data.unlabeled {unlabeled} is more than the {left} images that {labeled} labeled ones leave: "
            "lower it or --data.labeled"
        )
    return labeled, unlabeled


def _no_training_left(validation: int, labeled: int) -> str:
    return (
        f"--data.validation {validation} leaves none of the {labeled} labeled images to train on: "
        "lower it or raise --data.labeled"
    )


def _balanced(labels: Tensor, spec: Data, labeled: int, classes: int, extra: int) -> list[Tensor]:
    """Images to train on, held-out ones, and all the rest, shuffled."""
    rng = generator(torch.device("cpu"), spec.seed, "split")
    order = torch.randperm(len(labels), generator=rng)
    taken = _fair_shares(labeled, torch.bincount(labels, minlength=classes))
    # Validation leaves each class an image to train on, unless there are too few for that anyway.
    spare = (taken - 1).clamp(min=0)
    held_out = _fair_shares(spec.validation, spare if spare.sum() >= spec.validation else taken)
    by_class = [
        order[labels[order] == number].tensor_split([int(held_out[number]), int(taken[number])])
        for number in range(classes)
    ]
    validation, trained, rest = (torch.cat(part) for part in zip(*by_class, strict=True))
    rest = torch.cat((rest, torch.arange(len(labels), len(labels) + extra)))
    return [trained.sort().values, validation.sort().values, rest[torch.randperm(len(rest), generator=rng)]]


def _fair_shares(total: int, supply: Tensor) -> Tensor:
    """How many to take of each class: as evenly as the supply allows, odd ones from the first classes."""
    shares = torch.zeros_like(supply)
    while left := total - int(shares.sum()):
        unspent = (shares < supply).nonzero().flatten()[:left]
        shares[unspent] += left // len(unspent)
        shares = shares.minimum(supply)
    return shares


def augment(images: Tensor, rng: Generator, *, crop: int, flip: bool) -> Tensor:
    """Random crop after zero padding, then a left-right flip with probability 1/2; a draw for each image."""
    count, device = len(images), images.device
    if crop:
        height, width = images.shape[-2:]
        top, left = torch.randint(0, 2 * crop + 1, (2, count), generator=rng, device=device)
        # Every window of the padded images is a view; only the drawn ones are copied.
        windows = F.pad(images, (crop,) * 4).unfold(2, height, 1).unfold(3, width, 1)
        images = windows[torch.arange(count, device=device), :, top, left]
    if flip:
        mirrored = torch.randint(0, 2, (count, 1, 1, 1), generator=rng, device=device)
        images = torch.where(mirrored.bool(), images.flip(-1), images)
    return images
