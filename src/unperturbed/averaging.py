"""The exponential moving average of a model's weights: a steadier labeler, and often the better model."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

BATCHNORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """How weights are averaged over the steps of a run."""

    decay: float = 0.0
    """weight of the past in the average; 0: none is kept, as in the paper"""
    batchnorm: Literal["copied", "estimated"] = "copied"
    """running statistics of the final average: the model's own, or estimated anew on training images"""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"Average.decay must be at least 0 and below 1, got {self.decay}")


class AveragedModel:
    """A copy of a model whose parameters follow at a distance; its buffers are never averaged but copied."""

    def __init__(self, f: nn.Module, decay: float) -> None:
        with torch.no_grad():  # The copies of TorchScript are results of operations, else.
            self.module = deepcopy(f).eval()
        for weight in self.module.parameters():
            weight.requires_grad_(False)
        self.decay = decay

    def share(self, step: int) -> float:
        """Weight of the new weights after that step; early on it is large, so the first ones are soon forgotten."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, f: nn.Module, share: Tensor) -> None:
        """Move towards f by that share of the way."""
        for mine, its in zip(self.module.parameters(), f.parameters(), strict=True):
            mine.lerp_(its, share.to(mine.dtype))
        for mine, its in zip(self.module.buffers(), f.buffers(), strict=True):
            mine.copy_(its)


@torch.no_grad()
def estimate_batchnorm(f: nn.Module, batches: list[Tensor]) -> None:
    """Replace the running statistics of every BatchNorm by their mean over these batches of images."""
    norms = [module for module in f.modules() if isinstance(module, BATCHNORMS)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    for images in batches:
        f(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
