"""Networks that tracing does not see through: no copy is made of them, so that attacks see what they are."""

import random
from argparse import Namespace
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unperturbed as up
from unperturbed.engine import Accelerated, Engine
from unperturbed.engine.constant import constant
from unperturbed.engine.faithful import agree, slopes_around
from unperturbed.engine.numbers import Numbers
from unperturbed.engine.rewriting import rewritten


class Straight(torch.autograd.Function):
    """Rounds, and lets gradients through as if it had not."""

    @staticmethod
    def forward(ctx, x):
        return (4 * x).round() / 4

    @staticmethod
    def backward(ctx, slopes):
        return slopes


class Linear(nn.Module):
    """A dense layer behind something else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.seen(x).flatten(1))

    def seen(self, x: Tensor) -> Tensor:
        return x


class Rounding(Linear):
    """It has a backward pass of its own."""

    def seen(self, x: Tensor) -> Tensor:
        return Straight.apply(x)


class Withholding(Linear):
    """No gradient goes through a part of it."""

    def seen(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            half = 0.5 * x
        return half + 0.5 * x


class Reversing(Linear):
    """It turns gradients around, where there are any."""

    def seen(self, x: Tensor) -> Tensor:
        x = 1.0 * x
        with suppress(RuntimeError):  # Without gradients there is nothing to hang on.
            x.register_hook(lambda slopes: -slopes)
        return x


class Asking(Linear):
    """It rounds where nobody wants gradients."""

    def seen(self, x: Tensor) -> Tensor:
        return x if torch.is_grad_enabled() else (1e4 * x).round() / 1e4


class Tossing(Linear):
    """A coin decides what it sees: one of PyTorch, of Python or of NumPy."""

    toss = staticmethod(lambda: torch.rand(()).item())

    def seen(self, x: Tensor) -> Tensor:
        return x.flip(-1) if self.toss() < 0.5 else x


class TossingByPython(Tossing):
    toss = staticmethod(random.random)


class TossingByNumPy(Tossing):
    toss = staticmethod(lambda: np.random.rand())


class TossingByItself(Tossing):
    """It keeps a source of random numbers of its own."""

    source, draw = random.Random, staticmethod(lambda source: source.random())

    def __init__(self) -> None:
        super().__init__()
        self.kept = {"source": self.source(0)}

    def toss(self) -> float:
        return self.draw(self.kept["source"])


class TossingByItselfByNumPy(TossingByItself):
    source = staticmethod(np.random.default_rng)


class TossingByItselfByOldNumPy(TossingByItself):
    source = np.random.RandomState


class TossingByItselfByTorch(TossingByItself):
    source = staticmethod(lambda seed: torch.Generator().manual_seed(seed))
    draw = staticmethod(lambda source: torch.rand((), generator=source).item())


def made(make, *, zero=False) -> nn.Module:
    """A network of that kind, always the same; zero where it tells no image from another yet."""
    torch.manual_seed(0)
    f = make().eval().requires_grad_(False)
    if zero:
        nn.init.zeros_(f.layer.weight)
    return f


def images(count: int = 60) -> Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("zero", [False, True], ids=["", "no answer yet"])
def test_a_network_with_a_backward_pass_of_its_own_has_no_copy(zero):
    assert constant(made(Rounding, zero=zero), images(2), torch.float32) is None
    assert constant(made(Linear, zero=zero), images(2), torch.float32) is not None


@pytest.mark.parametrize("make", [Withholding, Reversing])
def test_a_network_that_changes_gradients_has_no_copy(make):
    assert constant(made(make), images(2), torch.float32) is None


def test_a_network_that_withholds_gradients_has_no_copy_where_it_has_none_yet():
    """While all its answers are 0, the slopes of a copy that passes on what it holds back are the same."""
    assert constant(made(Withholding, zero=True), images(2), torch.float32) is None


class Cooling(Linear):
    """Its temperature is a buffer, which it uses as a number."""

    def __init__(self, look_up) -> None:
        super().__init__()
        self.look_up = look_up
        self.register_buffer("temperature", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.look_up(self.temperature)


NUMBERS = {
    "item": lambda buffer: buffer.item(),
    "float": float,
    "condition": lambda buffer: 1.0 if buffer < 2 else 3.0,
    "product": lambda buffer: buffer * 1.0,
}


@pytest.mark.parametrize("look_up", NUMBERS.values(), ids=NUMBERS)
def test_the_value_of_a_buffer_is_no_constant_of_a_copy(look_up):
    f, x = made(lambda: Cooling(look_up)), images(4)
    fast, before = Accelerated(f, Engine(folded=True), x[:2], say=pytest.fail), f(x)
    assert torch.allclose(fast.eval()(x), before)
    f.temperature.fill_(3.0)
    assert torch.allclose(fast.eval()(x), 3 * before, atol=1e-6)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_what_else_is_made_of_the_weights_of_a_convolution_is_not_made_of_merged_ones(name):
    """While a BatchNorm is new it changes next to nothing, and merged weights are those of the network."""

    class Reusing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            weight = getattr(self.convolution, name)
            factor = weight.flatten(1).sum(1) if name == "weight" else weight
            return self.norm(self.convolution(x)).mean((2, 3)) * factor

    f, x = made(Reusing), images(4)
    fast = Accelerated(f, Engine(folded=True), x[:2], say=pytest.fail)
    f.norm.running_var.fill_(4.0)
    f.norm.running_mean.fill_(0.5)
    assert torch.allclose(fast.eval()(x), f(x), atol=1e-6)


def gated(shares: list[float]) -> nn.Module:
    """The same answers to all images, whatever the shares, and slopes of so many times 1 along each pixel."""

    class Gated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            parts = x.flatten(1) * torch.tensor(shares)
            logit = (parts + (x.flatten(1) - parts).detach()).sum(1)
            return torch.stack([logit, -logit / 3], 1)

    return Gated()


def test_a_gate_that_rounding_opens_does_not_forbid_a_copy():
    images = torch.rand(2, 1, 8, 8)
    f = gated([1.0] * 64)
    assert agree(gated([0.5, *[1.0] * 63]), f, images)
    assert not agree(gated([0.0, *[1.0] * 63]), f, images)
    assert not agree(gated([0.85] * 64), f, images)


def test_slopes_are_those_of_a_sum_of_logits_near_the_images():
    images, layer = torch.rand(2, 1, 8, 8), nn.Linear(64, 3)
    slopes = slopes_around(nn.Sequential(nn.Flatten(), layer), images)
    rng = torch.Generator().manual_seed(0)
    torch.rand(images.shape, generator=rng)
    weights = torch.rand(2, 3, generator=rng)
    torch.testing.assert_close(slopes.flatten(1), weights @ layer.weight)


def test_a_network_that_asks_for_gradients_is_traced_as_attacks_see_it():
    f = made(Asking)
    with torch.no_grad():
        copy = constant(f, images(2), torch.float32)
    assert copy is not None
    x = images(2).requires_grad_()
    (slopes,) = torch.autograd.grad(copy.module(x).sum(), x)
    assert torch.allclose(slopes.flatten(1), f.layer.weight.sum(0).expand(2, -1))


@pytest.mark.parametrize(
    "make",
    [
        *(Tossing, TossingByPython, TossingByNumPy),
        *(TossingByItself, TossingByItselfByNumPy, TossingByItselfByOldNumPy, TossingByItselfByTorch),
    ],
)
def test_a_network_that_tosses_a_coin_never_has_a_copy(make):
    f = made(make)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert not [1 for _ in range(20) if constant(f, images(2), torch.float32) is not None]
    assert torch.equal(torch.get_rng_state(), before)


def test_attacks_find_as_much_on_a_network_that_rounds_as_on_one_that_is_left_as_it_is():
    f, x = made(Rounding), images()
    attacks = {"pgd": up.attacks.pgd(eps=0.2), "fgsm": up.attacks.fgsm(eps=0.2)}
    fast, plain = (up.evaluate(f, x, f(x).argmax(1), attacks, precision=each) for each in ("auto", "float32"))
    for name in attacks:
        assert fast.accuracy(name) == plain.accuracy(name) < 0.1


def test_training_searches_on_a_network_that_rounds():
    moved = []

    def spy(loss, x, rng):
        found = up.PGD(around=up.Linf(eps=0.15), steps=3, step_size=0.1)(loss, x, rng)
        moved.append((found - x).abs().max().item())
        return found

    f = made(Rounding).requires_grad_(True)
    up.fit(f, labeled=(images(), torch.arange(60) % 3), objective=up.AT(solver=spy), steps=3)
    assert min(moved) > 0.1


class Leaving(Linear):
    """Each pass leaves what it saw in the network."""

    def forward(self, x: Tensor) -> Tensor:
        self.features = self.layer(x.flatten(1))
        return self.features


class LeavingInAList(Linear):
    """Each pass leaves what it saw in a list of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.features = []

    def seen(self, x: Tensor) -> Tensor:
        self.features[:] = [x]
        return x


class Counting(Linear):
    """It counts its passes, in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.tensor(0))

    def seen(self, x: Tensor) -> Tensor:
        self.passes = self.passes + 1
        return x


class CountingInPlace(Counting):
    def seen(self, x: Tensor) -> Tensor:
        self.passes.add_(1)
        return x


class Caching(Linear):
    """It makes a mask for each width of images once."""

    def __init__(self) -> None:
        super().__init__()
        self.masks = {}

    def seen(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        if width not in self.masks:
            self.masks[width] = torch.linspace(0, 1, width)
        return x * self.masks[width]


@pytest.mark.parametrize("make", [Leaving, LeavingInAList, Counting, CountingInPlace])
def test_a_network_in_which_each_pass_leaves_a_tensor_has_no_copy(make):
    assert constant(made(make), images(2), torch.float32) is None


def test_a_network_counts_the_passes_of_attacks_and_of_training():
    f, x, y = made(Counting).requires_grad_(True), images(20), torch.arange(20) % 3
    up.fit(f, labeled=(x, y), objective=up.AT(solver=up.PGD(steps=3, step_size=0.1)), steps=2)
    before = int(f.passes)
    assert before >= 2 * 4
    up.evaluate(f, x, y, {"pgd": up.attacks.pgd(steps=7)})
    assert int(f.passes) >= before + 8


def test_an_attack_looks_up_the_features_of_what_it_asks():
    def attack(f, x, y, rng):
        f(x)
        clean = f.features.detach().clone()
        point = (x + 0.01 * torch.rand(x.shape, generator=rng)).clamp(0, 1).requires_grad_()
        f(point)
        (slope,) = torch.autograd.grad((f.features - clean).square().sum(), point)
        return (x + 0.1 * slope.sign()).clamp(0, 1)

    f, x, y = made(Leaving), images(), torch.arange(60) % 3
    fast, plain = (up.evaluate(f, x, y, {"features": attack}, precision=each) for each in ("auto", "float32"))
    assert torch.equal(fast["features"].predicted, plain["features"].predicted)


def silenced(f: nn.Module) -> nn.Module:
    """A copy of f that says 0 of everything."""
    f = deepcopy(f).eval()
    for weight in f.parameters():
        nn.init.zeros_(weight)
    return f


def test_a_copy_that_an_attack_or_an_objective_makes_answers_by_weights_of_its_own():
    answers = []

    def attack(f, x, y, rng):
        assert [name for name, _ in f.named_parameters()] == ["f.layer.weight", "f.layer.bias"]
        assert type(deepcopy(f)) is Linear
        answers.append(silenced(f)(x).detach())
        return x

    def objective(f, batch, rng):
        with torch.no_grad():
            answers.append(silenced(f)(batch.x))
        return up.Standard()(f, batch, rng)

    f, x, y = made(Linear).requires_grad_(True), images(), torch.arange(60) % 3
    up.evaluate(f, x, y, {"copy": attack})
    up.fit(f, labeled=(x, y), objective=objective, steps=2)
    assert len(answers) >= 3
    assert not torch.cat(answers).any()


class CachingInAList(Linear):
    """It keeps the mask of the width that it met last, in a list in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.masks = [[8, torch.linspace(0, 1, 8)]]

    def seen(self, x: Tensor) -> Tensor:
        kept, width = self.masks[0], x.shape[-1]
        if kept[0] is not width:
            kept[:] = [width, torch.linspace(0, 1, width)]
        return x * kept[1]


class CachingInAnAttribute(Linear):
    """It keeps the mask of the width that it met last, and the mask is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.linspace(0, 1, 8))
        self.width = 8

    def seen(self, x: Tensor) -> Tensor:
        if self.width is not x.shape[-1]:
            self.width, self.mask, self.late = x.shape[-1], 1.0 * self.mask, x
        return x * self.mask


@pytest.mark.parametrize("make", [Caching, CachingInAList, CachingInAnAttribute])
def test_tracing_leaves_nothing_in_a_network(make):
    f = made(make)
    f(images(2))
    before = repr(vars(f))
    rewritten(f, for_tensor_cores=False)
    assert repr(vars(f)) == before
    assert constant(f, images(2), torch.float32) is not None


class Locking(Linear):
    """It keeps what nobody can copy."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()

    def seen(self, x: Tensor) -> Tensor:
        with self.lock:
            return 2 * x


def wrapped() -> nn.Module:
    """A network in whose pass another was put, which goes through the first."""
    f = Linear()
    inner = f.forward
    f.forward = lambda x: inner(2 * x)
    return f


@pytest.mark.parametrize("make", [Locking, wrapped])
def test_a_network_that_cannot_be_copied_whole_has_a_copy_of_what_it_computes(make):
    f = made(make)
    copy = constant(f, images(2), torch.float32)
    assert copy is not None
    copy.refresh()
    assert torch.allclose(copy.module(images(2)), f(images(2)), atol=1e-6)


@dataclass
class Settings:
    """What some keep apart from a network."""

    temperature: float = 1.0


@dataclass(slots=True)
class Slotted:
    """The same in slots, in which there is no dict to look into."""

    temperature: float = 1.0


class Extended(Slotted):
    """Slots and a dict, each with settings."""

    def __init__(self) -> None:
        super().__init__()
        self.other = 1.0


class Attributes(dict):
    """A dict whose items are attributes too, as configurations often are."""

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


class Pair(NamedTuple("Pair", [("temperature", float), ("values", list)])):
    """A tuple whose parts have names, and which has a dict."""


class Plain:
    """Settings as anybody may keep them."""

    def __init__(self, values) -> None:
        self.values = values


class Configured(Linear):
    """A network whose temperature is kept somewhere."""

    def __init__(self, kept, look_up) -> None:
        super().__init__()
        self.kept, self.look_up = kept, look_up

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (self.look_up(self.kept) or 1.0)


def set_item(name):
    return lambda kept: kept.__setitem__(name, 3.0)


def set_temperature(kept):
    kept.temperature = 3.0


KEPT = {
    "dict": ({"t": 1.0}, lambda kept: kept["t"], set_item("t")),
    "dict in a list": ([{"t": 1.0}], lambda kept: kept[0]["t"], lambda kept: set_item("t")(kept[0])),
    "list": ([1.0, 2.0], lambda kept: kept[0], set_item(0)),
    "namespace": (SimpleNamespace(temperature=1.0), lambda kept: kept.temperature, set_temperature),
    "arguments": (Namespace(temperature=1.0), lambda kept: kept.temperature, set_temperature),
    "object of a stranger": (
        Plain([1.0]),
        lambda kept: kept.values[0],
        lambda kept: set_item(0)(kept.values),
    ),
    "dataclass": (Settings(), lambda kept: kept.temperature, set_temperature),
    "dataclass with slots": (Slotted(), lambda kept: kept.temperature, set_temperature),
    "dataclass with slots in a list": (
        [Slotted()],
        lambda kept: kept[0].temperature,
        lambda kept: set_temperature(kept[0]),
    ),
    "settings within slots": (
        Slotted(temperature=[1.0]),
        lambda kept: kept.temperature[0],
        lambda kept: set_item(0)(kept.temperature),
    ),
    "slots beside a dict": (Extended(), lambda kept: kept.temperature, set_temperature),
    "slot that is emptied": (
        Slotted(),
        lambda kept: getattr(kept, "temperature", 3.0),
        lambda kept: delattr(kept, "temperature"),
    ),
    "dict with attributes": (Attributes(temperature=1.0), lambda kept: kept.temperature, set_temperature),
    "list in a tuple with names": (
        Pair(1.0, [1.0]),
        lambda kept: kept.values[0],
        lambda kept: set_item(0)(kept.values),
    ),
    "nothing yet": ({"t": None}, lambda kept: kept["t"], set_item("t")),
    "one more": ({}, lambda kept: kept.get("t"), set_item("t")),
}


@pytest.mark.parametrize(("kept", "look_up", "change"), KEPT.values(), ids=KEPT)
def test_a_copy_is_given_up_once_a_setting_changes_wherever_it_is_kept(kept, look_up, change):
    f, x, said = made(lambda: Configured(deepcopy(kept), look_up)), images(4), []
    fast = Accelerated(f, Engine(folded=True), x[:2], say=said.append)
    assert fast.copies
    before = f(x)
    assert torch.allclose(fast.eval()(x), before) and said == []
    change(f.kept)
    assert torch.allclose(fast.eval()(x), 3 * before, atol=1e-6)
    assert len(said) == 1 and "keeps a number which changes" in said[0]


def one():
    return 1.0


def three():
    return 3.0


ANOTHER = {
    "dict": ({"t": 1.0}, {"t": 3.0}, lambda kept: kept["t"]),
    "list": ([1.0], [3.0], lambda kept: kept[0]),
    "tuple": ((1.0,), (3.0,), lambda kept: kept[0]),
    "namespace": (SimpleNamespace(t=1.0), SimpleNamespace(t=3.0), lambda kept: kept.t),
    "namespace in a dict": ({"n": SimpleNamespace(t=1.0)}, {"n": SimpleNamespace(t=3.0)}, lambda kept: kept["n"].t),
    "dataclass with slots": (Slotted(1.0), Slotted(3.0), lambda kept: kept.temperature),
    "tuple with names": (Pair(1.0, []), Pair(3.0, []), lambda kept: kept.temperature),
    "number of numpy": (np.float32(1), np.float32(3), float),
    "array": (np.array([1.0]), np.array([3.0]), lambda kept: float(kept[0])),
    "tensor": (torch.tensor(1.0), torch.tensor(3.0), float),
    "tensor in a list": ([torch.tensor(1.0)], [torch.tensor(3.0)], lambda kept: kept[0].item()),
    "tensor that decides": (torch.tensor(1.0), torch.tensor(2.0), lambda kept: 3.0 if kept > 1.5 else 1.0),
    "function": (one, three, lambda kept: kept()),
}


@pytest.mark.parametrize(("kept", "another", "look_up"), ANOTHER.values(), ids=ANOTHER)
def test_a_copy_is_given_up_once_another_setting_is_in_the_place_of_one(kept, another, look_up):
    f, x, said = made(lambda: Configured(deepcopy(kept), look_up)), images(4), []
    fast = Accelerated(f, Engine(folded=True), x[:2], say=said.append)
    assert fast.copies
    before = f(x)
    f.kept = deepcopy(kept)
    assert torch.allclose(fast.eval()(x), before) and said == [], "what is equal is no other setting"
    f.kept = another
    assert torch.allclose(fast.eval()(x), 3 * before, atol=1e-6)
    assert len(said) == 1 and "keeps a number which changes" in said[0]


@pytest.mark.parametrize("make", [torch.ones, np.ones], ids=["tensor", "array"])
def test_a_copy_is_given_up_once_an_array_that_is_read_as_a_number_is_written_to(make):
    f, x, said = made(lambda: Configured(make(2), lambda kept: float(kept[0]))), images(4), []
    fast = Accelerated(f, Engine(folded=True), x[:2], say=said.append)
    assert fast.copies
    before = f(x)
    f.kept[0] = 3
    assert torch.allclose(fast.eval()(x), 3 * before, atol=1e-6)
    assert len(said) == 1


def test_networks_with_other_numbers_of_numpy_are_told_apart_in_reports():
    x, y = images(4), torch.zeros(4, dtype=torch.long)
    one, other = (up.evaluate(made(lambda t=t: Configured(np.float32(t), float)), x, y, attacks={}) for t in (1, -1))
    assert one.clean.tolist() != other.clean.tolist()
    assert one.subject != other.subject


def test_networks_with_other_numbers_in_slots_are_told_apart_in_reports():
    x, y = images(4), torch.zeros(4, dtype=torch.long)
    made_with = [made(lambda t=t: Configured(Slotted(t), lambda kept: kept.temperature)) for t in (1.0, -1.0)]
    one, other = (up.evaluate(f, x, y, attacks={}) for f in made_with)
    assert one.clean.tolist() != other.clean.tolist()
    assert one.subject != other.subject


class Items(dict):
    """A dict whose items are attributes, and which has neither a dict beside it nor refuses a name."""

    __slots__ = ()
    __getattr__ = dict.get


class Refusing:
    """A slot that is empty so far, of an object that refuses otherwise than usual where it has nothing."""

    __slots__ = ("cache", "temperature")

    def __init__(self) -> None:
        self.temperature = 1.0

    def __getattr__(self, name):
        raise KeyError(name)


class Endless(Refusing):
    """The same, but one that has another of its kind for whatever is asked."""

    __slots__ = ()

    def __getattr__(self, name):
        return type(self)()


class Hidden(Slotted):
    """A slot behind a property that refuses."""

    __slots__ = ()

    @property
    def temperature(self) -> float:
        raise RuntimeError("not before training")

    @temperature.setter
    def temperature(self, value: float) -> None:
        Slotted.__dict__["temperature"].__set__(self, value)


@dataclass(slots=True)
class Wrapped:
    """Settings by name, in one slot."""

    values: dict

    def __getattr__(self, name):
        return self.values[name]


@pytest.mark.parametrize(
    ("kept", "look_up"),
    [
        (Items(temperature=1.0), lambda kept: kept.temperature),
        (Refusing(), lambda kept: kept.temperature),
        (Endless(), lambda kept: kept.temperature),
        (Hidden(), Slotted.__dict__["temperature"].__get__),
        (Wrapped({"temperature": 1.0}), lambda kept: kept.temperature),
    ],
    ids=["items", "refusing", "endless", "behind a property", "wrapped"],
)
def test_settings_are_looked_at_without_asking_their_owner(kept, look_up):
    f, x = made(lambda: Configured(kept, look_up)), images(4)
    assert Numbers(f).hold()
    assert len(up.evaluate(f, x, torch.zeros(4, dtype=torch.long), attacks={}).clean) == 4


def test_slots_that_hold_their_owner_are_looked_through_once():
    kept = Slotted()
    kept.temperature = [kept, 1.0]
    numbers = Numbers(made(lambda: Configured(kept, lambda kept: kept.temperature[1])))
    assert numbers.hold()
    kept.temperature[1] = 2.0
    assert not numbers.hold()


def test_what_a_pass_leaves_in_a_network_is_no_setting():
    f, x = made(lambda: Configured([], lambda _: 1.0)), images(4)
    numbers = Numbers(f)
    f.kept = [f(x.requires_grad_())]
    assert numbers.hold()


def test_settings_that_hold_themselves_are_looked_through_once():
    kept = {"t": 1.0}
    kept["kept"] = kept
    numbers = Numbers(made(lambda: Configured(kept, lambda kept: kept["t"])))
    assert numbers.hold()
    kept["t"] = 2.0
    assert not numbers.hold()


def test_many_values_in_one_place_are_no_settings():
    f = made(lambda: Configured(dict.fromkeys(range(1000), 0), lambda kept: 1.0))
    assert len(Numbers(f).values) < 100
