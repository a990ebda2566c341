"""The page of dependencies is complete, and each of them may be used freely; all of it checked offline."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
PAGE = (ROOT / "docs" / "dependencies.md").read_text()
PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "LLVM-exception", "MIT",
    "MIT-CMU", "PSF-2.0", "Zlib",
}  # fmt: skip
WEAK_COPYLEFT = {"certifi": "MPL-2.0", "hypothesis": "MPL-2.0", "pathspec": "MPL-2.0"}
"""packages whose own files must stay open when they are changed; the page says so of each"""
FULL_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
IMPORTED_AS = {"PIL": "pillow", "sklearn": "scikit-learn"}


def plain_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def rows(heading: str) -> dict[str, list[str]]:
    """The table under a heading of the page: the other cells by the name in the first."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"
    ]
    return {plain_name(first): rest for first, *rest in cells[2:]}


def requirements(lines: list[str]) -> dict[str, str]:
    parsed = [Requirement(line) for line in lines if not line.startswith("unperturbed")]
    return {plain_name(requirement.name): str(requirement.specifier) or "any" for requirement in parsed}


DIRECT = {
    "Runtime": requirements(PROJECT["dependencies"]),
    "Optional: `tensorboard`": requirements(OPTIONAL["tensorboard"]),
    "Development: `dev`": requirements(OPTIONAL["dev"]),
}
INDIRECT = "Indirect dependencies"
ALL = {name: row for heading in (*DIRECT, INDIRECT) for name, row in rows(heading).items()}


def pinned_versions(file: str = "constraints.txt") -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return {plain_name(name): version for name, _, version in (line.partition("==") for line in lines) if version}


def license_of(name: str) -> str:
    """The license that an installed package states: an expression, else its classifier, else a word."""
    stated = metadata.metadata(name)
    if expression := stated.get("License-Expression"):
        return expression
    classifiers = [
        line.split(" :: ")[-1] for line in stated.get_all("Classifier") or [] if line.startswith("License")
    ]
    words = stated.get("License") or ""
    if words in PERMISSIVE | {"MPL-2.0"} or not classifiers:
        return FULL_NAMES.get(words, words)
    return " AND ".join(FULL_NAMES.get(word, word) for word in classifiers)


def brought_along(names: set[str]) -> set[str]:
    """Everything that the named packages need on this machine and that is installed, themselves included."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        parsed = [Requirement(line) for line in needed]
        applying = [each for each in parsed if each.marker is None or each.marker.evaluate({"extra": ""})]
        waiting |= {plain_name(each.name) for each in applying} - found
    return found


def for_a_gpu(name: str) -> bool:
    return name == "triton" or name.startswith(("nvidia-", "cuda-"))


@pytest.mark.parametrize("heading", DIRECT)
def test_the_page_names_every_dependency_with_its_bound(heading):
    assert {name: row[0].strip("`") for name, row in rows(heading).items()} == DIRECT[heading]


@pytest.mark.parametrize("heading", DIRECT)
def test_every_dependency_has_a_purpose(heading):
    assert all(row[3] for row in rows(heading).values())


def test_the_versions_on_the_page_are_those_that_the_tests_run_with():
    shown = {name: row[1] if len(row) == 4 else row[0] for name, row in ALL.items()}
    assert shown == pinned_versions()


def test_the_least_versions_are_those_at_which_the_bounds_begin():
    bounds = DIRECT["Runtime"] | DIRECT["Optional: `tensorboard`"]
    least = pinned_versions("constraints-lowest.txt")
    assert least.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert f"{least[name]}.".startswith(f"{bound.removeprefix('>=')}."), name


def test_the_page_names_everything_that_is_brought_along():
    direct = set[str]().union(*DIRECT.values())
    assert not {name for name in brought_along(direct) if not for_a_gpu(name)} - set(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_license_on_the_page_is_the_one_that_the_package_states_and_is_permissive(name):
    shown = ALL[name][2] if len(ALL[name]) == 4 else ALL[name][1]
    terms = set(re.split(r" AND | OR | WITH ", shown))
    assert terms <= PERMISSIVE | {WEAK_COPYLEFT.get(name, "MIT")}
    try:
        assert license_of(name) == shown
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")


def test_what_is_not_quite_permissive_is_said():
    sentence = PAGE.split("MPL-2.0 is")[0].split("\n\n")[-1] + PAGE.split("MPL-2.0 is")[1].split("\n\n")[0]
    for name, terms in WEAK_COPYLEFT.items():
        assert (name in ALL) == (f"`{name}`" in sentence)
        assert name not in ALL or terms in ALL[name]


def test_the_package_imports_nothing_that_is_not_declared():
    declared = {*DIRECT["Runtime"]}
    imported = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                imported.add(node.module.split(".")[0])
    # A torch for CUDA brings triton, and the engine does without it where there is none.
    foreign = imported - set(sys.stdlib_module_names) - {"unperturbed", "triton"}
    assert {plain_name(IMPORTED_AS.get(name, name)) for name in foreign} <= declared
