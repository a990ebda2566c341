"""What a reader wants to know first: the table at the head of the results and of the README."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..recipes.published import printed
from .account import column_words, figure_text, minutes_text, printed_text
from .definition import Cell
from .editions import Edition, concerned, editions
from .evidence import Evidence
from .layout import aligned
from .measured import Measured

COLUMNS = ("clean", "pgd", "gridadv", "autoattack", "minutes")
PIXEL, SPATIAL, BOTH, TIMED = (
    ("clean", "pgd", "autoattack"),
    ("clean", "gridadv"),
    ("clean", "pgd", "gridadv"),
    ("clean", "pgd", "autoattack", "minutes"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A trial, which of the columns it has, and where the paper prints it, if it does."""

    words: str
    trial: str
    columns: tuple[str, ...]
    place: str = ""
    schedule: str = ""
    """of our run, and its network, where they are not those that the rest of its line lets a reader expect"""


ROWS = (
    Row("SRT, CIFAR-10, pixel-wise", "cifar10-pixel-srt", PIXEL, "Table 4"),
    Row("SRT, CIFAR-10, pixel-wise, lambda that grows", "cifar10-pixel-srt-ramped-one-pass", PIXEL),
    Row("RST, CIFAR-10, pixel-wise", "cifar10-pixel-rst", PIXEL, "Table 4"),
    Row("fast SRT, CIFAR-10, pixel-wise", "cifar10-pixel-srt-fast", TIMED, "Table 9"),
    Row(
        "fast SRT, CIFAR-10, pixel-wise, labels of a teacher",
        "cifar10-pixel-srt-fast-shortest-well-taught-three-steps-60",
        TIMED,
        schedule="60 epochs, ResNet-18",
    ),
    Row("SRT, CIFAR-10, spatial", "cifar10-spatial-srt", SPATIAL, "Table 3"),
    Row("SRT, CIFAR-10, spatial, authors' code", "cifar10-spatial-srt-authors", SPATIAL),
    Row("SRT, MNIST, pixel-wise", "mnist-pixel-srt", PIXEL, "Table 4"),
    Row("SRT, MNIST, pixel-wise, authors' rate", "mnist-pixel-srt-authors", PIXEL),
    Row("RST, MNIST, pixel-wise", "mnist-pixel-rst", PIXEL, "Table 4"),
    Row("SRT, MNIST, spatial", "mnist-spatial-srt", SPATIAL, "Table 3"),
    Row("SRT, MNIST, spatial, authors' code", "mnist-spatial-srt-authors", SPATIAL),
    Row("SRT+, CIFAR-10, pixel-wise and spatial", "cifar10-compound-srt", BOTH),
    Row("SRT+, MNIST, pixel-wise and spatial", "mnist-compound-srt", BOTH),
    Row(
        "SRT++, CIFAR-10, pixel-wise",
        "cifar10-pixel-srt-plusplus-selected-three-steps-60",
        PIXEL,
        schedule="60 epochs, WRN-34-10",
    ),
    Row("SRT++, CIFAR-10, pixel-wise", "cifar10-pixel-srt-plusplus-selected-three-steps", PIXEL),
    Row(
        "RST, CIFAR-10, pixel-wise, teacher and average of SRT++",
        "cifar10-pixel-rst-taught-alike-three-steps",
        PIXEL,
    ),
    Row("SRT++, CIFAR-10, spatial", "cifar10-spatial-srt-plusplus-selected", SPATIAL),
    Row("SRT++, MNIST, pixel-wise", "mnist-pixel-srt-plusplus-selected-lambda-6-still-wider-uniform", PIXEL),
)


def headline(evidence: Sequence[Evidence]) -> str:
    """The headline table: the paper's numbers and ours, shorter trainings where the paper's schedule is not run."""
    lines = [line for row in ROWS for line in lines_of(row, editions(evidence))]
    return aligned(("accuracy in %", "whose", *(column_words(column, 1.0) for column in COLUMNS)), lines)


def lines_of(row: Row, measured: Sequence[Edition]) -> Iterator[list[str]]:
    """The paper's line of a row, and ours."""
    if row.place:
        theirs = printed(row.place, row.trial)
        cells = {column: printed_text(column, theirs[column]) for column in row.columns if column in theirs}
        yield [row.words, "the paper", *(cells.get(column, "") for column in COLUMNS)]
    ours = [edition for edition in measured if any(each.name == row.trial for each in edition.own)]
    for edition in [edition for edition in ours if edition.scale == "paper"] or ours:
        found = Measured(edition.evidence)
        cells = {column: cell_of(found, row.trial, column) for column in row.columns}
        yield [row.words, whose(row, edition), *(cells.get(column, "") for column in COLUMNS)]


def cell_of(found: Measured, trial: str, column: str) -> str:
    """Our number, if there is one."""
    return minutes_text(found, trial) if column == "minutes" else figure_text(found.figure(Cell(trial, column)))


def whose(row: Row, edition: Edition) -> str:
    """How our run was trained, and on which of the two networks where it may be either."""
    runs = [each for each in edition.evidence if each.name == row.trial]
    network = f", {'WRN-34-10' if edition.network == 'own' else 'ResNet-18'}" if any(map(concerned, runs)) else ""
    return f"ours, {row.schedule or f'{edition.scale} schedule{network}'}"
