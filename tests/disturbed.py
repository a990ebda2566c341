"""Runs that are disturbed: interrupted, slowed down, killed, on a disk that is full."""

import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from unperturbed.recipe import Recipe
from unperturbed.runs import RunDirectory
from unperturbed.training import train


class StopError(Exception):
    """Ctrl-C, as it were."""


def stop() -> None:
    raise StopError


class Disturbing:
    """A watcher that hears all warnings, takes its time, and does something after a step."""

    def __init__(self, after: int = 0, act: Callable[[], object] = bool, *, pause: float = 0.0) -> None:
        self.after, self.act, self.pause = after, act, pause
        self.warnings: list[str] = []

    def stepped(self, step: int, steps: int) -> None:
        time.sleep(self.pause)
        if step == self.after:
            self.act()

    def logged(self, record: object) -> None: ...

    def warned(self, sentence: str) -> None:
        self.warnings.append(sentence)


def trained(recipe: Recipe, out: Path, **settings: object) -> RunDirectory:
    train(recipe, out, device="cpu", **settings)
    return RunDirectory(out)


def in_a_process(target: Callable[..., object], *arguments: object) -> multiprocessing.Process:
    """Start a function in a process of its own; a fork starts at once, but does not go with a GPU."""
    context = multiprocessing.get_context("forkserver" if torch.cuda.is_available() else "fork")
    context.set_forkserver_preload(["pytest", "unperturbed.cli", "sklearn.datasets", "torch._dynamo"])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def wait_until(condition: Callable[[], bool], alive: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert alive(), "the process ended before it could be disturbed"
        assert time.monotonic() < deadline, "nothing happened in a minute"
        time.sleep(0.002)


def train_slowly(recipe: Recipe, out: Path) -> None:
    """Train so that a killer has the time to act, also on a fast machine."""
    torch.set_num_threads(1)
    trained(recipe, out, watcher=Disturbing(pause=0.008), checkpoint_seconds=0.03)


def last_change(file: Path) -> int:
    with suppress(FileNotFoundError):
        return file.stat().st_mtime_ns
    return 0


def killed_again_and_again(recipe: Recipe, run: RunDirectory, times: int) -> None:
    """Train in processes that are killed at random moments, four of five after a checkpoint of their own."""
    moments = random.Random(times)
    for turn in range(times):
        before = last_change(run.checkpoint)
        process = in_a_process(train_slowly, recipe, run.path)
        if turn % 5:
            wait_until(lambda before=before: last_change(run.checkpoint) != before, process.is_alive)
        time.sleep(moments.uniform(0.0, 0.15))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """As on a disk that is full: writing stops after so many bytes of a file."""
    import resource  # Windows has none.

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
