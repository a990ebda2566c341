"""A network on its engine."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..losses import PerImageLoss
from .arithmetic import Engine
from .constant import Constant, constant, lay_out
from .convolutions import NarrowConvolutions

Say = Callable[[str], None]
TINY = 256
"""pixels of an image below which its layout in memory is left alone on a CPU"""
SHAPES = 64
"""shapes of images, modes and networks for which one function may be compiled"""


class Accelerated(nn.Module):
    """f, computed as the engine wants it: the same modes and parameters, the same logits up to rounding.

    Entering evaluation mode takes a copy of the weights, on which all queries are made until that mode is entered
    again; where gradients with respect to the weights can be asked for, f itself answers.
    """

    def __init__(
        self,
        f: nn.Module,
        engine: Engine,
        images: Tensor,
        *,
        say: Say,
        filled_up_to: tuple[int, ...] = (),
    ) -> None:
        """`images` are a few to try f on.

        Where sizes are given to fill queries up to, these are compiled for them alone, not for each size they have.
        """
        super().__init__()
        self.f = f
        self.training = f.training
        self.engine, self.sizes = engine, filled_up_to if answers_each_image_by_itself(f) else ()
        layout = layout_for(images)
        lay_out(f, layout)
        low = engine.precision == "bfloat16" and images.dtype == torch.float32
        copy = constant(f, images, torch.bfloat16 if low else images.dtype, layout) if engine.folded else None
        # Hidden in a tuple, the copy is no module of this one: modes, gradients and weights are those of f alone.
        self.copies: tuple[Constant, ...] = () if copy is None else (copy,)
        self.hasten = Hastener(engine, say=say)
        self.refreshing = tuple(self.hasten(each.refresh) for each in self.copies)
        self.still = through(copy.module if copy else f, engine, layout)
        self.moving, self.still_compiled = map(self.hasten, (through(f, engine, layout, trained=low), self.still))
        self.judges: dict[PerImageLoss, Callable[[Tensor, Tensor], Tensor]] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("f"), name)

    def train(self, mode: bool = True) -> "Accelerated":
        super().train(mode)
        if not mode:
            for refresh in self.refreshing:
                refresh()
        return self

    @property
    def stands_still(self) -> bool:
        """Whether no gradient with respect to the weights can be asked for, and no statistics are gathered."""
        fixed = not torch.is_grad_enabled() or not any(weight.requires_grad for weight in self.f.parameters())
        return fixed and not self.training

    def forward(self, x: Tensor) -> Tensor:
        if not self.stands_still:
            return self.moving(x)
        if not self.sizes:
            return self.still_compiled(x)
        size = next((size for size in self.sizes if size / 2 < len(x) <= size), None)
        if size is None:
            return self.still(x)
        # A network that stands still answers each image by itself, so images of zeros beside them change nothing.
        return self.still_compiled(torch.cat([x, x.new_zeros(size - len(x), *x.shape[1:])]))[: len(x)]

    def judging(self, loss: PerImageLoss) -> Callable[[Tensor, Tensor], Tensor]:
        """(x', target) -> L(f(x'), target), compiled in one piece, while the weights stand still."""
        if loss not in self.judges:
            still = self.still

            def judge(x: Tensor, target: Tensor) -> Tensor:
                return loss(still(x), target)

            self.judges[loss] = self.hasten(judge)
        return self.judges[loss]


def layout_for(images: Tensor) -> torch.memory_format:
    """Channels last, which convolutions like; on a CPU, tiny images lose more by the rearrangement than they gain."""
    tiny = images.shape[-2] * images.shape[-1] < TINY and not images.is_cuda
    return torch.contiguous_format if tiny else torch.channels_last


def answers_each_image_by_itself(f: nn.Module) -> bool:
    """Whether f in evaluation mode treats images apart: a BatchNorm without running statistics does not."""
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return all(module.running_mean is not None for module in f.modules() if isinstance(module, norms))


def through(
    network: nn.Module, engine: Engine, layout: torch.memory_format, *, trained: bool = False
) -> Callable[[Tensor], Tensor]:
    """The logits of a network in the arithmetic and the layout of the engine."""

    def answer(x: Tensor) -> Tensor:
        with engine.cast(x.device), NarrowConvolutions() if trained else nullcontext():
            logits: Tensor = network(x.contiguous(memory_format=layout))
        return logits.to(x.dtype)

    return answer


class Hastener:
    """Compiles functions for the shapes they meet; one that cannot be compiled is run as it is, and that is said."""

    def __init__(self, engine: Engine, *, say: Say) -> None:
        self.engine, self.say = engine, say
        self.failed = False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self.engine.compiled:
            return function
        dynamo: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        dynamo.config.recompile_limit = max(SHAPES, dynamo.config.recompile_limit)
        compiled = torch.compile(function, dynamic=False)

        def run(*arguments: Any) -> Any:
            if self.failed:
                return function(*arguments)
            try:
                return compiled(*arguments)
            except Exception as error:  # Compilers fail in all ways there are; a fault of the function comes again.
                result = function(*arguments)
                self.failed = True
                self.say(f"what cannot be compiled is run as it is, only slower: {first_line(error)}")
                return result

        return run


def first_line(error: Exception) -> str:
    """The name of an error and its first words."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
