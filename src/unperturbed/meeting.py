"""What processes that work together leave for each other where they met: who has come, and why one has ended."""

import json
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from .printing import told_by_the_system
from .signals import StoppedError

BETWEEN_LOOKS = 0.05
"""seconds"""
FOR_THE_OTHERS = 1800.0
"""seconds for all others to come once the first has; for the first they wait as long as it takes"""
ENDED = "ended"
"""under which the process that ended first says why"""
OTHER_IS_GONE = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection was likely closed",
    "failed to recv, got 0 bytes",
    "Broken pipe",
    "remote process exit",
)
"""words of errors in which an exchange with a process that is gone ends; these have no type of their own"""


class EndedElsewhereError(ConnectionError):
    """Another process has ended, so that this one cannot go on; it says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where processes have met: a store of words by names, which all of them can read and write."""

    store: Any
    rank: int
    size: int
    numbers: "count[int]" = field(default_factory=count)
    """of the times that they waited for each other; equal in all processes"""

    def wait_for_all(self) -> None:
        """Go on once all processes have got here; where one has ended instead, end too and say why.

        The first may take any time, as where it waits for a model that others train.
        """
        place, since = f"here {next(self.numbers)}", time.monotonic()
        if self.rank == 0:
            self.store.set(f"{place}, the first", "")
        here = self.store.add(place, 1)
        while here < self.size:
            self.require_all()
            time.sleep(BETWEEN_LOOKS)
            if not self.store.check([f"{place}, the first"]):
                since = time.monotonic()
            require_in_time(since, here, self.size)
            here = self.store.add(place, 0)

    def require_all(self) -> None:
        """Refuse to go on where another process has ended."""
        if (word := self.last_word()) is not None:
            raise EndedElsewhereError(word["said"])

    def last_word(self) -> dict[str, Any] | None:
        """What the process that ended first has left, if any has."""
        return json.loads(self.store.get(ENDED)) if self.store.check([ENDED]) else None

    def leave(self, error: BaseException) -> None:
        """Let the others know that this process ends, and why, unless they know of one that did."""
        if isinstance(error, EndedElsewhereError) or of_one_that_is_gone(error):
            return
        why = told_by_the_system(error) if isinstance(error, OSError) else str(error)
        said = f"process {self.rank} of {self.size} has ended, and so do all: {why or type(error).__name__}"
        stopped = isinstance(error, StoppedError | KeyboardInterrupt)
        with suppress(RuntimeError):  # Where they met may be gone.
            self.store.compare_set(ENDED, "", json.dumps({"rank": self.rank, "said": said, "stopped": stopped}))

    @contextmanager
    def one_for_all(self) -> Generator[None]:
        """Within this, a process that cannot go on without another which has ended says why that one has.

        The one that ended first ends by its own error, and one that has got a signal itself by that, unless it came
        because the other was gone.
        """
        try:
            yield
        except (RuntimeError, KeyboardInterrupt) as error:
            word = None
            with suppress(RuntimeError):
                word = self.last_word()
            by_signal = isinstance(error, KeyboardInterrupt)
            own = word is not None and (word["stopped"] if by_signal else word["rank"] == self.rank)
            if word is not None and not own:
                raise EndedElsewhereError(word["said"]) from error
            if of_one_that_is_gone(error):
                raise EndedElsewhereError(
                    "another process has ended without a word, as one that is killed does: the same command goes on "
                    "from what is on disk"
                ) from error
            raise


def name_of_start(store: Any, rank: int, size: int) -> str:
    """A name that all processes of one start have and no earlier one had, whose words are in the store still.

    The first process makes it up. Each of the others asks under a name of its own, so that it hears no answer to one
    that is gone. The count of restarts does not do: on several machines torchrun counts those of each by itself.
    """
    mine, since = uuid4().hex, time.monotonic()
    if rank:
        store.set(f"{rank} asks", mine)
        while not store.check([f"{mine} is told"]):
            time.sleep(BETWEEN_LOOKS)
        name = store.get(f"{mine} is told").decode()
        store.add(f"heard of {name}", 1)
        return name
    while (heard := store.add(f"heard of {mine}", 0)) < size - 1:
        for other in range(1, size):
            if store.check([f"{other} asks"]):
                store.set(f"{store.get(f'{other} asks').decode()} is told", mine)
        require_in_time(since, 1 + heard, size)
        time.sleep(BETWEEN_LOOKS)
    return mine


def require_in_time(since: float, here: int, size: int) -> None:
    """Refuse to wait for others any longer than they may take since that moment."""
    if time.monotonic() > since + FOR_THE_OTHERS:
        raise EndedElsewhereError(
            f"{size - here} of {size} processes did not come within {FOR_THE_OTHERS / 60:.0f} minutes: look for what "
            "they say, and start all of them again"
        )


def of_one_that_is_gone(error: BaseException) -> bool:
    """Whether an error says that a process with which something was to be exchanged is gone."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OTHER_IS_GONE)
