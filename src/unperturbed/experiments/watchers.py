"""Who watches a reproduction: one notes what is to be told of a training, one ends attacks that are to stop."""

from collections.abc import Callable
from pathlib import Path

from ..progress import Bars, Lines, Titled
from ..recipe import Recipe, of_teacher
from ..runs import RunDirectory
from ..signals import StoppedError
from .gathered import seconds_of
from .notes import listed, note, note_circumstances, read_notes


class FirstStep:
    """A watcher that does something with the first step, since nothing is done after a kill."""

    def __init__(self, watcher: Titled, act: Callable[[], None]) -> None:
        self.watcher, self.act, self.acted = watcher, act, False
        self.logged, self.warned = watcher.logged, watcher.warned

    def stepped(self, step: int, steps: int, /) -> None:
        if not self.acted:
            self.act()
            self.acted = True
        self.watcher.stepped(step, steps)


class Noting(FirstStep):
    """A watcher that notes the circumstances of a run and, where that is trained now, of its teacher."""

    def __init__(
        self,
        watcher: Titled,
        directory: Path,
        recipe: Recipe,
        teachers: Path,
        device: str,
        runs: int,
        beside: int,
    ) -> None:
        super().__init__(watcher, self.note)
        self.directory, self.recipe, self.teachers = directory, recipe, teachers
        self.device, self.together, self.teacher_together = device, runs + beside, 1 + beside

    def of_teacher(self) -> FirstStep:
        return FirstStep(self.watcher.of_teacher(), self.note_teacher)

    def note(self) -> None:
        taught = teachers_of(self.recipe, self.teachers)
        of_them = [read_notes(path) for path in taught]
        devices = {device for notes in of_them for device in listed(notes, "trained_on")}
        versions = {version for notes in of_them for version in listed(notes, "trained_by")}
        note_circumstances(self.directory, {self.device, *devices}, self.together, versions)
        note(
            self.directory,
            teacher_seconds=max((seconds_of(RunDirectory(path)) for path in taught), default=0.0),
            teacher_together=max((int(notes.get("together", 1)) for notes in of_them), default=1),
        )

    def note_teacher(self) -> None:
        """Note that of the teacher, which is trained before the runs of this command that share a device."""
        for path in teachers_of(self.recipe, self.teachers):
            note_circumstances(path, {self.device}, self.teacher_together)


class Stopping:
    """A watcher of attacks that ends them between two batches once they are to stop."""

    def __init__(self, watcher: Bars | Lines, title: str, stop: Callable[[], bool]) -> None:
        self.watcher, self.title, self.stop = watcher, title, stop

    def attacked(self, name: str, done: int, images: int, standing: float, /) -> None:
        self.watcher.title = self.title
        self.watcher.attacked(name, done, images, standing)
        if done < images and self.stop():
            raise StoppedError(
                f"stopped while attacking {self.title} with {name}; the same command goes on from there"
            )


def teachers_of(recipe: Recipe, teachers: Path) -> list[Path]:
    """The folders among the teachers that hold the one of a recipe, on whatever images."""
    if recipe.labeler != "teacher" or not teachers.is_dir():
        return []
    folders = [path for path in sorted(teachers.iterdir()) if RunDirectory(path).recipe.is_file()]
    return [path for path in folders if RunDirectory(path).read_recipe() == of_teacher(recipe)]
