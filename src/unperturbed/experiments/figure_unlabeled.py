"""Figure 2: accuracy of SRT over the number of unlabeled images, beside supervised training on all labels."""

from dataclasses import dataclass, replace

from ..recipes import named
from ..recipes.words import DATA_SETS, DEFENSES, SCENARIOS
from .definition import Cell, Experiment, Statement, Table, Trial, table_of
from .ramped import ALSO_GROWING, first_learned
from .statements import WITH_HARDLY_MORE, Comparison, above, alike, growing

AMOUNTS = (0, 5_000, 10_000, 20_000)
"""besides all that remain: 40,000 on CIFAR-10, 50,000 on MNIST"""
ATTACKS = {"pixel": "pgd", "spatial": "gridadv"}
SUPERVISED = {"pixel": "at", "spatial": "worst-of-k"}
EVERY = {"cifar10": 40_000, "mnist": 50_000}
"""unlabeled images where all that are not labeled are taken"""
SIMILAR = 5.0
"""points that SRT may be under supervised training on all labels and still be similar, if hardly more are wrong"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of the figure."""

    data: str
    scenario: str
    growing: bool = False
    """whether lambda grows over the first half of a run, clean and perturbed images in one pass"""

    @property
    def title(self) -> str:
        """What it shows."""
        return f"{DATA_SETS[self.data]}, {SCENARIOS[self.scenario]}" + (", lambda that grows" if self.growing else "")

    @property
    def attack(self) -> str:
        """The attack of its scenario."""
        return ATTACKS[self.scenario]


PANELS = (
    Panel("cifar10", "pixel"),
    Panel("cifar10", "pixel", growing=True),
    Panel("cifar10", "spatial"),
    Panel("mnist", "pixel"),
    Panel("mnist", "spatial"),
)


def experiment() -> Experiment:
    """Both data sets, both scenarios, and pixel-wise on CIFAR-10 a lambda that grows too."""
    return Experiment(
        name="figure-unlabeled",
        title="Accuracy over the number of unlabeled images (Figure 2)",
        tables=tuple(table(panel) for panel in PANELS),
        statements=tuple(statement for panel in PANELS for statement in statements(panel)),
        remarks=(
            "all runs of a panel take as many steps as SRT with all unlabeled images; the share of labeled ones in a "
            "batch follows the data, as the paper says",
            "the paper gives the numbers of unlabeled images only as a picture: ours are our own choice",
            ALSO_GROWING,
        ),
    )


def table(panel: Panel) -> Table:
    """A panel as a table."""
    return table_of(panel.title, (*over_amounts(panel), with_all_labels(panel)), (panel.attack,))


def over_amounts(panel: Panel) -> tuple[Trial, ...]:
    """SRT with ever more unlabeled images."""
    return tuple(with_unlabeled(panel, amount) for amount in (*AMOUNTS, EVERY[panel.data]))


def with_unlabeled(panel: Panel, amount: int) -> Trial:
    """SRT with so many unlabeled images: without any, spatially, RT at lambda 0.2 of Tables 1 and 5."""
    recipe = named(f"{panel.data}-{panel.scenario}-srt")
    variant, label = "", f"SRT, {amount:,} unlabeled"
    if (panel.scenario, amount) == ("spatial", 0):
        recipe = named(recipe.name.replace("-srt", "-rt-lambda-0.2"))
    elif amount != EVERY[panel.data]:
        recipe, variant = replace(recipe, data=replace(recipe.data, unlabeled=amount)), f"-unlabeled-{amount}"
    trial = Trial(recipe=recipe, variant=variant, attacks=(panel.attack,), label=label)
    return first_learned(trial, label) if panel.growing else trial


def with_all_labels(panel: Panel) -> Trial:
    """The supervised defense with the label of every training image, for as many steps."""
    recipe = named(f"{panel.data}-{panel.scenario}-{SUPERVISED[panel.scenario]}")
    steps = named(f"{panel.data}-{panel.scenario}-srt").steps
    return Trial(
        recipe=replace(recipe, steps=steps, data=replace(recipe.data, labeled=None, unlabeled=0)),
        variant="-all-labels",
        attacks=(panel.attack,),
        label=f"{DEFENSES[SUPERVISED[panel.scenario]].title}, all images labeled",
    )


def statements(panel: Panel) -> tuple[Statement, ...]:
    """What the text says of a panel."""
    where = f"on {panel.title}"
    cells = [Cell(trial.name, panel.attack) for trial in over_amounts(panel)]
    rival = Cell(with_all_labels(panel).name, panel.attack)
    everywhere = (
        above(f"adversarial accuracy rises with the number of unlabeled images {where}", growing(cells)),
        above(f"adversarial accuracy still rises where all unlabeled images are used {where}", growing(cells[-2:])),
        above(
            f"with all unlabeled images SRT is at most {SIMILAR:g} points under supervised training on all labels, "
            f"{WITH_HARDLY_MORE} (the text says similar), {where}",
            alike([Comparison(cells[-1], rival, -SIMILAR)]),
        ),
    )
    if (panel.data, panel.scenario) != ("mnist", "spatial"):
        return everywhere
    exceeds = f"with all unlabeled images SRT exceeds supervised training on all labels {where}"
    return (*everywhere, above(exceeds, [Comparison(cells[-1], rival)]))
