"""Options of a command, from its dataclass."""

from typing import Any, TypeVar

import tyro

Command = TypeVar("Command")
EXAMPLE = "digits-pixel-srt"
"""the recipe whose fields the help shows where none is named"""


def parse(kind: type[Command], arguments: list[str], *, usage: str, default: Any = None) -> Command:
    """The command's options; a part of a recipe is edited in place, not exchanged."""
    return tyro.cli(
        kind,
        args=arguments,
        default=default or kind(),
        prog=f"unperturbed {usage}",
        config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
    )


def leading_words(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The words before the first option, and the other words."""
    count = next((place for place, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return arguments[:count], arguments[count:]


def leading_word(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The first word, if it is no option, and the other words."""
    if arguments and not arguments[0].startswith("-"):
        return arguments[0], arguments[1:]
    return None, arguments
