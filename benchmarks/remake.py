"""Everything in results/ and docs/ that is measured on the embedded digits, made again where recipes have changed.

    python benchmarks/remake.py

A file of results holds the recipes that it was measured by. One whose recipes are those of today is kept; where
other code has changed what is measured, say --all. Pictures and tables of README and docs follow their files. What is
told in sentences does not: in the end the tests of these texts name the first in each that tells other numbers. Times
are recorded too, so nothing else should be running; all parts take about an hour on two cores.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import demonstration
import digits
import figures
import passes
import tyro
from measured_by import changes

ROOT = Path(__file__).parent.parent
TESTS = ("tests/test_results.py", "tests/test_figures_page.py")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file of results, and all that is made with it."""

    result: str
    command: str
    """that writes the result, given by --out"""
    recipes: tuple[str, ...]
    """by which it is measured"""
    pictures: tuple[str, ...] = ()
    text: str | None = None
    """where its table stands"""
    table: Callable[[dict[str, Any]], str] = str
    """of what the result holds"""

    def reasons(self) -> list[str]:
        """Why it has to be made again; none if it has not."""
        missing = [f"{name} is missing" for name in (self.result, *self.pictures) if not (ROOT / name).exists()]
        return missing or changes(read(self.result), self.recipes)

    def remake(self) -> None:
        """Run its command with no teacher of earlier runs at hand, and bring its table up to date."""
        before = read(self.result) if (ROOT / self.result).exists() else None
        with TemporaryDirectory() as cache:
            words = [sys.executable, *self.command.split(), "--out", self.result]
            done = subprocess.run(words, cwd=ROOT, env={**os.environ, "UNPERTURBED_CACHE": cache})
        if done.returncode:
            sys.exit(f"{self.command} has failed: mend that and start again, what was made before is kept")
        if self.text is not None and before is not None:
            path = ROOT / self.text
            text = path.read_text(encoding="utf-8").replace(self.table(before), self.table(read(self.result)))
            path.write_text(text, encoding="utf-8")


def read(result: str) -> dict[str, Any]:
    return json.loads((ROOT / result).read_text(encoding="utf-8"))


PARTS = (
    Part(
        result="results/demo-seed-0.json",
        command="benchmarks/demonstration.py --seed 0 --pictures docs",
        recipes=demonstration.RECIPES,
        pictures=tuple(f"docs/{name}" for name in demonstration.PICTURES),
        text="README.md",
        table=demonstration.markdown,
    ),
    *(
        Part(
            result=f"results/demo-seed-{seed}.json",
            command=f"benchmarks/demonstration.py --seed {seed}",
            recipes=demonstration.RECIPES,
        )
        for seed in (1, 2)
    ),
    Part(
        result="results/figures.json",
        command="benchmarks/figures.py --pictures docs/figures",
        recipes=figures.RECIPES,
        pictures=tuple(f"docs/figures/{name}.png" for name in figures.FIGURES),
    ),
    Part(
        result="results/passes.json",
        command="benchmarks/passes.py",
        recipes=passes.RECIPES,
        text="docs/defenses.md",
        table=passes.markdown,
    ),
    *(
        Part(
            result=f"results/digits-{called}-statistics.json",
            command=f"benchmarks/digits.py --only {recipe} --batchnorm {statistics}",
            recipes=digits.measured((recipe,)),
        )
        for called, statistics, recipe in (
            ("own", "own", "spatial-srt-plusplus"),
            ("clean", "estimated", "pixel-srt-plusplus"),
            ("averaged", "averaged", "pixel-srt-plusplus"),
        )
    ),
    Part(
        result="results/digits.json",
        command="benchmarks/digits.py",
        recipes=digits.measured(),
        text="docs/defenses.md",
        table=digits.markdown,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is made again."""

    all: bool = False
    """also what is by the recipes of today"""


def main(options: Options) -> None:
    """Make again what is not by the recipes of today, and have texts compared with it."""
    for part in PARTS:
        reasons = part.reasons() or (["all are"] if options.all else [])
        print("\n  ".join([f"{part.result}: {'made again' if reasons else 'kept'}", *reasons]), flush=True)
        if reasons:
            part.remake()
    if subprocess.run([sys.executable, "-m", "pytest", "--tb=line", *TESTS], cwd=ROOT).returncode:
        sys.exit("texts tell other numbers than results/, or claim what these do not show: see the tests named above")


if __name__ == "__main__":
    main(tyro.cli(Options))
