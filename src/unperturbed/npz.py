"""Plain arrays out of an .npz file from a stranger: bounded before they are expanded, and never unpickled."""

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

import numpy as np

from .printing import printable, shortened

Array = np.ndarray[Any, Any]

ALWAYS_ALLOWED = 2**26
"""bytes that any file may expand to"""
LARGEST_RATIO = 100
"""how many times its size a larger file may expand to; images stay far below it, and a bomb reaches 1000"""
LONGEST_HEADER = 10_000
MOST_DIMENSIONS = 8
CHUNK = 2**20
TELLING = {"unlabeled_images": "unlabel", "classes": "names"}
"""words by which arrays of other names are known"""
MISTYPED = 0.8
"""from which likeness on an array is taken for one that is wanted and whose name was mistyped"""
MAGIC = b"\x93NUMPY"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DAMAGE = (ValueError, EOFError, RuntimeError, OverflowError, zipfile.BadZipFile, zlib.error, struct.error)
"""what the reader of archives raises where one is damaged"""
PLAIN = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|[SU]\d{1,6})")
DTYPE, ORDER, SHAPE = (
    r"'descr'\s*+:\s*+'([^']*+)'",
    r"'fortran_order'\s*+:\s*+(\w++)",
    r"'shape'\s*+:\s*+\(([^()]*+)\)",
)
ENTRY = rf"\s*+(?:{DTYPE}|{ORDER}|{SHAPE})\s*+"
HEADER = re.compile(rf"\s*+\{{{ENTRY},{ENTRY},{ENTRY},?+\s*+\}}\s*+")
"""possessive, so that no header takes long"""


def most_expanded(size: int) -> int:
    """Bytes that a compressed file of that size may expand to; only a bomb needs more."""
    return ALWAYS_ALLOWED + LARGEST_RATIO * size


def read_bounded(read: Callable[[int], bytes], size: int) -> bytearray:
    """At most that many bytes; memory is taken as they arrive, not as they are promised."""
    content = bytearray()
    while len(content) < size and (more := read(min(CHUNK, size - len(content)))):
        content += more
    return content


def plain_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Those of the named arrays that an .npz file holds."""
    if not path.is_file():
        where = "" if path.is_absolute() else f" in {printable(Path.cwd())}"
        other = "" if path.is_absolute() else ", or the folder that it lies in by --data"
        raise FileNotFoundError(
            f"the data file {printable(path)} does not exist{where}: name an .npz file that does{other}"
        )
    size = path.stat().st_size
    with path.open("rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                members = named_members(archive, names)
                check_sizes(members, size)
                return {name: read_member(archive, member, name) for name, member in members.items()}
        except ArchiveError as error:
            raise ValueError(f"{printable(path)} {error}: save it again, as plain arrays, with numpy.savez") from None
        except DAMAGE as error:
            raise ValueError(
                f"{printable(path)} is cut off or not an .npz file: save it again, as plain arrays, with numpy.savez"
            ) from error


class ArchiveError(Exception):
    """What is wrong with an archive, in the words that follow its name."""


def named_members(archive: zipfile.ZipFile, names: Sequence[str]) -> dict[str, zipfile.ZipInfo]:
    """The members that hold the named arrays; one that is there twice, or whose name is mistyped, is refused."""
    found: dict[str, zipfile.ZipInfo] = {}
    others = [member.filename.removesuffix(".npy") for member in archive.infolist()]
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name not in names or name == member.filename:
            continue
        if member.header_offset < 0:
            raise zipfile.BadZipFile(f"{name} is said to begin before the file does")
        if name in found:
            raise ArchiveError(f"holds {name} twice")
        found[name] = member
    unread = [other for other in others if other not in names]
    for name in names:
        similar = get_close_matches(name, unread, n=1, cutoff=MISTYPED) or likely(name, unread)
        if name not in found and similar:
            raise ArchiveError(f"holds {shortened(similar[0], 60)} in place of {name}")
    return {name: found[name] for name in names if name in found}


def likely(name: str, others: Sequence[str]) -> list[str]:
    """Those among others that are most likely meant to be the named array, though they are called quite otherwise."""
    word = TELLING.get(name)
    return [other for other in others if word is not None and word in other.lower()]


def check_sizes(members: dict[str, zipfile.ZipInfo], size: int) -> None:
    """Refuse members that are compressed in an unusual way, or that together expand to too much."""
    for name, member in members.items():
        if member.compress_type not in METHODS:
            raise ArchiveError(
                f"holds {name} compressed by method {member.compress_type}, which numpy does not write"
            )
    expanded, most = sum(member.file_size for member in members.values()), most_expanded(size)
    if expanded > most:
        raise ArchiveError(f"has {size} bytes and expands to {expanded}, expected at most {most}")


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Array:
    """One array, whose header must promise exactly the bytes that there are."""
    with archive.open(member) as stream:
        layout, header_size = read_layout(stream, name)
        promised = member.file_size - header_size
        if layout.size != promised:
            raise ArchiveError(
                f"holds {name} with {promised} bytes, expected {layout.size} for its shape {layout.shape}"
            )
        content = read_bounded(stream.read, promised)
        if len(content) != promised or stream.read(1):
            raise ArchiveError(f"holds {name} with {len(content)} bytes, expected {promised}")
    flat = np.frombuffer(content, dtype=layout.dtype)
    return flat.reshape(layout.shape, order="F" if layout.by_columns else "C")


@dataclass(frozen=True, slots=True)
class Layout:
    """What the header of an array says."""

    dtype: np.dtype[Any]
    by_columns: bool
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return self.dtype.itemsize * math.prod(self.shape)


def read_layout(stream: IO[bytes], name: str) -> tuple[Layout, int]:
    """The layout of an array in the format of numpy, and the bytes of the header that says it."""
    start = stream.read(8)
    if start[:6] != MAGIC or start[6:] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise ArchiveError(f"holds {name} in another format than numpy's")
    width = 2 if start[6] == 1 else 4
    (length,) = struct.unpack("<H" if width == 2 else "<I", stream.read(width))
    if length > LONGEST_HEADER:
        raise ArchiveError(f"holds {name} with a header of {length} bytes, expected at most {LONGEST_HEADER}")
    header = stream.read(length)
    return layout_of(header.decode("latin1"), name), 8 + width + length


def layout_of(header: str, name: str) -> Layout:
    """The layout that the text of a header says; arrays of Python objects and of records have none."""
    if "'|O'" in header or "'O'" in header:
        raise ArchiveError(f"holds Python objects in {name}")
    match = HEADER.fullmatch(header)
    said = [value for value in match.groups() if value is not None] if match else []
    kinds = [place % 3 for place, value in enumerate(match.groups()) if value is not None] if match else []
    if sorted(kinds) != [0, 1, 2]:
        raise ArchiveError(f"holds {name} with a header that describes no plain array")
    dtype, by_columns, shape = (said[kinds.index(kind)] for kind in range(3))
    if not PLAIN.fullmatch(dtype) or by_columns not in ("True", "False"):
        raise ArchiveError(
            f"holds {name} of the type {shortened(dtype, 20)}, expected bytes, integers, floats or text"
        )
    return Layout(np.dtype(dtype), by_columns == "True", shape_of(shape, name))


def shape_of(words: str, name: str) -> tuple[int, ...]:
    """The sizes in the words of a header, such as '60, 28, 28'."""
    words = words.strip().removesuffix(",")
    sizes = [word.strip() for word in words.split(",")] if words else []
    if len(sizes) > MOST_DIMENSIONS or not all(size.isascii() and size.isdigit() for size in sizes):
        raise ArchiveError(f"holds {name} of no proper shape, ({shortened(words, 40)})")
    if any(len(size) > 12 for size in sizes):
        raise ArchiveError(f"holds {name} of the absurd shape ({shortened(words, 80)})")
    return tuple(map(int, sizes))
