"""D_L, D_U and the validation part: made from a data set, or from tensors of one's own, and checked."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .data import Data, split
from .datasets import Dataset
from .inputs import as_float, check_images, check_labels, output_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """D_L with its labels, D_U and the validation part, as uint8 or float tensors on the device of the run."""

    labeled: Tensor
    labels: Tensor
    unlabeled: Tensor
    validation: Tensor
    validation_labels: Tensor

    def to(self, device: torch.device) -> "Images":
        """The same images on that device."""
        return Images(**{name: getattr(self, name).to(device) for name in self.__slots__})

    def checksum(self) -> str:
        """SHA-256 of all images and labels, of their order and of their form."""
        digest = hashlib.sha256()
        for name in self.__slots__:
            tensor: Tensor = getattr(self, name).cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def check(self, f: nn.Module) -> None:
        """Refuse images, labels or a model that training cannot use, each in a sentence."""
        labeled, unlabeled = self.labeled, self.unlabeled
        if len(labeled) == 0:
            raise ValueError("no labeled image was given, expected at least one of each class")
        given, expected = ((part.dtype, *part.shape[1:]) for part in (unlabeled, labeled))
        if given != expected:
            raise ValueError(f"unlabeled images are {given} and labeled ones {expected}: bring them to one form")
        for images, what in ((labeled, "labeled images"), (unlabeled, "unlabeled images")):
            check_images(as_float(images), what)
        classes = output_classes(f, as_float(labeled[:2]))
        check_labels(self.labels, len(labeled), classes)
        absent = (self.labels.bincount(minlength=classes) == 0).nonzero().flatten().tolist()
        if absent:
            raise ValueError(
                f"no labeled image of class {absent[0]} was given, though the model has {classes} outputs: "
                "label at least one image of each class"
            )


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
