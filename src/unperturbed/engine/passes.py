"""Several passes through a network as one: layers that treat each image by itself see all, BatchNorm each pass."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from ..models import Normalize, Standardize, Sum

BY_ITSELF = (
    *(nn.Sequential, nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d, nn.Linear, nn.Conv2d, nn.ReLU, nn.LeakyReLU),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.ZeroPad2d, nn.ZeroPad3d, nn.GroupNorm, nn.LayerNorm),
    *(Normalize, Standardize, Sum),
)
"""modules that treat each image by itself and have no memory"""


def can_be_merged(f: nn.Module) -> bool:
    """Whether all that f does to an image is its own affair, but for BatchNorm, whose memory decays step by step."""
    return all(
        type(module) in BY_ITSELF
        or (type(module) is nn.BatchNorm2d and module.track_running_stats and module.momentum is not None)
        for module in f.modules()
    )


class SeparateNorms(TorchFunctionMode):
    """While this lasts, BatchNorm treats so many images after the other as passes of their own."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = sizes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func in (F.batch_norm, torch.batch_norm):  # A compiler looks into the first and meets the second.
            x, *rest = args
            # A compiler keeps no Tensor.split for the next run.
            pieces = torch.split_with_sizes(x, self.sizes)
            return torch.cat([func(piece, *rest, **named) for piece in pieces])
        return func(*args, **named)
