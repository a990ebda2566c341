"""Options of a command, from its dataclass."""

import inspect
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from itertools import zip_longest
from types import NoneType
from typing import Any, TypeVar, get_args

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructTypeInfo,
)

from ..printing import quoted
from .saying import MOST_COLUMNS
from .wrong_options import ask_for_help, told_in_a_sentence

Command = TypeVar("Command")
EXAMPLE = "digits-pixel-srt"
"""the recipe whose fields the help shows where none is named"""


def parse(kind: type[Command], arguments: list[str], *, usage: str, default: Any = None) -> Command:
    """The command's options; a part of a recipe is edited in place, not exchanged."""
    with RULES, told_in_a_sentence(usage, arguments):
        return tyro.cli(
            kind,
            args=arguments,
            default=default or kind(),
            prog=f"unperturbed {usage}",
            description=described(kind),
            config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
        )


def described(kind: type) -> str:
    """What a command does, in lines as long as the terminal's; tyro makes one line of those that are not indented."""
    columns = min(MOST_COLUMNS, shutil.get_terminal_size().columns)
    paragraphs = (inspect.getdoc(kind) or "").split("\n\n")
    wrapper = textwrap.TextWrapper(columns, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, paragraphs))


def parse_with_budget(kind: type[Command], arguments: list[str], *, usage: str, default: Any) -> Command:
    """The options of a command that attacks: unless they are named, steps go with the radius that is named.

    PGD in the steps of a smaller radius would not come to the border of a larger one.
    """
    command: Any = parse(kind, arguments, usage=usage, default=default)
    if command.budget.eps == default.budget.eps:
        return command
    scaled = replace(default, budget=default.budget.with_radius(command.budget.eps))
    return parse(kind, arguments, usage=usage, default=scaled)


def fraction(word: str) -> float:
    """A number as people write it, also as a fraction: 8/255."""
    above, slash, below = word.partition("/")
    try:
        return float(above) / float(below) if slash else float(word)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"expected a number, as 0.03 or 8/255, got {quoted(word)}") from None


def whole(word: str) -> int:
    """A whole number."""
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"expected a whole number, as 1000, got {quoted(word)}") from None


READERS: dict[object, Callable[[str], float]] = {float: fraction, int: whole}
READERS_OF_SEVERAL: dict[object, Callable[[str], float | str]] = {**READERS, str: str}
AS_TYRO_DOES = "as tyro does"
"""marks what a rule of ours has seen, so that tyro's own is asked"""
RULES = ConstructorRegistry()
"""how options are read: numbers with words of ours for what is none, and parts that may be None"""


@RULES.primitive_rule
def number(wanted: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float] | None:
    """How a number of that kind is read and shown, if it is one."""
    if wanted.type not in READERS:
        return None
    kind, read = wanted.type, READERS[wanted.type]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: type(value) is kind or ("~" if kind is float and type(value) is int else False),
        str_from_instance=lambda value: [str(value)],
    )


@RULES.primitive_rule
def number_or_none(wanted: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float | None] | None:
    """How a number of that kind, or None, is read and shown, if it is one of both."""
    kinds = [kind for kind in get_args(wanted.type) if kind is not NoneType]
    if len(kinds) != 1 or kinds[0] not in READERS or NoneType not in get_args(wanted.type):
        return None
    kind, read = kinds[0], READERS[kinds[0]]

    def number_in(words: list[str]) -> float | None:
        try:
            return None if words == ["None"] else read(words[0])
        except ValueError as error:
            raise ValueError(str(error).replace(", got", ", or None, got", 1)) from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{None}}|{kind.__name__.upper()}",
        instance_from_str=number_in,
        is_instance=lambda value: value is None or type(value) is kind or (kind is float and type(value) is int),
        str_from_instance=lambda value: [str(value)],
    )


@RULES.primitive_rule
def several(wanted: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[tuple[float | str, ...]] | None:
    """How any number of values of that kind are read and shown: none would be one that was forgotten."""
    kind, *more = get_args(wanted.type) or (NoneType,)
    if wanted.type_origin is not tuple or more != [Ellipsis] or kind not in READERS_OF_SEVERAL:
        return None
    read, name = READERS_OF_SEVERAL[kind], kind.__name__.upper()

    def all_of(words: list[str]) -> tuple[float | str, ...]:
        if not words:
            raise ValueError("expected a value behind it, or several")
        try:
            return tuple(read(word) for word in words)
        except ValueError:
            got = quoted(" ".join(words))
            raise ValueError(f"expected values with blanks between them, as 1 2, got {got}") from None

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{name} [{name} ...]]",
        instance_from_str=all_of,
        is_instance=lambda values: isinstance(values, tuple),
        str_from_instance=lambda values: [str(value) for value in values],
    )


@RULES.struct_rule
def part(wanted: StructTypeInfo) -> StructConstructorSpec | None:
    """A part as tyro reads it: edited in place, also where it may be None, and with help in one line each."""
    if AS_TYRO_DOES in wanted.markers:
        return None
    optional = NoneType in get_args(wanted.type) and is_dataclass(wanted.default)
    kind = type(wanted.default) if optional else wanted.type
    found = ConstructorRegistry.get_struct_spec(replace(wanted, type=kind, markers=(*wanted.markers, AS_TYRO_DOES)))
    if not isinstance(found, StructConstructorSpec):
        return None
    return replace(
        found, fields=tuple(replace(field, helptext=in_one_line(field.helptext)) for field in found.fields)
    )


def in_one_line(told: str | Callable[[], str | None] | None) -> Callable[[], str | None]:
    """The help of a field, which the terminal breaks where it ends."""

    def line() -> str | None:
        text = told() if callable(told) else told
        return None if text is None else " ".join(text.split())

    return line


def leading_words(arguments: list[str], needed: str = "") -> tuple[list[str], list[str]]:
    """The words before the first option, and the other words; that some are needed is said where there are none."""
    count = next((place for place, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    if needed and not count and not ask_for_help(arguments):
        raise ValueError(needed)
    return arguments[:count], arguments[count:]


def value_of(option: str, words: list[str]) -> str | None:
    """What follows an option, wherever it stands; the last where it is given twice, as options are read.

    Another option is no value: that one is missing is said where options are read.
    """
    _, values = without_option(option, words)
    return values[-1] if values else None


def without_option(option: str, words: list[str]) -> tuple[list[str], list[str]]:
    """The words without an option and its values, and these values; one without a value is left as it is."""
    others, values, rest = list[str](), list[str](), iter(zip_longest(words, words[1:], fillvalue="--"))
    for word, following in rest:
        name, equals, value = word.partition("=")
        if name != option or not (equals or not following.startswith("--")):
            others.append(word)
            continue
        values.append(value if equals else following)
        if not equals:
            next(rest)
    return others, values


def refuse_options(words: list[str], reason: str, *beginnings: str) -> None:
    """Refuse the first option that begins so, if there is one: it would do nothing, for that reason."""
    for option in (word.partition("=")[0].replace("_", "-") for word in words):
        if option.startswith(beginnings):
            raise ValueError(f"{option} would do nothing, for {reason}, or omit it")
