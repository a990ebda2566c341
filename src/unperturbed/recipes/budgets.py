"""How far an adversary may go on each data set, and the attacks that go that far."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..attacks import Searched, fgsm, grid, pgd, random
from ..neighborhoods import Spatial
from ..recipe import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The neighborhoods in which a model is attacked, and how hard PGD tries."""

    eps: float = 8 / 255
    """Linf radius on the scale of [0, 1]"""
    steps: int = 20
    """steps of PGD"""
    step_size: float = 2 / 255
    """step of PGD on the scale of [0, 1]"""
    rotation: float = 30.0
    """largest rotation in degrees"""
    translation: float = 3.0
    """largest shift in pixels"""

    def attacks(self) -> Mapping[str, Searched]:
        """Every attack by its name, in the order of the paper's tables."""
        both = Spatial(rotation=self.rotation, translation=self.translation)
        shifts, turns = replace(both, rotation=0.0), replace(both, translation=0.0)
        return {
            "fgsm": fgsm(eps=self.eps),
            "pgd": pgd(eps=self.eps, steps=self.steps, step_size=self.step_size),
            "randadv": random(both),
            "gridadv": grid(both),
            "randadv.t": random(shifts),
            "gridadv.t": grid(shifts, points=(1, 5, 5)),
            "randadv.r": random(turns),
            "gridadv.r": grid(turns, points=(31, 1, 1)),
        }


def chosen(attacks: Mapping[str, Searched], names: str) -> Mapping[str, Searched]:
    """The attacks named in a list with commas, or all of them."""
    if names == "all":
        return attacks
    picked: dict[str, Searched] = {}
    for name in (word.strip().lower() for word in names.split(",")):
        if name not in attacks:
            raise ValueError(f"there is no attack {name!r}{nearest(name, attacks)} (there are {', '.join(attacks)})")
        picked[name] = attacks[name]
    return picked
