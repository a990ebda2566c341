"""AutoAttack (Croce and Hein 2020): four attacks that need no tuning, one after the other."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from ..answers import frozen
from ..neighborhoods import L2, Linf, require_around
from ..risks import decided
from ..solvers import require_choice, require_positive
from .apgd import APGD
from .fab import FAB
from .rounds import Search, carried_out
from .square import Square

Part = Literal["apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square"]
NAMES: dict[Part, str] = {
    "apgd-ce": "APGD-CE",
    "apgd-dlr": "APGD-DLR",
    "apgd-t": "APGD-T",
    "fab": "FAB",
    "fab-t": "FAB-T",
    "square": "Square",
}
STANDARD: tuple[Part, ...] = ("apgd-ce", "apgd-t", "fab-t", "square")
TARGETED: tuple[Part, ...] = ("apgd-t", "fab-t")
FEWEST_CLASSES = {"apgd-t": 4, "apgd-dlr": 3}
"""how many logits the loss of a part compares; with fewer classes it is not defined"""
MOST_TARGETS = 9
"""classes that the targeted parts aim at, where there are that many others"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoAttack:
    """Croce and Hein's ensemble: each part attacks what the parts before left standing.

    The targeted parts aim at all other classes, or at the nine likeliest of more, one after the other.
    """

    eps: float = 8 / 255
    """radius of the ball on the scale of [0, 1]"""
    norm: Literal["Linf", "L2"] = "Linf"
    """which ball"""
    parts: tuple[Part, ...] | None = None
    """attacks in their order; None: the standard ones, APGD-CE, APGD-T, FAB-T and Square, that f has classes for"""

    def __post_init__(self) -> None:
        require_positive("AutoAttack.eps", self.eps)
        require_choice("AutoAttack.norm", self.norm, "Linf", "L2")
        require_around("AutoAttack.within", self.within)  # A ball too large for images is refused as it is made.
        if self.parts is not None and not (self.parts and {*self.parts} <= {*NAMES}):
            raise ValueError(f"AutoAttack.parts must be some of {', '.join(NAMES)}, got {self.parts}")

    @property
    def within(self) -> Linf | L2:
        """The ball in which every x' lies."""
        return Linf(eps=self.eps) if self.norm == "Linf" else L2(eps=self.eps)

    @property
    def budget(self) -> str:
        """The budget in words, with the parts that run."""
        names = ", ".join(NAMES[part] for part in self.parts or STANDARD)
        return f"{self.within}, {names}" + ("" if self.parts else " (APGD-T from 4 classes on)")

    @torch.no_grad()
    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        found = x = x.detach()
        with frozen(f):
            logits = f(x)
            ranked = logits.argsort(dim=1, descending=True, stable=True)  # A class that ties with y is behind it.
            rows = (decided(logits) == y).nonzero().squeeze(1)
            for part in self.parts_for(logits.shape[1]):
                search = self.search(part)
                for rank in range(1, min(MOST_TARGETS, logits.shape[1] - 1) + 1) if part in TARGETED else (0,):
                    if len(rows) == 0:
                        return found
                    points, fooled = carried_out(f, search, x[rows], y[rows], ranked[rows, rank], rng)
                    found = found.index_copy(0, rows[fooled], points[fooled])
                    rows = rows[~fooled]
        return found

    def search(self, part: Part) -> Search:
        """The search of a part."""
        ball = self.within
        match part:
            case "apgd-ce":
                return APGD(around=ball)
            case "apgd-dlr":
                return APGD(around=ball, loss="dlr")
            case "apgd-t":
                return APGD(around=ball, loss="targeted dlr")
            case "fab" | "fab-t":
                return FAB(around=ball, targeted=part == "fab-t")
            case "square":
                return Square(around=ball)

    def parts_for(self, classes: int) -> tuple[Part, ...]:
        """The parts that run against so many classes."""
        undefined = [part for part in self.parts or () if classes < FEWEST_CLASSES.get(part, 2)]
        if undefined:
            raise ValueError(f"AutoAttack.parts {', '.join(undefined)} are not defined for {classes} classes")
        return self.parts or tuple(part for part in STANDARD if classes >= FEWEST_CLASSES.get(part, 2))
