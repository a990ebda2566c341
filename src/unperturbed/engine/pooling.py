"""A shortcut that averages and fills up channels as one operation, where no compiler makes it one."""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .convolutions import MANY
from .operations import Operation, like_second


def ours(x: Tensor, size: int, before: int, behind: int) -> bool:
    """Whether a kernel of our own takes these: on a GPU, channels last, whole squares, few enough to be counted."""
    whole = x.shape[2] % size == x.shape[3] % size == 0 and x.is_contiguous(memory_format=torch.channels_last)
    counted = x.numel() < MANY and len(x) * (before + x.shape[1] + behind) * x.shape[2] * x.shape[3] < MANY
    return x.is_cuda and whole and counted and x.dtype != torch.float64 and find_spec("triton") is not None


def pooled(x: Tensor, size: int, up: bool, before: int, behind: int) -> Tensor:
    """The means of squares, also of those cut off by the border where counted up, and so many channels of zeros."""
    if ours(x, size, before, behind):
        from . import pixels

        return pixels.averaged(x, size, before, behind)
    return F.pad(F.avg_pool2d(x, size, ceil_mode=up), (0, 0, 0, 0, before, behind))


def shape_of_pooled(x: Tensor, size: int, up: bool, before: int, behind: int) -> Tensor:
    """What pooled returns, without its values."""
    return F.pad(F.avg_pool2d(x, size, ceil_mode=up), (0, 0, 0, 0, before, behind))


def slopes_of_pooled(slopes: Tensor, x: Tensor, size: int, up: bool, before: int, behind: int) -> Tensor:
    """The gradient of that with respect to x."""
    if ours(x, size, before, behind):
        from . import pixels

        return pixels.slopes_of_averaged(slopes.contiguous(memory_format=torch.channels_last), x, size, before)
    own = slopes[:, before : slopes.shape[1] - behind]
    steps = ([size] * 2, [size] * 2, [0, 0], up, True, None)
    return torch.ops.aten.avg_pool2d_backward(own, x, *steps).clone(memory_format=torch.preserve_format)


def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001  (called by name)
    """Keep what the gradient needs."""
    x, *ctx.settings = inputs
    ctx.save_for_backward(x)


def gradient(ctx: Any, slopes: Tensor, *, whole: bool) -> tuple[Tensor | None, ...]:
    """The slopes of the images."""
    found = SLOPES_OF_POOLED.called(whole=whole)(slopes, *ctx.saved_tensors, *ctx.settings)
    return found, None, None, None, None


SLOPES_OF_POOLED = Operation("slopes_of_pooled", slopes_of_pooled, fake=like_second)
POOLED = Operation("pooled", pooled, fake=shape_of_pooled).with_gradient(remember, gradient).function()
