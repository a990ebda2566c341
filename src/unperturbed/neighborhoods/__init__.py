"""The perturbed neighborhood N_{eps,T}(x) = {T(x; theta) : dist(T(x; theta), x) <= eps}, Eq. (1).

A neighborhood is a set of parameters theta and the transformation T(x; theta) that turns them into
images. It holds hyper-parameters only: x always arrives as an argument, float in [0, 1], (B, C, H, W).
The budget lies on theta, so a rotation by 30 degrees and a ball in pixel space are the same kind of thing.
"""

from .appearance import Blur, Color
from .composed import Composed
from .definition import (
    LARGEST,
    SMALLEST,
    TOLERANCE,
    Box,
    Climber,
    Neighborhood,
    Strider,
    box_grid,
    in_a_line,
    is_image,
    long_step,
    relative,
    require_around,
    require_each,
    require_float32,
    require_radius,
    to_be_drawn,
)
from .pixels import L0, L1, L2, Linf, changed_pixels, norm
from .warps import MOST_DEGREES, Affine, Spatial, TurnThenShift

__all__ = [
    "L0",
    "L1",
    "L2",
    "LARGEST",
    "MOST_DEGREES",
    "SMALLEST",
    "TOLERANCE",
    "Affine",
    "Blur",
    "Box",
    "Climber",
    "Color",
    "Composed",
    "Linf",
    "Neighborhood",
    "Spatial",
    "Strider",
    "TurnThenShift",
    "box_grid",
    "changed_pixels",
    "in_a_line",
    "is_image",
    "long_step",
    "norm",
    "relative",
    "require_around",
    "require_each",
    "require_float32",
    "require_radius",
    "to_be_drawn",
]
