"""Runs side by side in one process: some steps of each in turn."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Protocol

import torch

from .runtime import random_numbers_kept

STEPS_IN_TURN = 8
"""steps of a run that are launched on a GPU at a time: work for as long as another run needs the host for its log"""


class Pending(Protocol):
    """Work of a device that a run has to see done before its next step, as a `torch.cuda.Event`."""

    def query(self) -> bool:
        """Whether it is done."""
        ...

    def synchronize(self) -> None:
        """Wait for it."""
        ...


Steps = Iterator[int | Pending]
"""the steps of a run as they are taken, and what it waits for between two of them"""


def run_together(runs: Sequence[Steps], device: torch.device, stop: Callable[[], bool] = bool) -> bool:
    """Take the steps of several runs in turn, until all end (then true) or are to stop; on a GPU in streams.

    While a run waits for the device the others go on. Those that wait when all are to stop end their step first.
    """
    on_gpu = device.type == "cuda"
    streams = [torch.cuda.stream(torch.cuda.Stream(device)) if on_gpu else nullcontext() for _ in runs]
    if on_gpu:
        torch.cuda.synchronize(device)
    going, waiting = dict(enumerate(runs)), dict[int, Pending]()

    def take(number: int, steps: int) -> None:
        with streams[number]:
            for _ in range(steps):
                taken = next(going[number], None)
                if isinstance(taken, int):
                    continue
                if taken is None:
                    del going[number]
                else:
                    waiting[number] = taken
                return

    with random_numbers_kept(device), torch.enable_grad():  # Whoever asks may have turned gradients off.
        while going and not stop():
            if len(waiting) == len(going):
                next(iter(waiting.values())).synchronize()
            for number in list(going):
                if number not in waiting or waiting[number].query():
                    waiting.pop(number, None)
                    take(number, STEPS_IN_TURN if on_gpu else 1)
        while waiting:
            number, pending = waiting.popitem()
            pending.synchronize()
            take(number, 1)
    if on_gpu:
        torch.cuda.synchronize(device)
    return not going
