"""`unperturbed report`."""

from dataclasses import dataclass
from pathlib import Path

from ..comparison import require_named_once
from ..page import Page, write_page
from ..printing import printable
from ..progress import watching
from .options import leading_words, parse


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page on evaluated runs: `unperturbed report DIR [DIR …] --out report.html`, one file to send and open.

    Each directory holds a run that `unperturbed evaluate DIR` has attacked. Runs on different data sets get a chapter
    each.
    """

    out: Path = Path("report.html")
    """the file to write"""
    images: int = Page().images
    """test images in the gallery of each data set, attacked once more for their pictures; 0: no gallery"""
    attacks: str | None = Page().attacks
    """attacks that the gallery shows, separated by commas; None: all of the reports"""
    no_surfaces: bool = False
    """leave decision surfaces out"""
    around: int | None = Page().around
    """the test image they surround; None: the first that most runs classify correctly"""
    points: int = Page().points
    """points of a surface along each axis, odd, so that the image itself is in the middle"""
    seed: int = Page().seed
    """seed of the choice of images and of the directions of surfaces"""
    data: Path | None = None
    """folder with the data set's files"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""


def report(arguments: list[str]) -> None:
    """Write a page on evaluated runs, to open in a browser."""
    needed = "report needs the directories of evaluated runs first: unperturbed report DIR [DIR …] --out FILE"
    directories, rest = leading_words(arguments, needed)
    command = parse(Report, rest, usage="report DIR [DIR …]")
    page = Page(
        images=command.images,
        attacks=command.attacks,
        surfaces=not command.no_surfaces,
        around=command.around,
        points=command.points,
        seed=command.seed,
    )
    paths = [Path(word) for word in directories]
    require_named_once(paths)
    with watching() as watcher:
        watcher.title = "pictures"
        write_page(paths, command.out, page, data=command.data, device=command.device, watcher=watcher)
    size = command.out.stat().st_size / 1e6
    print(printable(f"written: {command.out} ({size:.1f} MB), one file to open in a browser or to send"))
