"""A folder of pictures as a data set: its classes, its parts, and one shape for all of its images."""

import io
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import torch

from .pictures import Color, Shape, files_in, is_picture, looked_at, opened, pictures_in, read_pictures
from .printing import counted, printable
from .repeats import repeats

TRAIN, TEST, UNLABELED = "train", "test", "unlabeled"
"""folders with a meaning; all others are classes"""
PARTS = (TRAIN, TEST, UNLABELED)
ALSO_CALLED = {
    "training": TRAIN,
    "testing": TEST,
    "validation": TEST,
    "valid": TEST,
    "val": TEST,
    "unlabelled": UNLABELED,
}
"""names that such folders have elsewhere"""
MOST_NAMED = 3
"""pictures that cannot be read, of which no more are named"""
LAYOUT = "train/CLASS, test/CLASS and unlabeled, or CLASS and unlabeled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The pictures of a data set by what they are for."""

    classes: tuple[str, ...]
    train: Sequence[tuple[Path, int]]
    """each with the number of its class"""
    test: Sequence[tuple[Path, int]]
    unlabeled: Sequence[Path]
    others: Sequence[Path]
    """files that are no pictures"""
    empty: Sequence[Path]
    """folders that would be classes if they held a picture"""

    @property
    def untested(self) -> list[str]:
        """Classes of which no picture is for test."""
        tested = {label for _, label in self.test}
        return [name for label, name in enumerate(self.classes) if label not in tested]

    def paths(self) -> list[Path]:
        """All of them: training pictures, test pictures, unlabeled ones."""
        return [*(path for path, _ in self.train), *(path for path, _ in self.test), *self.unlabeled]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """All images of a data set, as its .npz file holds them."""

    arrays: Mapping[str, Any]
    shape: Shape
    repeated: str | None
    """what is to be said of test images that are among the others"""

    def dumps(self) -> bytes:
        """The .npz file."""
        buffer = io.BytesIO()
        np.savez(buffer, **self.arrays)
        return buffer.getvalue()


def found_in(folder: Path, share: float, seed: int) -> Found:
    """The pictures in a folder; where it has none for test, that share of each class is taken, drawn by the seed."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{printable(folder)} is no folder: name one that holds {LAYOUT}")
    require_parts_where_they_belong(folder)
    labeled = folder / TRAIN if (folder / TRAIN).is_dir() else folder
    if labeled == folder and (folder / TEST).is_dir():
        raise ValueError(f"{printable(folder)} has a folder test but none train: arrange them as {LAYOUT}")
    if labeled != folder and (strange := [name for name in folders_in(folder) if name not in PARTS]):
        raise ValueError(
            f"{printable(folder / strange[0])} is none of {', '.join(PARTS)}: rename it, or put it elsewhere"
        )
    places = [place for place in (labeled, folder, folder / TEST) if place.is_dir()]
    if loose := [path for place in places for path in place.iterdir() if path.is_file() and is_picture(path)]:
        raise ValueError(f"{printable(loose[0])} lies in no folder of a class: put it into one, or into {UNLABELED}")
    by_class = pictures_by_class(labeled, {UNLABELED} if labeled == folder else set[str]())
    if len(by_class) < 2:
        some = f"{printable(labeled)} has {counted(len(by_class), 'folder')} with pictures"
        raise ValueError(f"{some}, expected one for each class, two at least: arrange them as {LAYOUT}")
    names = tuple(by_class)
    empty = [name for name in folders_in(labeled) if name not in (*names, *(PARTS if labeled == folder else ()))]
    tests = folder / TEST
    for_test = put_apart(tests, names, labeled) if tests.is_dir() else drawn(by_class, share, seed)
    taken = {path for paths in for_test.values() for path in paths}
    rest = {name: [path for path in paths if path not in taken] for name, paths in by_class.items()}
    without_label = folder / UNLABELED
    return Found(
        classes=names,
        train=numbered(rest, names),
        test=in_drawn_order(numbered(for_test, names), seed),
        unlabeled=pictures_in(without_label) if without_label.is_dir() else [],
        others=sorted(path for path in files_in(folder) if not is_picture(path)),
        empty=[labeled / name for name in empty],
    )


def require_parts_where_they_belong(folder: Path) -> None:
    """Refuse folders of parts that would be taken for classes: spelled otherwise, or within another part."""
    parted = (folder / TRAIN).is_dir()  # Then no folder beside it is a class, whatever it is called.
    for name in folders_in(folder):
        if name not in PARTS and (part := part_meant_by(name)) and (name.lower() == part or not parted):
            raise ValueError(
                f"{printable(folder / name)} would be a class, expected the spelling {part} of that part: "
                f"rename it, or where it is a class put all classes into a folder {TRAIN}"
            )
    for part in (folder / TRAIN, folder / TEST):
        within = folders_in(part) if parted and part.is_dir() else []
        if without_label := [name for name in within if part_meant_by(name) == UNLABELED]:
            raise ValueError(
                f"{printable(part / without_label[0])} would be a class, expected the pictures without a label "
                f"outside of {part.name}: put it beside {TRAIN}, as {UNLABELED}"
            )


def part_meant_by(name: str) -> str | None:
    """The part that a folder of that name is most likely to be; none where it may be a class."""
    plain = name.lower().strip("_-. ")
    return plain if plain in PARTS else ALSO_CALLED.get(plain)


def pictures_by_class(folder: Path, apart: set[str]) -> dict[str, list[Path]]:
    """The pictures in each folder that lies in this one; folders without any are no class."""
    found = {name: pictures_in(folder / name) for name in folders_in(folder) if name not in apart}
    found = {name: paths for name, paths in found.items() if paths}
    spelled: dict[str, str] = {}
    for name in found:
        if spelled.setdefault(as_read(name), name) != name:
            raise ValueError(
                f"{printable(folder)} has two classes that read {printable(name)}, one with accents as characters of "
                "their own, as some systems write them: put their pictures into one folder"
            )
    return found


def as_read(name: str) -> str:
    """The name of a class as people read it: systems write an accented letter as one character or as two."""
    return normalize("NFC", name)


def folders_in(folder: Path) -> list[str]:
    """The names of the folders that lie in this one, but for hidden ones."""
    return sorted(place.name for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))


def put_apart(folder: Path, names: Sequence[str], labeled: Path) -> dict[str, list[Path]]:
    """The pictures for test in a folder of their own, by the classes that the folder of labeled ones has."""
    spelled = {as_read(name): name for name in names}
    found = {spelled.get(as_read(name), name): paths for name, paths in pictures_by_class(folder, set()).items()}
    if not found:
        raise ValueError(f"{printable(folder)} has no pictures: add some, or remove it to have some of {TRAIN} drawn")
    if strange := [name for name in found if name not in names]:
        raise ValueError(
            f"{printable(folder)} has the class {printable(strange[0])}, which {printable(labeled)} has not: give "
            "both the same classes"
        )
    return found


def drawn(by_class: Mapping[str, list[Path]], share: float, seed: int) -> dict[str, list[Path]]:
    """That share of the pictures of each class, at least one of them."""
    rng = torch.Generator().manual_seed(seed)
    chosen: dict[str, list[Path]] = {}
    for name, paths in by_class.items():
        if len(paths) < 2:
            raise ValueError(
                f"class {printable(name)} has one picture, expected at least two, one of them for test: add some"
            )
        count = min(len(paths) - 1, max(1, round(share * len(paths))))
        order = torch.randperm(len(paths), generator=rng)[:count]
        chosen[name] = [paths[place] for place in sorted(order.tolist())]
    return chosen


def numbered(by_class: Mapping[str, list[Path]], names: Sequence[str]) -> list[tuple[Path, int]]:
    """Each picture with the number of its class."""
    return [(path, names.index(name)) for name, paths in by_class.items() for path in paths]


def in_drawn_order(labeled: Sequence[tuple[Path, int]], seed: int) -> list[tuple[Path, int]]:
    """These pictures in an order drawn by the seed, so that the first so many of them are of all classes."""
    order = torch.randperm(len(labeled), generator=torch.Generator().manual_seed(seed))
    return [labeled[place] for place in order.tolist()]


def troubles(paths: Sequence[Path]) -> dict[Path, str]:
    """The pictures that cannot be read, and what is wrong with each."""
    found: dict[Path, str] = {}
    for path in paths:
        try:
            looked_at(path)
            opened(path)
        except ValueError as error:
            found[path] = str(error)
    return found


def without(found: Found, bad: Collection[Path]) -> Found:
    """The pictures but for bad ones; refused where none are left to train a class by, or to test by."""
    train, test = ([(path, label) for path, label in part if path not in bad] for part in (found.train, found.test))
    trained = {label for _, label in train}
    if empty := [name for label, name in enumerate(found.classes) if label not in trained]:
        raise ValueError(f"no training picture of class {printable(empty[0])} can be read: save them anew")
    if not test:
        raise ValueError("no test picture can be read: save them anew")
    return replace(found, train=train, test=test, unlabeled=[path for path in found.unlabeled if path not in bad])


@contextmanager
def told_at_once(paths: Sequence[Path], remedy: str = "") -> Generator[None]:
    """Where one of these pictures cannot be read, say so of all that cannot, and what helps."""
    try:
        yield
    except ValueError:
        bad = troubles(paths)
        if not bad:
            raise
        (_, *others), sentence = bad, next(iter(bad.values()))
        some = ", ".join(printable(Path(*path.parts[-2:])) for path in others[:MOST_NAMED])
        rest = ", …" if len(others) > MOST_NAMED else ""
        more = f"; {counted(len(others), 'more picture')} cannot be read either ({some}{rest})" if others else ""
        raise ValueError(f"{sentence}{more}{remedy}") from None


def gathered(found: Found, size: tuple[int, int] | None, color: Color | None) -> Gathered:
    """All pictures in one shape: the size that they have, or are to have, and in color if one of them is."""
    looks = [looked_at(path) for path in found.paths()]
    sizes = {look for look, _ in looks}
    if size is None and len(sizes) > 1:
        some = ", ".join(f"{height} x {width}" for height, width in sorted(sizes)[:MOST_NAMED])
        rest = ", …" if len(sizes) > MOST_NAMED else ""
        raise ValueError(f"the pictures have {len(sizes)} sizes ({some}{rest}): name one for all, as --size 32")
    height, width = size or sizes.pop()
    kind = color or ("rgb" if any(of == "rgb" for _, of in looks) else "gray")
    shape = (1 if kind == "gray" else 3, height, width)
    train, test = (read_pictures([path for path, _ in part], shape) for part in (found.train, found.test))
    unlabeled = read_pictures(found.unlabeled, shape)
    arrays = {
        "train_images": train.numpy(),
        "train_labels": np.array([label for _, label in found.train], dtype=np.int64),
        "test_images": test.numpy(),
        "test_labels": np.array([label for _, label in found.test], dtype=np.int64),
        "classes": np.array(found.classes),
    }
    return Gathered(
        arrays=arrays | ({"unlabeled_images": unlabeled.numpy()} if len(unlabeled) else {}),
        shape=shape,
        repeated=repeats(test, train, unlabeled),
    )
