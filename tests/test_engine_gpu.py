"""The engine on a GPU: replayed steps equal steps taken, alone or together; fast searches find what slow ones do."""

import gc
import io
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from tiny import trainer_with
from unperturbed.answers import frozen, passes
from unperturbed.attacks import AutoAttack, CarliniWagnerL2, cw_linf, grid, pgd
from unperturbed.attacks.apgd import APGD
from unperturbed.attacks.fab import FAB
from unperturbed.attacks.square import Square
from unperturbed.averaging import Average
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.engine import Accelerated, Engine, engine_for
from unperturbed.engine.capture import captured
from unperturbed.engine.convolutions import CONVOLUTION, ours
from unperturbed.engine.norms import SCALED
from unperturbed.engine.norms import ours as fused
from unperturbed.engine.pooling import POOLED
from unperturbed.engine.pooling import ours as averaging
from unperturbed.evaluation import evaluate
from unperturbed.images import Images, parts
from unperturbed.models import DigitsCNN, ResNet, ResNet18, WideResNet
from unperturbed.neighborhoods import L2, Linf, Spatial
from unperturbed.objectives import SRT, TRADES
from unperturbed.recipe import SGD
from unperturbed.recipes import usual_budget
from unperturbed.reservoir import Reservoir, image_files
from unperturbed.schedules import Cyclic, Piecewise, Ramp
from unperturbed.solvers import FGSM, PGD, WorstOfK
from unperturbed.trainer import Trainer
from unperturbed.turns import run_together

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
GPU = torch.device("cuda")
ASCENT = PGD(around=Linf(eps=0.15), steps=4, step_size=0.05)
OBJECTIVES = {
    "ascent": SRT(solver=ASCENT),
    "single step": SRT(solver=FGSM(around=Linf(eps=0.15))),
    "turns": SRT(solver=WorstOfK(around=Spatial(rotation=30, translation=1)), forward="together"),
    "TRADES": TRADES(solver=ASCENT),
}
EXTRAS = {
    "plain": {},
    "average": {"averaging": Average(decay=0.9), "labeler": "average"},
    "average of its own": {"averaging": Average(decay=0.9, batchnorm="own"), "labeler": "average"},
    "averaged statistics": {"averaging": Average(decay=0.9, batchnorm="averaged")},
    "worse weights": {"weight_perturbation": 0.01},
    "parts": {"microbatch": 40},
}


def digits() -> Images:
    return parts(load("digits"), Data(labeled=100, unlabeled=500))


def network(dropout: float = 0.3) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        *layers, last = DigitsCNN()((1, 8, 8), 10)
        return nn.Sequential(*layers, nn.Dropout(dropout), last)


def trainer(engine: Engine, f: nn.Module | None = None, **changes: object) -> Trainer:
    settings: dict[str, object] = {
        "f": f or network(),
        "images": digits(),
        "objective": OBJECTIVES["ascent"],
        "steps": 20,
        "batch": 128,
        "optimizer": SGD(rate=Cyclic(peak=0.05)),
        "ramp": Ramp(over=0.5),
        "data": Data(crop=1, flip=True),
        "device": GPU,
    }
    return trainer_with(engine=engine, **settings | changes)


def state_after(run: Trainer, steps: int) -> list[Tensor]:
    while run.step < steps:
        run.advance()
    return [tensor.detach().clone() for tensor in run.outer.state()]


def assert_equal(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    for i, (mine, its) in enumerate(zip(one, other, strict=True)):
        assert torch.equal(mine, its), i


def recorded_and_not(engine: Engine, **changes: object) -> tuple[Trainer, Trainer]:
    """The same run replayed and taken step by step, twenty steps on."""
    replayed, taken = (trainer(replace(engine, recorded=recorded), **changes) for recorded in (True, False))
    assert_equal(state_after(replayed, 20), state_after(taken, 20))
    return replayed, taken


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_replayed_run_equals_one_taken_step_by_step_to_the_last_bit(objective, precision):
    engine = Engine(precision=precision, folded=True)
    replayed, taken = recorded_and_not(engine, objective=objective)
    assert len(replayed.outer.recorded.graphs) == 2
    assert not taken.outer.recorded.graphs
    assert not replayed.remarks


def test_an_evaluation_in_the_midst_of_a_replayed_run_leaves_no_trace():
    engine = Engine(precision="bfloat16", folded=True, recorded=True)
    disturbed, alone = (trainer(engine) for _ in range(2))
    state_after(disturbed, 12)
    assert disturbed.outer.recorded.graphs
    x, y = disturbed.images.labeled[:40], disturbed.images.labels[:40]
    evaluate(disturbed.f, x, y, {"pgd": pgd(eps=0.1, steps=3)}, device=GPU.type)
    disturbed.f.train()
    assert_equal(state_after(disturbed, 20), state_after(alone, 20))


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
def test_averages_perturbed_weights_and_parts_are_replayed_too(extra):
    replayed, _ = recorded_and_not(Engine(precision="bfloat16", folded=True), **extra)
    assert len(replayed.outer.recorded.graphs) == 2
    assert not replayed.remarks


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
def test_images_out_of_files_are_replayed_like_those_in_memory(extra, tmp_path):
    images, engine = digits(), Engine(precision="bfloat16", folded=True)
    np.save(tmp_path / "images.npy", images.unlabeled[40:].numpy())
    files = image_files([str(tmp_path / "images.npy")], (1, 8, 8))
    from_files = replace(images, unlabeled=Reservoir(images.unlabeled[:40], files))
    replayed, _ = recorded_and_not(engine, images=from_files, **extra)
    assert len(replayed.outer.recorded.graphs) == 2
    assert not replayed.remarks
    in_memory = trainer(replace(engine, recorded=True), images=images, **extra)
    assert_equal(state_after(in_memory, 20), state_after(replayed, 20))


@contextmanager
def group_of_one() -> Iterator[None]:
    """While this lasts, the process exchanges everything with itself over NCCL."""
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("batchnorm", ["local", "synchronized"])
def test_exchanges_over_nccl_are_replayed_with_the_step(batchnorm):
    engine = Engine(precision="bfloat16", folded=True)
    alone = trainer(replace(engine, recorded=True), log_every=5)
    assert alone.processes.alone
    expected = state_after(alone, 20)
    with group_of_one():
        replayed, taken = recorded_and_not(engine, batchnorm=batchnorm, log_every=5)
        assert not taken.processes.alone
        assert len(replayed.outer.recorded.graphs) == 2
        assert not replayed.remarks
        assert_equal(expected, state_after(replayed, 20))


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_run_is_replayed_to_the_last_bit_and_stays_near_a_plain_one():
    replayed, _ = recorded_and_not(engine_for(GPU))
    assert engine_for(GPU) == Engine(precision="bfloat16", folded=True, compiled=True, recorded=True)
    assert len(replayed.outer.recorded.graphs) == 2
    assert not replayed.remarks
    rewritten = list(replayed.outer.fast.copies[0].module.graph.nodes)
    assert sum(node.target is CONVOLUTION for node in rewritten) == 3
    assert not any("norm" in str(node.target) for node in rewritten)
    gentle = {"optimizer": SGD(rate=Piecewise(rate=0.001, milestones=())), "f": network(dropout=0.0)}
    full = state_after(trainer(Engine(folded=True, compiled=True, recorded=True), **gentle), 10)
    plain = state_after(trainer(Engine(), **gentle | {"f": network(dropout=0.0)}), 10)
    weights = len(list(network().parameters()))
    for mine, its in zip(full[:weights], plain[:weights], strict=True):
        torch.testing.assert_close(mine, its, atol=1e-3, rtol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", [DigitsCNN(), ResNet(units=1), ResNet18()], ids=repr)
def test_compiled_passes_have_the_gradient_of_plain_ones(architecture):
    # In float32 a ReLU or two switch by rounding, which moves the gradient of a deep network by a thousandth.
    f = architecture((3, 32, 32), 10).to(GPU, torch.float64).train()
    twin, x, engine = deepcopy(f), torch.rand(48, 3, 32, 32, device=GPU, dtype=torch.float64), Engine(compiled=True)
    fast = Accelerated(f, engine, x[:2], say=pytest.fail)
    for each in (fast, twin):
        with engine.arithmetic():
            one, other = passes(each, *x.split([16, 32]))
            (one.square().sum() + other.square().sum()).backward()
    mine, its = (torch.cat([weight.grad.flatten() for weight in each.parameters()]) for each in (f, twin))
    assert float((mine - its).norm() / its.norm()) < 1e-9


class Hesitant(nn.Module):
    """A network whose course depends on what the device computed."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.dense(x.flatten(1))
        return 2 * logits if logits.mean().item() > 0 else logits


class Counting(Hesitant):
    """A network that counts its calls on the host."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.dense(x.flatten(1)) * (1 + self.calls % 5)


@pytest.mark.parametrize("kind", [Hesitant, Counting])
def test_what_cannot_be_replayed_is_taken_step_by_step_and_said_once(kind):
    torch.manual_seed(0)
    run = trainer(Engine(recorded=True), kind())
    state_after(run, 20)
    assert not run.outer.recorded.graphs
    assert len(run.remarks) == 1
    assert "taken one by one" in run.remarks[0]


def test_recordings_that_are_garbage_do_not_spoil_one_that_is_made():
    class Ring:
        """Garbage that only the collector finds."""

        def __init__(self) -> None:
            self.itself, self.graph = self, torch.cuda.CUDAGraph()

    x = torch.ones(8, device=GPU)
    ring = Ring()
    with captured(ring.graph):
        x.add_(0)
    del ring
    graph, often = torch.cuda.CUDAGraph(), gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        with captured(graph):
            heap = [[] for _ in range(100)]
            x.add_(len(heap) / 100)
    finally:
        gc.set_threshold(*often)
    assert gc.isenabled()
    graph.replay()
    assert x.tolist() == [2.0] * 8


def test_a_step_that_breaks_off_while_it_is_recorded_is_taken_as_it_is():
    class Loud(Hesitant):
        def forward(self, x: Tensor) -> Tensor:
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError("not while recording")
            return self.dense(x.flatten(1))

    def run(recorded: bool) -> Trainer:
        torch.manual_seed(0)
        return trainer(Engine(recorded=recorded), Loud())

    loud = run(recorded=True)
    assert_equal(state_after(loud, 20), state_after(run(recorded=False), 20))
    assert len(loud.remarks) == 1
    assert "not while recording" in loud.remarks[0]


def test_runs_on_streams_of_their_own_equal_runs_alone():
    engine = Engine(precision="bfloat16", folded=True, recorded=True)
    together = [trainer(engine, seed=seed) for seed in range(4)]
    run_together([run.steps_to_take() for run in together], GPU)
    for seed, run in enumerate(together):
        alone = trainer(engine, seed=seed)
        alone.run()
        assert_equal(list(run.f.state_dict().values()), list(alone.f.state_dict().values()))


@pytest.mark.parametrize("stop", [1, 7, 17])
def test_a_run_resumed_before_or_behind_its_recording_leaves_no_trace(stop):
    engine = Engine(precision="bfloat16", folded=True, recorded=True)
    whole = trainer(engine, averaging=Average(decay=0.9))
    stored = io.BytesIO()
    state_after(whole, stop)
    torch.save(whole.state(), stored)
    final = state_after(whole, 20)
    stored.seek(0)
    resumed = trainer(engine, network(dropout=0.3), averaging=Average(decay=0.9))
    resumed.resume(torch.load(stored, weights_only=True, map_location=GPU))
    assert_equal(state_after(resumed, 20), final)


def test_a_state_from_a_gpu_goes_on_on_the_cpu_and_back():
    run = trainer(Engine(recorded=True))
    state_after(run, 12)
    on_cpu = trainer(Engine(), device=torch.device("cpu"))
    on_cpu.resume(run.state())
    on_cpu.advance()
    back = trainer(Engine(recorded=True))
    back.resume(on_cpu.state())
    state_after(back, 20)
    assert back.outer.recorded.graphs


def test_a_fast_search_is_no_weaker_than_one_in_float32():
    f = network(dropout=0.0)
    trainer(Engine(), f, steps=200, optimizer=SGD(rate=Cyclic(peak=0.1))).run()
    data = load("digits")
    attacks = {
        "pgd": pgd(eps=0.15, steps=20),
        "margin": cw_linf(eps=0.15),
        "grid": grid(Spatial(rotation=30, translation=1)),
    }
    reports = {
        precision: evaluate(f, data.test_images, data.test_labels, attacks, device="cuda", precision=precision)
        for precision in ("float32", "tf32", "bfloat16")
    }
    for precision, report in reports.items():
        assert {result.precision for result in report.attacks} == {precision}
        assert torch.equal(report.clean, reports["float32"].clean)
        for name in attacks:
            # One image of 400 is a quarter of a point.
            assert report.accuracy(name) <= reports["float32"].accuracy(name) + 1 / 400


def test_every_attack_finds_on_a_gpu_about_what_it_finds_on_a_cpu():
    f = network(dropout=0.0)
    trainer(Engine(), f, steps=200, optimizer=SGD(rate=Cyclic(peak=0.1))).run()
    data, attacks = load("digits"), dict(usual_budget("digits").attacks())
    attacks["cw-l2"] = CarliniWagnerL2(eps=1.0, searches=3, steps=100)
    images, labels = data.test_images[:100], data.test_labels[:100]
    on_cpu, on_gpu = (evaluate(f, images, labels, attacks, device=device) for device in ("cpu", GPU.type))
    assert torch.equal(on_cpu.clean, on_gpu.clean)
    for name in attacks:
        # Random numbers differ, and with them a few verdicts.
        assert abs(on_cpu.accuracy(name) - on_gpu.accuracy(name)) <= 0.05, name


class Viewing(nn.Module):
    """Flattens images by a view, which channels that lie last forbid."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.dense = nn.Conv2d(1, 8, 3), nn.Linear(8 * 6 * 6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.convolution(x).relu().view(len(x), -1))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_network_that_flattens_by_a_view_is_replayed_too(precision):
    torch.manual_seed(0)
    f = Viewing()
    engine = Engine(precision=precision, folded=True)
    replayed, taken = (trainer(replace(engine, recorded=recorded), deepcopy(f)) for recorded in (True, False))
    assert_equal(state_after(replayed, 20), state_after(taken, 20))
    assert len(replayed.outer.recorded.graphs) == 2
    assert not replayed.remarks


def test_a_batch_that_does_not_fit_is_refused_with_one_that_does():
    class Hungry(Hesitant):
        def forward(self, x: Tensor) -> Tensor:
            wide = x.flatten(1).repeat(1, 2**21 // 64)
            return self.dense(wide.relu().view(len(x), -1, 64).mean(1))

    gc.collect()
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + 2**32
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.get_device_properties(GPU).total_memory)
    try:
        run = trainer(Engine(), Hungry(), batch=512)
        with pytest.raises(MemoryError, match=r"512 images at a time do not fit.* add --microbatch (256|128|64)"):
            run.advance()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "filters"), [(1, 32), (3, 16), (3, 64), (16, 16), (32, 20), (12, 32)], ids=str)
def test_kernels_of_our_own_have_the_values_and_the_slopes_of_the_convolution(channels, filters, stride):
    rng = torch.Generator(GPU).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=rng, device=GPU).bfloat16()
        return numbers.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else numbers

    x, weight, bias = drawn(9, channels, 13, 11), drawn(filters, channels, 3, 3), drawn(filters)
    images = x.float() if channels <= 3 else x
    side = torch.empty(9, filters, *((edge + 2 - 3) // stride + 1 for edge in (13, 11)))
    added, slopes = drawn(*side.shape), drawn(*side.shape)
    assert ours(images, weight, torch.bfloat16, stride)
    given = [part.clone().requires_grad_() for part in (images, weight.float(), bias, added)]
    meant = [part.double().requires_grad_() for part in (x, weight, bias, added)]
    y = CONVOLUTION(*given, 0.1, stride, 1, torch.bfloat16)
    truth = F.leaky_relu(F.conv2d(*meant[:3], stride, 1) + meant[3], 0.1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(CONVOLUTION(given[0], given[1].contiguous(), *given[2:], 0.1, stride, 1, torch.bfloat16), y)
    found = (y, *torch.autograd.grad(y, given, slopes))
    wanted = (truth, *torch.autograd.grad(truth, meant, slopes.double()))
    still = [images.clone().requires_grad_(), weight, bias, None]
    found += torch.autograd.grad(CONVOLUTION(*still, 0.0, stride, 1, torch.bfloat16), still[0], slopes)
    rectified = F.conv2d(*meant[:3], stride, 1).relu()
    wanted += torch.autograd.grad(rectified, meant[0], slopes.double())
    for mine, its in zip(found, wanted, strict=True):
        assert mine.shape == its.shape
        assert (mine.double() - its).norm() <= 0.01 * its.norm()


@pytest.mark.parametrize(("channels", "filters"), [(64, 128), (160, 320), (256, 512)], ids=str)
def test_a_shortcut_that_leaves_pixels_out_has_the_values_and_the_slopes_of_the_convolution(channels, filters):
    rng = torch.Generator(GPU).manual_seed(0)
    x, weight = (
        torch.randn(shape, generator=rng, device=GPU).bfloat16().contiguous(memory_format=torch.channels_last)
        for shape in ((9, channels, 13, 11), (filters, channels, 1, 1))
    )
    bias = torch.randn(filters, generator=rng, device=GPU).bfloat16()
    assert ours(x, weight, torch.bfloat16, 2)
    y = CONVOLUTION(x.requires_grad_(), weight, bias, None, 1.0, 2, 0, torch.bfloat16)
    exact = x.detach().double().requires_grad_()
    truth = F.conv2d(exact, weight.double(), bias.double(), 2)
    slopes = torch.randn(truth.shape, generator=rng, device=GPU)
    mine, its = torch.autograd.grad(y, x, slopes.bfloat16()), torch.autograd.grad(truth, exact, slopes.double())
    for found, wanted in zip((y, *mine), (truth, *its), strict=True):
        assert (found.double() - wanted).norm() <= 0.01 * wanted.norm()


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_recorded_queries_answer_as_those_that_are_asked(precision):
    f = network(dropout=0.0).to(GPU).eval()
    x = digits().labeled[:60].to(GPU).float() / 16
    x = x.view(60, 1, 8, 8)
    engine = Engine(precision=precision, folded=True, recorded=True)
    said: list[str] = []
    fast = Accelerated(f, engine, x[:2], say=said.append, filled_up_to=(16, 64))
    assert len(fast.queries) == 2
    with frozen(fast), engine.arithmetic():
        points = [x[rows].clone().requires_grad_() for rows in (slice(0, 60), slice(0, 9), slice(20, 36))]
        # All are asked before the first slopes are.
        answers = [fast(point) for point in points]
        for point, answer in zip(points, answers, strict=True):
            # Libraries choose their kernels by the number of images.
            size = 16 if len(point) <= 16 else 64
            plain = fast.still(torch.cat([point, x.new_zeros(size - len(point), 1, 8, 8)]))[: len(point)]
            found, wanted = (torch.autograd.grad(each.square().sum(), point)[0] for each in (answer, plain))
            with torch.no_grad():
                pairs = ((answer, plain), (found, wanted), (fast(point), plain))
                assert all(torch.equal(mine, its) for mine, its in pairs)
    assert not said


BALLS = (Linf(eps=0.1), L2(eps=0.5))
SEARCHES = tuple(
    search
    for ball in BALLS
    for search in (
        APGD(around=ball, steps=30),
        APGD(around=ball, steps=30, loss="targeted dlr"),
        FAB(around=ball, steps=20),
        Square(around=ball, steps=60),
    )
)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_recorded_steps_of_a_search_end_where_plain_ones_do(search):
    f = network(dropout=0.0).to(GPU).eval()
    x = (digits().labeled[:64].to(GPU).float() / 16).view(64, 1, 8, 8)
    engine, said = Engine(precision="float32", folded=True, recorded=True), list[str]()
    fast, plain = (Accelerated(f, engine, x[:2], say=said.append, filled_up_to=sizes) for sizes in ((64,), ()))
    with frozen(fast), torch.no_grad(), engine.arithmetic():
        y, target = (plain(x).argsort(1, descending=True)[:, rank] for rank in (0, 1))
        state = ends = search.begin(plain, x, y, target, torch.Generator(GPU).manual_seed(0))
        for part in search.plan(x).split(10):
            rng, twin = (torch.Generator(GPU).manual_seed(1) for _ in range(2))
            own = torch.Generator(GPU).manual_seed(int(torch.randint(2**62, (), generator=twin, device=GPU)))
            state, ends = fast.repeated(search, state, part, rng), plain.repeated(search, ends, part, own)
        for one, other in zip(state, ends, strict=True):
            assert torch.equal(one, other)
    assert len(fast.recordings.steps) == 1
    assert not said


def test_autoattack_on_recordings_leaves_about_what_it_leaves_by_itself():
    f = network(dropout=0.0)
    trainer(Engine(), f, steps=200, optimizer=SGD(rate=Cyclic(peak=0.1))).run()
    data, attack = load("digits"), {"it": AutoAttack(eps=0.1)}
    x, y = data.test_images[:200], data.test_labels[:200]
    fast, plain = (evaluate(f, x, y, attack, device=GPU.type, precision=each) for each in ("auto", "float32"))
    assert 0 < plain.accuracy("it") < plain.accuracy()
    assert abs(fast.accuracy("it") - plain.accuracy("it")) <= 0.02


@pytest.mark.parametrize("leak", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_still_norm_and_a_relu_are_one_kernel(dtype, layout, leak):
    rng = torch.Generator(GPU).manual_seed(0)
    x = torch.randn(5, 24, 9, 7, generator=rng, device=GPU).to(dtype, memory_format=layout).requires_grad_()
    assert fused(x)
    factor, shift = (torch.randn(24, generator=rng, device=GPU) for _ in range(2))
    whole = SCALED(x, factor, shift, leak)
    plain = F.leaky_relu(x.float() * factor.view(-1, 1, 1) + shift.view(-1, 1, 1), leak)
    slopes = torch.randn(whole.shape, generator=rng, device=GPU).to(dtype, memory_format=layout)
    found, wanted = (torch.autograd.grad(y, x, slopes.to(y.dtype))[0] for y in (whole, plain))
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(whole, plain.to(dtype), **close)
    torch.testing.assert_close(found, wanted.to(dtype), **close)


@pytest.mark.parametrize("side", [8, 9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_shortcut_that_averages_is_one_kernel(dtype, side):
    rng = torch.Generator(GPU).manual_seed(0)
    x = torch.randn(5, 24, side, 6, generator=rng, device=GPU).to(dtype, memory_format=torch.channels_last)
    x.requires_grad_()
    assert averaging(x, 2, 8, 4) == (side == 8)
    whole, plain = POOLED(x, 2, True, 8, 4), F.pad(F.avg_pool2d(x.float(), 2, ceil_mode=True), (0, 0, 0, 0, 8, 4))
    slopes = torch.randn(whole.shape, generator=rng, device=GPU).to(dtype)
    found, wanted = (torch.autograd.grad(y, x, slopes.to(y.dtype))[0] for y in (whole, plain))
    torch.testing.assert_close(whole, plain.to(dtype))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("architecture", [ResNet(units=1), ResNet18(), WideResNet(depth=10, width=1)], ids=repr)
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_networks_under_attack_answer_in_fewer_launches_what_they_answer_by_themselves(architecture, precision):
    torch.manual_seed(0)
    f = architecture((3, 32, 32), 10).to(GPU).eval().requires_grad_(False)
    x = torch.rand(16, 3, 32, 32, device=GPU)
    engine = Engine(precision=precision, folded=True, recorded=True)
    fast = Accelerated(f, engine, x[:2], say=pytest.fail, filled_up_to=(16,))
    assert fast.copies
    assert not [part for part in fast.copies[0].module.modules() if isinstance(part, nn.BatchNorm2d)]
    points = [x.clone().requires_grad_() for _ in range(2)]
    with frozen(fast), engine.arithmetic():
        answer = fast(points[0])
        (slope,) = torch.autograd.grad(answer.square().sum(), points[0])
    with Engine().arithmetic():
        truth = f(points[1])
        (meant,) = torch.autograd.grad(truth.square().sum(), points[1])
    close = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 0.1}[precision]
    assert (answer - truth).norm() <= close * truth.norm()
    # A ReLU whose number lies near 0 may switch by rounding: a slope is less close than an answer.
    near = {"float32": 2e-3, "tf32": 0.15, "bfloat16": 0.4}[precision]
    assert (slope - meant).norm() <= near * meant.norm()
