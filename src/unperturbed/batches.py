"""Batches: which rows of the labeled and of the unlabeled images a step takes."""

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from .runtime import generator

CPU = torch.device("cpu")
BLOCK = 1024
"""images that lie together in a file and are read together"""
WINDOW = 64 * BLOCK
"""images of blocks from anywhere that are shuffled among each other"""


def permutation(size: int, seed: int, epoch: int, part: str) -> Tensor:
    """The order of the rows of one part in one epoch."""
    return torch.randperm(size, generator=generator(CPU, seed, "batches", epoch, part))


def window(size: int, seed: int, epoch: int, number: int) -> tuple[Tensor, Tensor]:
    """Rows of one window of an epoch in the order they lie, block after block, and in the order they are drawn.

    Whole blocks come in random order, 64 to a window, and what is left over comes last. All are counted from a random
    row on, so that in each epoch something else is left over.
    """
    whole, rest = divmod(size, BLOCK)
    blocks = permutation(whole, seed, epoch, "blocks")[number * WINDOW // BLOCK : (number + 1) * WINDOW // BLOCK]
    rows = (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
    if rest and len(rows) < WINDOW:
        rows = torch.cat([rows, torch.arange(whole * BLOCK, size)])
    rng = generator(CPU, seed, "batches", epoch, "window", number)
    first = torch.randint(size, (), generator=generator(CPU, seed, "batches", epoch, "first row"))
    rows = (rows + first) % size
    return rows, rows[torch.randperm(len(rows), generator=rng)]


class Orders:
    """The orders in use, drawn once. Each run keeps its own: runs by turns would drive out each other's."""

    def __init__(self) -> None:
        self.permutation = lru_cache(maxsize=4)(permutation)
        self.window = lru_cache(maxsize=4)(window)


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
    orders: Orders = field(default_factory=Orders, init=False, repr=False, compare=False)

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
                f"least_labeled (--least-labeled) must be from 1 to the batch of {self.batch}, "
                f"got {self.least_labeled}: lower it"
            )
        if self.unlabeled and self.least_labeled == self.batch:
            raise ValueError(
                f"least_labeled (--least-labeled) of {self.least_labeled} fills a batch of {self.batch}, so that "
                f"none of {self.unlabeled} unlabeled images would ever be drawn: raise batch (--batch), lower "
                "least_labeled if it is more than 1, or leave them out"
            )
        if self.batch > self.labeled + self.unlabeled:
            images = self.labeled + self.unlabeled
            raise ValueError(
                f"batch of {self.batch} is larger than the {images} training images: lower batch (--batch) to "
                f"at most {images}, or train on more images"
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
        return self.orders.permutation(self.labeled, self.seed, epoch, "labeled")[
            torch.arange(start, start + count) % self.labeled
        ]

    def unlabeled_rows(self, step: int) -> Tensor:
        """Rows of D_U in batch number `step`."""
        epoch, start, stop = self._unlabeled_places(step)
        if self._by_windows:
            return self._places_in_windows(epoch, start, stop, shuffled=True)
        return self.orders.permutation(self.unlabeled, self.seed, epoch, "unlabeled")[start:stop].clone()

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
            lying, drawn = self.orders.window(self.unlabeled, self.seed, epoch, number)
            found.append((drawn if shuffled else lying)[max(0, start - number * WINDOW) : stop - number * WINDOW])
        return torch.cat(found)

    def _labeled_before(self, position: int) -> int:
        """Labeled images in the first batches of an epoch: their exact share, or as many as each has at least."""
        return max(
            position * self.least_labeled, position * self.batch * self.labeled // (self.labeled + self.unlabeled)
        )
