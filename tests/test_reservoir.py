"""Unlabeled images out of files: training as from memory, whoever reads them and however often it is killed."""

import json
import os
import random
import shutil
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from disturbed import Disturbing, killed_again_and_again, trained
from file_contents import Malicious, npy
from tiny import NETWORK, assert_same_end
from tiny import TINY as A_SECOND
from unperturbed import batches as batches_module
from unperturbed import cli, reservoir, trainer
from unperturbed import images as images_module
from unperturbed.averaging import Average
from unperturbed.batches import ProportionalBatches
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.images import parts, some_rows
from unperturbed.processes import Processes
from unperturbed.recipe import Recipe
from unperturbed.reservoir import Ahead, Reservoir, image_files
from unperturbed.runs import RunDirectory
from unperturbed.training import train, trainer_by

CPU = torch.device("cpu")
DIGIT = (1, 8, 8)
TINY = replace(A_SECOND, data=Data(labeled=100, unlabeled=60), steps=40)


def some_images(count: int, shape: tuple[int, ...] = DIGIT, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def written(folder: Path, images: np.ndarray, sizes: tuple[int, ...] = (100, 1, 57)) -> Path:
    """A folder of files with those images, by turns .npy and raw ones, the last one with what is left."""
    folder.mkdir(exist_ok=True)
    for number, piece in enumerate(np.split(images, np.cumsum(sizes))):
        if number % 2:
            (folder / f"part-{number}.bin").write_bytes(piece.tobytes())
        else:
            np.save(folder / f"part-{number}.npy", piece)
    (folder / "README.txt").write_text("of no concern")
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "files", some_images(300))


@pytest.fixture
def small_windows(monkeypatch):
    """Windows of 32 images, so that a few hundred are many."""
    monkeypatch.setattr(batches_module, "BLOCK", 8)
    monkeypatch.setattr(batches_module, "WINDOW", 32)


# The order


def batches(**changes) -> ProportionalBatches:
    return ProportionalBatches(**{"labeled": 20, "unlabeled": 205, "batch": 11, "seed": 3, "nearby": True} | changes)


def test_an_epoch_in_windows_draws_every_image_once_and_leaves_out_others_each_time(small_windows):
    order = batches(unlabeled=195)
    assert 195 % 32 == 3, "a last window that is smaller than what is left out would never be drawn"
    missed = []
    for epoch in range(6):
        steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
        drawn = torch.cat([order.unlabeled_rows(step) for step in steps])
        assert len(drawn.unique()) == len(drawn) > 185
        assert 0 <= drawn.min() <= drawn.max() < 195
        missed.append(set(range(195)) - set(drawn.tolist()))
    assert all(len(rows) > 3 for rows in missed)
    assert not set.intersection(*missed)


def test_images_drawn_at_a_time_lie_in_few_blocks_and_windows_differ_from_epoch_to_epoch(small_windows):
    order = batches(unlabeled=32 * 40, batch=32)
    spread = []
    for step in range(order.steps_per_epoch):
        rows = order.unlabeled_rows(step)
        edges = (rows.sort().values.diff() > 8).sum().item()
        spread.append(edges)
        assert edges <= 8, "a batch lies in at most two windows, each of four blocks"
    assert sum(spread) / len(spread) > 2
    assert not torch.equal(order.unlabeled_rows(0), order.unlabeled_rows(order.steps_per_epoch))
    within = torch.cat([order.unlabeled_rows(step) for step in range(order.steps_per_epoch)])
    assert (within.diff() == 1).float().mean() < 0.2, "also within a window images are shuffled"


def test_a_batch_in_windows_is_a_function_of_seed_and_number_alone(small_windows):
    order = batches()
    steps = list(range(50))
    found = {step: order.unlabeled_rows(step) for step in steps}
    random.Random(0).shuffle(steps)
    for step in steps:
        assert torch.equal(batches().unlabeled_rows(step), found[step])
    assert not torch.equal(batches(seed=4).unlabeled_rows(0), found[0])


@pytest.mark.parametrize("first", [0, 7])
def test_what_is_drawn_was_announced_some_time_before(small_windows, first):
    order = batches(unlabeled=32 * 6 + 13)
    announced = order.soon(first, fresh=True).tolist()
    for step in range(first, order.steps_per_epoch):
        announced += order.soon(step, fresh=False).tolist()
        assert set(order.unlabeled_rows(step).tolist()) <= {*announced}
    # Of the next epoch's first window, most was announced last.
    rows = order.unlabeled_rows(order.steps_per_epoch)
    assert sum(int(row) in announced[-32:] for row in rows) >= len(rows) / 2


def test_what_fits_into_a_window_comes_in_the_order_of_images_in_memory():
    for step in (0, 5, 40):
        assert torch.equal(batches().unlabeled_rows(step), batches(nearby=False).unlabeled_rows(step))


def test_the_order_of_eighty_million_images_takes_little_memory():
    order = batches(unlabeled=80_000_000, labeled=10_000, batch=128)
    step = order.steps_per_epoch // 2
    rows = order.unlabeled_rows(step)
    assert len(rows.unique()) == len(rows) >= 127
    assert sum(tensor.numel() for tensor in order.orders.window(80_000_000, 3, 0, 600)) == 2 * batches_module.WINDOW
    assert order.orders.permutation(80_000_000 // batches_module.BLOCK, 3, 0, "blocks").numel() == 78_125


def test_labeled_images_keep_a_share_of_each_batch_however_many_unlabeled_ones_there_are():
    order = batches(unlabeled=80_000_000, labeled=100, batch=128, least_labeled=32)
    assert {order.counts(step) for step in (0, 1, 1000, order.steps_per_epoch - 1)} == {(32, 96)}
    drawn = torch.cat([order.labeled_rows(step) for step in range(25)])
    assert drawn.bincount(minlength=100).tolist() == [8] * 100
    assert batches(unlabeled=30, least_labeled=2).counts(0)[0] > 2, "where their share is larger, it counts"
    with pytest.raises(
        ValueError, match=r"least_labeled \(--least-labeled\) must be from 1 to the batch of 11, got 12: lower it"
    ):
        batches(least_labeled=12)


def test_batches_in_which_labeled_images_leave_no_room_for_the_others_are_refused(folder, tmp_path):
    with pytest.raises(
        ValueError,
        match=r"least_labeled \(--least-labeled\) of 11 fills a batch of 11, so that none of 30 unlabeled images "
        r"would ever be drawn: raise batch \(--batch\), lower least_labeled if it is more than 1, or leave them out",
    ):
        batches(unlabeled=30, least_labeled=11)
    assert batches(unlabeled=30, least_labeled=10).counts(0)[1] > 0
    assert batches(labeled=40, unlabeled=0, least_labeled=11).counts(0) == (11, 0)
    recipe = recipe_with(folder, least_labeled=60)
    with pytest.raises(ValueError, match="of 60 fills a batch of 60"):
        train(recipe, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_so_many_labeled_images_go_into_a_run(folder, tmp_path):
    recipe = recipe_with(folder, least_labeled=50)
    run = trainer_by(recipe, load("digits"), parts(load("digits"), recipe.data), CPU)
    run.advance()
    assert run.outer.counts == (50, 10)


# Reading


def test_rows_are_those_of_all_files_in_order(folder, monkeypatch):
    monkeypatch.setattr(reservoir, "MOST_OPEN", 2)
    images = torch.from_numpy(some_images(300))
    resident = torch.from_numpy(some_images(20, seed=1))
    found = Reservoir(resident, image_files([str(folder)], DIGIT))
    whole = torch.cat([resident, images])
    assert (len(found), found.shape, found.dtype) == (320, (320, *DIGIT), torch.uint8)
    for rows in (torch.randperm(320), torch.tensor([319, 0, 19, 20, 20, 120, 119]), torch.arange(0)):
        assert torch.equal(found[rows], whole[rows])
        assert len(found.opened) <= 2


def test_files_and_folders_are_named_in_any_number_and_in_order(folder, tmp_path):
    np.save(tmp_path / "more.npy", some_images(4)[:, 0])
    files = image_files([str(tmp_path / "more.npy"), str(folder)], DIGIT)
    assert [file.path.name for file in files] == ["more.npy", "part-0.npy", "part-1.bin", "part-2.npy", "part-3.bin"]
    assert [file.count for file in files] == [4, 100, 1, 57, 142]


def test_a_reservoir_announces_files_in_pieces_and_only_what_lies_in_them(folder, monkeypatch):
    announced = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *stretch: announced.append(stretch[1:3]), raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_WILLNEED", 3, raising=False)
    found = Reservoir(torch.from_numpy(some_images(20)), image_files([str(folder)], DIGIT))
    found.announce(torch.tensor([18, 19, 20, 21, 119, 120, 121, 5]))
    header = found.files[0].start
    assert announced == [(header, 128), (header + 99 * 64, 64), (0, 64), (found.files[2].start, 64)]
    announced.clear()
    found.announce(torch.arange(0))
    found.announce(torch.arange(20))
    assert not announced


def test_a_file_system_that_takes_no_announcements_is_read_all_the_same(folder, monkeypatch):
    def refusing(*stretch: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", refusing, raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_WILLNEED", 3, raising=False)
    found = Reservoir(torch.zeros((0, *DIGIT), dtype=torch.uint8), image_files([str(folder)], DIGIT))
    found.announce(torch.arange(300))
    assert torch.equal(found[torch.arange(300)], torch.from_numpy(some_images(300)))


def test_batches_are_read_ahead_in_another_thread():
    read, threads, later = [], set(), threading.Event()

    def slowly(step: int, fresh: bool) -> torch.Tensor:
        threads.add(threading.current_thread())
        read.append((step, fresh))
        if step == 7:
            later.set()
        return torch.tensor(step)

    ahead = Ahead(slowly, 20)
    assert ahead(0).item() == 0
    assert later.wait(10.0), "nobody asked for step 7 yet"
    assert [ahead(step).item() for step in range(1, 20)] == list(range(1, 20))
    assert read == [(0, True), *((step, False) for step in range(1, 20))]
    assert threads.isdisjoint({threading.current_thread()})
    assert len(threads) == 1
    # Another place, as after a resumption.
    assert ahead(3).item() == 3
    assert read[20:21] == [(3, True)]


def test_what_goes_wrong_in_the_thread_is_said_where_the_images_are_needed():
    def failing(step: int, fresh: bool) -> torch.Tensor:
        if step == 2:
            raise ValueError("the disk is gone")
        return torch.tensor(step)

    ahead = Ahead(failing, 5)
    assert [ahead(0).item(), ahead(1).item()] == [0, 1]
    with pytest.raises(ValueError, match="the disk is gone"):
        ahead(2)


def test_of_many_rows_a_few_are_drawn_without_shuffling_all(rng):
    rows = some_rows(10**12, 1000, rng, sparing=True)
    assert len(rows.unique()) == len(rows) == 1000
    assert rows.max() > 9 * 10**11
    assert len(some_rows(300, 1000, rng, sparing=True)) == 300


# Training


def recipe_with(folder: Path, **changes) -> Recipe:
    return replace(TINY, data=replace(TINY.data, unlabeled_files=(str(folder),)), **changes)


def weights_of(recipe: Recipe, images) -> list[torch.Tensor]:
    run = trainer_by(recipe, load("digits"), images, CPU)
    if isinstance(images.unlabeled, torch.Tensor):
        run.outer.batches = replace(run.batches, nearby=True)
    run.run()
    return [*run.f.state_dict().values(), run.probe]


@pytest.mark.parametrize("windows", ["one", "many"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"microbatch": 25, "weight_perturbation": 0.01},
        {"averaging": Average(decay=0.9), "labeler": "average"},
    ],
    ids=["plain", "parts", "average"],
)
def test_training_from_files_is_training_from_memory_to_the_bit(folder, windows, changes, request):
    if windows == "many":
        request.getfixturevalue("small_windows")
    recipe = recipe_with(folder, **changes)
    from_files = parts(load("digits"), recipe.data)
    assert len(from_files.unlabeled) == 360
    in_memory = replace(from_files, unlabeled=from_files.unlabeled[torch.arange(360)])
    mine, its = weights_of(recipe, from_files), weights_of(recipe, in_memory)
    assert all(map(torch.equal, mine, its))
    others = replace(in_memory, unlabeled=in_memory.unlabeled.flip(0))
    assert not all(map(torch.equal, mine, weights_of(recipe, others)))
    assert from_files.checksum() == in_memory.checksum() != others.checksum()


def test_batchnorm_is_estimated_on_images_from_files_too(folder):
    recipe = recipe_with(folder, averaging=Average(decay=0.9, batchnorm="estimated"))
    from_files = parts(load("digits"), recipe.data)
    in_memory = replace(from_files, unlabeled=from_files.unlabeled[torch.arange(360)])
    mine, its = weights_of(recipe, from_files), weights_of(recipe, in_memory)
    assert all(map(torch.equal, mine, its))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows knows no SIGKILL")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_run_from_files_that_is_killed_ends_bit_for_bit_as_one_that_was_not(folder, tmp_path, small_windows):
    recipe, run = recipe_with(folder, steps=100), RunDirectory(tmp_path / "killed")
    whole = trained(recipe, tmp_path / "whole")
    killed_again_and_again(recipe, run, 5)
    assert 4 <= run.read_checkpoint(CPU)["step"] < 100
    assert_same_end(trained(recipe, run.path), whole)


WORDS = ["--data.labeled", "100", "--data.unlabeled", "60", "--steps", "12", "--batch", "60", "--log-every", "5"]
WORDS += [*NETWORK, "--objective.solver.steps", "1", "--device", "cpu"]


def test_test_images_in_files_are_told_of(folder, tmp_path, capsys, monkeypatch):
    test = load("digits").test_images.numpy()
    np.save(folder / "part-7.npy", test[5:25])
    words = ["train", "digits-pixel-srt", *WORDS, "--unlabeled", str(folder), "--out"]
    cli.main([*words, str(tmp_path / "all")])
    told = "20 test images can also be found in the files of unlabeled images, to the last bit: accuracy on what was "
    assert told in capsys.readouterr().err
    monkeypatch.setattr(images_module, "MOST_SOUGHT", 64)
    cli.main([*words, str(tmp_path / "some")])
    told = " test images can also be found in the files of unlabeled images, of which 64 images were looked at, to "
    assert told in capsys.readouterr().err
    (folder / "part-7.npy").unlink()
    cli.main([*words, str(tmp_path / "none")])
    assert "test image" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "shape"), [(50, DIGIT), (10**9, DIGIT), (10**8, (3, 224, 224)), (9, (3, 9000, 9000))]
)
def test_of_files_of_any_size_a_bounded_part_is_looked_at_from_the_first_image_to_the_last(count, shape):
    huge = Reservoir(torch.zeros((3, 1, 1, 1), dtype=torch.uint8).expand(3, *shape), [])
    huge.starts.append(3 + count)
    rows = images_module.rows_to_look_at(huge)
    assert rows[0] == 3
    assert rows[-1] == count + 2
    assert len(rows) == count or len(rows) * huge.image <= 2**28 or len(rows) == 2
    assert len(rows) <= 2**17
    assert len(rows.unique()) == len(rows)


def test_the_command_line_takes_files_and_keeps_them_in_the_recipe(folder, tmp_path, capsys):
    first, *others = sorted(map(str, folder.glob("part-*")))
    words = ["train", "digits-pixel-srt", *WORDS, "--unlabeled", first, *others]
    cli.main([*words, "--dry-run"])
    assert json.loads(capsys.readouterr().out)["data"]["unlabeled_files"] == [first, *others]
    cli.main([*words, "--out", str(tmp_path / "one")])
    kept = json.loads((tmp_path / "one" / "recipe.json").read_text())["data"]
    assert kept["unlabeled_files"] == [first, *others]
    cli.main(
        ["train", "--from", str(tmp_path / "one" / "recipe.json"), "--device", "cpu", "--out", str(tmp_path / "2")]
    )
    cli.main(
        ["train", "digits-pixel-srt", *WORDS, "--data.unlabeled-files", str(folder), "--out", str(tmp_path / "3")]
    )
    cli.main(["train", "digits-pixel-srt", *WORDS, "--out", str(tmp_path / "none")])
    one, two, three, none = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "2", "3", "none")
    )
    assert one == two == three != none


def test_a_teacher_needs_no_files_and_labels_the_images_in_them(folder, tmp_path):
    recipe = recipe_with(folder, labeler="teacher", teacher=replace(TINY.teacher, steps=5))
    assert trained(recipe, tmp_path / "run").weights.exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured as Linux tells it")
def test_a_pass_over_two_million_images_leaves_memory_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent.parent / "benchmarks"), *sys.path])
    from reservoir import Options, in_a_process, write_images

    if shutil.disk_usage(tmp_path).free < 10 * 2**30:
        pytest.skip("needs ten gigabytes of disk")
    files = tmp_path / "files"
    files.mkdir()
    try:
        write_images(files, Options())
        found = in_a_process("pass", files, Options())
    finally:
        shutil.rmtree(files)
    assert found["images"] > 2_000_000
    assert found["megabytes_at_most"] < found["megabytes_after_ten_steps"] + 100
    assert found["megabytes_at_most"] < 600, "the images alone are 5,859"


# Files that are not as they should be


def with_header(header: str) -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


BAD = {
    "floats.npy": (npy(some_images(3) / 255), r"holds float64, expected uint8 of the shape \(N, 1, 8, 8\).*astype"),
    "integers.npy": (npy(some_images(3).astype(np.int64)), "holds int64, expected uint8"),
    "sixteen-bits.npy": (
        npy(some_images(3).astype(np.uint16) * 257),
        "holds uint16, .*: scale it to .* 255, round",
    ),
    "smaller.npy": (
        npy(some_images(3)[..., 1:]),
        r"has the shape \(3, 1, 8, 7\), expected uint8 of the shape \(N, 1",
    ),
    "flat.npy": (npy(some_images(3).reshape(3, 64)), r"has the shape \(3, 64\), expected"),
    "number.npy": (npy(np.uint8(3)), r"has the shape \(\), expected"),
    "none.npy": (npy(some_images(0)), r"has the shape \(0, 1, 8, 8\), expected .* at least one image"),
    "columns.npy": (npy(np.asfortranarray(some_images(3))), "is stored by columns"),
    "cut.npy": (npy(some_images(3))[:-1], r"has 319 bytes, expected 320 for its shape \(3, 1, 8, 8\)"),
    "long.npy": (npy(some_images(3)) + b"x", "has 321 bytes, expected 320"),
    "records.npy": (npy(np.zeros(3, "u1,u1")), "holds its array with a header that describes no plain array"),
    "empty.npy": (b"", "holds its array in another format than numpy's"),
    "short.npy": (npy(some_images(3))[:9], "is cut off or not an .npy file"),
    "text.npy": (b"images" * 100, "holds its array in another format than numpy's"),
    "huge.npy": (
        with_header("{'descr': '|u1', 'fortran_order': False, 'shape': (999999999999, 1, 8, 8), }"),
        "has 193 bytes, expected 640",
    ),
    "absurd.npy": (
        with_header("{'descr': '|u1', 'fortran_order': False, 'shape': (10000000000000000, 1), }"),
        "absurd",
    ),
    "negative.npy": (with_header("{'descr': '|u1', 'fortran_order': False, 'shape': (-3, 1, 8, 8), }"), "no proper"),
    "endless.npy": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4294967295 bytes, expected at most"),
    "cut.bin": (bytes(130), r"has 130 bytes, expected a multiple of 64, one image of the shape \(1, 8, 8\)"),
    "empty.raw": (b"", "has 0 bytes, expected a multiple of 64"),
    "images.png": (b"\x89PNG", "is no file of unlabeled images, expected a file that ends in .npy, .bin or .raw"),
}


def refused(words: list[str], out: Path) -> str:
    """The one sentence with which the command line says no, and leaves nothing behind."""
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "digits-pixel-srt", *WORDS, "--out", str(out), "--unlabeled", *words])
    assert isinstance(end.value.code, str)
    assert "\n" not in end.value.code
    assert not out.exists()
    return end.value.code


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_file_of_such_images_is_refused_in_a_sentence(tmp_path, name):
    content, sentence = BAD[name]
    (tmp_path / name).write_bytes(content)
    said = refused([str(tmp_path / name)], tmp_path / "run")
    assert str(tmp_path / name) in said
    with pytest.raises(ValueError, match=sentence):
        image_files([str(tmp_path / name)], DIGIT)


def test_channels_that_come_last_are_told_so(tmp_path):
    np.save(tmp_path / "last.npy", some_images(3, (32, 32, 3)))
    with pytest.raises(
        ValueError, match=r"\(3, 32, 32, 3\), that is \(N, H, W, C\), expected .* transpose\(0, 3, 1, 2\)"
    ):
        image_files([str(tmp_path / "last.npy")], (3, 32, 32))
    np.save(tmp_path / "gray.npy", some_images(3, (8, 8, 1)))
    assert image_files([str(tmp_path / "gray.npy")], DIGIT)[0].count == 3, "of one channel, the bytes are the same"


def test_objects_are_never_unpickled(tmp_path):
    objects = np.array([Malicious(tmp_path / "mark")], dtype=object)
    np.save(tmp_path / "objects.npy", objects, allow_pickle=True)
    assert "holds Python objects in its array: save it again" in refused(
        [str(tmp_path / "objects.npy")], tmp_path / "run"
    )
    assert not (tmp_path / "mark").exists()


def test_places_without_images_are_refused_in_a_sentence(folder, tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing" / "README.txt").touch()
    os.mkfifo(tmp_path / "pipe.npy")
    for words, sentence in (
        ([str(tmp_path / "nowhere")], "does not exist, expected a file that ends in .npy, .bin or .raw, or a folder"),
        (["~nobody-knows/images.npy"], "~nobody-knows/images.npy does not exist, expected a file"),
        ([str(tmp_path / "nothing")], "holds no unlabeled images, expected a file that ends in"),
        ([str(tmp_path / "pipe.npy")], "is neither a file nor a folder"),
        ([str(folder), str(folder / "part-1.bin")], "part-1.bin is named twice"),
        (["x" * 5000], "(File name too long)"),
    ):
        assert sentence in refused(words, tmp_path / "run")


def truncated(file: Path, size: int):
    return lambda: os.truncate(file, size)


def test_a_file_that_shrinks_during_a_run_is_a_sentence_and_the_run_goes_on_when_it_is_restored(folder, tmp_path):
    recipe = recipe_with(folder)
    whole = trained(recipe, tmp_path / "whole")
    file = folder / "part-3.bin"
    content, out = file.read_bytes(), tmp_path / "run"
    with pytest.raises(
        ValueError, match=r"part-3.bin ends at byte 70, but .* held 142 images in 9088 bytes: restore"
    ):
        trained(recipe, out, watcher=Disturbing(6, truncated(file, 70)), checkpoint_seconds=0.0)
    assert 6 <= RunDirectory(out).read_checkpoint(CPU)["step"] < 40
    with pytest.raises(ValueError, match="has 70 bytes, expected a multiple of 64"):
        trained(recipe, out)
    file.write_bytes(content)
    assert_same_end(trained(recipe, out), whole)


def test_a_file_that_vanishes_before_it_was_read_is_a_sentence(folder):
    found = Reservoir(torch.zeros((0, *DIGIT), dtype=torch.uint8), image_files([str(folder)], DIGIT))
    (folder / "part-3.bin").unlink()
    with pytest.raises(OSError, match=r"could not read .*part-3.bin \(No such file or directory\): put that right"):
        found[torch.tensor([299])]


def test_other_images_in_the_files_are_another_run(folder, tmp_path):
    recipe = recipe_with(folder)
    with pytest.raises(KeyError):
        trained(recipe, tmp_path / "run", watcher=Disturbing(8, lambda: {}["stop"]), checkpoint_seconds=0.0)
    changed = bytearray((folder / "part-3.bin").read_bytes())
    changed[4000] ^= 1
    (folder / "part-3.bin").write_bytes(changed)
    with pytest.raises(ValueError, match="holds a run on other images or labels"):
        trained(recipe, tmp_path / "run")


def test_a_checksum_of_large_files_is_made_of_pieces_from_their_first_to_their_last_byte(folder, monkeypatch):
    monkeypatch.setattr(reservoir, "PIECE", 50)
    monkeypatch.setattr(reservoir, "PIECES", 10)
    names = sorted(folder.glob("part-*"))

    def checksum() -> str:
        return parts(load("digits"), recipe_with(folder).data).checksum()

    found = Reservoir(torch.zeros((0, *DIGIT), dtype=torch.uint8), image_files([str(folder)], DIGIT))
    assert sum(map(len, found.sample())) == 10 * 50
    before, seen = checksum(), set()
    for name, place in ((names[0], 128), (names[0], 177), (names[-1], -1), (names[-1], -50), (names[0], 5000)):
        content = name.read_bytes()
        changed = bytearray(content)
        changed[place] ^= 1
        name.write_bytes(changed)
        seen.add(checksum() != before)
        assert (checksum() != before) == (place != 5000), "what lies between the pieces is not looked at"
        name.write_bytes(content)
    assert seen == {True, False}
    assert checksum() == before
    (folder / "part-4.bin").write_bytes(bytes(64))
    assert checksum() != before


def test_an_average_gathers_no_statistics_of_images_that_other_processes_read(folder, monkeypatch):
    recipe = recipe_with(folder, labeler="average", averaging=Average(decay=0.9, batchnorm="own"))
    dataset = load("digits")
    trainer_by(recipe, dataset, parts(dataset, recipe.data), CPU)
    monkeypatch.setattr(trainer, "present", lambda: Processes(rank=0, count=2))
    monkeypatch.setattr(trainer, "shared", lambda f, *_: f)
    monkeypatch.setattr(Processes, "require_same", lambda *_: None)
    with pytest.raises(ValueError, match=r"own part of images in files.*set --averaging\.batchnorm estimated"):
        trainer_by(recipe, dataset, parts(dataset, recipe.data), CPU)
