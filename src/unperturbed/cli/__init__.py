"""The command line: `unperturbed train`, `evaluate` and the other commands, each in a file of its own."""

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from .. import __version__
from ..printing import nearest, printable, told_by_the_system
from ..runtime import FULL, out_of_memory
from ..signals import SignalError, ending_on_sigterm
from .catalog import catalog
from .curve import curve
from .demo import demo
from .evaluate import evaluate
from .pack import pack
from .predict import predict
from .report import report
from .reproduce import reproduce
from .surface import surface
from .train import train

COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "pack": pack,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "report": report,
    "surface": surface,
    "curve": curve,
    "reproduce": reproduce,
    "list": catalog,
    "demo": demo,
}

OF_SEVERAL = ("train", "evaluate", "list")
"""commands that several processes may be started with together"""
ENOUGH_SEEN = 141
"""the exit code of programs that a closed pipe ends"""


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script `unperturbed`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    make_streams_take_everything()
    try:
        with ending_on_sigterm():
            dispatch(words)
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output, as head does, has seen enough; what Python has yet to write goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ENOUGH_SEEN)
    except (ValueError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        if os.environ.get("UNPERTURBED_TRACEBACK"):
            raise
        sys.exit(f"unperturbed: {printable(told(error))}")
    except RuntimeError as error:
        if os.environ.get("UNPERTURBED_TRACEBACK") or not out_of_memory(error):
            raise
        sys.exit(f"unperturbed: {too_little_memory(error)}")
    except KeyboardInterrupt as stop:
        signaled = stop if isinstance(stop, SignalError) else SignalError(signal.SIGINT)
        with suppress(OSError):
            print(f"\nunperturbed: {signaled}", file=sys.stderr)
        sys.exit(signaled.code)


def told(error: Exception) -> str:
    """What an error says; where these are the words of the system alone, in a sentence that says what to do."""
    if isinstance(error, MemoryError) and not str(error):
        return too_little_memory(error)
    return told_by_the_system(error) if isinstance(error, OSError) else str(error)


def too_little_memory(error: Exception) -> str:
    """What to say where memory ran out in a place that has no advice of its own."""
    if FULL in str(error):
        return "the GPU has no memory left: end other processes that use it, or choose another --device"
    wanted = re.search(r"tried to allocate ([\d.]+) (\w+)", str(error), re.IGNORECASE)
    for_what = f" for another {in_gib(*wanted.groups())}" if wanted else ""
    return f"not enough memory{for_what}: ask for less, as smaller images or fewer points, or use a machine with more"


def in_gib(size: str, unit: str) -> str:
    """A size as an error of torch says it, whose bytes nobody can read where they are many."""
    return f"{int(size) / 2**30:,.2f} GiB" if unit == "bytes" else f"{size} {unit}"


def make_streams_take_everything() -> None:
    """Let what is printed end no command: a stream that is closed swallows it, and a letter that it lacks is a ?."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def dispatch(words: list[str]) -> None:
    """Run the command that the first word names."""
    if not words or words[0] in ("-h", "--help"):
        print("unperturbed: robust training with few labels\n\ncommands (each has --help):")
        for name, command in COMMANDS.items():
            print(f"  {name:10} {(command.__doc__ or '').strip()}")
        print("\n--version names the version")
        return
    if words[0] == "--version":
        print(__version__)
        return
    if words[0] not in COMMANDS:
        raise ValueError(f"there is no command {words[0]!r}{nearest(words[0], COMMANDS)} (see unperturbed --help)")
    require_one_process(words[0])
    COMMANDS[words[0]](words[1:])


def require_one_process(command: str) -> None:
    """Refuse what each of several processes would do for itself, where they would be in each other's way."""
    count = int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1
    if count == 1 or command in OF_SEVERAL:
        return
    instead = ", or once on each GPU with --share I/N and a --device" if command == "reproduce" else ""
    raise ValueError(
        f"{command} works in one process, and torchrun has started {count}, each of which would do all of it: start "
        f"it without torchrun{instead}"
    )
