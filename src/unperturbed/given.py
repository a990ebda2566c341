"""What an objective is given: a batch, and what to say where it is none. Types and shapes tell: no GPU waits."""

from typing import NamedTuple

import torch
from torch import Tensor

from .losses import require_labels


class Batch(NamedTuple):
    """A draw of D_L with its labels, (x, y), and a draw of D_U, u: without one, `x[:0]`.

    Images are float in [0, 1], labels integers. A term over no images is 0.
    """

    x: Tensor
    y: Tensor
    u: Tensor
    opinion: Tensor | None = None
    """logits for x and u together from a labeler other than f; none: f is its own labeler"""


def labeled_images(batch: Batch) -> Tensor:
    """The labeled images of what is a batch."""
    require_batch(batch)
    return batch.x


def images_of(batch: Batch) -> Tensor:
    """The labeled images and those of u."""
    require_batch(batch)
    require_alike(batch)
    return torch.cat([batch.x, batch.u])


def with_pseudo_labels(batch: Batch) -> tuple[Tensor, Tensor]:
    """The labeled images, and those of u that a labeler has labeled, with all of these labels."""
    require_batch(batch)
    if batch.opinion is None or len(batch.u) == 0:
        return batch.x, batch.y
    if batch.y.ndim > 1:
        raise ValueError(
            "labels that are distributions cannot stand beside the classes of another labeler: give integers, or no "
            "opinion"
        )
    guessed = batch.opinion[len(batch.x) :].argmax(1)
    return images_of(batch), torch.cat([batch.y, guessed])


def require_batch(batch: object) -> None:
    """Refuse what is no batch, as a plain tuple, or one of bytes, of labels or of logits that fit no image."""
    if not isinstance(batch, Batch):
        raise ValueError(
            f"a batch must be an unperturbed.Batch, got a {type(batch).__name__}: write Batch(x, y, u), with x[:0] "
            "for u where there are no unlabeled images"
        )
    x: object = batch.x
    if not isinstance(x, Tensor) or not x.is_floating_point():
        given = x.dtype if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise ValueError(
            f"the images x of a batch must be floats in [0, 1], got {given}: convert them, bytes by .float() / 255"
        )
    require_labels(batch.y, len(x))
    if batch.opinion is not None:
        require_alike(batch)
        require_opinion(batch.opinion, len(x), len(batch.u))


def require_alike(batch: Batch) -> None:
    """Refuse labeled and unlabeled images of two kinds: among floats, bytes would be taken for numbers up to 255."""
    if not isinstance(batch.u, Tensor):
        kind = type(batch.u).__name__
        raise ValueError(f"the unlabeled images u of a batch must be a tensor, got a {kind}: without any give x[:0]")
    if batch.x.dtype != batch.u.dtype:
        raise ValueError(
            f"the images x and u of a batch must be of one kind, floats in [0, 1], got {batch.x.dtype} and "
            f"{batch.u.dtype}: convert them, bytes by .float() / 255"
        )


def require_opinion(opinion: object, labeled: int, unlabeled: int) -> None:
    """Refuse what is not a row of logits for each of so many images, as an opinion about u alone."""
    if isinstance(opinion, Tensor) and opinion.ndim == 2 and len(opinion) == labeled + unlabeled:
        return
    given = f"the shape {tuple(opinion.shape)}" if isinstance(opinion, Tensor) else f"a {type(opinion).__name__}"
    raise ValueError(
        f"the opinion of a batch must be logits for x and u together, {labeled} + {unlabeled} rows, got {given}: ask "
        "the labeler for torch.cat([x, u])"
    )
