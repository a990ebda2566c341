"""Eqs. (6) and (9) and their rivals, summed image by image.

`inner` answers for single images, as the adversary and C(x) see the classifier; `outer` is the classifier being
trained and answers for a stack of images. `maximize(index, image, target)` is a twin of a solver.
"""

import torch

from .solvers import cross_entropy, logits_of


def predict(f, image):
    """C(x): the class of the largest logit."""
    logits = logits_of(f, image).tolist()
    return logits.index(max(logits))


def mean_loss(logits, targets):
    return sum(cross_entropy(row, int(target)) for row, target in zip(logits, targets, strict=True)) / len(targets)


def worst_case(images, targets, maximize):
    pairs = zip(images, targets, strict=True)
    return torch.stack([maximize(index, image, int(target)) for index, (image, target) in enumerate(pairs)])


def standard(outer, x, y):
    return mean_loss(outer(x), y)


def adversarial(outer, x, y, maximize):
    return mean_loss(outer(worst_case(x, y, maximize)), y)


def robust_training(inner, outer, x, y, maximize, weight):
    """Eq. (6) with cross-entropy for the indicator: (standard term, robust term)."""
    predicted = [predict(inner, image) for image in x]
    perturbed = worst_case(x, predicted, maximize)
    return mean_loss(outer(x), y), weight * mean_loss(outer(perturbed), predicted)


def semi_supervised_robust_training(inner, outer, x, y, u, maximize, weight, *, together=False):
    """Eq. (9): (standard term, robust term); together: one outer pass over clean and perturbed images."""
    pool = [*x, *u]
    predicted = [predict(inner, image) for image in pool]
    perturbed = worst_case(pool, predicted, maximize)
    if together:
        logits = outer(torch.cat([x, perturbed]))
        on_clean, on_perturbed = logits[: len(x)], logits[len(x) :]
    else:
        on_clean, on_perturbed = outer(x), outer(perturbed)
    return mean_loss(on_clean, y), weight * mean_loss(on_perturbed, predicted)
