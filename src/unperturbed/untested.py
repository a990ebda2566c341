"""Classes that the images under attack do not show, though the accuracy on them is taken for that on all."""

import math
from collections.abc import Sequence

from torch import Tensor

from .printing import shortened

CHANCE = 1e-3
"""of mixed images, that their first so many are taken for images in the order of their classes"""
MOST_NAMED = 3


def untested(labels: Tensor, classes: Sequence[str]) -> str | None:
    """What to say of classes that no test image shows; nothing if there are none."""
    shown = set(labels.tolist())
    missing = [name for label, name in enumerate(classes) if label not in shown]
    some = ", ".join(shortened(name) for name in missing[:MOST_NAMED])
    rest = f" and {len(missing) - MOST_NAMED:,} more classes" if len(missing) > MOST_NAMED else ""
    return f"no test image shows {some}{rest}: add some, or no accuracy tells of them" if missing else None


def by_class(labels: Tensor, count: int) -> str | None:
    """What to say if the first so many test images lack classes that they would show if all were mixed."""
    first, every = set(labels[:count].tolist()), set(labels.tolist())
    if chance_of_lacking(labels, every - first, count) >= CHANCE:
        return None
    return (
        f"the first {count:,} test images show only {len(first):,} of the {len(every):,} classes, as where they lie "
        "class by class: mix the test images in their file (pack does, so pack again), or leave out --images"
    )


def chance_of_lacking(labels: Tensor, missing: set[int], count: int) -> float:
    """At most how probable it is that the first so many of mixed images lack some classes as unlikely as these.

    Others could have been lacked: a union bound over each number of classes, and all sets of so many.
    """
    if not missing:
        return 1.0
    total, classes = len(labels), len(set(labels.tolist()))
    others = sum(label not in missing for label in labels.tolist())
    alone = log_choices(others, count) - log_choices(total, count)
    return math.exp(min(0.0, alone + log_choices(classes, len(missing)) + math.log(classes)))


def log_choices(total: int, count: int) -> float:
    """Logarithm of the ways to choose so many of that many."""
    return math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
