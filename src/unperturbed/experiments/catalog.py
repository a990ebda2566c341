"""All experiments by name."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from ..printing import nearest
from . import (
    better,
    fast,
    figure_compound,
    figure_surfaces,
    figure_unlabeled,
    lambda_pixel_tables,
    lambda_tables,
    main_tables,
    table_7,
)
from .definition import Experiment

EVERY = "all"
"""the word for every experiment"""


@lru_cache(maxsize=1)
def experiments() -> Mapping[str, Experiment]:
    """Every experiment, tables first, in the paper's order."""
    found = {experiment.name: experiment for experiment in made()}
    tables = sorted(name for name in found if name.startswith("table-"))
    return {name: found[name] for name in (*tables, *(name for name in found if name not in tables))}


def made() -> Iterator[Experiment]:
    """Every experiment, file by file."""
    yield from lambda_tables.experiments()
    yield from lambda_pixel_tables.experiments()
    yield from main_tables.experiments()
    yield table_7.experiment()
    yield figure_compound.experiment()
    yield figure_unlabeled.experiment()
    yield figure_surfaces.experiment()
    yield from fast.experiments()
    yield better.experiment()


def chosen(words: list[str]) -> list[Experiment]:
    """The experiments that these words name, each once."""
    known = experiments()
    found: dict[str, Experiment] = {}
    for word in words:
        for name in known if word == EVERY else (word,):
            if name not in known:
                near = nearest(name, known)
                raise ValueError(f"there is no experiment {name!r}{near} (there are {', '.join(known)}, {EVERY})")
            found[name] = known[name]
    return list(found.values())
