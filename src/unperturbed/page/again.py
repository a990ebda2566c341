"""What makes a run and its report again: the attacks of a report from their settings, and the commands."""

import shlex
from collections.abc import Sequence

from .. import recipe as recipes
from ..attacks import Attack
from ..datasets import Dataset
from ..neighborhoods import Linf, Spatial, TurnThenShift
from ..printing import in_shell
from ..recipe import Recipe
from ..recipes import RECIPES, usual_budget
from ..recipes.against import against, pointed_at
from ..recipes.budgets import Budget
from ..recipes.inferred import budget_of, budget_options, budgets_of, changed, makes, stated_number
from ..report import AttackResult
from ..runs import flat
from ..trust.card import Card
from .evaluated import EvaluatedRun

EXTENTS = ("eps", "rotation", "translation", "interpolations", "fraction")
"""the fields of a budget that bound what a trust card looks at"""


def attack_of(result: AttackResult, data: str) -> Attack | None:
    """The attack that made this result, where it is one of ours."""
    budget = budget_of(result, usual_budget(data))
    return None if budget is None else budget.attacks()[result.name]


def commands(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """Command lines that train and evaluate such a run again, into the same directory."""
    train = f"unperturbed train {training_words(run)} --out {in_shell(run.directory)}"
    each = evaluations(run)
    lines = [evaluating(run, dataset, budget, results) for budget, results in each]
    usual = usual_budget(run.recipe.data.name)
    looked = None if run.card is None else budget_of_card(run.card, usual, [budget for budget, _ in each])
    if looked is None:
        return [train, *lines]
    for place, (budget, results) in enumerate(each):
        both = changed(budget, differing(looked, budget))
        if both is not None and makes(both, results):
            lines[place] = f"{evaluating(run, dataset, both, results)} --trust"
            return [train, *lines]
    return [train, f"{evaluating(run, dataset, looked, each[0][1] if each else ())} --trust", *lines]


def examining(run: EvaluatedRun, dataset: Dataset) -> str:
    """The command that makes a trust card for a report: on its images, with its seed, within its budget."""
    budget, results = next(iter(evaluations(run)), (usual_budget(run.recipe.data.name), ()))
    return f"{evaluating(run, dataset, budget, results)} --trust"


def budget_of_card(card: Card, usual: Budget, those: Sequence[Budget]) -> Budget | None:
    """A budget within which a card was made: one of those, the usual one, or it with what the card notes; or none."""
    noted = {name: stated_number(name, card.around + card.spatial) for name in EXTENTS}
    changes = {name: number for name, number in noted.items() if number is not None}
    changes["interpolations"] = 2 if card.spatial.startswith(TurnThenShift.__name__) else 1
    tried = (*those, usual, changed(usual, changes))
    return next((each for each in tried if each is not None and card.looked_within(*looked_at(each))), None)


def differing(looked: Budget, budget: Budget) -> dict[str, float]:
    """How far a card looked, where that is not as far as attacks within that budget go."""
    if looked_at(looked) == looked_at(budget):
        return {}
    return {name: getattr(looked, name) for name in EXTENTS if getattr(looked, name) != getattr(budget, name)}


def looked_at(budget: Budget) -> tuple[Linf, Spatial | TurnThenShift]:
    """The neighborhoods that a trust card within that budget is made in."""
    return Linf(eps=budget.eps * budget.fraction), budget.warps


def training_words(run: EvaluatedRun) -> str:
    """The recipe by its name with the options that differ, or else by its file."""
    name, perturbations = pointed_at(run.recipe.name)
    names = ",".join(perturbations)
    options = options_between(recipe_pointed_at(name, names, usual_budget(run.recipe.data.name)), run.recipe)
    if options is None:
        return f"--from {in_shell(run.directory / 'recipe.json')}"
    return " ".join([name, *(["--against", names] if names else []), *options])


def recipe_pointed_at(name: str, names: str, budget: Budget) -> Recipe | None:
    """The recipe of that name, pointed at these perturbations where any are named; none where there is none."""
    recipe = RECIPES.get(name)
    if recipe is None or not names:
        return recipe
    try:
        return against(recipe, names, budget)
    except ValueError:  # Whoever wrote the file gave it a name that no recipe of ours can have.
        return None


def options_between(named: Recipe | None, recipe: Recipe) -> list[str] | None:
    """Options that turn one recipe into another; none where the command line cannot say it."""
    if named is None:
        return None
    old, new = flat(recipes.plain(named)), flat(recipes.plain(recipe))
    if old.keys() != new.keys():
        return None
    options: list[str] = []
    for key, value in new.items():
        if key == "data.sha256" or value == old[key]:
            continue
        if key.endswith("type") or isinstance(value, list | bool):
            return None
        options += [f"--{key.replace('_', '-')}", shlex.quote(str(value))]
    return options


def evaluations(run: EvaluatedRun) -> list[tuple[Budget, list[AttackResult]]]:
    """The attacks in a report that are ours, those within one budget together."""
    usual = usual_budget(run.recipe.data.name)
    together: dict[tuple[str, ...], tuple[Budget, list[AttackResult]]] = {}
    for result, budget in budgets_of(run.report.attacks, usual):
        together.setdefault(budget_options(budget, usual), (budget, []))[1].append(result)
    return list(together.values())


def evaluating(run: EvaluatedRun, dataset: Dataset, budget: Budget, results: Sequence[AttackResult]) -> str:
    """The command for these attacks within that budget; where none is named, for the usual ones."""
    names = ["--attacks", ",".join(result.name for result in results)] if results else []
    directory, *images = subject(run, dataset)
    options = budget_options(budget, usual_budget(run.recipe.data.name))
    return " ".join(["unperturbed evaluate", directory, *names, *options, *images])


def subject(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """The directory of a run, and the options that ask for the images and the seed of its report."""
    images = len(run.report.labels)
    limit = [] if images == len(dataset.test_labels) else ["--images", str(images)]
    seed = [] if run.report.seed == 0 else ["--seed", str(run.report.seed)]
    return [in_shell(run.directory), *limit, *seed]
