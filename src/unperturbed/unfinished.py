"""An attack that takes long, interrupted between two batches: what it has found is kept for later."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .files import write_whole
from .report import packed, unpacked

FILE = "attack.json"
"""its name in the directory of a run"""


class Part(NamedTuple):
    """What an attack did to one batch."""

    predicted: Tensor
    rejected: int
    sizes: Tensor | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The parts of one attack that are done, in a file that is gone once the attack is."""

    path: Path

    def read(self, key: Sequence[str]) -> dict[int, Part]:
        """The parts by where they begin, where they are of this attack on this model; all else counts not."""
        try:
            tree = json.loads(self.path.read_text(encoding="utf-8"))
            if tree["key"] != list(key):
                return {}
            return {
                int(start): Part(
                    unpacked(part["predicted"]),
                    int(part["rejected"]),
                    None if part["sizes"] is None else torch.tensor(part["sizes"], dtype=torch.float),
                    float(part["seconds"]),
                )
                for start, part in tree["parts"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def write(self, key: Sequence[str], parts: dict[int, Part]) -> None:
        """Keep these parts."""
        tree = {
            "key": list(key),
            "parts": {
                start: {
                    "predicted": packed(part.predicted),
                    "rejected": part.rejected,
                    "sizes": None if part.sizes is None else part.sizes.tolist(),
                    "seconds": part.seconds,
                }
                for start, part in parts.items()
            },
        }
        write_whole(self.path, json.dumps(tree).encode())

    def forget(self) -> None:
        """The attack is done."""
        self.path.unlink(missing_ok=True)
