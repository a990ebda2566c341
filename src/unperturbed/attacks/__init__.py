"""Adversaries for evaluation: (f, x, y, rng) -> x', each with the budget it keeps to."""

from .autoattack import AutoAttack
from .carlini_wagner import CarliniWagnerL2
from .ddn import DDN
from .jsma import JSMA
from .pointwise import Pointwise
from .searched import Attack, Bounded, MinimumNorm, Searched, compound, cw_linf, fgsm, grid, mi_fgsm, pgd, random

__all__ = [
    "DDN",
    "JSMA",
    "Attack",
    "AutoAttack",
    "Bounded",
    "CarliniWagnerL2",
    "MinimumNorm",
    "Pointwise",
    "Searched",
    "compound",
    "cw_linf",
    "fgsm",
    "grid",
    "mi_fgsm",
    "pgd",
    "random",
]
