"""Words of strangers, made fit to print: names of files and classes may hold anything."""

import difflib
import io
import shlex
from collections.abc import Iterable
from errno import EDQUOT, ENOSPC
from typing import cast

from rich.console import Console
from rich.measure import Measurement, measure_renderables
from rich.table import Table
from rich.text import Text

LONGEST = 300
BETWEEN_COLUMNS = 3
"""columns of text that a border in a table takes, with the blanks beside it"""
MOST_IN_LINE = 10_000
"""columns of text that any line of a table fits into"""


def printable(words: object) -> str:
    """The words in one line, with control characters and other unprintable ones spelled out as in Python."""
    return "".join(letter if letter.isprintable() else spelled(letter) for letter in str(words))


def shortened(words: object, longest: int = LONGEST) -> str:
    """The words as `printable` gives them, with the end left out where they are many."""
    text = str(words)
    return printable(text) if len(text) <= longest else f"{printable(text[:longest])} …"


def quoted(value: object, longest: int = 100) -> str:
    """A value as Python writes it, in one line that is not too long."""
    return shortened(repr(value), longest)


def nearest(word: str, known: Iterable[str]) -> str:
    """The words ', did you mean …?' where a known name is close, in capitals or not, else nothing."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f", did you mean {names[close[0]]!r}?" if close else ""


def nearest_in_list(word: str, known: Iterable[str]) -> str:
    """What `nearest` says of a word in a list with commas; of several with blanks, where the commas go."""
    return f": put commas between several, as {with_commas(word)}" if len(word.split()) > 1 else nearest(word, known)


def with_commas(words: str) -> str:
    """These words with commas between them in place of blanks."""
    return ",".join(words.replace(",", " ").split())


def is_number(value: object) -> bool:
    """Whether it is a number, and none with so many digits that it is more than any float."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1e300)


def counted(count: int, noun: str) -> str:
    """So many of something: 1 run, 2 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def in_shell(path: object) -> str:
    """A path as it is to be written in a command that is shown for copying: quoted, and never taken for an option."""
    word = str(path)
    return printable(shlex.quote(f"./{word}" if word.startswith("-") else word))


def shown(*parts: Table | Text, color: bool, width: int) -> str:
    """Tables and texts as a terminal of that width shows them; in them nothing is markup."""
    console = Console(
        file=io.StringIO(), force_terminal=color, width=width, highlight=False, markup=False, emoji=False
    )
    for part in parts:
        if isinstance(part, Table):
            keep_words_whole(part, width)
        console.print(part)
    return cast(io.StringIO, console.file).getvalue()


def keep_words_whole(table: Table, width: int) -> None:
    """Break lines between words in a table that is wider than that; within words only where they are too long."""
    needs, room = needs_of_columns(table), width - len(table.columns) * BETWEEN_COLUMNS - 1
    if sum(need.maximum for need in needs) <= room:
        return
    widths = [need.minimum for need in needs]
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    spare = max(0, room - sum(widths))
    missing = [need.maximum - width for need, width in zip(needs, widths, strict=True)]
    for place in sorted(range(len(widths)), key=missing.__getitem__):
        more = missing[place] if missing[place] <= spare else 0
        widths[place] += more
        spare -= more
    widths[missing.index(max(missing))] += spare
    for column, given in zip(table.columns, widths, strict=True):
        column.width = given


def columns_for_words(table: Table) -> int:
    """How many columns of text a table needs if no word in it may break."""
    needs = needs_of_columns(table)
    return sum(need.minimum for need in needs) + len(needs) * BETWEEN_COLUMNS + 1


def needs_of_columns(table: Table) -> list[Measurement]:
    """What each column needs if no word, and what it needs if no line in it may break."""
    console = Console(width=MOST_IN_LINE, markup=False, emoji=False)
    return [measure_renderables(console, console.options, [column.header, *column.cells]) for column in table.columns]


def spelled(letter: str) -> str:
    """A character as its escape sequence."""
    return letter.encode("unicode_escape").decode("ascii")


def told_by_the_system(error: OSError) -> str:
    """What the system says of a file or of anything else, in a sentence that says what to do."""
    if error.filename is None and error.errno in (ENOSPC, EDQUOT):
        return f"nothing more could be written ({error.strerror}): make room, and give the same command again"
    if error.filename is None:
        return str(error)
    return f"could not use {error.filename} ({error.strerror}): put that right, and the same command goes on"
