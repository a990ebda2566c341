"""What comes in from outside, images, labels and models: made ready, or refused in one sentence."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from os import PathLike

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from .answers import in_evaluation_mode

OWN_WEIGHTS = "make the network and give it them by load_state_dict"
UNFLATTEN = "make a module of the program by torch.export.unflatten"


def as_float(images: Tensor) -> Tensor:
    """Images of bytes as float32 in [0, 1]; floating-point ones as they are."""
    require_tensor(images, "images")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"images must be uint8 or floating point, got {images.dtype}: convert them")
    return images.float() / 255 if images.dtype == torch.uint8 else images


def check_images(images: Tensor, what: str = "images") -> None:
    """Refuse anything but finite floating-point images (N, C, H, W) in [0, 1]."""
    if not images.is_floating_point():
        raise ValueError(f"{what} must be floating point, got {images.dtype}: convert them with inputs.as_float")
    if torch.finfo(images.dtype).bits < 32:
        raise ValueError(
            f"{what} must have at least 32 bits, got {images.dtype}, whose rounding exceeds small budgets: convert "
            "them and the model by .float()"
        )
    if images.ndim != 4:
        raise ValueError(f"{what} must have the shape (N, C, H, W), got {tuple(images.shape)}: reshape them")
    if not images.numel():
        return
    low, high = (float(bound) for bound in images.detach().aminmax())
    check_range(low, high, what, remedy_of_maximum(high))


def check_range(low: float, high: float, what: str, remedy: str) -> None:
    """Refuse pixels that are not finite or lie outside [0, 1]; the remedy is for a maximum above 1."""
    if not math.isfinite(low + high):
        raise ValueError(f"{what} must be finite, got NaN or infinity: look for the step that made them so")
    if low < 0:
        raise ValueError(
            f"{what} must lie in [0, 1], got a minimum of {low}: leave the shifting to models.Normalize, put first"
        )
    if high > 1:
        raise ValueError(f"{what} must lie in [0, 1], got a maximum of {high}: {remedy}")


def remedy_of_maximum(high: float) -> str:
    """What to do about fractions that go up to so much: bytes, numbers of more bits, or ones that went astray."""
    if high > 255:
        return "divide them by the largest number that they may be, as 65535 for 16 bits"
    return "divide them by 255" if high >= 2 else "clip them, as by .clamp(0, 1)"


def check_pixels(images: Tensor, what: str = "images") -> None:
    """Refuse anything but bytes, or fractions in [0, 1]; as floats bytes would take four times as much memory."""
    check_images(as_float(images[:1] if images.dtype == torch.uint8 else images), what)


def check_labels(labels: Tensor, count: int, classes: int, what: str = "labels") -> None:
    """Refuse anything but one class number in [0, classes) for each of `count` images."""
    require_tensor(labels, what)
    if labels.ndim == 2 and len(labels) == count and labels.shape[1] in (1, classes):
        number = "squeeze(1)" if labels.shape[1] == 1 else "argmax(1)"
        raise ValueError(
            f"{what} must have the shape ({count},), got {tuple(labels.shape)}: give the number of each class, "
            f"by .{number}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"{what} must be integers, got {labels.dtype}: convert them to int64")
    if labels.ndim != 1 or len(labels) != count:
        raise ValueError(
            f"{what} must have the shape ({count},), got {tuple(labels.shape)}: give each image exactly one label"
        )
    if not count:
        return
    for label in labels.long().aminmax():
        if not 0 <= int(label) < classes:
            apart = ", and give images without a label apart, as unlabeled ones" if label < 0 else ""
            raise ValueError(
                f"{what} must lie in 0 to {classes - 1}, got {int(label)}: number the {classes} classes from 0{apart}"
            )


def output_classes(f: Callable[[Tensor], object], x: Tensor) -> int:
    """The number of classes f tells apart; refuses an f that does not answer a few images with logits."""
    given = x.clone()
    try:
        with in_evaluation_mode(f) if isinstance(f, nn.Module) else nullcontext(), torch.no_grad():
            logits = f(given)
    except RuntimeError as error:
        if "eval()" in str(error):
            raise ValueError(f"the model refuses evaluation mode, as exported ones do: {UNFLATTEN}") from error
        weights = next(f.parameters(), None) if isinstance(f, nn.Module) else None
        if weights is not None and weights.is_floating_point() and weights.dtype != x.dtype:
            raise ValueError(
                f"images are {x.dtype} and the model's weights {weights.dtype}: let the model convert what it gets"
            ) from error
        if x.shape[-1] not in (1, 3) or x.shape[1] in (1, 3):
            raise
        raise ValueError(
            f"the model does not take images of the shape {tuple(x.shape)[1:]}, whose channels seem to come last: "
            "bring them to (N, C, H, W) by images.permute(0, 3, 1, 2)"
        ) from error
    kept = bool(torch.equal(given, x))
    require(
        kept, "a model must leave its images as they are, this one changes them: write x = x - mean for x -= mean"
    )
    rule = "a model must return logits of shape (batch, classes)"
    if not isinstance(logits, Tensor):
        raise ValueError(f"{rule}, got a {type(logits).__name__}: return one tensor, the logits alone")
    shape = tuple(logits.shape)
    one_row_each = len(shape) == 2 and shape[0] == len(x)
    require(one_row_each, f"{rule}, got {shape}: return one row for each of the {len(x)} images")
    require(shape[1] >= 2, f"{rule}, got {shape}: return one logit for each of at least 2 classes")
    require(logits.is_floating_point(), f"{rule} as floats, got {logits.dtype}: return the logits, before the argmax")
    require(bool(logits.isfinite().all()), f"{rule} that are finite, got NaN or infinity: check weights and images")
    tolerance = max(1e-5, torch.finfo(logits.dtype).eps)
    sum_to_one = (logits.float().sum(1) - 1).abs() <= tolerance
    softmaxed = len(x) > 0 and bool((sum_to_one & (logits >= 0).all(1) & (logits <= 1).all(1)).all())
    require(not softmaxed, f"{rule}, got rows that are already probabilities: return the logits, before the softmax")
    return shape[1]


def check_model(f: object) -> None:
    """Refuse anything but a module with weights, which has modes and can be frozen."""
    kind, advice = f"a {type(f).__name__}", "call it in a module's forward"
    if isinstance(f, type):
        kind, advice = f"the class {f.__name__}", f"make one of it, {f.__name__}(…)"
    if isinstance(f, str | PathLike):
        advice = f"of a run give up.load(its directory).model; for weights of your own {OWN_WEIGHTS}"
    if isinstance(getattr(f, "model", None), nn.Module):
        advice = "give the network that it holds, .model"
    if isinstance(f, Mapping):
        advice = f"where it holds weights, {OWN_WEIGHTS}"
    if isinstance(f, ExportedProgram):
        advice = UNFLATTEN
    require(isinstance(f, nn.Module), f"a model must be a torch.nn.Module, got {kind}: {advice}")
    waiting = isinstance(f, nn.parallel.DistributedDataParallel)
    require(
        not waiting, "within DistributedDataParallel each pass waits for all processes: give what it wraps, .module"
    )
    empty = isinstance(f, nn.Module) and any(weight.is_meta for weight in (*f.parameters(), *f.buffers()))
    require(not empty, "a model must have weights, this one lies on the device meta: give it some by to_empty")


def require_tensor(values: object, what: str) -> None:
    """Refuse arrays and lists."""
    kind = type(values).__name__
    require(isinstance(values, Tensor), f"{what} must be a tensor, got a {kind}: convert it with torch.as_tensor")


def require(condition: bool, sentence: str) -> None:
    """Raise the sentence where the condition does not hold."""
    if not condition:
        raise ValueError(sentence)
