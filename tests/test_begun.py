"""Attacks that were interrupted count on the images they got to."""

from dataclasses import replace

import pytest
import torch

from handmade import evidence, report
from unperturbed.evaluation import settings_of
from unperturbed.experiments import results
from unperturbed.experiments.begun import with_begun
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.definition import Cell
from unperturbed.experiments.planning import planned
from unperturbed.unfinished import FILE, Part, Unfinished

TRIAL = next(trial for trial in experiments()["table-4"].trials if trial.name == "mnist-pixel-srt")
SETTINGS = settings_of(TRIAL.known_at("paper")["autoattack"])
KEY = ("subject", "autoattack", SETTINGS, "tf32")


@pytest.fixture
def attacked():
    """Evidence of 1,000 images, the first 900 right, without AutoAttack."""
    found = evidence("mnist-pixel-srt", 90.0, pgd=50)
    return replace(found, report=replace(found.report, subject="subject"))


def part(wrong, right, **changes):
    return Part(torch.cat([torch.ones(wrong).long(), torch.zeros(right).long()]), 0, None, 7.0)._replace(**changes)


def test_the_first_images_of_an_interrupted_attack_count(attacked, tmp_path):
    unfinished = Unfinished(tmp_path / FILE)
    unfinished.write(KEY, {0: part(30, 70), 100: part(10, 90, rejected=1), 300: part(100, 0)})
    found = with_begun(attacked, tmp_path, TRIAL)
    (result,) = found.slow.attacks
    assert len(found.slow.labels) == 200, "behind a gap nothing follows the first images"
    assert (result.seconds, result.rejected, result.precision) == (14.0, 1, "tf32")
    assert (result.settings, result.budget) == (SETTINGS, TRIAL.known_at("paper")["autoattack"].budget)
    assert found.is_slow("autoattack")
    assert found.samples(Cell("mnist-pixel-srt", "autoattack")).mean() == 80
    assert replace(found, slow=None).dumps() == attacked.dumps()


def test_of_several_interrupted_attacks_the_farthest_counts(attacked, tmp_path):
    known, unfinished = TRIAL.known_at("paper"), Unfinished(tmp_path / FILE)
    unfinished.write(KEY, {0: part(30, 70)})
    sizes = torch.tensor([0.5, 1.5, torch.inf] * 50)
    unfinished.write(("subject", "ddn", settings_of(known["ddn"]), "tf32"), {0: part(20, 130, sizes=sizes)})
    (result,) = with_begun(attacked, tmp_path, TRIAL).slow.attacks
    assert (result.name, len(result.predicted), result.median_size) == ("ddn", 150, 1.5)


@pytest.mark.parametrize(
    "key",
    [
        ("another", "autoattack", SETTINGS, "tf32"),
        ("subject", "autoattack", SETTINGS.replace("0.3", "0.2"), "tf32"),
        ("subject", "mine", SETTINGS, "tf32"),
        ("subject", "pgd", settings_of(TRIAL.known_at("paper")["pgd"]), "tf32"),
    ],
    ids=["another model", "other settings", "an attack of one's own", "an attack that was made in the end"],
)
def test_parts_of_something_else_do_not_count(attacked, tmp_path, key):
    Unfinished(tmp_path / FILE).write(key, {0: part(30, 70)})
    assert with_begun(attacked, tmp_path, TRIAL).slow is None


@pytest.mark.parametrize(
    "content", ["", "[]", '{"attacks": [{"key": ["a", "b"]}, {"key": 3}, {"key": [1, 2, 3, 4]}]}']
)
def test_a_damaged_file_counts_for_nothing(attacked, tmp_path, content):
    (tmp_path / FILE).write_text(content)
    assert with_begun(attacked, tmp_path, TRIAL).slow is None


def test_a_report_that_is_on_fewer_images_on_purpose_stays(attacked, tmp_path):
    Unfinished(tmp_path / FILE).write(KEY, {0: part(30, 70)})
    on_purpose = replace(attacked, slow=report(90, {"autoattack": 40}, images=50))
    assert with_begun(on_purpose, tmp_path, TRIAL) is on_purpose


def test_what_is_collected_holds_them(attacked, tmp_path, monkeypatch):
    (run,) = planned([experiments()["table-4"]], "paper", "own", [0], "mnist-pixel-srt-seed-0")
    (tmp_path / run.name).mkdir()
    Unfinished(tmp_path / run.name / FILE).write(KEY, {0: part(30, 70)})
    monkeypatch.setattr(results, "of_run", lambda *_: attacked)
    ((_, found),) = results.lying_in([run], tmp_path)
    assert len(found.slow.labels) == 100
