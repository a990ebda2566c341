"""Figure 2: accuracy of SRT over the number of unlabeled images, beside supervised training on all labels."""

from dataclasses import replace

from ..recipe import Recipe
from ..recipes import named
from ..recipes.words import DATA_SETS, SCENARIOS
from .definition import Cell, Experiment, Statement, Table, Trial, table_of
from .statements import Comparison, above, growing

AMOUNTS = (0, 5_000, 10_000, 20_000)
"""besides all that remain: 40,000 on CIFAR-10, 50,000 on MNIST"""
ATTACKS = {"pixel": "pgd", "spatial": "gridadv"}
SUPERVISED = {"pixel": "at", "spatial": "worst-of-k"}
PANELS = tuple((data, scenario) for data in ("cifar10", "mnist") for scenario in ("pixel", "spatial"))
SIMILAR = 5.0
"""points that SRT may be under supervised training on all labels and still be similar"""


def experiment() -> Experiment:
    """Four panels: both data sets, both scenarios."""
    return Experiment(
        name="figure-unlabeled",
        title="Accuracy over the number of unlabeled images (Figure 2)",
        tables=tuple(panel(data, scenario) for data, scenario in PANELS),
        statements=tuple(statement for data, scenario in PANELS for statement in statements(data, scenario)),
        remarks=(
            "all runs of a panel take as many steps as SRT with all unlabeled images; the share of labeled ones in a "
            "batch follows the data, as the paper says",
            "the paper gives the numbers of unlabeled images only as a picture: ours are our own choice",
        ),
    )


def panel(data: str, scenario: str) -> Table:
    """One panel as a table."""
    rows = (*over_amounts(data, scenario), with_all_labels(data, scenario))
    return table_of(f"{DATA_SETS[data]}, {SCENARIOS[scenario]}", rows, (ATTACKS[scenario],))


def over_amounts(data: str, scenario: str) -> tuple[Trial, ...]:
    """SRT with ever more unlabeled images."""
    recipe, attack = named(f"{data}-{scenario}-srt"), ATTACKS[scenario]
    some = (
        Trial(
            recipe=recipe_without(recipe)
            if (scenario, amount) == ("spatial", 0)
            else replace(recipe, data=replace(recipe.data, unlabeled=amount)),
            variant="" if (scenario, amount) == ("spatial", 0) else f"-unlabeled-{amount}",
            attacks=(attack,),
            label=f"SRT, {amount:,} unlabeled",
        )
        for amount in AMOUNTS
    )
    every = 40_000 if data == "cifar10" else 50_000
    return (*some, Trial(recipe=recipe, attacks=(attack,), label=f"SRT, {every:,} unlabeled"))


def recipe_without(recipe: Recipe) -> Recipe:
    """RT at lambda 0.2 of Tables 1 and 5: spatial SRT without unlabeled images, in as many steps."""
    return named(recipe.name.replace("-srt", "-rt-lambda-0.2"))


def with_all_labels(data: str, scenario: str) -> Trial:
    """The supervised defense with the label of every training image, for as many steps."""
    recipe = named(f"{data}-{scenario}-{SUPERVISED[scenario]}")
    longer = replace(
        recipe, steps=named(f"{data}-{scenario}-srt").steps, data=replace(recipe.data, labeled=None, unlabeled=0)
    )
    words = {"pixel": "AT", "spatial": "Worst-of-k"}[scenario]
    return Trial(
        recipe=longer, variant="-all-labels", attacks=(ATTACKS[scenario],), label=f"{words}, all images labeled"
    )


def statements(data: str, scenario: str) -> tuple[Statement, ...]:
    """What the text says of a panel."""
    attack, where = ATTACKS[scenario], f"on {DATA_SETS[data]}, {SCENARIOS[scenario]}"
    cells = [Cell(trial.name, attack) for trial in over_amounts(data, scenario)]
    rival = Cell(with_all_labels(data, scenario).name, attack)
    exceeds = (data, scenario) == ("mnist", "spatial")
    against = "exceeds" if exceeds else f"is at most {SIMILAR:g} points under"
    return (
        above(f"adversarial accuracy rises with the number of unlabeled images {where}", growing(cells)),
        above(f"adversarial accuracy still rises where all unlabeled images are used {where}", growing(cells[-2:])),
        above(
            f"with all unlabeled images SRT {against} supervised training on all labels {where}",
            [Comparison(cells[-1], rival, 0.0 if exceeds else -SIMILAR)],
        ),
    )
