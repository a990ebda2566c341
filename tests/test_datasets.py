"""Reading data sets from files, downloads and arrays, and refusing damaged ones."""

import errno
import gzip
import hashlib
import io
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest
import requests
import torch

from file_contents import idx
from unperturbed.datasets import FOLDER_VARIABLE, IDX_FILES, NAMES, SOURCES, Dataset, load
from unperturbed.untested import by_class, chance_of_lacking, untested

RECORD = 3073


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache" / "unperturbed"))


def idx_arrays(train: int = 6, test: int = 4, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((train, 5, 7), (train,), (test, 5, 7), (test,))
    return [rng.integers(0, 256 if len(shape) == 3 else 10, shape, dtype=np.uint8) for shape in shapes]


def write_mnist(folder: Path, arrays: list[np.ndarray], *, compressed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in zip(IDX_FILES, arrays, strict=True):
        if compressed:
            (folder / f"{file}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / file).write_bytes(idx(array))
    return folder


def cifar_batches(images: int = 2) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (6, images, RECORD), dtype=np.uint8)
    records[:, :, 0] %= 10
    return {file: batch.tobytes() for file, batch in zip(SOURCES["cifar10"].files, records, strict=True)}


def write_cifar(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, contents in cifar_batches().items():
        (folder / file).write_bytes(contents)
    return folder


def write_npz(folder: Path, **changes) -> str:
    """Path of an .npz file with sound arrays, but for the changes; None leaves one out."""
    arrays = {
        "train_images": np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4),
        "train_labels": np.array([0, 1, 2, 0, 1, 2]),
        "test_images": np.full((3, 4, 4), 77, dtype=np.uint8),
        "test_labels": np.array([2, 1, 0]),
    }
    arrays |= changes
    path = folder / "own.npz"
    np.savez(path, **{key: array for key, array in arrays.items() if array is not None})
    return str(path)


def message(error: type[Exception], name: str, folder: Path | None = None) -> str:
    """What `load` says when it refuses, checked to be a single line."""
    with pytest.raises(error) as refusal:
        load(name, folder)
    text = str(refusal.value)
    assert "\n" not in text
    return text


# By name


def test_names():
    assert NAMES == ("digits", "mnist", "fashion-mnist", "cifar10")


@pytest.mark.parametrize(
    ("wrong", "right"), [("minst", "mnist"), ("CIFAR-10", "cifar10"), ("fashion_mnist", "fashion-mnist")]
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong, right):
    text = message(ValueError, wrong)
    assert f"unknown data set {wrong!r}: did you mean {right!r}?" in text
    assert "digits, mnist, fashion-mnist, cifar10" in text


def test_a_name_unlike_any_gets_the_list_alone():
    text = message(ValueError, "xyz")
    assert "did you mean" not in text
    assert "digits, mnist, fashion-mnist, cifar10 or the path of an .npz file" in text


def test_digits_are_whole_scaled_and_in_a_fixed_order():
    from sklearn.datasets import load_digits

    digits = load("digits", Path("ignored"))
    assert digits.train_images.shape == (1397, 1, 8, 8)
    assert digits.test_images.shape == (400, 1, 8, 8)
    assert digits.unlabeled_images.shape == (0, 1, 8, 8)
    assert digits.train_images.dtype == torch.uint8
    assert digits.train_labels.dtype == torch.int64
    assert digits.classes == tuple("0123456789")
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    original = load_digits()
    images = torch.cat((digits.train_images, digits.test_images)).squeeze(1)
    assert torch.equal(images, torch.from_numpy(original.images[order] * 255 / 16).round().byte())
    labels = torch.cat((digits.train_labels, digits.test_labels))
    assert torch.equal(labels, torch.from_numpy(original.target[order]))


# MNIST and Fashion-MNIST


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", ""),
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", ""),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
    ],
)
def test_mnist_is_read_from_each_place(tmp_path, name, place, compressed):
    arrays = idx_arrays()
    write_mnist(tmp_path / place, arrays, compressed=compressed)
    dataset = load(name, tmp_path)
    assert dataset.name == name
    assert torch.equal(dataset.train_images, torch.from_numpy(arrays[0])[:, None])
    assert torch.equal(dataset.train_labels, torch.from_numpy(arrays[1]).long())
    assert torch.equal(dataset.test_images, torch.from_numpy(arrays[2])[:, None])
    assert torch.equal(dataset.test_labels, torch.from_numpy(arrays[3]).long())
    assert dataset.unlabeled_images.shape == (0, 1, 5, 7)
    assert len(dataset.classes) == 10


def test_the_named_place_comes_before_the_folder_itself(tmp_path):
    write_mnist(tmp_path, idx_arrays(seed=1))
    fashion = idx_arrays(seed=2)
    write_mnist(tmp_path / "fashion-mnist", fashion)
    assert torch.equal(load("fashion-mnist", tmp_path).train_images[:, 0], torch.from_numpy(fashion[0]))


def test_files_are_never_mixed_from_two_places(tmp_path):
    write_mnist(tmp_path, idx_arrays(seed=1))
    write_mnist(tmp_path / "fashion-mnist", idx_arrays(seed=2))
    (tmp_path / "fashion-mnist" / IDX_FILES[0]).unlink()
    assert f"fashion-mnist lacks {IDX_FILES[0]} in" in message(FileNotFoundError, "fashion-mnist", tmp_path)


def test_a_plain_file_comes_before_a_gzipped_one(tmp_path):
    arrays = idx_arrays(seed=1)
    write_mnist(tmp_path, arrays)
    write_mnist(tmp_path, idx_arrays(seed=2), compressed=True)
    assert torch.equal(load("mnist", tmp_path).train_images[:, 0], torch.from_numpy(arrays[0]))


def test_the_environment_names_the_folder_unless_one_is_given(tmp_path, monkeypatch):
    one, other = idx_arrays(seed=1), idx_arrays(seed=2)
    write_mnist(tmp_path / "one", one)
    write_mnist(tmp_path / "other", other)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "one"))
    assert torch.equal(load("mnist").test_labels, torch.from_numpy(one[3]).long())
    assert torch.equal(load("mnist", tmp_path / "other").test_labels, torch.from_numpy(other[3]).long())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda contents: contents[:-1], "holds only 225 bytes, expected 226"),
        (lambda contents: contents[:30], "holds only 30 bytes, expected 226"),
        (lambda contents: contents + b"more", "holds at least 227 bytes, expected 226"),
        (lambda contents: contents[:9], "starts with the bytes 000008030000000600, expected 00000803"),
        (lambda contents: b"", r"starts with the bytes (none), expected 00000803"),
        (lambda contents: b"\x00\x00\x0d\x03" + contents[4:], "starts with the bytes 00000d03"),
        (lambda contents: b"\x00\x00\x08\x01" + contents[4:], "starts with the bytes 00000801"),
        (lambda contents: contents[:4] + b"\xff" * 12, "the absurd shape (4294967295, 4294967295, 4294967295)"),
        (lambda contents: contents[:4] + b"\x00" * 12, "the absurd shape (0, 0, 0)"),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_idx_file_is_refused(tmp_path, change, words, compressed):
    arrays = idx_arrays()
    write_mnist(tmp_path, arrays, compressed=compressed)
    path = tmp_path / (IDX_FILES[0] + (".gz" if compressed else ""))
    contents = change(idx(arrays[0]))
    path.write_bytes(gzip.compress(contents) if compressed else contents)
    text = message(ValueError, "mnist", tmp_path)
    assert text.startswith(f"{path} ")
    assert words in text


@pytest.mark.parametrize(
    "change",
    [
        lambda contents: contents[:-12],
        lambda contents: contents[:40],
        lambda contents: b"this is no gzip file",
        lambda contents: contents[:10] + b"\xff" + contents[11:],
        lambda contents: contents[:-8] + b"\x00\x00\x00\x00" + contents[-4:],
    ],
    ids=["no end", "no middle", "no gzip", "wrong block", "wrong checksum"],
)
def test_a_damaged_gzip_file_is_refused(tmp_path, change):
    write_mnist(tmp_path, idx_arrays(), compressed=True)
    path = tmp_path / f"{IDX_FILES[0]}.gz"
    path.write_bytes(change(path.read_bytes()))
    assert message(ValueError, "mnist", tmp_path).startswith(f"{path} is cut off or not a gzip file")


def test_a_gzip_file_is_read_no_further_than_its_header_promises(tmp_path, monkeypatch):
    arrays = idx_arrays()
    write_mnist(tmp_path, arrays, compressed=True)
    path = tmp_path / f"{IDX_FILES[0]}.gz"
    path.write_bytes(gzip.compress(idx(arrays[0]) + bytes(2**24)))
    sizes = []
    read = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size=-1: sizes.append(size) or read(self, size))
    assert "holds at least 227 bytes" in message(ValueError, "mnist", tmp_path)
    assert sizes == [16, 6 * 5 * 7 + 1]


def test_labels_must_match_the_images(tmp_path):
    train_images, train_labels, test_images, test_labels = idx_arrays()
    write_mnist(tmp_path, [train_images, train_labels[:-1], test_images, test_labels])
    assert "mnist: train_labels must have the shape (6,), got (5,)" in message(ValueError, "mnist", tmp_path)
    write_mnist(tmp_path, [train_images, train_labels, test_images, test_labels + 10])
    assert "mnist: test_labels must lie in 0 to 9, got 1" in message(ValueError, "mnist", tmp_path)
    write_mnist(tmp_path, [train_images, train_labels, test_images[:, 1:], test_labels])
    assert "mnist has images of the shapes [(1, 4, 7), (1, 5, 7)]" in message(ValueError, "mnist", tmp_path)


# CIFAR-10


@pytest.mark.parametrize("place", ["", "cifar-10-batches-bin"])
def test_cifar_is_read_from_each_place(tmp_path, place):
    write_cifar(tmp_path / place)
    dataset = load("cifar10", tmp_path)
    *train, test = (np.frombuffer(batch, np.uint8).reshape(-1, RECORD) for batch in cifar_batches().values())
    train = np.concatenate(train)
    assert dataset.train_images.shape == (10, 3, 32, 32)
    assert torch.equal(dataset.train_images.flatten(1), torch.from_numpy(train[:, 1:].copy()))
    assert dataset.train_labels.tolist() == train[:, 0].tolist()
    assert torch.equal(dataset.test_images.flatten(1), torch.from_numpy(test[:, 1:].copy()))
    assert dataset.test_labels.tolist() == test[:, 0].tolist()
    assert dataset.train_images.dtype == torch.uint8
    assert dataset.test_labels.dtype == torch.int64
    assert dataset.classes[0] == "airplane"
    assert dataset.classes[9] == "truck"


@pytest.mark.parametrize("size", [0, RECORD - 1, 2 * RECORD - 1, RECORD + 1])
def test_a_cut_off_cifar_batch_is_refused(tmp_path, size):
    path = write_cifar(tmp_path) / "data_batch_3.bin"
    path.write_bytes(bytes(size))
    assert message(ValueError, "cifar10", tmp_path).startswith(
        f"{path} is cut off at {size} bytes, expected a multiple of 3073"
    )


def test_a_cifar_label_over_nine_is_refused(tmp_path):
    (write_cifar(tmp_path) / "test_batch.bin").write_bytes(b"\x0a" + bytes(RECORD - 1))
    assert "cifar10: test_labels must lie in 0 to 9, got 10" in message(ValueError, "cifar10", tmp_path)


# Folders that lack something


def test_a_folder_that_does_not_exist(tmp_path):
    folder = tmp_path / "nowhere"
    assert f"the data folder {folder} does not exist" in message(FileNotFoundError, "mnist", folder)


def test_the_home_of_a_user_whom_nobody_knows_is_no_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, path = Path("~nobody-knows/data"), "~nobody-knows/own.npz"
    assert f"the data folder {folder} does not exist" in message(FileNotFoundError, "mnist", folder)
    assert f"the data file {path} does not exist" in message(FileNotFoundError, path)
    assert f"the data file {path} does not exist" in message(FileNotFoundError, path, folder)


def test_a_folder_that_is_a_file(tmp_path):
    path = tmp_path / "file"
    path.touch()
    assert f"{path} is not a folder" in message(NotADirectoryError, "mnist", path)


def test_an_empty_folder_names_all_files_and_places(tmp_path):
    text = message(FileNotFoundError, "mnist", tmp_path)
    assert all(file in text for file in IDX_FILES)
    assert f"{tmp_path / 'mnist'} or {tmp_path / 'MNIST/raw'} or {tmp_path}:" in text
    assert FOLDER_VARIABLE in text
    assert SOURCES["mnist"].url in text


@pytest.mark.parametrize("name", ["mnist", "my.npz"])
def test_a_file_in_the_variable_for_the_folder_is_answered_with_the_variable(name, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError, match=rf"file is not a folder: name the folder .* by {FOLDER_VARIABLE}$"):
        load(name)
    with pytest.raises(NotADirectoryError, match=r"file is not a folder: name the folder .* by --data$"):
        load(name, tmp_path / "file")


def test_a_folder_in_the_variable_that_is_not_there_is_answered_with_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    assert message(FileNotFoundError, "mnist").endswith(
        f"nowhere does not exist: create it, or name another one by --data or {FOLDER_VARIABLE}"
    )


def test_a_folder_that_lacks_one_file_names_it_alone(tmp_path):
    write_cifar(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    assert "cifar10 lacks data_batch_4.bin in" in message(FileNotFoundError, "cifar10", tmp_path)


# Downloads


@pytest.fixture
def website(tmp_path, monkeypatch):
    """A folder in place of the web, and a function that turns a source to files put there."""
    site = tmp_path / "site"
    site.mkdir()

    def copy(url: str, target: str, store: pooch.Pooch) -> None:
        published = site / url.rsplit("/", 1)[1]
        if not published.exists():
            raise requests.exceptions.ConnectionError(f"cannot reach {url}")
        Path(target).write_bytes(published.read_bytes())

    def publish(name: str, files: dict[str, bytes]) -> Path:
        for file, contents in files.items():
            (site / file).write_bytes(contents)
        checksums = {file: hashlib.md5(contents).hexdigest() for file, contents in files.items()}
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], checksums=checksums))
        return site

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar: copy)
    return publish


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, contents in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(contents)
            archive.addfile(member, io.BytesIO(contents))
    return stream.getvalue()


def test_mnist_is_downloaded_once_and_quietly(website, monkeypatch):
    said = []
    monkeypatch.setattr(pooch.get_logger(), "handle", said.append)
    pooch.get_logger().setLevel("INFO")
    arrays = idx_arrays()
    files = {f"{file}.gz": gzip.compress(idx(array)) for file, array in zip(IDX_FILES, arrays, strict=True)}
    site = website("mnist", files)
    assert torch.equal(load("mnist").train_images[:, 0], torch.from_numpy(arrays[0]))
    for file in site.iterdir():
        file.unlink()
    assert torch.equal(load("mnist").test_labels, torch.from_numpy(arrays[3]).long())
    assert not said


def test_cifar_is_unpacked_from_its_archive(website, tmp_path):
    batches = {f"cifar-10-batches-bin/{file}": batch for file, batch in cifar_batches().items()}
    unwanted = {"../outside.bin": b"x", "cifar-10-batches-bin/readme.html": b"x"}
    website("cifar10", {"cifar-10-binary.tar.gz": tar_of(unwanted | batches)})
    downloaded = load("cifar10")
    from_folder = load("cifar10", write_cifar(tmp_path / "folder"))
    assert torch.equal(downloaded.train_images, from_folder.train_images)
    assert torch.equal(downloaded.test_labels, from_folder.test_labels)
    cached = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert cached == {"cifar-10-binary.tar.gz", *SOURCES["cifar10"].files}


def test_a_batch_that_was_lost_is_unpacked_again(website, tmp_path):
    batches = {f"cifar-10-batches-bin/{file}": batch for file, batch in cifar_batches().items()}
    website("cifar10", {"cifar-10-binary.tar.gz": tar_of(batches)})
    before = load("cifar10")
    next((tmp_path / "cache").rglob("data_batch_2.bin")).unlink()
    assert torch.equal(load("cifar10").train_images, before.train_images)


def test_a_download_with_the_wrong_checksum_is_refused(website):
    site = website("cifar10", {"cifar-10-binary.tar.gz": b"what was meant"})
    (site / "cifar-10-binary.tar.gz").write_bytes(b"what arrived")
    text = message(ConnectionError, "cifar10")
    assert "cifar10 arrived damaged from https://www.cs.toronto.edu/~kriz/" in text


def test_a_cache_that_cannot_be_written_is_not_blamed_on_the_network(website, monkeypatch, tmp_path):
    website("cifar10", {"cifar-10-binary.tar.gz": b"what is there"})
    (tmp_path / "file").touch()
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "file"))
    text = message(OSError, "cifar10")
    assert text.startswith(f"could not write {tmp_path / 'file' / 'cifar10' / 'cifar-10-binary.tar.gz'} (")
    assert "download" not in text


def test_a_cache_that_only_seems_to_take_folders_is_not_blamed_on_the_network(website, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    website("cifar10", {"cifar-10-binary.tar.gz": b"what is there"})
    monkeypatch.setattr(Path, "mkdir", refused)
    monkeypatch.setattr(os, "makedirs", refused)
    text = message(OSError, "cifar10")
    assert re.match(r"could not write .*cifar10 \(No such file or directory\): ", text)


@pytest.mark.parametrize("full_while", ["downloading", "unpacking"])
def test_a_disk_that_fills_during_a_download_is_not_blamed_on_the_network(website, monkeypatch, tmp_path, full_while):
    batches = {f"cifar-10-batches-bin/{file}": batch for file, batch in cifar_batches().items()}
    website("cifar10", {"cifar-10-binary.tar.gz": tar_of(batches)})
    write_bytes = Path.write_bytes

    def full(path: Path, contents: bytes) -> int:
        if (path.suffix == ".bin") == (full_while == "unpacking"):
            write_bytes(path, contents[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write_bytes(path, contents)

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_bytes", full)
        text = message(OSError, "cifar10")
    assert re.match(r"could not write .*cifar10 \(No space left on device\): ", text)
    left = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert left == ([] if full_while == "downloading" else ["cifar-10-binary.tar.gz"])
    assert len(load("cifar10").train_images) == 10


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_offline_and_absent_says_where_to_put_the_files(website, name):
    source = SOURCES[name]
    text = message(ConnectionError, name)
    assert f"{name} could not be downloaded from {source.url} ({', '.join(source.checksums)})" in text
    assert all(file in text for file in source.files)
    assert "--data DIR or UNPERTURBED_DATA" in text


# Your own arrays


def test_own_arrays_are_read(tmp_path):
    dataset = load(write_npz(tmp_path))
    assert dataset.name == str(tmp_path / "own.npz")
    assert torch.equal(dataset.train_images.flatten(), torch.arange(96, dtype=torch.uint8))
    assert dataset.train_images.shape == (6, 1, 4, 4)
    assert dataset.train_labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.test_labels.tolist() == [2, 1, 0]
    assert dataset.test_labels.dtype == torch.int64
    assert dataset.classes == ("0", "1", "2")
    assert dataset.unlabeled_images.shape == (0, 1, 4, 4)


def test_own_arrays_may_bring_classes_and_unlabeled_images(tmp_path):
    unlabeled = np.full((5, 4, 4), 99, dtype=np.uint8)
    path = write_npz(tmp_path, classes=np.array(["ant", "bee", "cat"]), unlabeled_images=unlabeled)
    dataset = load(path)
    assert dataset.classes == ("ant", "bee", "cat")
    assert torch.equal(dataset.unlabeled_images, torch.full((5, 1, 4, 4), 99, dtype=torch.uint8))


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_may_come_first_or_last(tmp_path, channels):
    first = np.random.default_rng(0).integers(0, 256, (6, channels, 4, 5), dtype=np.uint8)
    for images in (first, first.transpose(0, 2, 3, 1)):
        dataset = load(write_npz(tmp_path, train_images=images, test_images=images[:3]))
        assert torch.equal(dataset.train_images, torch.from_numpy(first))
        assert dataset.train_images.is_contiguous()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_fractions_are_rounded_to_bytes(tmp_path, dtype):
    fractions = (np.arange(96) / 255).reshape(6, 4, 4).astype(dtype)
    fractions[0, 0, :3] = 0.0, 1.0, 0.5
    expected = torch.arange(96, dtype=torch.uint8)
    expected[:3] = torch.tensor([0, 255, 128])
    assert torch.equal(load(write_npz(tmp_path, train_images=fractions)).train_images.flatten(), expected)


@pytest.mark.parametrize("part", ["train_images", "test_images", "unlabeled_images"])
@pytest.mark.parametrize(
    ("dark", "words"),
    [
        (np.uint8(1), "are bytes that go up to 1, expected 255: multiply all images by 255 / 1, or store them as"),
        (np.uint8(16), "are bytes that go up to 16, expected 255: multiply all images by 255 / 16"),
        (1 / 255, "are fractions that go up to 0.0039, expected 1: look for a second division by 255, or divide all"),
        (0.3 / 255, "are fractions that go up to 0.0012, expected 1: look for a second division by 255"),
        (np.float16(16 / 255), "are fractions that go up to 0.063, expected 1"),
    ],
)
def test_images_that_would_be_next_to_black_are_refused_in_every_part(tmp_path, part, dark, words):
    images = np.zeros((6 if part == "train_images" else 3, 4, 4), np.asarray(dark).dtype)
    images[0, 0, 0] = dark
    assert f"own.npz: {part} {words}" in message(ValueError, write_npz(tmp_path, **{part: images}))


@pytest.mark.parametrize("bright", [np.uint8(255), np.uint8(17), np.uint8(0), 1.0, 17 / 255, 0.0])
def test_black_and_white_and_dim_and_black_images_are_read(tmp_path, bright):
    images = np.zeros((6, 4, 4), np.asarray(bright).dtype)
    images[0, 0, 0] = bright
    parts = {"train_images": images, "test_images": images[:3], "unlabeled_images": images[:2]}
    dataset = load(write_npz(tmp_path, **parts))
    expected = bright if isinstance(bright, np.uint8) else round(255 * bright)
    assert dataset.train_images.max() == dataset.test_images.max() == dataset.unlabeled_images.max() == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"test_images": None, "test_labels": None}, "lacks test_images, test_labels: save it with all of"),
        ({"train_labels": np.array([0, 1, "x", 0, 1, 2], dtype=object)}, "holds Python objects"),
        (
            {"train_images": np.full((6, 4, 4), 255.0)},
            "train_images must lie in [0, 1], got a maximum of 255.0: divide by 255 or store them as uint8",
        ),
        ({"train_images": np.full((6, 4, 4), -1.0)}, "got a minimum of -1.0: leave the shifting to models.Normalize"),
        ({"train_images": np.full((6, 4, 4), np.nan)}, "train_images must be finite, got NaN or infinity"),
        ({"train_images": np.full((6, 4, 4), np.inf)}, "train_images must be finite, got NaN or infinity"),
        ({"train_images": np.zeros((6, 4, 4), int)}, "must be uint8 or floating point in [0, 1], got int64"),
        (
            {"train_images": np.zeros((6, 4, 4), np.uint16)},
            "got uint16: divide them by the most that they can be, 255 with eight bits and 65535 with sixteen",
        ),
        ({"train_images": np.zeros((6, 16), np.uint8)}, "1 or 3 channels, got (6, 16): reshape them"),
        ({"train_images": np.zeros((6, 4, 4, 4), np.uint8)}, "1 or 3 channels, got (6, 4, 4, 4)"),
        ({"train_images": np.zeros((0, 4, 4), np.uint8)}, "has no training or no test images"),
        ({"test_images": np.zeros((3, 5, 4), np.uint8)}, "has images of the shapes [(1, 4, 4), (1, 5, 4)]"),
        ({"unlabeled_images": np.zeros((3, 5, 4), np.uint8)}, "of the shapes [(1, 4, 4), (1, 5, 4)]"),
        ({"train_labels": np.zeros(6)}, "train_labels must be integers in one dimension, got float64"),
        ({"train_labels": np.eye(6, dtype=int)}, "one dimension, got int64 of the shape (6, 6)"),
        ({"train_labels": np.array([0, 1, 2])}, "train_labels must have the shape (6,), got (3,)"),
        ({"test_labels": np.array([0, -1, 2])}, "test_labels must lie in 0 to 2, got -1"),
        ({"test_labels": np.array([0, 10**12, 2])}, "has a label 1000000000000 among 9 labels"),
        (
            {"classes": np.array(["a", "b"])},
            "classes names 2, but the labels go up to 2: number these from 0 to 1, or name",
        ),
        ({"classes": np.array(["a", "a", "b"])}, "classes holds a more than once: store another name for each class"),
        ({"classes": np.array([0, 1, 1])}, "classes holds 1 more than once: store another name for each class"),
        ({"classes": np.array(["", "b", "c"])}, "classes has no name for class 0: store a name for each class"),
        ({"classes": np.array([b"a", b"b", b" "])}, "classes has no name for class 2: store a name for each class"),
        (
            {"unlabelled_images": np.zeros((3, 4, 4), np.uint8)},
            "holds unlabelled_images in place of unlabeled_images: save it again",
        ),
        ({"train_images": None, "train_image": np.zeros(6)}, "holds train_image in place of train_images"),
        ({"extra_unlabeled": np.zeros(6)}, "holds extra_unlabeled in place of unlabeled_images: save it again"),
        ({"label_names": np.zeros(6)}, "holds label_names in place of classes: save it again"),
    ],
)
def test_own_arrays_that_are_wrong_are_refused(tmp_path, changes, words):
    path = write_npz(tmp_path, **changes)
    text = message(ValueError, path)
    assert text.startswith(path)
    assert words in text


def test_arrays_that_are_not_asked_for_are_left_alone(tmp_path):
    assert load(write_npz(tmp_path, notes=np.array([{}], dtype=object))).classes == ("0", "1", "2")


@pytest.mark.parametrize("damage", ["cut off", "empty", "text", "lone array", "changed"])
def test_a_damaged_npz_file_is_refused(tmp_path, damage):
    path = Path(write_npz(tmp_path))
    whole = path.read_bytes()
    lone = io.BytesIO()
    np.save(lone, np.zeros(3))
    changed = whole.replace(bytes(range(20, 60)), bytes(40))
    assert changed != whole
    contents = {"cut off": whole[:-30], "empty": b"", "text": b"text", "lone array": lone.getvalue()}
    path.write_bytes(contents.get(damage, changed))
    assert message(ValueError, str(path)).startswith(f"{path} is cut off or not an .npz file: save it again")


def test_an_npz_file_that_does_not_exist(tmp_path):
    path = str(tmp_path / "nowhere.npz")
    assert f"the data file {path} does not exist" in message(FileNotFoundError, path)


def test_an_npz_file_is_looked_for_in_the_data_folder_too(tmp_path, monkeypatch):
    folder = tmp_path / "some where"
    folder.mkdir()
    write_npz(folder)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as refusal:
        load("once/own.npz")
    assert str(refusal.value) == (
        f"the data file once/own.npz does not exist in {tmp_path}: name an .npz file that does, or the folder that "
        "it lies in by --data"
    )
    assert load("once/own.npz", folder).name == "once/own.npz"
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert len(load("some where/own.npz").train_images) == 6


def test_a_data_set_put_together_by_hand_is_checked():
    images, labels = torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([0, 1])
    whole = Dataset(
        name="toy",
        train_images=images,
        train_labels=labels,
        test_images=images,
        test_labels=labels,
        classes=("a", "b"),
        unlabeled_images=images[:0],
    )
    with pytest.raises(ValueError, match="toy: train_labels must lie in 0 to 0, got 1"):
        replace(whole, classes=("a",))


@pytest.mark.parametrize("sizes", [[200, 200], [40] * 10, [5] * 100, [900, 9, 3], [128, 64, 32, 16, 8, 4, 2, 1]])
def test_test_images_in_the_order_of_their_classes_are_told_from_mixed_ones(sizes):
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rng = torch.Generator().manual_seed(0)
    counts = [*range(1, 30), *range(30, len(labels), 10)]
    for _ in range(20):
        mixed = labels[torch.randperm(len(labels), generator=rng)]
        assert not [count for count in counts if by_class(mixed, count)]
    assert by_class(labels, len(labels)) is None
    alike = len(set(sizes)) == 1
    assert not alike or all(by_class(labels, count) for count in (20, 60, 100))


def test_the_chance_of_lacking_classes_is_that_of_drawing_without_them():
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    alone = 3 / 8 * 2 / 7 * 1 / 6
    assert chance_of_lacking(labels, {1, 2}, 3) == pytest.approx(alone * 3 * 3)  # Three classes, three pairs of them.
    assert chance_of_lacking(labels, {1, 2}, 1) == chance_of_lacking(labels, set(), 3) == 1


def test_no_more_than_a_few_classes_without_test_images_are_named():
    names = [f"class {number}" for number in range(1200)]
    sentence = untested(torch.tensor([0, 2]), names)
    assert sentence == (
        "no test image shows class 1, class 3, class 4 and 1,195 more classes: add some, or no accuracy tells of them"
    )
    assert untested(torch.tensor([1, 0, 1]), names[:2]) is None
