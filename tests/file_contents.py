"""What may stand in a file: an array in the format of IDX or .npy, or a pickle that must not be opened."""

import io
import struct
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def npy(array: np.ndarray, **settings: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **settings)
    return stream.getvalue()


class Malicious:
    """An object whose unpickling makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)
