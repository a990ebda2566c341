"""Evidence that cannot be true beside the rest, and reports that belong to another run, are refused."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
import safetensors.torch
import torch

from handmade import evidence, report
from unperturbed import cli
from unperturbed import report as reports
from unperturbed.experiments.catalog import chosen, experiments
from unperturbed.experiments.coherent import require_coherent
from unperturbed.experiments.planning import planned
from unperturbed.recipes import named

SMOKE = ("--scale", "smoke", "--device", "cpu")


def reproduce(*words):
    cli.main(["reproduce", *map(str, words)])


@pytest.fixture
def refused(refused):
    """Runs reproduce, which must refuse, and returns its sentence."""
    return partial(refused, "reproduce")


def with_checksum(name, checksum):
    recipe = named(name)
    return evidence(name, recipe=replace(recipe, data=replace(recipe.data, sha256=checksum)))


def relabeled(found):
    return replace(found, labels=found.labels + 1)


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (
            evidence("mnist-pixel-at", steps=9_000, recipe=named("mnist-pixel-at")),
            "is of a run that stands at step 9,000 of 9,375",
        ),
        (
            replace(with_checksum("mnist-pixel-at", "a"), report=relabeled(report(90, {}))),
            "has other test labels than the rest of the evidence on mnist",
        ),
        (
            replace(with_checksum("mnist-pixel-at", "a"), on_fewer=(relabeled(report(90, {"pgd": 1}, images=10)),)),
            "has other test labels than the rest of the evidence on mnist",
        ),
        (
            with_checksum("mnist-pixel-trades", "b"),
            "was trained on other images than the rest of the evidence on mnist with the same split",
        ),
    ],
    ids=["an end", "labels", "labels of a few", "a checksum"],
)
def test_evidence_that_contradicts_the_rest_is_refused(second, sentence, tmp_path):
    assert named("mnist-pixel-trades").data == named("mnist-pixel-at").data
    first = with_checksum("mnist-pixel-at", "a")
    require_coherent([first, with_checksum("mnist-pixel-trades", "a")], tmp_path)
    with pytest.raises(ValueError, match=sentence):
        require_coherent([first, second], tmp_path)


@pytest.mark.parametrize("how", ["fallen", "ended"])
def test_a_run_that_its_guard_or_its_patience_ended_is_evidence_of_its_steps(how, tmp_path):
    early = evidence("mnist-pixel-at", steps=9_000, recipe=named("mnist-pixel-at"), selected={how: 9_000.0})
    require_coherent([early], tmp_path)


def test_reports_on_fewer_and_on_more_images_agree_where_they_overlap(tmp_path):
    few, many = evidence("mnist-pixel-srt", images=5), evidence("mnist-pixel-at", images=50)
    require_coherent([few, many, few], tmp_path)
    wrong = replace(
        many, report=replace(many.report, labels=torch.cat([many.report.labels[:49], torch.tensor([77])]))
    )
    with pytest.raises(ValueError, match="other test labels"):
        require_coherent([few, many, wrong], tmp_path)


def test_the_report_of_another_run_is_no_evidence_and_is_made_again(tmp_path, refused):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*,*-srt-lambda-0.4-*", "--out", tmp_path / "runs")
    reproduce(*words)
    mine, other = (tmp_path / "runs" / f"mnist-pixel-srt-lambda-{weight}-seed-0" for weight in ("0.2", "0.4"))
    own = reports.read(mine / "report.json")
    shutil.copy(other / "report.json", mine / "report.json")
    sentence = refused(*words, "--collect", tmp_path / "results")
    assert "report.json is a report on a run by another recipe than the one beside it: move it elsewhere" in sentence
    assert not (tmp_path / "results").exists()
    reproduce(*words)
    again = reports.read(mine / "report.json")
    assert (again.subject, again.recipe) == (own.subject, own.recipe)
    assert [result.predicted.tolist() for result in again.attacks] == [
        result.predicted.tolist() for result in own.attacks
    ]
    reproduce(*words, "--collect", tmp_path / "results")


@pytest.mark.parametrize("file", ["model", "model-other"])
def test_a_report_on_weights_that_were_replaced_is_no_evidence_and_is_made_again(file, tmp_path, refused):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*", "--out", tmp_path / "runs")
    reproduce(*words)
    (run,) = (tmp_path / "runs").glob("*-seed-0")
    weights, report = run / f"{file}.safetensors", run / f"{file.replace('model', 'report')}.json"
    if not weights.exists():
        shutil.copy(run / "model.safetensors", weights)
        reproduce(*words)
    before = reports.read(report).subject
    changed = {name: 2 * tensor for name, tensor in safetensors.torch.load_file(weights).items()}
    safetensors.torch.save_file(changed, weights)
    sentence = refused(*words, "--collect", tmp_path / "results")
    assert f"is of other weights than {file}.safetensors beside it: restore them, or make it again" in sentence
    assert not (tmp_path / "results").exists()
    reproduce(*words)
    assert reports.read(report).subject != before
    reproduce(*words, "--collect", tmp_path / "results")


def test_minutes_of_a_run_alone_are_not_replaced_by_those_of_one_beside_others(tmp_path, refused):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*", "--out")
    reproduce(*words, tmp_path / "alone")
    reproduce(*words, tmp_path / "beside", "--beside", 3)
    (file,) = tmp_path.glob("beside/*/report.json")
    file.write_text(replace(reports.read(file), subject="other weights").dumps(), encoding="utf-8")
    results = tmp_path / "results"
    reproduce(*words, tmp_path / "beside", "--collect", results)
    reproduce(*words, tmp_path / "alone", "--collect", results)
    sentence = refused(*words, tmp_path / "beside", "--collect", results)
    assert "holds more of that run (its minutes)" in sentence


def test_short_runs_have_no_rows_that_only_a_schedule_tells_from_others():
    every = list(experiments().values())
    short, paper = ({run.trial.name for run in planned(every, scale, "own", (0,))} for scale in ("short", "paper"))
    assert {
        "cifar10-spatial-rt-lambda-0.2-authors-batch-25",
        "cifar10-spatial-rt-lambda-0.2-authors-batch-25-warps",
        "mnist-spatial-standard-authors-batch-25",
        "mnist-pixel-srt-authors",
        "mnist-pixel-uat-authors",
        "cifar10-pixel-srt-ramped-one-pass",
    } <= paper - short
    assert {"cifar10-spatial-srt-authors", "cifar10-spatial-rt-lambda-0.2-authors"} <= short
    runs = planned(chosen(["table-1", "table-4", "table-5"]), "short", "resnet-18", (0,))
    recipes = [replace(run.recipe, teacher=run.trial.recipe.teacher) for run in runs]
    assert all(recipe not in recipes[:number] for number, recipe in enumerate(recipes)), "none is trained twice"
