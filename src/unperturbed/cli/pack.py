"""`unperturbed pack`."""

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import recipes
from ..datasets import Dataset, load
from ..files import require_writable, write_anew
from ..gathering import Gathered, found_in, gathered, told_at_once, troubles, without
from ..pictures import Color, pictures_in, read_pictures
from ..printing import counted, in_shell, printable, shortened
from ..repeats import repeats
from ..solvers import require_count
from .options import leading_words, parse, refuse_options
from .saying import say

RECIPE = "digits-pixel-srt"
"""that is proposed for pictures of one's own: its network is small"""
MOST_NAMED = 6
"""classes up to which all are named"""
SKIPPING = ": --skip-damaged does without"
"""what helps where pictures cannot be read"""


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Make a data set of a folder of pictures: `unperturbed pack FOLDER --out FILE.npz`.

    The folder holds train/CLASS, test/CLASS and, if there are any, unlabeled pictures in unlabeled; or one folder for
    each class, of which some pictures are kept for test. Pictures are turned upright, their middle is cut to one
    shape, and what is transparent in them becomes white. With `--like DATA` all pictures in the folder become further
    unlabeled images for a data set that is there: `--out FILE.npy`, then `train … --unlabeled FILE.npy`.
    """

    out: Path | None = None
    """file for the data set; named as the folder if not given"""
    size: tuple[int, ...] = ()
    """height and width of all images, one number for both; else the size that all pictures have"""
    color: Color | None = None
    """gray or rgb; else gray where no picture has colors"""
    test: float = 0.2
    """share of each class that is kept for test where there is no folder test"""
    seed: int = 0
    """of the draw for test, and of the order of the test images"""
    like: str | None = None
    """a data set, as my.npz or cifar10, for which these pictures become unlabeled images of its shape"""
    data: Path | None = None
    """folder with the files of that data set; else as train finds them"""
    skip_damaged: bool = False
    """leave pictures out that cannot be read, and name them"""


def pack(arguments: list[str]) -> None:
    """Make a data set of a folder of pictures."""
    needed = "pack needs a folder of pictures first: unperturbed pack FOLDER --out FILE.npz"
    words, rest = leading_words(arguments, needed)
    command = parse(Pack, rest, usage="pack FOLDER")
    if len(words) != 1:
        got = f"{len(words)} ({shortened(', '.join(words))})"
        raise ValueError(f"pack takes one folder, got {got}: quote a name with blanks, and put several into one")
    folder = Path(words[0])
    ending = ".npz" if command.like is None else ".npy"
    out = file_for(command.out or Path(f"{folder.resolve().name}{ending}"), ending)
    if not 0 < command.test < 1:
        raise ValueError(f"--test must be a share between 0 and 1, got {command.test}")
    if command.seed < 0:
        raise ValueError(f"--seed must be a whole number from 0 on, got {command.seed}")
    if command.like is not None:
        refuse_options(
            rest, "--like tells the shape of all images: leave that out", "--size", "--color", "--test", "--seed"
        )
        pack_unlabeled(folder, out, load(command.like, command.data), command)
        return
    refuse_options(rest, "no data set is named by --like: name it", "--data")
    size, found = size_of(command), found_in(folder, command.test, command.seed)
    damaged = told_if_skipped(found.paths(), skip=command.skip_damaged)
    found = without(found, damaged)
    with told_at_once(found.paths(), SKIPPING):
        made = gathered(found, size, command.color)
    write_anew(out, made.dumps())
    print(printable(spoken(out, made)))
    for place in found.empty:
        say(f"left out: {place} holds no picture, so it is no class")
    for name in found.untested:
        told = f"no picture for test is of class {shortened(name, 40)}, so evaluate will say nothing of it"
        say(f"{told}: add some")
    if found.others:
        endings = ", ".join(sorted({path.suffix or path.name for path in found.others}))
        some = shortened(f"{counted(len(found.others), 'file')} with names that no pictures have ({endings})")
        say(f"left out: {some}")
    if made.repeated:
        say(made.repeated)


def pack_unlabeled(folder: Path, out: Path, like: Dataset, command: Pack) -> None:
    """Write all pictures in a folder as unlabeled images for that data set."""
    paths = pictures_in(folder)
    damaged = told_if_skipped(paths, skip=command.skip_damaged)
    paths = [path for path in paths if path not in damaged]
    if not paths:
        raise ValueError(f"{printable(folder)} has no pictures: name a folder that does")
    with told_at_once(paths, SKIPPING):
        images = read_pictures(paths, like.use.shape)
    buffer = io.BytesIO()
    np.save(buffer, images.numpy())
    write_anew(out, buffer.getvalue())
    made = f"{counted(len(images), 'unlabeled image')} of {' x '.join(map(str, like.use.shape))}"
    print(printable(f"{out}: {made}; next: add --unlabeled {in_shell(out)} to a training on {command.like}"))
    if repeated := repeats(like.test_images, images):
        say(repeated)


def told_if_skipped(paths: Sequence[Path], *, skip: bool) -> Collection[Path]:
    """Those that cannot be read, of which it is said that they are left out; none where none is to be."""
    damaged = troubles(paths) if skip else {}
    for sentence in damaged.values():
        say(f"left out: {sentence}")
    return damaged


def file_for(out: Path, ending: str) -> Path:
    """The file to write, which must be a new one, in a folder that is there or can be made."""
    if out.suffix != ending:
        raise ValueError(f"--out must end in {ending}, got {printable(out)}")
    if out.exists():
        raise ValueError(f"{printable(out)} is there already: name another --out, or delete it")
    require_writable([out])
    return out


def size_of(command: Pack) -> tuple[int, int] | None:
    """Height and width that all images are to have."""
    if len(command.size) > 2:
        raise ValueError(f"--size takes one number or two, height and width, got {len(command.size)}")
    for number in command.size:
        require_count("--size", number)
    return (command.size[0], command.size[-1]) if command.size else None


def spoken(out: Path, made: Gathered) -> str:
    """What the file holds, and what to do with it."""
    counted_parts = ("train_images", "test_images", "unlabeled_images", "classes")
    train, test, unlabeled, classes = (len(made.arrays.get(part, ())) for part in counted_parts)
    images = f"{train:,} training, {test:,} test and {counted(unlabeled, 'unlabeled image')}"
    shape = " x ".join(map(str, made.shape))
    named = f"--data.name {in_shell(out)} --data.labeled None --out runs/own"
    within = "--objective.solver.around.eps 8/255 --objective.solver.step-size 2/255"
    fitting = f" --batch {train + unlabeled}" if train + unlabeled < recipes.named(RECIPE).batch else ""
    follow = f"unperturbed train {RECIPE} {named} {within}{fitting}"
    return f"{out}: {classes} classes ({named_classes(made.arrays['classes'])}), {images} of {shape}; next: {follow}"


def named_classes(names: Sequence[str]) -> str:
    """The names of the classes; of many, the first ones."""
    some = ", ".join(shortened(name, 40) for name in names[:MOST_NAMED])
    return some if len(names) <= MOST_NAMED else f"{some}, …"
