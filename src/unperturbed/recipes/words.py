"""Names of recipes and attacks in the paper's words, as figures and tables show them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from .against import pointed_at

DATA_SETS = {"cifar10": "CIFAR-10", "mnist": "MNIST"}
"""of the paper: the first part of a recipe's name, and theirs"""


class Defense(NamedTuple):
    """A method as a recipe's name ends with it."""

    title: str
    """what the paper calls it"""
    gist: str
    """what it is, for a list"""


DEFENSES = {
    "standard": Defense("Standard", "cross-entropy on the labels alone"),
    "at": Defense("AT", "adversarial training; in the spatial scenario pixel-wise too, as the paper's table has it"),
    "worst-of-k": Defense("Worst-of-k", "adversarial training against the worst of ten random warps"),
    "rt": Defense("RT", "robust training, Eq. (6): SRT without unlabeled images"),
    "srt": Defense("SRT", "semi-supervised robust training, Eq. (9); in the compound scenario SRT+"),
    "trades": Defense("TRADES", "cross-entropy and KL between clean and perturbed answers"),
    "klr": Defense("KLR", "KL regularization on warped images"),
    "uat": Defense("UAT", "unsupervised adversarial training, online targets"),
    "uat-ft": Defense("UAT-FT", "unsupervised adversarial training, a teacher's fixed targets"),
    "uat-plusplus": Defense("UAT++", "unsupervised adversarial training, both kinds of targets"),
    "rst": Defense("RST", "robust self-training: TRADES on labels and a teacher's labels"),
    "vat": Defense("VAT", "virtual adversarial training, by power iteration"),
    "srt-fast": Defense(
        "fast SRT", "fast SRT: one-step solver (pixel-wise), cyclic rate, guarded against catastrophic overfitting"
    ),
    "srt-fast-noise": Defense("fast SRT (N-FGSM)", "fast SRT with N-FGSM as the solver"),
    "srt-plusplus": Defense(
        "SRT++", "SRT with averaged weights, smoothed labels, a larger lambda; the average or a teacher may label"
    ),
    "srt-authors": Defense("SRT (authors' code)", "spatial SRT as the authors' code has it"),
    "at-average": Defense("AT (average)", "AT on the average of both perturbations"),
    "at-max": Defense("AT (max)", "AT on the worse of both perturbations"),
}
"""by the last part of a recipe's name; RT and SRT also come as `-lambda-…`, as the paper's tables compare them"""
COMPOUND = {"at": "AT+", "srt": "SRT+"}
"""those that are called otherwise in the compound scenario"""
SCENARIOS = {"pixel": "pixel-wise", "spatial": "spatial"}
"""the middle of a recipe's name, in words; methods of the compound scenario speak for themselves"""
ATTACKS = {
    "clean": "no attack",
    "fgsm": "FGSM",
    "pgd": "PGD",
    "pgd-restarts": "PGD, 5 restarts",
    "mi-fgsm": "MI-FGSM",
    "cw": "C&W",
    "cw-l2": "C&W, L2",
    "ddn": "DDN",
    "jsma": "JSMA",
    "pointwise": "Pointwise",
    "autoattack": "AutoAttack",
    "randadv": "RandAdv",
    "gridadv": "GridAdv",
    "randadv.t": "RandAdv.T",
    "gridadv.t": "GridAdv.T",
    "randadv.r": "RandAdv.R",
    "gridadv.r": "GridAdv.R",
    "pgd+": "PGD+",
    "gridadv+": "GridAdv+",
    "blur": "Blur",
    "color": "Color",
}
"""attacks, as the paper writes them where it has them"""
CONVENTION = re.compile(r"[^-]+-(?P<scenario>pixel|spatial|compound)-(?P<method>.+?)(-lambda-(?P<weight>[\d.e-]+))?")


def in_words(name: str, *, scenario: bool = True, weight: bool = True) -> str:
    """A recipe's name as the paper speaks; a name that does not follow the convention is left as it is.

    One that is pointed at perturbations is of none of the scenarios any more, whichever it has its schedule from.
    """
    before, perturbations = pointed_at(name)
    found = CONVENTION.fullmatch(before)
    if found is None or found["method"] not in DEFENSES:
        return name
    words = DEFENSES[found["method"]].title
    if perturbations:
        words += f" against {enumerated(perturbations)}"
    elif found["scenario"] == "compound":
        words = COMPOUND.get(found["method"], words)
    elif scenario:
        words += f", {SCENARIOS[found['scenario']]}"
    return f"{words}, lambda {found['weight']}" if weight and found["weight"] else words


def enumerated(words: Sequence[str]) -> str:
    """Words as a sentence lists them: pixels, warps and blur."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def told_apart(names: Sequence[str], *, weight: bool = True) -> list[str]:
    """All of these names in words, the scenario among them only where it tells two of them apart."""
    pairs = [(in_words(name, scenario=False, weight=weight), in_words(name, weight=weight)) for name in names]
    return [short if len({full for words, full in pairs if words == short}) == 1 else full for short, full in pairs]
