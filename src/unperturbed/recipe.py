"""A recipe: all that decides a training run, as one value that JSON stores and the command line edits."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NoReturn, cast, get_args

from . import models
from .averaging import Average, require_average
from .data import Data
from .engine import Precision
from .models import Architecture
from .neighborhoods import (
    L0,
    L1,
    L2,
    Affine,
    Blur,
    Box,
    Color,
    Composed,
    Linf,
    Neighborhood,
    Spatial,
    TurnThenShift,
    require_radius,
)
from .objectives import AT, KLR, SRT, TRADES, UAT, Mixture, Objective, Standard, require_objective, solver_of
from .printing import in_shell, printable, quoted
from .schedules import Cyclic, Piecewise, Ramp, Schedule, require_fractions
from .solvers import (
    FGSM,
    NFGSM,
    PGD,
    Grid,
    MomentumPGD,
    PowerIteration,
    Sequential,
    Solver,
    Strongest,
    WorstOfK,
    require_choice,
    require_count,
    require_solver,
    takes,
)
from .trees import Parts, UnknownPartError, plain, refuse, typed

Labeler = Literal["current", "average", "teacher"]


def require_schedule(name: str, schedule: object, example: str) -> None:
    """Refuse what is no function of the progress, as a number alone."""
    if isinstance(schedule, type) or not takes(schedule, 1):
        raise ValueError(f"{name} must be a function of the progress, as {example}, got {quoted(schedule)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum, the optimizer of the paper."""

    rate: Schedule = field(default_factory=Cyclic)
    """the learning rate over the run"""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = False

    def __post_init__(self) -> None:
        require_schedule("SGD.rate", self.rate, "Cyclic(peak=0.1) or Piecewise(rate=0.1)")
        require_fractions("SGD.momentum", (self.momentum,))
        require_radius("SGD.weight_decay", self.weight_decay)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How the checkpoint to keep is chosen where data.validation holds labeled images out; never on test images."""

    every: int = 500
    """steps between two measurements"""
    solver: Solver | None = None
    """the adversary under which accuracy counts; none: clean accuracy"""
    robust: bool = False
    """whether, where no solver is named, accuracy under the search of the objective counts"""
    keep: Literal["best", "last"] = "best"
    """which weights a run ends with"""
    drop: float = 1.0
    """a fall of that accuracy below its best that ends the run with the best weights; 1: none does"""
    patience: int | None = None
    """measurements in a row, each worse than the best before, that end the run; None: it takes all of its steps"""

    def __post_init__(self) -> None:
        require_count("Validation.every", self.every)
        if self.solver is not None:
            require_solver("Validation.solver", self.solver)
        require_choice("Validation.keep", self.keep, "best", "last")
        require_radius("Validation.drop", self.drop)
        require_count("Validation.patience", 1 if self.patience is None else self.patience)

    def adversary(self, objective: Objective) -> Solver | None:
        """Who attacks held-out images where that objective is minimized."""
        return solver_of(objective) if self.robust and self.solver is None else self.solver


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """A model trained once for all runs whose images it labels."""

    model: Architecture | None = None
    """its network; None: that of the run"""
    objective: Objective = field(default_factory=Standard)
    """what it minimizes: standard risk, or for instance SRT over warps, which makes more of few labels"""
    unlabeled: bool = False
    """whether it sees the unlabeled images too"""
    steps: int = 5000
    """its optimizer steps"""
    batch: int | None = None
    """images in one of them; None: as many as in a step of the run"""
    optimizer: SGD = field(default_factory=SGD)
    ramp: Ramp = field(default_factory=Ramp)
    """how the robust term of its objective comes in"""
    averaging: Average = field(default_factory=Average)
    """of its weights; where one is kept, that is the teacher"""
    labeler: Literal["current", "average"] = "current"
    """whose predictions are C(x) while it is trained itself"""

    def __post_init__(self) -> None:
        require_objective("Teacher.objective", self.objective)
        require_count("Teacher.steps", self.steps)
        require_count("Teacher.batch", 1 if self.batch is None else self.batch)
        require_choice("Teacher.labeler", self.labeler, "current", "average")
        require_average(self.averaging, labels=self.labeler == "average", of="teacher.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A whole training run."""

    name: str = "custom"
    data: Data = field(default_factory=lambda: Data(labeled=100))
    """the images"""
    model: Architecture = field(default_factory=models.DigitsCNN)
    """the network"""
    objective: Objective = field(default_factory=SRT)
    """what is minimized"""
    steps: int = 1000
    """optimizer steps"""
    batch: int = 128
    """images in a step, labeled and unlabeled together"""
    least_labeled: int = 1
    """labeled ones among them at least, also where D_U is so large that their share is smaller"""
    optimizer: SGD = field(default_factory=SGD)
    ramp: Ramp = field(default_factory=Ramp)
    """how the robust term comes in"""
    validation: Validation = field(default_factory=Validation)
    labeler: Labeler = "current"
    """whose predictions are C(x): the model's own, as in the paper, its average's, or a fixed teacher's"""
    teacher: Teacher = field(default_factory=Teacher)
    averaging: Average = field(default_factory=Average)
    """exponential moving average of the weights"""
    weight_perturbation: float = 0.0
    """radius of adversarial weight perturbation, as a share of each weight tensor's norm; 0: none, 0.005 is usual"""
    precision: Precision = "auto"
    """of convolutions and matrix products; auto: bfloat16 on a GPU that computes with it, else float32"""
    microbatch: int | None = None
    """images of a batch that go through the network at once, their gradients adding up; None: all"""
    batchnorm: Literal["local", "synchronized"] = "local"
    """where several processes train: statistics of each one's part of a batch, the first's kept, or of the batch"""
    seed: int = 0
    """seed of weights, batches and adversaries"""
    log_every: int = 50
    """steps between two lines of the log"""

    def __post_init__(self) -> None:
        require_objective("objective", self.objective)
        require_count("steps", self.steps)
        require_count("batch", self.batch)
        require_count("least_labeled", self.least_labeled)
        require_count("log_every", self.log_every)
        require_count("microbatch", self.batch if self.microbatch is None else self.microbatch)
        require_radius("weight_perturbation", self.weight_perturbation)
        require_choice("labeler", self.labeler, *get_args(Labeler))
        if not isinstance(self.validation, Validation):
            raise ValueError(f"validation must be unperturbed.Validation, got {quoted(self.validation)}")
        if self.validation.robust and self.validation.adversary(self.objective) is None:
            raise ValueError(
                f"validation.robust asks for accuracy under the search of {type(self.objective).__name__}, which has "
                "none: leave it out, or name a validation.solver"
            )
        require_choice("batchnorm", self.batchnorm, "local", "synchronized")


def of_teacher(recipe: Recipe) -> Recipe:
    """The recipe by which the teacher of a recipe is trained."""
    teacher, data = recipe.teacher, replace(recipe.data, sha256=None)
    batch = teacher.batch or recipe.batch
    return Recipe(
        name=f"{data.name}-teacher",
        data=data if teacher.unlabeled else replace(data, unlabeled=0, unlabeled_files=()),
        model=teacher.model or recipe.model,
        objective=teacher.objective,
        steps=teacher.steps,
        batch=batch,
        least_labeled=min(recipe.least_labeled, batch),
        optimizer=teacher.optimizer,
        ramp=teacher.ramp,
        averaging=teacher.averaging,
        labeler=teacher.labeler,
        precision=recipe.precision,
        microbatch=recipe.microbatch,
        batchnorm=recipe.batchnorm,
        seed=recipe.seed,
    )


PARTS: Parts = {
    Neighborhood: (Linf, L2, L1, L0, Spatial, TurnThenShift, Affine, Blur, Color, Composed),
    Box: (Spatial, TurnThenShift, Affine, Blur, Color, Composed),
    Solver: (PGD, MomentumPGD, FGSM, NFGSM, PowerIteration, WorstOfK, Grid, Sequential, Strongest),
    Objective: (Standard, AT, SRT, TRADES, KLR, UAT, Mixture),
    Schedule: (Piecewise, Cyclic),
    Architecture: (
        models.DigitsCNN,
        models.SmallCNN,
        models.ResNet,
        models.ResNet18,
        models.PreActResNet18,
        models.WideResNet,
    ),
}
"""what may stand in a recipe file where a part of that kind is expected"""


def dumps(recipe: Recipe) -> str:
    """The recipe as JSON text, complete and stable."""
    return json.dumps(plain(recipe), indent=2, allow_nan=False, default=no_json) + "\n"


def no_json(value: object) -> NoReturn:
    """Raise: a recipe holds what its file cannot."""
    raise ValueError(
        f"a recipe is kept as JSON, which cannot hold {quoted(value)}: make it a frozen dataclass, or a number of "
        "Python's own"
    )


def loads(text: str, source: str = "the recipe") -> Recipe:
    """The recipe that `dumps` wrote; whatever does not fit is refused with its place."""
    try:
        tree = json.loads(
            text,
            object_pairs_hook=lambda pairs: each_once(pairs, source),
            parse_constant=lambda word: refuse(source, f"{word} is not a number"),
            parse_int=lambda digits: int(digits) if len(digits) < 400 else refuse(source, "a number is too large"),
        )
        return cast(Recipe, typed(tree, Recipe, source, PARTS))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{printable(source)} is not JSON (line {error.lineno}: {error.msg}): restore it or start anew"
        ) from None
    except RecursionError:
        raise ValueError(f"{printable(source)} is nested too deeply to be a recipe") from None


def each_once(pairs: list[tuple[str, object]], source: str) -> dict[str, object]:
    """The fields of a part of a recipe; one that stands there twice is refused: which of its values is meant?"""
    counts = Counter(name for name, _ in pairs)
    if twice := [name for name, count in counts.items() if count > 1]:
        refuse(source, f"{quoted(twice[0])} stands there twice")
    return dict(pairs)


def read(path: Path) -> Recipe:
    """The recipe in that file, which an editor may have begun with the mark of UTF-8."""
    if not (path.is_file() or path.is_fifo()):
        there = f"{printable(path)} is a directory" if path.is_dir() else f"there is no file {printable(path)}"
        advice = f"name {in_shell(path / 'recipe.json')}" if (path / "recipe.json").is_file() else "name another"
        raise FileNotFoundError(f"{there}, expected a recipe in JSON, as train writes it: {advice}")
    try:
        return loads(path.read_text(encoding="utf-8-sig"), str(path))
    except UnicodeDecodeError:
        raise ValueError(f"{printable(path)} is not a text file, expected a recipe in JSON") from None
    except UnknownPartError as error:
        weights = printable(repr(str(path.with_name("model.safetensors"))))
        raise UnknownPartError(
            f"{error}; parts of your own are known to your program alone: build the network there, and read its "
            f"weights by load_state_dict(safetensors.torch.load_file({weights}))"
        ) from None
