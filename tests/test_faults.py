"""Faults, each really provoked: signals, kills in the middle of a write, damaged files, full disks, changed data."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from disturbed import Disturbing, StopError, files_limited_to, in_a_process, stop, trained, wait_until
from tiny import NETWORK, TINY, assert_same_end
from unperturbed import cli, evaluation, training
from unperturbed import recipe as recipe_files
from unperturbed.checkpoints import opened
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.guards import DivergedError
from unperturbed.images import parts
from unperturbed.recipe import Recipe
from unperturbed.report import read
from unperturbed.runs import RunDirectory
from unperturbed.signals import SignalError, StoppedError, ending_on_sigterm, stopping_after_a_step
from unperturbed.trainer import Trainer
from unperturbed.training import train, train_together

resource = pytest.importorskip("resource", reason="signals, locks and limits are those of Unix")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

CPU = torch.device("cpu")
NAMES = ["digits-pixel-srt", "digits-pixel-at"]
LONG = ["--steps", "60", "--log-every", "5", "--batch", "20", *NETWORK]
LONG += ["--objective.solver.steps", "1", "--device", "cpu", "--checkpoint-seconds", "3600"]


def stopped_after(step: int, out: Path, recipe: Recipe = TINY) -> RunDirectory:
    """A run that was interrupted after that step, with a checkpoint of each step before it."""
    with pytest.raises(StopError):
        trained(recipe, out, watcher=Disturbing(step, stop), checkpoint_seconds=0.0)
    return RunDirectory(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The same run without any fault."""
    return trained(TINY, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def long_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two longer runs of the command line without any fault."""
    out = tmp_path_factory.mktemp("long")
    cli.main(["train", *NAMES, "--together", "--out", str(out), *LONG])
    return out


# Processes of their own


def command(words: list[str], errors: Path, pause: float = 0.04, slow_step: int = -1) -> None:
    """The command line with steps and attacks that take their time, one step very long; stderr goes into a file."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    advance, attacked = Trainer.advance, evaluation.Defender.attacked

    def slow_advance(self: Trainer) -> object:
        time.sleep(30.0 if self.step == slow_step else pause)
        return advance(self)

    def slow_attack(self: evaluation.Defender, *arguments: object) -> object:
        time.sleep(pause)
        return attacked(self, *arguments)

    Trainer.advance, evaluation.Defender.attacked = slow_advance, slow_attack
    cli.main(words)


def said(file: Path) -> str:
    with suppress(FileNotFoundError):
        return file.read_text()
    return ""


def ended(process: multiprocessing.Process) -> int | None:
    process.join(20.0)
    code = process.exitcode
    process.kill()
    process.join()
    return code


# Signals

both_signals = pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])


@both_signals
def test_a_signal_finishes_the_step_writes_a_checkpoint_and_the_same_command_goes_on(
    long_runs, tmp_path, number, code
):
    run, errors = RunDirectory(tmp_path / "run"), tmp_path / "errors"
    words = ["train", NAMES[0], "--out", str(run.path), *LONG]
    process = in_a_process(command, words, errors)
    wait_until(lambda: len(run.read_log()) >= 2, process.is_alive)
    os.kill(process.pid, number)
    assert ended(process) == code
    state = run.read_checkpoint(CPU)
    assert 10 <= state["step"] < 60
    place = f"{run.path} at step {state['step']} of 60"
    assert f"unperturbed: stopped with a checkpoint of {place}; the same command goes on from there" in said(errors)
    assert "Traceback" not in said(errors)
    assert not list(run.path.glob(".*"))
    cli.main(words)
    assert_same_end(run, RunDirectory(long_runs / NAMES[0]))


@both_signals
def test_a_signal_leaves_a_checkpoint_also_where_nobody_reads_what_is_said_any_more(tmp_path, number, code):
    """Ctrl-C ends tee, too, to which the words of a run may go."""
    run = RunDirectory(tmp_path / "run")
    words = ["-m", "unperturbed", "train", NAMES[0], "--out", str(run.path), *LONG, "--steps", "100000"]
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: len(run.read_log()) >= 2, lambda: process.poll() is None)
        process.stderr.close()
        process.send_signal(number)
        assert process.wait(60) == code
    finally:
        process.kill()
    assert run.read_checkpoint(CPU)["step"] >= 10


@both_signals
def test_runs_side_by_side_all_leave_a_checkpoint_on_a_signal(long_runs, tmp_path, number, code):
    out, errors = tmp_path / "runs", tmp_path / "errors"
    runs = [RunDirectory(out / name) for name in NAMES]
    words = ["train", *NAMES, "--together", "--out", str(out), *LONG]
    process = in_a_process(command, words, errors)
    wait_until(lambda: len(runs[1].read_log()) >= 2, process.is_alive)
    os.kill(process.pid, number)
    assert ended(process) == code
    steps = [run.read_checkpoint(CPU)["step"] for run in runs]
    assert all(10 <= step < 60 for step in steps)
    assert all(f"{run.path} at step {step} of 60" in said(errors) for run, step in zip(runs, steps, strict=True))
    cli.main(words)
    for run in runs:
        assert_same_end(run, RunDirectory(long_runs / run.path.name))


def test_a_second_interrupt_stops_at_once_in_the_middle_of_a_step(long_runs, tmp_path):
    run, errors = RunDirectory(tmp_path / "run"), tmp_path / "errors"
    words = ["train", NAMES[0], "--out", str(run.path), *LONG]
    process = in_a_process(command, words, errors, 0.0, 12)
    wait_until(lambda: len(run.read_log()) >= 2, process.is_alive)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    wait_until(lambda: "stopping after this step; Ctrl-C stops at once" in said(errors), process.is_alive)
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert process.is_alive(), "a SIGTERM after that is the same wish once more"
    started = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == 130
    assert time.monotonic() - started < 10.0
    assert "stopped; the same command goes on from what is on disk" in said(errors)
    assert run.read_checkpoint(CPU) is None
    cli.main(words)
    assert_same_end(run, RunDirectory(long_runs / NAMES[0]))


@both_signals
def test_before_the_first_step_a_signal_ends_the_command_at_once(tmp_path, monkeypatch, number, code):
    monkeypatch.setattr(training, "load", lambda *_: time.sleep(30.0))
    errors = tmp_path / "errors"
    process = in_a_process(command, ["train", NAMES[0], "--out", str(tmp_path / "run"), *LONG], errors)
    wait_until(errors.exists, process.is_alive)
    time.sleep(0.5)
    os.kill(process.pid, number)
    assert ended(process) == code
    assert not (tmp_path / "run").exists()


SCRIPT = "import sys; from unperturbed.__main__ import main; sys.exit(main())"
"""what an installer writes for the console script of pyproject.toml"""


def interrupted_while_importing(tmp_path: Path, module: str, words: list[str], number: int) -> tuple[int, str]:
    """Send a signal to a Python that imports a module which takes its time: the exit code and stderr."""
    (tmp_path / f"{module}.py").write_text("import sys, time; print('importing', flush=True); time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@both_signals
@pytest.mark.parametrize("module", ["torch", "matplotlib"])
@pytest.mark.parametrize("way", ["module", "script"])
def test_while_modules_are_imported_a_signal_ends_the_command_in_a_sentence(tmp_path, way, module, number, code):
    (tmp_path / "unperturbed").write_text(SCRIPT)
    words = ["-m", "unperturbed", "--help"] if way == "module" else [str(tmp_path / "unperturbed"), "--help"]
    sentence = "\nunperturbed: stopped; the same command goes on from what is on disk\n"
    assert interrupted_while_importing(tmp_path, module, words, number) == (code, sentence)


def test_a_program_that_imports_the_package_is_interrupted_as_usual(tmp_path):
    code, errors = interrupted_while_importing(tmp_path, "torch", ["-c", "import unperturbed"], signal.SIGINT)
    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


def test_the_console_script_is_the_one_that_is_tried_here():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"unperturbed": "unperturbed.__main__:main"}


def test_a_signal_while_a_teacher_is_trained_keeps_how_far_it_got(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    recipe = replace(TINY, labeler="teacher", teacher=replace(TINY.teacher, steps=30))
    watcher, asked = Disturbing(), []
    with pytest.raises(StoppedError, match=r"teachers.* at step 7 of 30"):
        train(recipe, tmp_path / "run", device="cpu", watcher=watcher, stop=lambda: len(asked.append(0) or asked) > 7)
    whole = trained(recipe, tmp_path / "whole")
    assert trained(recipe, tmp_path / "run").weights.read_bytes() == whole.weights.read_bytes()


def test_signals_that_a_process_was_started_to_ignore_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping_after_a_step():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_IGN, signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_library_leaves_signals_alone_and_the_command_line_gives_them_back(whole, tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen = []
    look = Disturbing(3, lambda: seen.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)))
    trained(TINY, tmp_path / "run", watcher=look)
    assert seen == before
    cli.main(["list", "--json"])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_sigterm_ends_other_commands_with_its_own_code():
    with pytest.raises(SignalError) as end, ending_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5.0)
    assert end.value.code == 143


# Kills in the middle of a write


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


MOMENTS = (
    "half of it written",
    "before it is flushed",
    "before the first name",
    "between the names",
    "after the names",
)
"""of a write at which a process is killed"""


def train_and_die_writing(out: Path, moment: str, checkpoints: int) -> None:
    """Train until so many checkpoints are written, and die within the last of them."""
    torch.set_num_threads(1)
    write, rename = RunDirectory.write_checkpoint, Path.replace
    left = [checkpoints]

    def counted(self: RunDirectory, state: dict[str, object], recipe: Recipe) -> None:
        left[0] -= 1
        write(self, state, recipe)

    def flush(descriptor: int) -> None:
        if left[0] == 0 and os.fstat(descriptor).st_size > 2000:
            if moment == "half of it written":
                os.ftruncate(descriptor, 1000)
            die()

    def replaced(self: Path, target: Path) -> Path:
        if left[0] == 0 and moment == "before the first name" and target.name == "checkpoint-before.pt":
            die()
        if left[0] == 0 and moment == "between the names" and target.name == "checkpoint.pt":
            die()
        rename(self, target)
        if left[0] == 0 and moment == "after the names" and target.name == "checkpoint.pt":
            die()
        return target

    RunDirectory.write_checkpoint = counted
    Path.replace = replaced
    if moment in ("half of it written", "before it is flushed"):
        os.fsync = flush
    train(TINY, out, device="cpu", checkpoint_seconds=0.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_while_a_checkpoint_is_written_ends_as_if_it_had_not_been(whole, tmp_path, moment):
    run = RunDirectory(tmp_path / "run")
    reached = 0
    for _ in range(3):
        process = in_a_process(train_and_die_writing, run.path, moment, 4)
        assert ended(process) == -signal.SIGKILL
        reached += 4 if moment == "after the names" else 3
        assert run.read_checkpoint(CPU)["step"] == reached
        assert (moment == "between the names") == (not run.checkpoint.exists())
    watcher = Disturbing()
    assert_same_end(trained(TINY, run.path, watcher=watcher), whole)
    assert not [sentence for sentence in watcher.warnings if "damaged" in sentence]


# Damaged checkpoints


def flipped(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


@pytest.mark.parametrize("damage", ["cut off", "flipped bit", "empty"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it_and_the_run_ends_the_same(whole, tmp_path, damage):
    run = stopped_after(8, tmp_path / "run")
    assert (run.read_checkpoint(CPU)["step"], opened(run.checkpoint_before.read_bytes(), CPU)["step"]) == (7, 6)
    if damage == "flipped bit":
        flipped(run.checkpoint, 40_001)
    else:
        os.truncate(run.checkpoint, 3000 if damage == "cut off" else 0)
    watcher = Disturbing()
    assert_same_end(trained(TINY, run.path, watcher=watcher), whole)
    heard = [sentence for sentence in watcher.warnings if "damaged" in sentence]
    assert heard == [f"{run.checkpoint} was damaged: the run goes on from the one before it, of step 6"]


def test_two_damaged_checkpoints_are_one_sentence_and_a_failure(tmp_path):
    words = ["train", NAMES[0], "--out", str(tmp_path / "run"), *LONG, "--checkpoint-seconds", "0"]
    words[words.index("60")] = "5"
    cli.main(words)
    run = RunDirectory(tmp_path / "run")
    flipped(run.checkpoint, 9999)
    flipped(run.checkpoint_before, 9999)
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    them = "checkpoint.pt, checkpoint-before.pt and model.safetensors"
    assert f"are no whole checkpoints of unperturbed: delete {them} there to start" in str(end.value.code)
    assert "\n" not in str(end.value.code)


# Two processes on one directory


def test_a_second_process_is_refused_with_the_id_of_the_first_and_goes_on_when_that_was_killed(long_runs, tmp_path):
    run, errors = RunDirectory(tmp_path / "run"), tmp_path / "errors"
    words = ["train", NAMES[0], "--out", str(run.path), *LONG]
    process = in_a_process(command, [*words, "--checkpoint-seconds", "0"], errors)
    wait_until(lambda: len(run.read_log()) >= 2, process.is_alive)
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert f"{run.path} is in use by process {process.pid}, which trains there" in str(end.value.code)
    assert process.is_alive()
    process.kill()
    assert ended(process) == -signal.SIGKILL
    assert run.read_checkpoint(CPU)["step"] >= 10
    cli.main(words)
    assert_same_end(run, RunDirectory(long_runs / NAMES[0]))


def test_a_finished_run_is_evaluated_while_its_directory_is_held(long_runs):
    run = RunDirectory(long_runs / NAMES[0])
    with run.alone():
        cli.main(["evaluate", str(run.path), "--attacks", "fgsm", "--images", "4", "--device", "cpu"])
    assert run.report.exists()
    run.report.unlink()


def test_of_two_runs_that_need_the_same_teacher_the_second_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    recipe = replace(TINY, labeler="teacher", teacher=replace(TINY.teacher, steps=60))
    process = in_a_process(train_once_another_waits, recipe, tmp_path / "first")
    wait_until(lambda: any((tmp_path / "cache").glob("teachers/*/.lock")), process.is_alive)
    watcher = Disturbing()
    monkeypatch.setattr(
        watcher, "warned", lambda *words: (tmp_path / WAITS).touch() or Disturbing.warned(watcher, *words)
    )
    second = trained(recipe, tmp_path / "second", watcher=watcher)
    assert any(f"is in use by process {process.pid}" in sentence for sentence in watcher.warnings)
    assert ended(process) == 0
    assert second.weights.read_bytes() == RunDirectory(tmp_path / "first").weights.read_bytes()


WAITS = "another-waits"


def train_once_another_waits(recipe: Recipe, out: Path) -> None:
    torch.set_num_threads(1)
    advance, latest = Trainer.advance, time.monotonic() + 60

    def advance_then(trainer: Trainer) -> None:
        while not (out.parent / WAITS).exists() and time.monotonic() < latest:
            time.sleep(0.01)
        advance(trainer)

    Trainer.advance = advance_then
    train(recipe, out, device="cpu")


def test_a_run_that_is_refused_lets_go_of_the_others_that_were_to_be_trained_with_it(tmp_path):
    with RunDirectory(tmp_path / "held").alone(), pytest.raises(ValueError, match="is in use by process"):
        train_together({tmp_path / "free": TINY, tmp_path / "held": TINY}, device="cpu")
    trained(TINY, tmp_path / "free")


# Full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root mounts file systems")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_disk_that_is_full_when_a_checkpoint_is_due_costs_nothing_but_time(whole, small_disk):
    run = RunDirectory(small_disk / "run")
    with pytest.raises(OSError, match=r"could not write .*checkpoint\.pt \(No space left on device\): what was"):
        trained(TINY, run.path, watcher=Disturbing(8, lambda: fill(small_disk)), checkpoint_seconds=0.0)
    assert run.read_checkpoint(CPU)["step"] == 7
    with pytest.raises(OSError, match=r"\(No space left on device\): .* the same command goes on"):
        trained(TINY, run.path)
    assert run.read_checkpoint(CPU)["step"] == 7
    (small_disk / "filler").unlink()
    assert_same_end(trained(TINY, run.path), whole)


def test_a_disk_that_is_full_when_the_log_is_written_costs_nothing_but_time(whole, small_disk):
    run = RunDirectory(small_disk / "run")
    stopped_after(4, run.path)
    with pytest.raises(OSError, match=r"could not write .*log\.jsonl \(No space left on device\): what was"):
        trained(TINY, run.path, watcher=Disturbing(5, lambda: fill(small_disk)))
    assert run.read_checkpoint(CPU)["step"] == 3
    (small_disk / "filler").unlink()
    assert_same_end(trained(TINY, run.path), whole)


def test_a_disk_that_is_full_when_the_report_is_written_costs_one_attack(long_runs, small_disk):
    run = RunDirectory(Path(shutil.copytree(long_runs / NAMES[0], small_disk / "run")))
    words = ["evaluate", str(run.path), "--images", "40", "--batch", "10", "--device", "cpu", "--attacks"]
    cli.main([*words, "fgsm"])
    before = run.report.read_bytes()
    fill(small_disk)
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "fgsm,pgd"])
    assert "report.json (No space left on device): what was there before is kept" in str(end.value.code)
    assert run.report.read_bytes() == before
    (small_disk / "filler").unlink()
    cli.main([*words, "fgsm,pgd"])
    assert [result.name for result in read(run.report).attacks] == ["fgsm", "pgd"]


@pytest.mark.parametrize(("file", "limit", "step"), [("checkpoint.pt", 3000, 6), ("log.jsonl", 100, 3)])
def test_a_write_that_is_cut_off_anywhere_costs_nothing_but_time(whole, tmp_path, file, limit, step):
    run = RunDirectory(tmp_path / "run")
    seconds = 0.0 if file == "checkpoint.pt" else 3600.0
    stopped_after(step + 1, run.path)
    with files_limited_to(2**40), pytest.raises(OSError, match=rf"could not write .*{file} \(File too large\)"):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        shrink = Disturbing(step + 1, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard)))
        trained(TINY, run.path, watcher=shrink, checkpoint_seconds=seconds)
    assert run.read_checkpoint(CPU)["step"] == step
    if file == "log.jsonl":
        assert len((run.path / file).read_bytes()) == limit, "the last line is half-written"
    assert_same_end(trained(TINY, run.path), whole)


# Places that cannot be written


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Makes a directory one that cannot be written to, also for root where it may mount."""
    mounted: list[Path] = []

    def protect(directory: Path) -> None:
        if os.geteuid() != 0:
            directory.chmod(0o555)
        else:
            for options in (["--bind", directory, directory], ["-o", "remount,ro,bind", directory]):
                if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
                    pytest.skip("root can write anywhere, and nothing can be mounted here")
                mounted.append(directory)
        mounted.append(directory)

    yield protect
    for directory in dict.fromkeys(mounted):
        subprocess.run(["umount", directory], capture_output=True, check=False)
        directory.chmod(0o755)


def test_a_directory_that_cannot_be_written_is_a_sentence_and_nothing_changes(whole, tmp_path, read_only):
    run = stopped_after(8, tmp_path / "run")
    read_only(run.path)
    for out in (run.path, run.path / "deeper"):
        with pytest.raises(OSError, match=rf"could not write {out} \(.+\): what was there before is kept") as error:
            trained(TINY, out)
        assert "\n" not in str(error.value)
    assert run.read_checkpoint(CPU)["step"] == 7


def test_a_report_that_cannot_be_written_is_a_sentence(long_runs, tmp_path, read_only):
    out = Path(shutil.copytree(long_runs / NAMES[0], tmp_path / "run"))
    read_only(out)
    with pytest.raises(SystemExit) as end:
        cli.main(["evaluate", str(out), "--attacks", "fgsm", "--images", "4", "--device", "cpu"])
    assert "could not write" in str(end.value.code)
    assert "report.json" in str(end.value.code)


# Clocks


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_changes_nothing(whole, tmp_path, monkeypatch, jump):
    clock, calls = time.time, []
    monkeypatch.setattr(time, "time", lambda: clock() + (jump if calls.append(0) or len(calls) % 2 else 0.0))
    run = stopped_after(8, tmp_path / "run")
    for file in run.path.iterdir():
        os.utime(file, (clock() + jump, clock() + jump))
    assert_same_end(trained(TINY, run.path), whole)


# Numbers that are none


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_a_gradient_that_is_no_number_ends_the_run_and_leaves_the_checkpoint_from_before(
    whole, tmp_path, monkeypatch, seconds
):
    advance = Trainer.advance

    def poisoned(self: Trainer) -> object:
        weight = next(self.f.parameters())
        hook = weight.register_hook(lambda gradient: gradient * math.nan if self.step == 8 else gradient)
        terms = advance(self)
        hook.remove()
        return terms

    run = stopped_after(7, tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(DivergedError, match=r"not finite from step \d+ on") as error:
        patch.setattr(Trainer, "advance", poisoned)
        trained(TINY, run.path, checkpoint_seconds=seconds)
    assert "a checkpoint from before that is kept" in str(error.value)
    for file in filter(Path.exists, (run.checkpoint, run.checkpoint_before)):
        state = opened(file.read_bytes(), CPU)
        assert 5 <= state["step"] <= 8
        assert all(tensor.isfinite().all() for tensor in state["model"].values())
    assert not run.weights.exists()
    assert_same_end(trained(TINY, run.path), whole)


def test_a_signal_after_a_bad_step_does_not_overwrite_the_good_checkpoint(tmp_path, monkeypatch):
    advance = Trainer.advance

    def spoiled(self: Trainer) -> object:
        terms = advance(self)
        if self.step == 8:
            next(self.f.parameters()).data.fill_(math.nan)
        return terms

    run = stopped_after(7, tmp_path / "run")
    asked = []
    monkeypatch.setattr(Trainer, "advance", spoiled)
    with pytest.raises(DivergedError):
        trained(TINY, run.path, stop=lambda: len(asked.append(0) or asked) > 2)
    assert run.read_checkpoint(CPU)["step"] == 6


# Data that change


def own_data(file: Path, *, changed: bool = False) -> Recipe:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 10
    images[3, 4, 4] ^= changed
    parts = {"train_images": images[:40], "train_labels": labels[:40]}
    np.savez(file, **parts, test_images=images[40:], test_labels=labels[40:])
    return replace(TINY, data=Data(name=str(file), labeled=20), batch=20)


def test_data_that_changed_under_a_run_are_refused_and_the_right_ones_go_on(tmp_path):
    recipe = own_data(tmp_path / "my.npz")
    whole = trained(recipe, tmp_path / "whole")
    run = stopped_after(8, tmp_path / "run", recipe)
    assert run.read_recipe() == recipe, "a recipe without the checksum is still the same recipe"
    assert run.read_recipe().data.sha256 == parts(load(recipe.data.name), recipe.data).checksum()
    own_data(tmp_path / "my.npz", changed=True)
    with pytest.raises(
        ValueError, match=r"holds a run on other images or labels \(.*\): restore the data of "
    ) as error:
        trained(recipe, run.path)
    assert "\n" not in str(error.value)
    assert run.read_checkpoint(CPU)["step"] == 7
    own_data(tmp_path / "my.npz")
    assert_same_end(trained(recipe, run.path), whole)


def test_a_recipe_file_is_not_followed_on_other_data(tmp_path):
    recipe = own_data(tmp_path / "my.npz")
    first = trained(recipe, tmp_path / "first")
    words = ["train", "--from", str(first.path / "recipe.json"), "--device", "cpu", "--out"]
    cli.main([*words, str(tmp_path / "again")])
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == first.weights.read_bytes()
    own_data(tmp_path / "my.npz", changed=True)
    with pytest.raises(SystemExit) as end:
        cli.main([*words, str(tmp_path / "other")])
    assert f"the recipe is for other images or labels of {tmp_path / 'my.npz'}" in str(end.value.code)
    assert str(end.value.code).endswith("where others are meant, as with --data.labeled, add --data.sha256 None")
    assert not (tmp_path / "other").exists()
    cli.main([*words, str(tmp_path / "other"), "--data.sha256", "None"])
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != first.weights.read_bytes()


def test_a_checksum_of_images_sees_every_change_and_nothing_else():
    digits, data = load("digits"), Data(labeled=100, validation=30)
    images = parts(digits, data)
    checksum = images.checksum()
    assert parts(digits, replace(data, sha256="kept", crop=2)).checksum() == checksum
    pixel, label, unlabeled = images.labeled.clone(), images.labels.clone(), images.unlabeled.clone()
    pixel[0, 0, 0, 0] ^= 1
    label[[0, 1]] = label[[1, 0]] + (label[0] == label[1]).long()
    unlabeled[-1, 0, 7, 7] ^= 1
    others = [
        replace(images, labeled=pixel),
        replace(images, labels=label),
        replace(images, unlabeled=unlabeled),
        replace(images, unlabeled=images.unlabeled.flip(0)),
        replace(images, labeled=images.labeled.transpose(2, 3)),
        replace(images, labels=images.labels.int()),
        parts(digits, replace(data, seed=1)),
    ]
    assert len({checksum, *(other.checksum() for other in others)}) == 1 + len(others)


def test_the_checksum_goes_through_a_recipe_file():
    recipe = replace(TINY, data=replace(TINY.data, sha256="ab12"))
    assert recipe_files.loads(recipe_files.dumps(recipe)).data.sha256 == "ab12"


# Evaluations

ATTACKS = ["fgsm", "pgd", "gridadv.r"]


def evaluation_of(run: Path) -> list[str]:
    words = ["evaluate", str(run), "--images", "40", "--batch", "10", "--device", "cpu"]
    return [*words, "--attacks", ",".join(ATTACKS)]


def without_seconds(file: Path) -> object:
    tree = json.loads(file.read_text())

    def stripped(value: object) -> object:
        if isinstance(value, dict):
            return {key: stripped(item) for key, item in value.items() if key != "seconds"}
        return [stripped(item) for item in value] if isinstance(value, list) else value

    return stripped(tree)


@pytest.fixture(scope="module")
def evaluated(long_runs, tmp_path_factory):
    """The report of an evaluation that nothing disturbed."""
    run = RunDirectory(Path(shutil.copytree(long_runs / NAMES[0], tmp_path_factory.mktemp("evaluated") / "run")))
    cli.main(evaluation_of(run.path))
    return without_seconds(run.report)


def evaluate_and_die(run: Path, batches: int, saves: int) -> None:
    """Evaluate, and die within a batch of an attack or right after a report was saved."""
    torch.set_num_threads(1)
    attacked, save = evaluation.Defender.attacked, cli.evaluate.__globals__["write_whole"]
    left = {"batches": batches, "saves": saves}

    def count(what: str) -> None:
        left[what] -= 1
        if left[what] == 0:
            die()

    def mortal_attack(self: evaluation.Defender, *arguments: object) -> object:
        found = attacked(self, *arguments)
        count("batches")
        return found

    def mortal_save(path: Path, content: bytes) -> None:
        save(path, content)
        count("saves")

    evaluation.Defender.attacked = mortal_attack
    cli.evaluate.__globals__["write_whole"] = mortal_save
    cli.main(evaluation_of(run))


@pytest.mark.parametrize(
    ("batches", "saves", "kept"), [(1, 0, 0), (4, 0, 0), (6, 0, 1), (11, 0, 2), (0, 1, 1), (0, 2, 2), (0, 3, 3)]
)
def test_an_evaluation_killed_within_and_between_attacks_ends_with_the_same_report(
    long_runs, evaluated, tmp_path, batches, saves, kept
):
    run = RunDirectory(Path(shutil.copytree(long_runs / NAMES[0], tmp_path / "run")))
    assert ended(in_a_process(evaluate_and_die, run.path, batches, saves)) == -signal.SIGKILL
    done = [result.name for result in read(run.report).attacks] if run.report.exists() else []
    assert done == ATTACKS[:kept]
    cli.main(evaluation_of(run.path))
    assert without_seconds(run.report) == evaluated


@both_signals
def test_a_signal_ends_an_evaluation_and_what_was_saved_stays(long_runs, evaluated, tmp_path, number, code):
    run = RunDirectory(Path(shutil.copytree(long_runs / NAMES[0], tmp_path / "run")))
    process = in_a_process(command, evaluation_of(run.path), tmp_path / "errors", 0.2)
    wait_until(run.report.exists, process.is_alive)
    os.kill(process.pid, number)
    assert ended(process) == code
    assert "stopped; the same command goes on from what is on disk" in said(tmp_path / "errors")
    assert "Traceback" not in said(tmp_path / "errors")
    assert [result.name for result in read(run.report).attacks] == ATTACKS[:1]
    cli.main(evaluation_of(run.path))
    assert without_seconds(run.report) == evaluated
