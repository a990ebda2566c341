"""Carrying experiments out: what is missing is trained, attacked and measured, and anything may stop it anywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from torch import nn

from .. import report as reports
from .. import sweeps
from ..datasets import Dataset, load
from ..evaluation import evaluate
from ..files import numbers_in, set_aside, write_whole
from ..guards import DivergedError
from ..progress import Bars, Lines, Titled
from ..recipe import Recipe, plain
from ..report import Report
from ..runs import RunDirectory
from ..runtime import pick_device, provenance
from ..sameness import holds_all
from ..signals import StoppedError
from ..training import fresh_model, train_together
from ..unfinished import FILE, Unfinished
from .definition import SURFACES
from .gathered import OTHER_REPORT, SLOW_REPORT, is_of, own_report, weights_under
from .notes import note, read_notes
from .planning import (
    ATTACK_START_UP,
    SIDE_BY_SIDE,
    START_UP,
    PlannedRun,
    attacked_at_once,
    groups,
    state_of,
)
from .recalled import recall
from .scales import LONG_ATTACKS, SLOW_ATTACKS, images_attacked
from .settled import OTHER_WEIGHTS, other_weights, settle
from .terrain import surfaces_around
from .watchers import Noting, Stopping

TEACHERS = "teachers"
"""the folder beside the runs in which their teachers lie, so that whoever carries the runs on carries these too"""
QUICK_ATTACKS = ("fgsm", "pgd", "pgd-10", "pgd-20", "cw", "randadv", "gridadv")
"""attacks that the weights a run did not keep are under too"""
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Where runs lie, on what they are trained and attacked, and who may stop them."""

    out: Path
    folder: Path | None
    device: str
    stop: Stop
    watcher: Bars | Lines
    without: tuple[str, ...] = ()
    """attacks that are left for later"""
    seconds_left: Callable[[], float] = lambda: inf
    """until time is up"""
    slow_images: int | None = None
    """test images that attacks which take long are made on; none: as many as others"""
    beside: int = 0
    """runs of others that share the device"""
    evidence: Path | None = None
    """folder with evidence: attacks that it holds of the same weights are not made again"""

    def carry_out(self, runs: Sequence[PlannedRun]) -> None:
        """Train and attack what is missing of these runs, group by group; long attacks come last."""
        at_once = SIDE_BY_SIDE if pick_device(self.device).type == "cuda" else 1
        started, quickly = False, replace(self, without=(*self.without, *LONG_ATTACKS))
        for group in groups(runs, at_once):
            if missing := [run for run in group if state_of(run, self.out) in ("missing", "begun")]:
                self.stop_if_asked("between two runs", START_UP if started else 0.0)
                self.train_or_note(missing)
                started = True
            for run in group:
                path = self.out / run.name
                if state_of(run, self.out) == "diverged":
                    sentence = f"{read_notes(path)['failed']}; it is left as it is: delete {path} to start it anew"
                    Titled(self.watcher, run.name).warned(sentence)
                started = quickly.attack_if_trained(run, started) or started
            self.stop_if_asked("between two runs")
        for run in runs:
            started = self.attack_if_trained(run, started) or started

    def attack_if_trained(self, run: PlannedRun, started: bool) -> bool:
        """Make the attacks that are missing on a trained run, if there is time to start: whether any were."""
        if state_of(run, self.out) != "trained" or self.complete(run):
            return False
        self.stop_if_asked("between two runs", ATTACK_START_UP if started else 0.0)
        self.attack(run)
        return True

    def stop_if_asked(self, where: str, needed: float = 0.0) -> None:
        """Stop here, where nothing is lost, if a signal came, time is up or less is left than what follows needs."""
        if self.stop() or self.seconds_left() < needed:
            raise StoppedError(f"stopped {where}; the same command goes on from there")

    def train_or_note(self, runs: Sequence[PlannedRun]) -> None:
        """Train these runs; one that diverges is noted, and none that has ended keeps others from being trained."""
        left: Sequence[PlannedRun] = ()
        try:
            self.train(runs)
        except DivergedError as error:
            if len(runs) == 1:
                note(self.out / runs[0].name, failed=str(error))
            left = runs if len(runs) > 1 else ()
        except ValueError:  # Another process may have finished some since they were found missing.
            if len(left := [run for run in runs if state_of(run, self.out) != "trained"]) == len(runs):
                raise
        for run in left:
            self.train_or_note([run])

    def train(self, runs: Sequence[PlannedRun]) -> None:
        """Train these runs side by side."""
        directories = {self.out / run.name: run.recipe for run in runs}
        device, teachers = str(provenance(pick_device(self.device))["device"]), self.out / TEACHERS
        watchers = {
            path: Noting(Titled(self.watcher, path.name), path, recipe, teachers, device, len(runs), self.beside)
            for path, recipe in directories.items()
        }
        train_together(
            directories,
            folder=self.folder,
            device=self.device,
            watchers=watchers,
            checkpoint_seconds=120.0,
            stop=self.stop,
            teachers=teachers,
        )

    def wanted(self, run: PlannedRun) -> dict[str, Any]:
        """The attacks on a run, but for those that are left for later or made on fewer images."""
        left = (*self.without, *(SLOW_ATTACKS if self.slow_images else ()))
        attacks = run.trial.attacks_at(run.scale)
        return {name: attack for name, attack in attacks.items() if name not in left}

    def slow(self, run: PlannedRun) -> dict[str, Any]:
        """The attacks that are made on fewer images."""
        attacks = run.trial.attacks_at(run.scale) if self.slow_images else {}
        return {name: attacks[name] for name in attacks if name in SLOW_ATTACKS and name not in self.without}

    def swept(self, run: PlannedRun, fraction: float) -> dict[str, Any]:
        """Those at a perturbation fraction."""
        attacks = run.trial.swept_at(run.scale, fraction)
        return {name: attack for name, attack in attacks.items() if name not in self.without}

    def complete(self, run: PlannedRun) -> bool:
        """Whether all attacks are made and all surfaces measured."""
        path = self.out / run.name
        directory = RunDirectory(path)
        report = own_report(directory.report)
        if report is None or not directory.weights.is_file():
            return False
        if not shows(report, run, self.wanted(run)) or not self.slow_are_made(run):
            return False
        if run.trial.fractions:
            sweep = sweeps.read(path)
            swept = {} if sweep is None else sweep.reports
            if not all(
                fraction in swept
                and swept[fraction].subject == report.subject
                and holds_all(swept[fraction], self.swept(run, fraction))
                for fraction in run.trial.fractions
            ):
                return False
        if directory.has_checkpoint or not self.surfaces_are_measured(run):
            return False
        weights, other = path / OTHER_WEIGHTS, own_report(path / OTHER_REPORT)
        return not weights.is_file() or (other is not None and shows(other, run, self.quick(run)))

    def slow_are_made(self, run: PlannedRun) -> bool:
        """Whether the attacks that may be made on fewer images are made, on as many as are asked for at least."""
        slow, images = self.slow(run), images_attacked(run.scale)
        few = min(self.slow_images or images, images)
        files = (self.out / run.name / name for name in ("report.json", SLOW_REPORT))
        made = [report for file in files if slow and (report := own_report(file)) is not None]
        return not slow or any(holds_all(report, slow) and len(report.labels) >= few for report in made)

    def surfaces_are_measured(self, run: PlannedRun) -> bool:
        """Whether all is measured on surfaces where they are asked for: older versions measured less."""
        noted = read_notes(self.out / run.name).get("surfaces", {})
        return not run.trial.surfaces or SURFACES.keys() <= noted.keys()

    def attack(self, run: PlannedRun) -> None:
        """Make the attacks that are missing, on the weights that the run kept and on those it did not."""
        directory = RunDirectory(self.out / run.name)
        recipe = directory.read_recipe()
        dataset = tested(load(recipe.data.name, self.folder), images_attacked(run.scale))
        model = fresh_model(recipe, dataset)
        where = pick_device(self.device)
        settle(directory.path, model, dataset, where)
        directory.read_weights(model)
        if self.evidence and (said := recall(run, model, dataset, directory, self.evidence, where)):
            Titled(self.watcher, run.name).warned(said)
        watcher = Stopping(self.watcher, run.name, self.stop)
        report = self.evaluated(run, model, dataset, recipe, directory.report, self.wanted(run), watcher)
        if not self.slow_are_made(run):
            path = directory.path / SLOW_REPORT
            before = len(slow.labels) if (slow := own_report(path)) is not None and slow.attacks else 0
            few = tested(dataset, max(before, self.slow_images or 0))
            if not before:  # Should the first attack be interrupted, what it did to some of these counts.
                self.evaluated(run, model, few, recipe, path, {}, watcher)
            self.evaluated(run, model, few, recipe, path, self.slow(run), watcher)
        if run.trial.fractions:
            sweeps.sweep(
                model,
                dataset.test_images,
                dataset.test_labels,
                lambda fraction: self.swept(run, fraction),
                run.trial.fractions,
                directory.path,
                eps=run.trial.radius,
                at_most=report,
                batch=attacked_at_once(recipe),
                device=self.device,
                watcher=watcher,
                recipe=plain(recipe),
                unfinished=Unfinished(directory.path / FILE),
            )
        if not self.surfaces_are_measured(run):
            measured = surfaces_around(model.to(where), dataset, run.trial, run.scale)
            note(directory.path, surfaces=measured)
        if (other := other_weights(directory.path)) is not None:
            model.load_state_dict(other)
            self.evaluated(run, model, dataset, recipe, directory.path / OTHER_REPORT, self.quick(run), watcher)

    def quick(self, run: PlannedRun) -> dict[str, Any]:
        """The attacks on the weights that a run did not keep."""
        return {name: attack for name, attack in self.wanted(run).items() if name in QUICK_ATTACKS}

    def evaluated(
        self,
        run: PlannedRun,
        model: nn.Module,
        dataset: Dataset,
        recipe: Recipe,
        path: Path,
        attacks: Mapping[str, Any],
        watcher: Stopping,
    ) -> Report:
        """Attack a model and keep the report there, and one set aside that holds what the new one does not."""

        def save(report: Report) -> None:
            if path.exists() and sweeps.means_of(reports.read(path)) - sweeps.means_of(report):
                set_aside(path)
            write_whole(path, report.dumps().encode())

        def save_or_stop(report: Report) -> None:
            save(report)
            if not holds_all(report, attacks):
                self.stop_if_asked(f"between two attacks on {run.name}")

        report = evaluate(
            model,
            dataset.test_images,
            dataset.test_labels,
            attacks,
            device=self.device,
            watcher=watcher,
            recipe=plain(recipe),
            weights=numbers_in(weights_under(path)),
            previous=reports.read(path) if path.exists() else None,
            save=save_or_stop,
            batch=attacked_at_once(recipe),
            unfinished=Unfinished(path.with_name(FILE)),
        )
        save(report)
        return report


def shows(report: Report, run: PlannedRun, attacks: Mapping[str, Any]) -> bool:
    """Whether a report is one on this run and on all images of its scale, with all of these attacks."""
    images = images_attacked(run.scale)
    return is_of(run.recipe, report) and len(report.labels) == images and holds_all(report, attacks)


def tested(dataset: Dataset, count: int) -> Dataset:
    """The data set with no more than so many of its test images, the first ones."""
    return replace(dataset, test_images=dataset.test_images[:count], test_labels=dataset.test_labels[:count])
