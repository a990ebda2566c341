"""What a solver is, Eq. (10), and what all of them share."""

from inspect import signature
from numbers import Integral, Real
from operator import index
from typing import Any, Protocol, SupportsIndex, cast, runtime_checkable

import torch
from torch import Generator, Tensor

from ..losses import Loss
from ..neighborhoods import in_a_line, is_image, require_float32


@runtime_checkable
class Solver(Protocol):
    """argmax over N(x), Eq. (10)."""

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        """An x' in the neighborhood of each x, with a loss as large as was found."""
        ...


def found_by(solver: Solver, loss: Loss, x: Tensor, rng: Generator) -> Tensor:
    """The x' of a solver, also of one of somebody else."""
    require_source(rng)
    found: object = solver(loss, x, rng)
    if not isinstance(found, Tensor) or found.shape != x.shape:
        given = tuple(found.shape) if isinstance(found, Tensor) else in_a_line(found)
        raise ValueError(f"a solver must return an x' for each x, images of shape {tuple(x.shape)}, got {given}")
    if x.device.type == "cpu" and not torch.compiler.is_compiling():  # A GPU would wait for the answer.
        require_unclamped(x, found)
    return found


def require_source(rng: object) -> None:
    """Refuse what is no source of random numbers, as a seed; without one those of torch are taken."""
    if rng is not None and not isinstance(rng, Generator):
        raise ValueError(
            f"rng must be a torch.Generator, got {in_a_line(rng)}: make one on the device of the images, as "
            "torch.Generator(x.device).manual_seed(0)"
        )


def require_unclamped(x: Tensor, found: Tensor) -> None:
    """Refuse images outside [0, 1] whose x' lie within: the search has clamped them, and stands far from x."""
    low, high = (float(bound) for bound in x.detach().aminmax()) if x.numel() else (0.0, 0.0)
    if (low < 0 or high > 1) and bool((is_image(found) & ~is_image(x)).any()):
        raise ValueError(
            f"images must lie in [0, 1], in which this search keeps them, got values from {low:.4g} to {high:.4g}: "
            "divide bytes by 255, and leave normalization to the first layer of the model, as models.Normalize"
        )


def chosen(rows: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Row by row the one or the other."""
    return torch.where(rows.view(-1, *[1] * (one.dim() - 1)), one, other)


def greater(value: Tensor, point: Tensor, best_value: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """Row by row the point of the greater value, and that value."""
    wins = value > best_value
    return chosen(wins, point, best), chosen(wins, value, best_value)


def takes(part: Any, count: int, *names: str) -> bool:
    """Whether a part can be called with so many values, and others by name; one that does not say is believed to."""
    try:
        signature(part).bind(*[None] * count, **dict.fromkeys(names))
    except TypeError:
        return False
    except ValueError:
        return callable(part)
    return True


def require_solver(name: str, solver: object) -> None:
    """Refuse what is no solver: a neighborhood alone, or a class without its parentheses."""
    if isinstance(solver, type) or not takes(solver, 3):
        raise ValueError(f"{name} must be a solver, as PGD(around=Linf(eps=8 / 255)), got {in_a_line(solver)}")


def require_count(name: str, value: int) -> None:
    """Refuse a number of things that is not whole, below one, or more than any tensor holds."""
    if not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    if value >= 2**63:
        raise ValueError(f"{name} must be below 2 ** 63, by which torch counts, got {value}: lower it")


def whole_number(name: str, value: object) -> int:
    """The number as one of Python; refused where it is not whole."""
    try:
        return index(cast(SupportsIndex, value))
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None


def require_positive(name: str, value: float) -> None:
    """Refuse a length that is not a positive number, or none of float32."""
    if not (isinstance(value, Real) and 0 < value < torch.inf):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    require_float32(name, value)


def require_choice(name: str, value: str, *choices: str) -> None:
    """Refuse a word that is none of those there are: a typing error would silently choose another."""
    if value not in choices:
        raise ValueError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, got {value!r}")
