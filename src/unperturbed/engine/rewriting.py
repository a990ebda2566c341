"""A network rewritten for the time in which its weights stand still: one layer does the work of several."""

import operator
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from .convolutions import CONVOLUTION, suits
from .norms import SCALED
from .numbers import as_it_was
from .pooling import POOLED

Layer = TypeVar("Layer", bound=nn.Module)
CHANNELS = 8
"""what tensor cores want the number of channels to be a multiple of"""


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A convolution of the network, the BatchNorm behind it if any, and the convolution of the copy that is both."""

    convolution: nn.Conv2d
    norm: nn.BatchNorm2d | nn.SyncBatchNorm | None
    copy: nn.Conv2d

    @property
    def equal(self) -> bool:
        """Whether the weights of the copy are just those of the network."""
        return self.norm is None and self.copy.weight.shape == self.convolution.weight.shape

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
class Alone:
    """A BatchNorm of the network that no convolution took over, and its factor and shift in the copy."""

    norm: nn.BatchNorm2d
    factor: Tensor
    shift: Tensor

    def refresh(self) -> None:
        """Take over the weights of the network."""
        if self.norm.running_var is not None and self.norm.running_mean is not None:
            factor = (self.norm.running_var + self.norm.eps).rsqrt()
            factor = factor * self.norm.weight if self.norm.affine else factor
            shift = -factor * self.norm.running_mean
            self.factor.copy_(factor)
            self.shift.copy_(shift + self.norm.bias if self.norm.affine else shift)


def rewritten(
    f: nn.Module, *, for_tensor_cores: bool, launched: bool = False
) -> tuple[fx.GraphModule, tuple[Merged | Alone, ...]]:
    """A copy of f in which convolutions do the work of the BatchNorms behind them.

    For tensor cores, or where each operation is launched by itself, they also do that of sums and ReLUs; for tensor
    cores they have channels in full eights. Launched by themselves, the other BatchNorms do the work of ReLUs too,
    and average pooling does that of filling up channels.
    """
    whole = Whole(f)
    with as_it_was(f):
        graph = Inside().trace(whole)
    module = deepcopy(fx.GraphModule(whole, graph)).requires_grad_(False)
    calls = Counter(node.target for node in module.graph.nodes if node.op == "call_module")
    fetched = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    merged: list[Merged | Alone] = []
    absorbs = for_tensor_cores or launched
    for node in list(module.graph.nodes):
        convolution = called(whole, node, nn.Conv2d)
        if convolution is None or calls[node.target] > 1 or not plain(convolution):
            continue
        if not fetched.isdisjoint({f"{node.target}.weight", f"{node.target}.bias"}):
            continue  # What else is made of its weights is made of those of the network, not of merged ones.
        behind = only_user(node) or node
        norm = called(whole, behind, nn.BatchNorm2d) or called(whole, behind, nn.SyncBatchNorm)
        if norm is not None and (norm.running_var is None or calls[behind.target] > 1):
            norm = None
        ours = for_tensor_cores and suits(convolution.weight, max(convolution.stride))
        fills = for_tensor_cores and convolution.groups == 1 and not ours
        extra = -int(convolution.in_channels) % CHANNELS if fills else 0
        if norm is None and not extra and not ours and not (absorbs and convolution.bias is not None):
            continue
        copy = cast(nn.Conv2d, module.get_submodule(str(node.target)))
        widen(copy, extra, bias=norm is not None or convolution.bias is not None)
        merged.append(Merged(convolution, norm, copy))
        if extra:
            with module.graph.inserting_before(node):
                node.args = (module.graph.call_function(padded, (node.args[0], extra)),)
        if norm is not None:
            behind.replace_all_uses_with(node)
            module.graph.erase_node(behind)
        if absorbs:
            absorb(module, node, copy, ours=ours)
    if launched:
        merged += stand_alone(module, whole, calls)
        average_at_once(module, whole)
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
    """Looks into the whole of f, also where f is of a kind that is a single operation as a part of others.

    Buffers are stand-ins like weights: the value that one has now is no constant of the network.
    """

    proxy_buffer_attributes = True

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """What a network does; a graph does not know of gradients that are held back for a while."""
        if not torch.is_grad_enabled():
            raise ValueError("what f does without gradients, as within torch.no_grad, a copy would do with them")
        return super().create_node(*args, **kwargs)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m is not cast(Whole, self.root).f and super().is_leaf_module(m, module_qualified_name)


def plain(convolution: nn.Conv2d) -> bool:
    """Whether a convolution is what it seems: zeros beyond its border, and no hook that makes its weights."""
    hooks: object = convolution._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
    return convolution.padding_mode == "zeros" and isinstance(convolution.weight, nn.Parameter) and not hooks


def stand_alone(module: fx.GraphModule, whole: nn.Module, calls: Counter[Any]) -> list[Alone]:
    """Make the BatchNorms that are left, and ReLUs behind them, one operation each."""
    found: list[Alone] = []
    for node in list(module.graph.nodes):
        norm = called(whole, node, nn.BatchNorm2d)
        if norm is None or norm.running_var is None or calls[node.target] > 1:
            continue
        done, leak = [node], 1.0
        if (behind := only_user(node)) is not None and (slope := leak_of(module, behind)) is not None:
            done, leak = [node, behind], slope
        names = [f"{kind}_of_norm_{len(found)}" for kind in ("factor", "shift")]
        for name in names:
            module.register_buffer(name, torch.zeros_like(norm.running_var))
        found.append(Alone(norm, *(module.get_buffer(name) for name in names)))
        with module.graph.inserting_before(done[-1]):
            numbers = [module.graph.get_attr(name) for name in names]
            put_in_place(done, module.graph.call_function(SCALED, (node.args[0], *numbers, leak)))
    return found


def average_at_once(module: fx.GraphModule, whole: nn.Module) -> None:
    """Make average poolings, and channels of zeros that are put around what they leave, one operation each."""
    for node in list(module.graph.nodes):
        pool = called(whole, node, nn.AvgPool2d)
        if pool is None or not isinstance(size := pool.kernel_size, int):
            continue
        if pool.stride != size or pool.padding != 0 or pool.divisor_override is not None:
            continue
        done, zeros = [node], (0, 0)
        if (behind := only_user(node)) is not None and (pad := called(whole, behind, nn.ZeroPad3d)) is not None:
            *around, before, after = pad.padding
            if not any(around) and min(before, after) >= 0:
                done, zeros = [node, behind], (before, after)
        with module.graph.inserting_before(done[-1]):
            put_in_place(done, module.graph.call_function(POOLED, (node.args[0], size, pool.ceil_mode, *zeros)))


def leak_of(module: nn.Module, node: fx.Node) -> float | None:
    """What a ReLU multiplies the negative by; none where a node is no such thing."""
    leaky = called(module, node, nn.LeakyReLU)
    if leaky is not None:
        return float(leaky.negative_slope) if leaky.negative_slope >= 0 else None
    return None if called(module, node, nn.ReLU) is None else 0.0


def absorb(module: fx.GraphModule, node: fx.Node, convolution: nn.Conv2d, *, ours: bool) -> None:
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
    if (behind := only_user(done[-1])) is not None and (slope := leak_of(module, behind)) is not None:
        leak = slope
        done.append(behind)
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
    put_in_place(done, whole)


def put_in_place(done: Sequence[fx.Node], one: fx.Node) -> None:
    """Let one operation stand in the place of several, each of which only the next one uses."""
    done[-1].replace_all_uses_with(one)
    for part in reversed(done):
        part.graph.erase_node(part)


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


def widen(copy: nn.Conv2d, extra: int, *, bias: bool) -> None:
    """Give a convolution so many channels in addition, and a bias or none; all of its weights are 0 then."""
    filters, channels, *size = copy.weight.shape
    copy.in_channels += extra
    copy.weight = nn.Parameter(copy.weight.new_zeros(filters, channels + extra, *size), requires_grad=False)
    copy.bias = nn.Parameter(copy.weight.new_zeros(filters), requires_grad=False) if bias else None
