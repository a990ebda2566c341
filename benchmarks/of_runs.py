"""What is measured on runs, one after the other: written after each, and kept where a file holds it already."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    runs: tuple[Path, ...]
    """folders of runs on CIFAR-10"""
    data: Path | None = None
    """folder with CIFAR-10"""
    images: int = 300
    """the first of the test images"""
    device: str = "cpu"
    """on which they are attacked"""
    out: Path
    """file for the numbers; runs that it holds on as many images are kept"""


def without_seed(folder: Path) -> str:
    """The trial that a run belongs to."""
    return folder.name.rpartition("-seed-")[0]


def each_of(
    folders: Sequence[Path],
    images: int,
    out: Path,
    measure: Callable[[Path], dict[str, Any]],
    named: Callable[[Path], str] = without_seed,
) -> dict[str, Any]:
    """What was found on so many images for each of these runs, and for those that the file holds."""
    runs: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["runs"] if out.exists() else {}
    for folder in folders:
        name = named(folder)
        if runs.get(name, {}).get("images") != images:
            runs[name] = {"images": images, **measure(folder)}
            out.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
            print(f"{name} is measured", flush=True)
    return json.loads(out.read_text(encoding="utf-8"))
