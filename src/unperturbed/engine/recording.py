"""A step whose work on a GPU is recorded once and replayed: one launch in place of thousands."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor

from ..runtime import RandomNumbers
from .capture import captured
from .network import Say, first_line
from .numbers import Numbers

Result = TypeVar("Result")
WARM_UP = 3
"""steps of a kind that are taken before one is recorded: compilers and libraries settle in them"""
CLOSE = 0.1
"""how far, as a share of what a step changes, a replay may end from the step itself through rounding alone"""


class Recorded(Generic[Result]):
    """A step that takes all it needs from tensors that stay where they are, and leaves its work in such.

    Steps of the same kind launch the same work. A step that waits for the device, that changes numbers outside of
    tensors, or whose replay does not end where the step itself ends, is never replayed: it is taken as it is, and
    that is said once.
    """

    def __init__(
        self,
        step: Callable[[], Result],
        *,
        state: Callable[[], Sequence[Tensor]],
        random: RandomNumbers,
        say: Say,
        numbers: Callable[[], Numbers] = Numbers,
        enabled: bool = True,
    ) -> None:
        self.step = step
        self.state = state
        self.numbers = numbers
        self.random = random
        self.say = say
        self.enabled = enabled
        self.taken: Counter[Hashable] = Counter()
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Result, Numbers]] = {}
        """each with its result, and with the numbers that it takes for constants"""
        self.place: tuple[Any, ...] = ()
        """memory and stream of all recordings: runs side by side have nothing in common"""

    def __call__(self, kind: Hashable, seed: int) -> Result:
        """Take a step of that kind with random numbers of that seed."""
        self.random.seed(seed)
        if kind in self.graphs:
            graph, result, numbers = self.graphs[kind]
            if numbers.hold():
                graph.replay()
                return result
            self.forget()
        if not self.enabled:
            return self.step()
        self.taken[kind] += 1
        if self.taken[kind] < WARM_UP:
            return self.step()
        if self.taken[kind] == WARM_UP:
            return self.watched()
        return self.record(kind, seed)

    def watched(self) -> Result:
        """Take the step and notice whether it waits for the device, or does what no replay would do again."""
        tensors, numbers = self.state(), self.numbers()
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                result = self.step()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        waits = [warning for warning in caught if "synchronizing CUDA operation" in str(warning.message)]
        for warning in caught:
            if warning not in waits and "debug mode is a prototype" not in str(warning.message):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        if waits:
            place = f"{waits[0].filename}, line {waits[0].lineno}"
            self.refuse(f"a step waits for the device ({place}), as where its course depends on values of tensors")
        elif not numbers.hold():
            self.refuse("a step changes a number that a network keeps, which a replay would not do")
        elif any(new is not old for new, old in zip(self.state(), tensors, strict=True)):
            self.refuse(
                "a step puts a tensor in the place of another, as self.mean = ..., which a replay would not do"
            )
        return result

    def record(self, kind: Hashable, seed: int) -> Result:
        """Record the step, replay it, take it again from where it began, and compare where the two end."""
        before = copies(self.state())
        graph = torch.cuda.CUDAGraph()
        for source in {self.random.own, self.random.common}:
            graph.register_generator_state(source)
        self.place = self.place or (torch.cuda.graph_pool_handle(), torch.cuda.Stream())
        try:
            with captured(graph, *self.place):
                result = self.step()
        except RuntimeError as error:
            self.refuse(first_line(error))
            self.random.renew()
            self.random.seed(seed)
            return self.step()
        self.random.seed(seed)
        graph.replay()
        replayed = copies(self.state())
        with torch.no_grad():
            for tensor, old in zip(self.state(), before, strict=True):
                tensor.copy_(old)
        self.random.seed(seed)
        truth = self.step()
        if not apart(before, replayed, self.state()) <= CLOSE:
            self.refuse("a replay ends elsewhere, as where a network or an objective has a memory of its own")
            return truth
        self.graphs[kind] = (graph, result, self.numbers())
        return truth

    def forget(self) -> None:
        """Drop all recordings: tensors they refer to are about to be exchanged, or memory is needed."""
        self.graphs.clear()
        self.taken.clear()
        self.place = ()  # Memory that no recording is left in takes up no other.

    def refuse(self, reason: str) -> None:
        """Take every further step as it is."""
        self.enabled = False
        self.forget()
        self.say(f"steps are taken one by one, not recorded and replayed, which is slower: {reason}")


def stateless(part: object) -> bool:
    """Whether a part of a recipe is a frozen value all through: then two calls differ by their arguments alone."""
    if isinstance(part, tuple):
        return all(map(stateless, cast(tuple[object, ...], part)))
    if not is_dataclass(part) or isinstance(part, type):
        return isinstance(part, int | float | str | bool | None)
    settings = cast(Any, part).__dataclass_params__
    return settings.frozen and all(stateless(getattr(part, slot.name)) for slot in fields(part))


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The values the tensors have now."""
    return [tensor.detach().clone() for tensor in tensors]


def apart(before: Sequence[Tensor], one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """How far two ends of a step lie apart, as a share of the way from its beginning.

    Weights and the sums of a log differ in type, and each kind is judged by itself.
    """
    difference: defaultdict[torch.dtype, float] = defaultdict(float)
    way: defaultdict[torch.dtype, float] = defaultdict(float)
    for start, here, there in zip(before, one, other, strict=True):
        if start.is_floating_point():
            difference[start.dtype] += (here.double() - there.double()).square().sum().item()
            way[start.dtype] += (start.double() - there.double()).square().sum().item()
    shares = [(difference[kind] / max(way[kind], 1e-300)) ** 0.5 for kind in way]
    return torch.tensor(shares or [0.0]).max().item()
