"""Unlabeled images out of files and out of memory: speed and memory of training, in one run.

    python benchmarks/reservoir.py --out results/reservoir.json

Two million images of noise are written into a temporary folder. One process trains on them by SRT, from the files and
from memory by turns; its two speeds are those of the median turns. Another trains a linear network once on each of
them, from the files alone. Memory is the resident anonymous memory of a process: the page cache, which the system
takes back whenever it likes, is not in it. Before each process the files are dropped from the page cache.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from torch import nn

from unperturbed.batches import ProportionalBatches
from unperturbed.images import Images
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import Linf
from unperturbed.objectives import SRT, Objective, Standard
from unperturbed.recipe import Recipe
from unperturbed.reservoir import Reservoir, image_files
from unperturbed.runtime import provenance
from unperturbed.solvers import FGSM
from unperturbed.trainer import Trainer

CPU = torch.device("cpu")
SHAPE = (3, 32, 32)
BATCH = 128


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    out: Path = Path("results/reservoir.json")
    """file for the numbers"""
    images: int = 2_000_000
    """unlabeled images on the disk"""
    files: int = 16
    """files they lie in"""
    steps: int = 40
    """steps of a turn"""
    turns: int = 8
    """turns of each of the two"""
    task: Literal["measure", "turns", "pass"] = "measure"
    """measure: everything; else what a process of its own does"""
    folder: Path | None = None
    """where the files lie, for such a process"""


def write_images(folder: Path, options: Options) -> None:
    """Files of noise, by turns .npy and raw ones."""
    rng = np.random.default_rng(0)
    for number, rows in enumerate(np.array_split(np.arange(options.images), options.files)):
        images = np.frombuffer(rng.bytes(len(rows) * 3072), np.uint8).reshape(-1, *SHAPE)
        if number % 2:
            images.tofile(folder / f"{number:03}.bin")
        else:
            np.save(folder / f"{number:03}.npy", images)


def forget(folder: Path) -> None:
    """Drop the files from the page cache."""
    for file in folder.iterdir():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def anonymous_megabytes() -> float:
    """Resident anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def trainer(unlabeled: torch.Tensor | Reservoir, f: nn.Module, objective: Objective, batch: int) -> Trainer:
    """A run on ten thousand labeled images and those."""
    rng = torch.Generator().manual_seed(0)
    labeled = torch.randint(0, 256, (10_000, *SHAPE), dtype=torch.uint8, generator=rng)
    labels = torch.arange(10_000) % 10
    images = Images(
        labeled=labeled,
        labels=labels,
        unlabeled=unlabeled,
        validation=labeled[:0],
        validation_labels=labels[:0],
    )
    steps = (len(labeled) + len(unlabeled)) // batch
    recipe = Recipe(objective=objective, steps=steps, batch=batch)
    return Trainer(f=f, images=images, recipe=recipe, device=CPU)


def reservoir(folder: Path) -> Reservoir:
    """The images in the files."""
    return Reservoir(torch.zeros((0, *SHAPE), dtype=torch.uint8), image_files([str(folder)], SHAPE))


def take_turns(folder: Path, options: Options) -> dict[str, list[float]]:
    """Seconds of each turn, from memory and from files."""
    runs: dict[str, Trainer] = {}
    for name in ("memory", "files"):
        unlabeled = reservoir(folder)
        f = DigitsCNN(channels=(8, 8, 8), hidden=16)(SHAPE, 10)
        objective = SRT(solver=FGSM(around=Linf(eps=8 / 255)))
        runs[name] = trainer(whole(unlabeled) if name == "memory" else unlabeled, f, objective, BATCH)
        for _ in range(10):
            runs[name].advance()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.turns):
        for name, run in runs.items():
            begun = time.perf_counter()
            for _ in range(options.steps):
                run.advance()
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def pass_over_all(folder: Path) -> dict[str, float]:
    """Seconds and memory of standard training of a linear network once on each image, so that reading counts most."""
    unlabeled, batch = reservoir(folder), 512
    run = trainer(unlabeled, nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), Standard(), batch)
    run.images.checksum()
    before, memory, begun = anonymous_megabytes(), list[float](), time.perf_counter()
    while run.step < run.recipe.steps:
        run.advance()
        if run.step % 10 == 0:
            memory.append(anonymous_megabytes())
    seconds = time.perf_counter() - begun
    return {
        "images": run.recipe.steps * batch,
        "seconds": seconds,
        "megabytes_before": before,
        "megabytes_after_ten_steps": memory[0],
        "megabytes_at_most": max(memory),
    }


def whole(unlabeled: Reservoir) -> torch.Tensor:
    """All images in memory, where they are put once."""
    images = torch.empty(unlabeled.shape, dtype=torch.uint8)
    place = 0
    for file in unlabeled.files:
        part = np.fromfile(file.path, np.uint8, offset=file.start).reshape(-1, *SHAPE)
        images[place : place + len(part)] = torch.from_numpy(part)
        place += len(part)
    return images


def reader_alone(folder: Path, seconds: float = 10.0) -> dict[str, float]:
    """Images a second that come out of the files while nothing else is done, from the disk and then once more."""
    unlabeled = reservoir(folder)
    batches = ProportionalBatches(labeled=10_000, unlabeled=len(unlabeled), batch=BATCH, seed=0, nearby=True)
    speeds, most = dict[str, float](), batches.steps_per_epoch
    forget(folder)
    for name in ("from the disk", "from the page cache"):
        begun, step, count = time.perf_counter(), 0, 0
        while time.perf_counter() - begun < seconds and step < most:
            unlabeled.announce(batches.soon(step, fresh=step == 0))
            count += len(unlabeled[batches.unlabeled_rows(step)])
            step += 1
        most = step
        speeds[name] = count / (time.perf_counter() - begun)
    return speeds


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/scale.md."""
    once = result["pass"]
    rows = {
        "images a second from memory": f"{result['images_per_second']['memory']:,.0f}",
        "images a second from files": f"{result['images_per_second']['files']:,.0f}",
        "files over memory": f"{result['ratio']:.3f}",
        "images a second of the reader alone, from the disk": f"{result['reader_alone']['from the disk']:,.0f}",
        "the same from the page cache": f"{result['reader_alone']['from the page cache']:,.0f}",
        "anonymous memory after ten steps of the pass": f"{once['megabytes_after_ten_steps']:,.0f} MB",
        "at most during the pass": f"{once['megabytes_at_most']:,.0f} MB",
        "the images themselves": f"{result['bytes'] / 2**20:,.0f} MB",
    }
    return "\n".join(["| | |", "|---|---:|", *(f"| {words} | {figure} |" for words, figure in rows.items())])


def in_a_process(task: str, folder: Path, options: Options) -> Any:
    """What a process of its own measured."""
    forget(folder)
    words = ["--task", task, "--folder", str(folder), "--steps", str(options.steps), "--turns", str(options.turns)]
    return json.loads(subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True).stdout)


def main(options: Options) -> None:
    """Measure, print and write JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if options.folder is not None:
        turns = options.task == "turns"
        print(json.dumps(take_turns(options.folder, options) if turns else pass_over_all(options.folder)))
        return
    folder = Path(tempfile.mkdtemp(prefix="reservoir-"))
    try:
        write_images(folder, options)
        seconds = in_a_process("turns", folder, options)
        once = in_a_process("pass", folder, options)
        alone = reader_alone(folder)
    finally:
        shutil.rmtree(folder)
    speeds = {name: BATCH * options.steps / statistics.median(found) for name, found in seconds.items()}
    result: dict[str, Any] = {
        "provenance": provenance(CPU) | {"cores": os.cpu_count() or 0},
        "images": options.images,
        "bytes": options.images * 3072,
        "batch": BATCH,
        "steps_of_a_turn": options.steps,
        "seconds_of_turns": seconds,
        "images_per_second": speeds,
        "ratio": speeds["files"] / speeds["memory"],
        "pass": once,
        "reader_alone": alone,
    }
    print(markdown(result))
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Options))
