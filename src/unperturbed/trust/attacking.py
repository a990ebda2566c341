"""Checks of gradient attacks against each other: a stronger one must find at least what a weaker one finds."""

from dataclasses import replace
from itertools import combinations

from torch import Tensor

from ..attacks import Searched
from ..losses import cross_entropy, margin
from ..solvers import FGSM
from .check import Check, Outcome, judged, noticeable, percent
from .subject import STEPS, Queries, Subject, gradient_ascent, unbounded

MORE_STEPS, MORE_RESTARTS = 100, 4
SWEEP = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""radii, in units of the radius of the evaluation"""
SILENT, SINGLE, CONVERGED, SWEPT, LOSSES = 0.5, 0.5, 5.0, 2.0, 5.0
"""percentage points that each check lets pass"""


def silent_success(subject: Subject, rows: Tensor) -> Outcome:
    """Whether the attack passed points that fool the classifier and returned one that does not."""
    silent = int(subject.reference.silent[rows].sum().item())
    fell = len(rows) - len(subject.standing(rows))
    figure = f"PGD broke {fell} of {len(rows)} images, and {silent} more on its way without returning them"
    return judged(noticeable(silent, len(rows), SILENT), figure)


def single_step(subject: Subject, rows: Tensor) -> Outcome:
    """Images that one step breaks and twenty do not."""
    standing = subject.standing(rows)
    solver = FGSM(around=subject.around, step=1.0, start="identity")
    fgsm = Searched(solver=solver, loss=cross_entropy, within=subject.around, budget="one step")
    broken = len(standing) - len(subject.white_box_survivors(fgsm, standing, "FGSM"))
    figure = f"one step breaks {broken} of {len(rows)} images that {STEPS} steps do not"
    return judged(noticeable(broken, len(rows), SINGLE), figure)


def other_loss(subject: Subject, rows: Tensor) -> Outcome:
    """The same attack on the margin."""
    attack = gradient_ascent(subject.around, loss=margin)
    by_margin = len(subject.white_box_survivors(attack, rows, "PGD on the margin"))
    by_entropy = len(subject.standing(rows))
    figure = (
        f"of {len(rows)} images {percent(by_entropy, len(rows))} stand under cross-entropy "
        f"and {percent(by_margin, len(rows))} under the margin loss"
    )
    return judged(noticeable(by_entropy - by_margin, len(rows), LOSSES), figure)


def convergence(subject: Subject, rows: Tensor) -> Outcome:
    """What more steps, or more restarts, break of the images that stood."""
    standing = subject.standing(rows)
    longer = gradient_ascent(subject.around, steps=MORE_STEPS)
    again = gradient_ascent(subject.around, restarts=MORE_RESTARTS)
    by_steps = len(standing) - len(subject.white_box_survivors(longer, standing, "PGD with more steps"))
    by_restarts = len(standing) - len(subject.white_box_survivors(again, standing, "PGD with more restarts"))
    figure = (
        f"{percent(len(standing), len(rows))} of {len(rows)} images stand after {STEPS} steps; {MORE_STEPS} steps "
        f"break {by_steps} more, {1 + MORE_RESTARTS} restarts {by_restarts} more"
    )
    return judged(noticeable(max(by_steps, by_restarts), len(rows), CONVERGED), figure)


def sweep(subject: Subject, rows: Tensor) -> Outcome:
    """Accuracy over growing radii: it must fall, and end no better than chance where every image is allowed."""
    own, largest = subject.around.eps, unbounded(subject.around, subject.x)
    radii = sorted({min(factor * own, largest) for factor in SWEEP} | {largest})
    standing = [len(rows)]
    for eps in radii:
        attack = gradient_ascent(replace(subject.around, eps=eps))
        left = (
            subject.standing(rows) if eps == own else subject.survivors(attack, rows, f"PGD within {attack.within}")
        )
        standing.append(len(left))
    rise = max(later - earlier for earlier, later in combinations(standing, 2))
    above_chance = noticeable(standing[-1], len(rows), 100 / subject.classes)
    shares = [f"{100 * count / len(rows):.0f} at {eps:.3g}" for eps, count in zip([0, *radii], standing, strict=True)]
    figure = f"percent of {len(rows)} images that stand: {', '.join(shares)} (any image)"
    return judged(noticeable(rise, len(rows), SWEPT) or above_chance, figure)


ATTACK_CHECKS = (
    Check(
        name="silent success",
        measure=silent_success,
        why="An attack that finds a fooling point and returns another one reports too high an accuracy.",
        remedy="Return the best iterate, and judge points by misclassification.",
        queries=Queries(gradients=STEPS, forwards=2),
        most=500,
    ),
    Check(
        name="single step",
        measure=single_step,
        why="Many steps search a superset of one step: where one wins, the gradient misleads.",
        remedy="Suspect masked gradients: use more restarts, smaller steps, and attacks without gradients.",
        queries=Queries(gradients=1, forwards=1),
        most=500,
    ),
    Check(
        name="other loss",
        measure=other_loss,
        why="Cross-entropy saturates on large logits, and training can flatten it; the margin does neither.",
        remedy="Report the margin loss or AutoAttack, not cross-entropy alone.",
        queries=Queries(gradients=STEPS, forwards=2),
        most=500,
    ),
    Check(
        name="convergence",
        measure=convergence,
        why="Where more effort still breaks images, the accuracy measures the effort.",
        remedy="Raise steps and restarts until nothing changes, and report that number.",
        queries=Queries(gradients=MORE_STEPS + MORE_RESTARTS * STEPS, forwards=2 * MORE_RESTARTS),
        most=250,
    ),
    Check(
        name="radius sweep",
        measure=sweep,
        why="A larger ball contains the smaller one, and the largest holds every image of every class.",
        remedy="Suspect the attack: an accuracy that rises, or stays above chance without bound, was not attacked.",
        queries=Queries(gradients=STEPS * len(SWEEP), forwards=2 * len(SWEEP)),
        most=150,
    ),
)
