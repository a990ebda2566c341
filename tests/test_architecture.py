"""Imports go downwards only; the mathematics can be lifted out; rooms are small and have names of their own."""

import ast
import re
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "unperturbed"
LAYERS = [
    {"printing", "version", "signals"},
    {"npz", "trees", "repeats", "untested", "meeting", "answers"},
    {"runtime", "progress", "inputs", "pictures", "processes", "locks", "files", "checkpoints"},
    {"neighborhoods", "losses", "events", "misnamed", "formats", "archives"},
    {"solvers", "risks", "models", "batches", "data", "datasets", "gathering", "schedules", "averaging", "reservoir"},
    {"given"},
    {"objectives", "attacks"},
    {"engine", "cutting", "packing"},
    {"recipe", "report", "images", "awp"},
    {"guards", "own_parts", "sameness", "selection", "step", "unfinished", "defender", "turns"},
    {"trainer"},
    {"training", "fitting", "stopping", "runs", "evaluation", "trust", "surfaces"},
    {"recipes"},
    {"comparison", "finished"},
    {"sweeps"},
    {"curves"},
    {"figures"},
    {"page"},
    {"experiments"},
    {"cli"},
]
SIDEWAYS = {
    ("training", "runs"),
    ("training", "stopping"),
    ("stopping", "runs"),
    ("trust", "evaluation"),
}
"""(importer, imported) within one layer"""
MATHEMATICS = {"neighborhoods", "losses", "answers", "solvers", "given", "risks", "objectives"}
NAMELESS = {"utils", "core", "base", "misc", "helpers", "common"}
HEIGHT = {room: height for height, layer in enumerate(LAYERS) for room in layer}

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
ROOMS = [file for file in FILES if file.parts[0] not in ("__init__.py", "__main__.py")]
every_file = pytest.mark.parametrize("file", FILES, ids=str)
every_room = pytest.mark.parametrize("file", ROOMS, ids=str)


def room_of(file: Path) -> str:
    return file.parts[0].removesuffix(".py")


def imported_modules(file: Path, source: str) -> set[str]:
    """Full names of what a file imports; of our own package also the names it imports from the top."""
    package = ("unperturbed", *file.parent.parts)
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            anchor = package[: len(package) + 1 - node.level] if node.level else ()
            origin = ".".join([*anchor, *([node.module] if node.module else [])])
            modules |= {f"unperturbed.{alias.name}" for alias in node.names} if origin == "unperturbed" else {origin}
    return modules


def imported_rooms(file: Path, source: str) -> set[str]:
    """The rooms of our own package that a file imports; its version is no room."""
    ours = {module for module in imported_modules(file, source) if module.split(".")[0] == "unperturbed"}
    return {[*module.split("."), "__init__"][1] for module in ours} - {"__version__", room_of(file)}


def wrong_imports(file: Path, source: str) -> set[str]:
    """Rooms that lie no lower than this one, or nowhere."""
    room, top = room_of(file), len(LAYERS)
    return {
        imported
        for imported in imported_rooms(file, source)
        if (room, imported) not in SIDEWAYS and HEIGHT.get(imported, top) >= HEIGHT.get(room, top)
    }


def foreign_imports(file: Path, source: str) -> set[str]:
    """What the mathematics may not import."""
    libraries = {module.split(".")[0] for module in imported_modules(file, source)}
    foreign = libraries - set(sys.stdlib_module_names) - {"torch", "unperturbed"}
    return foreign | (imported_rooms(file, source) - MATHEMATICS)


def test_the_mathematics_is_among_the_files_that_are_checked():
    assert {room_of(file) for file in ROOMS} >= MATHEMATICS


@every_room
def test_every_file_has_a_layer(file):
    assert room_of(file) in HEIGHT, f"add {room_of(file)} to LAYERS in {Path(__file__).name}"


@every_room
def test_imports_go_downwards_only(file):
    assert not wrong_imports(file, (PACKAGE / file).read_text())


@pytest.mark.parametrize("file", [file for file in ROOMS if room_of(file) in MATHEMATICS], ids=str)
def test_the_mathematics_imports_only_torch_the_standard_library_and_itself(file):
    assert not foreign_imports(file, (PACKAGE / file).read_text())


@every_file
def test_a_file_is_short_and_has_a_name_of_its_own(file):
    assert len((PACKAGE / file).read_text().splitlines()) <= 300
    assert not NAMELESS & {*file.parent.parts, file.stem.strip("_")}


def test_the_room_of_experiments_tells_where_each_of_its_files_belongs():
    folder = PACKAGE / "experiments"
    told = (folder / "__init__.py").read_text()
    assert not [path.stem for path in folder.glob("[a-z]*.py") if not re.search(rf"\b{path.stem}\b", told)]


@every_file
def test_a_class_is_an_interface_or_final(file):
    names = {node.id for node in ast.walk(ast.parse((PACKAGE / file).read_text())) if isinstance(node, ast.Name)}
    assert "NotImplementedError" not in names


@pytest.mark.parametrize(
    ("file", "source", "wrong"),
    [
        ("solvers.py", "from .losses import Loss", set()),
        ("solvers.py", "from .objectives import SRT", {"objectives"}),
        ("solvers.py", "from .risks import robust_risk", {"risks"}),
        ("solvers.py", "from . import __version__, cli", {"cli"}),
        ("solvers.py", "import unperturbed.training", {"training"}),
        ("solvers.py", "from unperturbed import SRT", {"SRT"}),
        ("solvers.py", "import unperturbed", {"__init__"}),
        ("solvers.py", "def late():\n    from .objectives import SRT", {"objectives"}),
        ("attacks/jsma.py", "from ..answers import frozen\nfrom .ball import project", set()),
        ("attacks/jsma.py", "from ..objectives import Batch", {"objectives"}),
        ("solvers/search.py", "from ..neighborhoods import Box\nfrom .definition import greater", set()),
        ("solvers/search.py", "from ..objectives import Batch", {"objectives"}),
        ("attacks/jsma.py", "from ..training import Trainer", {"training"}),
        ("attacks/jsma.py", "from .. import evaluation", {"evaluation"}),
        ("objectives.py", "from .attacks.jsma import JSMA", {"attacks"}),
        ("recipes/digits.py", "from ..recipe import Recipe", set()),
        ("recipe.py", "from .recipes.digits import RECIPES", {"recipes"}),
        ("runtime.py", "from .losses import margin", {"losses"}),
    ],
)
def test_the_check_itself_finds_imports_that_go_upwards(file, source, wrong):
    assert wrong_imports(Path(file), source) == wrong


@pytest.mark.parametrize(
    ("source", "foreign"),
    [
        ("import torch.nn.functional as F\nfrom math import inf\nfrom .losses import Loss", set()),
        ("import numpy as np", {"numpy"}),
        ("from sklearn.datasets import load_digits", {"sklearn"}),
        ("from .models import Normalize", {"models"}),
        ("from .runtime import Runtime", {"runtime"}),
    ],
)
def test_the_check_itself_finds_what_the_mathematics_may_not_import(source, foreign):
    assert foreign_imports(Path("objectives.py"), source) == foreign
