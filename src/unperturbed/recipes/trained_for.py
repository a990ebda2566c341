"""Which attacks try what a run was trained against."""

from dataclasses import fields, is_dataclass
from typing import cast

from ..neighborhoods import L0, L2, Blur, Color, Composed, Linf, Neighborhood, Spatial
from ..objectives import Objective

ATTACK_IN = {Linf: "pgd", L2: "ddn", L0: "jsma", Spatial: "gridadv", Blur: "blur", Color: "color"}
"""for each kind of neighborhood an attack that searches it"""


def neighborhoods_of(part: object) -> list[Neighborhood]:
    """The neighborhoods that the solvers of an objective search, those that are made of others taken apart."""
    if isinstance(part, Composed):
        return neighborhoods_of(part.parts)
    if isinstance(part, Neighborhood):
        return [part]
    if isinstance(part, tuple):
        inner: tuple[object, ...] = cast(tuple[object, ...], part)
    else:
        inner = tuple(getattr(part, slot.name) for slot in fields(part)) if is_dataclass(part) else ()
    return [found for each in inner for found in neighborhoods_of(each)]


def attacks_for(objective: Objective) -> list[str]:
    """The names of attacks on what it was trained against, each once."""
    kinds = (type(around) for around in neighborhoods_of(objective))
    return list(dict.fromkeys(ATTACK_IN[kind] for kind in kinds if kind in ATTACK_IN))


def without_attack(objective: Objective) -> list[Neighborhood]:
    """What it was trained against and no attack of a budget tries."""
    return [around for around in neighborhoods_of(objective) if type(around) not in ATTACK_IN]
