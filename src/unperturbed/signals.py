"""SIGINT and SIGTERM: what a process that is asked to stop does first, and the exit code it ends with."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


class StoppedError(Exception):
    """A run was asked to stop, and has: what it says is where it goes on."""


class SignalError(KeyboardInterrupt):
    """A signal ends the command; like Ctrl-C, it is no error that anything in between may swallow."""

    def __init__(self, number: int, sentence: str = "stopped; the same command goes on from what is on disk") -> None:
        super().__init__(sentence)
        self.code = 128 + number


@dataclass(slots=True)
class StopRequest:
    """Whether a signal has asked a run to stop; the run asks between its steps.

    Before it has asked for the first time there is nothing to finish, so that a signal ends the command at once; and
    so does another SIGINT after the first signal.
    """

    number: int = 0
    heeded: bool = False

    def __call__(self) -> bool:
        self.heeded = True
        return self.number > 0

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal."""
        if not self.heeded or (self.number and number == signal.SIGINT):
            raise SignalError(number)
        if not self.number:
            # Ctrl-C goes to all of a pipeline: whoever reads this, as tee, may have ended before.
            with suppress(OSError):
                os.write(2, b"\nunperturbed: stopping after this step; Ctrl-C stops at once\n")
        self.number = self.number or number


@contextmanager
def stopping_after_a_step() -> Generator[StopRequest]:
    """Within this, a first SIGINT or SIGTERM lets a run finish its step and write its checkpoint."""
    request = StopRequest()
    with handled(request.note, signal.SIGINT, signal.SIGTERM):
        try:
            yield request
        except StoppedError as stopped:
            # Among processes that stop together, one may have had no signal of its own.
            raise SignalError(request.number or signal.SIGTERM, str(stopped)) from None


@contextmanager
def ending_on_sigterm() -> Generator[None]:
    """Within this, SIGTERM ends the command like Ctrl-C, with an exit code of its own."""

    def end(number: int, _: FrameType | None) -> None:
        raise SignalError(number)

    with handled(end, signal.SIGTERM):
        yield


@contextmanager
def ending_at_once() -> Generator[None]:
    """Within this, SIGINT and SIGTERM end the command at once, as while it is imported: nothing has begun."""

    def end(number: int, _: FrameType | None) -> None:
        stopped = SignalError(number)
        with suppress(OSError):
            os.write(2, f"\nunperturbed: {stopped}\n".encode())
        os._exit(stopped.code)

    with handled(end, signal.SIGINT, signal.SIGTERM):
        yield


def started_as_command() -> bool:
    """Whether Python was started for our command, and not for a program that imports us."""
    as_module = sys.argv[:1] == ["-m"] and ("-m", "unperturbed") in pairwise(sys.orig_argv)
    return as_module or [Path(word).stem for word in sys.argv[:1]] == ["unperturbed"]


@contextmanager
def handled(handler: Handler, *numbers: signal.Signals) -> Generator[None]:
    """Within this, the handler answers those signals, apart from ones that the process was started to ignore."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
