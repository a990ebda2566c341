"""Tables as Markdown that also reads well in a terminal."""

from collections.abc import Sequence


def aligned(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are of one width: the first to the left, all others to the right."""
    lines = [list(heading), *(list(row) for row in rows)]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(3, *(len(line[place]) for line in lines)) for place in range(len(heading))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    shown = [lines[0], rule, *lines[1:]]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in shown
    )
