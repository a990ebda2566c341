"""What a reproduction notes in the directory of a run, beside what the run writes there itself."""

import json
from collections.abc import Callable, Mapping, Set
from math import inf
from pathlib import Path
from typing import Any, cast

from ..files import write_whole
from ..printing import printable
from ..version import __version__

NOTES = "reproduced.json"
"""what a reproduction notes in the directory of a run: its device, runs that shared it, versions of this package,
seconds of its teacher and runs that shared the device with that, its best step and its surfaces"""


def is_text(value: Any) -> bool:
    """Whether a note is one in words."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Whether a note counts runs, of which there is one at least."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_duration(value: Any) -> bool:
    """Whether a note is of seconds."""
    return is_number(value) and 0 <= value < inf


def is_number(value: Any) -> bool:
    """Whether a value is a number, be it none that is finite."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_numbers(value: Any) -> bool:
    """Whether a note has numbers by name."""
    return isinstance(value, dict) and all(map(is_number, cast(dict[str, Any], value).values()))


def are_lists(value: Any) -> bool:
    """Whether a note has lists of numbers by name."""
    rows = cast(dict[str, Any], value).values() if isinstance(value, dict) else (None,)
    return all(isinstance(row, list) and all(map(is_number, cast(list[Any], row))) for row in rows)


KINDS_OF_NOTES: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("trained_on", "trained_by", "failed"), is_text),
    **dict.fromkeys(("together", "teacher_together"), is_count),
    "selected": are_numbers,
    "surfaces": are_lists,
    "teacher_seconds": is_duration,
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
    return name not in KINDS_OF_NOTES or KINDS_OF_NOTES[name](value)


def note(directory: Path, **changes: object) -> None:
    """Add to what is noted of a run."""
    write_whole(directory / NOTES, json.dumps(read_notes(directory) | changes).encode())


def note_circumstances(directory: Path, devices: set[str], together: int, versions: Set[str] = frozenset()) -> None:
    """Note what a run's own files do not tell: devices, how many runs shared them, versions of this package."""
    before = read_notes(directory)
    note(
        directory,
        trained_on=", ".join(sorted(listed(before, "trained_on") | devices)),
        trained_by=", ".join(sorted(listed(before, "trained_by") | versions | {__version__})),
        together=max(together, int(before.get("together", 1))),
    )


def listed(notes: Mapping[str, Any], what: str) -> set[str]:
    """The words of a note that lists several."""
    return {word for word in str(notes.get(what, "")).split(", ") if word}
