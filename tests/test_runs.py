"""The directory of a run: written whole or not at all, and never another's."""

import io
import json
import os
import pickle
import random
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from disturbed import files_limited_to
from unperturbed import locks
from unperturbed.checkpoints import FORMAT, opened, sealed, whole
from unperturbed.datasets import Use
from unperturbed.files import write_whole
from unperturbed.objectives import AT, SRT
from unperturbed.recipe import SGD, Recipe, dumps
from unperturbed.runs import RunDirectory
from unperturbed.schedules import Cyclic

resource = pytest.importorskip("resource", reason="limits on the size of files are a thing of Unix")

CPU = torch.device("cpu")
STATE = {"step": 3, "model": {"weight": torch.arange(500.0)}, "best": {}, "warned": False}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.claim(Recipe())
    return directory


def snapshot(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of change of every file."""
    return {
        str(file.relative_to(directory)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in directory.rglob("*")
        if file.is_file()
    }


# Writing whole files


def test_a_whole_file_replaces_the_old_one_and_leaves_nothing_else(tmp_path):
    write_whole(tmp_path / "file", b"old")
    write_whole(tmp_path / "file", b"new")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"file": b"new"}


def test_a_write_that_fails_half_way_keeps_the_old_file_and_says_so_in_a_sentence(tmp_path):
    file = tmp_path / "file"
    write_whole(file, b"old")
    before = snapshot(tmp_path)
    with (
        files_limited_to(1000),
        pytest.raises(OSError, match=r"could not write .*file \(.+\): what was there") as error,
    ):
        write_whole(file, b"n" * 5000)
    assert "\n" not in str(error.value)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_flush_or_a_rename_that_fails_keeps_the_old_file(tmp_path, monkeypatch, function):
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "file", b"old")
    before = snapshot(tmp_path)
    monkeypatch.setattr(*((os, "fsync") if function == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match=r"\(No space left on device\)"):
        write_whole(tmp_path / "file", b"new")
    assert snapshot(tmp_path) == before


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(OSError, match=r"could not write .*file \(No such file or directory\)"):
        write_whole(tmp_path / "nowhere" / "file", b"new")


# Checkpoints


def test_a_checkpoint_comes_back_as_it_was_written(run):
    assert run.read_checkpoint(CPU) is None
    run.write_checkpoint(STATE)
    state = run.read_checkpoint(CPU)
    assert state["step"] == 3
    assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])


def test_a_checkpoint_holds_nothing_but_tensors_and_plain_values(run):
    run.write_checkpoint(STATE)
    assert torch.load(run.checkpoint, weights_only=True)["step"] == 3


def test_a_full_disk_keeps_the_checkpoint_from_before(run):
    run.write_checkpoint(STATE)
    before = snapshot(run.path)
    with files_limited_to(run.checkpoint.stat().st_size // 2), pytest.raises(OSError, match=r"could not write"):
        run.write_checkpoint({**STATE, "step": 4})
    assert snapshot(run.path) == before
    assert run.read_checkpoint(CPU)["step"] == 3


def as_torch_file(value: object) -> bytes:
    """A file as we write it: its checksum is right, whatever is in it."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return sealed(buffer.getvalue())


def test_a_file_of_another_format_would_be_refused_for_its_format_and_not_for_its_checksum():
    assert whole(as_torch_file([1, 2]))
    assert opened(as_torch_file({"format": FORMAT, "step": 3}), CPU) == {"format": FORMAT, "step": 3}


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_checkpoint_that_was_cut_off_is_refused_in_a_sentence(run, fraction):
    run.write_checkpoint(STATE)
    whole = run.checkpoint.read_bytes()
    run.checkpoint.write_bytes(whole[: int(fraction * len(whole))])
    with pytest.raises(ValueError, match=r"checkpoint\.pt is no whole checkpoint of unperturbed: delete it") as error:
        run.read_checkpoint(CPU)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b"hello world",
        b"\x80",
        pickle.dumps([1, 2], protocol=2),
        pickle.dumps({"format": FORMAT}, protocol=2),
        as_torch_file([1, 2]),
        as_torch_file({"step": 3}),
        as_torch_file({"format": FORMAT + 1, "step": 3}),
        as_torch_file({"format": FORMAT, "step": Recipe()}),
    ],
    ids=[
        "text",
        "one byte",
        "pickled list",
        "pickled dictionary",
        "list",
        "no format",
        "another format",
        "foreign class",
    ],
)
def test_a_file_that_is_no_checkpoint_of_ours_is_refused_in_a_sentence(run, content):
    run.checkpoint.write_bytes(content)
    with pytest.raises(ValueError, match="is no whole checkpoint of unperturbed"):
        run.read_checkpoint(CPU)


def test_random_bytes_are_refused_in_a_sentence(run):
    rng = random.Random(0)
    for _ in range(100):
        run.checkpoint.write_bytes(rng.randbytes(rng.randrange(1, 300)))
        with pytest.raises(ValueError, match="is no whole checkpoint of unperturbed"):
            run.read_checkpoint(CPU)


def test_a_checkpoint_that_cannot_be_read_at_all_is_not_called_damaged(run):
    run.checkpoint.mkdir()
    with pytest.raises(OSError):
        run.read_checkpoint(CPU)


def test_the_checkpoint_before_the_newest_is_kept(run):
    for step in (3, 4, 5):
        run.write_checkpoint({**STATE, "step": step})
    assert run.read_checkpoint(CPU)["step"] == 5
    assert opened(run.checkpoint_before.read_bytes(), CPU)["step"] == 4
    run.checkpoint.unlink()
    assert run.read_checkpoint(CPU)["step"] == 4


def test_at_every_step_of_writing_a_checkpoint_a_whole_one_is_there(run, monkeypatch):
    run.write_checkpoint(STATE)
    seen: list[int] = []

    def watched(function):
        def call(*arguments):
            seen.append(RunDirectory(run.path).read_checkpoint(CPU)["step"])
            result = function(*arguments)
            seen.append(RunDirectory(run.path).read_checkpoint(CPU)["step"])
            return result

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", watched(os.fsync))
        patch.setattr(Path, "replace", watched(Path.replace))
        for step in (4, 5):
            run.write_checkpoint({**STATE, "step": step})
    assert sorted(set(seen)) == [3, 4, 5]
    assert seen == sorted(seen)
    assert len(seen) == 2 * 2 * 4, "each is flushed, two files are renamed and their names flushed"


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_flipped_bit_anywhere_is_noticed(run):
    run.write_checkpoint(STATE)
    content, rng = run.checkpoint.read_bytes(), random.Random(0)
    bits = [*range(16), *range(8 * len(content) - 1200, 8 * len(content)), *rng.sample(range(8 * len(content)), 300)]
    assert whole(content)
    assert not any(whole(flipped(content, bit)) for bit in bits)


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: flipped(content, 999), lambda _: b""]
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it_and_that_is_said_once(run, damage):
    for step in (3, 4):
        run.write_checkpoint({**STATE, "step": step})
    run.checkpoint.write_bytes(damage(run.checkpoint.read_bytes()))
    assert run.read_checkpoint(CPU)["step"] == 3
    said: list[str] = []
    run.mend(said.append)
    assert said == [f"{run.checkpoint} was damaged: the run goes on from the one before it, of step 3"]
    assert not run.checkpoint_before.exists(), "the damaged one must never take the place of a whole one"
    run.mend(said.append)
    assert len(said) == 1
    assert run.read_checkpoint(CPU)["step"] == 3


def test_two_damaged_checkpoints_are_refused_in_a_sentence(run):
    for step in (3, 4):
        run.write_checkpoint({**STATE, "step": step})
    for file in (run.checkpoint, run.checkpoint_before):
        file.write_bytes(flipped(file.read_bytes(), 5000))
    before = snapshot(run.path)
    run.mend(pytest.fail)
    with pytest.raises(
        ValueError, match=r"checkpoint\.pt and .*before\.pt are no whole checkpoints of unperturbed: delete both"
    ):
        run.read_checkpoint(CPU)
    assert snapshot(run.path) == before


def test_the_log_is_on_the_disk_before_the_checkpoint_is(run, monkeypatch):
    flush, rename, order = os.fsync, Path.replace, []

    def noted_flush(descriptor: int) -> None:
        order.append(os.fstat(descriptor).st_ino)
        flush(descriptor)

    def noted_rename(self: Path, target: Path) -> Path:
        order.append(target.name)
        return rename(self, target)

    run.write_log({"step": 3})
    monkeypatch.setattr(os, "fsync", noted_flush)
    monkeypatch.setattr(Path, "replace", noted_rename)
    run.write_checkpoint(STATE)
    log, checkpoint, directory = (file.stat().st_ino for file in (run.path / "log.jsonl", run.checkpoint, run.path))
    assert order == [log, checkpoint, "checkpoint.pt", directory]


# One process at a time


def test_a_directory_that_is_held_is_refused_with_the_process_that_holds_it(run):
    with run.alone():
        assert (run.path / ".lock").read_text() == str(os.getpid())
        with (
            pytest.raises(ValueError, match=rf"is in use by process {os.getpid()}, which trains there") as error,
            RunDirectory(run.path).alone(),
        ):
            pass
        assert "\n" not in str(error.value)
    assert not (run.path / ".lock").exists()
    with run.alone():
        pass


def test_a_lock_that_a_dead_process_left_is_no_obstacle(run):
    (run.path / ".lock").write_text("4711")
    with run.alone():
        assert (run.path / ".lock").read_text() == str(os.getpid())


def test_who_waits_for_a_directory_gets_it_when_the_other_leaves(run):
    first, sentences = locks.acquire(run.path), list[str]()

    def leave(sentence: str) -> None:
        sentences.append(sentence)
        if len(sentences) == 2:
            first.release()

    second = locks.acquire(run.path, leave)
    assert len(sentences) == 2
    with pytest.raises(ValueError, match="is in use by process"):
        locks.acquire(run.path)
    second.release()


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_taken_anew(run, monkeypatch):
    really_locked, first = locks.locked, locks.acquire(run.path)

    def locked_just_after_the_other_left(file):
        monkeypatch.setattr(locks, "locked", really_locked)
        first.release()
        return really_locked(file)

    monkeypatch.setattr(locks, "locked", locked_just_after_the_other_left)
    second = locks.acquire(run.path)
    assert locks.still_there(run.path / ".lock", second.file)
    second.release()


def test_where_the_system_has_no_locks_a_run_goes_without(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with run.alone(), RunDirectory(run.path).alone():
        assert not (run.path / ".lock").exists()


# Whose directory it is


def test_claiming_twice_changes_nothing(run):
    before = snapshot(run.path)
    run.claim(Recipe())
    assert snapshot(run.path) == before
    assert run.read_recipe() == Recipe()


def test_the_run_of_an_earlier_version_goes_on_where_what_came_later_is_as_it_was_without(run):
    tree = json.loads(dumps(Recipe()))
    del tree["teacher"]["averaging"], tree["precision"]
    (run.path / "recipe.json").write_text(json.dumps(tree))
    before = snapshot(run.path)
    run.claim(Recipe())
    assert snapshot(run.path) == before
    for other, words in ((Recipe(seed=1), "seed is 0 there and 1"), (Recipe(precision="tf32"), "precision is auto")):
        with pytest.raises(ValueError, match=f"holds a run of another recipe .{words}"):
            run.claim(other)


@dataclass(frozen=True)
class Strange:
    """An objective that no recipe file can be read with."""

    def __call__(self, f, batch, rng):
        return SRT()(f, batch, rng)


def test_the_run_of_a_recipe_with_parts_of_a_stranger_can_be_claimed_again(tmp_path):
    run = RunDirectory(tmp_path / "run")
    for _ in range(2):
        run.claim(Recipe(objective=Strange()))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Recipe(steps=7), "steps is 1000 there and 7 here"),
        (Recipe(optimizer=SGD(rate=Cyclic(peak=0.5))), "optimizer.rate.peak is 0.2 there and 0.5 here"),
        (Recipe(objective=AT()), "objective.type is SRT there and AT here"),
        (Recipe(objective=SRT(weight=2.0), seed=5), "objective.weight is 1.0 there and 2.0 here"),
        (
            Recipe(model=replace(Recipe().model, channels=(1, 2, 3))),
            "model.channels is [16, 32, 32] there and [1, 2, 3]",
        ),
    ],
)
def test_the_run_of_another_recipe_is_refused_by_its_first_differing_field_and_left_untouched(run, other, words):
    run.write_checkpoint(STATE)
    run.write_log({"step": 1})
    (run.path / ".checkpoint.pt.1.new").write_bytes(b"half")
    before = snapshot(run.path)
    with pytest.raises(ValueError, match="holds a run of another recipe") as error:
        run.claim(other)
    assert words in str(error.value)
    assert "--out" in str(error.value)
    assert snapshot(run.path) == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "its recipe.json cannot be read"),
        (b"\xff\xfe\x00", "its recipe.json cannot be read"),
        (b"[" * 100_000, "its recipe.json cannot be read"),
        (b"[]", "type is None there and Recipe here"),
        (dumps(Recipe()).replace('"nesterov": false', '"nesterov": 0').encode(), "written in another way"),
    ],
)
def test_a_recipe_file_that_was_spoiled_is_refused_and_left_untouched(run, content, words):
    (run.path / "recipe.json").write_bytes(content)
    before = snapshot(run.path)
    with pytest.raises(ValueError, match="holds a run of another recipe") as error:
        run.claim(Recipe())
    assert words in str(error.value)
    assert snapshot(run.path) == before


def test_a_directory_with_files_of_somebody_else_is_refused_and_left_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("my only copy")
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match=r"holds files but no recipe\.json, so it is no run: name another --out"):
        RunDirectory(tmp_path).claim(Recipe())
    assert snapshot(tmp_path) == before


def test_a_finished_run_without_a_checkpoint_is_refused_and_left_untouched(run):
    run.write_log({"step": 1})
    run.weights.write_bytes(b"weights")
    before = snapshot(run.path)
    with pytest.raises(
        ValueError, match=r"holds a finished run without a checkpoint, .*: name another --out, or del"
    ):
        run.claim(Recipe())
    assert snapshot(run.path) == before
    run.write_checkpoint(STATE)
    run.claim(Recipe())
    run.checkpoint.replace(run.checkpoint_before)
    run.claim(Recipe())
    run.checkpoint_before.unlink()
    run.weights.unlink()
    run.claim(Recipe())


def test_a_path_that_is_a_file_is_refused_and_left_untouched(tmp_path):
    (tmp_path / "file").write_text("content")
    with pytest.raises(ValueError, match="is a file, expected a directory for the run"):
        RunDirectory(tmp_path / "file").claim(Recipe())
    assert (tmp_path / "file").read_text() == "content"


def test_a_directory_that_is_empty_or_not_there_is_made_the_runs_own(tmp_path):
    for path in (tmp_path, tmp_path / "some" / "where"):
        RunDirectory(path).claim(Recipe(seed=3))
        assert RunDirectory(path).read_recipe() == Recipe(seed=3)
        (path / "recipe.json").unlink()


@pytest.mark.parametrize("claimed_before", [False, True])
def test_half_written_files_are_no_obstacle_and_swept_away_once_they_are_surely_abandoned(tmp_path, claimed_before):
    if claimed_before:
        RunDirectory(tmp_path).claim(Recipe())
    names = ("checkpoint.pt.1", "report.json.2", "trust-1a2b3c4d.json.3", "sweep.json.4")
    mine, abandoned, *alive = (tmp_path / f".{name}.new" for name in names)
    for file in (mine, abandoned, *alive):
        file.write_bytes(b"half")
    two_hours_ago = time.time() - 7200
    os.utime(abandoned, (two_hours_ago, two_hours_ago))
    RunDirectory(tmp_path).check(Recipe())
    with RunDirectory(tmp_path).alone():
        RunDirectory(tmp_path).claim(Recipe())
    assert {file.name for file in tmp_path.iterdir()} == {"recipe.json", *(file.name for file in alive)}


def test_a_directory_without_a_run_has_no_recipe(tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    with pytest.raises(FileNotFoundError, match=r"holds no run \(no recipe\.json\): make one with unperturbed train"):
        RunDirectory(alone).read_recipe()


def test_a_place_that_is_no_run_is_answered_with_what_it_is_and_the_runs_near_it(tmp_path):
    for name in ("own", "all", "more", "rest"):
        RunDirectory(tmp_path / "runs" / name).claim(Recipe())
    (tmp_path / "new.jpg").write_bytes(b"a picture")
    (tmp_path / "own.pt").write_bytes(b"weights")
    for place, sentence in (
        ("own.pt", "name that; for weights of your own make the network and give it them by load_state_dict, and"),
        ("runs/own/recipe.json", f"as unperturbed train made it: name {tmp_path / 'runs' / 'own'}"),
        ("new.jpg", "new.jpg is a file, expected the directory of a run"),
        (
            "runs",
            f"directories of runs: name one, as {', '.join(str(tmp_path / 'runs' / n) for n in ('all', 'more'))}",
        ),
        ("runs/owm", f"did you mean {tmp_path / 'runs' / 'own'}? Else make one with unperturbed train RECIPE"),
        ("nowhere/own", "nowhere/own holds no run (no recipe.json): make one with unperturbed train RECIPE"),
    ):
        with pytest.raises(FileNotFoundError) as refusal:
            RunDirectory(tmp_path / place).read_recipe()
        assert sentence in str(refusal.value)


# The log


def test_the_log_comes_back_line_by_line(run):
    assert run.read_log() == []
    for step in (10, 20):
        run.write_log({"step": step, "rate": 0.1})
    assert run.read_log() == [{"step": 10, "rate": 0.1}, {"step": 20, "rate": 0.1}]


def test_lines_of_steps_that_will_be_taken_again_are_forgotten(run):
    for step in (10, 20, 30):
        run.write_log({"step": step})
    run.forget_log_after(20)
    assert (run.path / "log.jsonl").read_text() == '{"step": 10}\n{"step": 20}\n'


@pytest.mark.parametrize("kept", range(len('{"step": 30, "rate": 0.1}\n')))
def test_a_last_line_that_was_cut_off_anywhere_does_no_harm(run, kept):
    whole = '{"step": 30, "rate": 0.1}\n'
    run.write_log({"step": 20})
    with (run.path / "log.jsonl").open("a") as log:
        log.write(whole[:kept])
    complete = kept == len(whole) - 1
    assert [record["step"] for record in run.read_log()] == ([20, 30] if complete else [20])
    run.forget_log_after(20)
    run.write_log({"step": 30})
    assert [json.loads(line)["step"] for line in (run.path / "log.jsonl").read_text().splitlines()] == [20, 30]


def test_forgetting_where_there_is_no_log_makes_none(run):
    run.forget_log_after(5)
    assert not (run.path / "log.jsonl").exists()


def test_a_line_that_a_full_disk_cut_off_is_a_sentence_and_does_no_harm_to_the_next_run(run):
    run.write_log({"step": 20})
    with files_limited_to(20), pytest.raises(OSError, match=r"could not write .*log\.jsonl \(.+\): what was there"):
        run.write_log({"step": 30, "rate": 0.1})
    assert (run.path / "log.jsonl").read_bytes() == b'{"step": 20}\n{"step"'
    assert run.read_log() == [{"step": 20}]
    run.forget_log_after(20)
    run.write_log({"step": 30})
    assert run.read_log() == [{"step": 20}, {"step": 30}]


# The finished model


def linear(inputs: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 2), nn.BatchNorm1d(2))


def test_the_weights_come_back_as_they_were(run):
    one, other = linear(), linear()
    run.write_weights(one, Use((1, 8, 8), ("a", "b")))
    run.read_weights(other)
    assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in one.state_dict().items())
    assert run.read_use() == Use((1, 8, 8), ("a", "b"))


def test_a_run_that_is_not_finished_says_how_to_finish_it(run):
    with pytest.raises(FileNotFoundError, match=r"holds no finished model .*unperturbed train --from .*recipe\.json"):
        run.read_weights(linear())


def test_weights_of_another_model_are_refused_with_the_difference(run):
    run.write_weights(linear(5), Use((1, 8, 8), ("a", "b")))
    with pytest.raises(
        ValueError, match=r"does not hold the weights of this recipe's model \(size mismatch for 0"
    ) as error:
        run.read_weights(linear(4))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 100])
def test_a_file_that_holds_no_weights_is_refused(run, content):
    run.weights.write_bytes(content)
    with pytest.raises(ValueError, match="does not hold the weights of this recipe's model"):
        run.read_weights(linear())
