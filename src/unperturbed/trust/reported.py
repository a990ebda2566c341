"""The check of what an evaluation reports: its attacks must leave hardly more images than those of the card do."""

import torch
from torch import Tensor

from ..inputs import require, require_tensor
from .check import Check, Outcome, judged, noticeable, percent
from .subject import Queries, Subject

OVERSTATED = 2.0
"""percentage points that the check lets pass"""


def reported_accuracy(subject: Subject, rows: Tensor) -> Outcome:
    """Images that stand under the attacks of the evaluation and that an attack of the card has broken."""
    if subject.stood is None:
        return "skipped", f"no attack of an evaluation within {subject.around} was given to compare with"
    standing = rows[subject.stood[rows]]
    broken = int(subject.fallen[standing].sum().item())
    figure = (
        f"{percent(len(standing), len(rows))} of {len(rows)} images stand under the attacks of the evaluation; those "
        f"of this card break {broken} of them"
    )
    return judged(noticeable(broken, len(rows), OVERSTATED), figure)


def require_verdicts(stood: Tensor, images: int) -> None:
    """Refuse what does not say yes or no of each image."""
    require_tensor(stood, "stood")
    require(
        stood.dtype == torch.bool and stood.shape == (images,),
        f"stood must say of each of {images} images whether it stands, as report.survivors('pgd') does, got "
        f"{stood.dtype} of shape {tuple(stood.shape)}",
    )


REPORTED = Check(
    name="reported accuracy",
    measure=reported_accuracy,
    why="A robust accuracy is an upper bound: where a few further attacks lower it, better ones will lower it more.",
    remedy="Report AutoAttack, or the worst case of the margin loss, more steps and more restarts, in its place.",
    queries=Queries(),
    most=500,
)
