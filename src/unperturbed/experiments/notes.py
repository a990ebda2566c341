"""What a reproduction notes in the directory of a run, beside what the run writes there itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ..files import write_whole
from ..printing import printable

NOTES = "reproduced.json"
"""what a reproduction notes in the directory of a run: its device, runs that shared it, versions of this package,
seconds of its teacher and runs that shared the device with that, its best step and its surfaces"""
KINDS_OF_NOTES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("trained_on", "trained_by", "failed"), (str,)),
    **dict.fromkeys(("together", "teacher_together"), (int,)),
    **dict.fromkeys(("selected", "surfaces"), (dict,)),
    "teacher_seconds": (int, float),
}


def read_notes(directory: Path) -> dict[str, Any]:
    """What a reproduction noted of a run."""
    file = directory / NOTES
    if not file.is_file():
        return {}
    try:
        tree = json.loads(file.read_bytes())
    except ValueError:
        tree = None
    # Without it a run that shared its device would count as one that had it alone.
    if not isinstance(tree, dict) or not all(map(rightly_noted, cast(dict[str, Any], tree).items())):
        raise ValueError(f"{printable(file)} is damaged: restore it, or delete {printable(directory)} to start anew")
    return cast(dict[str, Any], tree)


def rightly_noted(entry: tuple[str, object]) -> bool:
    """Whether a note is of the kind that its name says."""
    name, value = entry
    return isinstance(value, KINDS_OF_NOTES.get(name, object))


def note(directory: Path, **changes: object) -> None:
    """Add to what is noted of a run."""
    write_whole(directory / NOTES, json.dumps(read_notes(directory) | changes).encode())
