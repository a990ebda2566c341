"""Convolutions as one operation have the values and the gradients of their parts; so do the kernels of our own."""

import os
import subprocess
import sys
import warnings
from collections import Counter
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from unperturbed.engine.constant import linked
from unperturbed.engine.convolutions import CONVOLUTION, NarrowConvolutions, narrow, suits
from unperturbed.engine.norms import SCALED
from unperturbed.engine.pooling import POOLED
from unperturbed.engine.rewriting import rewritten
from unperturbed.models import ResNet

HERE = Path(__file__)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return numbers.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else numbers


@pytest.mark.parametrize("leak", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    "shape", [(5, 7, 4, 4), (1, 7, 1, 1), (), None], ids=["images", "channels", "number", "none"]
)
def test_one_operation_has_the_values_and_the_slopes_of_its_parts(shape, stride, leak):
    x, weight, bias = drawn(5, 3, 4 * stride, 4 * stride), drawn(7, 3, 3, 3, seed=1), drawn(7, seed=2)
    added = None if shape is None else drawn(*shape, seed=3)
    given = [part.requires_grad_() for part in (x, weight, bias, added) if part is not None]
    whole = CONVOLUTION(x, weight, bias, added, leak, stride, 1, torch.float64)
    parts = F.conv2d(x, weight, bias, stride, 1)
    parts = F.leaky_relu(parts if added is None else parts + added, leak)
    torch.testing.assert_close(whole, parts)
    assert whole.is_contiguous(memory_format=torch.channels_last)
    slopes = drawn(*parts.shape, seed=4)
    mine, its = (torch.autograd.grad(y, given, slopes) for y in (whole, parts))
    torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=str)
def test_kernels_of_our_own_get_weights_as_they_read_them(layout, monkeypatch):
    def as_it_lies(weight: Tensor) -> Tensor:
        _, channels, height, width = weight.shape
        return weight.as_strided(weight.shape, (channels * height * width, 1, channels * width, channels))

    kernels = SimpleNamespace(
        convolved=lambda x, weight, *rest: F.conv2d(x, as_it_lies(weight), padding=1),
        slopes_of_images=lambda slopes, weight, *rest: F.conv_transpose2d(slopes, as_it_lies(weight), padding=1),
    )
    monkeypatch.setattr("unperturbed.engine.kernels", kernels, raising=False)
    monkeypatch.setattr("unperturbed.engine.convolutions.ours", lambda *_: True)
    x, weight = drawn(5, 3, 4, 4).requires_grad_(), drawn(7, 3, 3, 3, seed=1).contiguous(memory_format=layout)
    whole, plain = CONVOLUTION(x, weight, None, None, 1.0, 1, 1, torch.float64), F.conv2d(x, weight, padding=1)
    torch.testing.assert_close(whole, plain)
    slopes = drawn(*plain.shape, seed=4)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, slopes) for y in (whole, plain)))


def check_for_compilers(operation, *arguments):
    """What compilers are told of an operation is true."""
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"The \.grad attribute")  # which newer checks look at themselves
        torch.library.opcheck(operation.default, arguments, test_utils=tests)


@pytest.mark.parametrize("added", [True, False])
def test_one_operation_is_what_compilers_are_told(added):
    images = drawn(2, 3, 6, 6).requires_grad_()
    rest = drawn(4, 3, 3, 3), None, drawn(2, 4, 3, 3) if added else None
    check_for_compilers(torch.ops.unperturbed.convolution, images, *rest, 0.1, 2, 1, torch.float64)


@pytest.mark.parametrize("leak", [0.0, 0.1, 1.0])
def test_a_still_norm_and_a_relu_as_one_have_the_values_and_the_slopes_of_both(leak):
    x, norm = drawn(5, 7, 4, 3).requires_grad_(), nn.BatchNorm2d(7).double().eval()
    factor, shift = drawn(7, seed=1), drawn(7, seed=2)
    parts = F.leaky_relu(F.batch_norm(x, -shift / factor, (1 / factor**2) - norm.eps), leak)
    whole = SCALED(x, factor.abs(), shift * factor.sign(), leak)
    torch.testing.assert_close(whole, parts)
    slopes = drawn(*x.shape, seed=3)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, slopes) for y in (whole, parts)))
    check_for_compilers(torch.ops.unperturbed.scaled, x, factor, shift, leak)
    low = SCALED(x.detach().bfloat16(), factor, shift, leak)
    assert low.dtype == torch.bfloat16


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize(("before", "behind"), [(0, 0), (3, 4)])
@pytest.mark.parametrize("side", [6, 7])
def test_a_shortcut_that_averages_has_the_values_and_the_slopes_of_its_parts(side, before, behind, up):
    x = drawn(2, 5, side, 6).requires_grad_()
    parts = F.pad(F.avg_pool2d(x, 2, ceil_mode=up), (0, 0, 0, 0, before, behind))
    whole = POOLED(x, 2, up, before, behind)
    torch.testing.assert_close(whole, parts, rtol=0, atol=0)
    slopes = drawn(*parts.shape, seed=3)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, slopes) for y in (whole, parts)))
    check_for_compilers(torch.ops.unperturbed.pooled, x, 2, up, before, behind)


WITHOUT_A_COMPILER = """
import sys, torch
from unperturbed.engine.rewriting import rewritten
from unperturbed.models import ResNet

module, _ = rewritten(ResNet(units=1)((3, 8, 8), 10).eval(), for_tensor_cores=True, launched=True)
x = torch.rand(2, 3, 8, 8, requires_grad=True)
module(x).sum().backward()
print(x.grad.shape[0], "torch._dynamo" in sys.modules)
"""


def test_operations_that_are_not_compiled_do_not_import_the_compiler():
    """That takes a second or more, at the first attack of a process."""
    answer = subprocess.run([sys.executable, "-c", WITHOUT_A_COMPILER], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["2", "False"]


def test_a_compiler_finds_operations_whole():
    seen: list[str] = []

    def backend(graph: fx.GraphModule, _inputs: object) -> fx.GraphModule:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    f = ResNet(units=1)((3, 8, 8), 10).eval()
    module, merged = rewritten(f, for_tensor_cores=True, launched=True)
    linked(module, merged, f).refresh()
    x = drawn(2, 3, 8, 8).float()
    torch.testing.assert_close(torch.compile(module, backend=backend, fullgraph=True)(x), f(x), rtol=1e-4, atol=1e-4)
    names = [name.split(".")[1] for name in seen if name.startswith("unperturbed.")]
    assert Counter(names) == {"convolution": 7, "scaled": 3, "pooled": 2}


def test_narrow_convolutions_train_as_others_do(monkeypatch):
    """In the arithmetic of autocast, up to its rounding; convolutions of other kinds are left alone."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        f = nn.Sequential(
            *(nn.Conv2d(3, 6, 3, padding="same"), nn.Conv2d(6, 6, 3, groups=2), nn.Conv2d(6, 3, 3, dilation=2)),
            *(nn.Conv2d(3, 80, (1, 3)), nn.Conv2d(80, 3, 1), ResNet(units=1)((3, 24, 24), 4)),
        )
    x = drawn(6, 3, 32, 32, dtype=torch.float32)
    seen: list[tuple[int, ...]] = []
    plain = torch.ops.unperturbed.convolution.default

    def counting(x: Tensor, weight: Tensor, *rest: object) -> Tensor:
        seen.append(tuple(weight.shape))
        return plain(x, weight, *rest)

    monkeypatch.setattr("unperturbed.engine.convolutions.CONVOLUTION", counting)
    slopes: dict[str, Tensor] = {}
    for name in ("float32", "bfloat16", "narrow"):
        f.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=name != "float32"):
            if name == "narrow":
                with NarrowConvolutions():
                    y = f(x)
            else:
                y = f(x)
        assert name == "narrow" or not seen
        y.float().square().sum().backward()
        slopes[name] = torch.cat([weight.grad.flatten() for weight in f.parameters()])
    assert len(seen) == 7
    assert all(narrow(torch.empty(shape)) for shape in seen)
    apart = {name: (slope - slopes["float32"]).norm() / slopes["float32"].norm() for name, slope in slopes.items()}
    assert 0 < apart["narrow"] <= 1.5 * apart["bfloat16"]


@pytest.mark.parametrize(
    ("shape", "stride", "suited"),
    [
        ((64, 64, 3, 3), 1, True),
        ((65, 64, 3, 3), 1, False),
        ((128, 64, 1, 1), 2, True),
        ((128, 64, 1, 1), 1, False),
        ((128, 60, 1, 1), 2, False),
        ((1024, 512, 1, 1), 2, False),
        ((128, 64, 3, 3), 2, False),
        ((128, 64, 1, 2), 2, False),
    ],
    ids=str,
)
def test_kernels_of_our_own_take_few_channels_and_shortcuts_that_leave_pixels_out(shape, stride, suited):
    assert suits(torch.empty(shape), stride) == suited


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which interprets its kernels on a CPU")
def test_kernels_of_our_own_have_the_values_and_the_slopes_of_the_convolution():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, str(HERE)], env=environment, check=True)


def compare_kernels() -> None:
    """Kernels in an interpreter against the convolution of the library, in float32."""
    from unperturbed.engine import kernels, pixels

    cases = [(1, 5, 9, 3, 1, 0), (3, 16, 8, 3, 1, 1), (16, 16, 8, 3, 1, 1), (16, 32, 8, 3, 2, 1)]
    cases += [(24, 20, 7, 1, 1, 0), (32, 3, 5, 5, 1, 2), (32, 80, 7, 1, 2, 0)]
    for channels, filters, side, size, stride, padding in cases:
        x, weight = drawn(3, channels, side, side).float(), drawn(filters, channels, size, size, seed=1).float()
        x, weight = (part.contiguous(memory_format=torch.channels_last).requires_grad_() for part in (x, weight))
        bias, plain = drawn(filters, seed=2).float(), F.conv2d(x, weight, None, stride, padding)
        added, slopes = (drawn(*plain.shape, seed=seed).float() for seed in (3, 4))
        found = [kernels.convolved(x.detach(), weight.detach(), bias, added, 0.1, stride, padding, torch.float32)]
        wanted = [F.leaky_relu(plain + bias.view(-1, 1, 1) + added, 0.1)]
        of_x, of_weight = torch.autograd.grad(plain, (x, weight), slopes)
        if stride == 1:
            found.append(kernels.slopes_of_images(slopes, weight.detach(), x.detach(), padding))
            wanted.append(of_x)
        found.append(kernels.slopes_of_weights(slopes, weight.detach(), x.detach(), stride, padding))
        torch.testing.assert_close(found, [*wanted, of_weight], rtol=1e-4, atol=1e-4)
    for leak, layout in product((0.0, 0.1, 1.0), (torch.channels_last, torch.contiguous_format)):
        x, slopes = (drawn(5, 7, 13, 11, seed=seed).float().contiguous(memory_format=layout) for seed in (0, 3))
        factor, shift = drawn(7, seed=1).float(), drawn(7, seed=2).float()
        x.requires_grad_()
        plain = F.leaky_relu(x * factor.view(-1, 1, 1) + shift.view(-1, 1, 1), leak)
        found = pixels.scaled(x.detach(), factor, shift, leak)
        back = pixels.slopes_of_scaled(slopes, found, factor, leak)
        torch.testing.assert_close([found, back], [plain, *torch.autograd.grad(plain, x, slopes)])
    for size, before, behind in ((2, 0, 0), (2, 3, 4), (3, 1, 0)):
        x = drawn(3, 5, 6, 12).float().requires_grad_()
        plain = F.pad(F.avg_pool2d(x, size), (0, 0, 0, 0, before, behind))
        slopes, found = drawn(*plain.shape, seed=3).float(), pixels.averaged(x.detach(), size, before, behind)
        back = pixels.slopes_of_averaged(slopes, x.detach(), size, before)
        torch.testing.assert_close([found, back], [plain, *torch.autograd.grad(plain, x, slopes)])


if __name__ == "__main__":
    compare_kernels()
