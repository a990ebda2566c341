"""Statements that hold our numbers against those that the paper prints; the mean over seeds decides alone."""

from collections.abc import Sequence

from ..recipes.published import printed
from .definition import Cell, Finding, Found, Statement
from .statements import NOT_MEASURED, beside_bounds, called

SHORT_OF_PRINT = 1.0
"""points by which ours may be short of the paper's number"""


def as_printed(words: str, place: str, row: str, columns: Sequence[str], trial: str | None = None) -> Statement:
    """That our numbers of a row, by this trial or by the one that it names, are hardly under the paper's."""
    numbers, trial = printed(place, row), trial or row
    bounds = [(Cell(trial, column), numbers[column]) for column in columns]
    return Statement(words=words, check=lambda found: beside_bounds(found, bounds, reached=True, less=SHORT_OF_PRINT))


def nearer_to_print(words: str, readings: tuple[str, str], row: str, place: str, columns: Sequence[str]) -> Statement:
    """That the first of two readings lies nearer to a printed row, by the mean distance over these columns."""

    def check(found: Found) -> Finding:
        numbers = printed(place, row)
        distances: list[float] = []
        for reading in readings:
            figures = [found.figure(Cell(reading, column)) for column in columns]
            known = [figure.mean for figure in figures if figure is not None and figure.first is None]
            if len(known) < len(columns):  # What is printed is on all images.
                return Finding("undecided", NOT_MEASURED)
            apart = [abs(mean - numbers[column]) for mean, column in zip(known, columns, strict=True)]
            distances.append(sum(apart) / len(apart))
        first, second = distances
        told = [f"{far:.2f} ({called(found, reading)})" for far, reading in zip(distances, readings, strict=True)]
        figures = f"points from {place} on average: {', '.join(told)}"
        return Finding("pass" if first <= second else "fail", figures)

    return Statement(words=words, check=check)
