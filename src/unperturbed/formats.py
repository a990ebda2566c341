"""The formats that data sets come in: IDX, the binary CIFAR-10, and .npz; nothing is ever unpickled."""

import gzip
import math
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .inputs import check_range
from .npz import Array, most_expanded, plain_arrays, read_bounded
from .printing import printable, shortened

Parts = dict[str, Tensor]

CIFAR_SHAPE = (3, 32, 32)
LARGEST_IDX = 2**30  # a header that promises more bytes than this is damaged
DARK = 16
"""bytes that go no further are of another scale than 0 to 255, as those of scikit-learn's digits"""
LARGEST_LABEL = 2**63 - 1
LABELED_PARTS = ("train_images", "train_labels", "test_images", "test_labels")


def read_mnist(files: Sequence[Path]) -> Parts:
    """The parts in four IDX files."""
    return {
        part: _read_idx(path, 3).unsqueeze(1) if "images" in part else _read_idx(path, 1).long()
        for part, path in zip(LABELED_PARTS, files, strict=True)
    }


def _read_idx(path: Path, dimensions: int) -> Tensor:
    """The array in an IDX file of unsigned bytes, plain or gzipped."""
    header_size, size, compressed = 4 + 4 * dimensions, path.stat().st_size, path.suffix == ".gz"
    try:
        with gzip.open(path) if compressed else path.open("rb") as stream:
            shape = _idx_shape(path, stream.read(header_size), dimensions)
            expected = header_size + math.prod(shape)
            most = most_expanded(size) if compressed else size
            # One byte more than promised gives an oversized file away without reading it all.
            limit = min(expected, most) + 1 - header_size
            contents = read_bounded(stream.read, limit)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{printable(path)} is cut off or not a gzip file: fetch it again") from error
    if (actual := header_size + len(contents)) != expected:
        held = f"{'at least' if len(contents) == limit else 'only'} {actual}"
        raise ValueError(f"{printable(path)} holds {held} bytes, expected {expected}: fetch it again")
    return torch.frombuffer(contents, dtype=torch.uint8).reshape(shape)


def _idx_shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    magic = bytes([0, 0, 0x08, dimensions])
    if header[:4] != magic or len(header) < 4 + 4 * dimensions:
        raise ValueError(
            f"{printable(path)} starts with the bytes {header.hex() or '(none)'}, expected {magic.hex()} and then "
            f"{dimensions} sizes, as in an IDX file of unsigned bytes: fetch it again"
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    if not 0 < math.prod(shape) <= LARGEST_IDX:
        raise ValueError(f"{printable(path)} claims to hold an array of the absurd shape {shape}: fetch it again")
    return shape


def read_cifar(files: Sequence[Path]) -> Parts:
    """The parts in the files of the binary CIFAR-10, the test batch last."""
    *train, test = (_cifar_batch(path) for path in files)
    images, labels = zip(*train, strict=True)
    return dict(zip(LABELED_PARTS, (torch.cat(images), torch.cat(labels), *test), strict=True))


def _cifar_batch(path: Path) -> tuple[Tensor, Tensor]:
    """One file of the binary version: records of a label byte and the bytes of its image."""
    record = 1 + math.prod(CIFAR_SHAPE)
    size = path.stat().st_size
    if not size or size % record:
        raise ValueError(
            f"{printable(path)} is cut off at {size} bytes, expected a multiple of {record}: fetch it again"
        )
    records = torch.from_numpy(np.fromfile(path, dtype=np.uint8)).reshape(-1, record)
    return records[:, 1:].reshape(-1, *CIFAR_SHAPE), records[:, 0].long()


def read_own_arrays(path: Path) -> tuple[Parts, tuple[str, ...]]:
    """The parts and the class names in an .npz file, as `numpy.savez` writes it."""
    arrays = plain_arrays(path, (*LABELED_PARTS, "unlabeled_images", "classes"))
    name = printable(path)
    if missing := [part for part in LABELED_PARTS if part not in arrays]:
        raise ValueError(f"{name} lacks {', '.join(missing)}: save it with all of {', '.join(LABELED_PARTS)}")
    names = arrays.pop("classes", None)
    parts = {
        part: (_as_images if "images" in part else _as_labels)(array, f"{name}: {part}")
        for part, array in arrays.items()
    }
    return parts, _class_names(name, names, torch.cat((parts["train_labels"], parts["test_labels"])))


def require_bright(brightest: float, what: str, otherwise: str = "and round") -> None:
    """Refuse bytes of another scale than 0 to 255, by the largest of them."""
    if 0 < brightest <= DARK:
        raise ValueError(
            f"{what} are bytes that go up to {brightest:g}, expected 255: multiply all images by "
            f"255 / {brightest:g}, {otherwise}"
        )


def _require_bright(images: Array, what: str) -> None:
    """Refuse bytes of another scale than 0 to 255, and such fractions: they would be next to black.

    What is black throughout has no scale to be told by.
    """
    brightest = float(images.max(initial=0))
    if images.dtype == np.uint8:
        require_bright(brightest, what, "or store them as fractions in [0, 1]")
    if images.dtype != np.uint8 and 0 < 255 * brightest <= DARK:
        raise ValueError(
            f"{what} are fractions that go up to {brightest:.2g}, expected 1: look for a second division by 255, or "
            f"divide all images by {brightest:.2g}"
        )


def _as_images(array: Array, what: str) -> Tensor:
    """Images as uint8 (N, C, H, W), from bytes or fractions in any of the common layouts."""
    pixels = _as_bytes(array, what) if array.dtype.kind == "f" else array
    if pixels.dtype != np.uint8:
        most = "divide them by the most that they can be, 255 with eight bits and 65535 with sixteen"
        advice = most if array.dtype.kind in "iu" else "convert them"
        raise ValueError(f"{what} must be uint8 or floating point in [0, 1], got {array.dtype}: {advice}")
    _require_bright(array, what)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim == 4 and pixels.shape[1] not in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise ValueError(
            f"{what} must have the shape (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels, "
            f"got {array.shape}: reshape them"
        )
    return torch.from_numpy(np.ascontiguousarray(pixels))


def _as_bytes(fractions: Array, what: str) -> Array:
    low, high = float(fractions.min(initial=0)), float(fractions.max(initial=0))
    check_range(low, high, what, "divide by 255 or store them as uint8")
    return np.rint(fractions * 255).astype(np.uint8)


def _as_labels(array: Array, what: str) -> Tensor:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise ValueError(
            f"{what} must be integers in one dimension, got {array.dtype} of the shape {array.shape}: "
            "store the number of its class for each image"
        )
    if array.size and int(array.max()) > LARGEST_LABEL:
        raise ValueError(f"{what} must be class numbers, got {int(array.max())}: number the classes from 0")
    return torch.from_numpy(array.astype(np.int64))


def _class_names(file: str, names: Array | None, labels: Tensor) -> tuple[str, ...]:
    """Names of the classes: those that were stored, else their numbers."""
    highest = max(0, int(labels.max())) if len(labels) else 0
    if names is not None:
        stored = _stored_names(file, names)
        if highest >= len(stored):
            raise ValueError(
                f"{file}: classes names {len(stored)}, but the labels go up to {highest}: number these from 0 to "
                f"{len(stored) - 1}, or name each class, from 0 on"
            )
        return stored
    if highest > len(labels):
        raise ValueError(f"{file} has a label {highest} among {len(labels)} labels: number the classes from 0")
    return tuple(map(str, range(highest + 1)))


def _stored_names(file: str, names: Array) -> tuple[str, ...]:
    """The stored names of the classes; what cannot be printed of them is spelled out."""
    if names.dtype.kind not in "USiu" or names.ndim != 1 or not names.size:
        raise ValueError(
            f"{file}: classes must be texts in one dimension, got {names.dtype} of the shape {names.shape}: "
            "store a name for each class"
        )
    try:
        stored = tuple(printable(name) for name in names.astype(str).tolist())
    except (ValueError, SystemError):
        raise ValueError(f"{file}: classes hold what is no text: store a name for each class") from None
    if nameless := [number for number, name in enumerate(stored) if not name.strip()]:
        raise ValueError(f"{file}: classes has no name for class {nameless[0]}: store a name for each class")
    if repeated := [name for name, count in Counter(stored).items() if count > 1]:
        raise ValueError(
            f"{file}: classes holds {shortened(repeated[0])} more than once: store another name for each class"
        )
    return stored
