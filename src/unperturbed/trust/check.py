"""What a check is, and the one rule by which counts of images are judged."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..report import wilson
from .card import Verdict
from .subject import Queries, Subject

Outcome = tuple[Verdict, str]
"""the verdict, and what was measured in words"""

FEWEST = 3
"""images below which nothing is flagged: one or two are rounding, ties, bad luck"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One reason for doubt, and how it is looked for."""

    name: str
    measure: Callable[[Subject, Tensor], Outcome]
    """looks at those rows of the subject"""
    why: str
    remedy: str
    queries: Queries
    """for each image, at most"""
    most: int
    """images, where there are so many and time allows"""
    fewest: int = 30
    """images on which the check still says something"""
    attacks: bool = True
    """whether it looks at correctly classified images alone"""


def judged(flagged: bool, figure: str) -> Outcome:
    """A verdict that is not to skip."""
    return ("flag" if flagged else "pass"), figure


def noticeable(count: int, images: int, points: float) -> bool:
    """Whether a count of images is beyond that share, in percentage points, and beyond chance.

    It is where the whole 95 % interval of the share (Wilson) lies above it, and the count is at least 3.
    """
    return count >= FEWEST and wilson(count, images)[0] > points / 100


def percent(count: int, images: int) -> str:
    """A share of images as 12.5 %."""
    return f"{100 * count / images:.1f} %"
