"""What is noted of a run while it is trained."""

from pathlib import Path

from ..progress import Titled
from .evidence import note_circumstances


class Noting:
    """A watcher that notes the circumstances of a run with its first step, since nothing is noted after a kill."""

    def __init__(self, watcher: Titled, directory: Path, device: str, together: int) -> None:
        self.watcher, self.directory, self.device, self.together = watcher, directory, device, together
        self.logged, self.warned, self.of_teacher = watcher.logged, watcher.warned, watcher.of_teacher
        self.noted = False

    def stepped(self, step: int, steps: int, /) -> None:
        if not self.noted:
            self.note()
        self.watcher.stepped(step, steps)

    def note(self, teacher_seconds: float = 0.0) -> None:
        note_circumstances(self.directory, self.device, self.together, teacher_seconds)
        self.noted = True
