"""A run that is trained again and ends with the same weights: attacks that evidence holds are not made twice."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from ..datasets import Dataset
from ..evaluation import usual_batch
from ..files import numbers_in, write_whole
from ..recipe import plain
from ..runs import RunDirectory
from ..sameness import fingerprint
from ..sweeps import FILE as SWEEP
from .definition import SURFACES
from .evidence import Evidence, read
from .gathered import SLOW_REPORT
from .notes import note, read_notes
from .planning import PlannedRun, attacked_at_once


def recall(
    run: PlannedRun,
    model: nn.Module,
    dataset: Dataset,
    directory: RunDirectory,
    folder: Path,
    device: torch.device,
) -> str:
    """Put what evidence in a folder holds of the weights of a run into its directory: a sentence, if it does.

    Of a run that was attacked already, on other weights, or by another recipe, nothing is.
    """
    file = folder / run.scale / f"{run.name}.json"
    if directory.report.exists() or not file.is_file() or (evidence := read(file)).recipe != run.recipe:
        return ""
    batch = attacked_at_once(run.recipe) or usual_batch(dataset.test_images, device)
    subject = fingerprint(model, dataset.test_images, dataset.test_labels, evidence.report.seed, batch)
    if evidence.report.subject != subject:
        return ""
    unpack(evidence, directory)
    return f"its weights are those of {file}: attacks that this holds, by the same settings, are not made again"


def unpack(evidence: Evidence, directory: RunDirectory) -> None:
    """Write evidence as the files it was gathered from, but for what lies there already.

    The report comes last, by which it counts as attacked. Of attacks made on fewer images than others, those that
    were interrupted have no subject, and stay in the evidence alone, as do those made on fewer than some.
    """
    recipe, weights = plain(directory.read_recipe()), numbers_in(directory.weights)
    files: dict[Path, str] = {}
    if evidence.sweep is not None:
        files[directory.path / SWEEP] = evidence.sweep.dumps()
    if slow := [report for report in evidence.on_fewer if report.subject]:
        most = max(slow, key=lambda report: len(report.labels))
        files[directory.path / SLOW_REPORT] = replace(most, recipe=recipe, weights=weights).dumps()
    files[directory.report] = replace(evidence.report, recipe=recipe, weights=weights).dumps()
    if evidence.surfaces.keys() >= SURFACES.keys() and "surfaces" not in read_notes(directory.path):
        note(directory.path, surfaces=dict(evidence.surfaces))
    for path, text in files.items():
        if not path.exists():
            write_whole(path, text.encode())
