"""Hours of bad luck in minutes: runs and evaluations killed at random, readers given hostile files, then the figures.

    python tests/soak.py --seed 7 --kills 600 --out results/soak.json

Every run and evaluation has to end bit for bit as one that was left alone. Meanwhile the properties of test_fuzz.py
are tried on fifty times as many inputs, and the tests marked slow come last.
"""

import argparse
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from disturbed import last_change, trained
from test_faults import MOMENTS, evaluation_of, train_and_die_writing, without_seconds
from tiny import TINY, assert_same_end
from unperturbed import cli
from unperturbed.averaging import Average
from unperturbed.models import DigitsCNN
from unperturbed.objectives import Standard
from unperturbed.recipe import Recipe, Validation
from unperturbed.report import read
from unperturbed.runs import RunDirectory
from unperturbed.runtime import provenance

TESTS = Path(__file__).parent
CPU = torch.device("cpu")
LIVES = 10
"""times that a run is killed before it may end"""
FORK = multiprocessing.get_context("fork")
STEPS = FORK.Value("q", 0, lock=False)
"""steps that all processes have taken, one after the other; a lock would be lost with a process that holds it"""


def recipes(folder: Path) -> dict[str, Recipe]:
    """Runs that differ in what they keep."""
    np.save(folder / "images.npy", np.random.default_rng(0).integers(0, 256, (300, 1, 8, 8), dtype=np.uint8))
    plain = replace(TINY, steps=25 * LIVES, batch=20)
    held_out = replace(plain.data, validation=20)
    return {
        "plain": plain,
        "average and validation": replace(
            plain, data=held_out, averaging=Average(decay=0.9), validation=Validation(every=7)
        ),
        "images from files": replace(plain, data=replace(plain.data, unlabeled_files=(str(folder / "images.npy"),))),
    }


class Counting:
    """A watcher that counts steps and takes its time, so that there is time for a kill on a fast machine too."""

    def stepped(self, step: int, steps: int) -> None:
        STEPS.value += 1
        time.sleep(0.004)

    def logged(self, record: object) -> None: ...

    def warned(self, sentence: str) -> None:
        assert "damaged" not in sentence


def live(recipe: Recipe, out: Path) -> None:
    """Train as far as one gets."""
    torch.set_num_threads(1)
    trained(recipe, out, watcher=Counting(), checkpoint_seconds=0.05)


def evaluate(run: Path) -> None:
    """Attack the model of a run."""
    torch.set_num_threads(1)
    quietly(lambda: cli.main([*evaluation_of(run), "--images", "200"]))


def quietly(act: Callable[[], object]) -> None:
    """Do something without its prints."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        act()


def killed(target: Callable[..., None], *arguments: object, when: Callable[[], None] | None = None) -> bool:
    """Start a process, kill it unless it kills itself, and say whether it died of that and had not ended before."""
    process = FORK.Process(target=target, args=arguments)
    process.start()
    if when is not None:
        when()
        process.kill()
    process.join(120)
    assert process.exitcode in (0, -signal.SIGKILL), f"a process ended with {process.exitcode}"
    return process.exitcode != 0


class Soak:
    """Kills, and what they cost."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.steps_needed = 0
        self.recipes = recipes(folder)
        self.wholes = {name: trained(recipe, folder / f"whole {name}") for name, recipe in self.recipes.items()}
        self.tiny = trained(TINY, folder / "tiny")
        labels = replace(TINY.data, unlabeled=0)
        good = replace(TINY, data=labels, model=DigitsCNN(), objective=Standard(), steps=150)
        self.model = trained(good, folder / "good").path
        begun = time.monotonic()
        evaluate(Path(shutil.copytree(self.model, folder / "evaluated")))
        self.seconds_of_an_evaluation = time.monotonic() - begun
        self.report = without_seconds(folder / "evaluated" / "report.json")
        found = read(folder / "evaluated" / "report.json")
        assert any((attack.predicted != found.clean).any() for attack in found.attacks), "there is something to lose"

    def run(self, name: str) -> None:
        """A run that is killed again and again at random moments."""
        recipe, run = self.recipes[name], RunDirectory(self.folder / "run")
        for life in range(LIVES):
            before = last_change(run.checkpoint)

            def moment(before: int = before, life: int = life) -> None:
                deadline = time.monotonic() + 60.0
                # Every fifth life may end before its first checkpoint; the others get somewhere.
                while life % 5 and last_change(run.checkpoint) == before and time.monotonic() < deadline:
                    time.sleep(0.001)
                time.sleep(self.random.uniform(0.0, 0.2))

            self.kills["runs"] += killed(live, recipe, run.path, when=moment)
        live(recipe, run.path)
        assert_same_end(run, self.wholes[name])
        self.steps_needed += recipe.steps
        self.ended["runs"] += 1
        shutil.rmtree(run.path)

    def writing(self) -> None:
        """A run that is killed while it writes a checkpoint."""
        run = RunDirectory(self.folder / "run")
        for _ in range(3):
            moment, number = self.random.choice(MOMENTS), self.random.randint(1, 4)
            self.kills["while a checkpoint is written"] += killed(train_and_die_writing, run.path, moment, number)
        assert_same_end(trained(TINY, run.path), self.tiny)
        self.ended["runs"] += 1
        shutil.rmtree(run.path)

    def evaluation(self) -> None:
        """An evaluation that is killed at random moments."""
        run = RunDirectory(Path(shutil.copytree(self.model, self.folder / "attacked")))
        for _ in range(3):
            seconds = self.random.uniform(0.0, 0.6 * self.seconds_of_an_evaluation)
            self.kills["evaluations"] += killed(evaluate, run.path, when=partial(time.sleep, seconds))
        evaluate(run.path)
        assert without_seconds(run.report) == self.report
        self.ended["evaluations"] += 1
        shutil.rmtree(run.path)

    def until(self, kills: int) -> dict[str, Any]:
        """Go on until so many kills were survived, and say what there was."""
        begun = time.monotonic()
        while self.kills.total() < kills:
            for name in self.recipes:
                self.run(name)
            for _ in range(4):
                self.writing()
                self.evaluation()
            print(f"{self.kills.total():8} kills survived", flush=True)
        return {
            "kills": dict(self.kills),
            "kills_in_all": self.kills.total(),
            "ended_bit_for_bit": dict(self.ended),
            "steps_taken_by_killed_runs": STEPS.value,
            "of_them_taken_again": STEPS.value - self.steps_needed,
            "seconds_of_kills": round(time.monotonic() - begun, 1),
        }


def tests(*words: str, **environment: str) -> subprocess.Popen[bytes]:
    """Some tests, started."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    return subprocess.Popen(command, cwd=TESTS.parent, env=os.environ | environment)


def main() -> None:
    """Soak, print the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--kills", type=int, default=600)
    parser.add_argument("--factor", type=int, default=50, help="inputs for readers, in times of those in make test")
    parser.add_argument("--out", type=Path, default=Path("results/soak.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["UNPERTURBED_CACHE"] = str(folder / "cache")
    told = folder / "inputs.json"
    fuzz = tests(
        f"--hypothesis-seed={options.seed}",
        "tests/test_fuzz.py",
        UNPERTURBED_FUZZ=str(options.factor),
        UNPERTURBED_FUZZ_TOLD=str(told),
    )
    try:
        survived = Soak(folder, options.seed).until(options.kills)
        failed = bool(fuzz.wait()) + bool(tests("-m", "slow").wait())
        inputs: dict[str, int] = json.loads(told.read_text(encoding="utf-8"))
    finally:
        fuzz.kill()
        shutil.rmtree(folder)
    figures = {
        "command": "make soak",
        "date": time.strftime("%Y-%m-%d"),
        "seed": options.seed,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        **survived,
        "hours_equivalent": survived["kills_in_all"],
        "hours_equivalent_means": "hours on a machine that is taken away once an hour without a warning",
        "inputs": inputs,
        "inputs_in_all": sum(inputs.values()),
        "failed": failed,
        "seconds": round(time.monotonic() - begun, 1),
        "provenance": provenance(CPU),
    }
    options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(
        f"{figures['kills_in_all']} kills survived, {figures['inputs_in_all']} inputs tried, "
        f"{figures['hours_equivalent']} {figures['hours_equivalent_means']}, {failed} of two sets of tests failed"
    )
    sys.exit(failed)


if __name__ == "__main__":
    main()
