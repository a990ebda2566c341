"""Several passes through a network as one: layers that treat each image by itself see all, BatchNorm each pass."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..models import Normalize, Standardize, Sum

BY_ITSELF = (
    *(nn.Sequential, nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d, nn.Linear, nn.Conv2d, nn.ReLU, nn.LeakyReLU),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.ZeroPad2d, nn.ZeroPad3d, nn.GroupNorm, nn.LayerNorm),
    *(Normalize, Standardize, Sum),
)
"""modules that treat each image by itself and have no memory"""


def can_be_merged(f: nn.Module) -> bool:
    """Whether all that f does to an image is its own affair, but for BatchNorm, whose memory decays step by step.

    A hook that makes weights before each pass, as that of a spectral norm, may remember how many there were, and a
    BatchNorm in two places remembers the passes in another order.
    """
    norms = [norm for _, norm in f.named_modules(remove_duplicate=False) if type(norm) is nn.BatchNorm2d]
    return len(norms) == len(set(norms)) and all(
        (
            type(module) in BY_ITSELF
            or (type(module) is nn.BatchNorm2d and module.track_running_stats and module.momentum is not None)
        )
        and "forward" not in vars(module)
        and not module._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
        for module in f.modules()
    )


def shares_of(sizes: tuple[int, ...], images: Tensor) -> Tensor:
    """The share of each image in the mean of each pass, shape (passes, images); those behind the last have none."""
    shares, first = images.new_zeros(len(sizes), len(images)), 0
    for own, size in zip(shares, sizes, strict=True):
        own[first : first + size] = 1 / size
        first += size
    return shares


class SeparateNorms(TorchFunctionMode):
    """While this lasts, BatchNorm treats images as passes of their own, in whose means they have these shares.

    It does not count them: whoever asks for the passes does that for all norms at a time. How many images a pass has
    is a value here and no shape, so that one compiled function serves passes of all sizes.
    """

    def __init__(self, shares: Tensor) -> None:
        super().__init__()
        self.shares = shares

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func is F.batch_norm:
            return self.batch_norm(*args, **named)
        if func is torch.batch_norm:  # What a compiler meets that looks into the other.
            x, weight, bias, mean, variance, *rest = args
            return self.batch_norm(x, mean, variance, weight, bias, *rest[:3])
        if func is torch.Tensor.add_ and args[0].dim() == 0 and args[0].dtype == torch.int64:
            return args[0]
        return func(*args, **named)

    def batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Tensor:
        """The same as F.batch_norm for each pass; one that stands still does not tell them apart."""
        if training:
            return normalized(x, self.shares, running_mean, running_var, weight, bias, momentum, eps)
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)


def normalized(
    x: Tensor,
    shares: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
) -> Tensor:
    """What BatchNorm makes of each pass, and what it remembers of all, one after the other.

    It is written for a compiler: each pixel is read once for all sums of its image, and once more to be mapped by a
    factor and a shift of that image and channel. All else is small, forwards and backwards. An image that has no
    share in any pass becomes 0.
    """
    kind = torch.promote_types(x.dtype, torch.float32)
    images, shares = x.to(kind), shares.to(kind).unsqueeze(2)
    # Squares are taken of differences from the mean of an image, so that little is lost by subtracting that of all.
    # The running mean would not do: a compiler subtracts again on the way back, when that has moved on.
    near = images[0].detach().mean((1, 2))
    differences = images - near.view(-1, 1, 1)
    first, second = differences.mean((2, 3)), differences.square().mean((2, 3))
    offset = (shares * first).sum(1)
    variance = ((shares * second).sum(1) - offset.square()).clamp_min(0)
    mean, factor = near + offset, (variance + eps).rsqrt()
    factor = factor if weight is None else factor * weight
    shift = -mean * factor if bias is None else bias - mean * factor
    member = (shares > 0).to(kind)
    with torch.no_grad():
        counts = x.shape[2] * x.shape[3] * member.sum(1)
        for own, spread in zip(mean, variance * (counts / (counts - 1)), strict=True):
            running_mean.lerp_(own.to(running_mean.dtype), momentum)
            running_variance.lerp_(spread.to(running_variance.dtype), momentum)
    factor, shift = ((member * each.unsqueeze(1)).sum(0)[:, :, None, None] for each in (factor, shift))
    return (images * factor + shift).to(x.dtype)
