"""Whether evidence of several runs can be true together: a data set has one list of test labels and one checksum."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..data import Data
from ..printing import printable
from .account import reports_made
from .evidence import Evidence


def require_coherent(evidence: Sequence[Evidence], folder: Path) -> None:
    """Refuse evidence on other images than the rest, and that of a run which did not come to its end."""
    labels: dict[str, Tensor] = {}
    checksums: dict[Data, str] = {}
    for each in evidence:
        for found in (labels_of(each, labels), checksum_of(each, checksums), end_of(each)):
            if found:
                file = printable(folder / each.scale / each.file_name)
                raise ValueError(f"{file} {found}: make it again and collect it, or move it elsewhere")


def labels_of(evidence: Evidence, known: dict[str, Tensor]) -> str:
    """What is wrong with the test labels, if anything; the longest list of each data set is kept."""
    name = evidence.recipe.data.name
    for report in reports_made(evidence):
        others = known.setdefault(name, report.labels)
        count = min(len(others), len(report.labels))
        if not torch.equal(others[:count], report.labels[:count]):
            return f"has other test labels than the rest of the evidence on {name}"
        known[name] = max(others, report.labels, key=len)
    return ""


def checksum_of(evidence: Evidence, known: dict[Data, str]) -> str:
    """What is wrong with the checksum of the images, if anything."""
    data = evidence.recipe.data
    if data.sha256 is None or known.setdefault(data, data.sha256) == data.sha256:
        return ""
    return f"was trained on other images than the rest of the evidence on {data.name} with the same split"


def end_of(evidence: Evidence) -> str:
    """What is wrong with the end of the training, if anything; a guard or its patience may end it before."""
    steps, last = evidence.recipe.steps, max(evidence.log.get("step", ()), default=evidence.recipe.steps)
    if last == steps or {"fallen", "ended"} & evidence.selected.keys():
        return ""
    return f"is of a run that stands at step {last:,.0f} of {steps:,}"
