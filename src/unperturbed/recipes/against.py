"""What a run is trained against: a recipe pointed at other perturbations, and the attacks that try them."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from ..neighborhoods import L0, L2, Blur, Color, Composed, Linf, Neighborhood, Spatial
from ..objectives import Mixture, Objective
from ..printing import nearest_in_list, quoted
from ..recipe import Recipe
from ..schedules import Ramp
from ..solvers import FGSM, NFGSM, PGD, Sequential, Solver, WorstOfK
from .budgets import Budget
from .methods import LEARNED_FIRST

PERTURBATIONS = {"pixels": "pgd", "warps": "gridadv", "blur": "blur", "color": "color"}
"""what a recipe can be pointed at, and the attack of a budget that says how far"""
ATTACK_IN = {Linf: "pgd", L2: "ddn", L0: "jsma", Spatial: "gridadv", Blur: "blur", Color: "color"}
"""for each kind of neighborhood an attack that searches it"""


def against(recipe: Recipe, names: str, budget: Budget) -> Recipe:
    """The recipe with a search for all of these perturbations at once, as far as the budget goes.

    Pixels come first and all others on top, as in SRT+. As there, clean and perturbed images go through in one pass
    where others than pixels are among them, and lambda grows where pixels are too. Fast SRT keeps its single step,
    and what guards it takes several.
    """
    asked, objective = perturbations_in(names), with_one_search(recipe)
    others = [name for name in asked if name != "pixels"]
    if others and hasattr(objective, "forward"):
        objective = replace(objective, forward="together")
    validation = recipe.validation
    return replace(
        recipe,
        name="-".join([pointed_at(recipe.name)[0], "against", *asked]),
        objective=replace(objective, solver=solver_for(asked, budget, objective.solver)),
        ramp=LEARNED_FIRST if others and "pixels" in asked and recipe.ramp == Ramp() else recipe.ramp,
        validation=validation if validation.solver is None else replace(validation, solver=solver_for(asked, budget)),
    )


def perturbations_in(names: str) -> list[str]:
    """The perturbations that a list with commas names, each once."""
    asked = list(dict.fromkeys(name.strip() for name in names.split(",")))
    known = ", ".join(PERTURBATIONS)
    for name in asked:
        if not name:
            raise ValueError(
                f"--against names nothing, or has a comma too many or a blank behind one, in "
                f"{quoted(names)}: choose of {known}"
            )
        if name not in PERTURBATIONS:
            near = nearest_in_list(name, PERTURBATIONS)
            raise ValueError(f"--against has no {quoted(name)}{near} (there are {known})")
    return asked


def with_one_search(recipe: Recipe) -> Any:
    """The objective of a recipe, whose search can be replaced; one that has none, or several, is refused."""
    if isinstance(recipe.objective, Mixture):
        raise ValueError(
            f"--against replaces the search of a recipe, and {recipe.name} mixes objectives with one each: choose "
            "another recipe, as one of SRT or AT"
        )
    if not hasattr(recipe.objective, "solver"):
        raise ValueError(
            f"--against needs a recipe that searches for perturbations, which {recipe.name} does not: choose "
            "another recipe, as one of SRT or AT"
        )
    return recipe.objective


def pointed_at(name: str) -> tuple[str, list[str]]:
    """The name of a recipe before `against` pointed it at perturbations, and these; none where it has not."""
    before, _, behind = name.partition("-against-")
    words = behind.split("-")
    return (before, words) if all(word in PERTURBATIONS for word in words) else (name, [])


def solver_for(names: Iterable[str], budget: Budget, before: Solver | None = None) -> Solver:
    """A search for the worst of these perturbations together: gradients lead it over pixels, draws over the rest.

    Where the search before it took a single step, so does this one, over pixels.
    """
    attacks = budget.attacks()
    around: dict[str, Neighborhood] = {name: attacks[PERTURBATIONS[name]].within for name in names}
    stages: list[Solver] = []
    if "pixels" in around:
        ball = around.pop("pixels")
        ascent = PGD(around=ball, steps=budget.steps, step_size=budget.step_size)
        stages.append(replace(before, around=ball) if isinstance(before, FGSM | NFGSM) else ascent)
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
