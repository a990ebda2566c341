"""A copy of a network for the time in which its weights stand still: fewer, cheaper operations, the same function."""

from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from .layouts import PLAIN, Layout, lay_out
from .rewriting import Alone, Merged, Whole, rewritten

AGREEMENT = 1e-4
"""by how much of its largest logit the copy may differ from the network, in float32"""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """The copy, and where its weights come from."""

    module: nn.Module
    merged: tuple[Merged | Alone, ...]
    others: tuple[tuple[Tensor, Tensor], ...]
    """tensors of the copy, and those of the network that they equal"""

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights of the network as they are now."""
        for pair in self.merged:
            pair.refresh()
        for mine, its in self.others:
            mine.copy_(its)


def constant(
    f: nn.Module, images: Tensor, dtype: torch.dtype, layout: Layout = PLAIN, *, launched: bool = False
) -> Constant | None:
    """The copy of f, its convolutions and dense layers of that type; none where f cannot be rewritten.

    Where each operation is launched by itself, as on a GPU without a compiler, there are fewer.
    """
    if hooked(f):
        return None
    modes = [(module, module.training) for module in f.modules()]
    try:
        f.eval()
        module, merged = rewritten(f, for_tensor_cores=dtype == torch.bfloat16, launched=launched)
        faithful = agree(linked(module, merged, f), f, images, layout)
    except Exception:  # Tracing runs a stranger's code on stand-ins for tensors, which fails in all ways there are.
        return None
    finally:
        for part, mode in modes:
            part.training = mode
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
    mine, its = (
        {**dict(part.named_parameters(remove_duplicate=False)), **dict(part.named_buffers(remove_duplicate=False))}
        for part in (module, Whole(f))
    )
    fetched = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    if not fetched <= mine.keys():
        raise ValueError("what f fetches and is no tensor, as the insides of TorchScript, cannot follow its weights")
    others = tuple((tensor, its[name].detach()) for name, tensor in mine.items() if id(tensor) not in apart)
    return Constant(module, merged, others)


@torch.no_grad()
def agree(copy: Constant, f: nn.Module, images: Tensor, layout: Layout) -> bool:
    """Whether the copy answers these images as f does."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        copy.refresh()
        # A graph that is called in the usual way prints what goes wrong in it.
        ours, its = layout(copy.module.forward, images), f(images)
    return ours.shape == its.shape and bool(
        ((ours - its).abs().max() <= AGREEMENT * its.abs().max().clamp_min(1e-3)).item()
    )
