"""Robust training with few labels: RT, SRT and their rivals, trained and attacked under one roof."""

from contextlib import nullcontext

from .signals import ending_at_once, started_as_command

with ending_at_once() if started_as_command() else nullcontext():
    from . import attacks, models, recipes
    from .answers import frozen
    from .averaging import Average
    from .data import Data
    from .evaluation import evaluate
    from .finished import Finished, load
    from .fitting import fit
    from .losses import Against, cross_entropy, kl, margin
    from .neighborhoods import (
        L0,
        L1,
        L2,
        Affine,
        Blur,
        Box,
        Color,
        Composed,
        Linf,
        Neighborhood,
        Spatial,
        TurnThenShift,
    )
    from .objectives import AT, KLR, SRT, TRADES, UAT, Batch, Mixture, Objective, Standard, Terms
    from .recipe import SGD, Recipe, Teacher, Validation
    from .report import Report
    from .schedules import Cyclic, Piecewise, Ramp, Schedule
    from .solvers import FGSM, NFGSM, PGD, Grid, MomentumPGD, PowerIteration, Sequential, Solver, Strongest, WorstOfK
    from .surfaces import Surface, surface
    from .training import train
    from .trust import trust
    from .version import __version__ as __version__

__all__ = [
    "AT",
    "FGSM",
    "KLR",
    "L0",
    "L1",
    "L2",
    "NFGSM",
    "PGD",
    "SGD",
    "SRT",
    "TRADES",
    "UAT",
    "Affine",
    "Against",
    "Average",
    "Batch",
    "Blur",
    "Box",
    "Color",
    "Composed",
    "Cyclic",
    "Data",
    "Finished",
    "Grid",
    "Linf",
    "Mixture",
    "MomentumPGD",
    "Neighborhood",
    "Objective",
    "Piecewise",
    "PowerIteration",
    "Ramp",
    "Recipe",
    "Report",
    "Schedule",
    "Sequential",
    "Solver",
    "Spatial",
    "Standard",
    "Strongest",
    "Surface",
    "Teacher",
    "Terms",
    "TurnThenShift",
    "Validation",
    "WorstOfK",
    "attacks",
    "cross_entropy",
    "evaluate",
    "fit",
    "frozen",
    "kl",
    "load",
    "margin",
    "models",
    "recipes",
    "surface",
    "train",
    "trust",
]
