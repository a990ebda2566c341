"""A lock on a directory: one process at a time, and the system lets go of it when that process dies."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EACCES, EAGAIN
from pathlib import Path
from typing import BinaryIO

NAME = ".lock"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that this process holds."""

    path: Path
    file: BinaryIO

    def release(self) -> None:
        """Let others in and leave nothing behind."""
        with suppress(OSError):
            self.path.unlink()
        self.file.close()


def acquire(directory: Path, waiting: Callable[[str], None] | None = None) -> Lock | None:
    """The lock on that directory; none where the system has no locks.

    A directory that another process holds is refused, or, where `waiting` is given, that is called with the
    refusal until the other one is done.
    """
    path = directory / NAME
    while True:
        file = path.open("ab+")
        try:
            answer = locked(file)
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            return None
        if answer and still_there(path, file):
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            file.flush()
            return Lock(path, file)
        file.seek(0)
        holder = file.read().decode(errors="replace").strip()
        file.close()
        if answer:
            continue
        who = f"process {holder}" if holder else "another process"
        sentence = (
            f"{directory} is in use by {who}, which trains there: wait for it or stop it, or name another --out"
        )
        if waiting is None:
            raise ValueError(sentence)
        waiting(sentence)


def locked(file: BinaryIO) -> bool:
    """Whether this process holds the lock on the file now; an OSError where there are no locks."""
    try:
        import fcntl
    except ImportError:
        raise OSError("this system has no locks of this kind") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (EACCES, EAGAIN):
            return False
        raise
    return True


@contextmanager
def by_turns(directory: Path) -> Generator[None]:
    """Let one process at a time read a file in that directory and write it anew; the others wait until it has.

    It is no lock of training, leaves nothing behind, and where the system has none of its kind nobody waits.
    """
    try:
        import fcntl

        descriptor = os.open(directory, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def still_there(path: Path, file: BinaryIO) -> bool:
    """Whether the file is still the one at that path; who held it before has removed it on leaving."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
