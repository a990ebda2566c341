"""Evidence: all that is kept of a finished run once its weights are gone, as one JSON file in `results/`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from .. import recipe as recipe_files
from .. import report as reports
from .. import sweeps
from ..files import refused_if_damaged, write_anew
from ..printing import printable, shortened
from ..recipe import Recipe
from ..report import Report
from ..sweeps import Sweep
from .definition import CLEAN, SURFACES, Cell
from .scales import Network, Scale

FORMAT = 1
COLLECT = "collect it again with `unperturbed reproduce --collect`"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """One finished run: what it was, how long it took, and what every attack did to every image."""

    name: str
    """of the trial"""
    seed: int
    scale: Scale
    network: Network
    recipe: Recipe
    report: Report
    other: Report | None = None
    """on the weights that were not kept, where the run selected some on its validation part"""
    on_fewer: tuple[Report, ...] = ()
    """under attacks that were made on the first images alone, on purpose or because they were interrupted"""
    sweep: Sweep | None = None
    selected: Mapping[str, float]
    """the step of the weights that were best on held-out images, their accuracy there, and the step at which the
    guard (`fallen`) or patience (`ended`) ended the run, if one did; empty where none were"""
    held_out: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """the steps at which held-out images were looked at, and accuracy there; empty where nobody noted that"""
    surfaces: Mapping[str, Sequence[float]]
    """what was measured around each of the first test images"""
    seconds: float
    """of training, with that of its teacher where it has one"""
    teacher_seconds: float = 0.0
    """of these, those of its teacher; 0 where there is none, or where a file does not tell them apart"""
    teacher_together: int = 1
    """runs that shared the device while its teacher was trained"""
    together: int
    """runs that shared the device while it trained"""
    trained_on: str = ""
    """the device; none: that of the attacks"""
    trained_by: str = ""
    """versions of this package, with those that trained its teacher; none before 0.2.0"""
    log: Mapping[str, Sequence[float]]
    """columns of the log"""

    @property
    def device(self) -> str:
        """Where it was trained."""
        return self.trained_on or attacked_on(self.report)

    @property
    def file_name(self) -> str:
        """Its name among the results."""
        return f"{directory_name(self.name, self.network, self.seed)}.json"

    @property
    def kept(self) -> str:
        """Which weights it kept, the best or the last: the best too where the guard ended it, be it at the end."""
        ended_early = bool(self.log) and self.log["step"][-1] < self.recipe.steps and "ended" not in self.selected
        return "best" if ended_early or "fallen" in self.selected else self.recipe.validation.keep

    @property
    def has_other(self) -> bool:
        """Whether it had other weights than those it kept, be they attacked or not."""
        last = self.log["step"][-1] if self.log else self.recipe.steps
        return self.other is not None or self.selected.get("step", last) != last

    def of_fewer(self, attack: str) -> Report | None:
        """The report on most images among those under an attack that was not made on all; none where it was."""
        found = [report for report in self.on_fewer if holds(report, attack)]
        return None if holds(self.report, attack) else max(found, key=lambda few: len(few.labels), default=None)

    def samples(self, cell: Cell, *, of_other: bool = False) -> Tensor | None:
        """What was measured on each image, in percent for accuracies; none where it was not."""
        if cell.column in SURFACES:
            found = () if of_other else counted(self.surfaces).get(cell.column, ())
            return torch.tensor(found, dtype=torch.float64) if found and all(map(isfinite, found)) else None
        report = self.other if of_other else self.report
        if cell.fraction != 1:
            report = self.sweep.reports.get(cell.fraction) if self.sweep is not None and not of_other else None
        if report is None:
            return None
        if cell.column == CLEAN:
            return 100 * report.survivors().double()
        if not holds(report, cell.column):
            report = None if of_other or cell.fraction != 1 else self.of_fewer(cell.column)
        return None if report is None else 100 * report.survivors(cell.column).double()

    def dumps(self) -> str:
        """The evidence as JSON text."""
        return json.dumps(
            {
                "format": FORMAT,
                "name": self.name,
                "seed": self.seed,
                "scale": self.scale,
                "network": self.network,
                "seconds": round(self.seconds, 3),
                "teacher_seconds": round(self.teacher_seconds, 3),
                "teacher_together": self.teacher_together,
                "together": self.together,
                "trained_on": self.device,
                "trained_by": self.trained_by,
                "recipe": recipe_files.plain(self.recipe),
                "report": tree_of(self.report),
                "other": None if self.other is None else tree_of(self.other),
                "slow": [tree_of(report) for report in self.on_fewer],
                "sweep": None if self.sweep is None else json.loads(bare(self.sweep).dumps()),
                "selected": dict(self.selected),
                "held_out": dict(self.held_out),
                "surfaces": dict(self.surfaces),
                "log": dict(self.log),
            },
            separators=(",", ":"),
        )


def holds(report: Report, attack: str) -> bool:
    """Whether a report has an attack of that name."""
    return any(result.name == attack for result in report.attacks)


def listed(tree: Any) -> list[Any]:
    """The reports on fewer images; older files hold one, or none."""
    return tree if isinstance(tree, list) else [] if tree is None else [tree]


def attacked_on(report: Report) -> str:
    """The device of the attacks."""
    return str(report.provenance.get("device", "unknown"))


def counted(surfaces: Mapping[str, Sequence[float]]) -> Mapping[str, Sequence[float]]:
    """What counts of surfaces: pixel-wise, versions that knew no ruggedness yet measured beyond the ball too."""
    old = "ruggedness.pixel" not in surfaces
    return {name: values for name, values in surfaces.items() if not (old and name.endswith(".pixel"))}


def tree_of(report: Report) -> Any:
    """The report as plain values; the recipe stands beside it already."""
    return json.loads(replace(report, recipe=None).dumps())


def bare(sweep: Sweep) -> Sweep:
    """The sweep without the recipe in each of its reports."""
    return replace(
        sweep, reports={fraction: replace(report, recipe=None) for fraction, report in sweep.reports.items()}
    )


def directory_name(trial: str, network: Network, seed: int) -> str:
    """The name of a run's directory."""
    return f"{trial}{'-resnet18' if network == 'resnet-18' else ''}-seed-{seed}"


def loads(text: str, source: str = "the evidence") -> Evidence:
    """The evidence that `dumps` wrote."""
    with refused_if_damaged(source, "evidence", COLLECT, of="a run"):
        tree = json.loads(text)
        if tree["format"] != FORMAT:
            raise ValueError(f"it has format {shortened(tree['format'])}, this version reads {FORMAT}")
        if tree["scale"] not in get_args(Scale) or tree["network"] not in get_args(Network):
            raise ValueError("its scale or network is none that there is")
        if reports.typed(tree, "together", int) < 1:
            raise ValueError(f"one run at least shares its device, got {tree['together']}")
        if not 0 <= float(tree["seconds"]) < inf:
            raise ValueError(f"its seconds should be a number from 0 on, got {tree['seconds']}")
        if not 0 <= float(tree.get("teacher_seconds", 0.0)) <= float(tree["seconds"]):
            raise ValueError(f"the seconds of its teacher should be among its own, got {tree['teacher_seconds']}")
        lengths = {len(row) for row in tree["log"].values()}
        if tree["log"] and (len(lengths) > 1 or not tree["log"]["step"]):
            raise ValueError("the columns of its log should be as long as each other")
        return Evidence(
            name=reports.typed(tree, "name", str),
            seed=reports.typed(tree, "seed", int),
            scale=tree["scale"],
            network=tree["network"],
            seconds=float(tree["seconds"]),
            teacher_seconds=float(tree.get("teacher_seconds", 0.0)),
            teacher_together=max(1, int(tree.get("teacher_together", 1))),
            together=tree["together"],
            trained_on=reports.typed(tree, "trained_on", str),
            trained_by=str(tree.get("trained_by", "")),
            recipe=recipe_files.loads(json.dumps(tree["recipe"])),
            report=reports.loads(json.dumps(tree["report"])),
            other=None if tree["other"] is None else reports.loads(json.dumps(tree["other"])),
            on_fewer=tuple(reports.loads(json.dumps(each)) for each in listed(tree["slow"])),
            sweep=None if tree["sweep"] is None else sweeps.loads(json.dumps(tree["sweep"])),
            selected={str(name): float(value) for name, value in tree["selected"].items()},
            held_out=columns(tree.get("held_out", {})),
            surfaces=columns(tree["surfaces"]),
            log=columns(tree["log"]),
        )


def columns(tree: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Columns of numbers by their names."""
    return {str(name): [float(value) for value in row] for name, row in tree.items()}


def read(path: Path) -> Evidence:
    """The evidence in a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (IsADirectoryError, UnicodeDecodeError) as error:
        reason = "no evidence that can be read (it is no file of text)"
        raise ValueError(f"{printable(path)} is {reason}: {COLLECT}") from error
    return loads(text, str(path))


def read_all(folder: Path) -> list[Evidence]:
    """All evidence below a folder, in the order of its file names; none where there is no folder.

    A file by another name than its run has is refused: a copy would count as one run more.
    """
    found = {path: read(path) for path in sorted(folder.glob("*/*.json"))}
    for path, each in found.items():
        if path.parts[-2:] != (each.scale, each.file_name):
            own = printable(f"{each.scale}/{each.file_name}")
            raise ValueError(f"{printable(path)} holds what belongs in {own}: move it there, or a copy elsewhere")
    return list(found.values())


def write(evidence: Evidence, folder: Path) -> Path:
    """Write evidence where `read_all` finds it: the path."""
    path = folder / evidence.scale / evidence.file_name
    write_anew(path, (evidence.dumps() + "\n").encode())
    return path
