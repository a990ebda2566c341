"""Checks of the classifier alone: does it answer an image with logits that depend on that image and nothing else?"""

import sys
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]

from ..inputs import check_images
from ..losses import Against, cross_entropy, finite, margin
from ..printing import counted
from ..report import wilson
from ..solvers.ascent import ascent
from .check import Check, Outcome, judged, noticeable, percent
from .subject import Queries, Subject

REPEATS = 5
SAME_TWICE = 1e-4
"""largest difference of normalized logits between two passes over the same batch"""
SAME_IN_COMPANY = 1e-2
"""the same between two batches: other kernels round differently"""
FLAT = 0.1
"""a range of pixel values that only images divided by 255 twice have"""
VANISHED = 1.0
"""percent of the images that may have no gradient"""


@torch.no_grad()
def randomized(subject: Subject, rows: Tensor) -> Outcome:
    """Several passes over the same batch."""
    answers = torch.stack([subject.f(subject.x[rows]) for _ in range(REPEATS)])
    units = normalized(answers)
    difference = (units - units[0]).abs().max().item()
    classes = answers.argmax(2)
    changed = int((classes != classes[0]).any(0).sum().item())
    figure = (
        f"in {REPEATS} passes over {counted(len(rows), 'image')} normalized logits differ by up to {difference:.1e} "
        f"and {changed} predictions change"
    )
    return judged(difference > SAME_TWICE or changed > 0, figure)


@torch.no_grad()
def probabilities(subject: Subject, rows: Tensor) -> Outcome:
    """Rows in [0, 1] that sum to 1."""
    answers = subject.f(subject.x[rows])
    low, high = (bound.item() for bound in answers.aminmax())
    off = (answers.sum(1) - 1).abs().max().item()
    figure = f"outputs lie between {low:.3g} and {high:.3g}, their sums are up to {off:.1e} away from 1"
    return judged(low >= 0 and high <= 1 and off <= 1e-3, figure)


@torch.no_grad()
def company(subject: Subject, rows: Tensor) -> Outcome:
    """The same images alone, and together with their negatives; and what a pass leaves behind."""
    x = subject.x[rows]
    before = [buffer.clone() for buffer in subject.f.buffers()]
    alone, together = subject.f(x), subject.f(torch.cat([1 - x, x]))[len(x) :]
    moved = sum(not torch.equal(old, new) for old, new in zip(before, subject.f.buffers(), strict=True))
    difference = (normalized(alone) - normalized(together)).abs().max().item()
    training = [
        name.removeprefix("f.")
        for name, module in subject.f.named_modules()
        if module.training and isinstance(module, _BatchNorm | _DropoutNd)
    ]
    figure = (
        f"other images in the batch move normalized logits by up to {difference:.1e}; buffers that a pass changes: "
        f"{moved}; layers in training mode: {', '.join(training[:3]) or 'none'}{' ...' * (len(training) > 3)}"
    )
    return judged(difference > SAME_IN_COMPANY or moved > 0 or len(training) > 0, figure)


def input_range(subject: Subject, rows: Tensor) -> Outcome:
    """Images in [0, 1] that use that range, a network in float32, and an accuracy that is not chance."""
    x = subject.x[rows]
    try:
        check_images(x)
    except ValueError as error:
        return "flag", str(error)
    low, high = (bound.item() for bound in x.aminmax())
    kinds = {parameter.dtype for parameter in subject.f.parameters() if parameter.is_floating_point()}
    coarse = sorted(str(kind) for kind in kinds if torch.finfo(kind).bits < 32)
    right = int(subject.unbroken[rows].sum().item())
    surely, guessed = wilson(right, len(rows))[0], 1 / subject.classes
    of_one_class = int(subject.y[rows].bincount().max().item())
    lucky = (
        f", as chance may have it among {subject.classes} classes"
        if surely <= guessed
        else f", as one answer to all may be, since {percent(of_one_class, len(rows))} are of one class"
        if surely <= of_one_class / len(rows)
        else ""
    )
    figure = (
        f"pixels lie between {low:.3g} and {high:.3g}, {percent(right, len(rows))} of {counted(len(rows), 'image')} "
        f"are classified correctly{lucky}, weights below 32 bits: {', '.join(coarse) or 'none'}"
    )
    return judged(high - low < FLAT or len(coarse) > 0 or lucky != "", figure)


def dynamic(subject: Subject, rows: Tensor) -> Outcome:
    """Calls of autograd inside a forward pass, counted by Python's profiler."""
    watched = {torch.autograd.grad.__code__, torch.autograd.backward.__code__}
    calls = count_calls(watched, subject.f, subject.x[rows])
    return judged(calls > 0, f"calls of autograd within one forward pass: {calls}")


def gradients(subject: Subject, rows: Tensor) -> Outcome:
    """Gradients of cross-entropy and margin with respect to x, at a random point of the neighborhood."""
    x, y = subject.x[rows], subject.y[rows]
    start = subject.around.sample(x, subject.rng("gradients"))
    missing: dict[str, int] = {}
    for name, loss in {"cross-entropy": cross_entropy, "margin": margin}.items():
        _, gradient = ascent(Against(loss, subject.f, y), subject.around, x, start)
        peak = finite(gradient).flatten(1).abs().amax(1)
        # Where no slope is finite, all of them count as the smallest number: they have signs, but no direction.
        missing[name] = int((peak <= torch.finfo(peak.dtype).tiny).sum().item())
    shares = " and of ".join(f"{name} on {count}" for name, count in missing.items())
    figure = f"the gradient of {shares} of {len(rows)} images vanishes or is not finite at a random start"
    return judged(any(noticeable(count, len(rows), VANISHED) for count in missing.values()), figure)


def normalized(logits: Tensor) -> Tensor:
    """Logits of Euclidean norm 1; infinite ones count as the largest number there is."""
    numbers, tiny = logits.nan_to_num(), torch.finfo(logits.dtype).tiny
    # Squares of huge logits are infinite and those of tiny ones 0, so the largest is brought to 1 first.
    scaled = numbers / numbers.abs().amax(-1, keepdim=True).clamp_min(tiny)
    return scaled / scaled.norm(dim=-1, keepdim=True).clamp_min(tiny)


def count_calls(watched: set[CodeType], f: nn.Module, x: Tensor) -> int:
    """How often those functions run within f(x)."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code in watched

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        f(x)
    finally:
        sys.setprofile(before)
    return calls


MODEL_CHECKS = (
    Check(
        name="randomized outputs",
        measure=randomized,
        why="An attack on a random classifier follows the gradient of one draw and is scored on another.",
        remedy="Fix the random part, or attack the average of many passes (expectation over transformation).",
        queries=Queries(forwards=REPEATS),
        most=128,
        fewest=1,
        attacks=False,
    ),
    Check(
        name="logits",
        measure=probabilities,
        why="Losses of attacks take logits; on probabilities their gradients all but vanish.",
        remedy="Return the logits, before the softmax.",
        queries=Queries(forwards=1),
        most=128,
        fewest=1,
        attacks=False,
    ),
    Check(
        name="batch dependence",
        measure=company,
        why="BatchNorm or Dropout in training mode let an answer depend on the batch, which no deployment repeats.",
        remedy="Call eval() on the whole model, and give BatchNorm its running statistics.",
        queries=Queries(forwards=3),
        most=64,
        fewest=1,
        attacks=False,
    ),
    Check(
        name="input range",
        measure=input_range,
        why="A budget in pixel values means something only on the scale of [0, 1], on which the model must work.",
        remedy="Divide bytes by 255 once, make models.Normalize the first layer, and evaluate in float32; where that "
        "is so, a model that does as well as chance needs training first, or more test images.",
        queries=Queries(),
        most=500,
        fewest=1,
        attacks=False,
    ),
    Check(
        name="dynamic forward",
        measure=dynamic,
        why="A forward pass that optimizes needs attacks that differentiate through it; usual ones look too weak.",
        remedy="Attack the whole loop, or the model without it; report both.",
        queries=Queries(forwards=1),
        most=4,
        fewest=1,
        attacks=False,
    ),
    Check(
        name="zero gradients",
        measure=gradients,
        why="Where there is no gradient, gradient attacks do nothing, and survival proves nothing.",
        remedy="Attack with another loss (margin, DLR), replace the layer that blocks the gradient by a smooth one.",
        queries=Queries(gradients=2),
        most=200,
    ),
)
