"""Several processes end where one ends, with one report, and go on after one of them died or left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from two_processes import ATTACKED, EXTRAS, STEPS, examined, go_on, network, recipe, run_steps
from unperturbed import recipe as recipe_files
from unperturbed import report as reports
from unperturbed.cli import COMMANDS, main
from unperturbed.meeting import EndedElsewhereError, Meeting, name_of_start
from unperturbed.processes import Processes, group, in_group, own_device, present, shared
from unperturbed.runs import RunDirectory
from unperturbed.signals import SignalError, StoppedError
from unperturbed.training import train

SCRIPT = Path(__file__).parent / "two_processes.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def launched(count: int, *options: str) -> list[str]:
    """The words that let so many processes run the script."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", *options]
    return [sys.executable, *(launch if count > 1 else []), str(SCRIPT)]


def start(count: int, task: str, folder: Path, *options: str) -> str:
    """Let so many processes do something, and return what they said."""
    command = [*launched(count, *options), task, str(folder)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What one process and what three processes were left with."""
    folder = tmp_path_factory.mktemp("steps")
    go_on(folder)
    run_steps(folder)
    start(3, "steps", folder)
    go_on(folder)
    return Ended(folder)


@dataclass(frozen=True)
class Ended:
    """The folder in which processes left what they had."""

    folder: Path

    def __call__(self, *names: object) -> Any:
        return torch.load(self.folder / f"{'-'.join(map(str, names))}.pt", weights_only=True)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs a system that names threads")
def test_no_thread_of_the_exchange_outlives_it(ended):
    """One that does may abort a process while it ends."""
    for rank in range(3):
        threads = (ended.folder / f"threads-{rank}.txt").read_text()
        assert "python" in threads
        assert "gloo" not in threads


@pytest.mark.parametrize("name", EXTRAS)
def test_three_processes_end_with_the_weights_and_the_log_of_one(ended, name):
    alone, first = ended(name, 1, 0), ended(name, 3, 0)
    for mine, its in zip(alone["weights"], first["weights"], strict=True):
        torch.testing.assert_close(mine, its, atol=1e-6, rtol=0)
    assert [record["step"] for record in first["log"]] == [4, 8, 12]
    for mine, its in zip(alone["log"], first["log"], strict=True):
        for key in ("standard", "robust", "labeled_accuracy", "largest_class_share"):
            assert mine[key] == pytest.approx(its[key], abs=1e-5), key
    for rank in (1, 2):
        assert all(map(torch.equal, first["weights"], ended(name, 3, rank)["weights"]))


def test_a_run_goes_on_with_more_processes_and_with_fewer(ended):
    state = ended("state")
    assert state["step"] == 12
    for mine, its in zip(state["model"].values(), ended("plain", 1, 0)["weights"], strict=True):
        torch.testing.assert_close(mine, its, atol=1e-6, rtol=0)


def test_the_log_of_a_run_that_goes_on_with_more_processes_or_fewer_counts_every_term_once(ended):
    standard, robust, steps = ended("state")["since_log"].tolist()
    log = ended("plain", 1, 0)["log"]
    assert steps == 12
    assert standard == pytest.approx(sum(4 * record["standard"] for record in log), abs=1e-4)
    assert robust == pytest.approx(sum(4 * record["robust"] for record in log), abs=1e-4)


def test_every_process_has_the_teacher_that_is_kept_in_its_file(ended):
    (kept,) = (ended.folder / "teachers").glob("*/model.safetensors")
    weights = load_file(kept)
    for rank in range(3):
        teacher = ended("teacher", rank)
        assert all(torch.equal(teacher[name], tensor) for name, tensor in weights.items()), rank


def test_every_process_has_all_that_the_network_of_the_first_holds(ended):
    first, others = ended("odd", 0), [ended("odd", rank) for rank in (1, 2)]
    assert {"weight", "turned", "short", "eighth", "waves", "seen", "repeated", "unsaved", "sparse"} < first.keys()
    torch.manual_seed(0)
    assert torch.equal(first["turned"], torch.randn(2, 3).t())
    for other in others:
        for name, tensor in first.items():
            pair = tensor.to_dense(), other[name].to_dense()
            same = [each.double() if each.dtype == torch.float8_e4m3fn else each for each in pair]
            assert torch.equal(*same), name


def test_each_process_reads_only_its_own_rows_of_the_files(ended):
    alone, together = ended("files", 1, 0)["read"], [ended("files", 3, rank)["read"] for rank in range(3)]
    assert sum(together) == alone > 500
    assert max(together) < 0.37 * alone
    assert ended("parts", 1, 0)["read"] == 0


def asked_to_stop(count: int, folder: Path, after: int) -> tuple[int, str, int]:
    """Exit code and last words of processes that had SIGTERM once the log had grown, and the step they kept."""
    run = RunDirectory(folder / "run")
    words = [*launched(count), "train", str(folder), "0.05"]
    process = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 60.0
        while not run.read_log() or run.read_log()[-1]["step"] < after:
            assert process.poll() is None, process.communicate()[0][-3000:]
            assert time.monotonic() < deadline, "the log did not grow in a minute"
            time.sleep(0.05)
        process.terminate()
        said = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    return process.returncode, said, run.read_checkpoint(torch.device("cpu"))["step"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows knows no SIGTERM")
def test_a_run_asked_to_stop_goes_on_with_two_processes_and_back_and_ends_where_it_should(tmp_path, monkeypatch):
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 256, (200, 1, 8, 8), dtype=np.uint8))
    (tmp_path / "recipe.json").write_text(recipe_files.dumps(recipe(tmp_path)))
    reached = 0
    for count in (1, 2):
        code, said, step = asked_to_stop(count, tmp_path, reached + 10)
        sentence = (
            f"stopped with a checkpoint of {tmp_path / 'run'} at step {step} of {STEPS}; the same command goes on"
        )
        assert sentence in said
        assert reached + 10 <= step < STEPS
        # torchrun ends with a code of its own.
        assert code == 143 if count == 1 else code != 0
        assert "unperturbed/cli" not in said, "a traceback of ours would name it; torchrun shows one of its own"
        assert not list((tmp_path / "run").glob(".*")), "nothing half-written and no lock is left"
        assert not (tmp_path / "run" / "model.safetensors").exists()
        reached = step
    monkeypatch.setattr("unperturbed.training.fresh_model", lambda *_: network())
    end, whole = (
        train(recipe(tmp_path), tmp_path / name, device="cpu").state_dict().values() for name in ("run", "whole")
    )
    for mine, its in zip(end, whole, strict=True):
        torch.testing.assert_close(mine, its, atol=2e-6, rtol=0)
    steps = [record["step"] for record in RunDirectory(tmp_path / "run").read_log()]
    assert steps == list(range(5, STEPS + 1, 5))


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    """The directory of a run by two processes, one of which died on the way, and what was said."""
    folder = tmp_path_factory.mktemp("died")
    said = start(2, "die", folder, "--max-restarts=1")
    assert (folder / "died").exists()
    return folder / "run", said


def test_a_process_that_dies_is_started_again_and_the_run_goes_on(survived):
    run, said = survived
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert steps == [3, 6, 9]
    assert (run / "model.safetensors").exists()
    assert said.count("trained digits-pixel-srt for 9 steps") == 1


def test_what_the_first_process_refuses_is_a_sentence_in_all_of_them_and_no_traceback(tmp_path):
    begun = time.monotonic()
    command = [*launched(2), "full", str(tmp_path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False)
    sentence = f"could not use {tmp_path / 'run' / 'log.jsonl'} (No space left on device): put that right"
    said = [line for line in done.stderr.splitlines() if sentence in line]
    assert sorted(line.partition(sentence)[0] for line in said) == [
        "unperturbed: ",
        "unperturbed: process 0 of 2 has ended, and so do all: ",
    ]
    assert "unperturbed/cli" not in done.stderr, "a traceback of ours would name it; torchrun shows one of its own"
    assert done.returncode != 0
    assert time.monotonic() - begun < 60


def test_processes_that_cannot_connect_say_so_in_a_sentence(monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise RuntimeError(
            "Gloo connectFullMesh failed with [pair.cc:152] SO_ERROR: Connection refused, remote=[::1]:2"
        )

    monkeypatch.setattr(group, "init_process_group", refused)
    meeting = Meeting(store=group.HashStore(), rank=0, size=1)
    with (
        pytest.raises(
            ConnectionError, match="the processes could not connect to each other, as where one of them is"
        ),
        meeting.one_for_all(),
        in_group(meeting, group.HashStore(), "cpu"),
    ):
        pass


@pytest.mark.parametrize(("rank", "count"), [("0", 1), ("1", 0)])
def test_of_several_processes_the_first_speaks_before_they_have_joined_too(rank, count, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    main(["train", "digits-pixel-srt", "--objective.solver.steps", "1", "--data", "some", "--dry-run"])
    said = capsys.readouterr().err
    assert said.count("the search goes 0.04 in 1 step") == said.count("--data some changes nothing") == count


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("train", "evaluate", "list")])
def test_what_works_in_one_process_is_refused_in_several(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit, match=f"^unperturbed: {command} works in one process, and torchrun has started 2"):
        main([command, "--help"])
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_teacher_is_waited_for_longer_than_an_exchange_may_take(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "UNPERTURBED_CACHE", str(tmp_path / "cache"))
    said = start(2, "wait", tmp_path)
    assert said.count("trained digits-pixel-srt for 9 steps") == 1
    assert list((tmp_path / "cache" / "teachers").glob("*/model.safetensors"))


def met(store: object, rank: int) -> Meeting:
    """Process number so many of two that met in that store."""
    return Meeting(store=store, rank=rank, size=2)


def test_processes_wait_for_the_first_without_a_limit_and_for_the_others_with_one(monkeypatch):
    monkeypatch.setattr("unperturbed.meeting.FOR_THE_OTHERS", 0.2)
    store = group.HashStore()
    first, second = met(store, 0), met(store, 1)
    with ThreadPoolExecutor() as thread:
        waiting = thread.submit(second.wait_for_all)
        time.sleep(0.6)
        assert not waiting.done()
        first.wait_for_all()
        waiting.result(timeout=10)
        with pytest.raises(EndedElsewhereError, match="1 of 2 processes did not come within 0 minutes: look for"):
            first.wait_for_all()


def test_a_process_that_waits_for_one_that_ended_ends_with_its_reason():
    store = group.HashStore()
    met(store, 0).leave(ValueError("the batch is too large: lower it"))
    met(store, 1).leave(ValueError("another reason, which is not the first"))
    reason = "^process 0 of 2 has ended, and so do all: the batch is too large: lower it$"
    with pytest.raises(EndedElsewhereError, match=reason):
        met(store, 1).wait_for_all()
    for consequence in (RuntimeError("Connection closed by peer [127.0.0.1]:1"), SignalError(signal.SIGTERM)):
        with pytest.raises(EndedElsewhereError, match=reason), met(store, 1).one_for_all():
            raise consequence


def test_an_error_of_this_process_stays_its_own():
    store = group.HashStore()
    with pytest.raises(RuntimeError, match="a bug"), met(store, 0).one_for_all():
        raise RuntimeError("a bug")
    met(store, 1).leave(StoppedError("stopped with a checkpoint"))
    with pytest.raises(SignalError), met(store, 0).one_for_all():
        raise SignalError(signal.SIGTERM)
    with pytest.raises(ValueError, match="refused here"), met(store, 0).one_for_all():
        raise ValueError("refused here")


def test_a_bug_of_this_process_is_no_sentence_of_another_though_it_is_told_to_all():
    meeting = Meeting(store=group.HashStore(), rank=0, size=1)
    alone = in_group(meeting, group.HashStore(), "cpu")
    with pytest.raises(RuntimeError, match=r"^a bug$"), meeting.one_for_all(), alone:
        raise RuntimeError("a bug")
    assert meeting.last_word() == {
        "rank": 0,
        "said": "process 0 of 1 has ended, and so do all: a bug",
        "stopped": False,
    }


def test_processes_that_are_started_again_meet_under_a_new_name_whatever_is_left_of_those_before(monkeypatch):
    store, names = group.HashStore(), list[str]()
    with ThreadPoolExecutor() as pool:
        for _ in range(3):
            several = [pool.submit(name_of_start, store, rank, 3) for rank in (2, 0, 1)]
            (name,) = {each.result(timeout=20) for each in several}
            names.append(name)
    assert len(set(names)) == 3
    store.set("1 asks", "one that was killed before it could hear")
    monkeypatch.setattr("unperturbed.meeting.FOR_THE_OTHERS", 0.1)
    with pytest.raises(EndedElsewhereError, match="2 of 3 processes did not come within 0 minutes"):
        name_of_start(store, 0, 3)


def test_one_that_was_killed_leaves_no_word_and_the_others_say_so():
    store = group.HashStore()
    gone = RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:40092")
    met(store, 0).leave(gone)
    sentence = "another process has ended without a word, as one that is killed"
    with pytest.raises(EndedElsewhereError, match=sentence), met(store, 0).one_for_all():
        raise gone
    assert met(store, 1).last_word() is None


def test_processes_write_one_report_which_is_that_of_a_process_alone(tmp_path):
    together, alone = tmp_path / "together", tmp_path / "alone"
    main(["train", "digits-pixel-standard", "--out", str(together), "--steps", "60", "--device", "cpu"])
    shutil.copytree(together, alone)
    assert start(2, "evaluate", together).count("worst case of all") == 1
    main(["evaluate", str(alone), *ATTACKED])
    one, two = (reports.read(copy / "report.json") for copy in (alone, together))
    assert (
        [result.name for result in one.attacks]
        == [result.name for result in two.attacks]
        == ["pgd", "randadv", "ddn"]
    )
    for mine, its in zip(one.attacks, two.attacks, strict=True):
        # Both processes have something to tell: the first batch is the first one's, the next the other's.
        assert all((mine.predicted != one.clean)[part].any() for part in (slice(16), slice(16, 32)))
        assert torch.equal(mine.predicted, its.predicted)
        assert (mine.settings, mine.rejected, mine.median_size) == (its.settings, its.rejected, its.median_size)
    # What other processes found is not looked for again.
    main(["evaluate", str(together), *ATTACKED])
    assert reports.read(together / "report.json").dumps() == two.dumps()


def test_processes_that_were_given_different_images_are_refused(tmp_path):
    start(2, "shares", tmp_path)
    for rank in range(2):
        said = json.loads((tmp_path / f"said-{rank}.json").read_text())
        assert len(said) == 2
        assert all("2 processes that have joined share their work" in sentence for sentence in said)


def test_each_process_makes_a_trust_card_by_itself(tmp_path):
    start(2, "trust", tmp_path)
    first, second = (json.loads((tmp_path / f"cards-{rank}.json").read_text()) for rank in range(2))
    assert [*first, *second] == [examined()] * 3


def test_a_process_alone_exchanges_nothing():
    alone, tensor = present(), torch.arange(3.0)
    assert alone == Processes(rank=0, count=1)
    assert alone.first
    assert alone.sum_(tensor) is alone.least_(tensor) is tensor
    assert (alone.of_first("word"), alone.collected(1), alone.own_part([1, 2, 3])) == ("word", [1], [1, 2, 3])


def test_every_item_belongs_to_one_process():
    items = list(range(11))
    parts = [Processes(rank=rank, count=4).own_part(items) for rank in range(4)]
    assert sorted(item for part in parts for item in part) == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_statistics_of_all_processes_need_gpus():
    with pytest.raises(ValueError, match="--batchnorm synchronized needs GPUs"):
        shared(torch.nn.Linear(2, 2), Processes(rank=1, count=2), "synchronized")


def test_each_process_has_its_own_gpu_where_there_are_any(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device("auto") == own_device("cuda") == "cuda:1"
    assert own_device("cpu") == "cpu"
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match="process 2 of this machine has no GPU of its own, there are 2"):
        own_device("auto")
    monkeypatch.delenv("LOCAL_RANK")
    assert own_device("auto") == "auto"
