"""A BatchNorm that stands still and the ReLU behind it as one operation, where no compiler makes it one."""

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .convolutions import MANY


def ours(*images: Tensor) -> bool:
    """Whether a kernel of our own takes these: on a GPU, with no gaps in memory, and few enough to be counted."""
    formats = (torch.channels_last, torch.contiguous_format)
    dense = any(all(each.is_cuda and each.is_contiguous(memory_format=one) for each in images) for one in formats)
    counted = images[0].numel() < MANY and images[0].dtype != torch.float64
    return dense and counted and find_spec("triton") is not None


@torch.library.custom_op("unperturbed::scaled", mutates_args=())
def scaled(x: Tensor, factor: Tensor, shift: Tensor, leak: float) -> Tensor:
    """The sum factor x + shift, with a number of each for a channel, of which the negative is multiplied by leak."""
    if ours(x):
        from . import pixels

        return pixels.scaled(x, factor, shift, leak)
    z = x.to(factor.dtype) * factor.view(-1, 1, 1) + shift.view(-1, 1, 1)
    return F.leaky_relu(z, leak).to(x.dtype)


@scaled.register_fake
def _(x: Tensor, _factor: object, _shift: object, _leak: float) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("unperturbed::slopes_of_scaled", mutates_args=())
def slopes_of_scaled(slopes: Tensor, y: Tensor, factor: Tensor, leak: float) -> Tensor:
    """The gradient of that with respect to x, by its result y."""
    if ours(slopes, y):
        from . import pixels

        return pixels.slopes_of_scaled(slopes, y, factor, leak)
    slopes = torch.where(y > 0, slopes, leak * slopes)
    return (slopes.to(factor.dtype) * factor.view(-1, 1, 1)).to(y.dtype)


@slopes_of_scaled.register_fake
def _(_slopes: object, y: Tensor, _factor: object, _leak: float) -> Tensor:
    return torch.empty_like(y)


def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient needs; leaks are not negative, so the sign of the result tells all."""
    _, factor, _, ctx.leak = inputs
    ctx.save_for_backward(output, factor)


def gradient(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
    """The slopes of the images: factors and shifts stand still."""
    y, factor = ctx.saved_tensors
    return SLOPES_OF_SCALED(slopes, y, factor, ctx.leak), None, None, None


scaled.register_autograd(gradient, setup_context=remember)
SCALED = torch.ops.unperturbed.scaled.default
SLOPES_OF_SCALED = torch.ops.unperturbed.slopes_of_scaled.default
"""the same as operations that graphs can hold"""
