"""What networks keep beside their tensors, which copies and recordings take for constants."""

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

NUMBERS = (int, float, str, type(None))
NO_STRANGERS = frozenset({*sys.stdlib_module_names, "torch", "numpy"}) - {"__main__"}
"""packages whose objects hold no settings of a network, but for those that hold nothing else"""
TABLES = frozenset(vars(nn.Module()))
"""what every module keeps: its parts, its tensors, its hooks and its mode"""
CROWD, ANY = 64, sys.maxsize
"""values in one place from which on they are data, no settings; and where data count too"""
Settings = dict[Any, Any] | list[Any] | tuple[Any, ...]
"""a place where values are kept"""


class Numbers:
    """What networks keep beside their tensors and modes, as a temperature that falls or a count of passes.

    Before each step it is asked whether they hold, so only what is known is looked up, and how much there is.
    """

    def __init__(self, *networks: nn.Module) -> None:
        places = list(places_of([module for f in networks for module in f.modules()]))
        self.sizes = [(place, len(place)) for place in places]
        self.values = [
            (place.get if isinstance(place, dict) else place.__getitem__, name, value)
            for place in places
            for name, value in entries(place)
            if isinstance(value, NUMBERS)
        ]

    def hold(self) -> bool:
        """Whether all are what they were, and none has come or gone."""
        return all(len(place) == size for place, size in self.sizes) and all(
            (now := look_up(name)) is value or (type(now) is type(value) and now == value)
            for look_up, name, value in self.values
        )


def kept_by(modules: Iterable[nn.Module]) -> list[tuple[Any, Any]]:
    """All numbers and words that these modules keep, by name."""
    found = (entry for place in places_of(modules) for entry in entries(place))
    return [(name, value) for name, value in found if isinstance(value, NUMBERS)]


def arrays_kept_by(modules: Iterable[nn.Module]) -> Iterator[Tensor | np.ndarray[Any, Any]]:
    """Tensors and arrays that these modules keep, and those of networks in their lists: no state_dict has them."""
    for place in places_of(modules, ANY):
        for _, value in entries(place):
            if isinstance(value, Tensor | np.ndarray):
                yield cast(Tensor | np.ndarray[Any, Any], value)
            elif isinstance(value, nn.Module):
                yield from value.state_dict().values()


def places_of(modules: Iterable[nn.Module], crowd: int = CROWD) -> Iterable[Settings]:
    """Where values are kept: in modules, and in what lies in those of strangers and only holds values.

    What lies in PyTorch's own, as the stride of a convolution, they are made with.
    """
    waiting: list[Settings] = []
    for module in modules:
        yield vars(module)
        if not type(module).__module__.startswith("torch."):
            waiting += places_within(vars(module), crowd)
    seen: set[int] = set()
    while waiting:
        place = waiting.pop()
        if id(place) not in seen:
            seen.add(id(place))
            yield place
            waiting += places_within(place, crowd)


def places_within(place: Settings, crowd: int) -> Iterable[Settings]:
    """The dicts, lists and tuples of a few values that lie there, and what objects that hold values keep."""
    for _, value in entries(place):
        inside: Any = vars(value) if holds_values(value) else value
        if isinstance(inside, dict | list | tuple) and len(cast(Settings, inside)) < crowd:
            yield cast(Settings, inside)


def holds_values(value: object) -> bool:
    """Whether an object is there to hold values, as a configuration is; what can be called, as a network, is not."""
    if not hasattr(value, "__dict__") or callable(value) or isinstance(value, Tensor):
        return False
    package = type(value).__module__.split(".")[0]
    return isinstance(value, Namespace | SimpleNamespace) or package not in NO_STRANGERS


def entries(place: Settings) -> Iterable[tuple[Any, Any]]:
    """What is kept there, by name or number."""
    if not isinstance(place, dict):
        return enumerate(place)
    return [(name, value) for name, value in place.items() if name not in TABLES]
