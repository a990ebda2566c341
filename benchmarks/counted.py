"""How accuracy under FGSM and PGD is counted: ours and the paper's, from the evidence of our runs.

    python benchmarks/counted.py

Ours counts images that are answered rightly before an attack and after it. An image that is wrong from the start is
attacked too, away from the wrong answer, and may end at its label: an attack that is given no labels, and takes what
the network says in their place, does just that, and whoever counts right answers afterwards counts it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from unperturbed.experiments.evidence import Evidence, read_all
from unperturbed.recipes.published import printed

EVIDENCE = Path(__file__).parents[1] / "results" / "reproduce"
ATTACKS = ("fgsm", "pgd")
GROWING = "-ramped-one-pass"


@dataclass(frozen=True, slots=True)
class Row:
    """A defense, where the paper has it, and our run of it."""

    words: str
    place: str
    printed_as: str
    run: str


LAMBDAS = ("0.2", "0.4", "0.6", "0.8")
ROWS: Mapping[str, tuple[Row, ...]] = {
    "CIFAR-10": (
        *(
            Row(words, "Table 4", f"cifar10-pixel-{name}", f"cifar10-pixel-{name}{ending}-resnet18")
            for words, name, ending in (
                ("Standard", "standard", ""),
                ("AT", "at", ""),
                ("TRADES", "trades", ""),
                ("RST", "rst", ""),
                ("SRT, lambda that grows", "srt", GROWING),
            )
        ),
        *(
            Row(
                f"RT, lambda that grows to {weight}",
                "Table 2",
                f"cifar10-pixel-rt-lambda-{weight}",
                f"cifar10-pixel-rt-lambda-{weight}{GROWING}-resnet18",
            )
            for weight in LAMBDAS
        ),
        Row("fast SRT, WRN-34-10", "Table 9", "cifar10-pixel-srt-fast", "cifar10-pixel-srt-fast"),
    ),
    "MNIST": tuple(
        Row(words, "Table 4", f"mnist-pixel-{name}", f"mnist-pixel-{name}{ending}")
        for words, name, ending in (
            ("Standard", "standard", ""),
            ("AT", "at", ""),
            ("TRADES", "trades", ""),
            ("UAT, authors' rate", "uat", "-authors"),
            ("RST", "rst", ""),
            ("SRT, authors' rate", "srt", "-authors"),
        )
    ),
}


def both_counts(run: Evidence, attack: str) -> list[float]:
    """Accuracy in percent: of images that stand, and of all that end at their label."""
    report = run.report
    (after,) = [each.predicted for each in report.attacks if each.name == attack]
    right = after == report.labels
    return [100 * each.double().mean().item() for each in (right & (report.clean == report.labels), right)]


def figures() -> dict[str, list[tuple[str, list[float]]]]:
    """By data set and row: for each attack what the paper prints, what stands here and what ends at its label."""
    runs = {each.file_name: each for each in read_all(EVIDENCE) if each.scale == "paper"}

    def numbers(row: Row) -> list[float]:
        run, theirs = runs[f"{row.run}-seed-0.json"], printed(row.place, row.printed_as)
        return [number for attack in ATTACKS for number in (theirs[attack], *both_counts(run, attack))]

    return {data: [(row.words, numbers(row)) for row in rows] for data, rows in ROWS.items()}


def distances(found: list[tuple[str, list[float]]]) -> list[float]:
    """By attack how far ours are from the paper's on average, counted in either way."""
    ways = ((0, 1), (0, 2), (3, 4), (3, 5))
    return [fmean(abs(numbers[ours] - numbers[theirs]) for _, numbers in found) for theirs, ours in ways]


def markdown(found: dict[str, list[tuple[str, list[float]]]]) -> str:
    """The table of docs/fidelity.md."""
    lines = [
        "| data | defense | FGSM, paper | stand | end at their label | PGD, paper | stand | end at their label |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for data, rows in found.items():
        for words, numbers in rows:
            lines.append(f"| {data} | {words} | {' | '.join(f'{each:.2f}' for each in numbers)} |")
        fgsm, fgsm_ends, pgd, pgd_ends = (f"{each:.2f}" for each in distances(rows))
        lines.append(f"| {data} | distance from the paper, mean | | {fgsm} | {fgsm_ends} | | {pgd} | {pgd_ends} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(figures()))
