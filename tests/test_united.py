"""A run that is trained again to the same weights: what evidence holds of them counts, and is not made twice."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from handmade import evidence, report, sweep
from unperturbed import evaluation, sweeps
from unperturbed import report as reports
from unperturbed.cli import main
from unperturbed.experiments import evidence as files
from unperturbed.experiments.united import united
from unperturbed.sweeps import Sweep

NAME = "mnist-compound-at-seed-0"
WORDS = ("reproduce", "figure-compound", "--scale", "smoke", "--device", "cpu", "--only", NAME)


def on(found, subject="these", **changes):
    """The evidence, said to be on these weights."""
    swept = found.sweep and replace(
        found.sweep,
        reports={part: replace(each, subject=subject) for part, each in found.sweep.reports.items()},
    )
    return replace(found, report=replace(found.report, subject=subject), sweep=swept, **changes)


def names(found):
    return {result.name for result in found.attacks}


def test_attacks_on_the_same_weights_count_together():
    fresh, there = on(evidence("run", pgd=50, sweep=sweep(half=60))), on(evidence("run", pgd=40, fgsm=70))
    there = replace(there, sweep=on(evidence("run", sweep=sweep(half=10, quarter=80))).sweep)
    both = united(fresh, there)
    assert {name: round(100 * both.report.accuracy(name)) for name in names(both.report)} == {"pgd": 50, "fgsm": 70}
    assert {part: round(100 * each.accuracy("pgd")) for part, each in both.sweep.reports.items()} == {
        0.25: 80,
        0.5: 60,
    }
    assert united(fresh, replace(there, sweep=None)).sweep is fresh.sweep
    assert united(replace(fresh, sweep=None), there).sweep is there.sweep
    wider = replace(there, sweep=Sweep(eps=0.4, reports=there.sweep.reports))
    assert united(fresh, wider).sweep is fresh.sweep


def test_minutes_and_log_are_those_of_the_run_that_shared_its_device_with_fewer():
    fresh, there = on(evidence("run", seconds=99.0, together=4)), on(evidence("run", seconds=60.0, steps=7))
    for both in (united(fresh, there), united(there, fresh)):
        assert (both.seconds, both.together, both.log) == (60.0, 1, there.log)
    assert united(fresh, replace(there, teacher_together=9)).seconds == 99.0


def test_of_attacks_on_the_first_images_alone_that_on_most_counts():
    few, more, slow = (report(90, {name: 50}, images=count) for name, count in (("pgd", 10), ("pgd", 20), ("cw", 5)))
    fresh, there = on(evidence("run", on_fewer=(few,))), on(evidence("run", on_fewer=(more, slow)))
    assert united(fresh, there).on_fewer == (more, slow)
    assert united(there, fresh).on_fewer == (more, slow)
    assert united(on(evidence("run", pgd=50)), there).on_fewer == (slow,)


def test_surfaces_and_the_weights_that_were_not_kept_are_taken_over():
    fresh, there = on(evidence("run", surfaces={"a": [1.0]})), on(evidence("run", surfaces={"a": [2.0], "b": [3.0]}))
    other = replace(report(80, {"pgd": 30}), subject="others")
    both = united(fresh, replace(there, other=other, selected={"step": 3.0}))
    assert both.surfaces == {"a": [1.0], "b": [3.0]}
    assert both.other is other
    assert both.selected == {"step": 3.0}
    again = replace(report(80, {"fgsm": 40}), subject="others")
    assert names(united(replace(fresh, other=again), replace(there, other=other)).other) == {"fgsm", "pgd"}


@pytest.mark.parametrize(
    "change",
    [
        lambda found: replace(found, report=replace(found.report, subject="others")),
        lambda found: replace(found, report=replace(found.report, clean=torch.ones_like(found.report.clean))),
        lambda found: replace(found, recipe=replace(found.recipe, steps=7)),
    ],
    ids=["weights", "answers", "recipe"],
)
def test_evidence_on_others_does_not_count(change):
    fresh = on(evidence("run", pgd=50))
    assert united(fresh, change(on(evidence("run", fgsm=70)))) is fresh
    silent = evidence("run", pgd=50)
    assert united(silent, evidence("run", fgsm=70)) is silent


@pytest.fixture
def attacked(monkeypatch):
    """The names of the attacks that are made from now on."""
    made, really = [], evaluation.run_attack

    def run_attack(defender, images, clean, name, *rest, **options):
        made.append(name)
        return really(defender, images, clean, name, *rest, **options)

    monkeypatch.setattr(evaluation, "run_attack", run_attack)
    return made


@pytest.fixture
def folders(tmp_path):
    """Evidence of a run that lacks PGD at all fractions, and the empty place of its directory."""
    out, results = tmp_path / "runs", tmp_path / "results"
    words = [*WORDS, "--out", str(out)]
    main([*words, "--without", "pgd"])
    main([*words, "--collect", str(results)])
    shutil.rmtree(out)
    return out, results


def test_a_run_with_the_weights_of_its_evidence_is_attacked_by_what_that_lacks_alone(folders, attacked, capsys):
    out, results = folders
    words = [*WORDS, "--out", str(out)]
    before = files.read(results / "smoke" / f"{NAME}.json")
    main([*words, "--missing", "--results", str(results)])
    assert set(attacked) == {"pgd"}
    assert len(attacked) == 4, "once at each fraction"
    told = capsys.readouterr().err
    assert f"its weights are those of {results / 'smoke' / NAME}.json, and 3 attacks that it holds" in told
    report_now, swept_now = reports.read(out / NAME / "report.json"), sweeps.read(out / NAME)
    assert report_now["gridadv"].seconds == before.report["gridadv"].seconds
    assert all(names(each) == {"pgd", "gridadv", "pgd+", "gridadv+"} for each in swept_now.reports.values())
    assert report_now.is_on(out / NAME / "model.safetensors")
    main([*words, "--collect", str(results)])
    assert names(files.read(results / "smoke" / f"{NAME}.json").report) == names(report_now)
    main([*words, "--missing", "--plan", "--results", str(results)])
    assert capsys.readouterr().out.endswith("nothing needs to be trained\n")


def test_without_being_asked_for_what_is_missing_all_attacks_are_made(folders, attacked):
    out, _ = folders
    main([*WORDS, "--out", str(out)])
    assert set(attacked) == {"pgd", "gridadv", "pgd+", "gridadv+"}


def test_a_run_with_other_weights_is_attacked_anew(folders, attacked):
    out, results = folders
    file = results / "smoke" / f"{NAME}.json"
    tree = json.loads(file.read_text())
    tree["report"]["subject"] = "0" * 64
    file.write_text(json.dumps(tree))
    main([*WORDS, "--out", str(out), "--missing", "--results", str(results)])
    assert set(attacked) == {"pgd", "gridadv", "pgd+", "gridadv+"}


def test_surfaces_and_attacks_on_the_first_images_are_recalled_too(tmp_path, attacked):
    out, results = tmp_path / "runs", tmp_path / "results"
    words = ["reproduce", "table-4", "figure-surfaces", "--scale", "smoke", "--device", "cpu", "--out", str(out)]
    words += ["--only", "mnist-pixel-standard-seed-0", "--slow-images", "3"]
    main([*words, "--without", "cw"])
    main([*words, "--collect", str(results)])
    before = {path.name: path.read_text() for path in Path(out / "mnist-pixel-standard-seed-0").glob("*.json")}
    shutil.rmtree(out)
    attacked.clear()
    main([*words, "--missing", "--results", str(results)])
    assert attacked == ["cw"]
    now = {path.name: path.read_text() for path in Path(out / "mnist-pixel-standard-seed-0").glob("*.json")}
    assert json.loads(now["reproduced.json"])["surfaces"] == json.loads(before["reproduced.json"])["surfaces"]
    slow = (json.loads(files["report-slow.json"])["samples"] for files in (now, before))
    assert next(slow) == next(slow)
