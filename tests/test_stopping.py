"""How runs leave checkpoints when they are to stop, or when one of them diverges."""

from types import SimpleNamespace

import pytest
import torch

from unperturbed import stopping
from unperturbed.guards import DivergedError
from unperturbed.signals import StoppedError
from unperturbed.stopping import (
    agreed,
    kept_where_one_diverges,
    leave_checkpoints,
    running,
    telling_of_divergence,
    waiting_for_others,
)

CPU = torch.device("cpu")


def run_of(path, step, *, first=True, ended=False, finite=True, checkpoint=False, fails=False):
    """A run directory and a trainer that note what is asked of them, in `written`."""
    written = []

    def require_finite():
        if not finite:
            raise DivergedError("the weights are no numbers")

    def write_checkpoint(state, recipe):
        if fails:
            raise OSError("the disk is full")
        written.append(state)

    def steps_to_take(**settings):
        written.append(sorted(settings))
        yield from range(step)

    run = SimpleNamespace(
        path=path,
        checkpoint=SimpleNamespace(exists=lambda: checkpoint),
        write_checkpoint=write_checkpoint,
        write_log=None,
        write_weights=lambda weights, use: written.append("weights"),
        written=written,
    )
    trainer = SimpleNamespace(
        step=step,
        device=CPU,
        recipe=SimpleNamespace(steps=12),
        processes=SimpleNamespace(first=first),
        ended=ended,
        require_finite=require_finite,
        state=lambda: step,
        steps_to_take=steps_to_take,
        f=torch.nn.Identity(),
    )
    return run, trainer


def test_runs_that_are_to_stop_leave_checkpoints_and_say_where():
    runs = [run_of("a", 3), run_of("b", 5), run_of("c", 12, ended=True), run_of("d", 3, first=False)]
    with pytest.raises(StoppedError) as stopped:
        leave_checkpoints(runs[:2])
    assert str(stopped.value) == (
        "stopped with a checkpoint of a at step 3 of 12 and b at step 5 of 12; the same command goes on from there"
    )
    with pytest.raises(StoppedError):
        leave_checkpoints(runs[2:])
    assert [run.written for run, _ in runs] == [[3], [5], [], []], "whoever has ended or does not write leaves none"


def test_a_run_that_cannot_be_kept_does_not_keep_others_from_it():
    runs = [run_of("a", 1), run_of("b", 2, fails=True), run_of("c", 3)]
    with pytest.raises(OSError, match="disk is full"):
        leave_checkpoints(runs)
    assert [run.written for run, _ in runs] == [[1], [], [3]]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_weights_that_are_no_numbers_are_not_kept_when_a_run_is_to_stop(checkpoint, count):
    runs = [run_of("a", 3, finite=False, checkpoint=checkpoint), run_of("b", 5)][:count]
    with pytest.raises(DivergedError) as diverged:
        leave_checkpoints(runs)
    kept = "; a checkpoint from before that is kept" if checkpoint else ""
    assert str(diverged.value) == f"{'a: ' if count > 1 else ''}the weights are no numbers{kept}"
    assert [run.written for run, _ in runs] == [[], [5]][:count]


def test_where_one_run_diverges_the_others_leave_checkpoints():
    runs = [run_of("a", 3), run_of("b", 5, finite=False), run_of("c", 7)]
    with pytest.raises(DivergedError, match=r"^b has diverged$"), kept_where_one_diverges(runs):
        raise DivergedError("b has diverged")
    assert [run.written for run, _ in runs] == [[3], [], [7]]
    with pytest.raises(KeyError), kept_where_one_diverges(runs):
        raise KeyError
    assert [run.written for run, _ in runs] == [[3], [], [7]]


def test_what_is_no_divergence_is_told_as_it_is():
    run, _ = run_of("a", 3, checkpoint=True)
    with pytest.raises(KeyError, match=r"^'mine'$"), telling_of_divergence(run, alone=False):
        raise KeyError("mine")


def test_a_run_that_diverges_on_its_way_leaves_no_weights_and_says_which_it_was():
    run, trainer = run_of("a", 3, checkpoint=True)

    def diverging(**settings):
        yield 0
        raise DivergedError("the loss is no number")

    trainer.steps_to_take = diverging
    steps = running(run, trainer, None, None, 60.0, alone=False)
    assert next(steps) == 0
    with pytest.raises(DivergedError, match=r"^a: the loss is no number; a checkpoint from before that is kept$"):
        next(steps)
    assert run.written == []


@pytest.mark.parametrize("first", [True, False])
def test_one_process_alone_writes_what_a_run_leaves(first):
    run, trainer = run_of("a", 3, first=first)
    assert list(running(run, trainer, None, None, 60.0, alone=True)) == [0, 1, 2]
    everything = ["checkpoint_seconds", "watcher", "write_checkpoint", "write_log"]
    assert run.written == ([everything, "weights"] if first else [[]])


def test_processes_ask_each_other_once_in_ten_steps_whether_to_stop(monkeypatch):
    asked, other = [], torch.ones(1, dtype=torch.int32)

    def least_(own):
        asked.append(own.tolist())
        return own.minimum(other)

    monkeypatch.setattr(stopping, "present", lambda: SimpleNamespace(count=2, least_=least_))
    for mine, others, stops in ((False, False, False), (False, True, True), (True, False, True)):
        other.fill_(not others)
        answer = agreed(lambda mine=mine: mine, CPU)
        assert [answer() for _ in range(21)] == [stops if step % 10 == 0 else False for step in range(21)]
    assert asked == [[1]] * 6 + [[0]] * 3
    monkeypatch.setattr(stopping, "present", lambda: SimpleNamespace(count=1))
    assert agreed(bool, CPU) is bool


def test_waiting_for_another_process_is_told_once_and_ends_when_asked_to(monkeypatch):
    slept, told, answers = [], [], iter([False, False, True])
    monkeypatch.setattr("time.sleep", slept.append)
    wait = waiting_for_others(SimpleNamespace(warned=told.append), lambda: next(answers))
    for sentence in ("it trains", "it still does"):
        wait(sentence)
    with pytest.raises(StoppedError, match=r"^stopped while waiting for another process; the same command goes on$"):
        wait("it does")
    assert told == ["waiting: it trains"]
    assert len(slept) == 2
    waiting_for_others(None, bool)("nobody is told")
