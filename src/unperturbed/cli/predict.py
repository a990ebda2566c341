"""`unperturbed predict`."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from ..evaluation import evaluate
from ..finished import Finished, load
from ..gathering import told_at_once
from ..pictures import pictures_in, read_pictures
from ..printing import columns_for_words, printable, shown
from ..progress import watching
from ..recipes import usual_budget
from ..recipes.budgets import Budget, chosen
from ..recipes.inferred import idle_options
from ..report import Report
from ..risks import NO_CLASS
from ..runs import RunDirectory
from ..runtime import pick_device
from .options import leading_words, parse_with_budget, refuse_options
from .saying import columns, say

STANDS = "stands"
NO_ANSWER = "NaN"
MOST_COLUMNS = 6
"""attacks up to which each has a column if no word breaks; else those under which an answer falls share one"""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Ask the finished model of a run about pictures: `unperturbed predict DIR PICTURE [PICTURE …]`.

    A picture may be a file, or a folder of them; its middle is cut to the shape of the training images. With
    --attacks it is also asked whether the answer stands, C(x') = C(x), which needs no label.
    """

    attacks: str = ""
    """names separated by commas, or of sets: quick, paper, pixel, spatial, compound, appearance, trust, all; none if
    not given"""
    budget: Budget = field(default_factory=Budget)
    """how far the attacks may go; what is not given is as usual on the data set of DIR"""
    seed: int = 0
    """seed of the attacks"""
    data: Path | None = None
    """folder with the data set's files, for weights that do not say what they take"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""
    json: bool = False
    """print the answers as JSON"""


def predict(arguments: list[str]) -> None:
    """Ask the finished model of a run about pictures."""
    needed = "predict needs the directory of a run and a picture first: unperturbed predict DIR PICTURE [PICTURE …]"
    words, rest = leading_words(arguments, needed)
    name = RunDirectory(Path(words[0])).read_recipe().data.name if words else ""
    command = parse_with_budget(
        Predict, rest, default=Predict(budget=usual_budget(name)), usage="predict DIR PICTURE [PICTURE …]"
    )
    if len(words) < 2:
        raise ValueError(needed)
    if not command.attacks:
        refuse_options(rest, "no attack is asked for: add --attacks quick", "--budget.", "--seed")
    attacks = chosen(command.budget.attacks(), command.attacks) if command.attacks else {}
    for option in idle_options(command.budget, usual_budget(name), attacks):
        say(f"{option} changes none of {', '.join(attacks)}: name other attacks")
    found = {word: pictures_in(Path(word)) for word in words[1:]}
    if empty := [word for word, pictures in found.items() if not pictures]:
        raise ValueError(f"{printable(Path(empty[0]))} holds no picture: name a picture, or a folder of pictures")
    paths = [path for word in words[1:] for path in found[word]]
    device = pick_device(command.device)
    finished = load(words[0], folder=command.data)
    finished.model.to(device)
    with told_at_once(paths):
        images = read_pictures(paths, finished.shape)
    sure, answers = finished.probabilities(images).max(1)
    if not sure.isfinite().all():
        first = printable(paths[int(sure.isfinite().logical_not().nonzero()[0])])
        raise ValueError(f"the model answers {first} with NaN: look for what makes it, or train it again")
    report = None
    if attacks:
        with watching() as watcher:
            watcher.title = finished.recipe.name
            report = evaluate(
                finished.model, images, answers, attacks, seed=command.seed, device=command.device, watcher=watcher
            )
    rows = answered(finished, paths, answers, sure, report)
    print(json.dumps(rows) if command.json else as_text(rows, report, columns()))


def answered(
    finished: Finished, paths: list[Path], answers: torch.Tensor, sure: torch.Tensor, report: Report | None
) -> list[dict[str, Any]]:
    """For each picture what the model says, how sure it is, and what it says under each attack."""
    return [
        {
            "picture": str(path),
            "answer": finished.classes[answer],
            "probability": round(probability, 6),
            "under": {
                result.name: {
                    "answer": finished.classes[said] if said != NO_CLASS else None,
                    "stands": said == answer,
                }
                for result in (() if report is None else report.attacks)
                for said in [int(result.predicted[place])]
            },
        }
        for place, (path, answer, probability) in enumerate(zip(paths, answers.tolist(), sure.tolist(), strict=True))
    ]


def as_text(rows: list[dict[str, Any]], report: Report | None, width: int = 118) -> str:
    """A line for each picture, and how many answers stand."""
    attacks = [] if report is None else report.attacks
    table = table_of(rows, [f"under {result.name}" for result in attacks], one_by_one)
    if len(attacks) > MOST_COLUMNS or (attacks and columns_for_words(table) > width):
        table = table_of(rows, ["stands under", "else says"], summed_up)
    lines = [
        f"answers that stand under {result.name} ({result.budget}): {standing} of {len(rows)}"
        for result in attacks
        for standing in [sum(row["under"][result.name]["stands"] for row in rows)]
    ]
    return "\n".join([shown(table, color=sys.stdout.isatty(), width=width).rstrip("\n"), *lines])


def table_of(rows: list[dict[str, Any]], headings: list[str], under: Callable[[Row], Iterable[str]]) -> Table:
    """A line for each picture, with what becomes of the answer under those headings."""
    table = Table()
    for name in ("picture", "answer"):
        table.add_column(name, overflow="fold")
    table.add_column("sure", justify="right", no_wrap=True)
    for name in headings:
        table.add_column(name, overflow="fold")
    for row in rows:
        cells = (row["picture"], row["answer"], f"{row['probability']:.1%}", *under(row))
        table.add_row(*map(printable, cells))
    return table


def class_said(found: Row) -> str:
    """The class that is said under an attack, in quotes where its name would be taken for a word of the table."""
    name = found["answer"]
    return NO_ANSWER if name is None else f"'{name}'" if name in (STANDS, NO_ANSWER) else name


def one_by_one(row: Row) -> list[str]:
    """Under each attack what the model says, where the answer does not stand."""
    return [STANDS if found["stands"] else class_said(found) for found in row["under"].values()]


def summed_up(row: Row) -> tuple[str, str]:
    """Under how many attacks the answer to a picture stands, and what else is said under which."""
    fallen: dict[str, list[str]] = {}
    for name, found in row["under"].items():
        if not found["stands"]:
            fallen.setdefault(class_said(found), []).append(name)
    count = len(row["under"])
    standing = count - sum(map(len, fallen.values()))
    return f"{standing} of {count}", "; ".join(f"{answer}: {', '.join(names)}" for answer, names in fallen.items())
