"""TensorBoard's event files: they hold what the log holds, also after an interruption."""

import json
import sys
import threading

import pytest

from tiny import NETWORK
from unperturbed import events
from unperturbed.cli import main
from unperturbed.curves import TRAINING
from unperturbed.events import TAGS
from unperturbed.progress import HELD_OUT, Warnings

TINY = ["--batch", "40", *NETWORK, "--device", "cpu", "--log_every", "2"]


@pytest.fixture
def scalars():
    """Reads the event files in a folder: for each tag the steps and the numbers."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder):
        found = EventAccumulator(str(folder))
        found.Reload()
        return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}

    return read


def logged(directory, name):
    records = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    return [(record["step"], pytest.approx(record[name], rel=1e-6)) for record in records if name in record]


def train(out, *words):
    main(["train", "digits-pixel-srt", "--steps", "6", "--out", str(out), *TINY, *words])


def test_event_files_hold_the_numbers_of_the_log(tmp_path, scalars):
    train(tmp_path / "run", "--tensorboard")
    found = scalars(tmp_path / "run" / "tensorboard")
    assert found == {tag: logged(tmp_path / "run", name) for name, tag in TAGS.items() if name != HELD_OUT}
    assert [step for step, _ in found["terms/robust"]] == [2, 4, 6]


def test_event_files_hold_what_was_found_on_held_out_images(tmp_path, scalars):
    train(tmp_path / "run", "--tensorboard", "--data.validation", "20", "--validation.every", "3")
    found = scalars(tmp_path / "run" / "tensorboard")
    assert found == {tag: logged(tmp_path / "run", name) for name, tag in TAGS.items()}
    assert [step for step, _ in found["prediction/held_out_accuracy"]] == [3, 6]


def test_a_run_that_goes_on_leaves_each_step_once(tmp_path, scalars, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("unperturbed.runs.RunDirectory.write_checkpoint", killed)
        with pytest.raises(SystemExit):
            train(tmp_path / "run", "--tensorboard")
    assert len(scalars(tmp_path / "run" / "tensorboard")["terms/robust"]) == 3
    train(tmp_path / "run", "--tensorboard")
    found = scalars(tmp_path / "run" / "tensorboard")
    assert found["terms/robust"] == logged(tmp_path / "run", "robust")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2


def test_the_steps_of_a_teacher_are_not_taken_for_those_of_its_run(tmp_path, scalars, monkeypatch, capsys):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    train(tmp_path / "run", "--tensorboard", "--labeler", "teacher", "--teacher.steps", "50")
    found = scalars(tmp_path / "run" / "tensorboard")
    assert found == {tag: logged(tmp_path / "run", name) for name, tag in TAGS.items() if name != HELD_OUT}
    assert "digits-pixel-srt, its teacher: step 50 of 50" in capsys.readouterr().err


def test_several_runs_have_event_files_of_their_own(tmp_path, scalars):
    names = ["digits-pixel-standard", "digits-pixel-srt"]
    main(["train", *names, "--together", "--steps", "2", "--out", str(tmp_path), "--tensorboard", *TINY])
    for name in names:
        found = scalars(tmp_path / name / "tensorboard")
        assert found["terms/standard"] == logged(tmp_path / name, "standard")


def test_training_is_the_same_with_and_without(tmp_path, scalars):
    train(tmp_path / "with", "--tensorboard")
    train(tmp_path / "without")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without")]
    assert weights[0] == weights[1]
    assert not (tmp_path / "without" / "tensorboard").exists()


def test_without_tensorboard_the_option_is_refused_before_anything_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(events, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(SystemExit) as stop:
        train(tmp_path / "run", "--tensorboard")
    assert stop.value.code == (
        "unperturbed: --tensorboard needs the package tensorboard, which is not installed: "
        "pip install 'unperturbed[tensorboard]', or leave the option out"
    )
    assert not (tmp_path / "run").exists()
    train(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_all_that_curves_show_is_in_tensorboard_too():
    assert set(TAGS) == set(TRAINING)


def test_a_full_disk_is_told_in_one_sentence_though_a_thread_writes(tmp_path, scalars, monkeypatch, capfd):
    from tensorboard.summary.writer.record_writer import RecordWriter

    def full(*_):
        raise OSError(28, "No space left on device")

    hook = threading.excepthook
    monkeypatch.setattr(RecordWriter, "write", full)
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path / "run", "--tensorboard")
    assert "tensorboard (No space left on device): what was there before is kept; put that" in str(stopped.value.code)
    assert "Traceback" not in capfd.readouterr().err
    assert threading.excepthook is hook


def test_errors_of_other_threads_are_told_as_ever(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    with events.Events(tmp_path, Warnings()):
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    assert [failed.exc_type for failed in told] == [ZeroDivisionError]
    assert threading.excepthook == told.append
