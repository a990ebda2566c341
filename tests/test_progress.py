"""What a person sees while something is going on."""

import errno
import sys
from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from unperturbed import progress
from unperturbed.progress import Bars, Lines, Titled, spoken, watching

RECORD = {
    "step": 20,
    "rate": 0.05,
    "standard": 1.25,
    "robust": 0.5,
    "robust_weight": 0.75,
    "labeled_accuracy": 0.9,
    "largest_class_share": 0.2,
    "images_per_second": 1234.5,
    "seconds": 3.0,
}
GIST = "loss 1.250 + 0.75 x 0.500, rate 0.05, C(x) 90%, 1234 img/s"


class Clock:
    """Time that passes only when it is told to."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    result = Clock()
    monkeypatch.setattr(progress, "time", result)
    return result


@pytest.fixture
def lines(clock):
    result = Lines()
    result.title = "mine"
    return result


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 120 columns in place of stderr, and what was written on it."""
    written = StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda **_: Console(file=written, force_terminal=True, width=120, color_system=None)
    )
    return written


def test_a_record_is_spoken_in_one_line():
    assert spoken(RECORD) == GIST
    told = GIST.replace("C(x) 90%,", "C(x) 90%, held out 75.0%,")
    assert spoken(RECORD | {"held_out_accuracy": 0.75}) == told


def test_away_from_a_terminal_there_are_plain_lines_on_stderr(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with watching() as watcher:
        assert isinstance(watcher, Lines)
        watcher.title = "mine"
        watcher.stepped(20, 20)
        watcher.logged(RECORD)
        watcher.warned("one class takes all")
        watcher.attacked("pgd", 40, 40, 0.625)
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.splitlines() == [
        f"mine: step 20 of 20, {GIST}",
        "mine: warning: one class takes all",
        "mine: pgd, 40 of 40 images, 62.5% unmoved",
    ]


def test_lines_come_now_and_then_and_at_the_end(lines, clock, capsys):
    for step in range(1, 101):
        clock.now += 1
        lines.stepped(step, 100)
        lines.logged(RECORD | {"step": step})
    steps = [int(line.split()[2]) for line in capsys.readouterr().err.splitlines()]
    assert steps == list(range(5, 101, 5))


def test_steps_of_minutes_are_told_before_the_log_has_a_line_of_them(lines, clock, capsys):
    for step in range(1, 5):
        clock.now += 40
        lines.stepped(step, 4)
    lines.logged(RECORD | {"step": 4, "images_per_second": 0.24})
    slow = GIST.replace("1234 img/s", "0.2 img/s")
    assert capsys.readouterr().err.splitlines() == ["mine: step 2 of 4", f"mine: step 4 of 4, {slow}"]


@pytest.mark.parametrize(("seconds", "every"), [(1.25, 50), (65.0, 1), (65.0, 2)])
def test_losses_of_slow_steps_are_told_though_their_step_was_told_before(lines, clock, capsys, seconds, every):
    for step in range(1, 201):
        clock.now += seconds
        lines.stepped(step, 1000)
        if step % every == 0:
            lines.logged(RECORD | {"step": step})
    assert capsys.readouterr().err.count("loss ") == 200 / every


def test_a_short_run_is_told_by_its_last_line_alone(lines, capsys):
    for step in (1, 2, 3):
        lines.stepped(step, 3)
        lines.logged(RECORD | {"step": step})
    assert capsys.readouterr().err == f"mine: step 3 of 3, {GIST}\n"


def test_an_attack_is_told_when_it_is_done_and_a_warning_at_once(lines, capsys):
    lines.attacked("pgd", 10, 40, 0.9)
    lines.warned("beware")
    lines.attacked("pgd", 40, 40, 0.5)
    assert capsys.readouterr().err == "mine: warning: beware\nmine: pgd, 40 of 40 images, 50.0% unmoved\n"


def test_on_a_terminal_there_are_bars(screen):
    with watching() as watcher:
        assert isinstance(watcher, Bars)
        watcher.title = "mine"
        watcher.stepped(15, 30)
        watcher.logged(RECORD)
        watcher.progress.refresh()
        watcher.stepped(30, 30)
        watcher.attacked("pgd", 10, 40, 0.9)
        watcher.progress.refresh()
        watcher.attacked("pgd", 40, 40, 0.5)
    seen = screen.getvalue()
    assert "15/30" in seen
    assert GIST in seen
    assert "30/30" in seen
    assert "mine under pgd" in seen
    assert "10/40" in seen
    assert "90.0% unmoved" in seen


@pytest.fixture
def small_screen(monkeypatch):
    """A terminal of 80 columns and 24 lines in place of stderr, and what was written on it."""
    written = StringIO()
    terminal = Console(file=written, force_terminal=True, width=80, height=24, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **_: terminal)
    return written


def test_a_terminal_of_80_columns_has_room_for_bar_count_time_and_note(small_screen):
    with watching() as watcher:
        watcher.title = "cifar10-pixel-srt-plusplus"
        watcher.stepped(11718, 23437)
        watcher.logged(RECORD)
        watcher.progress.refresh()
    seen = small_screen.getvalue()
    assert "cifar10-pixel-srt-plusplus" in seen
    assert "━" * 11 in seen
    assert "11718/23437 -:--:--" in seen
    assert f"  {GIST}" in seen


def test_of_more_runs_than_a_terminal_has_lines_for_the_newest_are_seen(small_screen):
    with watching() as watcher:
        for number in range(30):
            watcher.title = f"run-{number}"
            watcher.stepped(1, 2)
            watcher.logged(RECORD)
        before = len(small_screen.getvalue())
        watcher.progress.refresh()
        seen = small_screen.getvalue()[before:]
    assert "run-29" in seen
    assert "run-0 " not in seen


def test_a_bar_goes_up_and_that_of_a_finished_attack_goes_away():
    with Progress(console=Console(file=StringIO(), force_terminal=True)) as bars:
        watcher = Bars(bars)
        watcher.title = "mine"
        watcher.stepped(1, 3)
        watcher.stepped(2, 3)
        watcher.attacked("pgd", 10, 40, 0.9)
        assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
            ("mine", 2, 3),
            ("mine under pgd", 10, 40),
        ]
        watcher.attacked("pgd", 40, 40, 0.9)
        watcher.attacked("fgsm", 40, 40, 0.9)
        watcher.title = "yours"
        watcher.stepped(1, 5)
        assert [task.description for task in bars.tasks] == ["mine", "yours"]


def test_warnings_stand_above_the_bars(screen):
    with watching() as watcher:
        watcher.title = "mine"
        watcher.stepped(1, 3)
        watcher.warned("one class takes all")
    assert "warning mine: one class takes all" in screen.getvalue()


def test_a_title_is_shown_as_it_is_whatever_brackets_it_has(screen):
    with watching() as watcher:
        watcher.title = "mine [/] [red]"
        watcher.stepped(1, 3)
        watcher.warned("beware of [/]")
        watcher.attacked("[pgd]", 10, 40, 0.5)
    seen = screen.getvalue()
    assert "warning mine [/] [red]: beware of [/]" in seen
    assert "mine [/] [red] under [pgd]" in seen


class Unwritable(StringIO):
    """A stream on a full disk, or a terminal that is gone."""

    def __init__(self, *, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(("terminal", "kind"), [(False, Lines), (True, Bars)])
def test_what_cannot_be_written_is_lost_and_ends_nothing(monkeypatch, terminal, kind):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    gone = Unwritable(terminal=terminal)
    monkeypatch.setattr(sys, "stderr", gone)
    with watching() as watcher:
        assert isinstance(watcher, kind)
        watcher.title = "mine"
        watcher.stepped(20, 20)
        watcher.logged(RECORD)
        watcher.warned("one class takes all")
        watcher.attacked("pgd", 40, 40, 0.625)
    assert sys.stderr is gone


def test_a_line_names_the_steps_of_its_own_run_where_others_have_stepped_since(clock, capsys):
    watcher = Lines()
    short, long = Titled(watcher, "short"), Titled(watcher, "long")
    short.stepped(20, 20)
    long.stepped(8, 60)
    short.logged(RECORD)
    assert capsys.readouterr().err == f"short: step 20 of 20, {GIST}\n"
