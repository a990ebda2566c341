"""What becomes of the statements of experiments: each with its verdict and figures, and all of them at a glance."""

import re
from collections.abc import Mapping, Sequence

from .definition import Experiment, Finding
from .editions import Edition, told_of
from .evidence import Evidence
from .layout import aligned
from .measured import Measured
from .statements import NOT_MEASURED

VERDICTS = {"pass": "**pass**", "fail": "**fail**", "undecided": "not decided"}
OPEN = "not yet"
"""of a statement of which nothing is measured"""
NO_RESULT = "not judged by a smoke run"
NAME = re.compile(r"[a-z]\w*(?:-[\w.]*\w)+")
"""what may be the name of a trial"""


def findings(experiment: Experiment, edition: Edition) -> dict[str, Finding]:
    """What becomes of every statement of which an edition measured something, by its words."""
    found = Measured(edition.evidence)
    checked = {statement.words: statement.check(found) for statement in experiment.statements}
    return {words: finding for words, finding in checked.items() if finding.figures != NOT_MEASURED}


def told_by(experiment: Experiment, editions: Sequence[Edition]) -> list[dict[str, Finding]]:
    """What each of these editions has to say that none before it has.

    Runs without WRN-34-10 belong to both editions of a schedule: what rests on them alone is said once. What the
    paper's schedule has decided, a shorter one does not say again.
    """
    told: list[dict[str, Finding]] = []
    said: set[tuple[str, str, Finding]] = set()
    settled: set[str] = set()
    for edition in editions:
        found = findings(experiment, edition)
        told.append(
            {
                words: finding
                for words, finding in found.items()
                if (edition.scale, words, finding) not in said and (edition.scale == "paper" or words not in settled)
            }
        )
        said |= {(edition.scale, words, finding) for words, finding in found.items()}
        if edition.scale == "paper":
            settled |= {words for words, finding in found.items() if finding.verdict != "undecided"}
    return told


def lines_of(experiment: Experiment, found: Mapping[str, Finding], edition: Edition) -> list[str]:
    """Statements as a list: verdict, words and figures. Smoke runs, which are no results, decide none."""
    return [
        f"- {NO_RESULT if edition.scale == 'smoke' else VERDICTS[finding.verdict]}: {words} "
        f"({titled(finding.figures, experiment)})"
        for words, finding in found.items()
    ]


def titled(figures: str, experiment: Experiment) -> str:
    """Figures with trials called as in the tables beside them, where that tells them apart, else by their names."""
    called = {trial.name: trial.called for trial in experiment.trials}
    names = {name for name in NAME.findall(figures) if name in called}
    if len({called[name] for name in names}) < len(names):
        return figures
    return NAME.sub(lambda found: called.get(found[0], found[0]), figures)


def waiting(experiment: Experiment, told: Sequence[Mapping[str, Finding]]) -> list[str]:
    """The statements of which none of these editions measured anything."""
    measured = {words for found in told for words in found}
    return [statement.words for statement in experiment.statements if statement.words not in measured]


def at_a_glance(experiments: Sequence[Experiment], evidence: Sequence[Evidence]) -> str:
    """A line for each experiment, which leads to it: how many of its statements pass, fail, or wait."""
    counted = {experiment: counts(experiment, evidence) for experiment in experiments}
    rows = [
        [f"[{experiment.name}](#{anchor(experiment.heading)}): {experiment.title}", *map(str, numbers)]
        for experiment, numbers in counted.items()
    ]
    total = ["together", *(str(sum(numbers)) for numbers in zip(*counted.values(), strict=True))]
    return aligned(["experiment", "pass", "fail", "not decided", OPEN], [*rows, total])


def counts(experiment: Experiment, evidence: Sequence[Evidence]) -> list[int]:
    """How many of its statements pass, fail, are measured but not decided, and are not measured."""
    editions = told_of(experiment, evidence)
    told = told_by(experiment, editions or [Edition("paper", "own", ())])
    verdicts = [verdict_on(statement.words, told) for statement in experiment.statements]
    return [verdicts.count(verdict) for verdict in ("pass", "fail", "undecided", OPEN)]


def verdict_on(words: str, told: Sequence[Mapping[str, Finding]]) -> str:
    """The first verdict on a statement that decides it; where none does, that it is not decided or not measured."""
    found = [each[words].verdict for each in told if words in each]
    return min(found, key=lambda verdict: verdict == "undecided", default=OPEN)


def anchor(heading: str) -> str:
    """What a heading in Markdown is linked by."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
