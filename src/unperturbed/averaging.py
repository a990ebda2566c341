"""The exponential moving average of a model's weights: a steadier labeler, and often the better model."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves  # pyright: ignore[reportUnknownVariableType]

from .runtime import random_numbers_kept

Statistics = Literal["copied", "averaged", "estimated", "own"]
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """How weights are averaged over the steps of a run."""

    decay: float = 0.0
    """weight of the past in the average; 0: none is kept, as in the paper"""
    batchnorm: Statistics = "copied"
    """its running statistics, or where none is kept the model's: those of training, as they are or averaged like
    weights, estimated anew in the end and for validation, or of its own, from labeling; the latter two know clean
    images alone"""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"Average.decay must be at least 0 and below 1, got {self.decay}")
        if self.batchnorm not in get_args(Statistics):
            raise ValueError(f"Average.batchnorm must be copied, averaged, estimated or own, got {self.batchnorm!r}")

    @property
    def estimates(self) -> bool:
        """Whether the model that a run ends with gets statistics estimated anew."""
        return self.batchnorm == "estimated"


class AveragedModel:
    """A copy of a model whose parameters follow at a distance; of its buffers those of BatchNorms may follow too.

    It is in training mode like the model, but while it is asked: then weights of one mean what those of the other do.
    """

    def __init__(self, f: nn.Module, decay: float, *, batchnorm: Statistics = "copied") -> None:
        with torch.no_grad():  # The copies of TorchScript are results of operations, else.
            self.module = copied(f).train()
        for weight in self.module.parameters():
            weight.requires_grad_(False)
        self.decay = decay
        statistics = {id(buffer) for norm in norms_in(self.module) for buffer in norm.buffers()}
        self.gathered = statistics if batchnorm == "own" else set[int]()
        """statistics that it gathers itself; other buffers, as those of InstanceNorm, are the model's"""
        self.averaged = statistics if batchnorm == "averaged" else set[int]()
        """statistics that follow as weights do"""

    def share(self, step: int) -> float:
        """Weight of the new weights after that step; early on it is large, so the first ones are soon forgotten."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, f: nn.Module, share: Tensor) -> None:
        """Move towards f by that share of the way."""
        if not self.module.training:  # It has just labeled.
            self.module.train()
        for mine, its in zip(self.module.parameters(), f.parameters(), strict=True):
            follow(mine, its, share)
        for mine, its in zip(self.module.buffers(), f.buffers(), strict=True):
            if id(mine) in self.averaged:
                follow(mine, its, share)
            elif id(mine) not in self.gathered:
                mine.copy_(its)


def follow(mine: Tensor, its: Tensor, share: Tensor) -> None:
    """Move a tensor towards another by that share of the way, or all of it where its numbers are counts."""
    if mine.is_floating_point():
        mine.lerp_(its, share.to(mine.dtype))
    else:
        mine.copy_(its)


def copied(f: nn.Module) -> nn.Module:
    """A copy of f, also where it keeps a result of operations, as the old weight_norm and spectral_norm do.

    PyTorch refuses to copy such a tensor. The next pass makes it anew, so in the copy it has its numbers alone.
    """
    kept = [value for module in f.modules() for value in vars(module).values()]
    results = {id(value): value.detach().clone() for value in kept if isinstance(value, Tensor) and not value.is_leaf}
    return deepcopy(f, results)


class Watch(TorchFunctionMode):
    """While this lasts, notices whether anything is computed of some of these tensors."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()
        self.tensors = {id(tensor) for tensor in tensors}
        self.noticed = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.noticed = self.noticed or not self.tensors.isdisjoint(map(id, tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


def require_apart(f: nn.Module, images: Tensor) -> None:
    """Refuse to average an f whose copy asks f's own layers: Python copies no function, nor what it holds on to."""
    copy = copied(f).eval()
    mine = {id(tensor) for tensor in (*copy.parameters(), *copy.buffers())}
    watch = Watch(tensor for tensor in (*f.parameters(), *f.buffers()) if id(tensor) not in mine)
    with random_numbers_kept(images.device), torch.no_grad(), torch.compiler.set_stance("force_eager"), watch:
        copy(images)
    if watch.noticed:
        raise ValueError(
            "an average of this model would ask layers of the model itself, which a hook or a forward set from "
            "outside holds on to: let it reach them through the module that it is given, write a module around both, "
            "or average nothing (averaging.decay 0)"
        )


def norms_in(f: nn.Module) -> list[BatchNorm]:
    """The BatchNorms of f."""
    return [module for module in f.modules() if isinstance(module, BatchNorm)]


def gathering(f: nn.Module) -> nn.Module:
    """F in evaluation mode but for its BatchNorms, which normalize by the images they see and remember them.

    Those that a `train` of their own keeps in evaluation mode stay there.
    """
    f.train()
    if not any(norm.training for norm in norms_in(f)):
        return f.eval()  # One on an engine takes its weights over by that; with BatchNorms it answers by f's own.
    for module in f.modules():
        module.training = module.training and isinstance(module, BatchNorm)
    return f


def require_average(averaging: Average, *, labels: bool, of: str = "") -> None:
    """Refuse an average that shall do what it cannot: label or lend statistics unkept, or learn from no labeling."""
    if labels and not averaging.decay:
        raise ValueError(f"the average labels, but none is kept: set --{of}averaging.decay, to 0.99 for example")
    if averaging.batchnorm == "averaged" and not averaging.decay:
        raise ValueError(
            f"statistics are averaged with weights, but no average is kept: set --{of}averaging.decay, to 0.99 for "
            f"example, or --{of}averaging.batchnorm copied"
        )
    if not labels and averaging.batchnorm == "own":
        raise ValueError(
            f"the average gathers statistics of its own while it labels, and it does not: set --{of}labeler average, "
            f"or --{of}averaging.batchnorm estimated"
        )


def require_statistics(f: nn.Module, averaging: Average) -> None:
    """Refuse to look after statistics of BatchNorms that cannot be told from other modules."""
    scripted = (module for module in f.modules() if isinstance(module, torch.jit.ScriptModule))
    if averaging.batchnorm != "copied" and any("BatchNorm" in module.original_name for module in scripted):
        raise ValueError(
            f"statistics of BatchNorms in TorchScript cannot be those of Average(batchnorm={averaging.batchnorm!r}): "
            "set it to 'copied', or train the model before it is scripted"
        )


@torch.no_grad()
def estimate_batchnorm(f: nn.Module, batches: list[Tensor]) -> None:
    """Replace running statistics of BatchNorms by their mean over these batches, f in evaluation mode.

    A BatchNorm that was not to gather any in training keeps its own.
    """
    norms = [norm for norm in norms_in(gathering(f)) if norm.training]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    try:
        for images in batches:
            f(images)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        f.eval()


@torch.no_grad()
def freshly_estimated(f: nn.Module, batches: list[Tensor]) -> nn.Module:
    """A copy of f with running statistics that are estimated on these batches."""
    copy = copied(f)
    estimate_batchnorm(copy, batches)
    return copy
