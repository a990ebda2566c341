"""What networks keep beside their tensors, which copies and recordings take for constants."""

import sys
from argparse import Namespace
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

NUMBERS = (int, float, complex, str, type(None), np.generic)
WORDS = (*NUMBERS, Enum, type, FunctionType, BuiltinFunctionType, MethodType)
"""what is another thing once it does not equal what it was"""
NO_STRANGERS = frozenset({*sys.stdlib_module_names, "torch", "numpy"}) - {"__main__"}
"""packages whose objects hold no settings of a network, but for those that hold nothing else"""
TABLES = frozenset(vars(nn.Module()))
"""what every module keeps: its parts, its tensors, its hooks and its mode"""
CROWD, ANY = 64, sys.maxsize
"""values in one place from which on they are data, no settings; and where data count too"""
Array = Tensor | np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """What an object keeps in slots, as one of a dataclass made with slots=True does, which has no dict for it."""

    owner: Any
    slots: dict[str, MemberDescriptorType]

    def __len__(self) -> int:
        return len(self.items())

    def get(self, name: str) -> Any:
        """What is kept in that slot, None where nothing is; its owner is not asked, who may answer with anything."""
        try:
            return self.slots[name].__get__(self.owner)
        except AttributeError:
            return None

    def items(self) -> list[tuple[str, Any]]:
        """What is kept there now, by name."""
        found = list[tuple[str, Any]]()
        for name, slot in self.slots.items():
            with suppress(AttributeError):
                found.append((name, slot.__get__(self.owner)))
        return found


Settings = dict[Any, Any] | list[Any] | tuple[Any, ...] | Slots
"""a place where values are kept"""


class Numbers:
    """What networks keep beside their tensors and modes, as a temperature that falls or a count of passes.

    Before each step it is asked whether they hold, so only what is known is looked up, and how much there is.
    """

    def __init__(self, *networks: nn.Module) -> None:
        places = list(places_of([module for f in networks for module in f.modules()]))
        self.sizes = [(place, len(place)) for place in places]
        found = [
            (place.get if isinstance(place, dict | Slots) else place.__getitem__, name, value)
            for place in places
            for name, value in entries(place)
        ]
        self.values = [entry for entry in found if isinstance(entry[2], WORDS)]
        self.arrays = [(*entry, glance(entry[2])) for entry in found if is_small_array(entry[2])]
        inner = {identity(place) for place in places}
        self.inner = [entry for entry in found if any(identity(place) in inner for place in inside(entry[2]))]

    def hold(self) -> bool:
        """Whether all are what they were, none has come or gone, and what is put in a place holds the same."""
        return (
            all(len(place) == size for place, size in self.sizes)
            and all(
                (now := look_up(name)) is value or (type(now) is type(value) and now == value)
                for look_up, name, value in self.values
            )
            and all(
                ((now := look_up(name)) is value or is_cheap(now)) and glance(now) == seen
                for look_up, name, value, seen in self.arrays
            )
            and all(
                (now := look_up(name)) is value or settings_within(now) == settings_within(value)
                for look_up, name, value in self.inner
            )
        )


def is_small_array(value: object) -> bool:
    """Whether that may hold a few numbers which a network reads; what a pass left with its gradients does not."""
    if isinstance(value, np.ndarray):
        return cast(np.ndarray[Any, Any], value).size < CROWD
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        return False
    return value.numel() < CROWD and value.grad_fn is None


def is_cheap(value: object) -> bool:
    """Whether its numbers can be read without waiting for a device."""
    return isinstance(value, np.ndarray) or (isinstance(value, Tensor) and value.is_cpu)


def glance(value: object) -> object:
    """What tells a small array from what it was: its numbers or, on a device, how often it was written to."""
    if not is_small_array(value):
        return None
    array = cast(Array, value)
    if is_cheap(array):
        return array.dtype, repr(array.tolist())
    return None if torch.is_inference(cast(Any, array)) else cast(Tensor, array)._version


def settings_within(value: object) -> list[tuple[Any, Any]]:
    """All that a place holds which may be a setting, by name."""
    found = [entry for place in places_from([[value]], CROWD) for entry in entries(place)]
    return [
        (name, glance(each) if is_small_array(each) else each)
        for name, each in found
        if isinstance(each, WORDS) or is_small_array(each)
    ]


def kept_by(modules: Iterable[nn.Module]) -> list[tuple[Any, Any]]:
    """All numbers and words that these modules keep, by name."""
    found = (entry for place in places_of(modules) for entry in entries(place))
    return [(name, value) for name, value in found if isinstance(value, NUMBERS)]


def arrays_kept_by(modules: Iterable[nn.Module]) -> Iterator[Array]:
    """Tensors and arrays that these modules keep, and those of networks in their lists: no state_dict has them."""
    for place in places_of(modules, ANY):
        for _, value in entries(place):
            if isinstance(value, Tensor | np.ndarray):
                yield cast(Array, value)
            elif isinstance(value, nn.Module):
                yield from value.state_dict().values()


@contextmanager
def as_it_was(f: nn.Module) -> Generator[None]:
    """What is put into f meanwhile is gone afterwards, as stand-ins for tensors that a pass leaves in a table."""
    own = [vars(module) for module in f.modules()]
    places = [*own, *(value for names in own for value in names.values()), *places_from(own, ANY)]
    tables = [(place, dict(place)) for place in places if isinstance(place, dict)]
    rows = [(place, list(place)) for place in places if isinstance(place, list)]
    try:
        yield
    finally:
        for table, before in tables:
            for name in table.keys() - before.keys():
                del table[name]
            table.update(before)
        for row, before in rows:
            row[:] = before


def places_of(modules: Iterable[nn.Module], crowd: int = CROWD) -> Iterable[Settings]:
    """Where values are kept: in modules, and in what lies in those of strangers and only holds values.

    What lies in PyTorch's own, as the stride of a convolution, they are made with.
    """
    strange: list[Settings] = []
    for module in modules:
        yield vars(module)
        if not type(module).__module__.startswith("torch."):
            strange.append(vars(module))
    yield from places_from(strange, crowd)


def places_from(beginnings: Iterable[Settings], crowd: int) -> Iterable[Settings]:
    """The places that lie in these, in what lies in them and so on, each once."""
    waiting = [place for beginning in beginnings for place in places_within(beginning, crowd)]
    seen: set[tuple[int, bool]] = set()
    while waiting:
        place = waiting.pop()
        if identity(place) not in seen:
            seen.add(identity(place))
            yield place
            waiting += places_within(place, crowd)


def places_within(place: Settings, crowd: int) -> Iterable[Settings]:
    """The dicts, lists and tuples of a few values that lie there, and what objects that hold values keep."""
    for _, value in entries(place):
        for held in inside(value):
            if len(held) < crowd:
                yield held


def inside(value: Any) -> Iterator[Settings]:
    """Where a value keeps others: in itself, and in the attributes of an object that is there to hold values."""
    if isinstance(value, dict | list | tuple):
        yield cast(Settings, value)
    if holds_values(value):
        with suppress(AttributeError, TypeError):
            if isinstance(held := object.__getattribute__(value, "__dict__"), dict):
                yield held
        if slots := slots_of(type(value)):
            yield Slots(value, slots)


def identity(place: Settings) -> tuple[int, bool]:
    """What tells a place from all others; of slots there is a new view each time, but one owner."""
    return (id(place.owner), True) if isinstance(place, Slots) else (id(place), False)


def holds_values(value: object) -> bool:
    """Whether an object is there to hold values, as a configuration is; what can be called, as a network, is not."""
    if callable(value) or isinstance(value, Tensor):
        return False
    package = type(value).__module__.split(".")[0]
    return isinstance(value, Namespace | SimpleNamespace) or package not in NO_STRANGERS


@cache
def slots_of(kind: type) -> dict[str, MemberDescriptorType]:
    """The slots of objects of that type by name, those of its bases too."""
    return {
        name: slot
        for base in reversed(kind.__mro__)
        for name, slot in vars(base).items()
        if isinstance(slot, MemberDescriptorType)
    }


def entries(place: Settings) -> Iterable[tuple[Any, Any]]:
    """What is kept there, by name or number."""
    if isinstance(place, Slots):
        return place.items()
    if not isinstance(place, dict):
        return enumerate(place)
    return [(name, value) for name, value in place.items() if name not in TABLES]
