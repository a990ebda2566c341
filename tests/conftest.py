"""What all tests share."""

import os
import signal
from pathlib import Path

import pytest
import torch

from unperturbed.cli import main

torch.set_num_threads(1)
# foolbox, which ours are compared with, asks for git and refuses to load where there is none; no attack needs it.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
# No test has a power cut, from which a flush of the disk is to save a file, and short runs would mostly wait for it.
os.fsync = lambda descriptor: None
# A shell has what it runs in the background ignore interrupts, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng() -> torch.Generator:
    """A seeded source of random numbers, the same in every test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def refused(capsys):
    """Runs a command that must be refused in one sentence with the exit code 1, and returns that sentence."""

    def run(*words):
        capsys.readouterr()  # What was printed before is not of this command.
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        sentence = stop.value.code
        assert isinstance(sentence, str), "an exit with a sentence is an exit with code 1"
        assert sentence.startswith("unperturbed: ")
        assert "\n" not in sentence
        assert capsys.readouterr().out == ""
        return sentence

    return run


@pytest.fixture(autouse=True, scope="session")
def cache_of_its_own(tmp_path_factory):
    """Teachers that tests train do not land in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNPERTURBED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_terminal_summary(terminalreporter):
    """Say in a line of its own that the page was not tried in a browser."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", ())]
    if count := sum("Chromium" in reason for reason in skipped):
        line = f"{count} tests of the page were skipped: there is no Chromium (on Debian: apt-get install chromium)"
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture
def unreadable(monkeypatch):
    """Makes files of a name such that nobody may open them, root neither."""
    opened = Path.open

    def make(name):
        def refusing(path, *others, **settings):
            if path.name == name:
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path, *others, **settings)

        monkeypatch.setattr(Path, "open", refusing)

    return make
