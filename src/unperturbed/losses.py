"""Losses for each image, shape (B,): what a solver maximizes and an objective averages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .answers import require_logits

PerImageLoss = Callable[[Tensor, Tensor], Tensor]
"""(logits of shape (B, classes), target) -> loss of each image, shape (B,)"""
NO_LABEL = -(2**31)
"""what PyTorch takes for no label, in place of -100: it gives such images a loss of 0, which counts in a mean"""


class Loss(Protocol):
    """All that a solver sees: the loss of perturbed images."""

    def __call__(self, images: Tensor, /, rows: Tensor | None = None) -> Tensor:
        """The loss of each image; image i perturbs x[rows[i]], or x[i] where rows are not given."""
        ...


@dataclass(slots=True, eq=False)  # Not frozen: torch.compile cannot trace how a frozen one is made.
class Against:
    """x' -> L(f(x'), target): closes a loss over a classifier and what it should have said of each x."""

    loss: PerImageLoss
    f: Callable[[Tensor], Tensor]
    target: Tensor

    def __call__(self, images: Tensor, /, rows: Tensor | None = None) -> Tensor:
        logits = answer_of(self.f, images)
        return of_each(self.loss(logits, self.target if rows is None else self.target[rows]), images)


def answer_of(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """f(x); one of float16 as float32, and what leads from it back to x scaled, image by image, to pass float16.

    Of a confident answer the slope is less than float16 can hold: it would come to 0, and a search stand still.
    """
    x = x.view_as(x)  # Only what comes back through f is to be scaled.
    logits = f(x)
    if not isinstance(logits, Tensor):  # Losses of one's own may judge answers of other shapes.
        require_logits(logits)
    if logits.dtype != torch.float16:
        return logits
    logits = logits.float()
    if logits.requires_grad and x.requires_grad:
        scales: list[Tensor] = []

        def enlarged(slopes: Tensor) -> Tensor:
            largest = slopes.abs().amax(1)
            scales[:] = [torch.where(largest > 0, largest, 1)]
            return slopes / scales[0].unsqueeze(1)

        def restored(slopes: Tensor) -> Tensor:
            return slopes * scales[0].to(slopes.dtype).view(-1, *[1] * (slopes.dim() - 1))

        logits.register_hook(enlarged)
        x.register_hook(restored)
    return logits


def of_each(values: Tensor, images: Tensor) -> Tensor:
    """The values of a loss, which must be one for each image."""
    if values.shape != images.shape[:1]:
        raise ValueError(
            f"a loss must return one value for each of the {len(images)} images, got the shape "
            f"{tuple(values.shape)}: leave the mean out, as by reduction='none'"
        )
    return values


def cross_entropy(logits: Tensor, target: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """-log p_target, for target classes, integers of any kind, or target distributions."""
    require_logits(logits)
    require_labels(target, len(logits))
    meant = at_least_float32(target) if target.is_floating_point() else target.long()
    try:
        return F.cross_entropy(
            at_least_float32(logits), meant, reduction="none", label_smoothing=smoothing, ignore_index=NO_LABEL
        )
    except IndexError as error:  # Of a CPU; a GPU stops by itself, and nobody waits for it to look.
        raise ValueError(outside(target, logits.shape[1])) from error


def require_labels(labels: object, count: int) -> None:
    """Refuse what holds neither a class for each of so many images nor a distribution over the classes."""
    if isinstance(labels, Tensor) and labels.ndim == 1 + labels.is_floating_point() and len(labels) == count:
        return
    kind = type(labels).__name__
    given = f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else f"a {kind}"
    raise ValueError(
        f"labels must be a class for each of the {count} images, integers of shape ({count},), got {given}: give "
        "each image one, by torch.as_tensor, .long(), .squeeze(1) or, of one-hot ones, .argmax(1)"
    )


def outside(labels: Tensor, classes: int) -> str:
    """What to say of labels some of which are none of so many classes."""
    wrong = labels[(labels < 0) | (labels >= classes)].unique().tolist()
    apart = ", and give images without a label apart, as u" if wrong[0] < 0 else ""
    return f"labels must lie in 0 to {classes - 1}, got {wrong[0]}: number the {classes} classes from 0{apart}"


def at_least_float32(values: Tensor) -> Tensor:
    """The same values as float32 at least: in 16 bits the KL of two answers to one image is but rounding."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def mean(values: Tensor) -> Tensor:
    """The mean over images; over none it is 0, with a gradient of 0."""
    return values.mean() if len(values) else values.sum()


def kl(logits: Tensor, target: Tensor) -> Tensor:
    """KL(softmax(target) || softmax(logits)): how far an answer moved from another; differentiable in both."""
    require_logits(logits)
    said, meant = at_least_float32(logits).log_softmax(1), at_least_float32(target).log_softmax(1)
    return (meant.exp() * (meant - said)).sum(1)


def margin(logits: Tensor, target: Tensor) -> Tensor:
    """max_{i != y} z_i - z_y: positive where x is misclassified; on probabilities it is -D(x) of the paper."""
    column = target.long().unsqueeze(1)
    own = logits.gather(1, column).squeeze(1)
    others = logits.scatter(1, column, -torch.inf)
    return others.amax(1) - own


def ahead_of(logits: Tensor, target: Tensor, other: Tensor) -> Tensor:
    """z_other - z_y: how far one class is ahead of the right one."""
    own, its = (logits.gather(1, each.long().unsqueeze(1)).squeeze(1) for each in (target, other))
    return its - own


def slope_of(total: Tensor, point: Tensor, *, again: bool = False, signs: bool = False) -> Tensor:
    """The gradient of a number, or of the sum of several; `again` if another one is taken from the same graph.

    Where its signs alone count, NaN and infinity stay in it: they have the signs that `finite` gives them.
    """
    if not total.requires_grad and torch.is_inference_mode_enabled():
        raise ValueError("torch.inference_mode leaves no gradient to search along: use torch.no_grad in its place")
    slope = None
    if total.requires_grad:  # Also where only weights that no module holds have a gradient, and the image has none.
        ones = torch.ones_like(total)
        try:
            (slope,) = torch.autograd.grad(total, point, ones, retain_graph=again, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):
                raise
            raise ValueError(
                "the model calls torch.utils.checkpoint with use_reentrant=True, through which no search can take a "
                "gradient: set use_reentrant=False"
            ) from error
    if slope is None:
        raise ValueError(
            "the model passes no gradient from its answer to the image, which this search follows: "
            "search with WorstOfK or Grid, attack with pointwise or randadv, or remove what cuts the gradient off"
        )
    return slope if signs else finite(slope)


def finite(slope: Tensor) -> Tensor:
    """A gradient in which NaN counts as 0, and infinity as much as the largest finite slope of its image.

    Roots and powers have such slopes at black pixels. One alone would spoil the step of a whole image, and with
    momentum all steps after it.
    """
    rows = slope.nan_to_num(0.0, 0.0, 0.0).unsqueeze(-1).flatten(1)
    bound = rows.abs().amax(1).clamp_min(torch.finfo(slope.dtype).tiny).view(-1, *[1] * (slope.dim() - 1))
    return slope.nan_to_num(0.0, torch.inf, -torch.inf).clamp(-bound, bound)
