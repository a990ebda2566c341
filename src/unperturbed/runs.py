"""The directory of a run: what is in it, and how it is written so that no interruption loses anything.

recipe.json        the complete recipe
log.jsonl          a line for each logged step
checkpoint.pt      everything needed to go on: tensors and plain values only
model.safetensors  the weights of the finished model
report.json        what an evaluation found
"""

import io
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from . import recipe as recipes
from .recipe import Recipe

State = dict[str, Any]
FORMAT = 1
LONGEST_WRITE = 3600.0
"""seconds after which nobody is still writing a file"""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """Everything needed to go on."""
        return self.path / "checkpoint.pt"

    @property
    def weights(self) -> Path:
        """The weights of the finished model."""
        return self.path / "model.safetensors"

    @property
    def report(self) -> Path:
        """What an evaluation found."""
        return self.path / "report.json"

    def claim(self, recipe: Recipe) -> None:
        """Make the directory this recipe's, or check that it is; another recipe's is refused untouched."""
        text, file = recipes.dumps(recipe), self.path / "recipe.json"
        if file.exists() and file.read_bytes() != text.encode():
            raise ValueError(
                f"{self.path} holds a run of another recipe ({difference(file, recipe)}): "
                "name another --out, or delete that directory"
            )
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file, expected a directory for the run: name another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        files = set(self.path.iterdir())
        half_written = {path for path in files if path.match(".*.new")}
        if files > half_written and not file.exists():
            raise ValueError(f"{self.path} holds files but no recipe.json, so it is no run: name another --out")
        sweep(half_written)
        if not file.exists():
            write_whole(file, text.encode())

    def read_recipe(self) -> Recipe:
        """The recipe of the run in this directory."""
        if not (self.path / "recipe.json").is_file():
            raise FileNotFoundError(
                f"{self.path} holds no run (no recipe.json): make one with unperturbed train RECIPE --out {self.path}"
            )
        return recipes.read(self.path / "recipe.json")

    def write_checkpoint(self, state: State) -> None:
        """Replace the checkpoint in one move: a reader sees the old one or the new one, whole."""
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, **state}, buffer)
        write_whole(self.checkpoint, buffer.getvalue())

    def read_checkpoint(self, device: torch.device) -> State | None:
        """The newest state, or none where the run has not got that far."""
        if not self.checkpoint.exists():
            return None
        sentence = f"{self.checkpoint} is no whole checkpoint of unperturbed: delete it to start this run anew"
        try:
            state = torch.load(self.checkpoint, map_location=device, weights_only=True)
        except OSError:
            raise
        except Exception as error:  # A damaged file makes the reader fail in all ways there are.
            raise ValueError(sentence) from error
        if not isinstance(state, dict) or cast(State, state).get("format") != FORMAT:
            raise ValueError(sentence)
        return cast(State, state)

    def write_log(self, record: Mapping[str, float | int]) -> None:
        """Append a line to the log."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def read_log(self) -> list[dict[str, float]]:
        """The lines of the log; one that was cut off by an interruption is left out."""
        file = self.path / "log.jsonl"
        lines = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def forget_log_after(self, step: int) -> None:
        """Drop the lines of steps that will be taken again."""
        kept = [record for record in self.read_log() if record["step"] <= step]
        if kept or (self.path / "log.jsonl").exists():
            write_whole(self.path / "log.jsonl", "".join(json.dumps(record) + "\n" for record in kept).encode())

    def write_weights(self, state: Mapping[str, Tensor]) -> None:
        """Write the weights of the finished model."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        write_whole(self.weights, safetensors.torch.save(tensors))

    def read_weights(self, f: nn.Module) -> None:
        """Load the weights of the finished model into f."""
        if not self.weights.is_file():
            raise FileNotFoundError(
                f"{self.path} holds no finished model (no model.safetensors): "
                f"finish it with `unperturbed train --from {self.path / 'recipe.json'} --out {self.path}`"
            )
        try:
            f.load_state_dict(safetensors.torch.load_file(self.weights))
        except (safetensors.SafetensorError, RuntimeError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"{self.weights} does not hold the weights of this recipe's model ({reason})") from None


def write_whole(path: Path, content: bytes) -> None:
    """Write to a new file, flush it to the disk and rename it; on failure the old file stays as it was."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OSError(f"could not write {path} ({error.strerror}): what was there before is kept") from error


def sweep(half_written: Iterable[Path]) -> None:
    """Remove what killed processes left; younger files may be the work of one that is alive."""
    for file in half_written:
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > LONGEST_WRITE:
                file.unlink()


def difference(file: Path, recipe: Recipe) -> str:
    """The first field in which the recipe in that file differs from this one, in words."""
    try:
        old, new = flat(json.loads(file.read_text(encoding="utf-8"))), flat(recipes.plain(recipe))
    except (ValueError, RecursionError):
        return "its recipe.json cannot be read"
    for key in [*new, *old]:
        if old.get(key) != new.get(key):
            return f"{key} is {old.get(key)} there and {new.get(key)} here"
    return "written in another way"


def flat(tree: object, prefix: str = "") -> dict[str, object]:
    """A JSON tree as dotted names and values."""
    if not isinstance(tree, dict):
        return {prefix.removesuffix("."): tree}
    leaves: dict[str, object] = {}
    for key, value in cast(dict[str, object], tree).items():
        leaves |= flat(value, f"{prefix}{key}.")
    return leaves
