"""Attacks that take long, interrupted between two batches: what they have found is kept for later."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from .files import write_whole
from .packing import packed, unpacked

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
    """The parts that are done of attacks that are not, in a file that is gone once all of them are.

    Several can wait there at a time: an attack that comes first today may have been left out yesterday.
    """

    path: Path

    def read(self, key: Sequence[str]) -> dict[int, Part]:
        """The parts by where they begin, where they are of this attack on this model; all else counts not."""
        try:
            (parts,) = (attack["parts"] for attack in self.waiting() if attack["key"] == list(key))
            return {
                int(start): Part(
                    unpacked(part["predicted"]),
                    int(part["rejected"]),
                    None if part["sizes"] is None else torch.tensor(part["sizes"], dtype=torch.float),
                    float(part["seconds"]),
                )
                for start, part in parts.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, zlib.error):
            return {}

    def held(self) -> list[tuple[str, str, str, str]]:
        """Of what it holds parts: a hash of what was attacked, the attack, its settings and its precision."""
        found: list[tuple[str, str, str, str]] = []
        for attack in self.waiting():
            match attack.get("key"):
                case [str(subject), str(name), str(settings), str(precision)]:
                    found.append((subject, name, settings, precision))
                case _:
                    pass
        return found

    def write(self, key: Sequence[str], parts: dict[int, Part]) -> None:
        """Keep these parts, beside those of other attacks."""
        attack: dict[str, Any] = {
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
        self.keep([*self.others(key), attack])

    def forget(self, key: Sequence[str]) -> None:
        """That attack is done."""
        others = self.others(key)
        if not others:
            self.path.unlink(missing_ok=True)
        elif len(others) < len(self.waiting()):
            self.keep(others)

    def others(self, key: Sequence[str]) -> list[dict[str, Any]]:
        """What is kept of all other attacks."""
        return [attack for attack in self.waiting() if attack.get("key") != list(key)]

    def waiting(self) -> list[dict[str, Any]]:
        """What is kept, attack by attack; of a file that cannot be read, nothing."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))["attacks"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return []
        attacks = cast(list[Any], found) if isinstance(found, list) else []
        return [cast(dict[str, Any], attack) for attack in attacks if isinstance(attack, dict)]

    def keep(self, attacks: list[dict[str, Any]]) -> None:
        """Write what is kept."""
        write_whole(self.path, json.dumps({"attacks": attacks}).encode())
