"""Convolutions with few channels, for which libraries have no good kernels; bias, sum, ReLU are done on the way."""

# pyright: basic, reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

NEAR: tl.constexpr = tl.constexpr(".ca")
"""images are kept in the cache next to a processor: it reads each pixel again for every pixel around it"""


@triton.jit
def convolve(
    x,
    weight,
    bias,
    added,
    y,
    pixels,
    x_image,
    x_row,
    x_column,
    x_channel,
    y_image,
    y_row,
    y_column,
    y_channel,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FILTERS: tl.constexpr,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    LEAK: tl.constexpr,
    TURNED: tl.constexpr,
    BIASED: tl.constexpr,
    SUMMED: tl.constexpr,
    RECTIFIED: tl.constexpr,
    PIXELS_AT_ONCE: tl.constexpr,
    TERMS_AT_ONCE: tl.constexpr,
    FILTERS_AT_ONCE: tl.constexpr,
):
    """Y = leaky(weight * x + bias + added), or the gradient of a convolution of stride 1 with respect to its images.

    A row of the matrix product is a pixel of y; the terms of its sum are the channels of all pixels around it.
    """
    TERMS: tl.constexpr = SIZE * SIZE * CHANNELS
    pixel = tl.program_id(0) * PIXELS_AT_ONCE + tl.arange(0, PIXELS_AT_ONCE)
    filters = tl.program_id(1) * FILTERS_AT_ONCE + tl.arange(0, FILTERS_AT_ONCE)
    image, row, column = pixel // (ROWS * COLUMNS), pixel // COLUMNS % ROWS, pixel % COLUMNS
    total = tl.zeros((PIXELS_AT_ONCE, FILTERS_AT_ONCE), tl.float32)
    for first in range(0, TERMS, TERMS_AT_ONCE):
        term = first + tl.arange(0, TERMS_AT_ONCE)
        if CHANNELS % TERMS_AT_ONCE == 0:  # All terms of this round belong to one pixel beside the row's own.
            tap = first // CHANNELS
            channel = tl.multiple_of(first % CHANNELS, TERMS_AT_ONCE) + tl.arange(0, TERMS_AT_ONCE)
            there = (row * STRIDE + (tap // SIZE - PADDING))[:, None]
            beside = (column * STRIDE + (tap % SIZE - PADDING))[:, None]
            inside = (pixel < pixels)[:, None]
        else:
            tap = term // CHANNELS
            channel = term % CHANNELS
            there = (row * STRIDE)[:, None] + (tap // SIZE - PADDING)[None, :]
            beside = (column * STRIDE)[:, None] + (tap % SIZE - PADDING)[None, :]
            inside = (pixel < pixels)[:, None] & (term < TERMS)[None, :]
        inside = inside & (there >= 0) & (there < HEIGHT) & (beside >= 0) & (beside < WIDTH)
        place = image[:, None] * x_image + there * x_row + beside * x_column + channel[None, :] * x_channel
        values = tl.load(x + place, mask=inside, other=0.0, cache_modifier=NEAR)
        if TURNED:  # The gradient is a convolution with the same weights, turned by half a turn.
            row_of_weights = (channel * (SIZE * SIZE) + (SIZE * SIZE - 1 - tap)) * FILTERS
            weights = row_of_weights[:, None] + filters[None, :]
        else:
            weights = term[:, None] + (filters * TERMS)[None, :]
        known = (term < TERMS)[:, None] & (filters < FILTERS)[None, :]
        matrix = tl.load(weight + weights, mask=known, other=0.0)
        # Images and weights may come in a finer type than that of the product, which is that of y or of its slopes.
        kind = x.dtype.element_ty if TURNED else y.dtype.element_ty
        total = tl.dot(values.to(kind), matrix.to(kind), total)
    if BIASED:
        total += tl.load(bias + filters, mask=filters < FILTERS, other=0.0).to(tl.float32)[None, :]
    kept = (pixel < pixels)[:, None] & (filters < FILTERS)[None, :]
    place = (image * y_image + row * y_row + column * y_column)[:, None] + (filters * y_channel)[None, :]
    if SUMMED:
        total += tl.load(added + place, mask=kept, other=0.0).to(tl.float32)
    if RECTIFIED:
        total = tl.where(total > 0, total, total * LEAK)
    tl.store(y + place, total.to(y.dtype.element_ty), mask=kept)


@triton.jit
def correlate(
    x,
    slopes,
    parts,
    pixels,
    x_image,
    x_row,
    x_column,
    x_channel,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    FILTERS: tl.constexpr,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    ROUNDS: tl.constexpr,
    PIXELS_AT_ONCE: tl.constexpr,
    TERMS_AT_ONCE: tl.constexpr,
    FILTERS_AT_ONCE: tl.constexpr,
):
    """A part of the gradient with respect to the weights: its sum over some of the pixels."""
    TERMS: tl.constexpr = SIZE * SIZE * CHANNELS
    filters = tl.program_id(2) * FILTERS_AT_ONCE + tl.arange(0, FILTERS_AT_ONCE)
    term = tl.program_id(1) * TERMS_AT_ONCE + tl.arange(0, TERMS_AT_ONCE)
    tap, channel = term // CHANNELS, term % CHANNELS
    down, right = tap // SIZE - PADDING, tap % SIZE - PADDING
    total = tl.zeros((FILTERS_AT_ONCE, TERMS_AT_ONCE), tl.float32)
    for turn in range(ROUNDS):
        pixel = (tl.program_id(0) * ROUNDS + turn) * PIXELS_AT_ONCE + tl.arange(0, PIXELS_AT_ONCE)
        image, row, column = pixel // (ROWS * COLUMNS), pixel // COLUMNS % ROWS, pixel % COLUMNS
        there = (row * STRIDE)[:, None] + down[None, :]
        beside = (column * STRIDE)[:, None] + right[None, :]
        inside = (there >= 0) & (there < HEIGHT) & (beside >= 0) & (beside < WIDTH)
        inside = inside & (pixel < pixels)[:, None] & (term < TERMS)[None, :]
        place = image[:, None] * x_image + there * x_row + beside * x_column + channel[None, :] * x_channel
        values = tl.load(x + place, mask=inside, other=0.0, cache_modifier=NEAR)
        known = (filters < FILTERS)[:, None] & (pixel < pixels)[None, :]
        slope = tl.load(slopes + pixel[None, :] * FILTERS + filters[:, None], mask=known, other=0.0)
        total = tl.dot(slope, values.to(slope.dtype), total)
    place = (tl.program_id(0) * FILTERS + filters)[:, None] * TERMS + term[None, :]
    tl.store(parts + place, total, mask=(filters < FILTERS)[:, None] & (term < TERMS)[None, :])


def convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    added: Tensor | None,
    leak: float,
    stride: int,
    padding: int,
    dtype: torch.dtype,
) -> Tensor:
    """leaky(weight * x + bias + added), channels last; a leak of 1 leaves it as it is."""
    filters, _, size, _ = weight.shape
    rows, columns = ((side + 2 * padding - size) // stride + 1 for side in x.shape[-2:])
    y = weight.new_empty((len(x), rows, columns, filters), dtype=dtype).permute(0, 3, 1, 2)
    launch(x, weight, bias, added, y, leak, stride, padding, turned=False)
    return y


def slopes_of_images(slopes: Tensor, weight: Tensor, x: Tensor, padding: int) -> Tensor:
    """The gradient of a convolution of stride 1 with respect to x."""
    to_x = torch.empty_like(x)
    launch(slopes, weight, None, None, to_x, 1.0, 1, weight.shape[-1] - 1 - padding, turned=True)
    return to_x


def slopes_of_weights(slopes: Tensor, weight: Tensor, x: Tensor, stride: int, padding: int) -> Tensor:
    """The gradient with respect to the weights, summed in an order that is always the same."""
    filters, channels, size, _ = weight.shape
    pixels, terms, at_once, rounds = slopes.numel() // filters, size * size * channels, 128, 8
    terms_at_once, filters_at_once = min(64, whole(terms)), min(64, whole(filters))
    parts = x.new_empty((triton.cdiv(pixels, at_once * rounds), filters, size, size, channels), dtype=torch.float32)
    correlate[(len(parts), triton.cdiv(terms, terms_at_once), triton.cdiv(filters, filters_at_once))](
        *(x, slopes, parts, pixels, *strides(x)),
        **shapes(x, slopes, size, stride, padding),
        ROUNDS=rounds,
        PIXELS_AT_ONCE=at_once,
        TERMS_AT_ONCE=terms_at_once,
        FILTERS_AT_ONCE=filters_at_once,
        num_warps=4,
        num_stages=3,
    )
    return parts.sum(0).to(weight.dtype).permute(0, 3, 1, 2)


def launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    added: Tensor | None,
    y: Tensor,
    leak: float,
    stride: int,
    padding: int,
    *,
    turned: bool,
) -> None:
    """Fill y, by as many programs as it takes."""
    channels, filters, size = x.shape[1], y.shape[1], weight.shape[-1]
    pixels, at_once = y.numel() // filters, 128
    # Where the channels of a pixel are a whole number of rounds, their addresses are known to lie side by side.
    terms_at_once = min(64, channels & -channels)
    if terms_at_once < 16:
        terms_at_once = min(32, whole(size * size * channels))
    filters_at_once = min(64, whole(filters))
    convolve[(triton.cdiv(pixels, at_once), triton.cdiv(filters, filters_at_once))](
        *(x, weight, y if bias is None else bias, y if added is None else added, y, pixels),
        *(*strides(x), *strides(y)),
        **shapes(x, y, size, stride, padding),
        LEAK=leak,
        TURNED=turned,
        BIASED=bias is not None,
        SUMMED=added is not None,
        RECTIFIED=leak != 1,
        PIXELS_AT_ONCE=at_once,
        TERMS_AT_ONCE=terms_at_once,
        FILTERS_AT_ONCE=filters_at_once,
        num_warps=4 if terms_at_once == 16 else 8,
        num_stages=3,
    )


def shapes(x: Tensor, y: Tensor, size: int, stride: int, padding: int) -> dict[str, int]:
    """What a kernel is compiled for."""
    (_, channels, height, width), (_, filters, rows, columns) = x.shape, y.shape
    of_images = {"HEIGHT": height, "WIDTH": width, "CHANNELS": channels}
    return of_images | {
        "ROWS": rows,
        "COLUMNS": columns,
        "FILTERS": filters,
        "SIZE": size,
        "STRIDE": stride,
        "PADDING": padding,
    }


def strides(images: Tensor) -> tuple[int, int, int, int]:
    """Steps in memory from an image, a row, a column and a channel to the next."""
    image, channel, row, column = images.stride()
    return image, row, column, channel


def whole(number: int) -> int:
    """The power of two that a matrix product takes for so many."""
    return max(16, triton.next_power_of_2(number))
