"""HTML from words and numbers; words of strangers become text, whatever they hold."""

import html
import json
from collections.abc import Iterable, Sequence

from ..printing import printable

NOTHING = '<td class="none">–</td>'


def text(words: object) -> str:
    """Words as text of a page or the value of an attribute: control characters spelled out, markup made harmless."""
    return html.escape(printable(words), quote=True)


def script_data(values: object) -> str:
    """Values as JSON that may stand within a script element: nothing in it can end the element."""
    plain = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        plain = plain.replace(letter, f"\\u{ord(letter):04x}")
    return plain


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, name: str, kind: str = "") -> str:
    """A table in a frame that scrolls by itself where it is too wide; head and rows are markup already."""
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(name)}">'
        f'<table class="{kind}"><caption><span>{caption}</span></caption>'
        f"<thead><tr>{''.join(head)}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def column_head(words: str, below: str = "", kind: str = "") -> str:
    """The head of a column, with a smaller line below it."""
    small = f"<small>{text(below)}</small>" if below else ""
    return f'<th scope="col" class="{kind}">{text(words)}{small}</th>'


def row_head(words: str) -> str:
    """The head of a row."""
    return f'<th scope="row">{text(words)}</th>'


def cell(words: object, kind: str = "") -> str:
    """A cell of text."""
    return f'<td class="{kind}">{text(words)}</td>' if kind else f"<td>{text(words)}</td>"


def chooser(name: str, label: str, choices: Iterable[tuple[object, str]]) -> str:
    """A labeled list to choose from."""
    options = "".join(f'<option value="{text(value)}">{text(words)}</option>' for value, words in choices)
    return f'<label for="{name}">{text(label)} <select id="{name}">{options}</select></label>'


def hidden(words: str) -> str:
    """Words that are read aloud and not seen."""
    return f'<span class="aloud">{text(words)}</span>'
