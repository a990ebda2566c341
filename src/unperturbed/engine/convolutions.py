"""A convolution and what stands around it as one operation, which costs a GPU no more than the convolution alone."""

from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .operations import Operation

FEW = 64
"""channels and filters up to which kernels of our own do no worse than those of libraries"""
LITTLE = 1 << 15
"""pixels up to which that holds for the gradient of weights; beyond, for half as many channels and for images"""
THINNED = 512
"""channels and filters up to which they take shortcuts that leave pixels out, which libraries turn around first"""
MANY = 1 << 31
"""elements that they cannot count"""


def narrow(weight: Tensor) -> bool:
    """Whether a convolution with these weights has so few channels that kernels of our own do it on a GPU."""
    filters, channels, height, width = weight.shape
    return height == width and max(filters, channels) <= FEW


def suits(weight: Tensor, stride: int) -> bool:
    """Whether kernels of our own do a convolution with these weights where these stand still."""
    filters, channels, height, width = weight.shape
    thins = height == width == 1 and stride > 1 and channels % 16 == 0 and max(filters, channels) <= THINNED
    return thins or narrow(weight)


def ours(x: Tensor, weight: Tensor, dtype: torch.dtype, stride: int) -> bool:
    """Whether a kernel of our own takes this convolution."""
    few = x.is_cuda and dtype == torch.bfloat16 and suits(weight, stride) and find_spec("triton") is not None
    return few and len(x) * max(x.shape[1], len(weight)) * (x.shape[2] + 8) * (x.shape[3] + 8) < MANY


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    added: Tensor | None,
    leak: float,
    stride: int,
    padding: int,
    dtype: torch.dtype,
) -> Tensor:
    """The sum weight * x + bias + added, of which the negative is multiplied by leak; of that type, channels last."""
    if added is not None:
        shape = (len(x), len(weight), *(reach(side, weight, stride, padding) for side in x.shape[-2:]))
        added = added.broadcast_to(shape).contiguous(memory_format=torch.channels_last)
    if ours(x, weight, dtype, stride):
        from . import kernels

        return kernels.convolved(x, channels_last(weight), bias, added, leak, stride, padding, dtype)
    alike = all(part is None or part.dtype == dtype for part in (x, weight, bias, added))
    if x.is_cuda and leak == 0 and bias is not None and alike:
        with suppress(RuntimeError):  # Not every card has such a kernel for every type.
            return by_cudnn(x, weight, bias, added, stride, padding)
    z = F.conv2d(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype), stride, padding)
    z = z if added is None else z + added.to(dtype)
    return (z if leak == 1 else F.leaky_relu(z, leak)).contiguous(memory_format=torch.channels_last)


def channels_last(weight: Tensor) -> Tensor:
    """Weights as kernels of our own read them; those of a network that flattens by `view` lie otherwise."""
    return weight.contiguous(memory_format=torch.channels_last)


def by_cudnn(x: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None, stride: int, padding: int) -> Tensor:
    """A convolution with its bias, a sum and a ReLU in one kernel of the library."""
    steps = ([stride] * 2, [padding] * 2, [1, 1], 1)
    if added is None:
        return torch.cudnn_convolution_relu(x, weight, bias, *steps)
    return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, *steps)


def shape_of_convolution(
    x: Tensor,
    weight: Tensor,
    _bias: object,
    _added: object,
    _leak: float,
    stride: int,
    padding: int,
    dtype: torch.dtype,
) -> Tensor:
    """What convolution returns, without its values."""
    sides = (reach(side, weight, stride, padding) for side in x.shape[-2:])
    y = x.new_empty((x.shape[0], weight.shape[0], *sides), dtype=dtype)
    return y.contiguous(memory_format=torch.channels_last)


def reach(side: int, weight: Tensor, stride: int, padding: int) -> int:
    """Rows or columns of what a convolution makes of so many."""
    return (side + 2 * padding - weight.shape[-1]) // stride + 1


def slopes_of_images(slopes: Tensor, weight: Tensor, x: Tensor, stride: int, padding: int) -> Tensor:
    """The gradient of a convolution with respect to its images."""
    slopes = slopes.contiguous(memory_format=torch.channels_last)
    if ours(x, weight, slopes.dtype, stride) and stride == 1:
        from . import kernels

        return kernels.slopes_of_images(slopes, channels_last(weight), x, padding)
    return library_slopes(slopes, weight, x, stride, padding, of_images=True)


def shape_of_images(_slopes: object, _weight: object, x: Tensor, _stride: int, _padding: int) -> Tensor:
    """What slopes_of_images returns, without its values."""
    return torch.empty_like(x)


def slopes_of_weights(slopes: Tensor, weight: Tensor, x: Tensor, stride: int, padding: int) -> Tensor:
    """The gradient of a convolution with respect to its weights."""
    slopes = slopes.contiguous(memory_format=torch.channels_last)
    fewer = x.shape[1] <= 4 or max(x.shape[1], len(weight)) <= FEW // 2
    if (
        narrow(weight)
        and ours(x, weight, slopes.dtype, stride)
        and (fewer or slopes.numel() // len(weight) <= LITTLE)
    ):
        from . import kernels

        return kernels.slopes_of_weights(slopes, weight, x, stride, padding)
    return library_slopes(slopes, weight, x, stride, padding, of_images=False)


def shape_of_weights(_slopes: object, weight: Tensor, _x: object, _stride: int, _padding: int) -> Tensor:
    """What slopes_of_weights returns, without its values."""
    return torch.empty_like(weight).contiguous(memory_format=torch.channels_last)


def library_slopes(
    slopes: Tensor, weight: Tensor, x: Tensor, stride: int, padding: int, *, of_images: bool
) -> Tensor:
    """One of the two gradients of a convolution, as the library computes it."""
    wanted = [of_images, not of_images, False]
    steps = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1)
    low = slopes.dtype
    found = torch.ops.aten.convolution_backward(slopes, x.to(low), weight.to(low), None, *steps, wanted)
    like, slope = (x, found[0]) if of_images else (weight, found[1])
    layout = torch.preserve_format if of_images else torch.channels_last
    meant = torch.empty_like(like, memory_format=layout)
    same = slope.dtype == meant.dtype and slope.stride() == meant.stride()
    return slope if same else meant.copy_(slope)


def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient needs."""
    x, weight, _, added, ctx.leak, ctx.stride, ctx.padding, _ = inputs
    ctx.shape = None if added is None else added.shape
    ctx.save_for_backward(x, weight, *([] if ctx.leak == 1 else [output]))


def gradient(ctx: Any, slopes: Tensor, *, whole: bool) -> tuple[Tensor | None, ...]:
    """Slopes with respect to all that may have any."""
    images, weights = (each.called(whole=whole) for each in (SLOPES_OF_IMAGES, SLOPES_OF_WEIGHTS))
    x, weight, *outputs = ctx.saved_tensors
    of_x, of_weight, of_bias, of_added, *_ = ctx.needs_input_grad
    for output in outputs:
        slopes = torch.ops.aten.leaky_relu_backward(slopes, output, ctx.leak, True)
    return (
        images(slopes, weight, x, ctx.stride, ctx.padding) if of_x else None,
        weights(slopes, weight, x, ctx.stride, ctx.padding) if of_weight else None,
        slopes.sum((0, 2, 3)) if of_bias else None,
        slopes.sum_to_size(ctx.shape) if of_added else None,
        *(None, None, None, None),
    )


SLOPES_OF_IMAGES = Operation("slopes_of_images", slopes_of_images, fake=shape_of_images)
SLOPES_OF_WEIGHTS = Operation("slopes_of_weights", slopes_of_weights, fake=shape_of_weights)
CONVOLUTION = (
    Operation("convolution", convolution, fake=shape_of_convolution).with_gradient(remember, gradient).function()
)


class NarrowConvolutions(TorchFunctionMode):
    """While this lasts, convolutions with few channels are done by kernels of our own, in bfloat16.

    They read images and weights in the type these have, and leave the gradient of the weights in it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.conv2d and not kwargs and len(args) == 7:
            x, weight, bias, *steps = args
            if x.dim() == 4 and narrow(weight) and (simple := simply(*steps)):
                z = CONVOLUTION(x, weight, None, None, 1.0, *simple, torch.bfloat16)
                return z if bias is None else z + bias.to(torch.bfloat16).view(-1, 1, 1)
        return func(*args, **(kwargs or {}))


def simply(stride: Any, padding: Any, dilation: Any, groups: int) -> tuple[int, int] | None:
    """Stride and padding of a convolution that one of our kernels can do; none where it cannot."""
    one = all(isinstance(pair, tuple) and len(set(pair)) == 1 for pair in (stride, padding, dilation))
    if not one or groups != 1 or set(dilation) != {1}:
        return None
    return int(stride[0]), int(padding[0])
