"""Figures 3 to 6: decision and loss surfaces of standard training and of SRT around test images."""

from collections.abc import Iterator

from ..recipes import named
from ..recipes.words import DATA_SETS, SCENARIOS
from .definition import SURFACES, Cell, Experiment, Statement, Table, Trial
from .ramped import ALSO_GROWING, first_learned
from .statements import Comparison, above, over
from .terrain import IMAGES

PANELS = tuple((data, scenario) for data in ("mnist", "cifar10") for scenario in ("spatial", "pixel"))
LARGER_IN_STANDARD = {
    "decision-slope": "the decision surface of standard training has larger slopes than that of SRT",
    "peak": "the loss of standard training peaks higher than that of SRT",
    "loss-slope": "the loss surface of standard training has larger slopes than that of SRT",
}
"""what the text says of the panels, by what is measured"""


def experiment() -> Experiment:
    """Four panels, each with the model trained for it."""
    return Experiment(
        name="figure-surfaces",
        title="Decision and loss surfaces around test images (Figures 3 to 6)",
        tables=tuple(
            Table(
                title=f"{DATA_SETS[data]}, {SCENARIOS[scenario]}",
                rows=trials(data, scenario),
                columns=tuple((name, 1.0) for name in SURFACES if name.endswith(scenario)),
            )
            for data, scenario in PANELS
        ),
        statements=(
            *(statement for data, scenario in PANELS for statement in statements(data, scenario)),
            *(rugged(data) for data in ("mnist", "cifar10")),
        ),
        remarks=(
            f"means over the first {IMAGES} test images, and errors of these; `unperturbed surface` draws the "
            "pictures from the same runs",
            "the paper shows slopes and ruggedness in pictures alone. Ours are over the way from x to the edge of "
            "the budget: a slope is the mean length of the gradient, ruggedness how far D goes up and down again "
            "along the axes, D in percent. Pixel-wise all is measured in the ball, |s| + |t| <= eps: the corners of "
            "the square that `unperturbed surface` draws are 2 eps away",
            ALSO_GROWING,
        ),
    )


def trials(data: str, scenario: str) -> tuple[Trial, ...]:
    """The models of a panel, standard training first."""
    standard, srt = (
        Trial(recipe=named(f"{data}-{scenario}-{method}"), surfaces=True) for method in ("standard", "srt")
    )
    if (data, scenario) == ("cifar10", "pixel"):
        return standard, srt, first_learned(srt, "SRT, lambda that grows")
    return standard, srt


def statements(data: str, scenario: str) -> Iterator[Statement]:
    """What the text says of a panel: a plateau of right answers around x with SRT, peaks and slopes without."""
    standard, *others = trials(data, scenario)
    for trial in others:
        where = f"on {DATA_SETS[data]}, {SCENARIOS[scenario]}" + (", lambda that grows" if trial.variant else "")
        yield above(
            f"around test images SRT is right on a larger part of the surface than standard training, {where}",
            over(trial.name, standard.name, [f"surface.{scenario}"]),
        )
        for column, words in LARGER_IN_STANDARD.items():
            sentence = f"around test images {words}, {where}"
            yield above(sentence, over(standard.name, trial.name, [f"{column}.{scenario}"]))


def rugged(data: str) -> Statement:
    """What the text says of the two scenarios, each with the model trained for it."""
    spatial, pixel = (Cell(f"{data}-{scenario}-srt", f"ruggedness.{scenario}") for scenario in ("spatial", "pixel"))
    return above(
        f"the decision surface of SRT in the spatial scenario is more rugged than in the pixel-wise one, on "
        f"{DATA_SETS[data]}",
        [Comparison(spatial, pixel)],
    )
