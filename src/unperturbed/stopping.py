"""How runs stop when they are asked to, or when one diverges: after a step, all together, each with a checkpoint."""

import itertools
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NoReturn

import torch

from .guards import DivergedError
from .processes import present
from .runs import RunDirectory
from .signals import StoppedError
from .trainer import Trainer, Watcher

STEPS_BETWEEN_AGREEMENTS = 10
"""steps after which processes that train together ask each other whether to stop"""


def leave_checkpoints(prepared: Sequence[tuple[RunDirectory, Trainer]]) -> NoReturn:
    """Keep where runs that are to stop have got to, and end them."""
    with ExitStack() as each:  # One that cannot be kept does not keep the others from it.
        for run, trainer in prepared:
            each.callback(leave_checkpoint, run, trainer)
    places = " and ".join(f"{run.path} at step {trainer.step} of {trainer.steps}" for run, trainer in prepared)
    raise StoppedError(f"stopped with a checkpoint of {places}; the same command goes on from there")


def leave_checkpoint(run: RunDirectory, trainer: Trainer) -> None:
    """Keep where a run that has not ended has got to, if its numbers are finite."""
    if trainer.processes.first and trainer.step < trainer.steps and not trainer.selection.fallen:
        with telling_of_checkpoint(run):
            trainer.require_finite(everywhere=False)
        run.write_checkpoint(trainer.state())


@contextmanager
def kept_where_one_diverges(prepared: Sequence[tuple[RunDirectory, Trainer]]) -> Generator[None]:
    """While runs take steps in turn: where one of them diverges, the others leave checkpoints before all end."""
    try:
        yield
    except DivergedError as error:
        for run, trainer in prepared:
            if trainer.device.type == "cuda":
                torch.cuda.synchronize(trainer.device)
            with suppress(DivergedError):
                leave_checkpoint(run, trainer)
        said = {str(run.path): divergence(trainer) for run, trainer in prepared}
        named = [path for path, words in said.items() if words and str(error).startswith(words)]
        if len(prepared) == 1 or not named:
            raise
        raise DivergedError(f"{' and '.join(named)}: {error}") from None


def divergence(trainer: Trainer) -> str:
    """What is said of a run that diverged; nothing of one that did not."""
    try:
        trainer.require_finite(everywhere=False)
    except DivergedError as error:
        return str(error)
    return ""


@contextmanager
def telling_of_checkpoint(run: RunDirectory) -> Generator[None]:
    """Where a run diverges that has a checkpoint, say so."""
    try:
        yield
    except DivergedError as error:
        if not run.checkpoint.exists():
            raise
        raise DivergedError(f"{error}; a checkpoint from before that is kept") from None


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
