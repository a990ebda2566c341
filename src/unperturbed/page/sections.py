"""The sections of a page: headings, prose, tables and the places where charts are drawn."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..curves import Panel
from ..printing import counted, in_shell
from .content import Accuracy, Column, Row, columns_of, confusions_of, curves_of, rounded, rows_of
from .evaluated import Group
from .markup import chooser, text
from .pictures import IN_A_ROW, Pictures
from .tables import (
    again_section,
    attacks_table,
    recipe_details,
    results_table,
    risks_table,
    surfaces_table,
    training_table,
    trust_section,
)

HEADINGS = {
    "results": "Results",
    "risks": "Risks",
    "training": "Training",
    "gallery": "Gallery",
    "classes": "Classes",
    "surfaces": "Surfaces",
    "trust": "Trust",
    "again": "Make it again",
}
OUTCOMES = (
    ("", "all"),
    ("fooled", "fooled: right before, wrong after"),
    ("stood", "stood: right before and after"),
    ("wrong", "wrong before any attack"),
)
SCENARIOS = (("spatial", "spatial: rotation and translation"), ("pixel", "pixel-wise: two directions"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """All that a page shows of one data set."""

    group: Group
    pictures: Pictures | None
    surfaces: dict[str, Any] | None
    """as `landscapes.surfaces_of` gives them"""

    def data(self) -> dict[str, Any]:
        """What the charts, the gallery and the tables one can choose are drawn from."""
        rows, columns = rows_of(self.group), columns_of(self.group)
        return {
            "runs": [row.title for row in rows],
            "lines": lines_of(rows),
            "classes": [str(name) for name in self.group.dataset.classes],
            "columns": [{"name": column.label, "budget": column.budget} for column in columns],
            "accuracies": [[triple(found) for found in (row.clean, *row.attacked)] for row in rows],
            "confusions": confusions_of(self.group),
            "curves": [curve_data(panel) for panel in curves_of(self.group)],
            "gallery": None if self.pictures is None else gallery_data(self.pictures),
            "surfaces": self.surfaces,
        }


def lines_of(rows: Sequence[Row]) -> list[str]:
    """What the lines of the chart of accuracies are called: with their images where these differ."""
    apart = len({row.images for row in rows}) > 1
    return [f"{row.title}, {counted(row.images, 'image')}" if apart else row.title for row in rows]


def curve_data(panel: Panel) -> dict[str, Any]:
    """A panel of training curves, its numbers with the digits that one sees."""
    lines = [
        {"run": line.label, "x": list(line.x), "y": [rounded(value) for value in line.y]} for line in panel.lines
    ]
    return {"title": panel.title, "measured": panel.y_label, "lines": lines}


def triple(found: Accuracy | None) -> list[float] | None:
    """An accuracy and its interval."""
    return None if found is None else [round(value, 5) for value in (found.share, found.low, found.high)]


def gallery_data(pictures: Pictures) -> dict[str, Any]:
    """The pictures, with how much a change is amplified: the largest of an attack fills half of the scale."""
    largest: dict[str, float] = {}
    for each in pictures.attacked:
        largest[each.attack] = max(largest.get(each.attack, 0.0), each.largest)
    amplified = {name: max(1, round(0.5 / change)) if change > 0 else 1 for name, change in largest.items()}
    return asdict(pictures) | {"columns": IN_A_ROW, "amplified": amplified}


def chapter_markup(chapter: Chapter, number: int, *, alone: bool) -> str:
    """The sections of one data set; with several of them, under a heading of its own."""
    group = chapter.group
    rows, columns = rows_of(group), columns_of(group)
    inside = {
        "results": results(rows, columns, number),
        "risks": risks(rows, columns),
        "training": training(group, number),
        "gallery": gallery(chapter, number),
        "classes": classes(group, columns, number),
        "surfaces": surfaces(chapter, number),
        "trust": f"<p>{TRUST}</p>" + "".join(trust_section(run, group.dataset) for run in group.runs),
        "again": again(group),
    }
    level = 2 if alone else 3
    above = "" if alone else f'<h2 id="data-{number}">{text(group.title)}</h2>'
    return (
        f'<div class="chapter" data-chapter="{number}">{above}'
        + "".join(
            f'<section id="{key}-{number}" aria-labelledby="{key}-{number}-title">'
            f'<h{level} id="{key}-{number}-title">{HEADINGS[key]}</h{level}>{content}</section>'
            for key, content in inside.items()
        )
        + "</div>"
    )


def chart(name: str, number: int, alternative: str) -> str:
    """A place where a chart is drawn, with the words that stand for it."""
    return f'<div class="chart" id="{name}-{number}" role="img" aria-label="{text(alternative)}"></div>'


def results(rows: Sequence[Row], columns: Sequence[Column], number: int) -> str:
    """The table, what it says in a few sentences, and its chart."""
    said = "".join(f"<li>{sentence}</li>" for sentence in findings(rows, columns))
    drawn = chart(
        "accuracy-chart", number, "Accuracy of each run, clean and under each attack, as in the table above."
    )
    return f'<ul class="findings">{said}</ul>{results_table(rows, columns)}{drawn}{attacks_table(columns)}'


def findings(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """For each column its best run, with the numbers; runs on different images are not compared."""
    named = [("Without an attack", [row.clean for row in rows])]
    named += [(f"Under {text(column.label)}", [row.attacked[i] for row in rows]) for i, column in enumerate(columns)]
    sentences: list[str] = []
    for words, column in named:
        known = [(row, cell) for row, cell in zip(rows, column, strict=True) if cell is not None]
        for images in dict.fromkeys(row.images for row, _ in known):
            found = [(row, cell) for row, cell in known if row.images == images]
            cell = max((cell for _, cell in found), key=lambda each: each.share)
            best = [f"<strong>{text(row.title)}</strong>" for row, other in found if other.share == cell.share]
            most = "" if len(found) == 1 else f", the most of {len(found)} runs"
            sentences.append(
                f"{words}, {' and '.join(best)} {'is' if len(best) == 1 else 'are'} right on "
                f"{100 * cell.share:.1f} % of {counted(images, 'image')} "
                f"({100 * cell.low:.1f} – {100 * cell.high:.1f}){most}."
            )
    return sentences


RISKS = (
    "<p>R<sub>stand</sub> asks whether C(x) = y; R<sub>rob</sub> whether the attack changes C(x), right or wrong; "
    "and R<sub>adv</sub> whether an image is wrong before or after the attack. Lemma 1 of the paper ties them "
    "together, image by image:</p>"
    '<p class="formula">R<sub>adv</sub>(x) = R<sub>stand</sub>(x) + (1 − R<sub>stand</sub>(x)) R<sub>rob</sub>(x)</p>'
    "<p>It is checked on every image whenever a report is read, and holds on all of these. On average "
    "R<sub>adv</sub> = R<sub>stand</sub> + R<sub>rob</sub> less the share of images that are both wrong and changed, "
    "the last column.</p>"
)
TRUST = (
    "The trust card looks for reasons not to believe these numbers: masked gradients, attacks that have not "
    "converged, black-box attacks that do better. A flag is a reason for doubt, with advice on what to do about it."
)


def risks(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """The three risks and the lemma."""
    return RISKS + risks_table(rows, columns)


def training(group: Group, number: int) -> str:
    """What was trained and how, and the training curves."""
    curves = curves_of(group)
    known = [(place, panel.title) for place, panel in enumerate(curves)]
    choose = f'<div class="choices">{chooser(f"curve-{number}", "Curve", known)}</div>' if known else ""
    drawn = chart("curve-chart", number, "The chosen quantity over the steps of training, a line for each run.")
    shown = choose + drawn if known else "<p>These runs hold no log, so there are no curves.</p>"
    return training_table(group) + shown + "".join(recipe_details(run) for run in group.runs)


def gallery(chapter: Chapter, number: int) -> str:
    """The filters of the gallery, and the place of its pictures."""
    pictures = chapter.pictures
    if pictures is None or not pictures.attacked:
        reasons = [] if pictures is None else pictures.missing
        none = (
            "No pictures were asked for."
            if pictures is None
            else "These runs did not meet the attacks of the gallery."
        )
        return "".join(f"<p>{text(reason)}</p>" for reason in reasons or [none])
    names = chapter.group.dataset.classes
    attacks = list(dict.fromkeys(each.attack for each in pictures.attacked))
    runs = [("", "all"), *((place, run.title) for place, run in enumerate(chapter.group.runs))]
    labels = [("", "all"), *((label, str(names[label])) for label in sorted(set(pictures.labels)))]
    choices = (
        chooser(f"gallery-attack-{number}", "Attack", [(label, label) for label in attacks]),
        chooser(f"gallery-class-{number}", "Class", labels),
        chooser(f"gallery-run-{number}", "Model", runs),
        chooser(f"gallery-outcome-{number}", "Outcome", OUTCOMES),
    )
    notes = "".join(f'<p class="note">{text(reason)}</p>' for reason in pictures.missing)
    return (
        f"<p>{counted(len(pictures.places), 'test image')}, as many of each class as nearly possible, attacked anew "
        "for these pictures; random attacks draw other numbers than for the table. Beside each attacked image is its "
        f"change, amplified: gray is no change.</p>{notes}"
        f'<div class="choices">{"".join(choices)}</div>'
        f'<p class="count" id="gallery-count-{number}" role="status"></p>'
        f'<ul class="gallery" id="gallery-list-{number}"></ul>'
        f'<button type="button" class="more" id="gallery-more-{number}">Show more</button>'
        "<noscript><p>The gallery needs JavaScript.</p></noscript>"
    )


def classes(group: Group, columns: Sequence[Column], number: int) -> str:
    """Accuracy of each class, and which classes are taken for which."""
    under = [("0", "no attack"), *((str(place + 1), column.label) for place, column in enumerate(columns))]
    runs = [(place, run.title) for place, run in enumerate(group.runs)]
    return (
        f'<div class="choices">{chooser(f"class-attack-{number}", "Under", under)}'
        f"{chooser(f'class-run-{number}', 'Confusions of', runs)}</div>"
        f"{frame(f'class-table-{number}', 'Accuracy of each class')}"
        f"{frame(f'confusion-table-{number}', 'Confusions')}"
        "<noscript><p>These tables need JavaScript.</p></noscript>"
    )


def frame(name: str, label: str) -> str:
    """A place for a table that may be wide."""
    return f'<div id="{name}" class="scroll" role="region" tabindex="0" aria-label="{label}"></div>'


def surfaces(chapter: Chapter, number: int) -> str:
    """Two surfaces to turn and compare, with their contours."""
    if chapter.surfaces is None:
        return "<p>No surfaces were asked for.</p>"
    runs = [(place, run.title) for place, run in enumerate(chapter.group.runs)]
    label = chapter.group.dataset.classes[chapter.surfaces["label"]]
    sides = "".join(
        f'<div class="side"><p class="side-title" id="surface-title-{side}-{number}"></p>'
        f"{chart(f'surface-{side}', number, 'Surface')}{chart(f'contour-{side}', number, 'Contour')}"
        f'<p class="note" id="surface-words-{side}-{number}"></p></div>'
        for side in ("left", "right")
    )
    return (
        f"<p>D(x′) = p<sub>y</sub> − max<sub>i≠y</sub> p<sub>i</sub> around test image {chapter.surfaces['place']}, "
        f"whose class is {text(label)}: red where the model is right, blue where it is wrong. Drag a surface to turn "
        "it, or use the buttons; below it is the same seen from above.</p>"
        f'<div class="choices">{chooser(f"surface-scenario-{number}", "Perturbation", SCENARIOS)}'
        f"{chooser(f'surface-run-left-{number}', 'Left', runs)}"
        f"{chooser(f'surface-run-right-{number}', 'Right', runs)}"
        f'<span class="turns"><button type="button" id="turn-left-{number}">⟲ Turn left</button>'
        f'<button type="button" id="turn-right-{number}">⟳ Turn right</button></span></div>'
        f'<div class="sides">{sides}</div>{surfaces_table([title for _, title in runs], chapter.surfaces)}'
        "<noscript><p>Surfaces need JavaScript.</p></noscript>"
    )


def again(group: Group) -> str:
    """The commands behind every number of a chapter."""
    lines = "".join(again_section(run, group.dataset) for run in group.runs)
    return f'<pre tabindex="0" aria-label="Commands" class="commands">{lines}</pre>'


def page_command(directories: Sequence[Path], options: Sequence[str], out: Path) -> str:
    """The command that makes the page itself."""
    words = [*map(in_shell, directories), *map(shlex.quote, options), "--out", in_shell(out)]
    return " ".join(["unperturbed report", *words])
