"""A checkpoint as a file: tensors and plain values, and a checksum that tells a whole one from a damaged one."""

import hashlib
import io
from typing import Any, cast

import torch

State = dict[str, Any]
FORMAT = 2
SEAL = b"unperturbed sha256 "
"""what the checksum at the end of a checkpoint follows"""


def sealed(archive: bytes) -> bytes:
    """A file of torch.save with its SHA-256 in the comment that ends it, where readers of the format expect one."""
    comment = len(SEAL) + 64
    body = archive[:-2] + comment.to_bytes(2, "little") + SEAL
    return body + hashlib.sha256(body).hexdigest().encode()


def whole(content: bytes) -> bool:
    """Whether a checkpoint is as it was written, to the bit."""
    body, checksum = memoryview(content)[:-64], content[-64:]
    return content[:-64].endswith(SEAL) and hashlib.sha256(body).hexdigest().encode() == checksum


def opened(content: bytes, device: torch.device) -> State | None:
    """The state in a checkpoint, or none where the file is not whole or not ours; nothing is unpickled."""
    if not whole(content):
        return None
    try:
        state = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    except Exception:  # A file of somebody else makes the reader fail in all ways there are.
        return None
    return cast(State, state) if isinstance(state, dict) and cast(State, state).get("format") == FORMAT else None
