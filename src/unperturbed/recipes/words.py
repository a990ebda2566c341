"""Names of recipes and attacks in the paper's words, as figures and tables show them."""

import re
from collections.abc import Sequence

from .against import pointed_at

DATA_SETS = {"cifar10": "CIFAR-10", "mnist": "MNIST"}
"""of the paper: the first part of a recipe's name, and theirs"""
METHODS = {
    "standard": "Standard",
    "at": "AT",
    "worst-of-k": "Worst-of-k",
    "rt": "RT",
    "srt": "SRT",
    "trades": "TRADES",
    "klr": "KLR",
    "uat": "UAT",
    "uat-ft": "UAT-FT",
    "uat-plusplus": "UAT++",
    "rst": "RST",
    "vat": "VAT",
    "srt-fast": "fast SRT",
    "srt-fast-noise": "fast SRT (N-FGSM)",
    "srt-plusplus": "SRT++",
    "srt-authors": "SRT (authors' code)",
    "at-average": "AT (average)",
    "at-max": "AT (max)",
}
"""the last part of a recipe's name, and the method's name"""
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
    if found is None or found["method"] not in METHODS:
        return name
    words = METHODS[found["method"]]
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
