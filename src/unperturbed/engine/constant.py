"""A copy of a network for the time in which its weights stand still: fewer, cheaper operations, the same function."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..answers import in_evaluation_mode
from .faithful import agree, draws_numbers, leaves_tensors, makes_slopes
from .layouts import PLAIN, Layout, lay_out
from .rewriting import Alone, Merged, Whole, rewritten

VERSION = attrgetter("_version")
Place = tuple[nn.Module, str]
"""a module and the name of a tensor in it: a forward pass may put another in the place of one"""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """The copy, and where its weights come from."""

    module: nn.Module
    merged: tuple[Merged | Alone, ...]
    others: tuple[tuple[list[Tensor], list[Place]], ...]
    """tensors of the copy, and where the network keeps those that they equal, as many as one kernel can take over"""

    def refresh(self) -> None:
        """Take over the weights of the network as they are now."""
        self.fold()
        self.take_over()

    @torch.no_grad()
    def fold(self) -> None:
        """Compute those weights that are not just those of the network."""
        for pair in self.merged:
            if isinstance(pair, Alone) or not pair.equal:
                pair.refresh()

    @torch.no_grad()
    def take_over(self) -> None:
        """Take over the others."""
        copy_all: Any = torch._foreach_copy_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        for mine, places in self.others:
            copy_all(mine, [getattr(module, name) for module, name in places])


class Taken:
    """The tensors of a network as a copy took them over, and whether they are still what they were.

    That is asked before each query, so nothing is looked into that PyTorch does not note by itself.
    """

    def __init__(self, f: nn.Module) -> None:
        modules = [module for module in f.modules() if not isinstance(module, torch.jit.ScriptModule)]
        tables = [vars(module)[kind] for module in modules for kind in ("_parameters", "_buffers")]
        self.places = [(table, name) for table in tables for name in table]
        self.note()

    def note(self) -> None:
        """They have been taken over as they are now."""
        self.tensors = self.now()
        self.counted = [each for each in self.tensors if each is not None and is_counted(each)]
        self.marks = self.marked()

    def hold(self) -> bool:
        """Whether none has changed or is another; what is changed in place through `.data` is not noted anywhere."""
        return all(map(is_, self.now(), self.tensors)) and self.marked() == self.marks

    def now(self) -> list[Tensor | None]:
        """The tensors that are there now."""
        return [table.get(name) for table, name in self.places]

    def marked(self) -> tuple[list[int], list[int]]:
        """How often each was changed, and where it lies."""
        return [*map(VERSION, self.counted)], [*map(Tensor.data_ptr, self.counted)]


def is_counted(tensor: Tensor) -> bool:
    """Whether changes of a tensor are counted and it lies in one place: not if it is sparse, or one of inference."""
    with suppress(RuntimeError):
        return VERSION(tensor) >= 0 and tensor.data_ptr() >= 0
    return False


def constant(
    f: nn.Module, images: Tensor, dtype: torch.dtype, layout: Layout = PLAIN, *, launched: bool = False
) -> Constant | None:
    """The copy of f, its convolutions and dense layers of that type; none where f cannot be rewritten.

    Where each operation is launched by itself, as on a GPU without a compiler, there are fewer.
    """
    if hooked(f) or any(weight.is_floating_point() and weight.dtype != images.dtype for weight in f.parameters()):
        return None  # One that converts images to the type of its weights would convert them to one the copy has not.
    with in_evaluation_mode(f):
        try:
            if draws_numbers(f, images) or makes_slopes(f, images) or leaves_tensors(f, images):
                return None
            with torch.enable_grad():  # A network may ask whether gradients are wanted: attacks want them.
                module, merged = rewritten(f, for_tensor_cores=dtype == torch.bfloat16, launched=launched)
            faithful = answers_alike(linked(module, merged, f), f, images, layout)
        except Exception:  # Tracing runs a stranger's code on stand-ins for tensors, and fails in all ways there are.
            return None
        if not faithful:
            return None
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.to(dtype)
        lay_out(module, layout.format)
        return linked(module, merged, f)


def hooked(f: nn.Module) -> bool:
    """Whether a hook of a stranger hangs on f: it may do anything, and a copy would not always call it."""
    return any(
        not type(hook).__module__.startswith("torch.")
        for module in f.modules()
        for kind in ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
        for hook in getattr(module, kind, {}).values()
    )


def linked(module: fx.GraphModule, merged: tuple[Merged | Alone, ...], f: nn.Module) -> Constant:
    """The copy with its tensors tied to those of f."""
    apart = {id(tensor) for pair in merged if isinstance(pair, Merged) for tensor in pair.copy.parameters()}
    apart |= {id(tensor) for norm in merged if isinstance(norm, Alone) for tensor in (norm.factor, norm.shift)}
    whole = Whole(f)
    mine, its = (
        {**dict(part.named_parameters(remove_duplicate=False)), **dict(part.named_buffers(remove_duplicate=False))}
        for part in (module, whole)
    )
    fetched = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    if not fetched <= mine.keys():
        raise ValueError("what f fetches and is no tensor, as the insides of TorchScript, cannot follow its weights")
    pairs = [(tensor, its[name], place(whole, name)) for name, tensor in mine.items() if id(tensor) not in apart]
    for pair in merged:
        if isinstance(pair, Merged) and pair.equal:
            for tensor, (name, weight) in zip(
                pair.copy.parameters(), pair.convolution.named_parameters(), strict=True
            ):
                pairs.append((tensor, weight, (pair.convolution, name)))
    return Constant(module, merged, tuple(grouped(pairs)))


def place(whole: nn.Module, name: str) -> Place:
    """Where a tensor of that name is kept."""
    path, _, last = name.rpartition(".")
    return whole.get_submodule(path), last


def grouped(pairs: list[tuple[Tensor, Tensor, Place]]) -> Iterable[tuple[list[Tensor], list[Place]]]:
    """Those of the same types, and in memory alike: one kernel copies many of them."""
    alike: dict[object, tuple[list[Tensor], list[Place]]] = {}
    for mine, its, where in pairs:
        together = alike.setdefault((mine.dtype, its.dtype, mine.stride() == its.stride()), ([], []))
        together[0].append(mine)
        together[1].append(where)
    return alike.values()


def answers_alike(copy: Constant, f: nn.Module, images: Tensor, layout: Layout) -> bool:
    """Whether the copy, with the weights of f, does to these images what f does."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        copy.refresh()
        # A graph that is called in the usual way prints what goes wrong in it.
        return agree(partial(layout, copy.module.forward), f, images)
