"""How runs stop when they are asked to: after a step, all together, and each with a checkpoint."""

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NoReturn

import torch

from .processes import present
from .runs import RunDirectory
from .signals import StoppedError
from .trainer import Trainer, Watcher

STEPS_BETWEEN_AGREEMENTS = 10
"""steps after which processes that train together ask each other whether to stop"""


def leave_checkpoints(prepared: Sequence[tuple[RunDirectory, Trainer]]) -> NoReturn:
    """Keep where runs that are to stop have got to, and end them."""

    def leave(run: RunDirectory, trainer: Trainer) -> None:
        trainer.require_finite(everywhere=False)
        run.write_checkpoint(trainer.state())

    with ExitStack() as each:  # One that cannot be kept does not keep the others from it.
        for run, trainer in prepared:
            if trainer.processes.first and trainer.step < trainer.steps and not trainer.selection.fallen:
                each.callback(leave, run, trainer)
    places = " and ".join(f"{run.path} at step {trainer.step} of {trainer.steps}" for run, trainer in prepared)
    raise StoppedError(f"stopped with a checkpoint of {places}; the same command goes on from there")


def agreed(stop: Callable[[], bool], device: torch.device) -> Callable[[], bool]:
    """Whether to stop, with one answer for all processes, so that none waits for one that has gone."""
    processes, asked = present(), itertools.count()
    if processes.count == 1:
        return stop

    def answer() -> bool:
        if next(asked) % STEPS_BETWEEN_AGREEMENTS:
            return False
        return not processes.least_(torch.tensor([not stop()], dtype=torch.int32, device=device)).item()

    return answer


def waiting_for_others(watcher: Watcher | None, stop: Callable[[], bool]) -> Callable[[str], None]:
    """What to do while another process trains what is needed here: say so once, and be patient."""
    said: list[str] = []

    def wait(sentence: str) -> None:
        if watcher is not None and not said:
            watcher.warned(f"waiting: {sentence}")
        said.append(sentence)
        if stop():
            raise StoppedError("stopped while waiting for another process; the same command goes on")
        time.sleep(0.1)

    return wait
