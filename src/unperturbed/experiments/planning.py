"""The runs that experiments need, dealt out and timed in advance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Literal

from ..attacks import MinimumNorm
from ..evaluation import at_once
from ..models import DigitsCNN, ResNet, ResNet18, SmallCNN, WideResNet
from ..printing import quoted
from ..recipe import Recipe, of_teacher
from ..recipes import named
from ..runs import RunDirectory, difference
from .catalog import experiments
from .definition import Experiment, Trial, merged
from .evidence import directory_name
from .notes import read_notes
from .passes import passes_of_attack, passes_of_image
from .scales import SLOW_ATTACKS, TEST_IMAGES, Network, Scale, scaled, seeded, substituted

SIDE_BY_SIDE = 4
"""runs of small networks that share a GPU"""
FOUR_TAKE = 2.35
"""how many times as long as one run alone four side by side took (results/training-speed.json)"""
MEASURED: Mapping[type, tuple[float, str]] = {
    SmallCNN: (26_023.0, "mnist-pixel-srt"),
    ResNet: (25_969.2, "cifar10-spatial-srt"),
    ResNet18: (8_910.2, "cifar10-pixel-srt"),
    WideResNet: (1_254.6, "cifar10-pixel-srt"),
}
"""images a second of a step by that recipe on one H200, by network (results/training-speed.json)"""
BASIS = (
    "expected on one H200: steps x batch x passes counted on a small network, over passes a second from "
    "results/training-speed.json; attacks as if no image fell, a teacher with every run it serves, so at most that"
)
START_UP = 30.0
"""seconds until the first step: reading, compiling, recording"""
SLOWER_IN_TF32 = 2.0
"""times that a pass takes in TF32, in which minimum-norm attacks search, by the peaks of the card"""
ATTACK_START_UP = 15.0
"""seconds until the first attack on a model"""
LEAST_SECONDS_A_STEP = 0.001
"""that launching a recorded step takes, or a pass of an attack, however small it is"""
ATTACKED_AT_ONCE: Mapping[type, int] = {WideResNet: 125}
"""images, by network, so that the longest attack takes about a minute for them: a batch is done or it is not, and an
evaluation ends between two; others are attacked in batches of the usual size"""
SMOKE_SECONDS = 0.5
"""that a smoke run takes on one core"""
SMOKE_BASIS = f"expected on one core: {SMOKE_SECONDS} seconds for each run"
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "digits": (1, 8, 8)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of a trial: its seed, scale and network."""

    trial: Trial
    seed: int
    scale: Scale
    network: Network
    timed: bool
    """whether any experiment shows its minutes; its trial says whether one that is named does"""

    @property
    def name(self) -> str:
        """The name of its directory."""
        return directory_name(self.trial.name, self.network, self.seed)

    @property
    def recipe(self) -> Recipe:
        """Its recipe."""
        return seeded(scaled(self.trial.recipe, self.scale, self.network), self.seed)

    @property
    def alone(self) -> bool:
        """Whether it has a device for itself: it is timed, or its network fills the device."""
        return self.timed or not isinstance(self.recipe.model, SmallCNN | ResNet | DigitsCNN)


def planned(
    chosen: Sequence[Experiment],
    scale: Scale,
    network: Network,
    seeds: Sequence[int],
    only: str = "*",
    *,
    timing: bool = True,
) -> list[PlannedRun]:
    """All runs that these experiments need, each once; a run is timed wherever any experiment asks for that."""
    everywhere = (trial for experiment in experiments().values() for trial in experiment.trials)
    timed = {trial.name for trial in everywhere if trial.timed}
    trials = merged([trial for experiment in chosen for trial in experiment.trials]).values()
    runs = [
        PlannedRun(
            trial=replace(trial, timed=trial.timed and timing),
            timed=trial.name in timed and timing,
            seed=seed,
            scale=scale,
            network=network if substituted(trial.recipe, network) else "own",
        )
        for seed in seeds
        for trial in trials
        if scale != "short" or not trial.by_schedule
    ]
    kept = [run for run in runs if matches(run, only)]
    if runs and not kept:
        raise ValueError(
            f"--only {quoted(only)} leaves none of {len(runs)} runs: match whole names, as {runs[0].name}, by "
            "patterns, as '*srt*', with commas between several"
        )
    return kept


def matches(run: PlannedRun, only: str) -> bool:
    """Whether the name of a run matches one of the patterns, which commas separate."""
    return any(fnmatch(run.name, pattern.strip()) for pattern in only.split(","))


def groups(runs: Sequence[PlannedRun], at_once: int) -> list[list[PlannedRun]]:
    """The runs in their order, or first those that may share a device, side by side with others about as long.

    A group that is not full is that of the shortest runs: there a device that is not full costs least.
    """
    if at_once == 1:
        return [[run] for run in runs]
    sharing = sorted((run for run in runs if not run.alone), key=lambda run: expected(run).training)
    few = len(sharing) % at_once
    starts = [*([0] if few else []), *range(few, len(sharing), at_once)]
    side_by_side = [sharing[start:end] for start, end in pairwise([*starts, len(sharing)])]
    return side_by_side + [[run] for run in runs if run.alone]


@dataclass(frozen=True, slots=True)
class Expected:
    """Minutes that a run is expected to take."""

    training: float
    attacks: float

    @property
    def minutes(self) -> float:
        """Both together."""
        return self.training + self.attacks


def expected(run: PlannedRun, without: tuple[str, ...] = (), slow_images: int | None = None) -> Expected:
    """How long a run takes from its first step to its last attack, on the basis that BASIS states, or SMOKE_BASIS.

    Attacks that are left for later do not count; those that take long may be made on fewer images.
    """
    if run.scale == "smoke":
        return Expected(SMOKE_SECONDS / 120, SMOKE_SECONDS / 120)
    recipe = run.recipe
    seconds = START_UP + training_seconds(recipe) * (1.0 if run.alone else FOUR_TAKE / SIDE_BY_SIDE)
    if recipe.labeler == "teacher":
        seconds += training_seconds(of_teacher(recipe))
    fractions = sum(1 for fraction in run.trial.fractions if fraction != 1)
    an_image = sum(
        passes_of_attack(attack, SHAPES[recipe.data.name])
        * (SLOWER_IN_TF32 if isinstance(attack, MinimumNorm) else 1)
        * (1 + fractions * (name in run.trial.swept))
        * ((slow_images or TEST_IMAGES) / TEST_IMAGES if name in SLOW_ATTACKS else 1)
        for name, attack in run.trial.attacks_at(run.scale).items()
        if name not in without
    )
    together = attacked_at_once(recipe) or at_once(math.prod(SHAPES[recipe.data.name]))
    seconds_a_pass = max(1 / passes_a_second(recipe), LEAST_SECONDS_A_STEP / together)
    attacking = ATTACK_START_UP + TEST_IMAGES * an_image * seconds_a_pass
    return Expected(seconds / 60, attacking / 60)


def attacked_at_once(recipe: Recipe) -> int | None:
    """Images in a batch of an evaluation, by the network alone, so that it is the same whatever attacks are made."""
    return ATTACKED_AT_ONCE.get(type(recipe.model))


def training_seconds(recipe: Recipe) -> float:
    """Of all steps of a recipe."""
    passes = passes_of_image(recipe).worth
    # Adversarial weight perturbation takes one more gradient of the weights.
    passes += 3.0 if recipe.weight_perturbation else 0.0
    return recipe.steps * max(LEAST_SECONDS_A_STEP, recipe.batch * passes / passes_a_second(recipe))


def passes_a_second(recipe: Recipe) -> float:
    """Forward passes' worth of images that go through the recipe's network in a second."""
    if type(recipe.model) not in MEASURED:
        raise ValueError(f"the speed of {type(recipe.model).__name__} was not measured, so that no plan can be made")
    images, name = MEASURED[type(recipe.model)]
    recipe = named(name)
    return images * passes_of_image(recipe).worth


def shared(runs: Sequence[PlannedRun], share: str) -> list[PlannedRun]:
    """The runs of share `I/N`: dealt out by expected minutes, the longest first, whatever is done already."""
    number, _, count = share.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"--share must be I/N with I from 1 to N, 2/3 for example, got {quoted(share)}")
    loads = [0.0] * min(int(count), len(runs))  # Shares beyond the number of runs stay empty.
    mine: set[str] = set()
    for run in sorted(runs, key=lambda run: (-expected(run).minutes, run.name)) if int(count) > 1 else ():
        place = loads.index(min(loads))
        loads[place] += expected(run).minutes
        if place == int(number) - 1:
            mine.add(run.name)
    return [run for run in runs if int(count) == 1 or run.name in mine]


def require_recipes(runs: Sequence[PlannedRun], out: Path) -> None:
    """Refuse a directory with a run by another recipe of the same name, as an earlier version may have left it."""
    for run in runs:
        directory = RunDirectory(out / run.name)
        if directory.recipe.is_file() and (found := directory.read_recipe()) != run.recipe:
            same_images = replace(run.recipe, data=replace(run.recipe.data, sha256=found.data.sha256))
            raise ValueError(f"{directory.path} holds a run {difference(directory.recipe, same_images)}")


def state_of(run: PlannedRun, out: Path) -> Literal["trained", "diverged", "begun", "missing"]:
    """How far the training of a run has got."""
    path = out / run.name
    if RunDirectory(path).weights.is_file():
        return "trained"
    if read_notes(path).get("failed"):
        return "diverged"
    return "begun" if RunDirectory(path).checkpoint.is_file() else "missing"
