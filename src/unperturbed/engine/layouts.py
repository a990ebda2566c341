"""How images and weights lie in memory: as a device likes it, as far as a network can do with that."""

from collections import abc
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from ..answers import in_evaluation_mode
from ..runtime import random_numbers_kept
from .arithmetic import Engine
from .convolutions import NarrowConvolutions
from .faithful import draws_numbers, near

TINY = 256
"""pixels of an image below which its layout in memory is left alone on a CPU"""
AGREEMENT, COARSE_AGREEMENT = 0.01, 0.1
"""by how much of its largest logit an answer may depend on the layout, and one of 16 bits

Libraries have other convolutions for either layout, which round otherwise; what is misread is off by more.
"""


class Reshaping(TorchFunctionMode):
    """While this lasts, a view that a layout does not allow is a copy: many networks flatten images by `view`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.view and not kwargs and not isinstance(args[1], torch.dtype):
            return torch.Tensor.reshape(*args)
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a network gets its images."""

    format: torch.memory_format
    reshaping: bool = False
    """whether views that the format does not allow are copies"""
    narrow: bool = False
    """whether passes of training may take kernels of our own, which leave channels last whatever they get"""

    def __call__(self, network: Callable[[Tensor], Tensor], x: Tensor, *, trained: bool = False) -> Tensor:
        """The network's answer."""
        with (
            NarrowConvolutions() if trained and self.narrow else nullcontext(),
            Reshaping() if self.reshaping else nullcontext(),
        ):
            return network(x.contiguous(memory_format=self.format))


PLAIN = Layout(format=torch.contiguous_format)


def layout_for(f: nn.Module, images: Tensor, engine: Engine) -> Layout:
    """Channels last, which convolutions like; weights are laid out likewise where f, tried on images, bears that.

    On a CPU, tiny images lose more by the rearrangement than they gain; on a GPU, float32 knows channels first alone.
    """
    tiny = images.shape[-2] * images.shape[-1] < TINY
    if engine.precision == "float32" if images.is_cuda else tiny:
        lay_out(f, torch.contiguous_format)
        return PLAIN
    liked = Layout(format=torch.channels_last, narrow=engine.lowers(images))
    reshaping = replace(liked, reshaping=True)
    with trial(f, images):
        with layout_kept(f):
            lay_out(f, torch.contiguous_format)
            meant = steady_answer(f, images)
            lay_out(f, torch.channels_last)
            at_ease = bears(f, images, liked, engine, meant)
        if not at_ease:
            return reshaping if bears(f, images, reshaping, engine, meant) else PLAIN
    lay_out(f, torch.channels_last)
    return liked


def steady_answer(f: nn.Module, images: Tensor) -> Tensor | None:
    """What f answers with channels first; none where it draws numbers, in the order of memory, or no tensor."""
    with suppress(Exception):  # A stranger's code may object in all ways there are.
        answer: object = None if draws_numbers(f, images) else PLAIN(f, images)
        return answer if isinstance(answer, Tensor) else None
    return None


def bears(f: nn.Module, images: Tensor, layout: Layout, engine: Engine, meant: Tensor | None) -> bool:
    """Whether f, which is left as it was, answers images in this layout as it is meant to.

    It may write through a view that is a copy now, or take strides for those of channels first.
    """
    if not goes_through(f, images, layout, engine) or (meant is not None and not says(f, images, layout, meant)):
        return False
    if any(isinstance(module, nn.SyncBatchNorm) for module in f.modules()):
        return True  # In training that waits for other processes, which may not be trying theirs.
    with suppress(Exception):  # Not all networks can be copied.
        # In training f may go other ways, and BatchNorm wants more than one image.
        trained, several = deepcopy(f).train(), torch.cat([images, images])
        if not goes_through(trained, several, layout, engine):
            lay_out(trained, torch.contiguous_format)
            return not goes_through(trained, several, PLAIN, engine)
    return True


def says(f: nn.Module, images: Tensor, layout: Layout, meant: Tensor) -> bool:
    """Whether f answers images in this layout by what it is meant to, but for rounding."""
    share = AGREEMENT if meant.dtype.itemsize >= 4 else COARSE_AGREEMENT
    with suppress(Exception):
        return near(layout(f, images), meant, share, of=torch.inf, least=1e-3)
    return False


def goes_through(network: nn.Module, images: Tensor, layout: Layout, engine: Engine) -> bool:
    """Whether a network answers images in this layout at all."""
    with suppress(Exception), engine.cast(images.device):
        layout(network, images, trained=True)
        return True
    return False


@contextmanager
def trial(f: nn.Module, images: Tensor) -> abc.Generator[None]:
    """Evaluation mode, exact arithmetic and no gradients for a while, of which nothing is left."""
    with in_evaluation_mode(f), torch.no_grad(), random_numbers_kept(images.device), Engine().arithmetic():
        yield


def lay_out(network: nn.Module, layout: torch.memory_format) -> None:
    """Lay the weights of convolutions out in memory as their images are."""
    for weight in network.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=layout)


@contextmanager
def layout_kept(f: nn.Module) -> abc.Generator[None]:
    """Whatever happens in here, the weights of f lie in memory afterwards as they lay before.

    They even lie where they lay, unless f went to another device: whoever knows that place, an optimizer or the
    recording of a training step around an evaluation, finds them there.
    """
    before = [(weight, weight.data) for weight in f.parameters() if not is_lazy(weight) and weight.dim() == 4]
    try:
        yield
    finally:
        for weight, place in before:
            if (weight.device, weight.dtype, weight.shape) != (place.device, place.dtype, place.shape):
                place = torch.empty_strided(weight.shape, place.stride(), dtype=weight.dtype, device=weight.device)
            if weight.data_ptr() != place.data_ptr():
                weight.data = place.copy_(weight.data)
