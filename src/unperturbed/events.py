"""TensorBoard: what the log of a run holds, as event files in its directory, while the run is going."""

import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .files import explained
from .progress import HELD_OUT, Record, Watcher, watcher_of_teacher

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

FOLDER = "tensorboard"
"""its name in the directory of a run"""
TAGS: Mapping[str, str] = {
    "standard": "terms/standard",
    "robust": "terms/robust",
    "rate": "schedule/rate",
    "robust_weight": "schedule/robust_weight",
    "labeled_accuracy": "prediction/labeled_accuracy",
    "largest_class_share": "prediction/largest_class_share",
    HELD_OUT: f"prediction/{HELD_OUT}",
    "images_per_second": "speed/images_per_second",
}
"""under which heading TensorBoard shows each number of the log"""


class Events:
    """A watcher that writes event files and tells another watcher all that it is told."""

    def __init__(self, directory: Path, watcher: Watcher) -> None:
        self.folder, self.watcher = directory / FOLDER, watcher
        self.writer: SummaryWriter | None = None
        self.step = 0
        self.hook = threading.excepthook

    def __enter__(self) -> Self:
        self.hook, threading.excepthook = threading.excepthook, self.quiet_about_the_writer
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            with explained(self.folder):
                if self.writer is not None:
                    self.writer.close()
        finally:
            threading.excepthook = self.hook

    def quiet_about_the_writer(self, failed: threading.ExceptHookArgs) -> None:
        """TensorBoard writes in a thread, whose errors it raises again where it is asked to write: once is enough."""
        if failed.thread is None or not type(failed.thread).__module__.startswith("tensorboard"):
            self.hook(failed)

    def opened(self) -> "SummaryWriter":
        """The writer; a run that goes on tells TensorBoard to forget the steps that are taken again."""
        if self.writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            with explained(self.folder):
                self.writer = SummaryWriter(self.folder, purge_step=self.step)
        return self.writer

    def of_teacher(self) -> Watcher:
        return watcher_of_teacher(self.watcher)

    def stepped(self, step: int, steps: int, /) -> None:
        self.step = step
        self.opened()
        self.watcher.stepped(step, steps)

    def logged(self, record: Record, /) -> None:
        writer = self.opened()
        with explained(self.folder):
            for name, tag in TAGS.items():
                if name in record:
                    writer.add_scalar(tag, record[name], int(record["step"]))
            writer.flush()
        self.watcher.logged(record)

    def warned(self, sentence: str, /) -> None:
        # Before the first step the directory may not be this run's yet.
        if self.writer is not None:
            self.writer.add_text("warnings", sentence, self.step)
        self.watcher.warned(sentence)


def require_tensorboard() -> None:
    """Refuse to write event files where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise ImportError(
            "--tensorboard needs the package tensorboard, which is not installed: "
            "pip install 'unperturbed[tensorboard]', or leave the option out"
        )
