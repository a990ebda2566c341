"""Files from strangers: nothing in them is run, expanded without bound, written elsewhere or printed as it is."""

import gzip
import io
import json
import pickle
import resource
import struct
import sys
import tarfile
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from file_contents import Malicious, npy
from unperturbed import archives, packing
from unperturbed import recipe as recipes
from unperturbed import report as reports
from unperturbed.archives import unpack
from unperturbed.checkpoints import FORMAT, sealed
from unperturbed.cli import main
from unperturbed.datasets import IDX_FILES, SOURCES, load
from unperturbed.models import DigitsCNN
from unperturbed.npz import most_expanded
from unperturbed.printing import printable, quoted, shortened
from unperturbed.progress import Bars, Lines
from unperturbed.recipes import RECIPES
from unperturbed.report import AttackResult, Report
from unperturbed.runs import RunDirectory

NASTY = "\x1b[31m[red]evil[/]\r\n\x07\u202e:smile:"
"""colors, markup, a bell, another line and letters that run backwards"""
SPELLED = r"\x1b[31m[red]evil[/]\r\n\x07\u202e:smile:"
GIBIBYTE = 2**30
CPU = torch.device("cpu")


@pytest.fixture
def harm(tmp_path):
    """The file that unpickling would make; it must not be there at the end."""
    file = tmp_path / "harm"
    yield file
    assert not file.exists()


@pytest.fixture
def little_memory():
    """The test must not take more than 300 MiB over what there was before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 300 * 2**20


def refusal(kind: type[Exception], function, *arguments) -> str:
    """What is said when a stranger's file is refused, checked to be one printable line."""
    with pytest.raises(kind) as refused:
        function(*arguments)
    text = str(refused.value)
    assert text.isprintable()
    assert len(text) < 1000
    return text


def npy_header(descr: str, shape: str) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def members(**changes: bytes | None) -> dict[str, bytes]:
    images, labels = np.zeros((3, 4, 4), np.uint8), np.arange(3)
    whole = {
        "train_images": npy(images),
        "train_labels": npy(labels),
        "test_images": npy(images),
        "test_labels": npy(labels),
    }
    return {name: content for name, content in (whole | changes).items() if content is not None}


def write_npz(path: Path, contents: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> str:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in contents.items():
            archive.writestr(f"{name}.npy", content)
    return str(path)


# Nothing is unpickled


def test_the_malicious_object_is_one(tmp_path):
    pickle.loads(pickle.dumps(Malicious(tmp_path / "made")))
    assert (tmp_path / "made").exists()


def test_a_malicious_checkpoint_is_refused(tmp_path, harm):
    run, state = RunDirectory(tmp_path), {"format": FORMAT, "step": 1, "harm": Malicious(harm)}
    torch.save(state, run.checkpoint)
    assert "no whole checkpoint" in refusal(ValueError, run.read_checkpoint, CPU)
    for content in (pickle.dumps(state), sealed(pickle.dumps(state, protocol=2) + b"..")):
        run.checkpoint.write_bytes(content)
        assert "no whole checkpoint" in refusal(ValueError, run.read_checkpoint, CPU)


def test_a_malicious_checkpoint_that_looks_like_ours_is_refused(tmp_path, harm):
    run = RunDirectory(tmp_path)
    run.write_checkpoint({"step": 1, "harm": Malicious(harm)})
    assert "no whole checkpoint" in refusal(ValueError, run.read_checkpoint, CPU)


@pytest.mark.parametrize("wrapped", ["pickle", "torch"])
def test_malicious_weights_are_refused(tmp_path, harm, wrapped):
    run = RunDirectory(tmp_path)
    if wrapped == "pickle":
        run.weights.write_bytes(pickle.dumps(Malicious(harm)))
    else:
        torch.save({"weight": Malicious(harm)}, run.weights)
    text = refusal(ValueError, run.read_weights, DigitsCNN()((1, 8, 8), 10))
    assert "does not hold the weights" in text


def test_malicious_arrays_are_refused(tmp_path, harm):
    objects = npy(np.array([Malicious(harm)] * 3, dtype=object), allow_pickle=True)
    for name in ("train_images", "train_labels", "classes"):
        path = write_npz(tmp_path / "own.npz", members(**{name: objects}))
        assert f"own.npz holds Python objects in {name}: save it again, as plain" in refusal(ValueError, load, path)
    (tmp_path / "own.npz").write_bytes(pickle.dumps(Malicious(harm)))
    assert "not an .npz file" in refusal(ValueError, load, path)
    write_npz(tmp_path / "own.npz", members(train_labels=pickle.dumps(Malicious(harm))))
    assert "holds train_labels in another format than numpy's" in refusal(ValueError, load, path)


def test_objects_hidden_in_records_are_refused(tmp_path, harm):
    header = npy_header("[('a', '|O')]", "(3,)")
    path = write_npz(tmp_path / "own.npz", members(train_labels=header + pickle.dumps(Malicious(harm))))
    assert "holds Python objects in train_labels" in refusal(ValueError, load, path)


def test_a_cifar_batch_that_is_a_pickle_is_refused(tmp_path, harm):
    for name in SOURCES["cifar10"].files:
        (tmp_path / name).write_bytes(pickle.dumps({b"data": Malicious(harm)}))
    assert "expected a multiple of 3073" in refusal(ValueError, load, "cifar10", tmp_path)


def test_the_package_never_calls_an_unpickler():
    package = Path(recipes.__file__).parent
    for file in package.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        assert "import pickle" not in source
        assert "allow_pickle=True" not in source
        assert "weights_only=False" not in source
        assert source.count("torch.load(") == source.count("weights_only=True")


# Bombs


def zeros_npy(size: int) -> bytes:
    return npy_header("'|u1'", f"({size // 16}, 4, 4)") + bytes(size)


def test_an_array_that_expands_to_gigabytes_is_refused_by_its_declared_size(tmp_path, little_memory):
    path = write_npz(tmp_path / "own.npz", members(train_images=zeros_npy(80 * 2**20)))
    size = Path(path).stat().st_size
    assert size < 200_000
    assert f"has {size} bytes and expands to" in refusal(ValueError, load, path)


def test_bombs_are_counted_together(tmp_path, little_memory):
    half = zeros_npy(60 * 2**20)
    path = write_npz(tmp_path / "own.npz", members(train_images=half, test_images=half))
    assert "expands to" in refusal(ValueError, load, path)


def test_a_header_that_promises_gigabytes_is_refused(tmp_path, little_memory):
    header = npy_header("'|u1'", f"({4 * GIBIBYTE}, 4, 4)")
    path = write_npz(tmp_path / "own.npz", members(train_images=header + bytes(48)))
    assert f"train_images with 48 bytes, expected {64 * GIBIBYTE}" in refusal(ValueError, load, path)


def test_an_array_that_expands_beyond_what_is_declared_is_read_no_further(tmp_path, little_memory):
    """The sizes that the archive declares are lowered; what is compressed goes on."""
    path = Path(write_npz(tmp_path / "own.npz", members(train_images=zeros_npy(60 * 2**20))))
    declared = struct.pack("<I", len(zeros_npy(60 * 2**20)))
    content = path.read_bytes()
    assert content.count(declared) == 2
    path.write_bytes(content.replace(declared, struct.pack("<I", len(zeros_npy(48)))))
    assert "own.npz" in refusal(ValueError, load, str(path))


def test_an_honest_file_may_expand_as_far_as_images_do(tmp_path):
    images = np.zeros((100_000, 4, 4), np.uint8)
    path = write_npz(
        tmp_path / "own.npz", members(train_images=npy(images), train_labels=npy(np.zeros(100_000, int)))
    )
    assert len(load(path).train_images) == 100_000
    assert most_expanded(Path(path).stat().st_size) > images.size


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("count", [2**31, 2**20])
def test_an_idx_header_that_promises_too_much_is_refused(tmp_path, little_memory, compressed, count):
    content = struct.pack(">BBBB3I", 0, 0, 8, 3, count, 28, 28) + bytes(1000)
    for name in IDX_FILES:
        (tmp_path / (f"{name}.gz" if compressed else name)).write_bytes(
            gzip.compress(content) if compressed else content
        )
    text = refusal(ValueError, load, "mnist", tmp_path)
    assert "absurd shape" in text if count == 2**31 else "holds only 1016 bytes, expected 822083600" in text


def test_a_gzipped_idx_file_that_expands_too_far_is_read_no_further(tmp_path, little_memory):
    count = 100 * 2**20
    content = gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, count, 1, 1) + bytes(count))
    for name in IDX_FILES:
        (tmp_path / f"{name}.gz").write_bytes(content)
    assert "holds at least 7" in refusal(ValueError, load, "mnist", tmp_path)


def test_predictions_that_expand_together_without_end_are_refused():
    text = report_with("pgd", "some").dumps()
    tree = json.loads(text)
    bomb = packing.packed(torch.zeros(2**21))
    tree["attacks"] = [tree["attacks"][0] | {"name": f"attack {i}"} for i in range(40)]
    tree["samples"] = {"labels": bomb, "clean": bomb, "attacked": {f"attack {i}": bomb for i in range(40)}}
    assert "predictions are damaged" in refusal(ValueError, reports.loads, json.dumps(tree))
    tree["attacks"] = tree["attacks"][:1] * 1000
    assert "two attacks of one name" in refusal(ValueError, reports.loads, json.dumps(tree))


# Arrays that are wrong


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_labels": npy(np.array([0, -1, 2]))}, "train_labels must lie in 0 to 2, got -1"),
        ({"train_labels": npy(np.array([0, 1, 2**60]))}, "has a label 1152921504606846976 among 6 labels"),
        ({"train_labels": npy(np.array([0, 1, 2**64 - 1], np.uint64))}, "class numbers, got 18446744073709551615"),
        ({"train_labels": npy(np.zeros(3, complex))}, "train_labels of the type <c16, expected bytes, integers"),
        ({"train_labels": npy(np.zeros(3, "M8[s]"))}, "train_labels of the type <M8[s], expected bytes"),
        ({"train_labels": npy(np.zeros(3, [("a\n", "i4")]))}, "with a header that describes no plain array"),
        ({"train_labels": npy(np.zeros(3, bool))}, "train_labels must be integers in one dimension, got bool"),
        ({"train_images": npy(np.zeros((3, 4, 4), "U1"))}, "must be uint8 or floating point in [0, 1], got <U1"),
        ({"train_images": npy_header("'|u1'", "(3, -4, 4)")}, "of no proper shape, (3, -4, 4)"),
        ({"train_images": npy_header("'|u1'", f"(3, {10**20}, 4)")}, "of the absurd shape (3, 1000"),
        ({"train_images": npy_header("'|u1'", f"({'1, ' * 40})")}, "of no proper shape"),
        ({"train_images": npy_header("'|u1'", "(3, 4, 4)") + b"1"}, "with 1 bytes, expected 48 for its shape"),
        ({"train_images": npy_header("__import__('os')", "(3, 4, 4)")}, "describes no plain array"),
        ({"train_images": npy_header("'|u1'", "(" + "[" * 5000)}, "describes no plain array"),
        ({"train_images": b"\x93NUMPY\x02\x00" + b"\xff" * 400}, "a header of 4294967295 bytes, expected at most"),
        ({"train_images": b"\x93NUMPY\x09\x00" + b"\xff" * 400}, "in another format than numpy's"),
        ({"train_images": None}, "lacks train_images: save it with all of"),
        (
            {"classes": npy(np.zeros((3, 2), "U1"))},
            "classes must be texts in one dimension, got <U1 of the shape (3, 2)",
        ),
        ({"classes": npy(np.array([b"\xff\xfe", b"a", b"b"]))}, "classes hold what is no text"),
        ({"classes": npy_header("'<U1'", "(3,)") + b"\xff" * 12}, "classes hold what is no text"),
    ],
)
def test_arrays_that_are_wrong_are_refused(tmp_path, changes, words):
    path = write_npz(tmp_path / "own.npz", members(**changes))
    text = refusal(ValueError, load, path)
    assert text.startswith(path)
    assert words in text


def test_an_array_that_is_there_twice_is_refused(tmp_path):
    path = write_npz(tmp_path / "own.npz", members())
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("train_labels.npy", npy(np.arange(3)))
    assert "own.npz holds train_labels twice: save it again" in refusal(ValueError, load, path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_arrays_compressed_as_numpy_never_does_are_refused(tmp_path, method):
    path = write_npz(tmp_path / "own.npz", members(), method)
    assert f"compressed by method {method}, which numpy does not write" in refusal(ValueError, load, path)


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.arange(48, dtype=np.uint8).reshape(3, 4, 4)), np.ones((3, 4, 4), ">f8")]
)
def test_every_order_of_bytes_and_axes_is_read_as_numpy_reads_it(tmp_path, array):
    path = write_npz(tmp_path / "own.npz", members(train_images=npy(array)))
    expected = array if array.dtype == np.uint8 else 255 * array
    assert np.array_equal(load(path).train_images[:, 0].numpy(), expected)


# Archives that were downloaded


def tar(path: Path, *entries: tuple[str, bytes | str], kind: bytes = tarfile.SYMTYPE) -> Path:
    """An archive of files, and of links where there is a text in place of contents."""
    with tarfile.open(path, "w:gz") as archive:
        for name, what in entries:
            member = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                member.size = len(what)
                archive.addfile(member, io.BytesIO(what))
            else:
                member.type, member.linkname = kind, what
                archive.addfile(member)
    return path


def names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["../a.bin", "/a.bin", "x/../../a.bin", "./a.bin"])
def test_a_member_is_written_beside_its_archive_wherever_it_says_it_belongs(tmp_path, name):
    (tmp_path / "folder").mkdir()
    archive = tar(tmp_path / "folder" / "set.tar.gz", ("./", b""), (name, b"content"), ("../b.bin", b"other"))
    unpack(archive, ["a.bin"])
    assert names_below(tmp_path) == {"folder", "folder/set.tar.gz", "folder/a.bin"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_left_out(tmp_path, kind):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "folder").mkdir()
    archive = tar(tmp_path / "folder" / "set.tar.gz", ("a.bin", str(secret)), ("a.bin.part", str(secret)), kind=kind)
    unpack(archive, ["a.bin"])
    assert names_below(tmp_path / "folder") == {"set.tar.gz"}


def test_a_link_that_lies_in_the_way_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.bin.part").symlink_to(victim)
    (tmp_path / "folder" / "a.bin").symlink_to(tmp_path / "nowhere")
    unpack(tar(tmp_path / "folder" / "set.tar.gz", ("a.bin", b"content")), ["a.bin"])
    assert victim.read_text() == "mine"
    assert (tmp_path / "folder" / "a.bin").read_bytes() == b"content"


def test_another_process_may_unpack_the_archive_meanwhile(tmp_path, monkeypatch):
    archive, copied, others = tar(tmp_path / "set.tar.gz", ("a.bin", b"content")), archives.copied_from, [unpack]

    def copied_by_two(*arguments):
        names = copied(*arguments)
        while others:
            others.pop()(archive, ["a.bin"])
        return names

    monkeypatch.setattr(archives, "copied_from", copied_by_two)
    unpack(archive, ["a.bin"])
    assert (tmp_path / "a.bin").read_bytes() == b"content"
    assert names_below(tmp_path) == {"set.tar.gz", "a.bin"}


def test_an_archive_that_is_wrong_is_refused(tmp_path, little_memory):
    twice = tar(tmp_path / "twice.tar.gz", ("a.bin", b"1"), ("x/a.bin", b"2"))
    assert "holds a.bin twice: fetch it again" in refusal(ValueError, unpack, twice, ["a.bin"])
    bomb = tar(tmp_path / "bomb.tar.gz", ("a.bin", bytes(100 * 2**20)))
    assert "expands to too much: fetch it again" in refusal(ValueError, unpack, bomb, ["a.bin"])


def test_an_archive_that_is_cut_off_is_refused(tmp_path):
    whole = tar(tmp_path / "whole.tar.gz", ("a.bin", bytes(range(256)) * 200)).read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:30], whole[:40] + b"\xff" * 8 + whole[48:]):
        (tmp_path / "cut.tar.gz").write_bytes(content)
        assert "is cut off or not an archive" in refusal(ValueError, unpack, tmp_path / "cut.tar.gz", ["a.bin"])
    assert names_below(tmp_path) == {"whole.tar.gz", "cut.tar.gz"}


# What is printed


def test_unprintable_letters_are_spelled_out_and_others_kept():
    assert printable(NASTY) == SPELLED
    assert printable("größe – 数字.npz") == "größe – 数字.npz"
    assert printable("\ud800") == r"\ud800"
    assert printable(Path("a\tb")) == r"a\tb"


def test_long_words_are_cut():
    assert shortened("a" * 10, 10) == "a" * 10
    assert shortened("a" * 11, 10) == "a" * 10 + " …"
    assert quoted("\n" * 3) == r"'\n\n\n'"
    assert len(quoted(["x" * 10**6])) < 110


def test_class_names_are_fit_to_print(tmp_path):
    path = write_npz(tmp_path / "own.npz", members(classes=npy(np.array([NASTY, "b", "c"]))))
    assert load(path).classes == (SPELLED, "b", "c")


def test_names_of_files_are_spelled_out_in_errors(tmp_path):
    folder = tmp_path / NASTY.replace("/", "")
    spelled = SPELLED.replace("/", "")
    assert spelled in refusal(FileNotFoundError, load, str(folder / "own.npz"))
    assert spelled in refusal(FileNotFoundError, load, "mnist", folder)
    folder.mkdir()
    assert spelled in refusal(FileNotFoundError, load, "mnist", folder)
    assert spelled in refusal(ValueError, load, write_npz(folder / "own.npz", members(train_labels=None)))
    assert spelled in refusal(
        ValueError, load, write_npz(folder / "own.npz", members(train_labels=npy(np.arange(4))))
    )
    for name in IDX_FILES:
        (folder / name).write_bytes(b"")
    assert spelled in refusal(ValueError, load, "mnist", folder)
    assert spelled in refusal(FileNotFoundError, recipes.read, folder / "recipe.json")
    (folder / "recipe.json").write_text('{"nme": 1}')
    assert spelled in refusal(ValueError, recipes.read, folder / "recipe.json")
    assert spelled in refusal(FileNotFoundError, reports.read, folder / "report.json")
    (folder / "report.json").write_text("{}")
    assert spelled in refusal(ValueError, reports.read, folder / "report.json")


def test_a_long_value_in_a_recipe_is_not_repeated_whole():
    tree = json.loads(recipes.dumps(RECIPES["digits-pixel-srt"]))
    for key in ("steps", "objective", "data", "labeler", "x" * 10**5):
        text = refusal(ValueError, recipes.loads, json.dumps(tree | {key: ["long"] * 10**5}))
        assert len(text) < 400
    assert "too large" in refusal(ValueError, recipes.loads, json.dumps(tree).replace(": 0", ": 1" + "0" * 4200))
    assert "too large" in refusal(ValueError, recipes.loads, json.dumps(tree).replace(": 0", ": 1" + "0" * 5000))


def report_with(name: str, budget: str) -> Report:
    numbers = torch.arange(4)
    attack = AttackResult(name=name, budget=budget, settings="", predicted=numbers, rejected=0, seconds=1.0)
    return Report(labels=numbers, clean=numbers, attacks=(attack,), seed=0, provenance={})


def test_the_table_of_a_report_spells_out_what_a_stranger_wrote():
    stored = report_with(NASTY, NASTY).dumps()
    report = reports.loads(stored)
    table = report.table(width=300)
    assert table.count(SPELLED) == 2
    assert all(line.isprintable() for line in table.splitlines())
    named = replace(report.attacks[0], name="pgd", precision=NASTY)
    assert f"searched in {SPELLED}" in replace(report, attacks=(named,)).table(width=300)


def test_progress_spells_out_the_names_of_runs_and_attacks(capsys):
    lines = Lines()
    lines.title = NASTY
    lines.warned(f"{NASTY} again")
    lines.attacked(NASTY, 1, 1, 0.5)
    assert capsys.readouterr().err.splitlines() == [
        f"{SPELLED}: warning: {SPELLED} again",
        f"{SPELLED}: {SPELLED}, 1 of 1 images, 50.0% unmoved",
    ]


def test_bars_spell_out_the_names_of_runs_and_attacks():
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=200, color_system=None)
    with Progress(console=console, auto_refresh=False) as progress:
        bars = Bars(progress)
        bars.title = NASTY
        bars.stepped(1, 2)
        bars.warned(NASTY)
        assert [task.description for task in progress.tasks] == [SPELLED]
    assert f"warning {SPELLED}: {SPELLED}" in written.getvalue()


def test_a_name_on_the_command_line_is_spelled_out_in_its_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNPERTURBED_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as end:
        main(["evaluate", NASTY])
    assert SPELLED in end.value.code
    assert end.value.code.isprintable()
