"""A BatchNorm that stands still and the ReLU behind it as one operation, where no compiler makes it one."""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .convolutions import MANY
from .operations import Operation, like_first, like_second


def ours(*images: Tensor) -> bool:
    """Whether a kernel of our own takes these: on a GPU, with no gaps in memory, and few enough to be counted."""
    formats = (torch.channels_last, torch.contiguous_format)
    dense = any(all(each.is_cuda and each.is_contiguous(memory_format=one) for each in images) for one in formats)
    counted = images[0].numel() < MANY and images[0].dtype != torch.float64
    return dense and counted and find_spec("triton") is not None


def scaled(x: Tensor, factor: Tensor, shift: Tensor, leak: float) -> Tensor:
    """The sum factor x + shift, with a number of each for a channel, of which the negative is multiplied by leak."""
    if ours(x):
        from . import pixels

        return pixels.scaled(x, factor, shift, leak)
    z = x.to(factor.dtype) * factor.view(-1, 1, 1) + shift.view(-1, 1, 1)
    return F.leaky_relu(z, leak).to(x.dtype)


def slopes_of_scaled(slopes: Tensor, y: Tensor, factor: Tensor, leak: float) -> Tensor:
    """The gradient of that with respect to x, by its result y."""
    if ours(slopes, y):
        from . import pixels

        return pixels.slopes_of_scaled(slopes, y, factor, leak)
    slopes = torch.where(y > 0, slopes, leak * slopes)
    return (slopes.to(factor.dtype) * factor.view(-1, 1, 1)).to(y.dtype)


def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient needs; leaks are not negative, so the sign of the result tells all."""
    _, factor, _, ctx.leak = inputs
    ctx.save_for_backward(output, factor)


def gradient(ctx: Any, slopes: Tensor, *, whole: bool) -> tuple[Tensor | None, ...]:
    """The slopes of the images: factors and shifts stand still."""
    y, factor = ctx.saved_tensors
    return SLOPES_OF_SCALED.called(whole=whole)(slopes, y, factor, ctx.leak), None, None, None


SLOPES_OF_SCALED = Operation("slopes_of_scaled", slopes_of_scaled, fake=like_second)
SCALED = Operation("scaled", scaled, fake=like_first).with_gradient(remember, gradient).function()
