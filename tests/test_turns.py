"""Runs side by side: each gets its turn, none waits for what another makes a device do, none stops within a step."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
import torch

from tiny import TINY, timeless
from unperturbed import turns
from unperturbed.guards import DivergedError
from unperturbed.recipe import SGD, Validation
from unperturbed.runs import RunDirectory
from unperturbed.schedules import Piecewise
from unperturbed.signals import StoppedError
from unperturbed.trainer import Trainer
from unperturbed.training import train_together
from unperturbed.turns import run_together

CPU = torch.device("cpu")


@dataclass
class Work:
    """Work of a device that is done once it was asked for so many times, or waited for."""

    left: int
    waits: list[str] = field(default_factory=list)

    def query(self) -> bool:
        self.left -= 1
        return self.left < 0

    def synchronize(self) -> None:
        self.left = 0
        self.waits.append("waited")


def run(name, items, seen):
    """A run that takes these steps and waits for this work, and tells what it has come to."""
    for item in items:
        if isinstance(item, int):
            seen.append(f"{name}{item}")
        yield item
    seen.append(f"{name} ended")


def stop_at(times):
    """A question that is answered with yes from that time on."""
    asked = count(1)
    return lambda: next(asked) >= times


def test_runs_take_turns_until_all_end():
    seen: list[str] = []
    assert run_together([run("a", [1, 2], seen), run("b", [1, 2, 3], seen)], CPU)
    assert seen == ["a1", "b1", "a2", "b2", "a ended", "b3", "b ended"]


def test_others_go_on_while_a_run_waits_for_the_device():
    seen: list[str] = []
    work = Work(left=2)
    assert run_together([run("a", [1, work, 2], seen), run("b", [1, 2, 3, 4, 5], seen)], CPU)
    assert seen == ["a1", "b1", "b2", "b3", "b4", "a2", "b5", "a ended", "b ended"]
    assert not work.waits


def test_where_all_runs_wait_the_first_for_which_the_device_is_ready_goes_on():
    seen: list[str] = []
    first, second = Work(left=9), Work(left=3)
    assert run_together([run("a", [1, first, 2], seen), run("b", [1, second, 2], seen)], CPU)
    assert not first.waits + second.waits
    assert seen == ["a1", "b1", "b2", "b ended", "a2", "a ended"]


class Gpu:
    """A device that takes a while for the steps of each run, in streams of their own, and a clock that it goes by.

    In a stream that has much before it there is no place for more: the host waits.
    """

    type, places = "cuda", 32

    def __init__(self, monkeypatch):
        self.now, self.stream, self.busy_until = 0.0, -1, dict[int, float]()
        streams = count()
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: next(streams))
        monkeypatch.setattr(torch.cuda, "stream", self.within)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(torch.cuda, "Event", lambda: Mark(self))
        monkeypatch.setattr(turns, "random_numbers_kept", lambda device: nullcontext())
        monkeypatch.setattr(turns.time, "sleep", self.sleep)

    def within(self, stream):
        gpu = self

        class Within:
            def __enter__(self):
                gpu.stream = stream

            def __exit__(self, *error):
                pass

        return Within()

    def sleep(self, seconds):
        self.now += 1.0

    def run(self, name, steps, seconds, ended):
        for step in range(steps):
            before = self.busy_until.get(self.stream, 0.0)
            self.now = max(self.now, before - self.places * seconds)
            self.busy_until[self.stream] = max(self.now, before) + seconds
            yield step
        ended[name] = self.busy_until[self.stream]


class Mark:
    """The end of what is launched in a stream."""

    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.done_at = self.gpu.busy_until[self.gpu.stream]

    def query(self):
        return self.gpu.now >= self.done_at


def test_runs_of_short_steps_do_not_wait_for_those_of_long_ones(monkeypatch):
    gpu, ended = Gpu(monkeypatch), {}
    assert run_together([gpu.run("short", 800, 1.0, ended), gpu.run("long", 80, 100.0, ended)], gpu)
    assert ended["short"] == pytest.approx(800, rel=0.02), "as if it were alone"
    assert ended["long"] == pytest.approx(8000, rel=0.02)


def test_a_device_never_has_more_than_two_turns_of_a_run_before_it(monkeypatch):
    gpu, deepest = Gpu(monkeypatch), []

    def watched(steps):
        for step in steps:
            deepest.append(gpu.busy_until[gpu.stream] - gpu.now)
            yield step

    assert run_together([watched(gpu.run("a", 100, 5.0, {})), watched(gpu.run("b", 100, 5.0, {}))], gpu)
    assert max(deepest) == turns.TURNS_AHEAD * turns.STEPS_IN_TURN * 5.0


@pytest.mark.parametrize("after", [[2], []], ids=["before another step", "before its end"])
def test_a_run_that_waits_when_all_are_to_stop_ends_its_step_first(after):
    seen: list[str] = []
    work = Work(left=10**9)
    runs = [run("a", [1, work, *after], seen), run("b", range(1, 9), seen)]
    assert not run_together(runs, CPU, stop_at(4))
    assert work.waits == ["waited"]
    assert seen[-1] == ("a2" if after else "a ended")
    assert "a1" in seen and "b ended" not in seen


def failing(name, steps, seen):
    yield from run(name, range(1, steps + 1), seen)
    raise DivergedError(f"{name} diverged")


def test_a_run_that_waits_when_another_fails_ends_its_step_first_and_its_own_failure_is_not_told():
    seen: list[str] = []
    works = [Work(left=10**9) for _ in range(2)]

    def diverging_too():
        yield works[1]
        raise DivergedError("b diverged")

    with pytest.raises(DivergedError, match="c diverged"):
        run_together([run("a", [1, works[0], 2, 3], seen), diverging_too(), failing("c", 4, seen)], CPU)
    assert [work.waits for work in works] == [["waited"]] * 2
    assert "a2" in seen and "a3" not in seen


def test_a_run_beside_one_that_diverges_loses_no_look_at_its_held_out_images(tmp_path, monkeypatch):
    watched = replace(TINY, data=replace(TINY.data, validation=20), validation=Validation(every=4), log_every=5)
    diverging = replace(TINY, optimizer=SGD(rate=Piecewise(rate=1e30)), log_every=6)
    train_together({tmp_path / "whole": watched}, device="cpu")
    with monkeypatch.context() as patched:
        waits = {watched.log_every: 10**9, diverging.log_every: 0}
        patched.setattr(Trainer, "caught_up", lambda self: iter([Work(left=waits[self.recipe.log_every])]))
        with pytest.raises(DivergedError):
            train_together({tmp_path / "beside": watched, tmp_path / "diverging": diverging}, device="cpu")
    train_together({tmp_path / "beside": watched}, device="cpu")
    whole, beside = (RunDirectory(tmp_path / name) for name in ("whole", "beside"))
    assert timeless(beside.read_log()) == timeless(whole.read_log())
    assert beside.weights.read_bytes() == whole.weights.read_bytes()


@pytest.mark.parametrize("times", range(2, 18))
def test_runs_leave_the_same_log_wherever_they_are_stopped(times, tmp_path, monkeypatch):
    recipes = {"one": TINY, "other": replace(TINY, seed=1)}
    train_together({tmp_path / "whole" / name: recipe for name, recipe in recipes.items()}, device="cpu")
    monkeypatch.setattr(Trainer, "caught_up", lambda self: iter([Work(left=self.recipe.seed * 4)]))
    stopped = {tmp_path / "stopped" / name: recipe for name, recipe in recipes.items()}
    with pytest.raises(StoppedError):
        train_together(stopped, device="cpu", stop=stop_at(times))
    train_together(stopped, device="cpu")
    for name in recipes:
        whole, parts = (RunDirectory(tmp_path / how / name) for how in ("whole", "stopped"))
        assert parts.weights.read_bytes() == whole.weights.read_bytes()
        assert timeless(parts.read_log()) == timeless(whole.read_log())
