"""What a run is trained against: a recipe pointed at other perturbations, and the attacks that try them."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from ..neighborhoods import L0, L2, Blur, Color, Composed, Linf, Neighborhood, Spatial
from ..objectives import Objective
from ..printing import nearest
from ..recipe import Recipe
from ..schedules import Ramp
from ..solvers import PGD, Sequential, Solver, WorstOfK
from .budgets import Budget
from .methods import COMPOUND_RAMP

PERTURBATIONS = {"pixels": "pgd", "warps": "gridadv", "blur": "blur", "color": "color"}
"""what a recipe can be pointed at, and the attack of a budget that says how far"""
ATTACK_IN = {Linf: "pgd", L2: "ddn", L0: "jsma", Spatial: "gridadv", Blur: "blur", Color: "color"}
"""for each kind of neighborhood an attack that searches it"""


def against(recipe: Recipe, names: str, budget: Budget) -> Recipe:
    """The recipe with a search for all of these perturbations at once, as far as the budget goes.

    Pixels come first and all others on top, as in SRT+. As there, clean and perturbed images go through in one pass
    where others than pixels are among them, and lambda grows where pixels are too.
    """
    asked = dict.fromkeys(name.strip() for name in names.split(","))
    for name in asked:
        if name not in PERTURBATIONS:
            known = ", ".join(PERTURBATIONS)
            raise ValueError(f"--against has no {name!r}{nearest(name, PERTURBATIONS)} (there are {known})")
    objective: Any = recipe.objective
    if not hasattr(objective, "solver"):
        raise ValueError(f"--against needs a recipe that searches for perturbations, which {recipe.name} does not")
    others, solver = [name for name in asked if name != "pixels"], solver_for(asked, budget)
    if others and hasattr(objective, "forward"):
        objective = replace(objective, forward="together")
    validation = recipe.validation
    return replace(
        recipe,
        name=f"{recipe.name}-against-{'-'.join(asked)}",
        objective=replace(objective, solver=solver),
        ramp=COMPOUND_RAMP if others and "pixels" in asked and recipe.ramp == Ramp() else recipe.ramp,
        validation=validation if validation.solver is None else replace(validation, solver=solver),
    )


def solver_for(names: Iterable[str], budget: Budget) -> Solver:
    """A search for the worst of these perturbations together: gradients lead it over pixels, draws over the rest."""
    attacks = budget.attacks()
    around: dict[str, Neighborhood] = {name: attacks[PERTURBATIONS[name]].within for name in names}
    stages: list[Solver] = []
    if "pixels" in around:
        stages.append(PGD(around=around.pop("pixels"), steps=budget.steps, step_size=budget.step_size))
    if parts := tuple(around.values()):
        stages.append(WorstOfK(around=parts[0] if len(parts) == 1 else Composed(parts=parts)))
    return stages[0] if len(stages) == 1 else Sequential(stages=tuple(stages))


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
