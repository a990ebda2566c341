"""`unperturbed demo`."""

from dataclasses import dataclass
from pathlib import Path

from ..experiments import demo as demonstration
from .options import parse


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train and attack seven models on embedded digits, in two to three minutes on two cores."""

    out: Path = Path("runs/demo")
    """directory for the runs, their report, a figure and the page"""
    seed: int = 0
    """seed of split, weights, batches and attacks"""


def demo(arguments: list[str]) -> None:
    """Show the paper's claim on real digits."""
    command = parse(Demo, arguments, usage="demo")
    demonstration.run(command.out, command.seed)
