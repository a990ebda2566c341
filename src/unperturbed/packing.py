"""Predictions in a file: class numbers as compressed text."""

import base64
import zlib

import numpy as np
import torch
from torch import Tensor

from .risks import NO_CLASS

MOST_CLASSES = (1 << 15) - 1
"""that 16 bits tell apart, beside none"""
MOST_BYTES = 1 << 25
"""of all predictions in a report, unpacked; text that expands to more is a bomb"""


def packed(values: Tensor) -> str:
    """Class numbers as compressed text."""
    return base64.b64encode(zlib.compress(values.cpu().numpy().astype("<i2").tobytes(), 9)).decode()


def unpacked(text: str, most: int = MOST_BYTES, *, least: int = NO_CLASS) -> Tensor:
    """The class numbers that `packed` wrote, from the least on; text that expands without end is refused."""
    expanding = zlib.decompressobj()
    content = expanding.decompress(base64.b64decode(text, validate=True), most)
    if not expanding.eof or len(content) % 2:
        raise ValueError("its predictions are damaged")
    numbers = np.frombuffer(content, dtype="<i2").astype(np.int64)
    if (lowest := int(numbers.min(initial=least))) < least:
        raise ValueError(f"its class numbers should start from {least}, got {lowest}")
    return torch.from_numpy(numbers)
