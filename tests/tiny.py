"""Runs that take a second."""

from unperturbed.data import Data
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import Linf
from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe
from unperturbed.solvers import FGSM
from unperturbed.trainer import Trainer

TINY = Recipe(
    name="tiny",
    data=Data(labeled=100, unlabeled=200),
    model=DigitsCNN(channels=(2, 2, 2), hidden=4),
    objective=SRT(solver=FGSM(around=Linf(eps=0.1))),
    steps=12,
    batch=60,
    log_every=5,
)


def trainer_with(**settings: object) -> Trainer:
    """A trainer with these fields; those that it does not have are fields of its recipe."""
    own = {name: settings.pop(name) for name in ("f", "images", "device", "engine") if name in settings}
    return Trainer(recipe=Recipe(**settings), **own)
