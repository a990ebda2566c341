"""Runs that take a second."""

import torch

from unperturbed.data import Data
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import Linf
from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe
from unperturbed.runs import RunDirectory
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
NETWORK = ["--model.channels", "2", "2", "2", "--model.hidden", "4"]
"""options that ask for its network"""
CLOCK = {"images_per_second", "seconds"}
"""what a clock writes into a log"""


def seeded(seed: int = 0) -> torch.Generator:
    """A source of random numbers."""
    return torch.Generator().manual_seed(seed)


def trainer_with(**settings: object) -> Trainer:
    """A trainer with these fields; those that it does not have are fields of its recipe."""
    own = {name: settings.pop(name) for name in ("f", "images", "device", "engine") if name in settings}
    return Trainer(recipe=Recipe(**settings), **own)


def timeless(log: list[dict[str, float]]) -> list[dict[str, float]]:
    """A log without what a clock wrote."""
    return [{name: value for name, value in record.items() if name not in CLOCK} for record in log]


def assert_same_end(run: RunDirectory, whole: RunDirectory) -> None:
    """A run has ended with the weights and the log of another, to the bit, and has tidied up."""
    assert run.weights.read_bytes() == whole.weights.read_bytes()
    assert timeless(run.read_log()) == timeless(whole.read_log())
    assert not list(run.path.glob(".*")), "nothing half-written and no lock is left"
