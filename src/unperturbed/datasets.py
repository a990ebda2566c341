"""Whole data sets: built in, read from files, downloaded, or your own arrays."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .archives import unpack
from .files import at_home, explained, require_writable
from .formats import LABELED_PARTS, Parts, read_cifar, read_mnist, read_own_arrays
from .inputs import check_labels
from .misnamed import FOLDER_VARIABLE, no_data_set, require_data_folder, require_folder
from .printing import printable
from .repeats import repeats
from .runtime import cache


@dataclass(frozen=True, slots=True)
class Use:
    """What a model of a data set takes, and what its answers stand for."""

    shape: tuple[int, int, int]
    """channels, height and width of an image"""
    classes: tuple[str, ...]

    def __str__(self) -> str:
        """It in words: 3 x 32 x 32, 10 classes."""
        return f"{' x '.join(map(str, self.shape))}, {len(self.classes):,} classes"

    def dumps(self) -> str:
        """It as JSON text."""
        return json.dumps({"shape": self.shape, "classes": self.classes})

    @staticmethod
    def loads(text: str) -> "Use":
        """What `dumps` wrote."""
        tree = json.loads(text)
        channels, height, width = map(int, tree["shape"])
        classes = tuple(printable(name) for name in tree["classes"])
        if channels not in (1, 3) or not 0 < height * width < 1 << 24 or not classes:
            raise ValueError("no shape of images, or no classes")
        return Use((channels, height, width), classes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Images and labels of one data set, whole and in a fixed order."""

    name: str
    """name of the data set, or the path of its .npz file"""
    train_images: Tensor
    """uint8 (N, C, H, W)"""
    train_labels: Tensor
    """int64 (N,)"""
    test_images: Tensor
    """uint8 (N, C, H, W)"""
    test_labels: Tensor
    """int64 (N,)"""
    classes: tuple[str, ...]
    """what each label stands for"""
    unlabeled_images: Tensor
    """uint8 (M, C, H, W), images that never had a label; M may be 0"""

    def __post_init__(self) -> None:
        name = printable(self.name)
        if not self.train_images.numel() or not self.test_images.numel():
            raise ValueError(f"{name} has no training or no test images: it needs some of both")
        every = (self.train_images, self.test_images, self.unlabeled_images)
        if len(shapes := {tuple(images.shape[1:]) for images in every}) > 1:
            raise ValueError(f"{name} has images of the shapes {sorted(shapes)}: make them all the same")
        count = len(self.classes)
        check_labels(self.train_labels, len(self.train_images), count, f"{name}: train_labels")
        check_labels(self.test_labels, len(self.test_images), count, f"{name}: test_labels")

    def __repr__(self) -> str:
        parts = {"training": self.train_images, "test": self.test_images, "unlabeled": self.unlabeled_images}
        sizes = ", ".join(f"{len(images):,} {part}" for part, images in parts.items())
        return f"<Dataset {printable(self.name)}: {sizes} images, {self.use}>"

    def repeated(self) -> str | None:
        """What is to be said of test images that are trained on; of data sets that others have made, nothing."""
        own = self.name.endswith(".npz")
        return repeats(self.test_images, self.train_images, self.unlabeled_images) if own else None

    @property
    def use(self) -> Use:
        """What its models take and answer."""
        channels, height, width = self.train_images.shape[1:]
        return Use((channels, height, width), self.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set kept in files: which ones, where they lie, and where they come from."""

    files: tuple[str, ...]
    """names of the files, in the order `read` takes them"""
    endings: tuple[str, ...] = ("",)
    """what may follow the name of a file, best first"""
    places: tuple[str, ...]
    """where the files may lie within the data folder, best first"""
    url: str
    """address of the folder to download from"""
    checksums: Mapping[str, str]
    """MD5 of each file to download"""
    read: Callable[[Sequence[Path]], Parts]
    """reader of the files"""
    classes: tuple[str, ...]
    """what each label stands for"""
    begins: tuple[int, ...] = ()
    """the first 12 labels to train on, which tell it from a data set in files of the same names"""


def load(name: str, folder: Path | None = None) -> Dataset:
    """Load a data set by its name, or your own arrays by the path of an .npz file.

    The files of a named data set are looked for in `folder`, else in the folder that the environment
    variable UNPERTURBED_DATA names; without either they are downloaded once and kept. An .npz file that does not
    lie where its path says is looked for there too, so that a run can be evaluated from another place.
    """
    require_folder(folder)
    if name.endswith(".npz"):
        parts, classes = read_own_arrays(_own_file(name, folder))
    elif name == BUILT_IN:
        parts, classes = _digits(), TEN_DIGITS
    elif name in SOURCES:
        parts, classes = _of_that_name(name, _files(name, folder)), SOURCES[name].classes
    else:
        raise ValueError(no_data_set(name, NAMES))
    return Dataset(name=name, classes=classes, **({"unlabeled_images": parts["train_images"][:0]} | parts))


def _of_that_name(name: str, files: Sequence[Path]) -> Parts:
    """What these files hold, refused where it is the data set of another name."""
    parts = SOURCES[name].read(files)
    first = tuple(parts["train_labels"][:12].tolist())
    for other in (other for other, source in SOURCES.items() if source.begins == first and other != name):
        raise ValueError(
            f"{printable(files[0].parent)} holds {other}, not {name}: name the folder of {name}, or {other} by "
            "--data.name"
        )
    return parts


def _digits() -> Parts:
    """The 8x8 digits that come with scikit-learn, shuffled once and for all."""
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.from_numpy(np.rint(digits.images * 255 / 16).astype(np.uint8))[order].unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype(np.int64))[order]
    parts = (images[:-TEST_DIGITS], labels[:-TEST_DIGITS], images[-TEST_DIGITS:], labels[-TEST_DIGITS:])
    return dict(zip(LABELED_PARTS, parts, strict=True))


def _own_file(name: str, folder: Path | None) -> Path:
    """Path of an .npz file: where it is said to lie, else in the data folder."""
    path, chosen = at_home(name), folder or os.environ.get(FOLDER_VARIABLE)
    inside = [at_home(chosen) / tail for tail in (path, path.name)] if chosen else []
    found = next((place for place in (path, *inside) if place.is_file()), None)
    if found is None:
        require_folder(chosen, FOLDER_VARIABLE)
    return found or path


def _files(name: str, folder: Path | None) -> list[Path]:
    """Paths of the files of a data set, all from the first place that has any of them."""
    source = SOURCES[name]
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    folder = at_home(chosen) if chosen else _downloaded(name, source)
    require_data_folder(folder)
    places = [folder / place for place in source.places]
    found = next(filter(None, (_present(place, source) for place in places)), {})
    if missing := [file for file in source.files if file not in found]:
        raise FileNotFoundError(
            f"{name} lacks {', '.join(missing)} in {' or '.join(map(printable, places))}: put them there, or name "
            f"no folder by --data or {FOLDER_VARIABLE} to have them downloaded from {source.url}"
        )
    return [found[file] for file in source.files]


def _present(place: Path, source: Source) -> dict[str, Path]:
    """Files of a data set that lie in one place; the best ending comes last, and so wins."""
    paths = [(file, place / (file + ending)) for ending in reversed(source.endings) for file in source.files]
    return {file: path for file, path in paths if path.is_file()}


def _downloaded(name: str, source: Source) -> Path:
    """Folder with the files of a data set, downloaded unless they lie there already."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    folder = cache() / name
    registry = {file: f"md5:{checksum}" for file, checksum in source.checksums.items()}
    require_writable([folder / file for file in registry if not (folder / file).exists()])
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    store = pooch.create(path=folder, base_url=source.url, registry=registry)
    try:
        for file in registry:
            path = Path(store.fetch(file, progressbar=find_spec("tqdm") is not None))
            if path.name.endswith(".tar.gz"):
                unpack(path, source.files)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # What is said of the network has no number.
            with explained(folder):
                raise
        trouble = "arrived damaged" if isinstance(error, ValueError) else "could not be downloaded"
        raise ConnectionError(
            f"{name} {trouble} from {source.url} ({', '.join(registry)}): try again, or put "
            f"{', '.join(source.files)} into a folder and name it by --data DIR or {FOLDER_VARIABLE}"
        ) from error
    return folder


TEN_DIGITS = tuple("0123456789")
TEST_DIGITS = 400
"""of the 1,797 that come with scikit-learn"""
IDX_FILES = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))

MNIST = Source(
    files=IDX_FILES,
    endings=("", ".gz"),
    places=("mnist", "MNIST/raw", ""),
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    checksums={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    read=read_mnist,
    classes=TEN_DIGITS,
    begins=(5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5),
)
FASHION_MNIST = Source(
    files=IDX_FILES,
    endings=("", ".gz"),
    places=("fashion-mnist", "FashionMNIST/raw", ""),
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    checksums={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    read=read_mnist,
    classes=(
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    begins=(9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9),
)  # fmt: skip
CIFAR10 = Source(
    files=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
    places=("cifar-10-batches-bin", ""),
    url="https://www.cs.toronto.edu/~kriz/",
    checksums={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    read=read_cifar,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)

SOURCES = {"mnist": MNIST, "fashion-mnist": FASHION_MNIST, "cifar10": CIFAR10}
BUILT_IN = "digits"
NAMES = (BUILT_IN, *SOURCES)
