"""Files that are written whole or not at all, what killed processes leave of them, and what refuses damaged ones."""

import hashlib
import os
import time
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .printing import printable, shortened

LONGEST_WRITE = 3600.0
"""seconds after which nobody is still writing a file"""
DAMAGE = (KeyError, TypeError, AttributeError, OverflowError, RuntimeError, RecursionError, zlib.error)
"""what reading a tree of JSON raises where it is another than what is expected; else it is a ValueError"""
WRITTEN_WITHOUT_LOCK = (".report", ".trust", ".sweep", ".attack.json.", ".reproduced.json.")
"""how the names of files begin that an evaluation may be writing while nobody trains"""


class NewerFormatError(ValueError):
    """A file is in a format that only later versions know."""


def at_home(place: str | Path) -> Path:
    """A place with ~ for a home directory; of a user whom nobody knows, as it is, for there may be no such place."""
    with suppress(RuntimeError):
        return Path(place).expanduser()
    return Path(place)


def write_whole(path: Path, content: bytes, *, before: Path | None = None) -> None:
    """Write to a new file, flush it to the disk and rename it; on failure the old file stays as it was.

    Where a place for the file before is named, the old one is moved there, else it is replaced.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    with explained(path):
        try:
            with fresh.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if before is not None and path.exists():
                path.replace(before)
            fresh.replace(path)
        except BaseException:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        flush_names(path.parent)


def write_anew(path: Path, content: bytes) -> None:
    """Write a file whole, in a folder that is made if it is not there."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def require_writable(files: Sequence[Path]) -> None:
    """Refuse, before any work is done, files that could not be written after it."""
    for file in files:
        folder = next(parent for parent in file.absolute().parents if parent.exists())
        with explained(file):
            if file.is_dir():
                raise IsADirectoryError("it is a directory")
            if not folder.is_dir():
                raise NotADirectoryError(f"{folder} is no directory")
            if not os.access(folder, os.W_OK):
                raise PermissionError(f"{folder} may not be written to")


def set_aside(path: Path) -> Path:
    """Keep a copy of a file that is about to be replaced, under a name that its content decides, and return it."""
    content = path.read_bytes()
    copy = path.with_stem(f"{path.stem}-{hashlib.sha256(content).hexdigest()[:8]}")
    write_whole(copy, content)
    return copy


def numbers_in(weights: Path) -> str:
    """A hash of the numbers in a file of safetensors; what it says of their use does not count."""
    content = weights.read_bytes()
    return hashlib.sha256(memoryview(content)[8 + int.from_bytes(content[:8], "little") :]).hexdigest()


def flush_names(directory: Path) -> None:
    """Bring the names of a directory's files to the disk, where the system can do so."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Say in a sentence what could not be written and why."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"could not write {path} ({error.strerror or error}): what was there before is kept; "
            "put that right and the same command goes on"
        ) from error


@contextmanager
def refused_if_damaged(source: str, kind: str, remedy: str, *, of: str = "unperturbed") -> Generator[None]:
    """Say in a sentence that a file of JSON is none of that kind, why, and what to do."""
    try:
        yield
    except NewerFormatError:
        told = "that this version can read (a newer version of unperturbed wrote it): update unperturbed"
        raise NewerFormatError(f"{printable(source)} is no {kind} {told}") from None
    except DAMAGE as error:
        reason = f"of {of} ({type(error).__name__}: {shortened(error)})"
    except ValueError as error:
        reason = f"that can be read ({shortened(error)})"
    else:
        return
    raise ValueError(f"{printable(source)} is no {kind} {reason}: {remedy}") from None


def names_in(directory: Path) -> list[str]:
    """The names of the files in a directory; none where there is no directory."""
    return [file.name for file in directory.iterdir()] if directory.is_dir() else []


def half_written(name: str) -> bool:
    """Whether a file of that name is one that `write_whole` has not finished."""
    return name.startswith(".") and name.endswith(".new")


def remove_leftovers(directory: Path, *, alone: bool) -> None:
    """Remove what killed processes left half-written; younger files may be the work of one that is alive."""
    for name in filter(half_written, names_in(directory)):
        file = directory / name
        with suppress(OSError):
            abandoned = alone and not name.startswith(WRITTEN_WITHOUT_LOCK)
            if abandoned or time.time() - file.stat().st_mtime > LONGEST_WRITE:
                file.unlink()
