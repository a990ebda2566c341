"""Whatever a stranger hands in, every reader and the command line end well or say no in one line.

`make soak` runs the same properties on fifty times as many inputs; UNPERTURBED_FUZZ is that factor.
"""

import contextlib
import gzip
import io
import json
import os
import resource
import shutil
import signal
import struct
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from file_contents import idx, npy
from unperturbed import recipe as recipes
from unperturbed import report as reports
from unperturbed import sweeps
from unperturbed.cli import main
from unperturbed.datasets import IDX_FILES, SOURCES, Dataset, load
from unperturbed.pictures import looked_at, read_pictures
from unperturbed.printing import printable
from unperturbed.recipes import RECIPES
from unperturbed.report import AttackResult, Report
from unperturbed.reservoir import Reservoir, image_files
from unperturbed.runs import RunDirectory

FACTOR = int(os.environ.get("UNPERTURBED_FUZZ", "1"))
LONGEST_SECONDS = 30
MOST_MEMORY = 400 * 2**20
"""how much more a property may take than the process had before"""
TRIED: dict[str, int] = {}


def fuzzed(tries: int, **inputs):
    """Run a property on so many inputs, times the factor; the same ones each time, unless more are asked for."""
    profile = settings(
        max_examples=tries * FACTOR,
        deadline=None,
        derandomize=FACTOR == 1,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: profile(given(**inputs)(test))


@pytest.fixture(autouse=True)
def bounded_memory():
    """No property takes much more memory than there was before it."""
    before = most_memory()
    yield
    assert most_memory() - before < MOST_MEMORY


@pytest.fixture(scope="module", autouse=True)
def told_how_many():
    """A soak ends by saying how much was tried."""
    yield
    if FACTOR > 1:
        for name, count in TRIED.items():
            print(f"{count:8} inputs: {name}", file=sys.__stderr__)
        print(f"{sum(TRIED.values()):8} inputs in all", file=sys.__stderr__)
    if told := os.environ.get("UNPERTURBED_FUZZ_TOLD"):
        Path(told).write_text(json.dumps(TRIED))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def most_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class TookTooLongError(BaseException):
    """Nothing that our own code would catch."""


@contextlib.contextmanager
def in_time():
    """Stop what hangs."""

    def stop(number, frame):
        raise TookTooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tried(name: str) -> None:
    TRIED[name] = TRIED.get(name, 0) + 1


def answer(name: str, read, source: str):
    """What a reader gives, or None where it refuses in one line that names the source."""
    tried(name)
    try:
        with in_time(), warnings.catch_warnings():
            warnings.simplefilter("error")
            return read()
    except (ValueError, OSError) as error:
        check_sentence(str(error), source)
    return None


def check_sentence(text: str, source: str) -> None:
    assert source in text
    assert text.isprintable()
    assert len(text) < 3000


# Damage to bytes and to trees


PLACES = st.floats(0, 1)
LENGTHS = st.integers(1, 40)
WORDS = st.sampled_from([struct.pack(order + "I", n) for order in "<>" for n in (0, 1, 2**16, 2**31, 2**32 - 1)])
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), PLACES, st.integers(1, 255)),
        st.tuples(st.just("cut off"), PLACES, st.none()),
        st.tuples(st.just("cut out"), PLACES, LENGTHS),
        st.tuples(st.just("repeat"), PLACES, LENGTHS),
        st.tuples(st.just("splice"), PLACES, st.binary(max_size=12)),
        st.tuples(st.just("overwrite"), PLACES, WORDS | st.binary(min_size=1, max_size=8)),
        st.tuples(st.just("overwrite the start"), PLACES, WORDS),
    ),
    max_size=4,
)


def damaged(whole: bytes, edits) -> bytes:
    """The bytes after some edits at places that are given as shares of their length."""
    for kind, share, what in edits:
        place = int(share * len(whole))
        if kind == "flip" and place < len(whole):
            whole = whole[:place] + bytes([whole[place] ^ what]) + whole[place + 1 :]
        elif kind == "cut off":
            whole = whole[:place]
        elif kind == "cut out":
            whole = whole[:place] + whole[place + what :]
        elif kind == "repeat":
            whole = whole[:place] + whole[place : place + what] * 5 + whole[place:]
        elif kind == "splice":
            whole = whole[:place] + what + whole[place:]
        elif kind in ("overwrite", "overwrite the start"):
            place = place if kind == "overwrite" else int(share * 5) * 4
            whole = whole[:place] + what + whole[place + len(what) :]
    return whole


NUMBERS = st.sampled_from(
    [0, -1, 1, 2, 10**9, 2**63, -(2**63), 10**399, 0.5, -0.0, 1e308, float("nan"), float("inf")]
)
LEAVES = st.none() | st.booleans() | NUMBERS | st.integers() | st.floats() | st.text(max_size=8)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
GRAFTS = st.lists(st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=6), TREES), max_size=3)


def grafted(tree, grafts):
    """A copy of a JSON tree with other values in some places, each found by the numbers of its branches."""
    tree = json.loads(json.dumps(tree))
    for route, value in grafts:
        here = tree
        for i, number in enumerate(route):
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                break
            key = keys[number % len(keys)]
            if i == len(route) - 1 or not isinstance(here[key], (dict, list)):
                here[key] = value
                break
            here = here[key]
    return tree


def read_text(edits, text: str) -> str:
    return damaged(text.encode(), edits).decode("utf-8", errors="replace")


# Data sets


IMAGES, LABELS = np.arange(4 * 3 * 3, dtype=np.uint8).reshape(4, 3, 3), np.arange(4, dtype=np.uint8)
IDX = [idx(array) for array in (IMAGES, LABELS, IMAGES, LABELS)]
RECORDS = bytes(3073) + b"\x03" + bytes(range(256)) * 12
FOUR = st.integers(0, 3)


def check_dataset(dataset: Dataset | None) -> None:
    if dataset is not None:
        assert len(dataset.train_images) == len(dataset.train_labels)
        assert int(dataset.train_labels.max()) < len(dataset.classes)
        assert all(name.isprintable() for name in dataset.classes)


def read_idx(where: Path, contents: list[bytes], ending: str) -> None:
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    for name, content in zip(IDX_FILES, contents, strict=True):
        (where / f"{name}{ending}").write_bytes(content)
    check_dataset(answer(f"IDX{ending}", lambda: load("mnist", where), "mnist"))


@fuzzed(300, which=FOUR, edits=EDITS, junk=st.none() | st.binary(max_size=200))
def test_an_idx_file_is_read_or_refused(folder, which, edits, junk):
    content = damaged(IDX[which], edits) if junk is None else junk
    read_idx(folder / "mnist", [*IDX[:which], content, *IDX[which + 1 :]], "")


@fuzzed(250, which=FOUR, inner=EDITS, outer=EDITS, junk=st.none() | st.binary(max_size=200))
def test_a_gzipped_idx_file_is_read_or_refused(folder, which, inner, outer, junk):
    packed = [gzip.compress(content, 1) for content in IDX]
    content = damaged(gzip.compress(damaged(IDX[which], inner), 1), outer) if junk is None else junk
    read_idx(folder / "mnist", [*packed[:which], content, *packed[which + 1 :]], ".gz")


@fuzzed(150, which=st.integers(0, 5), edits=EDITS, junk=st.none() | st.binary(max_size=200))
def test_a_cifar_file_is_read_or_refused(folder, which, edits, junk):
    (folder / "cifar").mkdir(exist_ok=True)
    for i, name in enumerate(SOURCES["cifar10"].files):
        content = RECORDS if i != which else damaged(RECORDS, edits) if junk is None else junk
        (folder / "cifar" / name).write_bytes(content)
    check_dataset(answer("CIFAR-10", lambda: load("cifar10", folder / "cifar"), "cifar"))


ARRAYS = {
    "train_images": npy(IMAGES),
    "train_labels": npy(LABELS.astype(np.int64)),
    "test_images": npy(IMAGES / 40),
    "test_labels": npy(LABELS),
    "unlabeled_images": npy(IMAGES[..., None]),
    "classes": npy(np.array(["ant", "bee", "cat", "dog\n"])),
}
DTYPES = st.sampled_from(
    [
        "|u1",
        "<i8",
        ">i2",
        "<u8",
        "<f2",
        ">f4",
        "<f8",
        "|b1",
        "<U3",
        "|S4",
        "<c8",
        "<M8[s]",
        "|V3",
        "<f16",
        "<U0",
        "|S0",
    ]
)
SHAPES = st.lists(st.sampled_from([0, 1, 3, 4, 5]), max_size=5).map(tuple)


@st.composite
def any_arrays(draw) -> bytes:
    """The array of any type and shape, with any bytes."""
    dtype, shape = np.dtype(draw(DTYPES)), draw(SHAPES)
    size = int(np.prod(shape)) * dtype.itemsize
    content = (draw(st.binary(min_size=1, max_size=20)) * (size + 1))[:size]
    stream = io.BytesIO()
    header = {"descr": dtype.str, "fortran_order": draw(st.booleans()), "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + content


MEMBERS = st.dictionaries(
    st.sampled_from(list(ARRAYS)), st.none() | EDITS | any_arrays() | st.binary(max_size=99), max_size=3
)


@fuzzed(
    450,
    members=MEMBERS,
    twice=st.sampled_from([None, None, None, *ARRAYS]),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]),
    edits=st.just([]) | EDITS,
    junk=st.none() | st.none() | st.binary(max_size=200),
)
def test_an_npz_file_is_read_or_refused(folder, members, twice, method, edits, junk):
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")
        for name, whole in ARRAYS.items():
            change = members.get(name, [])
            content = change if isinstance(change, bytes) else damaged(whole, change or [])
            for _ in range(0 if change is None else 2 if name == twice else 1):
                archive.writestr(f"{name}.npy", content)
    path = folder / "own.npz"
    path.write_bytes(damaged(stream.getvalue(), edits) if junk is None else junk)
    check_dataset(answer("npz", lambda: load(str(path)), str(path)))


def saved(kind: str, **options) -> bytes:
    """A picture as a file of that kind."""
    stream = io.BytesIO()
    Image.fromarray(np.arange(9 * 7 * 3, dtype=np.uint8).reshape(9, 7, 3)).save(stream, kind, **options)
    return stream.getvalue()


PICTURES = [saved(kind) for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm")]
PICTURES += [saved("tiff", compression="tiff_lzw"), saved("png", transparency=(0, 1, 2))]


@fuzzed(400, which=st.integers(0, len(PICTURES) - 1), edits=EDITS, junk=st.none() | st.binary(max_size=200))
def test_a_picture_is_read_or_refused(folder, which, edits, junk):
    path = folder / "picture"
    path.write_bytes(damaged(PICTURES[which], edits) if junk is None else junk)
    answer("beginning of a picture", lambda: looked_at(path), str(path))
    images = answer("picture", lambda: read_pictures([path], (3, 4, 4)), str(path))
    assert images is None or (images.shape == (1, 3, 4, 4) and images.dtype == torch.uint8)


A_FILE = npy(np.arange(3 * 12, dtype=np.uint8).reshape(3, 1, 3, 4))


@fuzzed(
    250,
    content=EDITS.map(lambda edits: damaged(A_FILE, edits)) | any_arrays() | st.binary(max_size=200),
    ending=st.sampled_from([".npy", ".npy", ".npy", ".bin", ".raw", ".NPY", ".txt", ""]),
    edits=st.just([]) | EDITS,
)
def test_a_file_of_unlabeled_images_is_read_or_refused(folder, content, ending, edits):
    path = folder / f"unlabeled{ending}"
    path.write_bytes(content)
    files = answer("unlabeled images", lambda: image_files([str(path)], (1, 3, 4)), str(path))
    if files is None:
        return
    images = Reservoir(torch.zeros((0, 1, 3, 4), dtype=torch.uint8), files)
    assert len(images) * 12 <= len(content)
    assert images[torch.tensor([len(images) - 1])].shape == (1, 1, 3, 4)
    # What happens to a file later is noticed when it is read, if at all.
    path.write_bytes(damaged(content, edits))
    answer("unlabeled images", lambda: images[torch.arange(len(images))], str(path))


# Files of runs


RECIPE_TEXTS = [recipes.dumps(recipe) for recipe in RECIPES.values()]
RECIPE_TREES = [json.loads(text) for text in RECIPE_TEXTS]
A_RECIPE = st.integers(0, len(RECIPE_TEXTS) - 1)


@fuzzed(200, which=A_RECIPE, grafts=GRAFTS)
def test_a_recipe_with_other_values_is_read_or_refused(which, grafts):
    check_recipe(json.dumps(grafted(RECIPE_TREES[which], grafts)))


@fuzzed(200, which=A_RECIPE, edits=EDITS, junk=st.none() | st.text(max_size=50))
def test_a_recipe_whose_text_is_damaged_is_read_or_refused(which, edits, junk):
    check_recipe(read_text(edits, RECIPE_TEXTS[which]) if junk is None else junk)


def check_recipe(text: str) -> None:
    recipe = answer("recipe", lambda: recipes.loads(text, "mine.json"), "")
    if recipe is not None:
        assert recipes.loads(recipes.dumps(recipe)) == recipe


def a_report() -> Report:
    attack = {"budget": "some", "settings": "PGD()", "rejected": 0, "seconds": 1.5}
    labels, attacked = torch.arange(8) % 3, torch.arange(8) % 2
    return Report(
        labels=labels,
        clean=torch.zeros_like(labels),
        attacks=(
            AttackResult(name="pgd", predicted=attacked, **attack),
            AttackResult(name="l2", predicted=labels, median_size=0.5, **attack),
        ),
        seed=0,
        provenance={"torch": "2"},
        recipe=RECIPE_TREES[0],
    )


REPORT_TEXT = a_report().dumps()


@fuzzed(150, grafts=GRAFTS)
def test_a_report_with_other_values_is_read_or_refused(grafts):
    check_report(json.dumps(grafted(json.loads(REPORT_TEXT), grafts)))


@fuzzed(150, edits=EDITS, junk=st.none() | st.text(max_size=50))
def test_a_report_whose_text_is_damaged_is_read_or_refused(edits, junk):
    check_report(read_text(edits, REPORT_TEXT) if junk is None else junk)


def check_report(text: str) -> None:
    report = answer("report", lambda: reports.loads(text, "report.json"), "report.json")
    if report is not None:
        assert all(line.isprintable() for line in report.table().splitlines())
        assert reports.loads(report.dumps()).seed == report.seed


SWEEP_TEXT = sweeps.Sweep(eps=0.1, reports={0.0: a_report(), 1.0: a_report()}).dumps()


@fuzzed(100, grafts=st.none() | GRAFTS, edits=EDITS)
def test_a_sweep_is_read_or_refused(grafts, edits):
    damage = read_text(edits, SWEEP_TEXT) if grafts is None else json.dumps(grafted(json.loads(SWEEP_TEXT), grafts))
    found = answer("sweep", lambda: sweeps.loads(damage, "sweep.json"), "sweep.json")
    if found is not None:
        assert sweeps.loads(found.dumps()).reports.keys() == found.reports.keys()


LOG = "".join(json.dumps({"step": step, "standard": 1.5, "rate": 0.1}) + "\n" for step in (1, 50, 100)).encode()


@fuzzed(200, edits=EDITS, line=st.none() | TREES, junk=st.none() | st.binary(max_size=60))
def test_a_log_is_read_or_refused(folder, edits, line, junk):
    run = RunDirectory(folder)
    content = damaged(LOG, edits) if junk is None else junk
    (folder / "log.jsonl").write_bytes(content + b"" if line is None else content + json.dumps(line).encode())
    records = answer("log", run.read_log, "log.jsonl")
    if records is not None:
        answer("log", lambda: run.forget_log_after(60), "log.jsonl")


# The command line


OPTIONS = [
    "--help", "-h", "--version", "--dry-run", "--together", "--out", "--from", "--data", "--data.name",
    "--data.labeled", "--unlabeled", "--data.unlabeled-files", "--device", "--seed", "--steps", "--batch",
    "--model.channels", "--model.hidden",
    "--objective.weight", "--objective.solver.steps", "--optimizer.rate", "--optimizer.rate.peak", "--ramp.over",
    "--validation.keep", "--labeler", "--precision", "--microbatch", "--json", "--attacks", "--images", "--trust",
    "--trust-seconds", "--budget.eps", "--checkpoint-seconds", "--name", "--", "-", "--no-such-option",
]  # fmt: skip
JUNK = st.text(st.characters(exclude_characters="\0"), max_size=8)
VALUES = st.sampled_from(
    [
        "1",
        "0",
        "-1",
        "0.5",
        "1e999",
        "nan",
        "None",
        "True",
        "cpu",
        "cuda:99",
        "float32",
        "pgd,,",
        "",
        "9" * 400,
    ]
)
SINGLE = st.sampled_from(OPTIONS) | VALUES | st.sampled_from([*list(RECIPES)[:6], "recipe.json", "parts"]) | JUNK
PAIR = st.tuples(st.sampled_from(OPTIONS), VALUES | JUNK)
WORDS_OF_A_LINE = st.lists(SINGLE.map(lambda word: (word,)) | PAIR, max_size=4)
OPENINGS = st.one_of(
    st.sampled_from(list(RECIPES)).map(lambda name: ["train", name]),
    st.sampled_from(["recipe.json", "a-run", "nowhere"]).map(lambda name: ["train", "--from", name]),
    st.sampled_from(["a-run", "nowhere", "recipe.json"]).map(lambda name: ["evaluate", name]),
    st.sampled_from(["a-run", "nowhere", "recipe.json"]).map(lambda name: ["predict", name, "recipe.json"]),
    st.sampled_from([".", "a-run", "nowhere", "recipe.json"]).map(lambda name: ["pack", name, "--out", "new.npz"]),
    st.sampled_from(["recipes", "defenses", "attacks", "parts", "plans"]).map(lambda kind: ["list", kind]),
    st.sampled_from(["train", "evaluate", "predict", "pack", "list", "demo", "tarin", "--help", "--version"]).map(
        lambda word: [word]
    ),
    JUNK.map(lambda word: [word]),
)
HARMLESS = {"train": ["--dry-run"], "demo": ["--no-such-option"]}
"""what keeps a command from taking long"""


@fuzzed(200, opening=OPENINGS, words=WORDS_OF_A_LINE)
def test_the_command_line_ends_or_says_no(folder, opening, words):
    tried("command line")
    place = folder / "commands"
    (place / "a-run").mkdir(parents=True, exist_ok=True)
    for file in (place / "recipe.json", place / "a-run" / "recipe.json"):
        file.write_text(RECIPE_TEXTS[0])
    line = [*opening, *(word for group in words for word in group), *HARMLESS.get(opening[0], [])]
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(place), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), in_time():
        try:
            main(line)
        except SystemExit as end:
            if isinstance(end.code, str):
                check_sentence(printable(end.code), "unperturbed: ")
