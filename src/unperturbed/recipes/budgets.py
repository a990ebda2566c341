"""How far an adversary may go on each data set, and the attacks that go that far."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..attacks import (
    DDN,
    JSMA,
    AutoAttack,
    CarliniWagnerL2,
    Pointwise,
    Searched,
    compound,
    cw_linf,
    fgsm,
    grid,
    mi_fgsm,
    pgd,
    random,
)
from ..neighborhoods import MOST_DEGREES, Blur, Color, Linf, Spatial, TurnThenShift, require_radius
from ..printing import nearest_in_list
from ..solvers import PGD, Grid, require_count, require_positive
from ..surfaces import Scenario

Stated = Searched | DDN | JSMA | CarliniWagnerL2 | Pointwise | AutoAttack
"""an attack that states its budget"""
PIXEL_ROWS = ("fgsm", "pgd", "mi-fgsm", "jsma", "cw", "pointwise", "ddn")
SPATIAL_ROWS = ("randadv", "gridadv", "randadv.t", "gridadv.t", "randadv.r", "gridadv.r")
COMPOUND_ROWS = ("pgd+", "gridadv+")
SETS: Mapping[str, tuple[str, ...]] = {
    "paper": PIXEL_ROWS + SPATIAL_ROWS + COMPOUND_ROWS,
    "pixel": PIXEL_ROWS,
    "spatial": SPATIAL_ROWS,
    "compound": ("pgd", "gridadv", *COMPOUND_ROWS),
    "appearance": ("blur", "color"),
    "quick": ("fgsm", "pgd", "randadv", "gridadv"),
    "trust": ("pgd-restarts", "cw", "autoattack", "gridadv"),
}
"""names for several attacks: the rows of the paper's tables, what is quick, and what a claim should rest on"""

REASONS: Mapping[str, str] = {
    "fgsm": "one step as long as the radius, from x",
    "pgd": "steps and step size of the paper, best iterate, uniform start",
    "pgd-restarts": "long and repeated: what PGD finds when it is not hurried",
    "mi-fgsm": "steps and step size of the paper, momentum 1",
    "cw": "C&W's margin in the Linf ball: the reading that fits the paper's numbers",
    "cw-l2": "C&W's own attack; the paper states no cap, so an L2 radius usual for the data set",
    "ddn": "100 steps as in its paper; the paper states no cap, so the L2 radius of cw-l2",
    "jsma": "all targets; the paper states no cap, so a number of pixels that tells defenses apart",
    "pointwise": "needs no gradient; the cap of jsma",
    "autoattack": "the standard of the field, none of whose parts needs tuning",
    "randadv": "the worst of 10 draws, as in the authors' code",
    "gridadv": "775 warps, as in the paper",
    "randadv.t": "translations alone",
    "gridadv.t": "translations alone",
    "randadv.r": "rotations alone",
    "gridadv.r": "rotations alone",
    "pgd+": "the paper's compound attack: GridAdv on top of PGD",
    "gridadv+": "the paper's compound attack: PGD on top of GridAdv",
    "blur": "21 standard deviations up to the largest; the paper leaves blurring to future work",
    "color": "5 values of each parameter of `Color`, of which gray images have two; future work in the paper",
}
"""why each attack goes as far as it goes"""
NOTHING = 1e-9
"""the least radius that every attack accepts"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The neighborhoods in which a model is attacked, and how hard PGD tries."""

    eps: float = 8 / 255
    """Linf radius on the scale of [0, 1]"""
    steps: int = 20
    """steps of PGD"""
    step_size: float = 2 / 255
    """step of PGD on the scale of [0, 1]; where only eps is named, as long in proportion to it as usual"""
    rotation: float = 30.0
    """largest rotation in degrees"""
    translation: float = 3.0
    """largest shift in pixels"""
    interpolations: Literal[1, 2] = 1
    """of a warp that turns and shifts; 2: what a rotation leaves is shifted, as in the authors' code: it blurs"""
    l2: float = 0.5
    """L2 cap of minimum-norm attacks (DDN, C&W-L2); the paper states none"""
    pixels: int = 12
    """cap on changed pixels (JSMA, Pointwise); the paper states none"""
    blur: float = 1.0
    """largest standard deviation of a blur in pixels"""
    color: float = 1.0
    """largest change of colors: 1 is brightness 0.1, contrast and saturation 0.2, hue 15 degrees, 0.5 half of each"""
    fraction: float = 1.0
    """the paper's perturbation fraction: all of these but numbers of steps and pixels are multiplied by it"""

    def __post_init__(self) -> None:
        for name in ("translation", "l2", "blur", "color", "fraction"):
            require_radius(f"--budget.{name}", getattr(self, name))
        require_radius("--budget.rotation", self.rotation, MOST_DEGREES)
        if not 0 <= self.eps <= 1:
            remedy = ": write 8 of 255 as 8/255" if self.eps > 1 else ""
            raise ValueError(f"--budget.eps must lie between 0 and 1, the scale of pixels, got {self.eps}{remedy}")
        for name, radius, most, why in (
            ("eps", self.eps, 1, "1, the scale of pixels"),
            ("rotation", self.rotation, MOST_DEGREES, "180 degrees, all rotations"),
        ):
            if radius * self.fraction > most:
                raise ValueError(
                    f"--budget.fraction {self.fraction:g} times --budget.{name} {radius:g} is more than {why}: lower "
                    "one of them"
                )
        if self.interpolations not in (1, 2):
            raise ValueError(f"--budget.interpolations must be 1 or 2, got {self.interpolations}")
        require_positive("--budget.step-size", self.step_size)
        require_count("--budget.steps", self.steps)
        require_count("--budget.pixels", self.pixels)

    def with_radius(self, eps: float) -> "Budget":
        """The same with another eps, and steps of PGD that are as long in proportion to it."""
        return replace(self, eps=eps, step_size=self.step_size * eps / self.eps if eps * self.eps else self.step_size)

    def reach(self, scenario: Scenario) -> tuple[float, float]:
        """How far attacks go along the two axes of a surface: eps and eps, or degrees and pixels."""
        return (self.eps, self.eps) if scenario == "pixel" else (self.rotation, self.translation)

    @property
    def warps(self) -> Spatial | TurnThenShift:
        """The warps that spatial attacks search."""
        kind = Spatial if self.interpolations == 1 else TurnThenShift
        return kind(rotation=self.rotation, translation=self.translation).scaled(self.fraction)

    def attacks(self) -> Mapping[str, Stated]:
        """Every attack by its name."""
        eps, step_size, l2 = (max(self.fraction * size, NOTHING) for size in (self.eps, self.step_size, self.l2))
        ball = Linf(eps=eps)
        warps = self.warps
        shifts, turns = replace(warps, rotation=0.0), replace(warps, translation=0.0)
        ascent = PGD(around=ball, steps=self.steps, step_size=step_size, start="identity", keep="best")
        search = Grid(around=warps, enough=0.0)
        return {
            "fgsm": fgsm(eps=eps),
            "pgd": pgd(eps=eps, steps=self.steps, step_size=step_size),
            "pgd-restarts": pgd(eps=eps, steps=max(100, self.steps), restarts=5),
            "mi-fgsm": mi_fgsm(eps=eps, steps=self.steps, step_size=step_size),
            "cw": cw_linf(eps=eps, steps=max(30, self.steps), step_size=step_size),
            "cw-l2": CarliniWagnerL2(eps=l2),
            "ddn": DDN(eps=l2),
            "jsma": JSMA(pixels=self.pixels),
            "pointwise": Pointwise(pixels=self.pixels),
            "autoattack": AutoAttack(eps=eps),
            "randadv": random(warps),
            "gridadv": grid(warps),
            "randadv.t": random(shifts),
            "gridadv.t": grid(shifts, points=(1, 5, 5)),
            "randadv.r": random(turns),
            "gridadv.r": grid(turns, points=(31, 1, 1)),
            "pgd+": compound(ascent, search),
            "gridadv+": compound(search, ascent),
            "blur": grid(Blur(sigma=self.blur).scaled(self.fraction), points=(21,)),
            "color": grid(Color().scaled(self.color * self.fraction), points=(5, 5, 5, 5)),
        }


def chosen(attacks: Mapping[str, Stated], names: str) -> Mapping[str, Stated]:
    """The attacks that a list with commas names, one by one or by the name of a set; all is every one."""
    picked = expanded(names)
    for name in picked:
        require_attack(name)
    return {name: attacks[name] for name in picked}


def expanded(names: str) -> list[str]:
    """The names in a list with commas, each once, those of sets replaced by their attacks."""
    known = {**SETS, "all": tuple(REASONS)} | {name: (name,) for name in REASONS}
    words = [word.strip() for word in names.split(",")]
    return list(dict.fromkeys(name for word in words for name in known.get(word.lower(), (word,))))


def require_attack(name: str) -> None:
    """Refuse a name that no attack has."""
    known = [*REASONS, *SETS, "all"]
    if name not in REASONS:
        raise ValueError(f"there is no attack {name!r}{nearest_in_list(name, known)} (there are {', '.join(known)})")
