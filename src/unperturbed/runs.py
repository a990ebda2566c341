"""The directory of a run: what is in it, and how it is written so that no interruption loses anything.

recipe.json           the complete recipe, with a checksum of the images it was followed on
log.jsonl             a line for each logged step
checkpoint.pt         everything needed to go on: tensors and plain values only, with a checksum
checkpoint-before.pt  the checkpoint before that one, should it be damaged
model.safetensors     the weights of the finished model
report.json           what an evaluation found
trust.json            reasons not to believe it, looked for by evaluate --trust
sweep.json            what it found at several perturbation fractions, for a curve
report-1a2b3c4d.json  a report that was replaced by one on other images or with other settings; so too for sweeps and
                      trust cards
attack.json           what attacks that were interrupted have found so far
model-other.safetensors  the weights that a finished run did not keep, in a reproduction
report-other.json     what an evaluation found on the weights that were not kept, in a reproduction
report-slow.json      what attacks that take long found on fewer images, in a reproduction
reproduced.json       what a reproduction noted: runs that shared the device, surfaces
tensorboard           event files, if they were asked for
.lock                 the process that trains here, while it does
"""

import io
import json
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import safetensors
import safetensors.torch
import torch
from torch import nn

from . import locks
from . import recipe as recipes
from .answers import in_mode
from .checkpoints import FORMAT, State, opened, sealed, whole
from .datasets import Use
from .files import explained, half_written, names_in, remove_leftovers, write_whole
from .misnamed import no_run
from .printing import in_shell, printable
from .recipe import Recipe

USE = "unperturbed"
"""under which the file of the weights says what they are for: one entry, whose place is always the same"""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The complete recipe."""
        return self.path / "recipe.json"

    @property
    def log(self) -> Path:
        """A line for each logged step."""
        return self.path / "log.jsonl"

    @property
    def checkpoint(self) -> Path:
        """Everything needed to go on."""
        return self.path / "checkpoint.pt"

    @property
    def checkpoint_before(self) -> Path:
        """The checkpoint before that one."""
        return self.path / "checkpoint-before.pt"

    @property
    def weights(self) -> Path:
        """The weights of the finished model."""
        return self.path / "model.safetensors"

    @property
    def report(self) -> Path:
        """What an evaluation found."""
        return self.path / "report.json"

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is one to go on from."""
        return self.checkpoint.exists() or self.checkpoint_before.exists()

    def check(self, recipe: Recipe) -> None:
        """Refuse a directory of another recipe, of no run at all, or of one that has ended for good.

        Nothing in it is touched.
        """
        file, wanted = self.recipe, recipes.dumps(recipe)
        if file.exists() and file.read_bytes() != wanted.encode() and completed(file) != wanted:
            raise ValueError(f"{self.path} holds a run {difference(file, recipe)}")
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file, expected a directory for the run: name another --out")
        foreign = [name for name in names_in(self.path) if name != locks.NAME and not half_written(name)]
        if foreign and not file.exists():
            raise ValueError(f"{self.path} holds files but no recipe.json, so it is no run: name another --out")
        if self.weights.exists() and not self.has_checkpoint:
            raise ValueError(
                f"{self.path} holds a finished run without a checkpoint, which would start from its first step and "
                f"write over its weights: name another --out, or delete {self.weights.name} there to train it anew"
            )

    @contextmanager
    def alone(self, waiting: Callable[[str], None] | None = None) -> Generator[None]:
        """Keep other processes from training here; where one does, that is refused, or waited for."""
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = locks.acquire(self.path, waiting)
        try:
            remove_leftovers(self.path, alone=lock is not None)
            yield
        finally:
            if lock is not None:
                lock.release()

    def claim(self, recipe: Recipe) -> None:
        """Make the directory this recipe's, or check that it is; another recipe's is refused untouched."""
        self.check(recipe)
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if not self.recipe.exists():
            write_whole(self.recipe, recipes.dumps(recipe).encode())

    def read_recipe(self) -> Recipe:
        """The recipe of the run in this directory."""
        if not self.recipe.is_file():
            raise FileNotFoundError(no_run(self.path))
        return recipes.read(self.recipe)

    def write_checkpoint(self, state: State, recipe: Recipe | None = None) -> None:
        """Make this the newest checkpoint and keep the one before it; at every moment one of them is there, whole.

        The log is brought to the disk first, so that after a power cut it holds all lines up to the checkpoint.
        """
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, "recipe": recipe and recipes.dumps(recipe), **state}, buffer)
        if self.log.exists():
            with explained(self.log), self.log.open("rb+") as file:
                os.fsync(file.fileno())
        write_whole(self.checkpoint, sealed(buffer.getvalue()), before=self.checkpoint_before)

    def mend(self, say: Callable[[str], None] | None = None) -> None:
        """Replace a newest checkpoint that is damaged by the one before it, and say so."""
        if not self.checkpoint.exists() or whole(self.checkpoint.read_bytes()) or not self.checkpoint_before.exists():
            return
        state = opened(self.checkpoint_before.read_bytes(), torch.device("cpu"))
        if state is None:
            return
        with explained(self.checkpoint):
            self.checkpoint_before.replace(self.checkpoint)
        if say is not None:
            say(f"{self.checkpoint} was damaged: the run goes on from the one before it, of step {state['step']}")

    def read_checkpoint(self, device: torch.device) -> State | None:
        """The newest state that is whole, or none where the run has not got that far."""
        found = [file for file in (self.checkpoint, self.checkpoint_before) if file.exists()]
        for file in found:
            state = opened(file.read_bytes(), device)
            if state is not None:
                return state
        if not found:
            return None
        what, them = ("is no whole checkpoint", "it") if len(found) == 1 else ("are no whole checkpoints", "both")
        if self.weights.exists():
            them = f"{', '.join(each.name for each in found)} and {self.weights.name} there"
        raise ValueError(
            f"{' and '.join(map(str, found))} {what} of unperturbed: delete {them} to start this run anew"
        )

    def write_log(self, record: Mapping[str, float | int]) -> None:
        """Append a line to the log."""
        with explained(self.log), self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def read_log(self) -> list[dict[str, float]]:
        """The lines of the log; those that are damaged, as the last one by an interruption, are left out."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return [record for line in text.split("\n") if (record := log_record(line)) is not None]

    def forget_log_after(self, step: int) -> None:
        """Drop the lines of steps that will be taken again."""
        kept = "".join(json.dumps(record) + "\n" for record in self.read_log() if record["step"] <= step).encode()
        if self.log.exists() and self.log.read_bytes() != kept:
            write_whole(self.log, kept)

    def write_weights(self, f: nn.Module, use: Use) -> None:
        """Write the weights of the finished model, and what it is to be used for; of tied ones, each by itself."""
        with in_mode(f, training=True):
            tensors = {name: each.detach().cpu().contiguous().clone() for name, each in f.state_dict().items()}
        write_whole(self.weights, safetensors.torch.save(tensors, {USE: use.dumps()}))

    def read_use(self) -> Use | None:
        """What the file of the weights says of the model's use; none where it says nothing."""
        try:
            with safetensors.safe_open(self.weights, "pt") as file:
                said = (file.metadata() or {}).get(USE)
            return None if said is None else Use.loads(said)
        except (safetensors.SafetensorError, ValueError, TypeError, KeyError, RecursionError, OSError):
            return None

    def read_weights(self, f: nn.Module) -> None:
        """Load the weights of the finished model into f."""
        if not self.weights.is_file():
            raise FileNotFoundError(
                f"{self.path} holds no finished model (no model.safetensors): {self.to_be_finished()}"
            )
        with self.weights.open("rb"):
            pass  # Of a file that may not be read safetensors says that there is none.
        try:
            with in_mode(f, training=True):
                f.load_state_dict(safetensors.torch.load_file(self.weights))
        except (safetensors.SafetensorError, RuntimeError) as error:
            reason = printable(str(error).splitlines()[-1].strip())
            without = "put that file back, or train anew by its recipe.json and another --out"
            advice = f"`{self.training_again()}` writes them again" if self.has_checkpoint else without
            said = f"{self.weights} does not hold the weights of this recipe's model ({reason}): {advice}"
            raise ValueError(said) from None

    def to_be_finished(self) -> str:
        """What to do where there is no finished model; a process that was killed leaves the file of its lock too."""
        wait = "wait where a process still trains there, else " if (self.path / locks.NAME).exists() else ""
        return f"{wait}finish it with `{self.training_again()}`"

    def training_again(self) -> str:
        """The command that goes on with this run; of a finished one it writes the weights again."""
        return f"unperturbed train --from {in_shell(self.recipe)} --out {in_shell(self.path)}"


def log_record(line: str) -> dict[str, float] | None:
    """The record in a line of the log, or none where the line is damaged."""
    try:
        record = json.loads(line) if line.endswith("}") else None
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, float], record) if isinstance(record, dict) and type(record.get("step")) is int else None


def completed(file: Path) -> str | None:
    """The recipe in that file as it is written today: that of an earlier version lacks what came later."""
    try:
        return recipes.dumps(recipes.read(file))
    except ValueError:
        return None


def difference(file: Path, recipe: Recipe) -> str:
    """What the run with the recipe in that file is, and what to do; the first field that differs is named."""
    another = "of another recipe ({}): name another --out, or delete that directory"
    try:
        text = completed(file) or file.read_text(encoding="utf-8")
        old, new = flat(json.loads(text)), flat(recipes.plain(recipe))
    except (ValueError, RecursionError):
        return another.format("its recipe.json cannot be read")
    key = next((key for key in [*new, *old] if old.get(key) != new.get(key)), None)
    if key == "data.sha256":
        return (
            f"on other images or labels (their SHA-256 is {beginning(old.get(key))} there and "
            f"{beginning(new[key])} here): restore the data of {recipe.data.sources}, or name another --out"
        )
    if key is None:
        return another.format("written in another way")
    return another.format(f"{key} is {old.get(key)} there and {new.get(key)} here")


def beginning(checksum: object) -> str:
    """The beginning of a checksum, which tells it from others."""
    return f"{str(checksum)[:12]}…" if checksum else "not known"


def flat(tree: object, prefix: str = "") -> dict[str, object]:
    """A JSON tree as dotted names and values."""
    if not isinstance(tree, dict):
        return {prefix.removesuffix("."): tree}
    leaves: dict[str, object] = {}
    for key, value in cast(dict[str, object], tree).items():
        leaves |= flat(value, f"{prefix}{key}.")
    return leaves
