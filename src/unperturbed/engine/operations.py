"""Functions with gradients of their own, as a compiler likes them, and as callers without one do."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor


def like_first(x: Tensor, *_: object) -> Tensor:
    """A result of the shape and type of the first argument, without its values."""
    return torch.empty_like(x)


def like_second(_: object, x: Tensor, *__: object) -> Tensor:
    """One of those of the second."""
    return torch.empty_like(x)


class Operation:
    """A function of tensors: to a compiler one operation that it does not look into, to others a plain function.

    An operation of PyTorch imports the compiler when it is first called, which takes seconds that an evaluation has
    no use for, and costs more at every other call.
    """

    def __init__(self, name: str, forward: Callable[..., Any], *, fake: Callable[..., Any]) -> None:
        """`fake` makes a result of the right shape and type that holds nothing."""
        self.name, self.forward = name, forward
        self.definition = torch.library.custom_op(f"unperturbed::{name}", forward, mutates_args=())
        self.definition.register_fake(fake)
        self.whole: Any = getattr(torch.ops.unperturbed, name).default
        self.plain: Callable[..., Any] = forward

    def with_gradient(self, remember: Callable[..., None], gradient: Callable[..., Any]) -> "Operation":
        """`gradient` gives the slopes of all arguments by what `remember` kept of them.

        It is told by `whole` whether it has to call other operations whole.
        """
        self.definition.register_autograd(partial(gradient, whole=True), setup_context=remember)
        parts = {"forward": self.forward, "setup_context": remember, "backward": partial(gradient, whole=False)}
        methods = {name: staticmethod(part) for name, part in parts.items()}
        function: Any = type(self.name, (torch.autograd.Function,), methods)
        self.plain = function.apply
        return self

    def called(self, *, whole: bool) -> Callable[..., Any]:
        """What a compiler does not look into, where it is to be called whole, or the plain function."""
        return self.whole if whole else self.plain

    def function(self) -> Callable[..., Any]:
        """What is called everywhere: a graph can hold it, and what compiles it finds the operation in it."""

        def call(*arguments: Any) -> Any:
            return self.called(whole=torch.compiler.is_compiling())(*arguments)

        call.__name__ = call.__qualname__ = self.name
        call.__module__ = self.forward.__module__
        return call
