"""A run that is trained again and ends with the same weights: attacks that evidence holds are not made twice."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from ..datasets import Dataset
from ..evaluation import fingerprint, usual_batch
from ..files import numbers_in, write_whole
from ..printing import counted
from ..recipe import plain
from ..runs import RunDirectory
from ..sweeps import FILE as SWEEP
from .definition import SURFACES
from .evidence import Evidence, read
from .gathered import SLOW_REPORT
from .notes import note
from .planning import PlannedRun, attacked_at_once


def recall(run: PlannedRun, model: nn.Module, dataset: Dataset, directory: RunDirectory, folder: Path) -> str:
    """Put what evidence in a folder holds of the weights of a run into its directory: a sentence, if it does.

    Of a run that was attacked already, on other weights, or by another recipe, nothing is.
    """
    file = folder / run.scale / f"{run.name}.json"
    if directory.report.exists() or not file.is_file() or (evidence := read(file)).recipe != run.recipe:
        return ""
    images, labels, device = dataset.test_images, dataset.test_labels, next(model.parameters()).device
    batch = attacked_at_once(run.recipe) or usual_batch(images, device)
    if evidence.report.subject != fingerprint(model, images, labels, evidence.report.seed, batch):
        return ""
    unpack(evidence, directory)
    attacks = counted(len(evidence.report.attacks), "attack")
    return f"its weights are those of {file}, and {attacks} that it holds are not made again"


def unpack(evidence: Evidence, directory: RunDirectory) -> None:
    """Write evidence as the files it was gathered from; the report last, by which it counts as attacked."""
    recipe, weights = plain(directory.read_recipe()), numbers_in(directory.weights)
    if evidence.sweep is not None:
        swept = {part: replace(report, recipe=recipe) for part, report in evidence.sweep.reports.items()}
        write_whole(directory.path / SWEEP, replace(evidence.sweep, reports=swept).dumps().encode())
    # What is left of an attack that was interrupted has no subject: it stays in the evidence alone.
    if slow := [report for report in evidence.on_fewer if report.subject]:
        most = replace(max(slow, key=lambda report: len(report.labels)), recipe=recipe, weights=weights)
        write_whole(directory.path / SLOW_REPORT, most.dumps().encode())
    if evidence.surfaces.keys() >= SURFACES.keys():
        note(directory.path, surfaces=dict(evidence.surfaces))
    write_whole(directory.report, replace(evidence.report, recipe=recipe, weights=weights).dumps().encode())
