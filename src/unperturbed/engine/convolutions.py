"""Convolution, bias, a sum and ReLU as one operation, which costs a GPU no more than the convolution alone."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@torch.library.custom_op("unperturbed::rectified_convolution", mutates_args=())
def rectified_convolution(
    x: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None, stride: list[int], padding: list[int]
) -> Tensor:
    """max(0, weight * x + bias + added)."""
    if not x.is_cuda:
        plain = F.conv2d(x, weight, bias, stride, padding)
        return (plain if added is None else plain + added).relu()
    if added is None:
        return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, [1, 1], 1)
    return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, bias, stride, padding, [1, 1], 1)


@rectified_convolution.register_fake
def shaped(
    x: Tensor, weight: Tensor, bias: Tensor, _: Tensor | None, stride: list[int], padding: list[int]
) -> Tensor:
    """What a compiler needs to know of the result: its shape, type and layout."""
    return F.conv2d(x, weight, bias, stride, padding)


def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the gradient needs."""
    x, weight, _, added, ctx.stride, ctx.padding = inputs
    ctx.adds = added is not None
    ctx.save_for_backward(x, weight, output)


def gradient(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    """Slopes with respect to x and to the added image; weights stand still."""
    x, weight, output = ctx.saved_tensors
    passed = torch.where(output > 0, slope, torch.zeros_like(slope))
    to_x: Tensor = torch.ops.aten.convolution_backward(
        passed, x, weight, None, ctx.stride, ctx.padding, [1, 1], False, [0, 0], 1, [True, False, False]
    )[0]
    return to_x, None, None, passed if ctx.adds else None, None, None


rectified_convolution.register_autograd(gradient, setup_context=remember)
RECTIFIED = torch.ops.unperturbed.rectified_convolution.default
"""the same as an operation that graphs can hold"""
