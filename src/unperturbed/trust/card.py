"""The trust card: what was checked before the numbers of an evaluation are believed, and what was found."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from ..files import refused_if_damaged
from ..printing import counted, quoted, shown

Verdict = Literal["pass", "flag", "skipped"]
STYLES: Mapping[Verdict, str] = {"pass": "green", "flag": "bold red", "skipped": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    verdict: Verdict
    figure: str
    """what was measured, in words with numbers; or why nothing was"""
    why: str
    """why it matters"""
    remedy: str
    """what to do where it is flagged"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What all checks found on one classifier."""

    findings: tuple[Finding, ...]
    seed: int
    seconds: float
    """that the checks took"""
    images: int
    """examined, evenly spaced over those that were given"""
    provenance: Mapping[str, str | int]
    around: str = ""
    """the neighborhood whose pixels were searched, with all digits; empty where nobody noted it"""
    spatial: str = ""
    """the warps that were searched, likewise"""
    subject: str = ""
    """that of the report it was made with: a hash of the model, the images and the seed; empty where there is none"""

    @property
    def within(self) -> str:
        """How far the checks looked, in words; empty where nobody noted it."""
        noted = (str(self.provenance.get(name, "None")) for name in ("around", "spatial"))
        return " and ".join(words for words in noted if words != "None")

    def belongs(self, subject: str) -> bool:
        """Whether it may be shown with a report on that subject; cards that do not say theirs may."""
        return self.subject in ("", subject)

    def looked_within(self, around: object, spatial: object) -> bool:
        """Whether it was made in these neighborhoods; older cards know them in words alone, or not at all."""
        if self.around:
            return (self.around, self.spatial) == noted(around, spatial)
        words = {"around": str(around), "spatial": str(spatial)}
        return all(self.provenance.get(name, word) == word for name, word in words.items())

    @property
    def flags(self) -> tuple[Finding, ...]:
        """The findings that are reasons for doubt."""
        return self.of("flag")

    @property
    def passed(self) -> bool:
        """Whether no check raised a flag; a skipped one raises none."""
        return not self.flags

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """The findings with that verdict."""
        return tuple(finding for finding in self.findings if finding.verdict == verdict)

    def __getitem__(self, check: str) -> Finding:
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(f"no check {check!r} on this card, which has {', '.join(f.check for f in self.findings)}")

    def table(self, *, color: bool = False, width: int = 118) -> str:
        """The card for the terminal: a row for each check, and below it what the flags mean."""
        counts = ", ".join(f"{len(self.of(verdict))} {word}" for verdict, word in COUNTED.items())
        table = Table(
            "check",
            "verdict",
            title=f"trust: {counts}; {counted(self.images, 'image')}, {counted(round(self.seconds), 'second')}",
        )
        table.add_column("what was measured", overflow="fold")
        for finding in self.findings:
            table.add_row(finding.check, Text(finding.verdict, STYLES[finding.verdict]), finding.figure)
        advice = (
            Text(f"{finding.check}: ", STYLES["flag"]) + Text(f"{finding.why} {finding.remedy}")
            for finding in self.flags
        )
        return shown(table, *advice, color=color, width=width)

    def plain(self) -> dict[str, Any]:
        """The card in values that JSON can hold."""
        return {
            "passed": self.passed,
            "flags": [finding.check for finding in self.flags],
            "findings": [asdict(finding) for finding in self.findings],
            "images": self.images,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "provenance": dict(self.provenance),
            "around": self.around,
            "spatial": self.spatial,
            "subject": self.subject,
        }


def noted(around: object, spatial: object) -> tuple[str, str]:
    """The neighborhoods of an examination, as a card notes them."""
    return repr(around), "" if spatial is None else repr(spatial)


def loads(text: str, source: str = "the trust card") -> Card:
    """The card that `Card.plain` made, from its JSON text."""
    remedy = "delete it, and make it again with `unperturbed evaluate DIR --trust` where it is wanted"
    with refused_if_damaged(source, "trust card", remedy):
        tree = json.loads(text)
        names = tuple(field.name for field in fields(Finding))
        card = Card(
            findings=tuple(Finding(**{name: finding[name] for name in names}) for finding in tree["findings"]),
            seed=int(tree["seed"]),
            seconds=float(tree["seconds"]),
            images=int(tree["images"]),
            provenance=dict(tree["provenance"]),
            **{name: tree.get(name, "") for name in NOTED},
        )
        if not (0 <= card.seconds < inf and card.images >= 0):
            raise ValueError(f"{card.images} images in {card.seconds:g} seconds cannot be")
        for finding in card.findings:
            if finding.verdict not in COUNTED or not all(isinstance(getattr(finding, name), str) for name in names):
                raise ValueError(f"its finding {quoted(finding.check)} is damaged")
        for name in NOTED:
            if not isinstance(getattr(card, name), str):
                raise ValueError(f"its {name} is damaged")
        return card


NOTED = ("around", "spatial", "subject")
"""what cards of earlier versions do not say"""
COUNTED: Mapping[Verdict, str] = {"flag": "flagged", "pass": "passed", "skipped": "skipped"}
