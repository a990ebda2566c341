"""Of which scale the runs in a directory are, marked in it: numbers of two scales never stand side by side."""

import json
from pathlib import Path
from typing import Any

from ..files import write_anew
from .scales import Scale

FORMAT = 1
MARK = "reproduction.json"
"""the file that says so"""


def check_scale(out: Path, scale: Scale) -> None:
    """Refuse a directory with runs of another scale."""
    mark = out / MARK
    if not mark.is_file():
        return
    try:
        found: Any = json.loads(mark.read_text(encoding="utf-8"))
        theirs = found["scale"] if found["format"] == FORMAT else None
    except (ValueError, KeyError, TypeError):
        theirs = None
    if theirs is None:
        raise ValueError(f"{mark} is not of this version of unperturbed: name another --out")
    if theirs != scale:
        raise ValueError(f"{out} holds runs at scale {theirs}, not {scale}: name another --out, or --scale {theirs}")


def mark_scale(out: Path, scale: Scale) -> None:
    """Make a directory one of that scale, unless it is one already."""
    if not (out / MARK).is_file():
        write_anew(out / MARK, json.dumps({"format": FORMAT, "scale": scale}).encode())
