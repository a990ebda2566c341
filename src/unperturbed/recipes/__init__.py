"""Recipes by name, `<data>-<scenario>-<method>`: the only home of the paper's numbers."""

from collections.abc import Mapping

from ..printing import in_shell, nearest, quoted
from ..recipe import Recipe
from . import cifar10, digits, mnist
from .budgets import Budget

RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe for module in (digits, mnist, cifar10) for recipe in module.recipes()
}


def named(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES and name.endswith(".json"):
        raise ValueError(f"{quoted(name)} is a file and no recipe's name: read it by `unperturbed train --from FILE`")
    if name not in RECIPES and name.endswith(".npz"):
        raise ValueError(
            f"{quoted(name)} is a data set and no recipe's name: name one (`unperturbed list`), and the data set "
            f"behind it by --data.name {in_shell(name)}"
        )
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {quoted(name)}{nearest(name, RECIPES)} (`unperturbed list` names all)")
    return RECIPES[name]


def usual_budget(data: str) -> Budget:
    """How far adversaries go on that data set in the paper; for other images, the field's habits."""
    return {"digits": digits.BUDGET, "mnist": mnist.BUDGET, "cifar10": cifar10.BUDGET}.get(data, Budget())
