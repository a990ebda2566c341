"""What a person sees while something is going on: bars on a terminal, plain lines elsewhere; always on stderr."""

import sys
import time
import warnings
from collections import abc
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol, TypeVar, cast, runtime_checkable

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from .printing import printable

Record = dict[str, float | int]
"""a line of the log of a run"""
HELD_OUT = "held_out_accuracy"
"""what only those lines have at whose step held-out images were looked at"""
SECONDS_BETWEEN_LINES = 5.0
SECONDS_OF_SILENCE = 60.0
"""after which a step is told though the log has no line of it"""
Whoever = TypeVar("Whoever")


class Watcher(Protocol):
    """Whoever looks at a run while it is going."""

    def stepped(self, step: int, steps: int, /) -> None:
        """A step was taken."""
        ...

    def logged(self, record: Record, /) -> None:
        """A line was added to the log."""
        ...

    def warned(self, sentence: str, /) -> None:
        """Something looks wrong."""
        ...


@runtime_checkable
class TellsApart(Protocol):
    """A watcher that does not take the steps of a run's teacher for those of the run."""

    def of_teacher(self) -> Any:
        """Whoever watches the teacher in its place."""
        ...


def watcher_of_teacher(watcher: Whoever) -> Whoever:
    """Who watches the training of a run's teacher; a watcher that does not tell them apart watches both."""
    return cast(Whoever, watcher.of_teacher()) if isinstance(watcher, TellsApart) else watcher


class Unfailing:
    """A stream that loses what cannot be written, as on a full disk or a terminal that is gone, and goes on."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class BarsAndNotes(Progress):
    """Bars with their notes, as far as a terminal has room for them.

    Notes lie below the bars, for beside them they would leave 80 columns for neither bar nor count; of more bars than
    there are lines for, the newest are shown.
    """

    def __init__(self, console: Console) -> None:
        self.terminal, self.names = console, Column(no_wrap=True)
        super().__init__(
            TextColumn("{task.description}", markup=False, table_column=self.names),
            BarColumn(bar_width=24),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=console,
        )

    def get_renderables(self) -> abc.Iterator[RenderableType]:
        newest = self.tasks[-max(1, self.terminal.height // 2 - 1) :]
        longest = max((cell_len(task.description) for task in newest), default=0)
        self.names.min_width = min(longest, self.terminal.width // 2)
        for task in newest:
            yield self.make_tasks_table([task])
            if note := task.fields["note"]:
                yield Text(f"  {note}", no_wrap=True, overflow="ellipsis")


class Bars:
    """Live progress bars, one for each run or attack."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks: dict[str, TaskID] = {}
        self.title = ""

    def task(self, name: str, total: int) -> TaskID:
        if name not in self.tasks:
            self.tasks[name] = self.progress.add_task(printable(name), total=total, note="")
        return self.tasks[name]

    def stepped(self, step: int, steps: int, /) -> None:
        self.progress.update(self.task(self.title, steps), completed=step)

    def logged(self, record: Record, /) -> None:
        self.progress.update(self.tasks[self.title], note=spoken(record))

    def warned(self, sentence: str, /) -> None:
        text = escape(printable(f"{self.title}: {sentence}"))
        self.progress.console.print(f"[yellow]warning[/] {text}", highlight=False, emoji=False)

    def attacked(self, name: str, done: int, images: int, standing: float, /) -> None:
        task = self.task(f"{self.title} under {name}", images)
        self.progress.update(task, completed=done, note=f"{standing:.1%} unmoved")
        if done == images:
            self.progress.remove_task(task)
            del self.tasks[f"{self.title} under {name}"]


class Lines:
    """A line now and then, for logs and pipes."""

    def __init__(self) -> None:
        self.title = ""
        self.last = self.silent_since = time.monotonic()
        self.steps: dict[str, int] = {}
        """of each run: others take steps before what one has done is told"""

    def say(self, text: str, *, now: bool) -> None:
        if now or time.monotonic() - self.last >= SECONDS_BETWEEN_LINES:
            self.write(text)
            self.last = self.silent_since

    def write(self, text: str) -> None:
        print(printable(f"{self.title}: {text}"), file=Unfailing(sys.stderr), flush=True)
        self.silent_since = time.monotonic()

    def stepped(self, step: int, steps: int, /) -> None:
        self.steps[self.title] = steps
        if step < steps and time.monotonic() - self.silent_since >= SECONDS_OF_SILENCE:
            self.write(f"step {step} of {steps}")  # Its losses, which may come at once, are told even so.

    def logged(self, record: Record, /) -> None:
        steps = self.steps[self.title]
        self.say(f"step {record['step']} of {steps}, {spoken(record)}", now=record["step"] == steps)

    def warned(self, sentence: str, /) -> None:
        self.say(f"warning: {sentence}", now=True)

    def attacked(self, name: str, done: int, images: int, standing: float, /) -> None:
        self.say(f"{name}, {done} of {images} images, {standing:.1%} unmoved", now=done == images)


class Titled:
    """One of several runs that share a watcher."""

    def __init__(self, watcher: Bars | Lines, title: str) -> None:
        self.watcher, self.title = watcher, title

    def of_teacher(self) -> "Titled":
        return Titled(self.watcher, f"{self.title}, its teacher")

    def stepped(self, step: int, steps: int, /) -> None:
        self.watcher.title = self.title
        self.watcher.stepped(step, steps)

    def logged(self, record: Record, /) -> None:
        self.watcher.title = self.title
        self.watcher.logged(record)

    def warned(self, sentence: str, /) -> None:
        self.watcher.title = self.title
        self.watcher.warned(sentence)


def spoken(record: Record) -> str:
    """The gist of a line of the log."""
    held_out = f"held out {record[HELD_OUT]:.1%}, " if HELD_OUT in record else ""
    speed = record["images_per_second"]
    return (
        f"loss {record['standard']:.3f} + {record['robust_weight']:.2f} x {record['robust']:.3f}, "
        f"rate {record['rate']:.3g}, C(x) {record['labeled_accuracy']:.0%}, {held_out}"
        f"{speed:{'.0f' if speed >= 10 else '.1f'}} img/s"
    )


@contextmanager
def watching() -> abc.Generator[Bars | Lines]:
    """A watcher for training and attacks, of the kind that suits the terminal."""
    console = Console(file=cast(IO[str], Unfailing(sys.stderr)))
    if not console.is_terminal:
        yield Lines()
        return
    with BarsAndNotes(console) as progress:
        yield Bars(progress)


class Warnings:
    """Says nothing of a run but what looks wrong, by warnings of Python."""

    def stepped(self, step: int, steps: int, /) -> None:
        """Nothing is wrong with a step."""

    def logged(self, record: Record, /) -> None:
        """Nothing is wrong with a line of the log; a warning comes by itself."""

    def warned(self, sentence: str, /) -> None:
        """Warn whoever runs this."""
        warnings.warn(sentence, stacklevel=2)
