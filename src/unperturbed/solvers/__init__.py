"""Inner maximization, Eq. (10): x' <- argmax of the loss over the neighborhood of x.

A solver never sees a model or a label. It sees `loss`, which maps perturbed images to one number each, and x.
"""

from .ascent import FGSM, NFGSM, PGD, MomentumPGD, PowerIteration, climbed
from .compound import Sequential, Strongest
from .definition import (
    Solver,
    chosen,
    found_by,
    require_choice,
    require_count,
    require_positive,
    require_solver,
    takes,
    whole_number,
)
from .search import Grid, WorstOfK

__all__ = [
    "FGSM",
    "NFGSM",
    "PGD",
    "Grid",
    "MomentumPGD",
    "PowerIteration",
    "Sequential",
    "Solver",
    "Strongest",
    "WorstOfK",
    "chosen",
    "climbed",
    "found_by",
    "require_choice",
    "require_count",
    "require_positive",
    "require_solver",
    "takes",
    "whole_number",
]
