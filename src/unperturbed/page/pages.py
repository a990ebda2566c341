"""The whole page: one file that needs no network and runs no script but its own."""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from string import Template

import torch

from ..evaluation import AttackWatcher
from ..files import explained, write_whole
from ..printing import counted
from ..runtime import pick_device, threads
from .evaluated import Group, read_groups
from .landscapes import require_image, surfaces_of
from .markup import script_data, text
from .pictures import MOST_BYTES, draw_pictures
from .sections import HEADINGS, Chapter, chapter_markup, page_command

ENDINGS = (".html", ".htm")
"""how the name of a page ends, so that a browser opens it"""
SMALL = 100_000
"""parameters below which a network is run in one thread"""
SCRIPTS = ("page.js", "charts.js", "gallery.js", "classes.js", "surfaces.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page shows beside the numbers of the reports, and what is computed for it."""

    images: int = 100
    """test images in the gallery of each data set; 0: no gallery"""
    attacks: str | None = None
    """attacks that the gallery shows, separated by commas; None: all of the reports"""
    surfaces: bool = True
    """whether to draw decision surfaces"""
    around: int | None = None
    """the test image they surround; None: the first that most runs classify correctly"""
    points: int = 41
    """points of a surface along each axis, odd, so that the image itself is in the middle"""
    seed: int = 0
    """seed of the choice of images and of the directions of surfaces"""

    def __post_init__(self) -> None:
        if self.images < 0:
            raise ValueError(f"--images must be at least 0, got {self.images}: use 0 for no gallery")
        if self.points < 3 or self.points % 2 == 0:
            raise ValueError(
                f"--points must be odd and at least 3, so that the image itself is in the middle, got {self.points}"
            )

    def options(self) -> list[str]:
        """The words of a command line that ask for such a page."""
        usual = Page()
        words = [
            word
            for name in ("images", "attacks", "around", "points", "seed")
            if (value := getattr(self, name)) != getattr(usual, name)
            for word in (f"--{name}", str(value))
        ]
        return words if self.surfaces else [*words, "--no-surfaces"]


def write_page(
    directories: Sequence[Path],
    out: Path,
    page: Page,
    *,
    data: Path | None = None,
    device: str = "auto",
    watcher: AttackWatcher | None = None,
) -> None:
    """Read the runs in these directories and write their page; nothing is written where something is wrong."""
    check_out(out)
    where = pick_device(device)
    groups = read_groups(directories, data)
    known = {result.name for group in groups for run in group.runs for result in run.report.attacks}
    attacks = None if page.attacks is None else [word.strip() for word in page.attacks.split(",")]
    for name in attacks or ():
        if name not in known:
            there = f"they hold {', '.join(sorted(known))}"
            raise ValueError(f"no report holds an attack {name!r}, {there}: name some, with commas between several")
    for group in groups if page.surfaces else ():
        require_image(group, page.around)
    with threads(threads_for(groups)):
        chapters = [chapter_of(group, page, attacks, where, MOST_BYTES // len(groups), watcher) for group in groups]
    options = page.options() if data is None else [*page.options(), "--data", str(data)]
    write_whole(out, render(chapters, page_command(directories, options, out)).encode())


def chapter_of(
    group: Group,
    page: Page,
    attacks: Sequence[str] | None,
    device: torch.device,
    room: int,
    watcher: AttackWatcher | None,
) -> Chapter:
    """What the page shows of one data set, with what has to be computed for it."""
    pictures = surfaces = None
    if page.images:
        pictures = draw_pictures(
            group, images=page.images, attacks=attacks, seed=page.seed, device=device, room=room, watcher=watcher
        )
    if page.surfaces:
        surfaces = surfaces_of(group, around=page.around, points=page.points, seed=page.seed, device=device)
    return Chapter(group=group, pictures=pictures, surfaces=surfaces)


def threads_for(groups: Sequence[Group]) -> int:
    """One thread where all networks are small and would lose more to waiting for a second than they gain."""
    sizes = [sum(part.numel() for part in run.model.parameters()) for group in groups for run in group.runs]
    return 1 if max(sizes) < SMALL else torch.get_num_threads()


def check_out(out: Path) -> None:
    """Refuse a place where no file can be written before anything is computed for it."""
    if out.is_dir():
        raise ValueError(
            f"{out} is a directory, expected the name of a file to write: add one, as {out / 'report.html'}"
        )
    if out.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"{out} does not end in {' or '.join(ENDINGS)}, but the page is HTML: name it {out.with_suffix('.html')}"
        )
    if not out.parent.is_dir():
        raise ValueError(f"there is no directory {out.parent} to write {out.name} in: make it, or name another --out")
    with explained(out):
        trial = out.with_name(f".{out.name}.trial.new")
        trial.touch()
        trial.unlink()


def render(chapters: Sequence[Chapter], command: str) -> str:
    """The page as HTML."""
    library = asset_of_plotly()
    script = "\n".join(asset(name) for name in SCRIPTS)
    groups = [chapter.group for chapter in chapters]
    alone = len(chapters) == 1
    return Template(asset("page.html")).substitute(
        title=text(title_of(groups)),
        policy=policy(library, script),
        style=asset("page.css"),
        summary=text(summary_of(groups)),
        navigation=navigation(groups),
        chapters="".join(chapter_markup(each, number, alone=alone) for number, each in enumerate(chapters)),
        command=text(command),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        data=script_data([chapter.data() for chapter in chapters]),
        library=library,
        script=script,
    )


def title_of(groups: Sequence[Group]) -> str:
    """What the page is about, in a line."""
    runs = sum(len(group.runs) for group in groups)
    names = " and ".join(group.title for group in groups)
    return f"{runs} model{'s' if runs > 1 else ''} on {names}, under attack"


def summary_of(groups: Sequence[Group]) -> str:
    """How much was done, in a sentence for each data set."""
    return " ".join(
        f"{group.title}: {attacked_on(group)} of {counted(len(group.dataset.test_labels), 'test image')}."
        for group in groups
    )


def attacked_on(group: Group) -> str:
    """How many runs were attacked on how many images."""
    counts = Counter(len(run.report.labels) for run in group.runs)
    return " and ".join(f"{counted(runs, 'run')} attacked on {images:,}" for images, runs in sorted(counts.items()))


def navigation(groups: Sequence[Group]) -> str:
    """Links to all sections."""
    lines: list[str] = []
    for number, group in enumerate(groups):
        name = "" if len(groups) == 1 else f"{group.title}: "
        lines += [f'<li><a href="#{key}-{number}">{text(name + words)}</a></li>' for key, words in HEADINGS.items()]
    return "".join(lines)


def asset(name: str) -> str:
    """A file that lies beside this one."""
    return (resources.files("unperturbed.page") / name).read_text(encoding="utf-8")


def asset_of_plotly() -> str:
    """The library that draws charts, as it stands in its package."""
    source = (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def policy(*scripts: str) -> str:
    """What the browser may do: run just these scripts, show pictures within the page, and never use a network."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
