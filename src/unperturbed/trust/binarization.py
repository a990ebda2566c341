"""The binarization test (Zimmermann et al. 2022): does the attack find an adversarial point that is known to exist?

Around each image a linear read-out of the penultimate features is made that tells one point on the boundary of
the ball from many points inside it. That point is then an adversarial example by construction, and an attack that
finds none fails for reasons of its own.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from ..losses import cross_entropy
from ..neighborhoods import to_be_drawn
from ..report import wilson
from .check import Check, Outcome, judged, percent
from .subject import BATCH, STEPS, Ball, Queries, Subject, connected, gradient_ascent

INNER = 999
"""points inside the ball, the image itself among them"""
INSIDE = 0.95
"""distance of the others from the image, in units of the radius"""
RESTARTS = 5
"""of the attack: from one start it fails now and then where nothing hides a gradient"""
GUESSES = 200
"""random points on the boundary that try the same"""
RIDGE = 0.3
"""added to the variance of the features, as a share of its mean"""
SUCCESS = 0.90
"""share of the tests that a sound attack solves: 94 to 100 % on the sound networks tried here"""
SEPARABLE = 0.80
"""share of the images whose features must allow the test: in narrow ones it comes out by luck alone"""


class Penultimate:
    """x -> what enters the last linear layer."""

    def __init__(self, f: nn.Module, layer: nn.Linear) -> None:
        self.f, self.layer = f, layer

    def __call__(self, x: Tensor) -> Tensor:
        entered: list[Tensor] = []
        hook = self.layer.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
        try:
            self.f(x)
        finally:
            hook.remove()
        return connected(entered[-1], x)


@dataclass(frozen=True, slots=True)
class Readouts:
    """A linear classifier of two classes for each image: 1 at its boundary point, at most -1 at all inner points."""

    features: Penultimate
    weight: Tensor
    bias: Tensor

    def score(self, images: Tensor, /, rows: Tensor | None = None) -> Tensor:
        """Positive where the image lies on the side of the boundary point."""
        chosen = slice(None) if rows is None else rows
        return (self.features(images) * self.weight[chosen]).sum(1) + self.bias[chosen]

    def loss(self, images: Tensor, /, rows: Tensor | None = None) -> Tensor:
        """The cross-entropy of the class of the inner points."""
        score = self.score(images, rows)
        return cross_entropy(torch.stack([-score, score], 1), score.new_zeros(len(score), dtype=torch.long))


def binarization(subject: Subject, rows: Tensor) -> Outcome:
    """PGD against a read-out for each image, and random points against the same."""
    layer = last_linear(subject.f, subject.x[rows[:1]])
    if layer is None:
        return "skipped", "the model has no linear layer that takes one vector of features for each image"
    features, rng = Penultimate(subject.f, layer), subject.rng("binarization")
    fits = {row: fit(features, subject.around, subject.x[row], rng) for row in rows.tolist()}
    tests = {row: found for row, found in fits.items() if found is not None}
    if len(tests) < SEPARABLE * len(rows):
        return "skipped", f"features of only {len(tests)} of {len(rows)} images tell a boundary point from inner ones"
    weight, bias = (torch.stack(column) for column in zip(*tests.values(), strict=True))
    by_attack = by_chance = 0
    for part in torch.arange(len(tests)).split(BATCH):
        readouts, x = Readouts(features, weight[part], bias[part]), subject.x[list(tests)][part]
        by_attack += int(solved(readouts, subject.around, x, rng).sum().item())
        by_chance += int(guessed(readouts, subject.around, x, rng).sum().item())
    figure = (
        f"of {len(tests)} tests that have a solution PGD with {RESTARTS} restarts solves "
        f"{percent(by_attack, len(tests))}, {GUESSES} random points solve {percent(by_chance, len(tests))}"
    )
    return judged(wilson(by_attack, len(tests))[1] < SUCCESS, figure)


def solved(readouts: Readouts, around: Ball, x: Tensor, rng: Generator) -> Tensor:
    """Which tests the attack solves."""
    perturbed = gradient_ascent(around, restarts=RESTARTS).solver(readouts.loss, x, rng)
    with torch.no_grad():
        return (readouts.score(perturbed) > 0) & around.contains(x, perturbed)


@torch.no_grad()
def guessed(readouts: Readouts, around: Ball, x: Tensor, rng: Generator) -> Tensor:
    """Which tests random points solve."""
    scores = [readouts.score(x + boundary(around, x, rng)) for _ in range(GUESSES)]
    return torch.stack(scores).amax(0) > 0


@torch.no_grad()
def fit(features: Penultimate, around: Ball, x: Tensor, rng: Generator) -> tuple[Tensor, Tensor] | None:
    """Fisher's discriminant between a boundary point of one image and its inner points; none if it fails."""
    images = x.expand(INNER + 1, *x.shape)
    theta = boundary(around.scaled(INSIDE), images, rng)
    theta[0], theta[-1] = 0, boundary(around, images[-1:], rng)[0]
    inner, outer = features(images + theta).split([INNER, 1])
    mean = inner.mean(0)
    spread = inner - mean
    covariance = spread.T @ spread / INNER
    ridge = RIDGE * covariance.diagonal().mean().clamp_min(torch.finfo(inner.dtype).tiny)
    direction = torch.linalg.solve(covariance + ridge * torch.eye(len(mean), device=x.device), outer[0] - mean)
    nearest, target = (inner @ direction).max(), (outer @ direction)[0]
    half = (target - nearest) / 2
    if not half > 1e-6 * target.abs():
        return None
    return direction / half, -(target + nearest) / (2 * half)


def boundary(around: Ball, x: Tensor, rng: Generator) -> Tensor:
    """A random theta on the boundary of the ball, a corner in Linf, as far as pixels stay in [0, 1]."""
    return around.project(x, around.eps * around.direction(to_be_drawn(x).normal_(generator=rng)))


@torch.no_grad()
def last_linear(f: nn.Module, x: Tensor) -> nn.Linear | None:
    """The last linear layer that f runs through, if it takes a vector for each image."""
    passed: list[tuple[nn.Linear, Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(layer, nn.Linear):
            passed.append((layer, inputs[0]))

    hooks = [module.register_forward_pre_hook(note) for module in f.modules() if isinstance(module, nn.Linear)]
    try:
        f(x)
    finally:
        for hook in hooks:
            hook.remove()
    return passed[-1][0] if passed and passed[-1][1].dim() == 2 else None


BINARIZATION = Check(
    name="binarization",
    measure=binarization,
    why="An attack that misses a point known to exist can be trusted with no point that is not known.",
    remedy="Strengthen the attack until it passes, or replace what hides the gradient in the features.",
    queries=Queries(forwards=INNER + 1 + GUESSES, gradients=RESTARTS * STEPS),
    most=512,
    fewest=64,
)
