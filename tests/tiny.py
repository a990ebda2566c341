"""A run that takes a second."""

from unperturbed.data import Data
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import Linf
from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe
from unperturbed.solvers import FGSM

TINY = Recipe(
    name="tiny",
    data=Data(labeled=100, unlabeled=200),
    model=DigitsCNN(channels=(2, 2, 2), hidden=4),
    objective=SRT(solver=FGSM(around=Linf(eps=0.1))),
    steps=12,
    batch=60,
    log_every=5,
)
