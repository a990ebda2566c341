"""Models that others bring: `fit`, `evaluate` and the engine take them as they are and leave them as they were."""

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import unperturbed as up
from unperturbed.answers import frozen
from unperturbed.averaging import estimate_batchnorm
from unperturbed.awp import perturbed_weights
from unperturbed.engine import Accelerated, Engine, layout_kept
from unperturbed.engine.constant import constant
from unperturbed.engine.layouts import PLAIN, lay_out, layout_for

SOLVER = up.PGD(steps=2, step_size=4 / 255)
ATTACKS = {"pgd": up.attacks.pgd(steps=2), "random": up.attacks.random(draws=2), "ddn": up.attacks.DDN(steps=2)}


def pictures(count: int = 20, side: int = 32) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def labels(count: int = 20) -> Tensor:
    return torch.arange(count) % 4


class Viewing(nn.Module):
    """It flattens by `view`, which images with their channels last do not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.MaxPool2d(8)
        self.dense = nn.Linear(8 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.convolution(x))))
        return self.dense(x.view(x.size(0), -1))


class ViewingImages(nn.Module):
    """It has no convolution at all."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * 32 * 32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x.view(len(x), -1))


class ViewingWeights(nn.Module):
    """It flattens weights of four dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.dense = nn.Parameter(torch.rand(2, 3, 4, 4)), nn.Linear(96, 4)
        self.convolution = nn.Conv2d(3, 4, 8, stride=8)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x).mean((2, 3)) + self.dense(self.weight.view(-1))


class MakingConstants(nn.Module):
    """It makes a tensor in every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = Viewing()

    def forward(self, x: Tensor) -> Tensor:
        return self.rest((x - torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)) / 0.2)


class Convolving(nn.Module):
    """A network whose features are seen in some way."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.dense = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.seen(self.convolution(x)).mean((2, 3)))

    def seen(self, features: Tensor) -> Tensor:
        return features


class WritingThroughViews(Convolving):
    """A view that is a copy would leave the features as they are."""

    def seen(self, features: Tensor) -> Tensor:
        features = features.clone()
        features.view(len(features), -1).mul_(3.0)
        return features


class Striding(Convolving):
    """Every other pixel, if channels lie first."""

    def seen(self, features: Tensor) -> Tensor:
        count, channels, height, width = features.shape
        steps = (channels * height * width, height * width, 2 * width, 2)
        return features.as_strided((count, channels, height // 2, width // 2), steps)


class ViewingInTraining(Convolving):
    """In training alone it centers its features."""

    def seen(self, features: Tensor) -> Tensor:
        return features - features.view(len(features), -1).mean(1).view(-1, 1, 1, 1) if self.training else features


def flat() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        nn.Linear(32, 4),
    )


def scripted() -> nn.Module:
    return torch.jit.script(flat())


def scripted_views() -> nn.Module:
    return torch.jit.script(Viewing())


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))


def normalized_weights() -> nn.Module:
    f = flat()
    f[0] = nn.utils.parametrizations.weight_norm(f[0])
    f[5] = nn.utils.parametrizations.spectral_norm(f[5])
    return f


class Sparse(nn.Module):
    """It mixes its answers by a sparse matrix."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        self.rest = flat()
        self.register_buffer("mixing", (torch.eye(4) + share * torch.eye(4).roll(1, 0)).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.mixing, self.rest(x).T).T


class SparseWeights(Sparse):
    """It would learn that matrix."""

    def __init__(self) -> None:
        super().__init__()
        del self.mixing
        self.mixing = nn.Parameter(torch.eye(4).to_sparse())


def parallel() -> nn.Module:
    return nn.DataParallel(Viewing())


MODELS = [
    *(Viewing, ViewingImages, ViewingWeights, MakingConstants, WritingThroughViews, Striding, ViewingInTraining),
    *(flat, scripted, scripted_views, lazy, normalized_weights, parallel, Sparse),
]


def fresh(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return make()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("averaging", [None, up.Average(decay=0.9, batchnorm="estimated")], ids=["last", "average"])
def test_fit_and_evaluate_take_a_model_as_it_is_and_leave_it_as_it_was(make, averaging):
    x, y, f = pictures(), labels(), fresh(make)
    if averaging and isinstance(f, torch.jit.ScriptModule):
        averaging = replace(averaging, batchnorm="copied")
    attributes = {*vars(f)}
    with torch.no_grad():
        f.eval()(x[:2])
    strides = [weight.stride() for weight in f.parameters()]
    settings = {"objective": up.SRT(solver=SOLVER), "steps": 2, "batch": 16, "averaging": averaging}
    assert up.fit(f, labeled=(x, y), unlabeled=x, **settings) is f
    report = up.evaluate(f, x, y, ATTACKS, batch=8)
    assert [attack.rejected for attack in report.attacks] == [0] * len(ATTACKS)
    assert {*vars(f)} == attributes
    assert [weight.stride() for weight in f.parameters()] == strides
    assert all(weight.requires_grad for weight in f.parameters())


@pytest.mark.parametrize("make", [Viewing, MakingConstants, flat, WritingThroughViews, Striding, ViewingInTraining])
def test_a_model_that_views_has_the_same_answers_and_gradients_on_an_engine(make):
    x, y, f, twin = pictures(), labels(), fresh(make), fresh(make)
    fast = Accelerated(f, Engine(folded=True), x[:2], say=pytest.fail)
    found = []
    for each in (fast, twin):
        with frozen(each):
            point = x.clone().requires_grad_()
            answer = each(point)
            (slope,) = torch.autograd.grad(F.cross_entropy(answer, y), point)
        found.append((answer.detach(), slope))
    for ours, its in zip(*found, strict=True):
        assert (ours - its).abs().max() <= 1e-5 * its.abs().max()


@pytest.mark.parametrize(
    ("make", "last", "reshaping"),
    [
        *[(flat, True, False), (Viewing, True, True), (scripted_views, False, False)],
        *[(WritingThroughViews, False, False), (Striding, False, False), (ViewingInTraining, True, True)],
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_channels_lie_last_as_far_as_a_model_bears_it(make, last, reshaping):
    f = fresh(make)
    with layout_kept(f):
        layout = layout_for(f, pictures(2), Engine(folded=True))
        assert (layout.format == torch.channels_last, layout.reshaping) == (last, reshaping)
        assert next(f.parameters()).is_contiguous() == (make is not flat)
    assert all(weight.is_contiguous() for weight in f.parameters())
    assert layout_for(f, pictures(2, 8)[:, :, :8, :8], Engine()) == PLAIN


def test_weights_lie_where_they_lay_after_an_evaluation_and_after_training():
    x, y, f = pictures(), labels(), fresh(flat)
    before = [(weight.data_ptr(), weight.stride(), weight.detach().clone()) for weight in f.parameters()]
    up.evaluate(f, x, y, {"fgsm": up.attacks.fgsm(eps=0.1)}, device="cpu")
    assert [(weight.data_ptr(), weight.stride()) for weight in f.parameters()] == [row[:2] for row in before]
    assert all(torch.equal(weight, row[2]) for weight, row in zip(f.parameters(), before, strict=True))
    up.fit(f, labeled=(x, y), steps=3, device="cpu")
    assert [(weight.data_ptr(), weight.stride()) for weight in f.parameters()] == [row[:2] for row in before]
    assert not torch.equal(f[0].weight, before[0][2])


def test_weights_that_went_to_another_type_lie_there_as_they_lay_before():
    f = fresh(flat).to(memory_format=torch.channels_last)
    with layout_kept(f):
        f.double()
        lay_out(f, torch.contiguous_format)
    assert f[0].weight.dtype == torch.float64
    assert f[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_copy_of_a_network_follows_its_weights_after_these_were_laid_out_otherwise_for_a_while():
    x, f = pictures(), fresh(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), *flat()[3:]))
    fast = Accelerated(f, Engine(folded=True), x[:2], say=pytest.fail)
    with layout_kept(f):
        lay_out(f, torch.contiguous_format)
        assert f[0].weight.is_contiguous()
    with torch.no_grad():
        for weight in f.parameters():
            weight.add_(0.1)
        with frozen(fast):
            assert torch.allclose(fast(x), f(x), atol=1e-5)


def test_a_view_as_another_type_is_still_one():
    class Bits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(torch.int32).view(torch.float32).view(len(x), -1)[:, :4]

    layout = layout_for(Bits(), pictures(2), Engine())
    assert layout.reshaping
    assert torch.equal(layout(Bits(), pictures(2)), Bits()(pictures(2)))


def cut_off(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
    return output.clamp(max=CUT["at"])


CUT = {"at": 1e9}


@pytest.mark.parametrize("place", [None, 0, 1])
def test_hooks_of_a_stranger_are_called_on_an_engine_too(place, monkeypatch):
    """One that did nothing when the model was tried may do something later."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    x, f = pictures(), fresh(flat)
    (f if place is None else f[place]).register_forward_hook(cut_off)
    CUT["at"] = 1e9
    fast = Accelerated(f, Engine(folded=True), x[:2], say=pytest.fail)
    CUT["at"] = -0.1
    with frozen(fast), torch.no_grad():
        assert torch.allclose(fast(x), f(x), atol=1e-6)
    assert not Accelerated(f, Engine(folded=True, compiled=True), x[:2], say=pytest.fail).merged


def test_a_forward_pass_that_was_put_in_place_of_a_layers_own_is_not_merged_away():
    x, f = pictures(), fresh(flat)
    layer, limit = f[0], [1e9]
    own = layer.forward
    layer.forward = lambda image: own(image).clamp(max=limit[0])
    copy = constant(f, x[:2], torch.float32)
    assert copy is None or not copy.merged


class PartlyScripted(nn.Module):
    """A part of it is TorchScript, whose weights a graph does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = torch.jit.script(flat())

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(2 * x - 1)


class Optional(nn.Module):
    """It takes more than images, if that is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = flat()

    def forward(self, x: Tensor, mask: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
        return scale * self.rest(x if mask is None else mask * x)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize("make", [*MODELS, PartlyScripted, Optional])
def test_what_an_adversary_sees_goes_along_with_the_weights(make):
    x, f = pictures(), fresh(make).eval()
    f(x)
    fast = Accelerated(f, Engine(folded=True), x[:2], say=pytest.fail)
    rng = torch.Generator().manual_seed(1)
    for weight in f.parameters():
        weight.add_(0.3 * torch.empty_like(weight).normal_(generator=rng))
    with frozen(fast):
        assert torch.allclose(fast(x), f(x), atol=1e-4)


class Centered(nn.Module):
    """It subtracts a mean of its own, which each pass of training replaces by another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 3, 1, 1))
        self.rest = flat()

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.center = 0.5 * self.center + 0.5 * x.detach().mean((0, 2, 3), keepdim=True)
        return self.rest(x - self.center)


def test_what_an_adversary_sees_goes_along_with_a_buffer_that_is_replaced():
    x, f = pictures(), fresh(Centered)
    fast = Accelerated(f, Engine(folded=True), x[:2], say=pytest.fail)
    fast.train()
    fast(x)
    with frozen(fast), torch.no_grad():
        assert fast.copies
        assert torch.allclose(fast(x), f(x), atol=1e-5)


def test_a_buffer_that_is_replaced_while_weights_are_perturbed_is_forgotten():
    x, f = pictures(), fresh(Centered).train()
    f(x).sum().backward()
    before = f.center.clone()
    with perturbed_weights(f, 0.1):
        f(x)
        assert not torch.equal(f.center, before)
    assert torch.equal(f.center, before)


def test_a_model_with_arguments_beside_its_images_is_folded_and_trying_it_prints_nothing(capfd):
    copy = constant(fresh(Optional), pictures(2), torch.float32)
    assert copy is not None and len(copy.merged) == 1
    assert constant(fresh(ViewingImages), pictures(2).flip(0)[:, :, ::2], torch.float32) is None
    assert capfd.readouterr() == ("", "")


class Changing(nn.Module):
    """It works on its images in place."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = flat()

    def forward(self, x: Tensor) -> Tensor:
        x -= 0.5
        return self.rest(x)


class Halved(nn.Module):
    """It computes with 16 bits, and brings images to them itself where it is asked to."""

    def __init__(self, *, converts: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dense, self.converts = nn.Linear(3 * 8 * 8, 4).half(), converts

    def forward(self, x: Tensor) -> Tensor:
        return 60 * self.dense((x.half() if self.converts else x).flatten(1))


def test_a_confident_model_of_16_bits_falls_as_the_same_of_32_does():
    half, x = Halved(converts=True), pictures(side=8)
    whole, y = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)), half(x).argmax(1)
    whole[1].load_state_dict({name: 60 * weight.float() for name, weight in half.dense.state_dict().items()})
    ball, rng = up.Linf(eps=16 / 255), torch.Generator()
    attacks = {"pgd": up.attacks.pgd(eps=ball.eps), "apgd": up.attacks.AutoAttack(eps=ball.eps, parts=("apgd-ce",))}
    found, expected = (up.evaluate(f, x, y, attacks) for f in (half, whole))
    for name, attack in attacks.items():
        assert found.accuracy(name) == expected.accuracy(name) < 0.5
        moved = attack(half, x, y, rng.manual_seed(0))
        assert (half(moved).argmax(1) == y).float().mean() == expected.accuracy(name)
    with pytest.raises(ValueError, match=r"weights torch\.float16: let the model convert"):
        up.evaluate(Halved(converts=False), x, y, attacks)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch warns of itself
def test_a_model_that_was_exported_is_taken_unflattened_and_else_refused_in_a_sentence():
    f, x, y = Halved(converts=True).float().eval(), pictures(side=8), labels()
    f.converts = False
    program = torch.export.export(f, (x,), dynamic_shapes=({0: torch.export.Dim("images")},))
    for made in (program, program.module()):
        with pytest.raises(ValueError, match=r"torch\.export\.unflatten"):
            up.evaluate(made, x, y, ATTACKS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"got a OrderedDict: where it holds weights, .* load_state_dict"):
        up.evaluate(f.state_dict(), x, y, ATTACKS)  # pyright: ignore[reportArgumentType]
    found, expected = (up.evaluate(model, x, y, ATTACKS) for model in (torch.export.unflatten(program), f))
    assert found.accuracy("pgd") == expected.accuracy("pgd")


def test_a_model_that_changes_its_images_is_refused_before_it_does_harm():
    x, y = pictures(), labels()
    for use in (lambda f: up.fit(f, labeled=(x, y), steps=1), lambda f: up.evaluate(f, x, y, ATTACKS)):
        with pytest.raises(ValueError, match="must leave its images as they are"):
            use(Changing())
    assert torch.equal(x, pictures())


class Adapted(nn.Module):
    """A dense layer that stands still, beside two thin ones whose product is added to its weight for evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.added = nn.Linear(48, 4).requires_grad_(False), False
        self.down, self.up = nn.Parameter(torch.rand(2, 48)), nn.Parameter(torch.zeros(4, 2))

    def train(self, mode: bool = True) -> "Adapted":
        if mode == self.added:
            self.dense.weight.data += (-1 if mode else 1) * (self.up @ self.down).detach()
            self.added = not mode
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.dense(x) if self.added else self.dense(x) + x @ (self.up @ self.down).T


@pytest.mark.parametrize("objective", [up.SRT(solver=SOLVER), up.AT(solver=SOLVER), up.TRADES(solver=SOLVER)])
def test_layers_that_are_added_up_for_evaluation_learn(objective):
    f = nn.Sequential(fresh(Adapted), nn.ReLU(), nn.Linear(4, 4))
    up.fit(f, labeled=(pictures(side=4), labels()), objective=objective, steps=3)
    assert f[0].up.any()


def test_layers_that_are_added_up_for_evaluation_are_apart_after_it():
    f = nn.Sequential(fresh(Adapted)).train()
    up.evaluate(f, pictures(side=4), labels(), ATTACKS)
    assert f[0].training
    assert not f[0].added


class Remembering(nn.Module):
    """It stores more than tensors, and not all of its tensors."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.rest, self.motto = flat(), {"less": "more"}
        self.register_buffer("shift", torch.tensor(shift), persistent=False)

    def get_extra_state(self) -> dict[str, str]:
        return self.motto

    def set_extra_state(self, state: dict[str, str]) -> None:
        self.motto = state

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(x - self.shift)


@pytest.mark.parametrize("make", [Remembering, Sparse], ids=["not stored", "sparse"])
def test_models_of_different_buffers_are_different_though_all_else_is_the_same(make):
    x, y = pictures(), labels()
    subjects = {up.evaluate(fresh(lambda number=number: make(number)), x, y, {}).subject for number in (0.1, 0.5)}
    assert len(subjects) == 2


class Undecided(nn.Module):
    """It has no answer to bright images."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = flat()

    def forward(self, x: Tensor) -> Tensor:
        bright = x.mean((1, 2, 3)) > 0.9
        return self.rest(x).masked_fill(bright.unsqueeze(1), torch.nan)


def test_an_image_without_an_answer_is_no_image_that_withstands():
    x = pictures()
    x[7] = 1
    with pytest.raises(ValueError, match="answers some of these images with NaN"):
        up.evaluate(Undecided(), x, labels(), ATTACKS)


def nothing(f: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator) -> None:
    return None


class Auxiliary(nn.Module):
    """A model that has a second answer in training."""

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return (self.f(x), self.f(x)) if self.training else self.f(x)


@torch.inference_mode()
def unaware() -> nn.Module:
    """A model whose weights know of no gradient."""
    return fresh(flat)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda f, x, y: up.evaluate(lambda z: f(z), x, y, {}), "must be a torch.nn.Module, got a function"),
        (lambda f, x, y: up.fit(lambda z: f(z), labeled=(x, y)), "must be a torch.nn.Module, got a function"),
        (
            lambda f, x, y: up.evaluate("runs/own", x, y, {}),
            "got a str: of a run give up.load(its directory).model; for",
        ),
        (
            lambda f, x, y: up.evaluate(Path("my.pt"), x, y, {}),
            "for weights of your own make the network and give it",
        ),
        (
            lambda f, x, y: up.trust(f.state_dict(), x, y),
            "where it holds weights, make the network and give it them by",
        ),
        (lambda f, x, y: up.evaluate(SimpleNamespace(model=f), x, y, {}), "give the network that it holds, .model"),
        (lambda f, x, y: up.load(f), "a run must be named by its directory, got a Sequential: a network of your own"),
        (lambda f, x, y: up.fit(nn.Flatten, labeled=(x, y)), "got the class Flatten: make one of it, Flatten(…)"),
        (lambda f, x, y: up.evaluate(f, x.numpy(), y, {}), "images must be a tensor, got a ndarray"),
        (lambda f, x, y: up.evaluate(f, list(x), y, {}), "images must be a tensor, got a list"),
        (lambda f, x, y: up.trust(f, list(x), y), "images must be a tensor, got a list"),
        (lambda f, x, y: up.evaluate(f, x, y.tolist(), {}), "labels must be a tensor, got a list"),
        (
            lambda f, x, y: up.evaluate(f, x, torch.eye(4)[y], {}),
            "got (20, 4): give the number of each class, by .argmax",
        ),
        (
            lambda f, x, y: up.fit(f, labeled=(x, y[:, None])),
            "got (20, 1): give the number of each class, by .squeeze(1)",
        ),
        (lambda f, x, y: up.fit(f, labeled=(x.numpy(), y)), "images must be a tensor, got a ndarray"),
        (lambda f, x, y: up.fit(f.requires_grad_(False), labeled=(x, y)), "no weight that training may change"),
        (lambda f, x, y: up.fit(SparseWeights(), labeled=(x, y)), "sparse tensors are not trained, as mixing: make"),
        (lambda f, x, y: up.evaluate(f, x, y, {"none": nothing}), "what an attack returns must be a tensor"),
        (lambda f, x, y: up.evaluate(unaware(), x, y, {}), "weights made within torch.inference_mode"),
        (lambda f, x, y: up.SRT()(unaware(), up.Batch(x, y, x[:0]), torch.Generator()), "copy.deepcopy it there"),
        (lambda f, x, y: up.evaluate(f.to("meta"), x, y, {}), "this one lies on the device meta"),
        (lambda f, x, y: up.fit(f.to("meta"), labeled=(x, y)), "this one lies on the device meta"),
        (lambda f, x, y: up.fit(Auxiliary(f), labeled=(x, y), steps=2), "return logits alone in training too"),
        (
            lambda f, x, y: up.evaluate(f, x, y, {"mean": up.attacks.pgd(loss=F.cross_entropy)}),
            "one value for each of the 20 images, got the shape ()",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(use, words):
    with pytest.raises(ValueError) as refusal:
        use(fresh(flat), pictures(), labels())
    assert words in str(refusal.value)


def test_a_loop_of_ones_own_may_be_parallel_and_what_would_hang_or_drift_apart_is_refused():
    x, y, solo = pictures(), labels(), fresh(flat)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        f = nn.parallel.DistributedDataParallel(deepcopy(solo))
        for model in (f, solo):
            rng = torch.Generator().manual_seed(0)
            up.SRT(solver=SOLVER)(model, up.Batch(x, y, x[:0]), rng).total.backward()
        assert torch.equal(f.module[0].weight.grad, solo[0].weight.grad)
        for use in (lambda: up.evaluate(f, x, y, {}), lambda: up.fit(f, labeled=(x, y)), lambda: up.trust(f, x, y)):
            with pytest.raises(ValueError, match=r"give what it wraps, \.module"):
                use()
        f = nn.parallel.DistributedDataParallel(solo, static_graph=True)
        with pytest.raises(ValueError, match="leave static_graph out"):
            up.SRT(solver=SOLVER)(f, up.Batch(x, y, x[:0]), torch.Generator())
    finally:
        torch.distributed.destroy_process_group()


def test_a_search_within_inference_mode_says_what_to_do():
    f = fresh(flat).eval()
    with torch.inference_mode(), pytest.raises(ValueError, match=r"use torch\.no_grad"):
        up.evaluate(f, pictures(), labels(), {"pgd": up.attacks.pgd(steps=1)})


def test_a_model_made_within_inference_mode_is_left_as_it_was():
    f = unaware()
    with pytest.raises(ValueError, match="make or load the model outside"):
        up.fit(f, labeled=(pictures(), labels()), steps=1)
    assert all(weight.requires_grad for weight in f.parameters())
    up.fit(deepcopy(f), labeled=(pictures(), labels()), steps=1)


def test_whether_gradients_are_on_does_not_matter_to_fit():
    usual, other = fresh(flat), fresh(flat)
    up.fit(usual, labeled=(pictures(), labels()), steps=2)
    with torch.no_grad():
        up.fit(other, labeled=(pictures(), labels()), steps=2)
        assert not torch.is_grad_enabled()
    for one, same in zip(usual.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same)


def test_whether_autocast_is_on_matters_neither_to_fit_nor_to_evaluate():
    x, y = pictures(), labels()
    usual, other = fresh(flat), fresh(flat)
    up.fit(usual, labeled=(x, y), steps=3)
    with torch.autocast("cpu", torch.bfloat16):
        other.eval()(x)  # What autocast remembers of these weights is wrong once they have learned.
        up.fit(other, labeled=(x, y), steps=3)
        inside, answers = up.evaluate(other, x, y, ATTACKS), other(x)
        assert torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled()
    for one, same in zip(usual.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same)
    assert inside.subject == up.evaluate(usual, x, y, ATTACKS).subject
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(answers, other(x))


def test_images_that_require_a_gradient_are_images():
    f, x = fresh(flat), pictures()
    usual = up.evaluate(f, x, labels(), ATTACKS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = up.evaluate(f, x.requires_grad_(), labels(), ATTACKS)
    assert x.grad is None
    for result in usual.attacks:
        assert torch.equal(found[result.name].predicted, result.predicted)


def test_fit_takes_batches_of_all_images_where_there_are_few():
    f = fresh(flat)
    up.fit(f, labeled=(pictures(), labels()), objective=up.Standard(), steps=1)
    with pytest.raises(ValueError, match="batch of 21 is larger"):
        up.fit(f, labeled=(pictures(), labels()), steps=1, batch=21)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("make", [scripted, Viewing, parallel])
def test_trust_examines_a_model_as_it_is(make):
    x, f = pictures(), fresh(make).eval()
    with torch.no_grad():
        y = f(x).argmax(1)
    assert len(up.trust(f, x, y, seconds=1.0).findings) == 17


def test_the_statistics_of_synchronized_norms_are_estimated_too():
    f, x = nn.SyncBatchNorm(3), pictures()
    estimate_batchnorm(f, [x[:10], x[10:]])
    assert f.running_mean is not None
    torch.testing.assert_close(f.running_mean, x.mean((0, 2, 3)))


def test_fit_warns_where_nobody_watches():
    x, f = pictures(), fresh(flat)
    settings = {"labeled": (x, labels()), "objective": up.SRT(solver=SOLVER, weight=50.0), "steps": 60}
    with pytest.warns(UserWarning, match="of C.x., as happens when the robust term outweighs the labels"):
        up.fit(f, **settings)
    heard: list[str] = []

    class Watcher:
        def stepped(self, step: int, steps: int) -> None: ...

        def logged(self, record: dict[str, float]) -> None: ...

        def warned(self, sentence: str) -> None:
            heard.append(sentence)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        up.fit(fresh(flat), **settings, watcher=Watcher())
    assert len(heard) == 1
