"""Attacks that were interrupted count on the images they got to."""

from dataclasses import replace

import pytest
import torch

from handmade import evidence, report
from unperturbed.experiments import evidence as files
from unperturbed.experiments import results
from unperturbed.experiments.begun import with_begun
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.definition import Cell
from unperturbed.experiments.planning import planned
from unperturbed.sameness import settings_of
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
    (few,) = found.on_fewer
    (result,) = few.attacks
    assert len(few.labels) == 200, "behind a gap nothing follows the first images"
    assert (result.seconds, result.rejected, result.precision) == (14.0, 1, "tf32")
    assert (result.settings, result.budget) == (SETTINGS, TRIAL.known_at("paper")["autoattack"].budget)
    assert found.of_fewer("autoattack") is few
    assert found.samples(Cell("mnist-pixel-srt", "autoattack")).mean() == 80
    assert replace(found, on_fewer=()).dumps() == attacked.dumps()


def test_several_interrupted_attacks_count_each_on_the_images_it_got_to(attacked, tmp_path):
    known, unfinished = TRIAL.known_at("paper"), Unfinished(tmp_path / FILE)
    unfinished.write(KEY, {0: part(30, 70)})
    sizes = torch.tensor([0.5, 1.5, torch.inf] * 50)
    unfinished.write(("subject", "ddn", settings_of(known["ddn"]), "tf32"), {0: part(20, 130, sizes=sizes)})
    found = with_begun(attacked, tmp_path, TRIAL)
    (result,) = found.of_fewer("ddn").attacks
    assert (len(result.predicted), result.median_size) == (150, 1.5)
    assert len(found.of_fewer("autoattack").labels) == 100
    again = files.loads(found.dumps())
    assert [len(few.labels) for few in again.on_fewer] == [len(few.labels) for few in found.on_fewer] == [100, 150]


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
    assert with_begun(attacked, tmp_path, TRIAL).on_fewer == ()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"attacks": [{"key": ["a", "b"]}, {"key": 3}, {"key": [1, 2, 3, 4]}]}']
)
def test_a_damaged_file_counts_for_nothing(attacked, tmp_path, content):
    (tmp_path / FILE).write_text(content)
    assert with_begun(attacked, tmp_path, TRIAL).on_fewer == ()


@pytest.mark.parametrize("on_purpose", [50, 500])
def test_beside_a_report_on_fewer_images_on_purpose_the_farther_counts(attacked, tmp_path, on_purpose):
    Unfinished(tmp_path / FILE).write(KEY, {0: part(30, 70)})
    slow = report(90, {"autoattack": 40, "pointwise": 10}, images=on_purpose)
    found = with_begun(replace(attacked, on_fewer=(slow,)), tmp_path, TRIAL)
    assert len(found.of_fewer("autoattack").labels) == max(on_purpose, 100)
    assert found.of_fewer("pointwise") is slow
    assert results.held(found)["kept", "autoattack", 1.0] == max(on_purpose, 100)


def test_an_attack_that_was_interrupted_among_fewer_images_counts_on_those_it_got_to(attacked, tmp_path):
    few = replace(report(90, {}, images=500), subject="the first 500")
    Unfinished(tmp_path / FILE).write(("the first 500", *KEY[1:]), {0: part(30, 70)})
    found = with_begun(replace(attacked, on_fewer=(few,)), tmp_path, TRIAL)
    assert [len(each.labels) for each in found.on_fewer] == [100], "a report without an attack tells nothing more"
    assert found.samples(Cell("mnist-pixel-srt", "autoattack")).mean() == 70


def test_what_is_collected_holds_them(attacked, tmp_path, monkeypatch):
    (run,) = planned([experiments()["table-4"]], "paper", "own", [0], "mnist-pixel-srt-seed-0")
    (tmp_path / run.name).mkdir()
    Unfinished(tmp_path / run.name / FILE).write(KEY, {0: part(30, 70)})
    monkeypatch.setattr(results, "of_run", lambda *_: attacked)
    ((_, found),) = results.lying_in([run], tmp_path)
    assert [len(few.labels) for few in found.on_fewer] == [100]


def test_what_got_farther_since_is_collected_again_beside_another_that_was_begun(attacked, tmp_path, monkeypatch):
    (run,) = planned([experiments()["table-4"]], "paper", "own", [0], "mnist-pixel-srt-seed-0")
    whole = replace(attacked, report=replace(report(90, {"pgd": 50}, images=10_000), subject="subject"))
    monkeypatch.setattr(results, "of_run", lambda *_: replace(whole, recipe=run.recipe))
    known, unfinished = TRIAL.known_at("paper"), Unfinished(tmp_path / run.name / FILE)
    (tmp_path / run.name).mkdir()
    ddn, momentum = (("subject", name, settings_of(known[name]), "tf32") for name in ("ddn", "mi-fgsm"))
    unfinished.write(ddn, {0: part(30, 70)})
    results.collect([run], tmp_path, tmp_path / "kept")
    unfinished.write(ddn, {0: part(30, 70), 100: part(0, 50)})
    unfinished.write(momentum, {0: part(10, 190)})
    results.collect([run], tmp_path, tmp_path / "kept")
    (found,) = files.read_all(tmp_path / "kept")
    assert {name: len(found.of_fewer(name).labels) for name in ("ddn", "mi-fgsm")} == {"ddn": 150, "mi-fgsm": 200}
