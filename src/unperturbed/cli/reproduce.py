"""`unperturbed reproduce`."""

import time
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal

from ..experiments.account import experiment_text
from ..experiments.catalog import EVERY, chosen, experiments
from ..experiments.definition import Experiment
from ..experiments.genuine import require_data
from ..experiments.lacking import lacking
from ..experiments.layout import aligned
from ..experiments.marked import check_scale, mark_scale
from ..experiments.planning import (
    BASIS,
    SMOKE_BASIS,
    PlannedRun,
    expected,
    planned,
    require_recipes,
    shared,
    state_of,
)
from ..experiments.reproduction import Reproduction
from ..experiments.results import FOLDER, collect, found_in, present, write_page
from ..experiments.scales import SCALES, Scale, usual_network
from ..printing import counted, nearest_in_list, printable, quoted
from ..progress import watching
from ..recipes.budgets import REASONS
from ..runtime import pick_device
from ..signals import StoppedError, stopping_after_a_step
from ..solvers import require_count
from .options import leading_words, parse


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Repeat the paper's tables and figures: `unperturbed reproduce EXPERIMENT [EXPERIMENT …] --data DIR`.

    Trains and attacks what is missing, each run in a directory of its own, and prints the paper's numbers with ours
    beside them. Interrupted anywhere, the same command goes on. Without an experiment they are listed; all is every
    one.
    """

    data: Path | None = None
    """folder with the files of MNIST and CIFAR-10; else as train finds them; smoke runs need none"""
    scale: Scale = "short"
    """smoke: seconds on a CPU; short: a cyclic rate, as many images for every defense; paper: the paper's schedule"""
    network: Literal["usual", "own", "resnet-18"] = "usual"
    """of recipes with WRN-34-10: that, or ResNet-18 in its place; usual: ResNet-18 in short runs alone"""
    out: Path | None = None
    """directory of the runs; reproduced/SCALE if not given"""
    seeds: tuple[int, ...] = (0,)
    """a run for each"""
    only: str = "*"
    """only runs whose names match one of these patterns, separated by commas: 'mnist-*,*-srt-seed-0'"""
    missing: bool = False
    """only runs of which the evidence in the folder --results lacks something that these experiments show; where one
    ends with the weights of its evidence, attacks that this holds are not made again"""
    without: str = ""
    """attacks that are left for later, separated by commas"""
    slow_images: int | None = None
    """make AutoAttack and Pointwise, which take longest, on the first so many test images only"""
    share: str = "1/1"
    """I/N: only the I-th of N shares of the runs, dealt out by their expected minutes"""
    beside: int = 0
    """runs of other commands that share the device: no run is timed then, and so any may share it"""
    minutes: float | None = None
    """stop after that many, with checkpoints; the same command goes on"""
    plan: bool = False
    """print the runs with their expected minutes, and stop"""
    collect: Path | None = None
    """write the evidence of finished runs that --only leaves, of all seeds and networks, to this folder
    (results/reproduce), and stop"""
    write: Path | None = None
    """write the page of results (docs/results.md) from the folder --results, and stop"""
    results: Path = FOLDER
    """folder with collected evidence"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""


def reproduce(arguments: list[str]) -> None:
    """Repeat the paper's tables and figures."""
    began = time.monotonic()
    needed = "reproduce needs an experiment first, or all: unperturbed reproduce EXPERIMENT [EXPERIMENT …]"
    free = not arguments or any(word.startswith("--write") for word in arguments)
    words, rest = leading_words(arguments, "" if free else needed)
    command = parse(Reproduce, rest, usage="reproduce EXPERIMENT [EXPERIMENT …]")
    if command.write is not None:
        if words:
            named = quoted(" ".join(words))
            raise ValueError(f"--write writes the page of all experiments, got {named}: leave that out")
        print(printable(f"{command.write}: {counted(write_page(command.results, command.write), 'run')}"))
        return
    if not words and not rest:
        print(listed())
        return
    if command.collect is not None:
        print(printable(collected(command, chosen(words), command.collect)))
        return
    made, runs, every, out = ordered(command, words)
    if command.plan:
        print(plan_text(command, runs, out))
        return
    carried_out(command, runs, out, began)
    for experiment in made:
        print(experiment_text(experiment, found_in(every, out)) + "\n")


def ordered(
    command: Reproduce, words: list[str]
) -> tuple[list[Experiment], list[PlannedRun], list[PlannedRun], Path]:
    """The experiments that are named, the runs to make here, all that they need, and where these lie."""
    made = chosen(words)
    network = usual_network(command.scale) if command.network == "usual" else command.network
    if command.minutes is not None and not command.minutes > 0:
        raise ValueError(f"--minutes must be a positive number, got {command.minutes}")
    if command.slow_images is not None:
        require_count("--slow-images", command.slow_images)
    for name in left_for_later(command):
        if name not in REASONS:
            raise ValueError(f"there is no attack {name!r} to leave for later{nearest_in_list(name, REASONS)}")
    if command.beside < 0:
        raise ValueError(f"--beside must be a whole number from 0 on, got {command.beside}")
    seeds = tuple(dict.fromkeys(command.seeds))
    if min(seeds) < 0:
        raise ValueError(f"--seeds must be whole numbers from 0 on, got {min(seeds)}")
    every = planned(made, command.scale, network, seeds)
    runs = planned(made, command.scale, network, seeds, command.only, timing=command.beside == 0)
    if command.missing:
        runs = lacking(runs, command.results, left_for_later(command), command.slow_images)
    out = directory_of(command)
    require_recipes(every, out)
    return made, shared(runs, command.share), every, out


def directory_of(command: Reproduce) -> Path:
    """Where the runs lie; a directory of runs at another scale is refused."""
    out = command.out or Path("reproduced") / command.scale
    check_scale(out, command.scale)
    return out


def collected(command: Reproduce, made: list[Experiment], folder: Path) -> str:
    """Write the evidence of these experiments' runs to a folder: what was written."""
    out = directory_of(command)
    begun = present(made, command.scale, out, command.only)
    if not begun:
        raise ValueError(f"{out} holds no run of these: name the directory of the runs by --out, or others by --only")
    require_recipes(begun, out)
    written, otherwise = collect(begun, out, folder)
    size = sum(path.stat().st_size for path in written) / 1e6
    sentence = f"{folder}: {len(written)} of {counted(len(begun), 'run')} begun, {size:.1f} MB"
    if not otherwise:
        return sentence
    return f"{sentence}; attacks by other settings, images or weights are left out: {', '.join(otherwise)}"


def left_for_later(command: Reproduce) -> tuple[str, ...]:
    """The attacks that are not made now."""
    return tuple(name.strip() for name in command.without.split(",") if name.strip())


def carried_out(command: Reproduce, runs: list[PlannedRun], out: Path, began: float) -> None:
    """Train and attack what is missing, until all is there, time is up since the command began, or a signal comes."""
    for data in sorted({run.recipe.data.name for run in runs}):
        require_data(data, command.data)
    pick_device(command.device)
    if runs:
        mark_scale(out, command.scale)
    ends = inf if command.minutes is None else began + 60 * command.minutes
    with stopping_after_a_step() as request, watching() as watcher:

        def stop() -> bool:
            return request() or time.monotonic() >= ends

        def seconds_left() -> float:
            return ends - time.monotonic()

        reproduction = Reproduction(
            out=out,
            folder=command.data,
            device=command.device,
            stop=stop,
            seconds_left=seconds_left,
            watcher=watcher,
            without=left_for_later(command),
            slow_images=command.slow_images,
            beside=command.beside,
            evidence=command.results if command.missing else None,
        )
        try:
            reproduction.carry_out(runs)
        except StoppedError as stopped:
            if request.number:
                raise
            print(printable(f"after {command.minutes:g} minute{'' if command.minutes == 1 else 's'}: {stopped}"))


def listed() -> str:
    """A line for each experiment."""
    rows = [(name, experiment.title) for name, experiment in experiments().items()]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {title}" for name, title in (*rows, (EVERY, "all of these"))]
    scales = [f"--scale {scale}: {words}" for scale, words in SCALES.items()]
    return "\n".join([*lines, "", *scales])


def plan_text(command: Reproduce, runs: list[PlannedRun], out: Path) -> str:
    """The runs with what is there of them and the minutes they are expected to take."""
    with watching() as watcher:
        looking = Reproduction(
            out=out,
            folder=command.data,
            device="cpu",
            stop=lambda: False,
            watcher=watcher,
            without=left_for_later(command),
            slow_images=command.slow_images,
        )
        states = {run.name: "done" if looking.complete(run) else state_of(run, out) for run in runs}
    rows: list[tuple[str, ...]] = []
    left = 0.0
    for run in runs:
        minutes, state = expected(run, left_for_later(command), command.slow_images), states[run.name]
        left += {"done": 0.0, "diverged": 0.0, "trained": minutes.attacks}.get(state, minutes.minutes)
        recipe = run.recipe
        rows.append(
            (
                run.name,
                type(recipe.model).__name__,
                f"{recipe.steps:,} x {recipe.batch}",
                f"{minutes.training:.1f}",
                f"{minutes.attacks:.1f}",
                state,
            )
        )
    heading = ("run", "network", "steps x batch", "minutes of training", "of attacks", "here")
    basis = SMOKE_BASIS if command.scale == "smoke" else BASIS
    words = f"{counted(len(rows), 'run')} in {out}, {counted(round(left), 'minute')} left ({basis})"
    return f"{aligned(heading, rows)}\n\n{words}" if rows else "nothing needs to be trained"
