"""The three 0/1 risks of Definition 2 for each image, Eqs. (2) to (4); their means are the risks of a data set.

They are measured on predictions: `clean` is C(x), `perturbed` is C(x') for the x' that an adversary found.
x itself belongs to N(x), so Lemma 1, Eq. (5), R_adv = R_stand + (1 - R_stand) R_rob, holds image by image.
"""

from torch import Tensor

NO_CLASS = -1
"""in the place of C(x) where f answers with NaN; it equals no label"""


def decided(logits: Tensor) -> Tensor:
    """C(x), the class of the largest logit; among NaN there is none, and such an answer is never right."""
    return logits.argmax(1).masked_fill(logits.isnan().any(1), NO_CLASS)


def standard_risk(clean: Tensor, y: Tensor) -> Tensor:
    """R_stand(x) = 1{C(x) != y}, Eq. (2)."""
    return clean != y


def adversarial_risk(clean: Tensor, perturbed: Tensor, y: Tensor) -> Tensor:
    """R_adv(x) = max over {x, x'} of 1{C(.) != y}, Eq. (3)."""
    return (clean != y) | (perturbed != y)


def robust_risk(clean: Tensor, perturbed: Tensor) -> Tensor:
    """R_rob(x) = 1{C(x') != C(x)}, Eq. (4); it needs no label."""
    return perturbed != clean
