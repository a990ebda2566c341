"""How runs go and stop: what each leaves in its directory on the way, when asked to stop, and where one diverges."""

import itertools
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NoReturn

import torch

from .datasets import Use
from .guards import DivergedError
from .processes import present
from .progress import Watcher
from .runs import RunDirectory
from .signals import StoppedError
from .trainer import Trainer
from .turns import Steps

STEPS_BETWEEN_AGREEMENTS = 10
"""steps after which processes that train together ask each other whether to stop"""


def running(
    run: RunDirectory, trainer: Trainer, use: Use, watcher: Watcher | None, seconds: float, *, alone: bool
) -> Steps:
    """The steps of a run, which leaves its log, its checkpoints and at last its weights in its directory."""
    if not trainer.processes.first:
        yield from trainer.steps_to_take()
        return
    with telling_of_divergence(run, alone=alone):
        yield from trainer.steps_to_take(
            watcher=watcher,
            write_log=run.write_log,
            write_checkpoint=lambda: run.write_checkpoint(trainer.state(), trainer.recipe),
            checkpoint_seconds=seconds,
        )
    run.write_weights(trainer.f, use)


def leave_checkpoints(prepared: Sequence[tuple[RunDirectory, Trainer]]) -> NoReturn:
    """Keep where runs that are to stop have got to, and end them."""
    with ExitStack() as each:  # One that cannot be kept does not keep the others from it.
        for run, trainer in prepared:
            each.callback(leave_checkpoint, run, trainer, alone=len(prepared) == 1)
    places = " and ".join(f"{run.path} at step {trainer.step} of {trainer.recipe.steps}" for run, trainer in prepared)
    raise StoppedError(f"stopped with a checkpoint of {places}; the same command goes on from there")


def leave_checkpoint(run: RunDirectory, trainer: Trainer, *, alone: bool) -> None:
    """Keep where a run that has not ended has got to, if its numbers are finite."""
    if trainer.processes.first and not trainer.ended:
        with telling_of_divergence(run, alone=alone):
            trainer.require_finite()
        run.write_checkpoint(trainer.state(), trainer.recipe)


@contextmanager
def kept_where_one_diverges(prepared: Sequence[tuple[RunDirectory, Trainer]]) -> Generator[None]:
    """While runs take steps in turn: where one of them diverges, the others leave checkpoints before all end."""
    try:
        yield
    except DivergedError:
        for run, trainer in prepared:
            if trainer.device.type == "cuda":
                torch.cuda.synchronize(trainer.device)
            with suppress(DivergedError):
                leave_checkpoint(run, trainer, alone=False)
        raise


@contextmanager
def telling_of_divergence(run: RunDirectory, *, alone: bool) -> Generator[None]:
    """Where a run diverges, say which one it was among several, and whether there is a checkpoint."""
    try:
        yield
    except DivergedError as error:
        name = "" if alone else f"{run.path}: "
        kept = "; a checkpoint from before that is kept" if run.checkpoint.exists() else ""
        raise DivergedError(f"{name}{error}{kept}") from None


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
