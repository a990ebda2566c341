"""D_L, D_U and the validation part: made from a data set, or from tensors of one's own, and checked."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from .data import Data, split
from .datasets import Dataset
from .formats import require_bright
from .inputs import as_float, check_labels, check_pixels, output_classes, require
from .repeats import repeats
from .reservoir import PIECE, PIECES, Reservoir, image_files
from .runtime import generator

AT_ONCE = 256
"""images at most that go through a network together where statistics are estimated"""
MOST_SOUGHT = 2**16
"""images of files at most among which test images are sought, which takes about a second"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """D_L with its labels, D_U and the validation part, as uint8 or float tensors on the device of the run.

    D_U may be a reservoir instead, whose images come from files; then all images are uint8.
    """

    labeled: Tensor
    labels: Tensor
    unlabeled: Tensor | Reservoir
    validation: Tensor
    validation_labels: Tensor

    def to(self, device: torch.device) -> "Images":
        """The same images on that device."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return Images(**{name: part.to(device) if isinstance(part, Tensor) else part for name, part in found.items()})

    def checksum(self) -> str:
        """SHA-256 of all images and labels, of their order and of their form; of large files, of a sample."""
        digest = hashlib.sha256()
        for name in self.__slots__:
            part: Tensor | Reservoir = getattr(self, name)
            digest.update(f"{name} {part.dtype} {tuple(part.shape)} ".encode())
            if not isinstance(part, Tensor):
                for piece in part.sample():
                    digest.update(piece)
            elif part.numel():  # Where none is left of images that lie apart, there are no bytes to look at.
                digest.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def some_of_each(self, count: int, rng: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """At most so many labeled images, with their labels, and at most so many unlabeled ones."""
        here = some_rows(len(self.labeled), count, rng).to(self.labeled.device)
        there = some_rows(len(self.unlabeled), count, rng, sparing=isinstance(self.unlabeled, Reservoir))
        return self.labeled[here], self.labels[here], self.of_unlabeled(there)

    def some(self, count: int, rng: Generator) -> Tensor:
        """At most so many of all images to train on."""
        device, labeled, unlabeled = self.labeled.device, self.labeled, self.unlabeled
        size = len(labeled) + len(unlabeled)
        rows = some_rows(size, count, rng, sparing=isinstance(unlabeled, Reservoir))
        here = rows < len(labeled)
        images = torch.empty((len(rows), *labeled.shape[1:]), dtype=labeled.dtype, device=device)
        images[here.to(device)] = labeled[rows[here].to(device)]
        images[~here.to(device)] = self.of_unlabeled(rows[~here] - len(labeled))
        return images

    def of_unlabeled(self, rows: Tensor) -> Tensor:
        """Those of the unlabeled images, on the device of the labeled ones; files are read by the host."""
        device = self.labeled.device
        if isinstance(self.unlabeled, Tensor):
            return self.unlabeled[rows.to(device)]
        return self.unlabeled[rows].to(device)

    def check(self, f: nn.Module, crop: int = 0) -> None:
        """Refuse images, labels, a model or a crop that training cannot use, each in a sentence."""
        labeled, unlabeled = self.labeled, self.unlabeled
        if len(labeled) == 0:
            raise ValueError("no labeled image was given, expected at least one of each class")
        others = {"unlabeled images": unlabeled}
        if len(self.validation):
            others["held-out images"] = self.validation
        for what, images in others.items():
            given, expected = ((part.dtype, *part.shape[1:]) for part in (images, labeled))
            if given != expected:
                raise ValueError(f"{what} are {given} and labeled ones {expected}: bring them to one form")
        for what, images in ({"labeled images": labeled} | others).items():
            if isinstance(images, Tensor):
                check_pixels(images, what)
        height, width = labeled.shape[-2:]
        if crop and crop >= min(height, width):
            raise ValueError(
                f"--data.crop must be smaller than the images, which have {height} x {width} pixels, got {crop}: "
                "an image could be cropped away"
            )
        classes = output_classes(f, as_float(labeled[:2]))
        check_labels(self.labels, len(labeled), classes)
        check_labels(self.validation_labels, len(self.validation), classes, "labels of held-out images")
        sparse = [name for name, weight in f.named_parameters() if weight.layout is not torch.strided]
        require(
            not sparse, f"weights that are sparse tensors are not trained, as {', '.join(sparse)}: make them dense"
        )
        trainable = any(weight.requires_grad for weight in f.parameters())
        require(trainable, "the model has no weight that training may change: set requires_grad of those that it may")
        absent = (self.labels.long().bincount(minlength=classes) == 0).nonzero().flatten().tolist()
        if absent:
            raise ValueError(
                f"no labeled image of class {absent[0]} was given, though the model has {classes} outputs: "
                "label at least one image of each class"
            )


def some_rows(size: int, count: int, rng: Generator, *, sparing: bool = False) -> Tensor:
    """At most so many different rows; where memory is to be spared, of many not all are shuffled for that."""
    if sparing and size > 100 * count:
        drawn = torch.randint(size, (2 * count,), generator=rng).unique()
        return drawn[torch.randperm(len(drawn), generator=rng)[:count]]
    return torch.randperm(size, generator=rng)[:count]


def for_statistics(images: Images, seed: int) -> list[Tensor]:
    """The images on which BatchNorm statistics are estimated, for one seed always the same, in parts of one size."""
    some = images.some(16 * AT_ONCE, generator(torch.device("cpu"), seed, "batchnorm"))
    return [as_float(part) for part in some.tensor_split(-(-len(some) // AT_ONCE))]


def parts(dataset: Dataset, data: Data) -> Images:
    """D_L, D_U and the validation part of a data set; images that never had a label belong to D_U."""
    pool = torch.cat([dataset.train_images, dataset.unlabeled_images])
    names = dataset.classes
    rows = split(dataset.train_labels, data, len(names), extra=len(dataset.unlabeled_images), names=names)
    unlabeled, (channels, height, width) = pool[rows.unlabeled], pool.shape[1:]
    files = image_files(data.unlabeled_files, (channels, height, width))
    if files:
        require_bright(Reservoir(pool[:0], files).brightest(), "the images in --data.unlabeled-files")
    return Images(
        labeled=pool[rows.labeled],
        labels=dataset.train_labels[rows.labeled],
        unlabeled=Reservoir(unlabeled, files) if files else unlabeled,
        validation=pool[rows.validation],
        validation_labels=dataset.train_labels[rows.validation],
    )


def repeats_in_files(test: Tensor, unlabeled: Tensor | Reservoir) -> str | None:
    """What to say of test images in files of unlabeled images, nothing if there are none; large files are sampled."""
    if isinstance(unlabeled, Tensor):
        return None
    rows = rows_to_look_at(unlabeled)
    all_of_them = len(rows) == len(unlabeled) - len(unlabeled.resident)
    extent = "" if all_of_them else f", of which {len(rows):,} images were looked at"
    return repeats(test, unlabeled[rows], where=f"in the files of unlabeled images{extent}")


def rows_to_look_at(unlabeled: Reservoir) -> Tensor:
    """All images of the files or, where they are many or large, stretches of them from the first to the last.

    The stretches lie nearly where those bytes do that a checksum is made of, so that little is read again.
    """
    first, count = len(unlabeled.resident), len(unlabeled) - len(unlabeled.resident)
    most = max(2, min(MOST_SOUGHT, PIECES * PIECE // unlabeled.image))
    if count <= most:
        return torch.arange(first, first + count)
    stretches = min(PIECES, most)
    length = most // stretches
    begins = first + torch.arange(stretches) * (count - length) // (stretches - 1)
    return (begins.unsqueeze(1) + torch.arange(length)).unique()
