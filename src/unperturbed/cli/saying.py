"""What a command says beside its result."""

import sys

from ..printing import printable
from ..processes import speaks_for_all


def say(sentence: str) -> None:
    """Put a sentence on stderr; of several processes that would say the same, the first one does."""
    if speaks_for_all():
        print(printable(f"unperturbed: {sentence}"), file=sys.stderr)
