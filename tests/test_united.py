"""A run that is trained again to the same weights: what evidence holds of them counts, and is not made twice."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from handmade import evidence, report, sweep
from unperturbed import evaluation, sweeps
from unperturbed import report as reports
from unperturbed.cli import main
from unperturbed.datasets import load
from unperturbed.evaluation import usual_batch
from unperturbed.experiments import evidence as files
from unperturbed.experiments import reproduction
from unperturbed.experiments.account import Edition, spent
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.definition import SURFACES
from unperturbed.experiments.evidence import attacked_on
from unperturbed.experiments.notes import read_notes
from unperturbed.experiments.planning import planned
from unperturbed.experiments.recalled import recall, unpack
from unperturbed.experiments.scales import SMOKE_IMAGES
from unperturbed.experiments.united import united
from unperturbed.recipes import named
from unperturbed.runs import RunDirectory
from unperturbed.sameness import fingerprint
from unperturbed.sweeps import Sweep
from unperturbed.training import fresh_model

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
    fresh, there = (replace(each, trained_by=name, trained_on=name) for name, each in (("2", fresh), ("1", there)))
    for both in (united(fresh, there), united(there, fresh)):
        assert (both.seconds, both.together, both.log) == (60.0, 1, there.log)
        assert (both.trained_on, both.trained_by) == ("1", "1")
    assert united(fresh, replace(there, teacher_together=9)).seconds == 99.0
    assert united(fresh, replace(there, log={})).log == fresh.log


def test_what_was_found_on_held_out_images_is_kept_whichever_tells_of_it():
    looked = {"step": [5.0, 10.0], "accuracy": [0.5, 0.75]}
    silent, told = (on(evidence("run", pgd=50), held_out=held_out) for held_out in ({}, looked))
    assert united(silent, told).held_out == united(told, silent).held_out == looked


def test_of_attacks_on_the_first_images_alone_that_on_most_counts():
    few, more, slow = (report(90, {name: 50}, images=count) for name, count in (("pgd", 10), ("pgd", 20), ("cw", 5)))
    fresh, there = on(evidence("run", on_fewer=(few,))), on(evidence("run", on_fewer=(more, slow)))
    assert united(fresh, there).on_fewer == (more, slow)
    assert united(there, fresh).on_fewer == (more, slow)
    assert united(on(evidence("run", pgd=50)), there).on_fewer == (slow,)


def test_a_report_tells_of_both_devices_that_its_attacks_were_made_on():
    fresh, there = on(evidence("run", pgd=50)), on(evidence("run", fgsm=70, device="cuda: H200"))
    both = united(fresh, there).report
    assert both.provenance == {"device": "cpu, cuda: H200"}
    assert attacked_on(united(on(evidence("run", cw=9)), replace(there, report=both)).report) == "cpu, cuda: H200"
    assert "made on cpu and cuda: H200" in spent(
        experiments()["table-4"].tables,
        Edition("paper", "own", (replace(united(fresh, there), name="mnist-pixel-srt", trained_on="cuda: H200"),)),
    )
    assert united(fresh, on(evidence("run", pgd=70, device="cuda: H200"))).report.provenance == {"device": "cpu"}


def test_surfaces_measured_in_part_do_not_count_beside_those_measured_since():
    whole = {name: [70.0] * 3 for name in SURFACES}
    old = {name: [10.0] * 3 for name in ("surface.pixel", "peak.pixel")}
    for fresh, there in ((old, whole), (whole, old), (whole, {})):
        both = united(on(evidence("run", surfaces=fresh)), on(evidence("run", surfaces=there)))
        assert both.surfaces == whole
    assert united(on(evidence("run", surfaces={})), on(evidence("run", surfaces=old))).surfaces == old


def test_the_weights_that_were_not_kept_are_taken_over():
    fresh, there = on(evidence("run")), on(evidence("run"))
    other = replace(report(80, {"pgd": 30}), subject="others")
    both = united(fresh, replace(there, other=other, selected={"step": 3.0}))
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
    assert f"its weights are those of {results / 'smoke' / NAME}.json: attacks that this holds" in told
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


def test_a_run_by_another_recipe_is_attacked_anew(folders, attacked):
    out, results = folders
    file = results / "smoke" / f"{NAME}.json"
    files.write(replace(found := files.read(file), recipe=replace(found.recipe, log_every=7)), results)
    main([*WORDS, "--out", str(out), "--missing", "--results", str(results)])
    assert set(attacked) == {"pgd", "gridadv", "pgd+", "gridadv+"}


def test_what_lies_in_a_directory_is_not_written_over(folders, attacked):
    out, results = folders
    words = [*WORDS, "--out", str(out)]
    main(words)
    report, sweep = (out / NAME / file for file in ("report.json", sweeps.FILE))
    attacked.clear()
    main([*words, "--missing", "--results", str(results)])
    assert not attacked
    assert names(reports.read(report)) == {"pgd", "gridadv", "pgd+", "gridadv+"}
    before = sweep.read_bytes()
    report.unlink()
    unpack(files.read(results / "smoke" / f"{NAME}.json"), RunDirectory(out / NAME))
    assert sweep.read_bytes() == before
    assert names(reports.read(report)) == {"gridadv", "pgd+", "gridadv+"}


def test_weights_are_known_again_by_the_batch_of_the_device_they_are_attacked_on(folders):
    out, results = folders
    main([*WORDS, "--out", str(out), "--without", "pgd,gridadv,pgd+,gridadv+"])
    (run,) = planned([experiments()["figure-compound"]], "smoke", "own", [0], NAME)
    directory, dataset = RunDirectory(out / NAME), reproduction.tested(load("digits"), SMOKE_IMAGES)
    directory.report.unlink()
    model = fresh_model(run.recipe, dataset)
    directory.read_weights(model)
    gpu = SimpleNamespace(type="cuda")
    assert not recall(run, model, dataset, directory, results, gpu)
    evidence_now = files.read(results / "smoke" / f"{NAME}.json")
    batch = usual_batch(dataset.test_images, gpu)
    subject = fingerprint(model, dataset.test_images, dataset.test_labels, 0, batch)
    files.write(replace(evidence_now, report=replace(evidence_now.report, subject=subject)), results)
    assert recall(run, model, dataset, directory, results, gpu)


def test_of_attacks_on_the_first_images_those_that_were_interrupted_are_not_recalled(tmp_path):
    few, interrupted = (
        replace(report(90, {name: 50}, images=count), subject=subject)
        for name, count, subject in (("pgd", 10, "first 10"), ("cw", 20, ""))
    )
    directory = RunDirectory(tmp_path)
    directory.claim(named("mnist-pixel-srt"))
    directory.weights.write_bytes(bytes(16))
    unpack(on(evidence("run", on_fewer=(interrupted, few))), directory)
    assert names(reports.read(tmp_path / "report-slow.json")) == {"pgd"}


def test_surfaces_and_attacks_on_the_first_images_are_recalled_too(tmp_path, attacked):
    out, results = tmp_path / "runs", tmp_path / "results"
    words = ["reproduce", "table-4", "figure-surfaces", "--scale", "smoke", "--device", "cpu", "--out", str(out)]
    words += ["--only", "mnist-pixel-standard-seed-0", "--slow-images", "3"]
    main([*words, "--without", "cw"])
    main([*words, "--collect", str(results)])
    (file,) = (results / "smoke").iterdir()
    surfaces = {name: [float(number)] for number, name in enumerate(SURFACES)}
    files.write(before := replace(files.read(file), surfaces=surfaces), results)
    shutil.rmtree(out)
    attacked.clear()
    main([*words, "--missing", "--results", str(results)])
    assert attacked == ["cw"]
    path = out / "mnist-pixel-standard-seed-0"
    assert read_notes(path)["surfaces"] == surfaces
    (few,) = before.on_fewer
    slow = reports.read(path / "report-slow.json")
    assert {name: slow[name].seconds for name in names(slow)} == {name: few[name].seconds for name in names(few)}
