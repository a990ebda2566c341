"""Searches that take one step again and again: each image by itself, until it fools f."""

from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from ..losses import answer_of
from ..risks import decided

State = tuple[Tensor, ...]
"""what is known of each image, row by row: the point that counts so far, whether it fools f, and more"""
ROUND = 25
"""steps after which somebody looks who has fallen"""
FALLEN = 1 / 8
"""share of the images that must have fallen for the others to go on alone: a batch is not made anew for a few"""


class Search(Protocol):
    """A search by steps of one kind, none of which waits for a value or lets one image know of another.

    It is a frozen value, so that whoever records its steps knows them again.
    """

    def begin(self, f: nn.Module, x: Tensor, y: Tensor, target: Tensor, rng: Generator) -> State:
        """Where the search starts; a targeted one aims at the class `target` of each image."""
        ...

    def plan(self, x: Tensor) -> Tensor:
        """What differs from step to step, a row for each."""
        ...

    def step(self, f: nn.Module, state: State, now: Tensor, rng: Generator) -> State:
        """One step; `now` is its row of the plan."""
        ...


@runtime_checkable
class Repeater(Protocol):
    """A network that takes the steps of a search by itself, as one does that can record them."""

    def repeated(self, search: Search, state: State, plan: Tensor, rng: Generator) -> State:
        """The state after a step for each row of the plan."""
        ...


def repeated(f: nn.Module, search: Search, state: State, plan: Tensor, rng: Generator) -> State:
    """The state after a step for each row of the plan."""
    if isinstance(f, Repeater):
        return f.repeated(search, state, plan, rng)
    return step_by_step(f, search, state, plan, rng)


def step_by_step(f: nn.Module, search: Search, state: State, plan: Tensor, rng: Generator) -> State:
    """The same, each step as it comes."""
    for now in plan:
        state = search.step(f, state, now, rng)
    return state


@torch.no_grad()
def carried_out(
    f: nn.Module, search: Search, x: Tensor, y: Tensor, target: Tensor, rng: Generator
) -> tuple[Tensor, Tensor]:
    """For each image what the search found, and whether it fools f; whoever does goes no further."""
    found, fooled = x.clone(), torch.zeros_like(y, dtype=torch.bool)
    rows, state = torch.arange(len(x), device=x.device), search.begin(f, x, y, target, rng)
    for plan in search.plan(x).split(ROUND):
        state = repeated(f, search, state, plan, rng)
        found[rows], fooled[rows] = state[0], state[1]
        standing = (~state[1]).nonzero().squeeze(1)
        if len(standing) <= (1 - FALLEN) * len(rows):
            rows, state = rows[standing], tuple(part[standing] for part in state)
        if len(standing) == 0:
            break
    return found, fooled


def standing(f: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The rows that f classifies as y."""
    return (decided(f(x)) == y).nonzero().squeeze(1)


def followed(f: nn.Module, point: Tensor) -> tuple[Tensor, Tensor]:
    """The point, to which gradients lead back, and what f says of a copy of it, on which f may work in place."""
    point = point.detach().requires_grad_()
    return point, answer_of(f, point.clone())
