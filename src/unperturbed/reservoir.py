"""Unlabeled images that need not fit into memory: files of bytes, read row by row shortly before they are needed.

Files are read at a place, not mapped into memory. Both go through the page cache, but a mapped file that shrinks, or
whose disk fails, ends a process by a signal, without a sentence.
"""

import math
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .files import at_home
from .npz import DAMAGE, ArchiveError, Layout, read_layout
from .printing import printable

Shape = tuple[int, int, int]
RAW = (".bin", ".raw")
ENDINGS = (".npy", *RAW)
MOST_OPEN = 64
"""files that are held open at a time"""
AHEAD = 8
"""batches that are read before they are needed"""
PIECE = 2**16
"""bytes of a file that are read at once for a checksum, or announced at once to the system"""
PIECES = 1024
"""pieces of all files together that a checksum is made of, where they hold more"""


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A file of images of one shape, one after the other, as bytes."""

    path: Path
    start: int
    """bytes before the first image"""
    count: int
    """images in it"""


class Reservoir:
    """D_U where it is not a tensor: rows are the images that lie in memory, then those of the files, in order."""

    dtype = torch.uint8

    def __init__(self, resident: Tensor, files: Sequence[ImageFile]) -> None:
        self.resident, self.files = resident, tuple(files)
        self.image = math.prod(resident.shape[1:])
        """bytes of an image"""
        self.starts = list(accumulate((file.count for file in files), initial=len(resident)))
        """the row at which each file begins, and at last the number of all rows"""
        self.opened: OrderedDict[int, FileIO] = OrderedDict()
        self.reading = threading.Lock()

    def __len__(self) -> int:
        return self.starts[-1]

    def __del__(self) -> None:
        for stream in self.opened.values():
            stream.close()

    @property
    def shape(self) -> tuple[int, ...]:
        """As of a tensor that holds all the images."""
        return (len(self), *self.resident.shape[1:])

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Those images; files are read in the order in which the images lie."""
        images = torch.empty((len(rows), *self.shape[1:]), dtype=torch.uint8)
        targets, numbers = images.numpy().reshape(len(rows), self.image), rows.tolist()
        with self.reading:
            for place in rows.argsort().tolist():
                row = numbers[place]
                if row < len(self.resident):
                    images[place] = self.resident[row]
                else:
                    number = bisect_right(self.starts, row) - 1
                    self.read(number, (row - self.starts[number]) * self.image, targets[place].data)
        return images

    def read(self, number: int, place: int, target: memoryview) -> None:
        """Fill the target with bytes of a file, from a place among its images on."""
        file, filled = self.files[number], 0
        with explained(file.path):
            stream = self.stream(number)
            stream.seek(file.start + place)
            while filled < len(target) and (more := stream.readinto(target[filled:])):
                filled += more
            if filled == len(target):
                return
            end = os.fstat(stream.fileno()).st_size
        raise ValueError(
            f"{printable(file.path)} ends at byte {end}, but when the run began it held {file.count} images in "
            f"{file.start + file.count * self.image} bytes: restore it, and the same command goes on from the "
            "last checkpoint"
        )

    def stream(self, number: int) -> FileIO:
        """A file, opened; the one that was not asked for the longest is closed for it."""
        if number not in self.opened:
            if len(self.opened) >= MOST_OPEN:
                self.opened.popitem(last=False)[1].close()
            self.opened[number] = FileIO(self.files[number].path, "rb")
        self.opened.move_to_end(number)
        return self.opened[number]

    def announce(self, rows: Tensor) -> None:
        """Have the system fetch images into its page cache, without waiting for them; rows are as the images lie."""
        if not hasattr(os, "posix_fadvise"):
            return
        ends = [*((rows.diff() != 1).nonzero().flatten() + 1).tolist(), len(rows)]
        with self.reading:
            for first, end in zip([0, *ends], ends, strict=False):
                if end > first and (last := int(rows[end - 1]) + 1 - len(self.resident)) > 0:
                    row = max(0, int(rows[first]) - len(self.resident))
                    for number, place, size in self.stretches(row * self.image, last * self.image):
                        with suppress(OSError):  # If a file cannot be read, that is said when it is needed.
                            stream, start = self.stream(number), self.files[number].start
                            os.posix_fadvise(stream.fileno(), start + place, size, os.POSIX_FADV_WILLNEED)

    def stretches(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """A range of the bytes of all files, in pieces: the number of a file, a place among its images, a length."""
        while begin < end:
            number = bisect_right(self.starts, len(self.resident) + begin // self.image) - 1
            place = begin - (self.starts[number] - len(self.resident)) * self.image
            size = min(PIECE, end - begin, self.files[number].count * self.image - place)
            yield number, place, size
            begin += size

    def sample(self) -> Iterator[memoryview]:
        """Bytes for a checksum: all where files are small, else pieces from their first to their last byte."""
        yield self.resident.contiguous().flatten().numpy().data
        total = (len(self) - len(self.resident)) * self.image
        begins: Sequence[int] = range(0, total, PIECE)
        if len(begins) > PIECES:
            begins = [piece * (total - PIECE) // (PIECES - 1) for piece in range(PIECES)]
        with self.reading:
            for begin in begins:
                for number, place, size in self.stretches(begin, min(begin + PIECE, total)):
                    self.read(number, place, piece := memoryview(bytearray(size)))
                    yield piece

    def brightest(self) -> int:
        """The largest of these bytes."""
        return max((int(np.frombuffer(piece, np.uint8).max(initial=0)) for piece in self.sample()), default=0)


class Ahead:
    """Batches of a reservoir, read in a thread of their own before they are needed."""

    def __init__(self, read: Callable[[int, bool], Tensor], steps: int) -> None:
        """`read` is given the number of a step, and whether none was read before it."""
        self.read, self.steps = read, steps
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="unlabeled images")
        self.coming: dict[int, Future[Tensor]] = {}

    def __call__(self, step: int) -> Tensor:
        """The images of a step; those of the next ones are on their way then."""
        for number in [number for number in self.coming if not step <= number < step + AHEAD]:
            self.coming.pop(number).cancel()
        fresh = not self.coming
        for number in range(step, min(step + AHEAD, self.steps)):
            if number not in self.coming:
                self.coming[number] = self.thread.submit(self.read, number, fresh and number == step)
        return self.coming[step].result()


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Say in a sentence what could not be read and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OSError(
            f"could not read {printable(path)} ({reason}): put that right, and the same command goes on"
        ) from error


def image_files(places: Sequence[str], shape: Shape) -> list[ImageFile]:
    """The files that are named, and those in the folders that are named, in the order of their names."""
    if "" in places:
        raise ValueError("a file of unlabeled images has no name: name it, or a folder, as . for this one")
    files = [file for place in places for file in files_at(at_home(place))]
    known: set[Path] = set()
    for file in files:
        if (real := file.resolve()) in known:
            raise ValueError(f"{printable(file)} is named twice, but its images count once: leave it out once")
        known.add(real)
    return [image_file(file, shape) for file in files]


def files_at(place: Path) -> list[Path]:
    """The file of that name, or the files of images in the folder of that name."""
    wanted = f"a file that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    with explained(place):
        is_folder, is_file, exists = place.is_dir(), place.is_file(), place.exists()
        inside = sorted(place.iterdir()) if is_folder else []
        found = [file for file in inside if file.suffix.lower() in ENDINGS and file.is_file()]
    if is_folder and not found:
        raise FileNotFoundError(
            f"the folder {printable(place)} holds no unlabeled images, expected {wanted}: add some"
        )
    if is_folder:
        return found
    if not is_file:
        fault = "is neither a file nor a folder" if exists else "does not exist"
        raise FileNotFoundError(f"{printable(place)} {fault}, expected {wanted}, or a folder of them: name one")
    if place.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"{printable(place)} is no file of unlabeled images, expected {wanted}: rename or convert it"
        )
    return [place]


def image_file(path: Path, shape: Shape) -> ImageFile:
    """A file that holds nothing but images of that shape, as bytes."""
    with explained(path), path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if path.suffix.lower() in RAW:
            return raw_file(path, size, shape)
        try:
            layout, start = read_layout(stream, "its array")
        except ArchiveError as error:
            raise ValueError(f"{printable(path)} {error}: save it again, as uint8, with numpy.save") from None
        except DAMAGE as error:
            raise ValueError(
                f"{printable(path)} is cut off or not an .npy file: save it again, as uint8, with numpy.save"
            ) from error
    check_layout(path, layout, shape)
    if size != start + layout.size:
        raise ValueError(
            f"{printable(path)} has {size} bytes, expected {start + layout.size} for its shape {layout.shape}: "
            "save it again with numpy.save"
        )
    return ImageFile(path, start, layout.shape[0])


def raw_file(path: Path, size: int, shape: Shape) -> ImageFile:
    """A file without a header, of which its size is all that can be checked."""
    count, rest = divmod(size, math.prod(shape))
    if rest or not count:
        raise ValueError(
            f"{printable(path)} has {size} bytes, expected a multiple of {math.prod(shape)}, one image of the shape "
            f"{shape} after the other, as bytes: write it again"
        )
    return ImageFile(path, 0, count)


def check_layout(path: Path, layout: Layout, shape: Shape) -> None:
    """Refuse an array other than images of that shape, as bytes."""
    given, (channels, height, width) = layout.shape, shape
    expected = f"expected uint8 of the shape (N, {channels}, {height}, {width}), like the labeled images"
    same_bytes = [shape, (height, width), (height, width, 1)] if channels == 1 else [shape]
    if layout.dtype != np.uint8:
        hint = "scale it to numbers from 0 to 255, round and convert with astype(numpy.uint8)"
        raise ValueError(f"{printable(path)} holds {layout.dtype}, {expected}: {hint}")
    if given[1:] == (height, width, channels) and given[1:] not in same_bytes:
        raise ValueError(
            f"{printable(path)} has the shape {given}, that is (N, H, W, C), {expected}: save it after "
            "transpose(0, 3, 1, 2)"
        )
    if given[1:] not in same_bytes or not given[0]:
        raise ValueError(f"{printable(path)} has the shape {given}, {expected}, with at least one image: reshape it")
    if layout.by_columns:
        raise ValueError(
            f"{printable(path)} is stored by columns, in Fortran order, so that no image lies in one piece: save it "
            "after numpy.ascontiguousarray"
        )
