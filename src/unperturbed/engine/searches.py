"""Steps of a search for points that fool a network which stands still, each kind recorded once: one launch a step."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..attacks.rounds import Search, State
from .queries import Replay, recorded_on_a_gpu

EIGHTHS = (5, 6, 7, 8)
"""parts of each number of images that questions are filled up to, for which steps of a search are recorded

Thousands of steps with twice the images that are left would take longer than one more recording, and recordings share
their memory.
"""


class Recordings:
    """Steps of searches, recorded for each of a few numbers of images; fewer images are filled up."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        parts = {-(-size * eighths // 8) for size in sizes for eighths in EIGHTHS}
        self.sizes = tuple(sorted(part for part in parts if part >= min(sizes)))
        self.steps: dict[Hashable, RecordedStep] = {}
        self.memory: list[Any] = []
        """what all recordings share, from the first on: none leaves anything there, and one is replayed at a time"""

    def step_for(self, f: nn.Module, search: Search, state: State, plan: Tensor) -> "RecordedStep | None":
        """The recorded step for so many images; none where they are too many."""
        size = next((size for size in self.sizes if len(state[0]) <= size), None)
        if size is None:
            return None
        kinds = tuple((part.shape[1:], part.dtype, part.device) for part in state)
        key = (search, size, kinds, plan.shape[1])
        if key not in self.steps:
            self.steps[key] = RecordedStep(f, search, state, plan, size, self.memory)
        return self.steps[key]


class RecordedStep:
    """A step of a search whose state stays where it is."""

    def __init__(
        self, f: nn.Module, search: Search, state: State, plan: Tensor, size: int, memory: list[Any]
    ) -> None:
        self.rows = tuple(part.new_empty(size, *part.shape[1:]) for part in state)
        self.now = plan[0].clone()
        self.random = Generator(plan.device)
        self.fill(state)

        def work() -> Tensor:
            after = search.step(f, self.rows, self.now, self.random)
            # A part that has moved to another place of the state would be overwritten before it is read.
            places = {part.data_ptr() for part in self.rows}
            after = tuple(
                new.clone() if new is not old and new.data_ptr() in places else new
                for old, new in zip(self.rows, after, strict=True)
            )
            for old, new in zip(self.rows, after, strict=True):
                if new is not old:
                    old.copy_(new)
            return self.rows[0]

        self.replay: Replay = recorded_on_a_gpu(work, self.random, memory=memory)[0]

    def fill(self, state: State) -> None:
        """Put a state in place, its last image again and again behind it."""
        for place, part in zip(self.rows, state, strict=True):
            place[: len(part)].copy_(part)
            place[len(part) :].copy_(part[-1:].expand(len(place) - len(part), *part.shape[1:]))

    @torch.no_grad()
    def __call__(self, state: State, plan: Tensor, rng: Generator) -> State:
        """The state after a step for each row of the plan."""
        seed = torch.randint(2**62, (), generator=rng, device=rng.device)
        self.random.manual_seed(int(seed))
        self.fill(state)
        for now in plan:
            if len(now):
                self.now.copy_(now)
            self.replay()
        return tuple(place[: len(state[0])].clone() for place in self.rows)
