"""Runs of which collected evidence lacks something."""

from dataclasses import replace
from pathlib import Path

import pytest

from handmade import report
from unperturbed.cli import main
from unperturbed.experiments import evidence as files
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.lacking import lacking
from unperturbed.experiments.planning import planned

RESULTS = Path(__file__).parent.parent / "results" / "reproduce"
NAME = "mnist-pixel-at-seed-0"


@pytest.fixture
def run():
    """A run that is shown in full."""
    (found,) = planned([experiments()["table-4"]], "paper", "own", [0], NAME)
    return found


@pytest.fixture
def shown():
    return files.loads((RESULTS / "paper" / f"{NAME}.json").read_text(encoding="utf-8"))


def without(evidence, name):
    return replace(evidence.report, attacks=tuple(made for made in evidence.report.attacks if made.name != name))


def test_what_is_shown_in_full_is_not_run_again(run, shown, tmp_path):
    assert lacking([run], tmp_path) == [run]
    files.write(shown, tmp_path)
    assert lacking([run], tmp_path) == []
    other = replace(run, seed=1)
    assert lacking([run, other], tmp_path) == [other]


@pytest.mark.parametrize("name", ["pgd", "autoattack"])
def test_a_run_that_lacks_an_attack_is_named_unless_that_is_left_for_later(run, shown, tmp_path, name):
    files.write(replace(shown, report=without(shown, name)), tmp_path)
    assert lacking([run], tmp_path) == [run]
    assert lacking([run], tmp_path, without=(name,)) == []
    assert lacking([replace(run, trial=replace(run.trial, attacks=("fgsm",)))], tmp_path) == []


def test_attacks_that_take_long_may_be_made_on_fewer_images(run, shown, tmp_path):
    made = replace(
        report(90, {"autoattack": 80}, images=500).attacks[0], settings=shown.report["autoattack"].settings
    )
    first = replace(shown.report, labels=shown.report.labels[:500], clean=shown.report.clean[:500], attacks=(made,))
    files.write(replace(shown, report=without(shown, "autoattack"), on_fewer=(first,)), tmp_path)
    assert lacking([run], tmp_path) == [run]
    assert lacking([run], tmp_path, slow_images=500) == []
    assert lacking([run], tmp_path, slow_images=501) == [run]


@pytest.mark.parametrize(
    "asked", [{"surfaces": True}, {"swept": ("pgd",), "fractions": (0.5,)}, {"timed": True}], ids=str
)
def test_surfaces_fractions_and_minutes_count_too(run, shown, tmp_path, asked):
    files.write(replace(shown, sweep=None, together=2), tmp_path)
    assert lacking([replace(run, trial=replace(run.trial, **asked))], tmp_path) == [
        replace(run, trial=replace(run.trial, **asked))
    ]


def test_minutes_that_another_experiment_shows_are_not_missing(tmp_path):
    name = "cifar10-spatial-srt-seed-0"
    evidence = files.loads((RESULTS / "paper" / f"{name}.json").read_text(encoding="utf-8"))
    files.write(replace(evidence, together=2), tmp_path)
    for experiment, timed in (("table-3", False), ("table-8", True)):
        (run,) = planned([experiments()[experiment]], "paper", "own", [0], name)
        assert run.alone, "whoever makes it leaves the device to it, so that its minutes count everywhere"
        assert lacking([run], tmp_path) == ([run] if timed else [])


def test_evidence_by_another_recipe_shows_nothing(run, shown, tmp_path):
    files.write(replace(shown, recipe=replace(shown.recipe, steps=7)), tmp_path)
    assert lacking([run], tmp_path) == [run]


def test_a_folder_that_is_not_there_is_refused(refused, tmp_path):
    words = ["reproduce", "table-4", "--plan", "--missing", "--results", tmp_path / "none", "--out", tmp_path]
    assert "with evidence, by which --missing leaves runs out: name it by --results" in refused(*words)


def test_a_plan_of_what_is_missing_names_no_run_that_is_shown(capsys, tmp_path):
    common = ["--scale", "paper", "--plan", "--missing", "--results", str(RESULTS), "--out", str(tmp_path)]
    main(["reproduce", "table-6", *common])
    assert capsys.readouterr().out == "nothing needs to be trained\n"
    main(["reproduce", "table-4", "--only", "mnist-pixel-*", *common])
    assert NAME not in (found := capsys.readouterr().out)
    assert "mnist-pixel-uat-seed-0" in found
