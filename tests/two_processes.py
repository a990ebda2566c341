"""What several processes do in the tests: torchrun ... two_processes.py TASK FOLDER."""

import os
import sys
from copy import deepcopy
from pathlib import Path

import torch
from torch import nn

from unperturbed.averaging import Average
from unperturbed.cli import main
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.images import parts
from unperturbed.neighborhoods import L2
from unperturbed.objectives import SRT
from unperturbed.processes import joined, present
from unperturbed.recipe import SGD, Validation
from unperturbed.schedules import Piecewise
from unperturbed.solvers import FGSM
from unperturbed.trainer import Trainer

RECIPE = "digits-pixel-srt"
ATTACKED = ["--attacks", "pgd,randadv,ddn", "--images", "70", "--batch", "16", "--device", "cpu"]
TINY = ["--steps", "9", "--log-every", "3", "--batch", "60", "--model.channels", "4", "4", "4", "--device", "cpu"]


def trainer(**changes: object) -> Trainer:
    """A run that draws no number of its own within a search, by a network without BatchNorm."""
    torch.manual_seed(present().rank)  # The processes start from different weights unless they are given the same.
    settings: dict[str, object] = {
        "f": nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 10)),
        "images": parts(load("digits"), Data(labeled=103, unlabeled=400, validation=30)),
        "objective": SRT(solver=FGSM(around=L2(eps=0.5), start="identity")),
        "steps": 12,
        "batch": 61,
        "optimizer": SGD(rate=Piecewise(rate=0.05, milestones=())),
        "augmentation": Data(crop=1, flip=True),
        "validation": Validation(every=4, keep="last"),
        "log_every": 4,
        "device": torch.device("cpu"),
    }
    return Trainer(**settings | changes)


EXTRAS: dict[str, dict[str, object]] = {
    "plain": {},
    "parts": {"microbatch": 13},
    "average and worse weights": {
        "averaging": Average(decay=0.9),
        "labeler": "average",
        "weight_perturbation": 0.01,
    },
}


def run_steps(folder: Path) -> None:
    """Train in several ways and keep the weights and the log; each process keeps its own."""
    for name, extra in EXTRAS.items():
        run, log = trainer(**extra), []
        run.run(write_log=log.append)
        weights = [weight.detach() for weight in run.f.parameters()]
        torch.save({"weights": weights, "log": log}, folder / f"{name}-{present().count}-{present().rank}.pt")


def go_on(folder: Path) -> None:
    """Take four steps from where the last call stopped, whoever took them."""
    run, file = trainer(), folder / "state.pt"
    if file.exists():
        run.resume(torch.load(file, weights_only=True))
    for _ in range(4):
        run.advance()
    if present().first:
        torch.save(deepcopy(run.state()), file)


def die_once(folder: Path) -> None:
    """The second process dies at the fifth step of its first life."""
    advance, mark = Trainer.advance, folder / "died"

    def mortal(self: Trainer) -> object:
        if present().rank == 1 and self.step == 5 and not mark.exists():
            mark.touch()
            os._exit(9)
        return advance(self)

    Trainer.advance = mortal
    main(["train", RECIPE, "--out", str(folder / "run"), *TINY, "--checkpoint-seconds", "0"])


if __name__ == "__main__":
    task, place = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    if task == "die":
        die_once(place)
    elif task == "evaluate":
        main(["evaluate", str(place), *ATTACKED])
    else:
        with joined("cpu"):
            run_steps(place)
            go_on(place)
