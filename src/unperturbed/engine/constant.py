"""A copy of a network for the time in which its weights stand still: fewer, cheaper operations, the same function."""

import operator
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils import skip_init

from .convolutions import CONVOLUTION, suits
from .layouts import PLAIN, Layout, lay_out

Layer = TypeVar("Layer", bound=nn.Module)
AGREEMENT = 1e-4
"""by how much of its largest logit the copy may differ from the network, in float32"""
CHANNELS = 8
"""what tensor cores want the number of channels to be a multiple of"""


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A convolution of the network, the BatchNorm behind it if any, and the convolution of the copy that is both."""

    convolution: nn.Conv2d
    norm: nn.BatchNorm2d | nn.SyncBatchNorm | None
    copy: nn.Conv2d

    def refresh(self) -> None:
        """Take over the weights of the network."""
        weight, bias = self.convolution.weight, self.convolution.bias
        if self.norm is not None and self.norm.running_var is not None and self.norm.running_mean is not None:
            # A still BatchNorm is affine: norm(w x + b) = (scale w) x + scale (b - mean) + shift.
            scale = (self.norm.running_var + self.norm.eps).rsqrt()
            scale = scale * self.norm.weight if self.norm.affine else scale
            weight = weight * scale.view(-1, 1, 1, 1)
            bias = scale * ((0 if bias is None else bias) - self.norm.running_mean)
            bias = bias + self.norm.bias if self.norm.affine else bias
        self.copy.weight[:, : weight.shape[1]].copy_(weight)
        if self.copy.bias is not None and bias is not None:
            self.copy.bias.copy_(bias)


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """The copy, and where its weights come from."""

    module: nn.Module
    merged: tuple[Merged, ...]
    others: tuple[tuple[Tensor, Tensor], ...]
    """tensors of the copy, and those of the network that they equal"""

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights of the network as they are now."""
        for pair in self.merged:
            pair.refresh()
        for mine, its in self.others:
            mine.copy_(its)


def constant(f: nn.Module, images: Tensor, dtype: torch.dtype, layout: Layout = PLAIN) -> Constant | None:
    """The copy of f, its convolutions and dense layers of that type; none where f cannot be rewritten."""
    if hooked(f):
        return None
    modes = [(module, module.training) for module in f.modules()]
    try:
        f.eval()
        module, merged = rewritten(f, for_tensor_cores=dtype == torch.bfloat16)
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


def rewritten(f: nn.Module, *, for_tensor_cores: bool) -> tuple[fx.GraphModule, tuple[Merged, ...]]:
    """A copy of f in which convolutions do the work of the BatchNorms behind them.

    For tensor cores they also do that of sums and ReLUs, and have channels in full eights.
    """
    whole = Whole(f)
    module = deepcopy(fx.GraphModule(whole, Inside().trace(whole))).requires_grad_(False)
    calls = Counter(node.target for node in module.graph.nodes if node.op == "call_module")
    merged: list[Merged] = []
    for node in list(module.graph.nodes):
        convolution = called(whole, node, nn.Conv2d)
        if convolution is None or calls[node.target] > 1 or not plain(convolution):
            continue
        behind = next(iter(node.users)) if len(node.users) == 1 else node
        norm = called(whole, behind, nn.BatchNorm2d) or called(whole, behind, nn.SyncBatchNorm)
        if norm is not None and (norm.running_var is None or calls[behind.target] > 1):
            norm = None
        ours = for_tensor_cores and suits(convolution.weight, max(convolution.stride))
        fills = for_tensor_cores and convolution.groups == 1 and not ours
        extra = -int(convolution.in_channels) % CHANNELS if fills else 0
        if norm is None and not extra and not ours and not (for_tensor_cores and convolution.bias is not None):
            continue
        copy = widened(convolution, extra, bias=norm is not None or convolution.bias is not None)
        module.set_submodule(str(node.target), copy)
        merged.append(Merged(convolution, norm, copy))
        if extra:
            with module.graph.inserting_before(node):
                node.args = (module.graph.call_function(padded, (node.args[0], extra)),)
        if norm is not None:
            behind.replace_all_uses_with(node)
            module.graph.erase_node(behind)
        if for_tensor_cores:
            absorb(module, node, copy)
    module.delete_all_unused_submodules()
    module.recompile()
    return module, tuple(merged)


class Whole(nn.Module):
    """F as its callers see it: one argument, all others as f has them by default.

    Tracing leaves constants that a forward pass makes with the module it begins at, which is this one and not f.
    """

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f
        self.training = f.training

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


class Inside(fx.Tracer):
    """Looks into the whole of f, also where f is of a kind that is a single operation as a part of others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m is not cast(Whole, self.root).f and super().is_leaf_module(m, module_qualified_name)


def hooked(f: nn.Module) -> bool:
    """Whether a hook of a stranger hangs on f: it may do anything, and a copy would not always call it."""
    return any(
        not type(hook).__module__.startswith("torch.")
        for module in f.modules()
        for kind in ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
        for hook in getattr(module, kind, {}).values()
    )


def plain(convolution: nn.Conv2d) -> bool:
    """Whether a convolution is what it seems: zeros beyond its border, and no hook that makes its weights."""
    hooks: object = convolution._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
    return convolution.padding_mode == "zeros" and isinstance(convolution.weight, nn.Parameter) and not hooks


def absorb(module: fx.GraphModule, node: fx.Node, convolution: nn.Conv2d) -> None:
    """Let a convolution do the work of a sum behind it, and of a ReLU behind that, as far as its kernels can."""
    stride, padding = set(convolution.stride), set(convolution.padding)
    if convolution.groups != 1 or convolution.dilation != (1, 1) or len(stride) > 1 or len(padding) > 1:
        return
    if isinstance(convolution.padding, str):
        return
    done, added, leak = [node], None, 1.0
    if (behind := only_user(node)) is not None and behind.target is operator.add:
        added = next((part for part in behind.all_input_nodes if part is not node), None)
        done += [behind] if added is not None else []
    if (behind := only_user(done[-1])) is not None:
        relu, leaky = called(module, behind, nn.ReLU), called(module, behind, nn.LeakyReLU)
        if relu is not None or leaky is not None:
            leak = 0.0 if leaky is None else float(leaky.negative_slope)
            done.append(behind)
    ours = suits(convolution.weight, max(stride))
    if not ours and (leak != 0 or convolution.bias is None):
        return
    graph = module.graph
    with graph.inserting_before(done[-1]):
        weight = graph.get_attr(f"{node.target}.weight")
        bias = None if convolution.bias is None else graph.get_attr(f"{node.target}.bias")
        parts = [node.args[0], added]
        if not ours:
            parts = [part and graph.call_method("type_as", (part, weight)) for part in parts]
        x, added = parts
        dtype = graph.call_function(getattr, (weight, "dtype"))
        whole = graph.call_function(CONVOLUTION, (x, weight, bias, added, leak, stride.pop(), padding.pop(), dtype))
    done[-1].replace_all_uses_with(whole)
    for part in reversed(done):
        graph.erase_node(part)


def only_user(node: fx.Node) -> fx.Node | None:
    """What uses a value, where one thing does."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def padded(x: Tensor, extra: int) -> Tensor:
    """Images with channels of zeros behind their own, channels last in memory also where there was but one."""
    return F.pad(x, (0, 0, 0, 0, 0, extra)).contiguous(memory_format=torch.channels_last)


def called(f: nn.Module, node: fx.Node, kind: type[Layer]) -> Layer | None:
    """The module of just that kind which a node calls; a class derived from it, or a forward put in, may do all."""
    module = f.get_submodule(str(node.target)) if node.op == "call_module" else None
    return cast(Layer, module) if type(module) is kind and "forward" not in vars(module) else None


def widened(convolution: nn.Conv2d, extra: int, *, bias: bool) -> nn.Conv2d:
    """A convolution like the given one, with weights of 0 for channels that it has in addition."""
    shape: dict[str, Any] = {
        name: getattr(convolution, name) for name in ("kernel_size", "stride", "padding", "dilation", "groups")
    }
    # Fresh weights would be drawn from the random numbers of the caller.
    copy = skip_init(nn.Conv2d, convolution.in_channels + extra, convolution.out_channels, bias=bias, **shape)
    nn.init.zeros_(copy.get_parameter("weight"))
    return cast(nn.Conv2d, copy.to(convolution.weight).eval().requires_grad_(False))


def linked(module: fx.GraphModule, merged: tuple[Merged, ...], f: nn.Module) -> Constant:
    """The copy with its tensors tied to those of f."""
    apart = {id(tensor) for pair in merged for tensor in pair.copy.parameters()}
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
