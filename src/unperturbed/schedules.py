"""What changes during a run, as functions of its progress from 0 to 1: learning rates and the ramp of lambda."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .neighborhoods import LARGEST, in_a_line, require_float32


@runtime_checkable
class Schedule(Protocol):
    """A learning rate over a run."""

    def __call__(self, progress: float, /) -> float:
        """The rate at this progress, from 0 (start) to 1 (end)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise:
    """A constant rate, multiplied by a factor at each milestone."""

    rate: float = 0.1
    """the first rate"""
    milestones: tuple[float, ...] = (0.5, 0.75)
    """where it drops, as fractions of the run"""
    factor: float = 0.1
    """what it is multiplied by at each drop"""

    def __post_init__(self) -> None:
        require_rate("Piecewise.rate", self.rate)
        require_rate("Piecewise.factor", self.factor)
        require_fractions("Piecewise.milestones", self.milestones)

    def __call__(self, progress: float, /) -> float:
        return self.rate * self.factor ** sum(progress >= milestone for milestone in self.milestones)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cyclic:
    """One triangle: up to the peak, then down to zero, as fast SRT does."""

    peak: float = 0.2
    """the highest rate"""
    top: float = 0.4
    """where the peak lies, as a fraction of the run"""

    def __post_init__(self) -> None:
        require_rate("Cyclic.peak", self.peak)
        if not 0 < self.top < 1:
            raise ValueError(f"Cyclic.top must lie between 0 and 1, got {self.top}")

    def __call__(self, progress: float, /) -> float:
        return self.peak * min(progress / self.top, (1 - progress) / (1 - self.top))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """The share of the robust term that counts: from 0 to 1 over the first part of a run.

    At full strength from the start, the robust term is minimized by a constant C(x) while C(x) is still noise.
    """

    over: float = 0.0
    """the fraction of the run that the ramp takes; 0, as in the paper, has none"""

    def __post_init__(self) -> None:
        require_fractions("Ramp.over", (self.over,))

    def __call__(self, progress: float, /) -> float:
        return min(1.0, progress / self.over) if self.over > 0 else 1.0


def value_at(schedule: Schedule, progress: float, name: str) -> float:
    """What a schedule, also one of somebody else, returns at that progress, as a float that float32 can hold."""
    value = schedule(progress)
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not 0 <= number <= LARGEST:
        given = f"{number:g}" if isinstance(value, float | int) else in_a_line(value)
        raise ValueError(
            f"the {name} is {given} at progress {progress:.3g}, expected 0 or more, at most {LARGEST:.2g}: mend the "
            "schedule"
        )
    return number


def require_rate(name: str, value: float) -> None:
    """Refuse a learning rate, or a factor of one, that is not a positive number, or none of float32."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number, got {value}")
    require_float32(name, value)


def require_fractions(name: str, values: tuple[float, ...]) -> None:
    """Refuse anything outside [0, 1]."""
    if not all(0 <= value <= 1 for value in values):
        raise ValueError(f"{name} must lie between 0 and 1, got {', '.join(map(str, values))}")
