"""Robust training with few labels: RT, SRT and their rivals, trained and attacked under one roof."""

from . import attacks, models
from .evaluation import evaluate
from .losses import Against, cross_entropy, margin
from .neighborhoods import L1, L2, Affine, Blur, Box, Color, Composed, Linf, Neighborhood, Spatial
from .objectives import AT, SRT, Batch, Objective, Standard, Terms, frozen
from .recipe import SGD, Recipe, Validation
from .report import Report
from .schedules import Cyclic, Piecewise, Ramp, Schedule
from .solvers import FGSM, PGD, Grid, Sequential, Solver, Strongest, WorstOfK
from .training import fit, train

__version__ = "0.1.0"

__all__ = [
    "AT",
    "FGSM",
    "L1",
    "L2",
    "PGD",
    "SGD",
    "SRT",
    "Affine",
    "Against",
    "Batch",
    "Blur",
    "Box",
    "Color",
    "Composed",
    "Cyclic",
    "Grid",
    "Linf",
    "Neighborhood",
    "Objective",
    "Piecewise",
    "Ramp",
    "Recipe",
    "Report",
    "Schedule",
    "Sequential",
    "Solver",
    "Spatial",
    "Standard",
    "Strongest",
    "Terms",
    "Validation",
    "WorstOfK",
    "attacks",
    "cross_entropy",
    "evaluate",
    "fit",
    "frozen",
    "margin",
    "models",
    "train",
]
