"""What cannot be read among the options of a command, in a sentence."""

import ast
import io
import os
import re
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stderr
from itertools import takewhile

from ..printing import quoted, shortened, with_commas

COLOR = re.compile("\x1b\\[[0-9;]*m")
BORDER = re.compile(r"^\s*[│|] ?|\s*[│|]\s*$")
BETWEEN_SECTIONS = re.compile(r"^[\s─-]+$")
WIDE = "10000"
"""columns in which no line of a box is broken"""
SEVERAL = {"int": "whole numbers", "float": "numbers"}
LISTS = {
    "train": ("--against",),
    "evaluate": ("--attacks",),
    "predict": ("--attacks",),
    "report": ("--attacks",),
    "curve": ("--attacks",),
    "reproduce": ("--only", "--without"),
}
"""options of each command that take several names with commas between them"""


@contextmanager
def told_in_a_sentence(usage: str, arguments: list[str]) -> Generator[None]:
    """Within this, tyro reads options: where it ends the process with a box, a sentence stands in place of it."""
    if ask_for_help(arguments):
        yield
        return
    box, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDE
    try:
        with redirect_stderr(box):
            yield
    except SystemExit:
        if sections := sections_of(box.getvalue()):
            advice = f"({meaning(sections)}see unperturbed {usage} --help)"
            sentence = f"{sentence_of(sections, usage.split()[0], arguments)} {advice}"
            box = io.StringIO(f"unperturbed: {shortened(sentence, 1000)}\n")
        raise
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
        if said := box.getvalue():
            print(said, end="", file=sys.stderr)


def ask_for_help(words: Iterable[str]) -> bool:
    """Whether help is among the words of a command: then nothing that they lack is wrong."""
    return not {"-h", "--help"}.isdisjoint(words)


def sections_of(box: str) -> list[list[str]]:
    """The lines in a box, without what is drawn around and between its sections."""
    sections: list[list[str]] = [[]]
    for line in COLOR.sub("", box).splitlines()[1:-1]:
        inside = BORDER.sub("", line)
        if inside and BETWEEN_SECTIONS.match(inside):
            sections.append([])
        elif inside.strip():
            sections[-1].append(inside.strip())
    return [section for section in sections if section]


def sentence_of(sections: list[list[str]], command: str, arguments: Sequence[str]) -> str:
    """What the box says: option, value and what is expected, as far as it has one of the forms that are known."""
    said = " ".join(sections[0])
    if found := re.match(r"Error parsing (\S+): (.*)", said):
        return f"{found[1]}: {expected_of_several(found[2])}" if found[1].startswith("--") else found[2]
    if found := re.match(r"invalid choice '(.*)' for argument '(\S+)'\. Expected one of (\(.*\))\.$", said):
        choices = list(ast.literal_eval(found[3]))
        if "None" in choices:  # Beside None tyro has them in another order each time.
            choices = [*sorted(set(choices) - {"None"}), "None"]
        return f"{found[2]}: expected one of {', '.join(choices)}, got {quoted(found[1])}"
    if found := re.match(r"Missing value for argument '(\S+)'\. Expected (\d+) values\.$", said):
        return f"{found[1]}: expected {'a value' if found[2] == '1' else f'{found[2]} values'} behind it"
    if found := re.match(r"Unrecognized options: (.*)", said):
        return unknown(found[1].split(", "), sections, command, arguments)
    return said


def meaning(sections: list[list[str]]) -> str:
    """What an option stands for, where the box says it and None is among its values."""
    _, name, *text = next((section for section in sections if section[0] == "Argument helptext:"), ["", ""])
    return f"{re.sub(r' *[(]default: .*[)]$', '', ' '.join(text))}; " if "None" in name and text else ""


def expected_of_several(said: str) -> str:
    """What is said of a value; of numbers that belong together, in words."""
    found = re.match(r"Could not parse arguments (\[.*\]) into tuple type typing\.Tuple\[(.*)\]$", said)
    if not found or not (kinds := found[2].split(", ")) or not set(kinds) <= set(SEVERAL):
        return said
    what = SEVERAL[kinds[0]] if len(set(kinds)) == 1 else "numbers"
    return f"expected {len(kinds)} {what}, got {quoted(' '.join(ast.literal_eval(found[1])))}"


def unknown(words: list[str], sections: list[list[str]], command: str, arguments: Sequence[str]) -> str:
    """Of words that belong to no option, or are none, and which options are nearly called so."""
    options = [word for word in words if word.startswith("-")]
    if not options:
        if told := in_list_with_blanks(words[0], command, arguments):
            return told
        return f"{command} has no use for {quoted(' '.join(words))}: no option before it takes that"
    others = [line.split()[0] for section in sections[1:] for line in section if line.startswith("--")]
    nearly = f", did you mean {' or '.join(dict.fromkeys(others[:3]))}?" if others else ""
    return f"{command} has no option {', '.join(options)}{nearly}"


def in_list_with_blanks(word: str, command: str, arguments: Sequence[str]) -> str | None:
    """What to say of a word that belongs to an option before it, whose values have commas between them."""
    for place, argument in enumerate(arguments):
        option, _, first = argument.partition("=")
        behind = list(takewhile(lambda each: not each.startswith("-"), arguments[place + 1 :]))
        if option in LISTS.get(command, ()) and word in behind:
            names = with_commas(" ".join([first, *behind]))
            return f"{option} takes names with commas and no blanks between them: {names}"
    return None
