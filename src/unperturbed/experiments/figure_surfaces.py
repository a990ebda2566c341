"""Figures 3 to 6: decision and loss surfaces of standard training and of SRT around test images."""

from ..recipes import named
from ..recipes.words import DATA_SETS, SCENARIOS
from .definition import SURFACES, Cell, Experiment, Statement, Table, Trial
from .statements import Comparison, above
from .terrain import IMAGES

PANELS = tuple((data, scenario) for data in ("mnist", "cifar10") for scenario in ("spatial", "pixel"))


def experiment() -> Experiment:
    """Four panels, each with the model trained for it."""
    return Experiment(
        name="figure-surfaces",
        title="Decision and loss surfaces around test images (Figures 3 to 6)",
        tables=tuple(
            Table(
                title=f"{DATA_SETS[data]}, {SCENARIOS[scenario]}",
                rows=tuple(
                    Trial(recipe=named(f"{data}-{scenario}-{method}"), surfaces=True)
                    for method in ("standard", "srt")
                ),
                columns=tuple((name, 1.0) for name in SURFACES if name.endswith(scenario)),
            )
            for data, scenario in PANELS
        ),
        statements=tuple(statement(data, scenario) for data, scenario in PANELS),
        remarks=(
            f"means over the first {IMAGES} test images, and errors of these; `unperturbed surface` draws the "
            "pictures from the same runs",
            "the paper shows slopes and ruggedness in pictures alone. Ours are over the way from x to the edge of "
            "the budget: a slope is the mean length of the gradient, ruggedness how far D goes up and down again "
            "along the axes, D in percent. Pixel-wise all is measured in the ball, |s| + |t| <= eps: the corners of "
            "the square that `unperturbed surface` draws are 2 eps away",
        ),
    )


def statement(data: str, scenario: str) -> Statement:
    """What the text says of a panel: a plateau of right answers around x, and lower peaks of the loss."""
    srt, standard = f"{data}-{scenario}-srt", f"{data}-{scenario}-standard"
    return above(
        f"around test images SRT is right on a larger part of the surface, and its loss peaks lower, than standard "
        f"training, on {DATA_SETS[data]}, {SCENARIOS[scenario]}",
        [
            Comparison(Cell(srt, f"surface.{scenario}"), Cell(standard, f"surface.{scenario}")),
            Comparison(Cell(standard, f"peak.{scenario}"), Cell(srt, f"peak.{scenario}")),
        ],
    )
