"""What several processes do in the tests: torchrun ... two_processes.py TASK FOLDER."""

import json
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tiny import trainer_with
from unperturbed import training
from unperturbed.attacks import fgsm
from unperturbed.averaging import Average
from unperturbed.cli import main
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.fitting import fit
from unperturbed.images import Images, parts
from unperturbed.neighborhoods import L2
from unperturbed.objectives import SRT
from unperturbed.processes import group, joined, present
from unperturbed.recipe import SGD, Recipe, Teacher, Validation
from unperturbed.reservoir import Reservoir, image_files
from unperturbed.runs import RunDirectory
from unperturbed.schedules import Piecewise
from unperturbed.solvers import FGSM
from unperturbed.trainer import Trainer
from unperturbed.trust import trust

RECIPE = "digits-pixel-srt"
ATTACKED = ["--attacks", "pgd,randadv,ddn", "--images", "70", "--batch", "16", "--device", "cpu"]
TINY = ["--steps", "9", "--log-every", "3", "--batch", "60", "--model.channels", "4", "4", "4", "--device", "cpu"]

LIMIT = 5.0
"""seconds that an exchange may take where a test says so"""


def network() -> nn.Module:
    """A network without BatchNorm."""
    torch.manual_seed(present().rank)  # The processes start from different weights unless they are given the same.
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 10))


class Experts(nn.Module):
    """A network of which few images need one part, and none another: a process may have no image for the former."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.usual, self.rare, self.never = (nn.Linear(64, 10) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits, rare = self.usual(x.flatten(1)), (x.mean((1, 2, 3)) > 0.385).nonzero().flatten()
        return logits.index_add(0, rare, self.rare(x[rare].flatten(1))) if len(rare) else logits


SEARCH = FGSM(around=L2(eps=0.5), start="identity")
"""one that draws no number of its own"""
STEPS = 120


def recipe(folder: Path) -> Recipe:
    """A run whose unlabeled images come from files, too."""
    return Recipe(
        name="from files",
        data=Data(labeled=100, unlabeled=50, unlabeled_files=(str(folder / "images.npy"),)),
        objective=SRT(solver=SEARCH),
        steps=STEPS,
        batch=60,
        optimizer=SGD(rate=Piecewise(rate=0.05, milestones=())),
        log_every=5,
    )


def train_by_recipe(folder: Path, pause: float) -> None:
    """Train by the recipe in that folder, with steps that take their time."""
    advance = Trainer.advance
    Trainer.advance = lambda self: time.sleep(pause) or advance(self)
    training.fresh_model = lambda *_: network()
    words = ["--from", str(folder / "recipe.json"), "--out", str(folder / "run"), "--device", "cpu"]
    main(["train", *words, "--checkpoint-seconds", "3600"])


def trainer(**changes: object) -> Trainer:
    """A run by a network and a search that do not depend on who works on which part of a batch."""
    settings: dict[str, object] = {
        "f": network(),
        "images": parts(load("digits"), Data(labeled=103, unlabeled=400, validation=30)),
        "objective": SRT(solver=SEARCH),
        "steps": 12,
        "batch": 61,
        "optimizer": SGD(rate=Piecewise(rate=0.05, milestones=())),
        "data": Data(crop=1, flip=True),
        "validation": Validation(every=4, keep="last"),
        "log_every": 4,
        "device": torch.device("cpu"),
    }
    return trainer_with(**settings | changes)


EXTRAS: dict[str, dict[str, object]] = {
    "plain": {},
    "parts": {"microbatch": 13},
    "one mean": {"microbatch": 13, "objective": SRT(solver=SEARCH, mean="images")},
    "files": {"microbatch": 13},
    "experts": {"f": Experts(), "data": Data()},
    "average and worse weights": {
        "averaging": Average(decay=0.9),
        "labeler": "average",
        "weight_perturbation": 0.01,
    },
}


def from_files(images: Images, folder: Path) -> Images:
    """The same images, most of the unlabeled ones in a file."""
    file = folder / f"unlabeled-{present().count}-{present().rank}.npy"
    np.save(file, images.unlabeled[50:].numpy())
    return replace(images, unlabeled=Reservoir(images.unlabeled[:50], image_files([str(file)], (1, 8, 8))))


def run_steps(folder: Path) -> None:
    """Train in several ways and keep the weights and the log; each process keeps its own."""
    read, asked = Reservoir.__getitem__, list[int]()
    Reservoir.__getitem__ = lambda self, rows: asked.append(len(rows)) or read(self, rows)
    for name, extra in EXTRAS.items():
        run, log = trainer(**extra), []
        if name == "files":
            run = trainer(**extra, images=from_files(run.images, folder))
        asked.clear()
        run.run(write_log=log.append)
        weights = [weight.detach() for weight in run.f.parameters()]
        kept = {"weights": weights, "log": log, "read": sum(asked)}
        torch.save(kept, folder / f"{name}-{present().count}-{present().rank}.pt")
    Reservoir.__getitem__ = read


def be_taught(folder: Path) -> None:
    """Train a teacher with BatchNorm and keep what each process has it for."""
    taught = Recipe(data=Data(labeled=200), batch=60, labeler="teacher", teacher=Teacher(steps=3))
    teacher = training.trained_teacher(
        taught, load("digits"), folder / "teachers", folder=None, device="cpu", watcher=None, stop=bool
    )
    torch.save(teacher.state_dict(), folder / f"teacher-{present().rank}.pt")


class Odd(nn.Linear):
    """A network with buffers of types that no exchange knows, one that is saved nowhere, and a state that is none."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        torch.manual_seed(present().rank)
        self.turned = nn.Parameter(torch.randn(2, 3).t())
        self.register_buffer("short", torch.randint(1000, (4,)).to(torch.int16))
        self.register_buffer("eighth", torch.randn(4).to(torch.float8_e4m3fn))
        self.register_buffer("waves", torch.randn(2, dtype=torch.complex64))
        self.register_buffer("seen", torch.rand(8) < 0.5)
        self.register_buffer("repeated", torch.randn(2, 1).expand(2, 3))
        self.register_buffer("nothing", torch.zeros(0))
        self.register_buffer("sparse", torch.randn(3, 3).relu().to_sparse())
        self.register_buffer("unsaved", torch.randn(3, 2), persistent=False)

    def get_extra_state(self) -> object:
        return {"passes": 0}

    def set_extra_state(self, state: object) -> None:
        pass


def share_odd_things(folder: Path) -> None:
    """Give all processes what the first has, whatever it is, and keep it."""
    f = Odd()
    present().share_first(f)
    torch.save(dict((*f.named_parameters(), *f.named_buffers())), folder / f"odd-{present().rank}.pt")


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


def fill_the_disk(folder: Path) -> None:
    """The first process finds no room for a line of the log in the middle of its run."""

    def refuse(self: RunDirectory, record: object) -> None:
        raise OSError(28, "No space left on device", str(self.path / "log.jsonl"))

    RunDirectory.write_log = refuse
    main(["train", RECIPE, "--out", str(folder / "run"), *TINY])


def wait_for_a_teacher(folder: Path) -> None:
    """Another run holds the teacher for longer than any exchange may take, when the first process asks for it."""
    alone, form = RunDirectory.alone, group.init_process_group
    group.init_process_group = partial(form, timeout=timedelta(seconds=LIMIT))

    @contextmanager
    def taken(self: RunDirectory, waiting: Callable[[str], None] | None = None) -> Generator[None]:
        if waiting is not None:
            time.sleep(1.5 * LIMIT)
        with alone(self, waiting):
            yield

    RunDirectory.alone = taken
    main(["train", RECIPE, "--out", str(folder / "run"), *TINY, "--labeler", "teacher", "--teacher.steps", "3"])


def examined() -> list[dict[str, str]]:
    """What the trust card says of a small model."""
    torch.manual_seed(0)
    f, x = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), torch.rand(50, 1, 8, 8)
    return trust(f, x, f(x).argmax(1), seconds=600.0, device="cpu").plain()["findings"]


def trust_by_the_first(folder: Path) -> None:
    """The first process examines a model, while the other has nothing more to do, and then both do."""
    with joined("cpu") as processes:
        found = [examined()] if processes.first else []
        processes.wait_for_all()
        found.append(examined())
    (folder / f"cards-{processes.rank}.json").write_text(json.dumps(found))


def refuse_shares(folder: Path) -> None:
    """Each process has images of its own."""
    f, digits, said = network(), load("digits"), list[str]()
    with joined("cpu") as processes:
        x, y = digits.test_images[processes.rank :: 2], digits.test_labels[processes.rank :: 2]
        for use in (
            lambda: evaluate(f, x, y, {"fgsm": fgsm()}, device="cpu"),
            lambda: fit(f, labeled=(x, y), steps=2, device="cpu"),
        ):
            try:
                use()
            except ValueError as error:
                said.append(str(error))
    (folder / f"said-{processes.rank}.json").write_text(json.dumps(said))


TASKS = {
    "shares": refuse_shares,
    "die": die_once,
    "full": fill_the_disk,
    "wait": wait_for_a_teacher,
    "trust": trust_by_the_first,
}

if __name__ == "__main__":
    task, place = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    if task == "train":
        train_by_recipe(place, float(sys.argv[3]))
    elif task in TASKS:
        TASKS[task](place)
    elif task == "evaluate":
        main(["evaluate", str(place), *ATTACKED])
    else:
        with joined("cpu"):
            run_steps(place)
            go_on(place)
            be_taught(place)
            share_odd_things(place)
        if Path("/proc/self/task").exists():
            threads = sorted(file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm"))
            (place / f"threads-{os.environ['RANK']}.txt").write_text("\n".join(threads))
