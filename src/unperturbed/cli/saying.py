"""How wide a command writes its result, and what it says beside it."""

import shutil
import sys

from ..printing import printable
from ..processes import speaks_for_all
from ..progress import Unfailing

FEWEST_COLUMNS, MOST_COLUMNS = 80, 118
"""of text in a table: in fewer its words break, and more are not read more easily"""


def columns() -> int:
    """How many columns of text a table may take: those of the terminal, where it goes to one."""
    if not sys.stdout.isatty():
        return MOST_COLUMNS
    return min(MOST_COLUMNS, max(FEWEST_COLUMNS, shutil.get_terminal_size((MOST_COLUMNS, 24)).columns))


def say(sentence: str) -> None:
    """Put a sentence on stderr; of several processes that would say the same, the first one does."""
    if speaks_for_all():
        print(printable(f"unperturbed: {sentence}"), file=Unfailing(sys.stderr))
