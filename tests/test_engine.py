"""Speed changes no result: folded, compiled, recorded and cut into parts, a step ends where the plain one ends."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from unittest.mock import Mock, patch

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tiny import trainer_with
from unperturbed.answers import frozen, own_opinion, passes
from unperturbed.attacks import AutoAttack, autoattack
from unperturbed.attacks.apgd import APGD
from unperturbed.attacks.fab import FAB
from unperturbed.attacks.square import Square
from unperturbed.averaging import Average
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.engine import Accelerated, Engine, Hastener, Numbers, Recorded, engine_for, fused, stateless
from unperturbed.engine import fusion as fusion_room
from unperturbed.engine import network as network_room
from unperturbed.engine import queries as queries_room
from unperturbed.engine import recording as recording_room
from unperturbed.engine import rewriting as rewriting_room
from unperturbed.engine import searches as searches_room
from unperturbed.engine.constant import Constant, constant, linked
from unperturbed.engine.convolutions import CONVOLUTION, narrow
from unperturbed.engine.layouts import layout_for
from unperturbed.engine.network import SHAPES
from unperturbed.engine.norms import SCALED
from unperturbed.engine.passes import SeparateNorms, shares_of
from unperturbed.engine.pooling import POOLED
from unperturbed.engine.queries import Query
from unperturbed.engine.recording import CLOSE, WARM_UP, apart
from unperturbed.engine.rewriting import CHANNELS, Merged, rewritten
from unperturbed.images import Images, parts
from unperturbed.losses import Loss, cross_entropy
from unperturbed.models import DigitsCNN, PreActResNet18, ResNet, ResNet18, SmallCNN, WideResNet
from unperturbed.neighborhoods import L2, Linf, Spatial
from unperturbed.objectives import AT, KLR, SRT, TRADES, UAT, Batch, Mixture, Objective, Standard, Terms
from unperturbed.processes import Processes
from unperturbed.recipe import SGD
from unperturbed.schedules import Piecewise
from unperturbed.solvers import FGSM, NFGSM, PGD, Grid, Sequential, Solver, Strongest, WorstOfK, definition
from unperturbed.trainer import Trainer

CPU = torch.device("cpu")
STEADY = SGD(rate=Piecewise(rate=0.01, milestones=()))
ASCENT = PGD(around=L2(eps=0.5), steps=2, step_size=0.2)
FAR_ASCENT = PGD(around=L2(eps=0.5), steps=2, step_size=0.2, start="uniform")
"""KL is flat near x, where its gradient is but rounding"""
SEARCH = WorstOfK(around=Spatial(rotation=20.0, translation=1.0), k=3)
ONE_STEP = FGSM(around=L2(eps=0.5), start="identity")
NO_LIMIT = 10**9


@cache
def digits(labeled: int = 100, unlabeled: int = 200) -> Images:
    return parts(load("digits"), Data(labeled=labeled, unlabeled=unlabeled))


def fresh(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return make()


def network(seed: int = 0) -> nn.Module:
    return fresh(lambda: DigitsCNN(channels=(8, 12, 16), hidden=16)((1, 8, 8), 10), seed)


def without_batchnorm() -> nn.Module:
    return fresh(lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 36, 10)))


def trainer(**changes: object) -> Trainer:
    settings: dict[str, object] = {
        "f": network(),
        "images": digits(),
        "objective": SRT(solver=ASCENT),
        "steps": 30,
        "batch": 60,
        "optimizer": STEADY,
        "device": CPU,
        "engine": Engine(),
    }
    return trainer_with(**settings | changes)


def images(count: int = 4, shape: tuple[int, int, int] = (1, 8, 8), dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(count, *shape, generator=Generator().manual_seed(3), dtype=dtype)


@torch.no_grad()
def shaken(f: nn.Module, seed: int = 0) -> nn.Module:
    """The same network with statistics as training leaves them, and no weight that is 0."""
    rng = Generator().manual_seed(seed)
    for layer in f.modules():
        if isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None:
            layer.running_mean.normal_(std=0.3, generator=rng)
            layer.running_var.uniform_(0.5, 2.0, generator=rng)
    for weight in f.parameters():
        weight.add_(0.05 * torch.empty_like(weight).uniform_(-1, 1, generator=rng))
    return f


def values(f: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in f.state_dict().items()}


def count(f: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(layer, kind) for layer in f.modules())


def assert_near(one: Tensor, other: Tensor, share: float) -> None:
    """Apart by no more than that share of the largest entry, which is not 0."""
    assert one.shape == other.shape and other.abs().max() > 0
    assert (one - other).abs().max() <= share * other.abs().max()


def assert_same_weights(one: nn.Module, other: nn.Module, tolerance: float = 1e-5) -> None:
    ours, its = one.state_dict(), other.state_dict()
    assert ours.keys() == its.keys()
    for name in ours:
        assert (ours[name].double() - its[name].double()).abs().max() <= tolerance, name


def assert_same_terms(one: Terms, other: Terms, tolerance: float = 1e-5) -> None:
    for ours, its in zip(one, other, strict=True):
        assert abs(ours.item() - its.item()) <= tolerance


def draws(rng: Generator) -> float:
    return torch.rand((), generator=rng).item()


# A run on its engine, and its twin without one


EXTRAS = {"averaging": Average(decay=0.9), "labeler": "average", "weight_perturbation": 0.01}


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": SRT(solver=ASCENT)},
        {"objective": SRT(solver=SEARCH)},
        {"objective": TRADES(solver=FAR_ASCENT)},
        {"objective": SRT(solver=ASCENT, targets="soft"), "averaging": Average(decay=0.9), "labeler": "average"},
        {"weight_perturbation": 0.01},
        {"objective": SRT(solver=SEARCH, forward="together"), **EXTRAS},
    ],
    ids=["SRT, ascent", "SRT, search", "TRADES", "average labels", "AWP", "all at once"],
)
def test_a_run_on_still_copies_ends_where_the_plain_run_ends(settings):
    plain, folded = trainer(**settings), trainer(engine=Engine(folded=True), f=network(), **settings)
    assert plain.outer.fast is plain.f
    assert count(folded.outer.fast.copies[0].module, nn.BatchNorm2d) == 0
    before = values(plain.f)
    for _ in range(10):
        assert_same_terms(plain.advance(), folded.advance())
    assert_same_weights(plain.f, folded.f)
    assert_same_weights(plain.result, folded.result)
    assert all((tensor - before[name]).abs().max() > 1e-3 for name, tensor in values(plain.f).items())


def test_a_run_takes_the_engine_that_pays_on_its_device():
    run = trainer(engine=None, averaging=Average(decay=0.9), labeler="average")
    assert run.outer.engine == Engine(folded=True)
    assert isinstance(run.outer.fast, Accelerated) and isinstance(run.outer.labeling, Accelerated)
    assert run.remarks == []


def test_a_trainer_leaves_the_random_numbers_of_its_caller_as_they_were():
    f, before = network(), torch.get_rng_state()
    trainer(f=f, engine=Engine(folded=True))
    assert torch.equal(torch.get_rng_state(), before)


# The copy of a network that stands still


ARCHITECTURES = [
    (DigitsCNN(), (1, 8, 8), 0),
    (SmallCNN(), (1, 16, 16), 0),
    (ResNet(), (3, 8, 8), 15),
    (ResNet18(), (3, 8, 8), 0),
    (PreActResNet18(), (3, 8, 8), 9),
    (WideResNet(depth=10, width=1), (3, 8, 8), 4),
]
"""each with a shape, and the number of BatchNorms that stand behind something else than one convolution"""
every_architecture = pytest.mark.parametrize(
    ("architecture", "shape", "remaining"), ARCHITECTURES, ids=[type(row[0]).__name__ for row in ARCHITECTURES]
)


def assert_same_function(one: nn.Module, other: nn.Module, x: Tensor) -> None:
    """The same answers and the same gradients with respect to the images, up to rounding of float64."""
    found = []
    for f in (one, other):
        point = x.clone().requires_grad_()
        answer = f(point)
        (slope,) = torch.autograd.grad(cross_entropy(answer, torch.arange(len(x))).sum(), point)
        found.append((answer.detach(), slope))
    for ours, its in zip(*found, strict=True):
        assert_near(ours, its, 1e-9)


def copy_of(f: nn.Module, x: Tensor) -> Constant:
    copy = constant(f, x[:2], x.dtype)
    assert copy is not None
    copy.refresh()
    return copy


@every_architecture
def test_the_copy_answers_as_the_network_does_and_goes_along_with_its_weights(architecture, shape, remaining):
    f, x = shaken(fresh(lambda: architecture(shape, 10))), images(3, shape)
    copy = copy_of(f, x)
    assert count(copy.module, nn.BatchNorm2d) == remaining
    for seed in (1, 2):
        with torch.no_grad():
            assert_near(copy.module(x), f.eval()(x), 1e-4)
            shaken(f, seed)
            stale = copy.module(x)
            assert (stale - f(x)).abs().max() > 1e-2 * stale.abs().max()
        copy.refresh()
    assert not any(weight.requires_grad for weight in copy.module.parameters())


@every_architecture
@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("for_tensor_cores", [False, True])
def test_the_copy_has_the_answers_and_the_gradients_of_the_network(
    architecture, shape, remaining, for_tensor_cores, launched
):
    f, x = shaken(fresh(lambda: architecture(shape, 10))).double().eval(), images(3, shape, torch.float64)
    module, merged = rewritten(f, for_tensor_cores=for_tensor_cores, launched=launched)
    linked(module, merged, f).refresh()
    assert count(module, nn.BatchNorm2d) == (0 if launched else remaining)
    alone = [node for node in module.graph.nodes if node.target is SCALED]
    assert len(alone) == (remaining if launched else 0)
    if launched and isinstance(architecture, ResNet | WideResNet):
        assert not count(module, nn.ReLU)
        assert {node.args[3] for node in alone} == {0.1 if isinstance(architecture, ResNet) else 0.0}
    if isinstance(architecture, ResNet):
        pools = [node.args[1:] for node in module.graph.nodes if node.target is POOLED]
        assert pools == ([(2, True, 8, 8), (2, True, 16, 16)] if launched else [])
        assert bool(count(module, nn.AvgPool2d) + count(module, nn.ZeroPad3d)) != launched
    assert_same_function(module, f, x)
    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    assert convolutions
    if for_tensor_cores:
        assert all(layer.in_channels % CHANNELS == 0 or narrow(layer.weight) for layer in convolutions)


@pytest.mark.parametrize(
    ("precision", "layout"), [("float32", torch.contiguous_format), ("tf32", torch.channels_last)]
)
def test_float32_on_a_gpu_has_its_channels_first(precision, layout):
    class OnGPU(Tensor):
        is_cuda = True

    f = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 30 * 30, 10))
    found = layout_for(f, torch.rand(2, 3, 32, 32).as_subclass(OnGPU), Engine(precision=precision))
    assert found.format == layout
    assert f[0].weight.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_making_a_copy_leaves_the_network_as_it_is(dtype):
    f = shaken(network()).train()
    f[1].eval()
    f[0].weight.requires_grad_(False)
    before, random = values(f), torch.get_rng_state()
    modes, flags = [part.training for part in f.modules()], [weight.requires_grad for weight in f.parameters()]
    own = [id(tensor) for tensor in (*f.parameters(), *f.buffers())]
    copy = constant(f, images(2), dtype)
    assert copy is not None
    copy.refresh()
    assert [part.training for part in f.modules()] == modes
    assert [weight.requires_grad for weight in f.parameters()] == flags
    assert [id(tensor) for tensor in (*f.parameters(), *f.buffers())] == own
    assert all(torch.equal(tensor, before[name]) for name, tensor in f.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert {weight.dtype for weight in f.parameters()} == {torch.float32}
    layers = [layer for layer in copy.module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert {layer.weight.dtype for layer in layers} == {dtype}


class Branching(nn.Module):
    """Its course depends on the values of its images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) if x.mean() > 0.5 else self.layers(1 - x)


class Noisy(nn.Module):
    """It never gives the same answer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x + 0.1 * torch.rand_like(x))


@pytest.mark.parametrize("make", [Branching, Noisy])
def test_a_network_that_cannot_be_rewritten_has_no_copy_and_answers_itself(make):
    f = shaken(make()).train()
    assert constant(f, images(2), torch.float32) is None
    assert all(part.training for part in f.modules())
    fast = Accelerated(f, Engine(folded=True), images(2), say=pytest.fail)
    assert fast.copies == ()
    answers = []
    for each in (fast, f):
        torch.manual_seed(0)
        with frozen(each):
            answers.append(each(images()))
    assert_near(*answers, 1e-5)


def test_a_copy_that_answers_otherwise_is_not_used(monkeypatch):
    f = shaken(network())
    assert constant(f, images(2), torch.float32) is not None
    monkeypatch.setattr(Merged, "refresh", lambda self: None)
    assert constant(f, images(2), torch.float32) is None


class Own(nn.Conv2d):
    """A convolution that does something more."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh()


class OfTorch(Own):
    """The same from a place that tracing does not enter."""


OfTorch.__module__ = "torch.nn.modules.of_torch"


class Small(nn.Module):
    """One or two convolutions and a BatchNorm, in an order that `through` decides, and ReLU."""

    def __init__(self, through: Callable[["Small", Tensor], Tensor], convolution: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.through, self.convolution, self.norm, self.relu = through, convolution, norm, nn.ReLU()
        self.second, self.dense = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.relu(self.through(self, x)).mean((2, 3)))


def in_line(f: Small, x: Tensor) -> Tensor:
    return f.norm(f.convolution(x))


def conv(entering: int = 4, **settings: object) -> nn.Conv2d:
    return nn.Conv2d(entering, 6, 3, **{"padding": 1, **settings})


def assert_rewritten_truly(f: nn.Module, *, norms: int, rectified: int | None = None) -> None:
    """Its copy is the same function, also when its weights changed, and has so many BatchNorms and ReLUs merged."""
    rng, x = Generator().manual_seed(0), images(4, (4, 8, 8), torch.float64)
    with torch.no_grad():
        for weight in f.double().eval().parameters():
            weight.normal_(std=0.3, generator=rng)
    ways = (
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (False, False, True),
        (True, True, True),
    )
    for for_tensor_cores, ours, launched in ways:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rewriting_room, "suits", lambda *_, ours=ours: ours)
            module, merged = rewritten(f, for_tensor_cores=for_tensor_cores, launched=launched)
        copy = linked(module, merged, f)
        assert count(module, nn.BatchNorm2d) <= norms if launched else count(module, nn.BatchNorm2d) == norms
        whole = [node for node in module.graph.nodes if node.target is CONVOLUTION]
        if rectified is not None and not ours:
            assert len(whole) == (rectified if for_tensor_cores or launched else 0)
        for seed in (1, 2):
            shaken(f, seed)
            copy.refresh()
            assert_same_function(module, f, x)
    assert constant(f, x[:2], torch.float64) is not None


@pytest.mark.parametrize(
    ("through", "convolution", "norm"),
    [
        (in_line, conv(), nn.BatchNorm2d(6, track_running_stats=False)),
        (lambda f, x: f.norm(f.convolution(f.convolution(x))), conv(6), nn.BatchNorm2d(6)),
        (lambda f, x: f.norm(y := f.convolution(x)) + y, conv(), nn.BatchNorm2d(6)),
        (lambda f, x: f.norm(f.second(f.norm(f.convolution(x)))), conv(), nn.BatchNorm2d(6)),
        (in_line, Own(4, 6, 3), nn.BatchNorm2d(6)),
        (in_line, OfTorch(4, 6, 3), nn.BatchNorm2d(6)),
        (in_line, conv(padding_mode="reflect"), nn.BatchNorm2d(6)),
        (lambda f, x: f.norm(f.convolution(x).relu()), conv(), nn.BatchNorm2d(6)),
    ],
    ids=[
        "no statistics",
        "convolution used twice",
        "output used twice",
        "BatchNorm used twice",
        "a convolution of one's own",
        "a convolution of another kind",
        "reflection",
        "activation between",
    ],
)
def test_a_batchnorm_that_no_convolution_can_do_the_work_of_stays(through, convolution, norm):
    f = Small(through, convolution, norm)
    if convolution.in_channels == 6:
        f.through = lambda f, x: through(f, torch.cat([x, x[:, :2]], dim=1))
    assert_rewritten_truly(f, norms=1)


@pytest.mark.parametrize(
    ("convolution", "norm", "rectified"),
    [
        (conv(bias=False), nn.BatchNorm2d(6), 1),
        (conv(stride=2), nn.BatchNorm2d(6, eps=0.1), 1),
        (conv(dilation=2), nn.BatchNorm2d(6), 0),
        (conv(groups=2), nn.BatchNorm2d(6), 0),
        (conv(padding="same"), nn.BatchNorm2d(6, affine=False), 0),
        (conv(), nn.Identity(), 0),
    ],
    ids=["no bias", "stride", "dilation", "groups", "no scale", "no norm"],
)
def test_convolutions_of_all_kinds_do_the_work_of_what_is_behind_them(convolution, norm, rectified):
    assert_rewritten_truly(Small(in_line, convolution, norm), norms=0, rectified=rectified)


@pytest.mark.parametrize(
    ("through", "rectified"),
    [
        (lambda f, x: f.second(y := f.convolution(x)) + y, 1),
        (lambda f, x: (y := f.convolution(x)) + f.second(y), 1),
        (lambda f, x: f.convolution(x) + x.mean((1, 2, 3), keepdim=True), None),
        (lambda f, x: f.convolution(x) + f.convolution.bias.sum(), None),
        (lambda f, x: f.second(y := f.relu(f.convolution(x))) + y, 2),
        (lambda f, x: f.convolution(x) + 0.5, 0),
        (lambda f, x: (y := f.convolution(x)) + y, 0),
        (lambda f, x: (y := f.convolution(x)) * f.relu(y), 0),
        (lambda f, x: (y := f.convolution(x) + 0.1 * f.second(x[:, [0, 1, 2, 3, 0, 1]])) + f.relu(y), 0),
        (lambda f, x: f.relu((y := f.convolution(x)) + f.second(x[:, [0, 1, 2, 3, 0, 1]])) + y, 1),
        (lambda f, x: f.convolution(x).tanh(), 0),
    ],
    ids=[
        "sum",
        "sum the other way round",
        "a number for each image",
        "a number that is learned",
        "unit",
        "a number",
        "twice itself",
        "used twice",
        "sum used twice",
        "summand used twice",
        "another activation",
    ],
)
def test_sums_and_activations_behind_a_convolution_are_merged_where_that_is_the_same(through, rectified):
    f = Small(through, conv(), nn.Identity())
    assert_rewritten_truly(f, norms=0, rectified=rectified)


# A network on its engine


def fast_network(f: nn.Module, **settings: object) -> Accelerated:
    return Accelerated(f, Engine(**{"folded": True, **settings}), images(2), say=pytest.fail)


def test_an_accelerated_network_has_the_modes_parameters_and_attributes_of_the_network():
    f = shaken(network()).eval()
    f.motto = "less is more"
    keys = list(f.state_dict())
    fast = fast_network(f)
    assert not fast.training
    assert fast.f is f and list(fast.f.state_dict()) == keys
    assert list(map(id, fast.parameters())) == list(map(id, f.parameters()))
    assert list(map(id, fast.buffers())) == list(map(id, f.buffers()))
    assert fast.motto == "less is more"
    with pytest.raises(AttributeError, match="creed"):
        fast.creed  # noqa: B018
    assert fast.train() is fast and all(part.training for part in f.modules())
    assert fast.eval() is fast and not any(part.training for part in f.modules())


def test_an_adversary_sees_an_accelerated_network_frozen():
    f = shaken(network()).train()
    f[4].eval()
    fast, x, modes = fast_network(f), images(), [part.training for part in f.modules()]
    with frozen(fast):
        assert fast.stands_still
        assert not any(part.training for part in f.modules())
        assert not any(weight.requires_grad for weight in f.parameters())
        assert_near(fast(x), f(x), 1e-4)
        point = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(fast(point).square().sum(), point)
        (expected,) = torch.autograd.grad(f(point).square().sum(), point)
        assert_near(slope, expected, 1e-4)
    assert not fast.stands_still
    assert fast.training and [part.training for part in f.modules()] == modes
    assert all(weight.requires_grad for weight in f.parameters())


def test_an_error_of_an_adversary_thaws_an_accelerated_network():
    fast = fast_network(network().train())
    with pytest.raises(ZeroDivisionError), frozen(fast):
        raise ZeroDivisionError
    assert all(part.training for part in fast.modules())
    assert all(weight.requires_grad for weight in fast.parameters())


def test_entering_evaluation_mode_takes_weights_whose_change_nobody_notes():
    f, x = shaken(network()), images()
    fast = fast_network(f).eval()
    with torch.no_grad():
        old = f(x)
        assert_near(fast(x), old, 1e-4)
        for weight in f.parameters():
            weight.data.mul_(1.2)
        assert (f(x) - old).abs().max() > 1e-2
        assert_near(fast(x), old, 1e-4)
        assert_near(fast.eval()(x), f(x), 1e-4)


def test_where_gradients_of_the_weights_are_wanted_the_network_itself_answers():
    f, twin, x = shaken(network()).eval(), shaken(network()).eval(), images()
    fast = fast_network(f).eval()
    for each in (fast, twin):
        each(x).square().sum().backward()
    for ours, its in zip(f.parameters(), twin.parameters(), strict=True):
        assert_near(ours.grad, its.grad, 1e-4)
    for weight in f.parameters():
        weight.requires_grad_(False)
    f[-1].bias.requires_grad_(True)
    fast(x).sum().backward()
    assert f[-1].bias.grad is not None


def test_in_training_mode_the_statistics_of_the_network_move():
    f, twin, x = shaken(network()).train(), shaken(network()).train(), images()
    fast, before = fast_network(f), f[1][0].running_mean.clone()
    assert_near(fast(x), twin(x), 1e-4)
    with torch.no_grad():
        assert_near(fast(x), twin(x), 1e-4)
    assert not torch.equal(f[1][0].running_mean, before)
    assert f[1][0].num_batches_tracked == 2
    assert_same_weights(f, twin)


def test_judged_queries_and_passes_of_training_are_compiled_and_bare_answers_are_not(monkeypatch):
    queries: list[int] = []

    def compile_counting(function: Callable[..., object], **settings: object) -> Callable[..., object]:
        def counting(*arguments: object) -> object:
            queries.extend(len(argument) for argument in arguments[:1] if isinstance(argument, Tensor))
            return function(*arguments)

        return counting

    monkeypatch.setattr(torch, "compile", compile_counting)
    with torch._dynamo.config.patch(recompile_limit=8):
        fast = fast_network(shaken(network()).train(), compiled=True)
    assert fast(images(3)).shape == (3, 10)
    assert queries == [8], "filled up"
    with frozen(fast):
        assert fast(images(5)).shape == (5, 10)
        assert queries == [8]
        assert fast.judging(cross_entropy)(images(6), torch.arange(6)).shape == (6,)
    assert queries == [8, 6]


@pytest.mark.parametrize(("side", "layout"), [(8, torch.contiguous_format), (16, torch.channels_last)], ids=str)
def test_weights_lie_in_memory_as_images_of_that_size_like_it(side, layout):
    shape = (3, side, side)
    f, twin = (shaken(fresh(lambda: DigitsCNN(hidden=16)(shape, 10))).train() for _ in range(2))
    fast, x = Accelerated(f, Engine(folded=True), images(2, shape), say=pytest.fail), images(4, shape)
    weights = [weight for part in (f, fast.copies[0].module) for weight in part.parameters() if weight.dim() == 4]
    assert len(weights) == 6
    assert all(weight.is_contiguous(memory_format=layout) for weight in weights)
    for answer in (fast, twin):
        answer(x).square().sum().backward()
    for ours, its in zip(f.parameters(), twin.parameters(), strict=True):
        assert_near(ours.grad, its.grad, 1e-3)
    assert_same_weights(f, twin)
    with frozen(fast):
        assert_near(fast(x), f(x), 1e-4)


class OnPaper(Query):
    """A query whose recordings are done again by hand: what it left is all that a replay knows."""

    @cached_property
    def plain(self) -> tuple[Callable[[], None], Tensor]:
        logits = self.answer(self.images).detach().clone()
        return lambda: logits.copy_(self.answer(self.images)), logits

    @cached_property
    def sloped(self) -> tuple[Callable[[], None], Tensor, Tensor, Callable[[], None], Tensor]:
        kept = self.images.clone().requires_grad_()
        logits = torch.zeros_like(self.answer(kept)).detach()
        slopes, of_images = torch.zeros_like(logits), torch.zeros_like(self.images)

        def forward() -> None:
            kept.data.copy_(self.images)
            logits.copy_(self.answer(kept))

        def backward() -> None:
            with torch.enable_grad():
                of_images.copy_(torch.autograd.grad(self.answer(kept), kept, slopes)[0])

        return forward, logits, slopes, backward, of_images


@pytest.fixture
def on_paper(monkeypatch):
    monkeypatch.setattr(network_room, "Query", OnPaper)


def test_queries_are_filled_up_to_a_few_sizes(on_paper):
    f, seen = shaken(network()), []
    fast = Accelerated(f, Engine(folded=True, recorded=True), images(2), say=pytest.fail, filled_up_to=(8, 4))
    fast.copies[0].module.register_forward_hook(lambda module, args, output: seen.append(len(args[0])))
    with frozen(fast):
        for size, asked in ((1, 4), (3, 4), (4, 4), (5, 8), (8, 8), (9, 9)):
            point = images(size).requires_grad_()
            seen.clear()
            answer, expected = fast(point), f(point)
            assert set(seen) == {asked}
            assert_near(answer, expected, 1e-4)
            slopes = [torch.autograd.grad(each.square().sum(), point)[0] for each in (answer, expected)]
            assert_near(*slopes, 1e-4)
            with torch.no_grad():
                assert_near(fast(point), expected, 1e-4)
    fits = fast.queries[4].fits
    assert fits(images(3))
    assert not fits(images(3).double())
    assert not fits(images(3, (1, 9, 8)))


def test_a_question_that_others_have_followed_is_asked_again_before_its_slopes_are_told(on_paper):
    f = shaken(network())
    fast = Accelerated(f, Engine(folded=True, recorded=True), images(2), say=pytest.fail, filled_up_to=(8,))
    first, second = (images(8)[rows].clone().requires_grad_() for rows in (slice(0, 3), slice(3, 8)))
    with frozen(fast):
        answers = [fast(first), fast(second)]
        with torch.no_grad():
            fast(images(6))
        for point, answer in ((first, answers[0]), (second, answers[1])):
            assert_near(answer, f(point), 1e-4)
            meant = torch.autograd.grad(f(point).square().sum(), point)[0]
            assert_near(torch.autograd.grad(answer.square().sum(), point)[0], meant, 1e-4)


def test_a_network_that_cannot_be_recorded_is_asked_as_it_is_and_that_is_said(monkeypatch):
    def failing(work: Callable[[], Tensor]) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(queries_room, "recorded_on_a_gpu", failing)
    f, said = shaken(network()), []
    fast = Accelerated(f, Engine(folded=True, recorded=True), images(2), say=said.append, filled_up_to=(8,))
    with frozen(fast):
        for _ in range(2):
            assert_near(fast(images(3)), f(images(3)), 1e-4)
    (sentence,) = said
    assert "operation not permitted when stream is capturing" in sentence
    assert "more" not in sentence


def moved_along_slopes(f: nn.Module) -> None:
    for weight in f.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.SGD(f.parameters(), lr=0.1).step()


def moved_as_a_vector(f: nn.Module) -> None:
    vector_to_parameters(parameters_to_vector(f.parameters()) * 1.2, f.parameters())


def put_in_their_place(f: nn.Module) -> None:
    f[0].weight = nn.Parameter(f[0].weight * 1.2, requires_grad=False)


CHANGES = {
    "in place": lambda f: f[0].weight.mul_(1.2),
    "statistics": lambda f: f[1][0].running_mean.add_(0.5),
    "loaded": lambda f: f.load_state_dict(values(shaken(network(), 5))),
    "by an optimizer": moved_along_slopes,
    "as a vector": moved_as_a_vector,
    "put in their place": put_in_their_place,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("filled_up_to", [(), (8,)], ids=["asked", "recorded"])
def test_weights_that_are_changed_while_it_stands_still_reach_the_copy(on_paper, change, filled_up_to):
    f, x = shaken(network()), images(8)
    engine = Engine(folded=True, recorded=bool(filled_up_to))
    fast = Accelerated(f, engine, images(2), say=pytest.fail, filled_up_to=filled_up_to)
    refreshed = Mock(wraps=fast.take_over)
    with frozen(fast), torch.no_grad(), patch.object(fast, "take_over", refreshed):
        before = fast(x)
        change(f)
        for _ in range(3):
            assert_near(fast(x), f(x), 1e-4)
        assert (fast(x) - before).abs().max() > 1e-2 * before.abs().max()
        refreshed.assert_called_once_with()
        assert_near(-fast.judging(cross_entropy)(x, torch.arange(8)), -cross_entropy(f(x), torch.arange(8)), 1e-4)


def test_weights_of_a_functional_call_reach_the_copy_and_leave_it_again():
    f, x = shaken(network()), images(8)
    fast = Accelerated(f, Engine(folded=True), images(2), say=pytest.fail)
    with frozen(fast), torch.no_grad():
        for factor in (1.2, 0.8):
            weights = {name: factor * weight for name, weight in f.named_parameters()}
            found = torch.func.functional_call(fast, {f"f.{name}": each for name, each in weights.items()}, (x,))
            assert_near(found, torch.func.functional_call(f, weights, (x,)), 1e-4)
            assert_near(fast(x), f(x), 1e-4)


def test_a_search_for_worse_weights_within_an_objective_is_one_on_the_engine_too():
    @dataclass(frozen=True)
    class WorseWeights:
        """Images are perturbed where all weights are larger, as an objective of somebody's own may want it."""

        def __call__(self, f: nn.Module, batch: Batch, rng: Generator) -> Terms:
            with frozen(f):
                f(batch.x)
                with torch.no_grad():
                    torch._foreach_mul_([*f.parameters()], 1.5)  # pyright: ignore[reportPrivateImportUsage]
                worse = f(batch.x)
                with torch.no_grad():
                    torch._foreach_div_([*f.parameters()], 1.5)  # pyright: ignore[reportPrivateImportUsage]
            weight = cross_entropy(worse, batch.y).sigmoid()
            return Terms((weight * cross_entropy(f(batch.x), batch.y)).mean(), torch.zeros(()))

    plain, folded = (
        trainer(objective=WorseWeights(), engine=engine, steps=5) for engine in (Engine(), Engine(folded=True))
    )
    for run in (plain, folded):
        run.run()
    assert_same_weights(plain.f, folded.f)


def test_a_search_on_more_images_than_were_foreseen_is_made_step_by_step(on_paper, monkeypatch):
    monkeypatch.setattr(searches_room, "recorded_on_a_gpu", pytest.fail)
    fast = Accelerated(
        shaken(network()), Engine(folded=True, recorded=True), images(2), say=pytest.fail, filled_up_to=(4,)
    )
    attack, x = AutoAttack(eps=0.1, parts=("apgd-ce",)), images(9)
    with frozen(fast):
        y = fast(x).argmax(1)
        found = attack(fast, x, y, torch.Generator().manual_seed(0))
        assert attack.within.contains(x, found).all()
        assert fast.queries


def test_a_search_that_cannot_be_recorded_goes_on_by_itself_and_that_is_said(monkeypatch):
    def failing(*arguments, **named):
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr(searches_room, "recorded_on_a_gpu", failing)
    monkeypatch.setattr(autoattack, "MOST_TARGETS", 1)
    f, x, said = shaken(network()), images(6), []
    fast = Accelerated(f, Engine(folded=True), images(2), say=said.append)
    fast.recordings = searches_room.Recordings((8,))
    attack = AutoAttack(eps=0.1, parts=("apgd-ce", "fab-t"))
    with frozen(f):
        y = f(x).argmax(1)
    found, plain = (attack(each, x, y, torch.Generator().manual_seed(0)) for each in (fast, f))
    assert_near(found, plain, 1e-3)
    (sentence,) = said
    assert sentence.endswith("RuntimeError: out of memory")


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN")
def test_bfloat16_is_used_within_a_network_and_never_seen_outside():
    f, x = shaken(network()), images()
    fast = fast_network(f, precision="bfloat16")
    # Some CPUs lack the instructions that the libraries for bfloat16 rely on.
    with torch.backends.mkldnn.flags(enabled=False):
        with frozen(fast):
            point = x.clone().requires_grad_()
            answer, expected = fast(point), f(point)
            assert answer.dtype == torch.float32
            assert_near(answer, expected, 0.05)
            assert (answer - expected).abs().max() > 1e-4 * expected.abs().max()
            slope, slope_of_f = (torch.autograd.grad(each.square().sum(), point)[0] for each in (answer, expected))
            assert slope.dtype == torch.float32
            assert nn.functional.cosine_similarity(slope.flatten(), slope_of_f.flatten(), dim=0) > 0.98
        for each in (fast.eval(), fast.train()):
            answer = each(x)
            assert answer.dtype == torch.float32
            answer.sum().backward()
    assert all(weight.dtype == weight.grad.dtype == torch.float32 for weight in f.parameters())


# Compiling


def test_queries_are_not_filled_up_where_images_are_not_answered_each_by_itself():
    f = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten(), nn.Linear(64, 10))
    engine = Engine(folded=True, recorded=True)
    fast = Accelerated(f, engine, images(2), say=pytest.fail, filled_up_to=(8,))
    assert fast.copies
    assert not fast.queries
    with frozen(fast):
        assert_near(fast(images(5)), f(images(5)), 1e-5)


def test_weights_that_a_hook_makes_are_not_taken_over_before_it_did():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        conv = nn.utils.weight_norm(nn.Conv2d(1, 8, 3))
    f = nn.Sequential(conv, nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    fast = fast_network(f)
    with torch.no_grad():
        conv.weight_g.mul_(2)
    with frozen(fast):
        assert_near(fast(images()), f(images()), 1e-4)


@pytest.fixture
def compiled(monkeypatch):
    """The functions that were given to a compiler, which hands them back as they are."""
    functions: list[Callable[..., object]] = []
    monkeypatch.setattr(torch, "compile", lambda function, **settings: functions.append(function) or function)
    with torch._dynamo.config.patch(recompile_limit=8):
        yield functions


@pytest.fixture
def broken_compiler(monkeypatch):
    """A compiler whose functions fail, and how often they were tried."""
    tried: list[tuple[object, ...]] = []

    def failing(*arguments: object) -> object:
        tried.append(arguments)
        raise RuntimeError("backend 'fast' is missing\nand much more")

    monkeypatch.setattr(torch, "compile", lambda function, **settings: failing)
    with torch._dynamo.config.patch(recompile_limit=8):
        yield tried


def test_an_engine_without_a_compiler_runs_functions_as_they_are(compiled):
    def function(x: Tensor) -> Tensor:
        return 2 * x

    assert Hastener(Engine(folded=True), say=pytest.fail)(function) is function
    objective = SRT(solver=SEARCH)
    assert fused(objective, Hastener(Engine(folded=True), say=pytest.fail)) is objective
    assert compiled == []


def test_what_cannot_be_compiled_is_run_as_it_is_and_that_is_said_once(broken_compiler):
    said: list[str] = []
    hasten = Hastener(Engine(compiled=True), say=said.append)
    double, triple = hasten(lambda x: 2 * x), hasten(lambda x: 3 * x)
    for _ in range(3):
        assert double(torch.ones(2)).tolist() == [2, 2]
        assert triple(torch.ones(2)).tolist() == [3, 3]
    assert len(broken_compiler) == len(said) == 1
    assert said[0] == (
        "what cannot be compiled is run as it is, only slower: RuntimeError: backend 'fast' is missing"
    )


def test_errors_of_a_function_itself_come_out_and_are_no_fault_of_the_compiler(compiled):
    def function(x: Tensor) -> Tensor:
        if len(x) == 0:
            raise ValueError("no images")
        return x

    run = Hastener(Engine(compiled=True), say=pytest.fail)(function)
    with pytest.raises(ValueError, match="no images"):
        run(torch.ones(0))
    assert run(torch.ones(1)).item() == 1
    assert compiled == [function]


def test_a_compiler_keeps_as_many_versions_of_a_function_as_it_meets_shapes(compiled):
    Hastener(Engine(compiled=True), say=pytest.fail)(abs)
    assert torch._dynamo.config.recompile_limit == SHAPES
    torch._dynamo.config.recompile_limit = 10 * SHAPES
    Hastener(Engine(compiled=True), say=pytest.fail)(abs)
    assert torch._dynamo.config.recompile_limit == 10 * SHAPES


def test_the_loss_of_each_run_of_a_process_is_compiled_however_many_there_were(monkeypatch):
    compiler, taken = torch.compile, list[object]()
    backend = {"backend": lambda graph, _: taken.append(graph) or graph.forward}
    monkeypatch.setattr(torch, "compile", lambda function, **settings: compiler(function, **settings, **backend))
    monkeypatch.setattr(network_room, "SHAPES", 2)
    runs, y = [network(seed) for seed in range(4)], torch.arange(4)
    with torch._dynamo.config.patch(recompile_limit=2):
        for number, f in enumerate(runs):
            fast = Accelerated(f, Engine(folded=True, compiled=True), images(2), say=pytest.fail)
            with frozen(fast):
                before = len(taken)
                loss = fast.judging(cross_entropy)(images(4), y)
                assert_near(loss, cross_entropy(f(images(4)), y), 1e-5)
            assert len(taken) == before + 1, number


SMALL_GRID = Grid(around=Spatial(rotation=20.0, translation=1.0), points=(3, 2, 2), at_once=100)
SOLVERS: dict[str, Solver] = {
    "PGD": PGD(around=Linf(eps=0.1), steps=2, step_size=0.05, start="uniform", keep="best"),
    "N-FGSM": NFGSM(around=Linf(eps=0.1)),
    "worst of k": WorstOfK(around=Spatial(rotation=20.0, translation=1.0), k=4, enough=2.3, at_once=50),
    "sequential": Sequential(stages=(ASCENT, SMALL_GRID)),
    "strongest": Strongest(solvers=(FGSM(around=Linf(eps=0.1)), SEARCH, ASCENT)),
    "grid": SMALL_GRID,
}
OBJECTIVES: dict[str, Objective] = {
    **{name: SRT(solver=solver) for name, solver in SOLVERS.items()},
    "mixture": Mixture(objectives=(AT(solver=ASCENT), TRADES(solver=SEARCH))),
}


def a_batch() -> Batch:
    x, u = images(8), images(20)[8:]
    return Batch(x, torch.arange(8), u)


def judged_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were judged in each query of a loss that is compiled in one piece."""
    queries: list[int] = []
    plain = fusion_room.InOnePiece.__call__

    def counting(self: object, images: Tensor, rows: Tensor | None = None) -> Tensor:
        queries.append(len(images))
        return plain(self, images, rows)

    monkeypatch.setattr(fusion_room.InOnePiece, "__call__", counting)
    return queries


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_fused_objective_has_the_same_terms_gradients_and_draws(name, compiled, monkeypatch):
    engine, objective = Engine(folded=True, compiled=True), OBJECTIVES[name]
    queries = judged_in_one_piece(monkeypatch)
    found = []
    for hasten in (False, True):
        f, rng = shaken(network()).train(), Generator().manual_seed(5)
        hastened = fused(objective, Hastener(engine, say=pytest.fail)) if hasten else objective
        terms = hastened(Accelerated(f, engine, images(2), say=pytest.fail), a_batch(), rng)
        assert bool(queries) == hasten
        terms.total.backward()
        found.append((*terms, draws(rng), *(weight.grad for weight in f.parameters())))
    for plain, quick in zip(*found, strict=True):
        torch.testing.assert_close(quick, plain, rtol=1e-6, atol=1e-7)
    assert found[0][0].item() > 0
    assert {"transform", "project", "stride", "step"} <= {function.__name__ for function in compiled}


@pytest.mark.parametrize("accelerate", [False, True], ids=["a plain network", "a network that moves"])
def test_a_loss_is_left_in_pieces_where_the_network_is_not_known_to_stand_still(accelerate, compiled, monkeypatch):
    queries, engine, f = judged_in_one_piece(monkeypatch), Engine(folded=True, compiled=True), shaken(network())
    network_seen = Accelerated(f, engine, images(2), say=pytest.fail) if accelerate else f
    solver = fused(AT(solver=ASCENT), Hastener(engine, say=pytest.fail)).solver
    against = fusion_room.Against(cross_entropy, network_seen, torch.arange(4))
    with torch.random.fork_rng(devices=()):
        assert solver(against, images(), Generator()).shape == images().shape
    assert queries == []


@dataclass(frozen=True)
class Focused:
    """A loss of a stranger as a frozen value, of which two are equal."""

    power: float = 2.0

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        loss = cross_entropy(logits, target)
        return (1 - (-loss).exp()) ** self.power * loss


@dataclass
class Unhashable:
    """The same as a value that may change, which has no hash."""

    power: float = 2.0

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        return Focused(power=self.power)(logits, target)


@pytest.mark.parametrize(
    ("make", "pieces"),
    [
        (lambda: cross_entropy, 1),
        (lambda: Focused(power=3.0), 1),
        (lambda: lambda logits, target: 2 * cross_entropy(logits, target), 0),
        (lambda: partial(cross_entropy, smoothing=0.1), 0),
        (Unhashable, 0),
    ],
    ids=["function", "frozen", "lambda", "partial", "without a hash"],
)
def test_a_loss_is_compiled_once_and_left_in_pieces_where_it_is_made_anew_in_each_step(make, pieces, compiled):
    engine, f = Engine(folded=True, compiled=True), shaken(network())
    fast = Accelerated(f, engine, images(2), say=pytest.fail)
    solver = fused(AT(solver=ASCENT), Hastener(engine, say=pytest.fail)).solver
    found = []
    for _ in range(2):
        with frozen(fast):
            found.append(solver(fusion_room.Against(make(), fast, torch.arange(4)), images(), Generator()))
    assert torch.equal(*found)
    assert sum(function.__name__ == "judge" for function in compiled) == pieces


def test_a_run_with_a_compiler_ends_where_the_plain_run_ends(compiled):
    settings = {"objective": SRT(solver=Sequential(stages=(SEARCH, ASCENT))), **EXTRAS}
    plain, quick = trainer(**settings), trainer(f=network(), engine=Engine(folded=True, compiled=True), **settings)
    for _ in range(3):
        assert_same_terms(plain.advance(), quick.advance())
    assert_same_weights(plain.f, quick.f)
    assert len(compiled) > 5
    assert quick.remarks == []


@dataclass(frozen=True)
class Corner:
    """A solver of a stranger, who knows more of the neighborhood than any has to have."""

    around: Linf = field(default_factory=Linf)

    def __call__(self, loss: object, x: Tensor, rng: Generator, /) -> Tensor:
        assert isinstance(self.around, Linf)
        return (x + self.around.eps).clamp(0, 1)


def test_a_solver_of_a_stranger_keeps_its_neighborhood(compiled):
    plain, fast = (
        trainer(objective=SRT(solver=Corner())),
        trainer(objective=SRT(solver=Corner()), f=network(), engine=Engine(compiled=True)),
    )
    assert_same_terms(plain.advance(), fast.advance())


def test_a_run_with_a_broken_compiler_ends_where_the_plain_run_ends(broken_compiler):
    plain, slow = trainer(), trainer(f=network(), engine=Engine(folded=True, compiled=True))
    for _ in range(3):
        assert_same_terms(plain.advance(), slow.advance())
    assert_same_weights(plain.f, slow.f)
    assert len(slow.remarks) == 1
    assert "what cannot be compiled is run as it is" in slow.remarks[0]


# Recording


class Tape(TorchDispatchMode):
    """What is launched while this lasts, on which tensors; as on a GPU that records, nothing of it takes effect."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[tuple[Callable[..., object], tuple[object, ...], dict[str, object], list[Tensor]]] = []
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing\nand much more")
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        places = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in given}
        for place, memory in places.items():
            if place not in self.before:
                self.before[place] = (memory, memory.clone())
        result = function(*args, **kwargs or {})
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        new = [leaf if leaf.untyped_storage().data_ptr() not in places else None for leaf in made]
        self.launches.append((function, args, kwargs or {}, new))
        return result

    def undo(self) -> None:
        for memory, old in self.before.values():
            memory.copy_(old)


@dataclass
class Device:
    """A GPU as far as recordings go, played on the CPU."""

    recordings: int = 0
    replays: int = 0
    pools: list[object] = field(default_factory=list)
    streams: list[object] = field(default_factory=list)
    registered: list[object] = field(default_factory=list)
    mode: str | int = 0
    """what is done about operations that wait for the device"""


@pytest.fixture
def gpu(monkeypatch):
    device = Device()

    class Stream:
        def wait_stream(self, stream: object) -> None: ...

    class Graph:
        launches = ()

        def register_generator_state(self, generator: object) -> None:
            device.registered.append(generator)

        @torch.no_grad()
        def replay(self) -> None:
            device.replays += 1
            for function, args, kwargs, results in self.launches:
                made = [leaf for leaf in tree_leaves(function(*args, **kwargs)) if isinstance(leaf, Tensor)]
                for old, new in zip(results, made, strict=True):
                    if old is not None:
                        old.copy_(new)

    @contextmanager
    def recording(graph: Graph, *, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
        device.recordings += 1
        device.pools.append(pool)
        device.streams.append(stream)
        tape = Tape()
        try:
            with tape:
                yield
        finally:
            tape.undo()
        graph.launches = tape.launches

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: device.mode)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: setattr(device, "mode", mode))
    # Whether a search has clamped its images is looked at on a CPU alone, and these tensors lie on one.
    monkeypatch.setattr(definition, "require_unclamped", lambda x, found: None)
    return device


@pytest.mark.parametrize("sloped", [False, True])
def test_a_question_is_asked_again_whatever_was_asked_before_its_slopes_are_told(sloped, gpu):
    f = shaken(fresh(lambda: ResNet(units=1)((1, 8, 8), 10)))  # The slopes of its first layer take the images.
    fast = Accelerated(f, Engine(folded=True, recorded=True), images(2), say=pytest.fail, filled_up_to=(8,))
    with frozen(fast):
        point = images(8).requires_grad_()
        answer, meant = fast(point), torch.autograd.grad(f(point).square().sum(), point)[0]
        fast((1 - images(8)).requires_grad_(sloped))
        assert_near(torch.autograd.grad(answer.square().sum(), point)[0], meant, 1e-4)
    assert gpu.recordings == 3 - sloped


SEARCHES = (
    APGD(around=Linf(eps=0.1), steps=12),
    APGD(around=L2(eps=0.5), steps=12, loss="targeted dlr"),
    FAB(around=Linf(eps=0.1), steps=6),
    Square(around=Linf(eps=0.1), steps=40),
    Square(around=L2(eps=0.5), steps=40),
)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_recorded_steps_of_a_search_end_where_plain_ones_do(search, gpu, on_paper):
    f, x = shaken(network()), images(8)
    engine = Engine(folded=True, recorded=True)
    fast, plain = (Accelerated(f, engine, images(2), say=pytest.fail, filled_up_to=sizes) for sizes in ((4, 8), ()))
    with frozen(fast), torch.no_grad():
        y, target = (fast(x).argsort(1, descending=True)[:, rank] for rank in (0, 1))
        for count in (8, 3):
            rows = slice(0, count)
            begun = search.begin(fast, x[rows], y[rows], target[rows], torch.Generator().manual_seed(0))
            for half in search.plan(x).split(7):
                seed = torch.randint(2**62, (), generator=torch.Generator().manual_seed(1))
                # Random numbers are those of a full recording, so the plain search has to be as large.
                full = tuple(torch.cat([part, part[-1:].expand(-count % 4, *part.shape[1:])]) for part in begun)
                ends = plain.repeated(search, full, half, torch.Generator().manual_seed(int(seed)))
                begun = fast.repeated(search, begun, half, torch.Generator().manual_seed(1))
                for one, other in zip(begun, ends, strict=True):
                    assert torch.allclose(one.double(), other[:count].double(), rtol=1e-3, atol=1e-4)
    assert len(fast.recordings.steps) == gpu.recordings == len(gpu.registered) == 2
    assert len(set(gpu.pools)) == 1
    assert gpu.replays == 2 * len(search.plan(x))
    assert not plain.recordings.steps
    assert not any(query.asked for query in fast.queries.values()), "a recording within a recording"


def test_steps_of_a_search_fill_up_to_a_quarter_more_images_than_are_left():
    recordings = searches_room.Recordings((32, 63, 125))
    filled = {count: next(size for size in recordings.sizes if count <= size) for count in range(1, 126)}
    assert min(recordings.sizes) == 32
    assert {32, 63, 125} <= {*recordings.sizes}, "a whole batch is filled up by nothing"
    assert all(size <= max(32, 1.25 * count + 1) for count, size in filled.items())
    assert not searches_room.Recordings(()).sizes


@dataclass
class Draws:
    """A source of random numbers, and how often a recording that broke off made it a new one."""

    own: Generator = field(default_factory=Generator)
    renewals: int = 0

    @property
    def common(self) -> Generator:
        return self.own

    def seed(self, seed: int) -> None:
        self.own.manual_seed(seed)

    def renew(self) -> None:
        self.renewals += 1


@dataclass
class Walk:
    """A step that goes a random way, in the direction that its kind and a tensor say."""

    place: Tensor = field(default_factory=lambda: torch.zeros(3))
    stride: Tensor = field(default_factory=lambda: torch.ones(()))
    random: "Draws" = field(default_factory=lambda: Draws())
    kind: str = "forth"
    taken: int = 0
    extra: Callable[["Walk"], float | None] = lambda walk: None

    def __call__(self) -> Tensor:
        self.taken += 1
        way = self.stride * torch.rand(3, generator=self.random.own)
        factor = self.extra(self)
        way = way if factor is None else factor * way
        self.place.add_(way) if self.kind == "forth" else self.place.mul_(1 - 0.1 * way)
        return self.place.sum()

    def recorded(self, say: Callable[[str], object] = pytest.fail, **settings: object) -> Recorded[Tensor]:
        return Recorded(self, state=lambda: [self.place], random=self.random, say=say, **settings)


def walked(walk: Walk, recorded: Callable[..., Tensor], kinds: list[str]) -> list[float]:
    """Where each of these steps ended, told by what it returned."""
    ends = []
    for number, kind in enumerate(kinds):
        walk.kind = kind
        walk.stride.fill_(1 + number)
        ends.append(recorded(kind, number).item())
    return ends


def walked_as_it_is(kinds: list[str]) -> list[float]:
    walk = Walk()
    return walked(walk, walk.recorded(enabled=False), kinds)


def test_a_step_is_taken_as_it_is_at_first_then_recorded_and_then_replayed(gpu):
    kinds = ["forth"] * 10
    walk = Walk()
    recorded = walk.recorded()
    assert walked(walk, recorded, kinds[:WARM_UP]) == walked_as_it_is(kinds[:WARM_UP])
    assert (walk.taken, gpu.recordings, gpu.replays) == (WARM_UP, 0, 0)
    walk = Walk()
    assert walked(walk, walk.recorded(), kinds) == pytest.approx(walked_as_it_is(kinds), rel=1e-6)
    # One is recorded and then taken once more, to see whether its replay ends there.
    assert (walk.taken, gpu.recordings, gpu.replays) == (WARM_UP + 2, 1, 10 - WARM_UP)
    assert gpu.registered == [walk.random.own]
    assert walk.random.renewals == 0
    assert gpu.mode == 0


def test_steps_of_two_kinds_are_recorded_apart(gpu):
    kinds = ["forth", "back", "forth"] * 6
    walk = Walk()
    assert walked(walk, walk.recorded(), kinds) == pytest.approx(walked_as_it_is(kinds), rel=1e-6)
    assert (walk.taken, gpu.recordings, gpu.replays) == (2 * (WARM_UP + 2), 2, len(kinds) - 2 * WARM_UP)
    assert len(set(gpu.pools)) == len(set(gpu.streams)) == 1


def test_recordings_of_two_runs_share_neither_memory_nor_a_stream_nor_do_those_after_all_were_dropped(gpu):
    walks = [Walk(), Walk()]
    runs = [walk.recorded() for walk in walks]
    for walk, recorded in zip(walks, runs, strict=True):
        walked(walk, recorded, ["forth"] * (WARM_UP + 1))
    runs[0].forget()
    walked(walks[0], runs[0], ["forth"] * (WARM_UP + 1))
    assert gpu.recordings == len(set(gpu.pools)) == len(set(gpu.streams)) == 3
    assert None not in gpu.streams


def test_a_step_that_is_not_to_be_recorded_never_is(gpu):
    kinds = ["forth"] * 10
    walk = Walk()
    assert walked(walk, walk.recorded(enabled=False), kinds) == walked_as_it_is(kinds)
    assert (walk.taken, gpu.recordings, gpu.replays) == (10, 0, 0)


def test_a_step_with_a_memory_of_its_own_is_not_replayed(gpu):
    said: list[str] = []
    walk = Walk(extra=lambda walk: float(walk.taken))
    ends = walked(walk, walk.recorded(said.append), ["forth"] * 8)
    # The step that was recorded, and took no effect, is remembered too.
    factors = [number + 1 if number < WARM_UP else number + 2 for number in range(8)]
    twin = Walk(extra=lambda walk: float(factors[walk.taken - 1]))
    assert ends == pytest.approx(walked(twin, twin.recorded(enabled=False), ["forth"] * 8), rel=1e-6)
    assert (walk.taken, gpu.recordings, gpu.replays) == (9, 1, 1)
    assert len(said) == 1
    assert "not recorded and replayed" in said[0] and "a replay ends elsewhere" in said[0]


def test_a_number_that_is_changed_between_steps_ends_the_replays_that_took_it_for_a_constant(gpu):
    ends = []
    for enabled in (True, False):
        f = nn.Identity()
        f.factor = 1.0
        walk = Walk(extra=lambda walk, f=f: f.factor)
        recorded = walk.recorded(enabled=enabled, numbers=lambda f=f: Numbers(f))
        ends.append(walked(walk, recorded, ["forth"] * (WARM_UP + 3)))
        f.factor = 0.5
        ends[-1] += walked(walk, recorded, ["forth"] * (WARM_UP + 3))
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)
    assert (gpu.recordings, gpu.replays) == (2, 6)


def test_numbers_of_a_network_hold_until_one_changes_comes_or_goes():
    f = nn.Sequential(nn.Dropout(0.5), nn.Flatten())
    numbers = Numbers(f)
    f.eval()
    assert numbers.hold()
    f[0].p = 0.25
    assert not numbers.hold()
    f[0].p = torch.full((3,), 0.5)
    assert not numbers.hold()
    f[0].p = 0.5
    assert numbers.hold()
    f[1].temperature = 2.0
    assert not numbers.hold()
    del f[1].temperature
    assert numbers.hold()


def test_a_kind_that_is_refused_ends_the_replays_of_all(gpu):
    said: list[str] = []
    walk = Walk(extra=lambda walk: (-1.0) ** walk.taken if walk.kind == "back" else None)
    recorded = walk.recorded(said.append)
    walked(walk, recorded, ["forth"] * (WARM_UP + 3))
    assert gpu.replays == 3 and said == []
    walked(walk, recorded, ["back"] * (WARM_UP + 1))
    replays, taken = gpu.replays, walk.taken
    walked(walk, recorded, ["forth", "back"] * 3)
    assert (gpu.replays, walk.taken) == (replays, taken + 6)
    assert len(said) == 1


def test_a_step_that_waits_for_the_device_is_not_recorded_and_the_place_is_said(gpu):
    def waiting(walk: Walk) -> None:
        if gpu.mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", UserWarning, stacklevel=1)

    said: list[str] = []
    walk, kinds = Walk(extra=waiting), ["forth"] * 8
    gpu.mode = "default"
    assert walked(walk, walk.recorded(said.append), kinds) == walked_as_it_is(kinds)
    assert (walk.taken, gpu.recordings, gpu.replays) == (8, 0, 0)
    assert gpu.mode == "default"
    assert len(said) == 1
    line = waiting.__code__.co_firstlineno + 2
    assert f"a step waits for the device ({__file__}, line {line})" in said[0]


def test_an_error_of_a_step_that_is_watched_comes_out_and_the_device_is_watched_no_more(gpu):
    def failing(walk: Walk) -> None:
        if walk.taken == WARM_UP:
            raise ZeroDivisionError

    walk = Walk(extra=failing)
    gpu.mode = "default"
    with pytest.raises(ZeroDivisionError):
        walked(walk, walk.recorded(), ["forth"] * WARM_UP)
    assert gpu.mode == "default"


def test_a_recording_that_breaks_off_leaves_no_trace(gpu):
    said: list[str] = []
    # The course of the step depends on a value of a tensor, which is asked for when the place was moved already.
    walk, kinds = Walk(extra=lambda walk: 1.0 if walk.place.add_(0).sum().item() >= 0 else 2.0), ["forth"] * 8
    assert walked(walk, walk.recorded(said.append), kinds) == walked_as_it_is(kinds)
    assert (gpu.recordings, gpu.replays) == (1, 0)
    assert walk.random.renewals == 1
    assert len(said) == 1
    assert said[0].endswith("RuntimeError: operation not permitted when stream is capturing")


class Restless(nn.Module):
    """A network whose answers depend on how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.asked = network(), itertools.count(1)

    def forward(self, x: Tensor) -> Tensor:
        return (1 + next(self.asked) % 7) * self.layers(x)


class Annealed(nn.Module):
    """A network with a temperature that falls a little with each pass of training."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.temperature = network(), 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.temperature *= 0.99 if self.training else 1.0
        return self.layers(x) / self.temperature


class Centered(nn.Module):
    """A network that subtracts a mean, which each pass of training replaces by another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()
        self.register_buffer("center", torch.zeros(1, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.center = 0.9 * self.center + 0.1 * x.detach().mean().view(1, 1, 1, 1)
        return self.layers(x - self.center)


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": Engine(recorded=True)},
        {"engine": Engine(folded=True, recorded=True), "objective": SRT(solver=SEARCH), "microbatch": 23, **EXTRAS},
    ],
    ids=["plain", "all at once"],
)
def test_a_run_that_is_recorded_ends_where_it_ends_otherwise(settings, gpu, monkeypatch):
    settings = {"batch": 50, "data": Data(crop=1, flip=True), **settings}
    replayed = trainer(**settings)
    kinds = [replayed.batches.counts(step) for step in range(14)]
    assert sorted(set(kinds)) == [(16, 34), (17, 33)]
    terms = [[term.item() for term in replayed.advance()] for _ in kinds]
    assert (gpu.recordings, gpu.replays) == (2, 14 - 2 * WARM_UP)
    assert replayed.remarks == []
    monkeypatch.setattr(recording_room, "WARM_UP", NO_LIMIT)
    eager = trainer(f=network(), **settings)
    assert terms == [pytest.approx([term.item() for term in eager.advance()], abs=1e-6) for _ in kinds]
    assert gpu.recordings == 2
    assert_same_weights(replayed.f, eager.f, 1e-6)
    assert_same_weights(replayed.result, eager.result, 1e-6)
    assert torch.equal(replayed.outer.since_log.round(decimals=4), eager.outer.since_log.round(decimals=4))
    assert replayed.outer.first_bad_step.tolist() == [30, 30]


def test_a_run_resumed_behind_its_recording_goes_on_from_the_state_it_is_given(gpu):
    def run(engine: Engine) -> Trainer:
        return trainer(engine=engine, images=digits(unlabeled=0), steps=40)

    replayed, eager = run(Engine(recorded=True)), run(Engine())
    for each in (replayed, eager):
        for _ in range(6):
            each.advance()
        state = deepcopy(each.state())
        for _ in range(4):
            each.advance()
        each.resume(state)
        for _ in range(10):
            each.advance()
    assert gpu.recordings == 2
    assert_same_weights(replayed.f, eager.f, 1e-6)


def test_momenta_from_elsewhere_lie_in_memory_as_the_weights_do():
    x, y = images(20, (3, 16, 16)), torch.arange(20) % 10
    only_labeled = Images(labeled=x, labels=y, unlabeled=x[:0], validation=x[:0], validation_labels=y[:0])

    def run(engine: Engine) -> Trainer:
        f = fresh(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)))
        return trainer(f=f, images=only_labeled, batch=10, engine=engine)

    first, other = run(Engine()), run(Engine(folded=True))
    first.advance()
    other.resume(first.state())
    weight, before = other.f[0].weight, first.outer.sgd.state[first.f[0].weight]["momentum_buffer"]
    momentum = other.outer.sgd.state[weight]["momentum_buffer"]
    assert torch.equal(momentum, before) and momentum.any()
    assert momentum.stride() == weight.stride() != before.stride()


def test_terms_that_were_returned_stay_as_they_are(gpu):
    run = trainer(engine=Engine(recorded=True), images=digits(unlabeled=0))
    terms = [run.advance() for _ in range(10)]
    assert gpu.replays > 3
    assert len({term.standard.item() for term in terms}) == 10


def test_weights_and_sums_are_compared_apart_and_what_is_no_number_is_never_near():
    start, log = torch.zeros(1000), torch.zeros(3, dtype=torch.float64)
    moved, summed = torch.full((1000,), 0.001), torch.tensor([2.3, 2.3, 1.0], dtype=torch.float64)
    assert apart([start, log], [start, summed], [moved, summed]) == pytest.approx(1.0)
    assert apart([start, log], [moved, log], [moved, summed]) == pytest.approx(1.0)
    assert apart([start, log], [moved, summed], [moved, summed]) == 0.0
    assert not apart([start], [start / 0], [moved]) <= CLOSE


def test_other_warnings_of_a_step_that_is_watched_are_passed_on(gpu):
    def step() -> None:
        if gpu.mode == "warn":
            warnings.warn("the weather is bad", UserWarning, stacklevel=1)

    recorded = Recorded(step, state=list, random=Draws(), say=pytest.fail)
    with pytest.warns(UserWarning, match="the weather is bad"):
        for _ in range(WARM_UP):
            recorded("kind", 0)


def test_a_network_with_a_memory_of_its_own_is_trained_step_by_step(gpu):
    run = trainer(f=Restless(), images=digits(unlabeled=0), engine=Engine(recorded=True))
    for _ in range(8):
        run.advance()
    assert gpu.recordings == 1
    assert len(run.remarks) == 1 and "a replay ends elsewhere" in run.remarks[0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [(Annealed, "changes a number that a network keeps"), (Centered, "puts a tensor in the place of another")],
)
def test_a_network_whose_memory_no_replay_would_move_is_trained_step_by_step(make, reason, gpu):
    """A little at a time, so that a replay ends near where the step itself ends."""
    one, other = (
        trainer(f=fresh(make), images=digits(unlabeled=0), engine=engine)
        for engine in (Engine(recorded=True), Engine())
    )
    for _ in range(WARM_UP + 3):
        assert_same_terms(one.advance(), other.advance(), 0.0)
    assert gpu.recordings == 0
    assert len(one.remarks) == 1 and reason in one.remarks[0]


def test_a_copy_that_took_a_number_for_a_constant_is_given_up_once_that_changes(compiled):
    f, x, said = fresh(Annealed), images(), []
    fast = Accelerated(f, Engine(folded=True, compiled=True), x[:2], say=said.append)
    loss = fusion_room.Against(cross_entropy, fast, torch.arange(4))
    for _ in range(2):
        with frozen(fast), torch.no_grad():
            assert_near(fast(x), f(x), 1e-5)
            assert_near(fast.judging(cross_entropy)(x, torch.arange(4)), loss(x), 1e-5)
            assert bool(fast.copies) == (said == [])
        fast.train()(x)
    assert len(said) == 1 and "keeps a number which changes" in said[0]


def test_an_objective_that_may_have_a_memory_is_not_recorded_and_that_is_said(gpu):
    def objective(f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        return Standard()(f, batch, rng)

    run = trainer(objective=objective, engine=Engine(recorded=True))
    for _ in range(WARM_UP + 3):
        run.advance()
    assert gpu.recordings == 0
    assert len(run.remarks) == 1 and "no frozen dataclass" in run.remarks[0]
    assert trainer(objective=objective).remarks == []


def kind_of(part: object) -> str:
    return type(part).__name__


@dataclass
class Changeable:
    value: float = 1.0

    def __call__(self, loss, x, rng):
        return x


@dataclass(frozen=True)
class Holding:
    part: object


@pytest.mark.parametrize(
    "part",
    [
        SRT(),
        PGD(),
        Mixture(objectives=(AT(), AT(solver=SEARCH))),
        Holding((1, 2.0, "three", True, None)),
        *SOLVERS.values(),
    ],
    ids=kind_of,
)
def test_a_frozen_value_all_through_has_no_memory(part):
    assert stateless(part)
    assert stateless(Holding(part))


@pytest.mark.parametrize(
    "part",
    [
        Changeable(),
        [1.0],
        {"a": 1},
        torch.zeros(1),
        lambda loss, x, rng: x,
        nn.Identity(),
        SRT,
        Holding(Changeable()),
        Holding([1.0]),
        Holding((SRT(), Holding(Changeable()))),
        SRT(solver=lambda loss, x, rng: x),
        Mixture(objectives=(AT(), AT(solver=Changeable()))),
    ],
    ids=kind_of,
)
def test_anything_else_may_have_a_memory(part):
    assert not stateless(part)


# The engine of a device


def test_a_cpu_computes_with_float32_on_still_copies():
    for precision in ("auto", "float32"):
        assert engine_for(CPU, precision, pytest.fail) == Engine(precision="float32", folded=True)
    assert Engine().plain and not Engine(folded=True).plain


@pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
def test_a_precision_that_a_cpu_does_not_have_is_replaced_and_that_is_said_once(precision):
    said: list[str] = []
    assert engine_for(CPU, precision, said.append) == Engine(folded=True) == engine_for(CPU, precision)
    assert len(said) == 1
    assert precision in said[0] and "on the cpu" in said[0] and "float32 is used instead" in said[0]
    run = trainer(engine=None, precision=precision)
    assert run.outer.engine == Engine(folded=True)
    assert run.remarks == said


@pytest.mark.parametrize("device", [CPU, torch.device("cuda")], ids=str)
def test_a_precision_that_nobody_has_is_refused_with_those_there_are(device):
    with pytest.raises(ValueError, match="--precision must be one of auto, bfloat16, tf32, float32, got 'half'"):
        engine_for(device, "half")


@pytest.mark.parametrize(
    ("able", "asked", "used", "remarks"),
    [
        (True, "auto", "bfloat16", 0),
        (True, "bfloat16", "bfloat16", 0),
        (True, "tf32", "tf32", 0),
        (True, "float32", "float32", 0),
        (False, "auto", "float32", 0),
        (False, "bfloat16", "float32", 1),
        (False, "tf32", "tf32", 0),
    ],
)
def test_a_gpu_computes_with_bfloat16_where_it_can(able, asked, used, remarks, monkeypatch):
    def supported(including_emulation: bool = True) -> bool:
        return able or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old Card")
    said: list[str] = []
    engine = engine_for(torch.device("cuda"), asked, said.append)
    assert engine == Engine(precision=used, folded=True, compiled=True, recorded=True)
    assert engine == engine_for(torch.device("cuda"), asked)
    assert said == ["Old Card does not compute with bfloat16: float32 is used instead"] * remarks


def arithmetic() -> tuple[bool, bool, bool, bool, str]:
    """What is in force now."""
    cudnn = torch.backends.cudnn
    flags = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
    return (*flags, torch.get_float32_matmul_precision())


@pytest.mark.parametrize(
    ("precision", "tf32", "products"),
    [("float32", False, "highest"), ("tf32", True, "high"), ("bfloat16", True, "highest")],
)
def test_the_arithmetic_of_an_engine_ends_with_it_also_by_an_error(precision, tf32, products):
    engine, before = Engine(precision=precision), torch.get_float32_matmul_precision()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=not tf32):
        torch.set_float32_matmul_precision("medium")
        try:
            outside = arithmetic()
            with engine.arithmetic():
                assert arithmetic() == (True, False, True, tf32, products)
                with Engine().arithmetic():
                    assert arithmetic() == (True, False, True, False, "highest")
                assert arithmetic() == (True, False, True, tf32, products)
            assert arithmetic() == outside
            with pytest.raises(ZeroDivisionError), engine.arithmetic():
                raise ZeroDivisionError
            assert arithmetic() == outside
        finally:
            torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("precision", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_products_within_a_cast_have_the_precision_of_the_engine(precision, expected):
    with Engine(precision=precision).cast(CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == expected
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


# Batches in parts


@pytest.mark.parametrize("microbatch", [59, 31, 7, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"images": digits(unlabeled=0)},
        {"averaging": Average(decay=0.9), "labeler": "average"},
        {"weight_perturbation": 0.05},
        {"engine": Engine(folded=True)},
    ],
    ids=["unlabeled", "all labeled", "average labels", "AWP", "folded"],
)
def test_a_step_on_a_batch_in_parts_is_that_on_the_whole_batch(settings, microbatch):
    settings = {"objective": SRT(solver=ONE_STEP), **settings}
    whole = trainer(f=without_batchnorm(), **settings)
    cut = trainer(f=without_batchnorm(), microbatch=microbatch, **settings)
    before = values(whole.f)
    for _ in range(2):
        assert_same_terms(whole.advance(), cut.advance())
    assert_same_weights(whole.f, cut.f)
    assert_same_weights(whole.result, cut.result)
    assert all((tensor - before[name]).abs().max() > 1e-4 for name, tensor in values(whole.f).items())


def mirrored(loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
    """A search that draws no number and needs no slope."""
    return x.flip(-1)


@pytest.mark.parametrize("microbatch", [31, 7, 4])
@pytest.mark.parametrize(
    "objective",
    [
        SRT(solver=mirrored, mean="images"),
        AT(solver=mirrored),
        TRADES(solver=mirrored, weight=1.0),
        UAT(solver=mirrored, form="++"),
        Mixture(objectives=(AT(solver=mirrored), AT(solver=mirrored))),
    ],
    ids=["one mean over all images", "AT", "TRADES", "UAT++", "mixture"],
)
def test_parts_weigh_as_the_images_that_a_term_is_a_mean_of(objective, microbatch):
    """With a labeler other than the model, unlabeled images have labels too."""
    labeler = without_batchnorm().requires_grad_(False)
    labeler[-1].weight.neg_()
    settings = {"objective": objective, "batch": 61}
    whole = trainer(f=without_batchnorm(), **settings)
    cut = trainer(f=without_batchnorm(), microbatch=microbatch, **settings)
    whole.outer.teacher = cut.outer.teacher = labeler.eval()
    for _ in range(3):
        assert_same_terms(whole.advance(), cut.advance())
    assert_same_weights(whole.f, cut.f)


@pytest.mark.parametrize("microbatch", [31, 7, 4])
@pytest.mark.parametrize("changes", [{}, {"weight_perturbation": 0.05}], ids=["plain", "AWP"])
@pytest.mark.parametrize(
    "objectives",
    [
        (SRT(solver=mirrored), TRADES(solver=mirrored)),
        (SRT(solver=mirrored, mean="images"), KLR(solver=mirrored)),
        (UAT(solver=mirrored), Mixture(objectives=(AT(solver=mirrored), SRT(solver=mirrored, mean="images")))),
    ],
    ids=["TRADES", "KLR", "mixture in a mixture"],
)
def test_in_a_mixture_the_terms_of_each_objective_weigh_by_themselves(objectives, changes, microbatch):
    settings = {"objective": Mixture(objectives=objectives), "batch": 61, **changes}
    whole = trainer(f=without_batchnorm(), **settings)
    cut = trainer(f=without_batchnorm(), microbatch=microbatch, **settings)
    for _ in range(3):
        assert_same_terms(whole.advance(), cut.advance())
    assert_same_weights(whole.f, cut.f)


@dataclass(frozen=True, kw_only=True)
class Leaning(Mixture):
    """A mixture of one's own, with a weight for each objective and a term that they know nothing of."""

    shares: tuple[float, ...] = (0.8, 0.2)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        each = [objective(f, batch, rng) for objective in self.objectives]
        standard, robust = (
            sum(share * term for share, term in zip(self.shares, terms, strict=True))
            for terms in zip(*each, strict=True)
        )
        return Terms(standard, robust + 0.1 * f(torch.cat([batch.x, batch.u])).square().mean())


@pytest.mark.parametrize("microbatch", [31, 7, 4])
@pytest.mark.parametrize("changes", [{}, {"weight_perturbation": 0.05}], ids=["plain", "AWP"])
def test_a_mixture_of_ones_own_is_cut_into_parts_as_ours_is_and_adds_up_its_own_way(changes, microbatch):
    objectives = (SRT(solver=mirrored, mean="images"), TRADES(solver=mirrored))
    settings = {"objective": Leaning(objectives=objectives), "batch": 61, **changes}
    whole = trainer(f=without_batchnorm(), **settings)
    cut = trainer(f=without_batchnorm(), microbatch=microbatch, **settings)
    for _ in range(3):
        assert_same_terms(whole.advance(), cut.advance())
    assert_same_weights(whole.f, cut.f)


@dataclass
class Witness:
    """SRT that keeps the batches it saw."""

    batches: list[Batch] = field(default_factory=list)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        self.batches.append(batch)
        return SRT(solver=ONE_STEP)(f, batch, rng)


@pytest.mark.parametrize("microbatch", [100, 60, 59, 31, 7, 3])
def test_the_parts_of_a_batch_have_nearly_one_composition_and_their_own_opinions(microbatch):
    settings = {"averaging": Average(decay=0.9), "labeler": "average", "f": without_batchnorm()}
    witness = Witness()
    run = trainer(objective=witness, microbatch=microbatch, **settings)
    labeler = deepcopy(run.average.module)
    run.advance()
    seen = witness.batches
    assert len(seen) == -(-60 // min(60, microbatch))
    assert [sum(len(batch[i]) for batch in seen) for i in range(3)] == [20, 20, 40]
    for i in range(3):
        sizes = [len(batch[i]) for batch in seen]
        assert max(sizes) - min(sizes) <= 1
        assert all(len(batch.x) + len(batch.u) <= microbatch for batch in seen)
    for batch in seen:
        expected = own_opinion(labeler, torch.cat([batch.x, batch.u]))
        torch.testing.assert_close(batch.opinion, expected)
    rows = run.batches.rows(0)[0]
    assert torch.equal(torch.cat([batch.y for batch in seen]), digits().labels[rows].long())


@pytest.mark.parametrize("microbatch", [0, -5])
def test_parts_of_no_image_are_refused_in_a_sentence(microbatch):
    with pytest.raises(ValueError, match=f"microbatch must be at least 1, got {microbatch}"):
        trainer(microbatch=microbatch)


def test_a_part_without_a_labeled_image_is_refused_in_a_sentence():
    f = network().eval()
    before, places = values(f), [weight.data_ptr() for weight in f.parameters()]
    with pytest.raises(ValueError, match="--microbatch 2 cuts a batch of 60 into 30 parts") as caught:
        trainer(f=f, microbatch=2, engine=Engine(folded=True))
    assert "a batch has only 20: use at least 3" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in f.state_dict().items())
    assert [weight.data_ptr() for weight in f.parameters()] == places
    assert not any(part.training for part in f.modules())
    assert all(weight.grad is None for weight in f.parameters())
    trainer(f=f, microbatch=3).advance()


@dataclass
class Demanding:
    """An objective that needs more memory than there is for more images than it is told."""

    most: int
    error: Exception = field(default_factory=lambda: torch.OutOfMemoryError("CUDA out of memory"))

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        if len(batch.x) + len(batch.u) > self.most:
            raise self.error
        return SRT(solver=ONE_STEP)(f, batch, rng)


@pytest.mark.parametrize(
    ("most", "microbatch", "advice"),
    [
        (50, None, "60 images at a time do not fit into the memory of cpu, 30 do: add --microbatch 30"),
        (20, None, "60 images at a time do not fit into the memory of cpu, 15 do: add --microbatch 15"),
        (10, 30, "30 images at a time do not fit into the memory of cpu, 7 do: add --microbatch 7"),
        (2, None, "60 images at a time do not fit into the memory of cpu, nor do fewer: lower --batch"),
    ],
    ids=["half", "quarter", "of a part", "none"],
)
@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["GPU", "host"],
)
def test_a_batch_that_does_not_fit_into_memory_ends_the_run_with_advice(most, microbatch, advice, error):
    run = trainer(f=without_batchnorm(), objective=Demanding(most, error), microbatch=microbatch)
    before = values(run.f)
    with pytest.raises(MemoryError) as caught:
        run.advance()
    assert advice in str(caught.value) and "\n" not in str(caught.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.f.state_dict().items())
    assert all(weight.grad is None for weight in run.f.parameters())
    if "add --microbatch" in advice:
        trainer(f=without_batchnorm(), objective=Demanding(most), microbatch=int(advice.split()[-1])).advance()


def test_one_of_several_processes_without_room_tries_nothing_that_the_others_would_have_to_join(monkeypatch):
    run = trainer(f=without_batchnorm())
    run.outer.processes = Processes(rank=1, count=2)
    monkeypatch.setattr(run.outer, "fits", pytest.fail)
    assert run.outer.too_large().endswith("memory of cpu: lower --microbatch or --batch, or start more processes")


def test_other_errors_of_a_step_come_out_as_they_are():
    with pytest.raises(RuntimeError, match="no such thing"):
        trainer(objective=Demanding(50, RuntimeError("no such thing"))).advance()


# Several passes as one


@pytest.mark.parametrize(
    "architecture", [ResNet(units=1), WideResNet(depth=10, width=1), ResNet18(), DigitsCNN()], ids=repr
)
def test_several_passes_as_one_equal_one_after_the_other(architecture, compiled):
    f, twin = (fresh(lambda: architecture((3, 16, 16), 10)).double().train() for _ in range(2))
    x, seen = images(12, (3, 16, 16), torch.float64), []
    fast, batches = Accelerated(f, Engine(compiled=True), x[:2], say=pytest.fail), x.split([5, 7])
    f.register_forward_hook(lambda module, args, output: seen.append(len(args[0])))
    for _ in range(2):
        found, expected = (passes(each, *batches) for each in (fast, twin))
        for answers in (found, expected):
            (answers[0].sum() + answers[1].square().sum()).backward()
        for mine, its in zip(found, expected, strict=True):
            assert_near(mine, its, 1e-9)
    assert seen == [16, 16], "filled up"
    for mine, its in zip(f.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-9, atol=1e-9)
    for (name, mine), its in zip(f.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-9)
        assert "tracked" not in name or mine == 4
    with torch.no_grad():
        assert [len(answer) for answer in passes(fast.eval(), *batches)] == [5, 7]


@pytest.fixture
def computing_again(monkeypatch):
    """A compiler that computes again on the way back, as the usual one does, and is quicker than that."""
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **rest: compiler(function, backend="aot_eager", **rest))
    with torch._dynamo.config.patch(recompile_limit=8):
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "settings",
    [
        {
            "engine": Engine(compiled=True),
            "objective": Mixture(objectives=(UAT(solver=FAR_ASCENT, form="++"), KLR(solver=FAR_ASCENT))),
            "weight_perturbation": 0.05,
        },
        {
            "engine": Engine(folded=True, compiled=True),
            "objective": Mixture(objectives=(TRADES(solver=FAR_ASCENT), SRT(solver=FAR_ASCENT, targets="soft"))),
            "averaging": Average(decay=0.9, batchnorm="own"),
            "labeler": "average",
            "microbatch": 31,
        },
    ],
    ids=["worse weights", "an average that labels, parts"],
)
def test_compiled_steps_leave_the_gradients_statistics_and_momenta_of_plain_ones(settings, computing_again):
    """In float64, where rounding hides nothing, over a few steps, in which a copy that stayed behind would show."""
    drawn = digits()
    precise = replace(drawn, labeled=drawn.labeled.double() / 255, unlabeled=drawn.unlabeled.double() / 255)
    quick, plain = (
        trainer(**settings | changes, f=shaken(network()).double(), images=precise)
        for changes in ({}, {"engine": Engine()})
    )
    for _ in range(3):
        ends = []
        for run in (quick, plain):
            terms = run.advance()
            ends.append([*terms, *(weight.grad for weight in run.f.parameters()), *run.outer.state()])
        torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-9)
    assert quick.remarks == []


@pytest.mark.filterwarnings("ignore")
def test_a_compiler_that_computes_again_on_the_way_back_leaves_the_gradients_of_several_passes(computing_again):
    f, twin = (shaken(network()).double().train() for _ in range(2))
    x = images(12, dtype=torch.float64)
    fast = Accelerated(f, Engine(compiled=True), x[:2], say=pytest.fail)
    for each in (fast, twin):
        one, other = passes(each, *x.split([5, 7]))
        (one.square().sum() + other.square().sum()).backward()
    for mine, its in zip((*f.parameters(), *f.buffers()), (*twin.parameters(), *twin.buffers()), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-9)
    for mine, its in zip(f.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, its.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("sizes", [(9,), (2, 7), (1, 3, 5)], ids=str)
def test_norms_of_passes_are_those_of_batchnorm_also_far_from_zero(sizes, affine, dtype):
    rng = Generator().manual_seed(0)
    norm, twin = (nn.BatchNorm2d(3, affine=affine, momentum=0.3) for _ in range(2))
    twin = twin.double()
    for part in (norm, twin):
        part.running_mean.copy_(torch.tensor([40.0, 0.0, -7.0]))
    x = (torch.randn(9, 3, 4, 5, generator=rng) + torch.tensor([41.0, 3.0, -7.0]).view(3, 1, 1)).to(dtype)
    mine, its = x.clone().requires_grad_(), x.double().requires_grad_()
    # Two images behind the passes belong to none.
    with SeparateNorms(shares_of(sizes, torch.cat([x, x[:2]]).float())):
        y = norm(torch.cat([mine, 100 * mine[:2]]))
    assert not y[9:].any()
    y = y[:9]
    assert y.dtype == dtype
    truth = torch.cat([twin(part) for part in its.split(sizes)])
    slopes = torch.randn(x.shape, generator=rng)
    found = torch.autograd.grad(y, [mine, *norm.parameters()], slopes.to(dtype))
    wanted = torch.autograd.grad(truth, [its, *twin.parameters()], slopes.to(dtype).double())
    close = 1e-4 if dtype == torch.float32 else 2e-2
    for one, other in zip((y, *found), (truth, *wanted), strict=True):
        assert_near(one.double(), other, close)
    for one, other in ((norm.running_mean, twin.running_mean), (norm.running_var, twin.running_var)):
        assert_near(one.double(), other, 1e-5)


def test_a_norm_that_stands_still_in_a_pass_of_training_keeps_its_statistics():
    norm, x = nn.BatchNorm2d(3).eval(), images(4, (3, 8, 8))
    with SeparateNorms(shares_of((1, 3), x)):
        torch.testing.assert_close(norm(x), x / (1 + norm.eps) ** 0.5)
    assert norm.running_mean.eq(0).all()


def test_a_pass_of_one_image_is_a_pass_of_its_own(compiled):
    f, twin = (shaken(network()).train() for _ in range(2))
    fast, (one, others) = fast_network(f, compiled=True), images(6).split((1, 5))
    for answer, meant in zip(passes(fast, one, others), (twin(one), twin(others)), strict=True):
        assert_near(answer, meant, 1e-4)
    for mine, its in zip(f.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, its)
    pixels = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(1, 10))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        Accelerated(pixels, Engine(compiled=True), images(2, (1, 1, 1)), say=pytest.fail)(images(1, (1, 1, 1)))


class Neighborly(nn.Module):
    """A layer in which images look at each other."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


def in_disguise() -> nn.Module:
    """The same, put into a layer that is known."""
    layer = nn.ReLU()
    layer.forward = Neighborly().forward
    return layer


@pytest.mark.parametrize(
    "layer",
    [
        Neighborly(),
        nn.BatchNorm2d(1, momentum=None),
        nn.BatchNorm2d(1, track_running_stats=False),
        nn.SyncBatchNorm(1),
        nn.utils.spectral_norm(nn.Conv2d(1, 1, 1)),
        in_disguise(),
        nn.Sequential(*[nn.BatchNorm2d(1)] * 2),
    ],
    ids=[
        *("of one's own", "mean of all steps", "no memory", "across processes", "weights made for each pass"),
        *("in disguise", "in two places"),
    ],
)
def test_passes_through_a_network_that_may_tell_them_apart_stay_apart(layer, compiled):
    f, seen = nn.Sequential(layer, nn.Flatten(), nn.Linear(64, 10)).train(), []
    fast = Accelerated(f, Engine(compiled=True), images(2), say=pytest.fail)
    f[-1].register_forward_hook(lambda module, args, output: seen.append(len(args[0])))
    if isinstance(layer, nn.SyncBatchNorm):
        assert not fast.merged
        return
    passes(fast, *images(8).split([3, 5]))
    assert seen == [3, 5]
