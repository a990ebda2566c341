"""The command line: `unperturbed train | evaluate | list | demo`."""

import os
import sys
from collections.abc import Callable, Sequence

from .. import __version__
from ..recipe import nearest
from .catalog import catalog
from .demo import demo
from .evaluate import evaluate
from .train import train

COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "evaluate": evaluate,
    "list": catalog,
    "demo": demo,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `unperturbed`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        dispatch(words)
    except (ValueError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        if os.environ.get("UNPERTURBED_TRACEBACK"):
            raise
        sys.exit(f"unperturbed: {error}")
    except KeyboardInterrupt:
        print("\nunperturbed: stopped; the same command goes on from what is on disk", file=sys.stderr)
        sys.exit(130)


def dispatch(words: list[str]) -> None:
    """Run the command that the first word names."""
    if not words or words[0] in ("-h", "--help"):
        print("unperturbed: robust training with few labels\n\ncommands (each has --help):")
        for name, command in COMMANDS.items():
            print(f"  {name:10} {(command.__doc__ or '').strip()}")
        return
    if words[0] == "--version":
        print(__version__)
        return
    if words[0] not in COMMANDS:
        raise ValueError(f"there is no command {words[0]!r}{nearest(words[0], COMMANDS)} (see unperturbed --help)")
    COMMANDS[words[0]](words[1:])
