"""How AT+ stands beside AT (max) on CIFAR-10 at each perturbation fraction, from the evidence of our runs.

    python benchmarks/at_plus.py

An answer that an attack changes counts here whether it was right or not, as the robust risk has it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from unperturbed.experiments.definition import Cell
from unperturbed.experiments.evidence import Evidence, read
from unperturbed.experiments.figure_compound import BOTH, FRACTIONS
from unperturbed.experiments.measured import Measured
from unperturbed.recipes.words import ATTACKS

EVIDENCE = Path(__file__).parents[1] / "results" / "reproduce" / "paper"
PLUS, STRONGEST = "cifar10-compound-at", "cifar10-compound-at-max"


class Row(NamedTuple):
    """One attack at one fraction."""

    attack: str
    fraction: float
    lead: float
    """points by which AT+ is above AT (max)"""
    error: float
    changed: tuple[float, float]
    """the percentage of answers that the attack changes, of AT+ and of AT (max)"""


def changed(run: Evidence, attack: str, fraction: float) -> float:
    """R_rob of a run in percent."""
    report = run.report if fraction == 1 or run.sweep is None else run.sweep.reports[fraction]
    return 100 * report.risks_by_image(report[attack])[1].double().mean().item()


def rows() -> Iterator[Row]:
    """Clean first, then each attack from the smallest fraction to the largest."""
    runs = [read(EVIDENCE / f"{name}-seed-0.json") for name in (PLUS, STRONGEST)]
    found = Measured(runs)
    cells = [("clean", 1.0), *((attack, fraction) for attack in BOTH for fraction in FRACTIONS)]
    for attack, fraction in cells:
        lead = found.difference(Cell(PLUS, attack, fraction), Cell(STRONGEST, attack, fraction))
        if lead is None:
            raise ValueError(f"{attack} at {fraction:g} is not in the evidence of both")
        ours, theirs = (0.0 if attack == "clean" else changed(run, attack, fraction) for run in runs)
        yield Row(attack, fraction, lead.points, lead.error, (ours, theirs))


def markdown(found: list[Row]) -> str:
    """The table of docs/fidelity.md."""
    lines = [
        "| attack | fraction | AT+ less AT (max), accuracy | answers changed, AT+ | answers changed, AT (max) |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found:
        clean = row.attack == "clean"
        shares = ("–", "–") if clean else (f"{share:.2f}" for share in row.changed)
        name, fraction = ("clean", "–") if clean else (ATTACKS[row.attack], f"{row.fraction:g}")
        lines.append(f"| {name} | {fraction} | {row.lead:+.2f} ± {row.error:.2f} | {' | '.join(shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(list(rows())))
