"""Runs side by side in one process: some steps of each in turn."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from typing import Protocol

import torch

from .processes import present
from .runtime import random_numbers_kept

STEPS_IN_TURN = 8
"""steps of a run that are launched on a GPU at a time: work for as long as another run needs the host for its log"""
TURNS_AHEAD = 2
"""turns of a run that a GPU has before it at most: else the host would wait for runs of long steps, others with it"""
PAUSE = 1e-4
"""seconds after which it is asked again whether the device is ready for any run"""


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

    While a run waits for the device the others go on, and each goes as fast as the device takes its steps. Those that
    wait when all are to stop, or when one of them fails, end their step first.
    """
    on_gpu = device.type == "cuda"
    streams = [torch.cuda.stream(torch.cuda.Stream(device)) if on_gpu else nullcontext() for _ in runs]
    if on_gpu:
        torch.cuda.synchronize(device)
    # Several processes have to ask whether to stop equally often, however fast each of them is.
    paced = on_gpu and len(runs) > 1 and present().count == 1
    going, waiting = dict(enumerate(runs)), dict[int, Pending]()
    launched = [deque[Pending](maxlen=TURNS_AHEAD) for _ in runs]

    def is_ready(number: int) -> bool:
        ahead = launched[number]
        return (number not in waiting or waiting[number].query()) and (len(ahead) < TURNS_AHEAD or ahead[0].query())

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
            if paced:
                launched[number].append(mark())

    def end_a_step() -> None:
        number, pending = waiting.popitem()
        pending.synchronize()
        take(number, 1)

    with random_numbers_kept(device), torch.enable_grad():  # Whoever asks may have turned gradients off.
        try:
            while going and not stop():
                ready = [number for number in going if is_ready(number)]
                if not ready:
                    time.sleep(PAUSE)
                for number in ready:
                    waiting.pop(number, None)
                    take(number, STEPS_IN_TURN if on_gpu else 1)
        except Exception:
            while waiting:
                with suppress(Exception):  # The first failure is told; another comes again when its run goes on.
                    end_a_step()
            raise
        while waiting:
            end_a_step()
    if on_gpu:
        torch.cuda.synchronize(device)
    return not going


def mark() -> Pending:
    """What is done once the present stream has done all that was launched in it."""
    done = torch.cuda.Event()
    done.record()
    return done
