"""Table 7: the computational complexity of all methods, against passes that are counted."""

from dataclasses import replace

from ..objectives import with_solvers
from ..recipe import Recipe
from ..recipes import named
from ..recipes.words import in_words
from ..solvers import Solver
from .definition import Experiment, Finding, Found, Statement
from .layout import aligned
from .passes import Passes, passes_of_step
from .scales import with_field

SPATIAL = ("cifar10-spatial-worst-of-k", "cifar10-spatial-klr")
PIXEL = ("cifar10-pixel-at", "cifar10-pixel-trades", "cifar10-pixel-uat", "cifar10-pixel-rst", "cifar10-pixel-srt")
NAMES = ("cifar10-pixel-standard", *SPATIAL, *PIXEL)
FORMULAS = {
    "standard": "O(N I_o)",
    "uat": "O((N + M) I_i I_o)",
    "rst": "O((N + M) I_i I_o)",
    "srt": "O((N + M) I_i I_o)",
}
SUPERVISED = "O(N I_i I_o)"
LABELED, UNLABELED = 12, 48
"""images of the step that is counted, N and M: in the proportion of the paper's CIFAR-10"""


def experiment() -> Experiment:
    """The table and the statement that it makes."""
    return Experiment(
        name="table-7",
        title="Computational complexity: passes of a step, counted",
        counted=table,
        statements=(
            Statement(
                words="a step has O(N) passes in standard training, O(N I_i) in Worst-of-k, KLR, AT and TRADES, and "
                "O((N + M) I_i) in UAT, RST and SRT",
                check=check,
            ),
        ),
    )


def formula(name: str) -> str:
    """What the paper's table says of a method."""
    return FORMULAS.get(name.split("-")[-1], SUPERVISED)


def counted(recipe: Recipe) -> Passes:
    """The passes of a step; methods that use labels alone see no unlabeled image."""
    return passes_of_step(recipe, LABELED, 0 if recipe.data.unlabeled == 0 else UNLABELED)


def longer(recipe: Recipe, times: int) -> Recipe:
    """The recipe with so many times the inner iterations."""

    def stretched(solver: Solver) -> Solver:
        name = "steps" if hasattr(solver, "steps") else "k"
        return with_field(solver, name, times * getattr(solver, name))

    return replace(recipe, objective=with_solvers(recipe.objective, stretched))


def iterations(recipe: Recipe) -> int:
    """I_i: steps of PGD, or draws."""
    solver = getattr(recipe.objective, "solver", None)
    return int(getattr(solver, "steps", None) or getattr(solver, "k", 0))


def table() -> str:
    """A row for each method: the paper's formula, and the passes that were counted."""
    heading = ("method", "paper", "N", "M", "I_i", "forward", "backward to images", "backward to weights")
    rows: list[tuple[str, ...]] = []
    for name in NAMES:
        recipe = named(name)
        passes, images = counted(recipe), LABELED + (0 if recipe.data.unlabeled == 0 else UNLABELED)
        each = passes.divided(LABELED)
        counts = (each.forward, each.backward_to_images, each.backward_to_weights)
        rows.append(
            (
                in_words(name, scenario=False),
                formula(name),
                str(LABELED),
                str(images - LABELED),
                str(iterations(recipe)),
                *(f"{count:g}" for count in counts),
            )
        )
    words = "Passes of one outer step for each labeled image in it; those of RST's teacher count too."
    return f"{aligned(heading, rows)}\n\n{words}"


def check(_: Found) -> Finding:
    """Whether passes grow as the formulas say: with I_i, and with the images that take part in the search."""
    wrong: list[str] = []
    told: list[str] = []
    for name in NAMES:
        recipe, words = named(name), in_words(name, scenario=False)
        once = counted(recipe).all
        if formula(name) == "O(N I_o)":
            if once != 2 * LABELED:
                wrong.append(f"{words}: {once:g} passes for {LABELED} images")
            continue
        inner = iterations(recipe)
        slope = (counted(longer(recipe, 2)).all - once) / inner
        searched = LABELED if formula(name) == SUPERVISED else LABELED + UNLABELED
        # A step of PGD takes a forward and a backward pass of each image, a draw of Worst-of-k a forward pass alone.
        expected = (1 if hasattr(getattr(recipe.objective, "solver", None), "k") else 2) * searched
        rest = once - inner * slope
        told.append(f"{words} {slope:g} I_i + {rest:g}")
        if slope != expected or not 0 <= rest <= 8 * searched:
            wrong.append(f"{words}: {slope:g} passes for each of I_i, expected {expected}")
    figures = f"passes of a step with N = {LABELED}, M = {UNLABELED}: " + ", ".join(told)
    return Finding("fail", "; ".join(wrong)) if wrong else Finding("pass", figures)
