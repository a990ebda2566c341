"""Kernels that go through images number by number: still norms with their ReLUs, and shortcuts that average."""

# pyright: basic, reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

AT_ONCE = 1024
"""numbers that a program computes"""


@triton.jit
def scale(
    x,
    y,
    factor,
    shift,
    result,
    count,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    LEAK: tl.constexpr,
    BACK: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """leaky(factor x + shift), or the way BACK from the slopes x of such a y to those before it.

    So many PIXELS of a channel follow each other in memory: one with channels last, all with channels first.
    """
    place = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    inside, channel = place < count, place // PIXELS % CHANNELS
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * tl.load(factor + channel)
    if BACK:
        sign = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    else:
        value += tl.load(shift + channel)
        sign = value
    value = tl.where(sign > 0, value, value * LEAK)
    tl.store(result + place, value.to(result.dtype.element_ty), mask=inside)


def scaled(x: Tensor, factor: Tensor, shift: Tensor, leak: float) -> Tensor:
    """What a still norm and a leaky ReLU make of images."""
    return launch_scale(x, x, factor, shift, leak, back=False)


def slopes_of_scaled(slopes: Tensor, y: Tensor, factor: Tensor, leak: float) -> Tensor:
    """The gradient of that, by its result y."""
    return launch_scale(slopes, y, factor, factor, leak, back=True)


def launch_scale(x: Tensor, y: Tensor, factor: Tensor, shift: Tensor, leak: float, *, back: bool) -> Tensor:
    """Scale all of it."""
    result, count = torch.empty_like(y), x.numel()
    pixels = 1 if x.is_contiguous(memory_format=torch.channels_last) else x.shape[2] * x.shape[3]
    fixed = {"PIXELS": pixels, "CHANNELS": x.shape[1], "LEAK": leak, "BACK": back, "AT_ONCE": AT_ONCE}
    scale[(triton.cdiv(count, AT_ONCE),)](x, y, factor, shift, result, count, **fixed, num_warps=4)
    return result


@triton.jit
def average(
    x,
    y,
    count,
    CHANNELS: tl.constexpr,
    BEFORE: tl.constexpr,
    FILTERS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SIZE: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """The means of squares of x, with channels of zeros before and behind those of x; channels last."""
    place = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    channel, pixel = place % FILTERS - BEFORE, place // FILTERS
    row, column = pixel // COLUMNS, pixel % COLUMNS  # Rows are counted through all images.
    inside = (place < count) & (channel >= 0) & (channel < CHANNELS)
    corner = (row * SIZE * COLUMNS + column) * SIZE * CHANNELS + channel
    total = tl.zeros((AT_ONCE,), tl.float32)
    for down in tl.static_range(SIZE):
        for right in tl.static_range(SIZE):
            beside = (down * COLUMNS * SIZE + right) * CHANNELS
            total += tl.load(x + corner + beside, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + place, (total / (SIZE * SIZE)).to(y.dtype.element_ty), mask=place < count)


@triton.jit
def spread(
    slopes,
    result,
    count,
    CHANNELS: tl.constexpr,
    BEFORE: tl.constexpr,
    FILTERS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SIZE: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """The way back from the slopes of such means to those of x."""
    place = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    channel, pixel = place % CHANNELS, place // CHANNELS
    row, column = pixel // (COLUMNS * SIZE) // SIZE, pixel % (COLUMNS * SIZE) // SIZE
    there = (row * COLUMNS + column) * FILTERS + BEFORE + channel
    slope = tl.load(slopes + there, mask=place < count, other=0.0).to(tl.float32)
    tl.store(result + place, (slope / (SIZE * SIZE)).to(result.dtype.element_ty), mask=place < count)


def averaged(x: Tensor, size: int, before: int, behind: int) -> Tensor:
    """Squares of x as their means, and so many channels of zeros."""
    images, channels, height, width = x.shape
    y = x.new_empty((images, height // size, width // size, before + channels + behind)).permute(0, 3, 1, 2)
    average[(triton.cdiv(y.numel(), AT_ONCE),)](x, y, y.numel(), **sides(x, y, size, before), num_warps=4)
    return y


def slopes_of_averaged(slopes: Tensor, x: Tensor, size: int, before: int) -> Tensor:
    """The gradient of that with respect to x."""
    result = torch.empty_like(x)
    spread[(triton.cdiv(x.numel(), AT_ONCE),)](
        slopes, result, x.numel(), **sides(x, slopes, size, before), num_warps=4
    )
    return result


def sides(x: Tensor, y: Tensor, size: int, before: int) -> dict[str, int]:
    """What a kernel is compiled for."""
    filters, columns = y.shape[1], y.shape[3]
    of_x = {"CHANNELS": x.shape[1], "BEFORE": before, "SIZE": size, "AT_ONCE": AT_ONCE}
    return of_x | {"FILTERS": filters, "COLUMNS": columns}
