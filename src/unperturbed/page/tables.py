"""The tables of a page."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import recipe as recipes
from ..datasets import Dataset
from ..guards import steps_taken
from ..printing import counted
from ..trust.card import COUNTED, Card
from .again import commands, examining
from .content import Accuracy, Column, Row, training_seconds
from .evaluated import EvaluatedRun, Group
from .markup import NOTHING, cell, column_head, hidden, row_head, table, text

MANY_IMAGES = 2000
"""from which on a second decimal of a percentage says something"""


def training_table(group: Group) -> str:
    """What was trained, and how."""
    facts: Mapping[str, tuple[Callable[[EvaluatedRun], object], str]] = {
        "recipe": (lambda run: run.recipe.name, ""),
        "objective": (objective_words, ""),
        "labels": (lambda run: "all" if run.recipe.data.labeled is None else run.recipe.data.labeled, "number"),
        "unlabeled": (unlabeled_words, "number"),
        "network": (lambda run: type(run.recipe.model).__name__, ""),
        "steps": (lambda run: steps_taken(run.log, run.recipe.steps), "number"),
        "batch": (lambda run: run.recipe.batch, "number"),
        "seed": (lambda run: run.recipe.seed, "number"),
        "training": (time_of_training, "number"),
        "evaluated on": (lambda run: run.report.provenance.get("device", "not known"), ""),
    }
    head = [column_head("run"), *(column_head(word, kind=kind) for word, (_, kind) in facts.items())]
    rows = [(row_head(run.title), *(cell(fact(run), kind) for fact, kind in facts.values())) for run in group.runs]
    caption = "What was trained, on what, for how long, and where it was attacked."
    return table(caption, head, rows, name="What was trained", kind="facts")


def time_of_training(run: EvaluatedRun) -> str:
    """How long its steps took, where its log is there."""
    return duration(training_seconds(run)) if any("seconds" in line for line in run.log) else "not known"


def unlabeled_words(run: EvaluatedRun) -> str:
    """How many images of the data set have no label, and whether there are more in files."""
    data = run.recipe.data
    own = "all others" if data.unlabeled is None else str(data.unlabeled)
    return f"{own}, and those in files" if data.unlabeled_files else own


def objective_words(run: EvaluatedRun) -> str:
    """The objective in a few words: its name, its lambda and its solver."""
    objective = run.recipe.objective
    weight, solver = getattr(objective, "weight", None), getattr(objective, "solver", None)
    name = type(objective).__name__
    if name == "SRT" and run.recipe.data.unlabeled == 0 and not run.recipe.data.unlabeled_files:
        name = "RT"
    parts = [name] if weight is None else [name, f"λ {weight:g}"]
    return ", ".join(parts if solver is None else [*parts, type(solver).__name__])


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def recipe_details(run: EvaluatedRun) -> str:
    """The complete recipe and the versions, folded up."""
    provenance = ", ".join(f"{name} {value}" for name, value in run.report.provenance.items())
    tree = json.dumps(recipes.plain(run.recipe), indent=2, ensure_ascii=False)
    lines = "\n".join(text(line) for line in tree.splitlines())
    return (
        f"<details><summary>Recipe and versions of {text(run.title)}</summary>"
        f"<p>{text(provenance)}; attacked with seed {run.report.seed}.</p>"
        f'<pre tabindex="0" aria-label="Recipe of {text(run.title)}">{lines}</pre></details>'
    )


def results_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Clean and attacked accuracy of every run, with intervals, the best marked, the paper's number below ours."""
    worst = any(row.worst is not None for row in rows)
    head = [column_head("run", "test images"), column_head("clean", "no attack")]
    head += [column_head(column.title, told_of(column, columns)) for column in columns]
    head += [column_head("worst case", "of all attacks, image by image")] if worst else []
    body = [
        [
            f'<th scope="row">{text(row.title)}<small>{counted(row.images, "image")}</small></th>',
            *(accuracy_cell(found, row.images) for found in (row.clean, *row.attacked)),
            *([accuracy_cell(row.worst, row.images)] if worst else []),
        ]
        for row in rows
    ]
    compared = any(found is not None and found.paper for row in rows for found in (row.clean, *row.attacked))
    caption = "Accuracy in percent with its 95 % interval (Wilson)."
    apart = len({row.images for row in rows}) > 1
    caption += " Runs on different test images are not compared." if apart else ""
    best = "the best of a column among runs on the same images" if apart else "the best of a column"
    caption += f" ★ marks {best}." if any(row.clean.best for row in rows) else ""
    unmet = any(found is None for row in rows for found in row.attacked)
    caption += " – stands where a run did not meet an attack: evaluate it by that one too." if unmet else ""
    caption += " Below some: what the paper reports for the same experiment." if compared else ""
    return table(caption, head, body, name="Accuracy under attack", kind="results")


def told_of(column: Column, columns: Sequence[Column]) -> str:
    """The budget of an attack, with what it differs by where another of the same name has the same budget."""
    alike = [each for each in columns if (each.title, each.budget) == (column.title, column.budget)]
    return column.budget if len(alike) == 1 else f"{column.budget}; {column.label.removeprefix(f'{column.title}, ')}"


def accuracy_cell(found: Accuracy | None, images: int) -> str:
    """An accuracy, its interval, and what the paper has."""
    if found is None:
        return NOTHING
    digits = 2 if images >= MANY_IMAGES else 1
    star = f'<span class="star" aria-hidden="true">★</span>{hidden("best")}' if found.best else ""
    interval = f"<small>{100 * found.low:.{digits}f} – {100 * found.high:.{digits}f}</small>"
    paper = ""
    if found.paper is not None:
        paper = f'<small class="paper" title="{text(found.paper[1])}">paper {found.paper[0]:.2f}</small>'
    kind = "number best" if found.best else "number"
    return f'<td class="{kind}"><strong>{100 * found.share:.{digits}f}</strong>{star}{interval}{paper}</td>'


def attacks_table(columns: Sequence[Column]) -> str:
    """The settings of every attack, folded up."""
    rows = [
        (row_head(column.title), cell(told_of(column, columns)), f"<td><code>{text(column.settings)}</code></td>")
        for column in columns
    ]
    head = [column_head(word) for word in ("attack", "budget", "settings")]
    inside = table("Attacks with all of their settings.", head, rows, name="Settings of the attacks", kind="facts")
    return f"<details><summary>Settings of the attacks</summary>{inside}</details>"


def risks_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """R_stand, R_rob and R_adv of every run under every attack, and what Lemma 1 counts twice."""
    names = ("run", "attack", "R_stand", "R_rob", "R_adv", "R_stand + R_rob", "both at once")
    body = [
        (
            row_head(row.title),
            cell(column.label),
            *(cell(f"{value:.4f}", "number") for value in (row.standard_risk, found.robust, found.adversarial)),
            cell(f"{row.standard_risk + found.robust:.4f}", "number"),
            cell(f"{found.standard_and_robust:.4f}", "number"),
        )
        for row in rows
        for column, found in zip(columns, row.risks, strict=True)
        if found is not None
    ]
    caption = "Standard, robust and adversarial risk, averaged over the test images."
    return table(caption, [column_head(word) for word in names], body, name="Risks", kind="risks")


def surfaces_table(titles: Sequence[str], surfaces: Mapping[str, Any]) -> str:
    """How much of each surface is classified correctly, for all runs."""
    scenarios: Mapping[str, Any] = surfaces["scenarios"]
    head = [column_head("run"), *(column_head(name, "right on, and least D") for name in scenarios)]
    body = [
        [
            row_head(title),
            *(surface_cell(found["correct"][place], found["least"][place]) for found in scenarios.values()),
        ]
        for place, title in enumerate(titles)
    ]
    caption = "The share of each surface on which the model is right, and D where it is least."
    return table(caption, head, body, name="Surfaces in numbers", kind="results")


def surface_cell(share: float, least: float) -> str:
    """What one surface comes to."""
    return f'<td class="number">{100 * share:.1f} %<small>{least:.2f}</small></td>'


def trust_section(run: EvaluatedRun, dataset: Dataset) -> str:
    """The trust card of a run, or how to make it."""
    if run.card is None:
        return (
            f"<p><strong>{text(run.title)}</strong>: not examined. <code>{text(examining(run, dataset))}</code> "
            "looks for reasons not to believe its numbers.</p>"
        )
    return card_table(run.title, run.card)


def card_table(title: str, card: Card) -> str:
    """A trust card as a table, flags first, with advice where there is a flag."""
    counts = ", ".join(f"{len(card.of(verdict))} {word}" for verdict, word in COUNTED.items())
    findings = [finding for verdict in COUNTED for finding in card.of(verdict)]
    body = [
        (
            row_head(finding.check.replace("_", " ")),
            f'<td class="{finding.verdict}">{COUNTED[finding.verdict]}</td>',
            cell(finding.figure),
            cell(f"{finding.why} {finding.remedy}" if finding.verdict == "flag" else ""),
        )
        for finding in findings
    ]
    head = [column_head(word) for word in ("check", "verdict", "what was measured", "why it matters, and what to do")]
    within = f", within {text(card.within)}" if card.within else ""
    facts = f"{counted(card.images, 'image')}{within}, {duration(card.seconds)}, seed {card.seed}"
    caption = f"{text(title)}: {counts}; {facts}."
    return table(caption, head, body, name=f"Trust card of {title}", kind="facts trust")


def again_section(run: EvaluatedRun, dataset: Dataset) -> str:
    """The commands that make a run again."""
    return "".join(f"<code>{text(line)}</code>\n" for line in commands(run, dataset))
