"""Adapters of low rank beside frozen weights: what they learn is averaged, kept, saved and resumed."""

from dataclasses import dataclass
from functools import partial
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

import unperturbed as up
from tiny import TINY, trainer_with
from unperturbed.averaging import AveragedModel
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.engine import Accelerated, Engine
from unperturbed.images import parts
from unperturbed.inputs import as_float
from unperturbed.recipe import Recipe
from unperturbed.runs import RunDirectory
from unperturbed.trainer import Trainer
from unperturbed.training import train

IMAGES = parts(load("digits"), Data(labeled=200, unlabeled=100, validation=100))
RANK = 4


class LowRank(nn.Module):
    """A product of two thin matrices, of which one begins at 0."""

    def __init__(self, leaving: int, entering: int) -> None:
        super().__init__()
        self.thin, self.tall = nn.Parameter(torch.randn(RANK, entering) / 8), nn.Parameter(torch.zeros(leaving, RANK))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.tall @ self.thin


class Beside(nn.Module):
    """A dense layer whose weights are frozen, and its adapter, which are added up in each pass."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__()
        dense = nn.Linear(entering, leaving)
        self.weight, self.bias = (parameter.requires_grad_(False) for parameter in (dense.weight, dense.bias))
        self.adapter = LowRank(leaving, entering)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.adapter(self.weight), self.bias)


class AddedUp(Beside):
    """The same, which in evaluation mode has its adapter within its weights, as in loralib."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__(entering, leaving)
        self.added_up = False

    @torch.no_grad()
    def train(self, mode: bool = True) -> "AddedUp":
        super().train(mode)
        if mode == self.added_up:
            self.weight.add_(self.adapter(torch.zeros(())), alpha=-1 if mode else 1)
            self.added_up = not mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) if self.added_up else super().forward(x)


class Noted(Beside):
    """The same, which in evaluation mode keeps the sum in a buffer beside its weights."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__(entering, leaving)
        self.register_buffer("whole", None)

    @torch.no_grad()
    def train(self, mode: bool = True) -> "Noted":
        super().train(mode)
        self.whole = None if mode else self.adapter(self.weight)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.whole is None else F.linear(x, self.whole, self.bias)


def parametrized(entering: int, leaving: int) -> nn.Module:
    """The same as a parametrization of PyTorch."""
    dense = nn.Linear(entering, leaving).requires_grad_(False)
    return parametrize.register_parametrization(dense, "weight", LowRank(leaving, entering))


KINDS = {"beside": Beside, "parametrized": parametrized, "added up": AddedUp, "noted": Noted}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_other = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "beside"])


@dataclass(frozen=True)
class Adapted:
    """A network with such layers."""

    kind: str

    def __call__(self, shape: tuple[int, int, int], classes: int, /) -> nn.Module:
        layer = KINDS[self.kind]
        dense = (layer(64, 32), nn.BatchNorm1d(32), nn.ReLU(), layer(32, classes))
        return nn.Sequential(nn.Flatten(), *dense)


def network(kind: str) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return Adapted(kind)((1, 8, 8), 10)


RUNS = {
    "alone": {},
    "averaged": {"averaging": up.Average(decay=0.9)},
    "labeling": {"averaging": up.Average(decay=0.9), "labeler": "average"},
    "gathering": {"averaging": up.Average(decay=0.9, batchnorm="own"), "labeler": "average"},
    "estimated": {"averaging": up.Average(decay=0.9, batchnorm="estimated")},
    "robust weights": {"averaging": up.Average(decay=0.9), "weight_perturbation": 0.01},
}
every_run = pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)


def trainer(kind: str, **changes: object) -> Trainer:
    settings: dict[str, object] = {
        "f": network(kind),
        "images": IMAGES,
        "objective": up.SRT(solver=up.FGSM()),
        "steps": 24,
        "batch": 60,
        "optimizer": up.SGD(rate=up.Cyclic(peak=0.1)),
        "validation": up.Validation(every=8),
        "device": torch.device("cpu"),
        "engine": Engine(),
    }
    return trainer_with(**settings | changes)


def logits(f: nn.Module) -> Tensor:
    with up.frozen(f), torch.no_grad():
        return f(as_float(IMAGES.validation))


@every_other
@every_run
@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_ends_alike_however_adapters_are_written(kind, settings, keep):
    settings = settings | {"validation": up.Validation(every=8, keep=keep)}
    twin, run = trainer("beside", **settings), trainer(kind, **settings)
    for each in (twin, run):
        each.run()
    assert run.selection.measured == twin.selection.measured, "held-out images saw what the adapters had learned"
    for ours, its in ((run.f, twin.f), (run.result, twin.result)):
        assert torch.allclose(logits(ours), logits(its), rtol=1e-3, atol=1e-3)
    assert (logits(run.f) - logits(network(kind))).abs().max() > 0.5, "much was learned"


@every_kind
def test_an_average_follows_what_the_adapters_learn(kind):
    f, average = network(kind), AveragedModel(network(kind), 0.5)
    with torch.no_grad():
        for parameter in f.parameters():
            parameter.add_(0.1 * parameter.requires_grad)
    average.module.eval()  # As where it labels.
    average.update(f, torch.tensor(1.0))
    assert torch.allclose(logits(average.module), logits(f), atol=1e-5)


@every_kind
@every_run
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(kind, settings):
    whole, begun = trainer(kind, **settings), trainer(kind, **settings)
    whole.run()
    for _ in islice(begun.steps_to_take(), 11):
        pass
    resumed = trainer(kind, **settings | {"f": network(kind).eval()})
    resumed.resume(begun.state())
    resumed.run()
    assert torch.equal(logits(resumed.f), logits(whole.f))
    assert torch.equal(logits(resumed.result), logits(whole.result))


@every_kind
@pytest.mark.parametrize("settings", [RUNS["alone"], RUNS["averaged"]], ids=["alone", "averaged"])
def test_a_finished_run_is_loaded_with_what_its_adapters_learned(kind, settings, tmp_path):
    recipe = Recipe(name="adapted", data=TINY.data, model=Adapted(kind), steps=12, batch=60, **settings)
    f = train(recipe, tmp_path, device="cpu")
    for fresh in (network(kind), network(kind).eval()):
        RunDirectory(tmp_path).read_weights(fresh)
        assert torch.equal(logits(fresh), logits(f))


def test_the_engine_copies_a_network_whose_adapters_are_added_up_for_evaluation():
    said = list[str]()
    f = network("added up")
    fast = Accelerated(f, Engine(folded=True), as_float(IMAGES.labeled[:2]), say=said.append)
    for value in (0.1, 0.2):
        with torch.no_grad():
            for parameter in f.train().parameters():
                parameter.add_(value * parameter.requires_grad)
        assert torch.allclose(logits(fast), logits(f), atol=1e-4)
    assert fast.copies
    assert said == []


def held_on_to(f: nn.Sequential, how: str) -> nn.Sequential:
    """An adapter that is a part of a dense layer, and what adds its answer to that of the layer."""
    dense = f[1]
    dense.adapter = adapter = nn.Linear(64, 16)
    bare, parts_of_f = dense.forward, {"adapter": adapter}
    if how == "forward":
        dense.forward = lambda x: bare(x) + adapter(x)
    if how == "weights":
        dense.forward = lambda x: F.linear(x, dense.weight, dense.bias)
    if how == "closure":
        dense.register_forward_hook(lambda module, given, answer: answer + adapter(given[0]))
    if how == "default":
        dense.register_forward_hook(lambda module, given, answer, beside=adapter: answer + beside(given[0]))
    if how == "global":
        exec("def hook(module, given, answer): return answer + adapter(given[0])", parts_of_f)
        dense.register_forward_hook(parts_of_f["hook"])
    if how == "module":
        dense.register_forward_hook(lambda module, given, answer: answer + module.adapter(given[0]))
    if how == "partial":
        dense.register_forward_hook(partial(lambda beside, module, given, answer: answer + beside(given[0]), adapter))
    return f


def with_adapter(how: str) -> nn.Sequential:
    return held_on_to(nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)), how)


@pytest.mark.parametrize("how", ["forward", "weights", "closure", "default", "global"])
def test_an_average_that_would_ask_the_layers_of_the_model_is_refused(how):
    settings = {"f": with_adapter(how), "images": IMAGES, "device": torch.device("cpu"), "steps": 2}
    with pytest.raises(
        ValueError, match=r"^an average of this model would ask layers of the model itself, .*\(averaging\.decay 0\)$"
    ):
        trainer_with(**settings, averaging=up.Average(decay=0.9))
    trainer_with(**settings).run()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # The compiler looks at it.
@pytest.mark.parametrize("how", ["module", "partial", "compiled"])
def test_an_average_of_hooks_that_are_given_their_module_answers_by_its_own_layers(how):
    f = with_adapter(how)
    f = torch.compile(f, backend="eager") if how == "compiled" else f
    made = trainer_with(f=f, images=IMAGES, device=torch.device("cpu"), steps=3, averaging=up.Average(decay=0.9))
    made.run()
    average, images = made.average.module.eval(), as_float(IMAGES.labeled[:5])
    before = average(images)
    with torch.no_grad():
        for parameter in made.f.parameters():
            parameter.add_(1.0)
    assert torch.equal(average(images), before)
