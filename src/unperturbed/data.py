"""What training needs of a data set: splits, batches and augmentation."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from .inputs import check_labels
from .runtime import generator

CPU = torch.device("cpu")
BLOCK = 1024
"""images that lie together in a file and are read together"""
WINDOW = 64 * BLOCK
"""images of blocks from anywhere that are shuffled among each other"""


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
        if self.crop < 0:
            raise ValueError(f"--data.crop must be at least 0, got {self.crop}: use 0 for no crop")

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


def split(labels: Tensor, spec: Data, classes: int, *, extra: int = 0) -> Split:
    """Split the training images as `spec` says, a function of the arguments alone.

    The `extra` images that never had a label are numbered from `len(labels)` on.
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
        label, advice = int(empty[0]), "raise --data.labeled, lower --data.validation or choose --data.split balanced"
        if not (labels == label).any():
            advice = f"no image at all has that label; add some, or number the {classes} classes without a gap"
        raise ValueError(f"no labeled image of class {label} is among the {len(trained)} to train on: {advice}")
    return Split(trained, held_out, rest[:unlabeled])


def _sizes(spec: Data, images: int, extra: int) -> tuple[int, int]:
    """Numbers of labeled images, with validation, and of unlabeled ones."""
    labeled = images if spec.labeled is None else spec.labeled
    if labeled > images:
        raise ValueError(f"--data.labeled {labeled} is more than the {images} images with a label: lower it")
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
    rng = generator(CPU, spec.seed, "split")
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


@lru_cache(maxsize=4)
def _permutation(size: int, seed: int, epoch: int, part: str) -> Tensor:
    return torch.randperm(size, generator=generator(CPU, seed, "batches", epoch, part))


@lru_cache(maxsize=4)
def _window(size: int, seed: int, epoch: int, number: int) -> tuple[Tensor, Tensor]:
    """Rows of one window of an epoch in the order they lie, block after block, and in the order they are drawn.

    Whole blocks come in random order, 64 to a window, and what is left over comes last. All are counted from a random
    row on, so that in each epoch something else is left over.
    """
    whole, rest = divmod(size, BLOCK)
    blocks = _permutation(whole, seed, epoch, "blocks")[number * WINDOW // BLOCK : (number + 1) * WINDOW // BLOCK]
    rows = (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
    if rest and len(rows) < WINDOW:
        rows = torch.cat([rows, torch.arange(whole * BLOCK, size)])
    rng = generator(CPU, seed, "batches", epoch, "window", number)
    first = torch.randint(size, (), generator=generator(CPU, seed, "batches", epoch, "first row"))
    rows = (rows + first) % size
    return rows, rows[torch.randperm(len(rows), generator=rng)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProportionalBatches:
    """Which rows of D_L and D_U make up each batch, in proportion to their sizes.

    Batch number t is a function of (seed, t) alone, so that a resumed run needs no sampler state.
    """

    labeled: int
    """number of labeled images, |D_L|"""
    unlabeled: int
    """number of unlabeled images, |D_U|"""
    batch: int
    """images in a batch, labeled and unlabeled together"""
    seed: int
    """seed of the order of the images"""
    nearby: bool = False
    """whether unlabeled images that lie together are drawn at about the same time, as it suits a disk"""
    least_labeled: int = 1
    """labeled images in a batch at least, also where their share is smaller"""

    def __post_init__(self) -> None:
        if self.labeled < 1 or self.unlabeled < 0:
            raise ValueError(
                f"batches need at least 1 labeled and 0 unlabeled images, got {self.labeled} and "
                f"{self.unlabeled}: label some"
            )
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, got {self.batch}: raise it")
        if not 1 <= self.least_labeled <= self.batch:
            raise ValueError(
                f"--least-labeled must be from 1 to the batch of {self.batch}, got {self.least_labeled}: lower it"
            )
        if self.batch > self.labeled + self.unlabeled:
            raise ValueError(
                f"batch of {self.batch} is larger than the {self.labeled + self.unlabeled} training images: "
                "lower the batch, or train on more images"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one pass over the images."""
        return (self.labeled + self.unlabeled) // self.batch

    def counts(self, step: int) -> tuple[int, int]:
        """Numbers of labeled and of unlabeled images in batch number `step`."""
        position = step % self.steps_per_epoch
        labeled = self._labeled_before(position + 1) - self._labeled_before(position)
        return labeled, self.batch - labeled

    def rows(self, step: int) -> tuple[Tensor, Tensor]:
        """Rows of D_L and of D_U in batch number `step`."""
        return self.labeled_rows(step), self.unlabeled_rows(step)

    def labeled_rows(self, step: int) -> Tensor:
        """Rows of D_L in batch number `step`; they wrap around where batches take more than there are."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start, count = self._labeled_before(position), self.counts(step)[0]
        return _permutation(self.labeled, self.seed, epoch, "labeled")[
            torch.arange(start, start + count) % self.labeled
        ]

    def unlabeled_rows(self, step: int) -> Tensor:
        """Rows of D_U in batch number `step`."""
        epoch, start, stop = self._unlabeled_places(step)
        if self._by_windows:
            return self._places_in_windows(epoch, start, stop, shuffled=True)
        return _permutation(self.unlabeled, self.seed, epoch, "unlabeled")[start:stop].clone()

    def soon(self, step: int, *, fresh: bool) -> Tensor:
        """Rows of D_U that are drawn some time after batch number `step`, in the order they lie: a disk's work ahead.

        They are as many of the next window as this batch takes of its own, so that a window is there when it begins.
        Where nothing was fetched before, they begin with the present window.
        """
        epoch, start, stop = self._unlabeled_places(step)
        if not self._by_windows:
            return torch.arange(start, stop)
        later = (start // WINDOW * WINDOW if fresh else start + WINDOW, stop + WINDOW)
        here = (min(place, self.unlabeled) for place in later)
        beyond = (max(0, place - self.unlabeled) for place in later)
        return torch.cat(
            [
                self._places_in_windows(epoch, *here, shuffled=False),
                self._places_in_windows(epoch + 1, *beyond, shuffled=False),
            ]
        )

    @property
    def _by_windows(self) -> bool:
        """Whether an epoch is shuffled piece by piece; one that fits into a window is shuffled as a whole."""
        return self.nearby and self.unlabeled > WINDOW

    def _unlabeled_places(self, step: int) -> tuple[int, int, int]:
        """The epoch of batch number `step`, and where its unlabeled images begin and end in that epoch's order."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch - self._labeled_before(position)
        return epoch, start, start + self.counts(step)[1]

    def _places_in_windows(self, epoch: int, start: int, stop: int, *, shuffled: bool) -> Tensor:
        """Rows at some places of an epoch, as they are drawn, or as they lie within each window."""
        found = [torch.empty(0, dtype=torch.int64)]
        for number in range(start // WINDOW, -(-stop // WINDOW)):
            lying, drawn = _window(self.unlabeled, self.seed, epoch, number)
            found.append((drawn if shuffled else lying)[max(0, start - number * WINDOW) : stop - number * WINDOW])
        return torch.cat(found)

    def _labeled_before(self, position: int) -> int:
        """Labeled images in the first batches of an epoch: their exact share, or as many as each has at least."""
        return max(
            position * self.least_labeled, position * self.batch * self.labeled // (self.labeled + self.unlabeled)
        )


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
