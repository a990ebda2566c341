"""What makes a run and its report again: the attacks of a report from their settings, and the commands."""

import shlex

from .. import recipe as recipes
from ..attacks import Attack
from ..datasets import Dataset
from ..printing import in_shell
from ..recipe import Recipe
from ..recipes import RECIPES, usual_budget
from ..recipes.against import against, pointed_at
from ..recipes.budgets import Budget
from ..recipes.inferred import budget_of, budget_options, budgets_of
from ..report import AttackResult
from ..runs import flat
from .evaluated import EvaluatedRun


def attack_of(result: AttackResult, data: str) -> Attack | None:
    """The attack that made this result, where it is one of ours."""
    budget = budget_of(result, usual_budget(data))
    return None if budget is None else budget.attacks()[result.name]


def commands(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """Command lines that train and evaluate such a run again, into the same directory."""
    train = f"unperturbed train {training_words(run)} --out {in_shell(run.directory)}"
    lines = evaluating(run, dataset)
    return [train, *lines] if run.card is None else [train, examining(run, dataset), *lines[1:]]


def examining(run: EvaluatedRun, dataset: Dataset) -> str:
    """The command that makes the trust card of a report: on its images, with its seed, within its budget."""
    first, *_ = evaluating(run, dataset) or [" ".join(["unperturbed evaluate", *subject(run, dataset)])]
    return f"{first} --trust"


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


def evaluating(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """A command for the attacks in a report, for each budget where they have several."""
    usual = usual_budget(run.recipe.data.name)
    together: dict[tuple[str, ...], list[str]] = {}
    for result, budget in budgets_of(run.report.attacks, usual):
        together.setdefault(budget_options(budget, usual), []).append(result.name)
    directory, *images = subject(run, dataset)
    return [
        " ".join(["unperturbed evaluate", directory, "--attacks", ",".join(names), *options, *images])
        for options, names in together.items()
    ]


def subject(run: EvaluatedRun, dataset: Dataset) -> list[str]:
    """The directory of a run, and the options that ask for the images and the seed of its report."""
    images = len(run.report.labels)
    limit = [] if images == len(dataset.test_labels) else ["--images", str(images)]
    seed = [] if run.report.seed == 0 else ["--seed", str(run.report.seed)]
    return [in_shell(run.directory), *limit, *seed]
