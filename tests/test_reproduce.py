"""The command that repeats the paper: every experiment in small, stopped and gone on with, planned and collected."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import safetensors.torch
import torch

from handmade import evidence
from unperturbed import cli, sweeps
from unperturbed import report as reports
from unperturbed.attacks import fgsm
from unperturbed.averaging import Average
from unperturbed.data import Data
from unperturbed.datasets import IDX_FILES, load
from unperturbed.evaluation import evaluate
from unperturbed.experiments import evidence as files
from unperturbed.experiments import notes, planning
from unperturbed.experiments import reproduction as reproducing
from unperturbed.experiments.account import experiment_text
from unperturbed.experiments.catalog import chosen, experiments
from unperturbed.experiments.definition import SURFACES
from unperturbed.experiments.gathered import of_run, seconds_of
from unperturbed.experiments.genuine import SHA256
from unperturbed.experiments.lambda_tables import by_the_authors, by_their_warps
from unperturbed.experiments.measured import Measured
from unperturbed.experiments.planning import attacked_at_once, groups, planned
from unperturbed.experiments.reproduction import Reproduction
from unperturbed.experiments.results import lying_in, present
from unperturbed.experiments.scales import LONG_ATTACKS, SLOW_ATTACKS, scaled
from unperturbed.experiments.settled import OTHER_WEIGHTS, other_weights, settle, weights_not_kept
from unperturbed.experiments.watchers import Stopping
from unperturbed.files import write_whole
from unperturbed.guards import DivergedError
from unperturbed.models import DigitsCNN, ResNet
from unperturbed.neighborhoods import Linf, TurnThenShift
from unperturbed.objectives import SRT
from unperturbed.progress import Lines
from unperturbed.recipe import Recipe, Validation
from unperturbed.recipes import cifar10, named
from unperturbed.recipes.published import COMPARED_ON_CIFAR10, COMPARED_ON_MNIST
from unperturbed.runs import RunDirectory
from unperturbed.schedules import Ramp
from unperturbed.signals import StoppedError
from unperturbed.solvers import WorstOfK
from unperturbed.training import fresh_model, train
from unperturbed.unfinished import Part, Unfinished

CPU = torch.device("cpu")
SMOKE = ("--scale", "smoke", "--device", "cpu")


def reproduce(*words, capsys=None):
    """Run the command; what it printed."""
    cli.main(["reproduce", *map(str, words)])
    return capsys.readouterr().out if capsys else ""


@pytest.fixture
def refused(refused):
    """Runs reproduce, which must refuse, and returns its sentence."""
    return partial(refused, "reproduce")


BESIDE_OTHERS = {"table-2": 2, "table-6": 1, "table-9": 2}
"""how many statements of an experiment also speak of the runs of another"""


@pytest.mark.parametrize("name", list(experiments()))
def test_every_experiment_runs_in_small_and_prints_a_number_in_each_cell(name, tmp_path, capsys):
    printed = reproduce(name, *SMOKE, "--out", tmp_path, capsys=capsys)
    runs = planned(chosen([name]), "smoke", "own", (0,))
    for run in runs:
        report = reports.read(tmp_path / run.name / "report.json")
        assert sorted(result.name for result in report.attacks) == sorted(run.trial.attacks)
        assert (tmp_path / run.name / "model.safetensors").is_file()
    assert f"## {name}: " in printed
    if name == "table-7":
        assert not runs
        return
    rows = [line for line in printed.splitlines() if line.startswith("| ") and "---" not in line]
    kept = [row for row in rows if not re.search("(best|last) weights", row)]
    assert len(kept) == sum(1 + len(table.rows) for table in experiments()[name].tables)
    assert not [row for row in kept for cell in row.split("|")[2:-1] if cell.strip().endswith("–")]
    assert "not yet measured" not in printed
    statements = [line for line in printed.splitlines() if line.startswith("- ")]
    assert len(statements) == len(experiments()[name].statements)
    waiting = [line for line in statements if line.startswith("- not yet: ")]
    assert len(waiting) == BESIDE_OTHERS.get(name, 0)
    assert all(re.match(r"- not judged by a smoke run: .* \(.+\)$", line) for line in set(statements) - {*waiting}), (
        "digits decide none"
    )
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")}
    assert reproduce(name, *SMOKE, "--out", tmp_path, capsys=capsys) == printed
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")} == written


class StopAt:
    """Whether to stop: at the call of that number."""

    def __init__(self, call):
        self.call = call

    def __call__(self):
        self.call -= 1
        return self.call == 0


def reproduction(out, stop=bool, **changes):
    return Reproduction(out=out, folder=None, device="cpu", stop=stop, watcher=Lines(), **changes)


def test_stopped_at_any_moment_it_goes_on_and_ends_with_the_same_weights_and_predictions(tmp_path):
    runs = planned(
        chosen(["table-9", "figure-compound"]),
        "smoke",
        "own",
        (0,),
        "cifar10-pixel-srt-fast-*,cifar10-compound-at-seed-0",
    )
    assert len(runs) == 2
    reproduction(tmp_path / "whole").carry_out(runs)
    stops = 0
    for call in (*range(1, 9), 12, 10**9):
        try:
            reproduction(tmp_path / "parts", StopAt(call)).carry_out(runs)
        except StoppedError as stopped:
            stops += 1
            assert "the same command goes on" in str(stopped)
    assert stops >= 5
    for run in runs:
        whole, parts = (tmp_path / name / run.name for name in ("whole", "parts"))
        assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()
        one, other = (reports.read(path / "report.json") for path in (whole, parts))
        assert one.subject == other.subject
        for first, second in zip(one.attacks, other.attacks, strict=True):
            assert (first.name, first.settings) == (second.name, second.settings)
            assert torch.equal(first.predicted, second.predicted)


def test_after_its_minutes_it_stops_with_a_sentence_and_goes_on_later(tmp_path, capsys):
    words = ("table-6", *SMOKE, "--only", "*-lambda-0.2-*", "--out", tmp_path)
    printed = reproduce(*words, "--minutes", "0.0001", capsys=capsys)
    assert "after 0.0001 minutes: stopped" in printed
    assert "98.10 / –" in printed
    printed = reproduce(*words, capsys=capsys)
    assert "98.10 / –" not in printed


def test_sigterm_ends_it_with_a_sentence_and_its_exit_code(tmp_path):
    words = [sys.executable, "-m", "unperturbed", "reproduce", "table-1", *SMOKE, "--out", str(tmp_path)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    end = time.monotonic() + 120
    while not list(tmp_path.glob("*/report.json")) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert re.search(r"unperturbed: stopped.*the same command goes on", errors)


def test_lambda_grows_where_a_run_past_the_paper_labels_for_itself_and_stands_where_a_teacher_does():
    past = [trial for trial in experiments()["better"].trials if trial.variant not in ("", "-authors")]
    assert {trial.recipe.labeler for trial in past} == {"current", "average", "teacher"}
    assert all((trial.recipe.ramp.over == 0) == (trial.recipe.labeler == "teacher") for trial in past)
    for trial in past:
        recipe = trial.recipe
        if recipe.labeler == "teacher" and isinstance(recipe.objective, SRT):
            own = named("-".join([*recipe.name.split("-")[:2], "srt"])).objective.weight
            assert recipe.objective.weight == pytest.approx(own if "-one-mean" in trial.variant else 3 * own)


@pytest.mark.parametrize(("name", "weights"), [("table-1", [0.2]), ("table-5", [0.15, 0.2, 0.25, 0.3])])
def test_eq_9_as_it_is_printed_has_rows_of_its_own_where_recipes_take_another_mean(name, weights):
    (table,) = experiments()[name].tables
    printed = [trial for trial in table.rows if trial.name.endswith("-terms")]
    assert [trial.recipe.objective.weight for trial in printed] == weights
    for trial in printed:
        recipe = named(trial.recipe.name)
        by_terms = replace(recipe.objective, mean="terms", forward="separate")
        assert trial.recipe == replace(recipe, objective=by_terms) != recipe


def test_two_forward_passes_have_a_row_where_recipes_take_one():
    (table,) = experiments()["table-1"].tables
    (two,) = [trial for trial in table.rows if trial.name.endswith("-two-passes")]
    recipe = named("cifar10-spatial-srt")
    assert two.recipe == replace(recipe, objective=replace(recipe.objective, forward="separate")) != recipe


def test_models_compared_over_lambda_are_attacked_as_far_as_their_tables_say():
    for name, budget in (("table-2", COMPARED_ON_CIFAR10), ("table-6", COMPARED_ON_MNIST)):
        assert {trial.budget for trial in experiments()[name].trials} == {budget}


def test_where_lambda_grows_defenses_are_else_as_they_are_printed():
    trials = [
        trial
        for name in ("table-2", "table-4", "table-9", "figure-unlabeled")
        for trial in experiments()[name].trials
        if trial.variant.startswith("-ramped")
    ]
    assert len(trials) == 8 + 2 + 1 + 5
    for trial in trials:
        assert trial.recipe.ramp == Ramp(over=0.5) and trial.recipe.objective.forward == "together"
        as_printed = replace(trial.recipe, ramp=Ramp(), objective=replace(trial.recipe.objective, forward="separate"))
        unlabeled = int(trial.variant.split("-")[-1]) if "-unlabeled-" in trial.variant else as_printed.data.unlabeled
        recipe = named(as_printed.name)
        assert as_printed == replace(recipe, data=replace(recipe.data, unlabeled=unlabeled))


def test_srt_past_the_paper_keeps_what_is_best_on_held_out_labels_within_the_radius_of_its_attacks():
    selected = [trial for trial in experiments()["better"].trials if trial.variant.startswith("-selected")]
    assert len(selected) == 11
    held_out = dict.fromkeys(("-selected-one-mean-awp", "-selected-three-steps", "-selected-three-steps-60"), 1000)
    for trial in selected:
        recipe, search = trial.recipe, trial.recipe.objective.solver
        radii = {"-6-wider": 0.35, "-still-wider": 0.37, "-widest": 0.4}
        if radius := next((radius for words, radius in radii.items() if words in trial.variant), None):
            start, reach = ("uniform", 2.5 * radius) if "-uniform" in trial.variant else ("normal", 0.4)
            assert (search.around.eps, search.start) == (radius, start)
            assert search.steps * search.step_size == pytest.approx(reach)
            search = replace(search, around=Linf(eps=0.3), start="normal", step_size=0.01)
        if "-three-steps" in trial.variant:
            assert search.steps == 3
            search = cifar10.ASCENT
        assert recipe.data.validation == held_out.get(trial.variant, 500)
        times = 60 if "-spatial-" in recipe.name else 20
        assert recipe.validation == Validation(every=recipe.steps // times, solver=search, keep="best")


def test_a_steadier_srt_plusplus_on_mnist_has_a_slower_average_and_nothing_else():
    trials = {trial.name: trial.recipe for trial in experiments()["better"].trials}
    name = "mnist-pixel-srt-plusplus-selected-lambda-6-wider-uniform"
    usual, steady = trials[name], trials[f"{name}-steady"]
    assert (usual.averaging.decay, steady.averaging.decay) == (0.99, 0.999)
    assert replace(steady, averaging=usual.averaging) == usual


def test_srt_plusplus_in_sixty_epochs_has_the_first_rate_of_the_papers_schedule_but_for_their_last_tenth():
    trials = {trial.variant: trial.recipe for trial in experiments()["better"].trials}
    whole, halved = trials["-selected-three-steps"], trials["-selected-three-steps-60"]
    assert round(halved.steps * halved.batch / 50_000) == 60 and 2 * halved.steps <= whole.steps
    rates = [halved.optimizer.rate(progress) for progress in (0.0, 0.89, 0.91)]
    assert rates == pytest.approx([whole.optimizer.rate(0.0)] * 2 + [whole.optimizer.rate(0.0) / 10])
    alike = replace(halved, steps=whole.steps, optimizer=whole.optimizer, validation=whole.validation)
    assert alike == whole


def test_the_shortest_trainings_are_timed_alone_over_the_epochs_that_they_are_called_by():
    short = [trial for trial in experiments()["better"].trials if "-shortest" in trial.variant]
    assert all(trial.timed and trial.recipe.batch == 512 for trial in short)
    epochs = [round(trial.recipe.steps * 512 / 50_000) for trial in short]
    assert epochs == [30, 60, 30, 60, 60, 45]
    assert all(f"{number} epochs" in trial.called for trial, number in zip(short, epochs, strict=True))


def test_runs_that_experiments_share_are_trained_once():
    every = planned(list(experiments().values()), "paper", "own", (0,))
    names = [run.name for run in every]
    assert len(names) == len(set(names)) == 167
    recipes = [replace(run.recipe, name="") for run in every]
    assert len(set(recipes)) == len(recipes)
    assert "cifar10-spatial-srt-seed-0" in [run.name for run in planned(chosen(["table-1"]), "paper", "own", (0,))]


def test_the_attacks_of_all_experiments_on_a_shared_run_are_made():
    (run,) = planned(chosen(["table-4", "figure-compound"]), "paper", "own", (0,), "mnist-pixel-srt-seed-0")
    assert {"jsma", "autoattack", "gridadv+", "pgd"} <= set(run.trial.attacks)
    assert run.trial.swept == ("pgd", "gridadv", "pgd+", "gridadv+")
    assert set(run.trial.swept_at("paper", 0.5)) == set(run.trial.swept)


def test_small_networks_share_a_gpu_and_timed_runs_do_not():
    runs = planned(chosen(["table-3", "table-8"]), "paper", "own", (0,))
    together = groups(runs, 4)
    assert sorted(run.name for group in together for run in group) == sorted(run.name for run in runs)
    alone = {group[0].trial.name for group in together if len(group) == 1}
    assert {"cifar10-spatial-srt", "cifar10-spatial-srt-fast", "cifar10-spatial-klr"} <= alone
    assert max(len(group) for group in together) == 4
    assert all(len(group) == 1 for group in groups(runs, 1))
    (timed_elsewhere,) = planned(chosen(["table-3"]), "paper", "own", (0,), "cifar10-spatial-srt-seed-0")
    (large,) = planned(chosen(["table-4"]), "paper", "resnet-18", (0,), "cifar10-pixel-uat-resnet18-*")
    assert timed_elsewhere.alone
    assert large.alone
    untimed = planned(chosen(["table-3", "table-8"]), "paper", "own", (0,), timing=False)
    assert sorted(len(group) for group in groups(untimed, 4)) == [3, 4, 4]


@pytest.mark.parametrize(("count", "sizes"), [(9, [1, 4, 4]), (8, [4, 4]), (3, [3]), (0, [])])
def test_a_gpu_that_is_not_full_is_left_to_the_shortest_runs(count, sizes):
    runs = planned(chosen(["table-6"]), "paper", "own", (0,))[:count]
    shared = groups(runs, 4)
    assert [len(group) for group in shared] == sizes
    lengths = [run.recipe.steps for group in shared for run in group]
    assert sorted(lengths) == lengths


def test_another_seed_is_another_split_and_other_weights():
    first, second = planned(chosen(["table-6"]), "paper", "own", (0, 5), "no-run, mnist-pixel-srt-lambda-0.2-*")
    assert (second.recipe.seed, second.recipe.data.seed, second.name) == (5, 5, "mnist-pixel-srt-lambda-0.2-seed-5")
    assert replace(second.recipe, seed=0, data=first.recipe.data) == first.recipe


def test_a_network_in_place_of_the_wide_one_has_a_directory_of_its_own():
    runs = planned(chosen(["table-4"]), "paper", "resnet-18", (0,))
    names = {run.name: type(run.recipe.model).__name__ for run in runs}
    assert names["cifar10-pixel-srt-resnet18-seed-0"] == "ResNet18"
    assert names["mnist-pixel-srt-seed-0"] == "SmallCNN"


def test_a_run_that_diverges_is_noted_and_the_others_are_made(tmp_path, monkeypatch, capsys):
    runs = planned(chosen(["table-6"]), "smoke", "own", (0,), "*-lambda-0.2-*")
    train = Reproduction.train

    def diverging(self, group):
        train(self, group)
        if group[0].trial.name == runs[0].trial.name:
            (self.out / group[0].name / "model.safetensors").unlink()
            raise DivergedError("the loss is not finite from step 2 on")

    monkeypatch.setattr(Reproduction, "train", diverging)
    reproduction(tmp_path).carry_out(runs)
    assert not (tmp_path / runs[0].name / "report.json").exists()
    assert (tmp_path / runs[1].name / "report.json").is_file()
    assert "not finite from step 2 on; it is left as it is" in capsys.readouterr().err
    words = ("table-6", *SMOKE, "--only", "*-lambda-0.2-*", "--out", tmp_path)
    assert "diverged" in reproduce(*words, "--plan", capsys=capsys)
    reproduce(*words)
    told = capsys.readouterr().err
    assert "not finite from step 2 on; it is left as it is: delete" in told, "a later command says why a row is empty"
    assert runs[1].name not in told


def test_the_plan_tells_runs_minutes_their_basis_and_what_is_there(tmp_path, capsys):
    words = ("table-6", *SMOKE, "--out", tmp_path, "--only", "*-lambda-0.2-*,*-lambda-0.4-*")
    reproduce(*words, "--share", "1/2")
    plan = reproduce(*words, "--plan", capsys=capsys)
    lines = [line for line in plan.splitlines() if line.startswith("| mnist")]
    assert len(lines) == 4
    assert sum(line.endswith("done |") for line in lines) == 2
    assert sum(line.endswith("missing |") for line in lines) == 2
    assert plan.splitlines()[-1].endswith("(expected on one core: 0.5 seconds for each run)")
    paper = reproduce("table-4", "--scale", "paper", "--plan", "--out", tmp_path / "none", capsys=capsys)
    assert "results/training-speed.json" in paper
    assert not (tmp_path / "none").exists()
    (srt,) = (line for line in paper.splitlines() if line.startswith("| cifar10-pixel-srt-seed-0"))
    training = float(srt.split("|")[4])
    assert training == pytest.approx(46_875 * 128 / 1234.9 / 60, rel=0.05)


def test_collected_evidence_tells_what_the_runs_told(tmp_path, capsys):
    words = ("table-9", *SMOKE, "--out", tmp_path / "runs")
    printed = reproduce(*words, capsys=capsys)
    told = reproduce(*words, "--collect", tmp_path / "results", capsys=capsys)
    assert "5 of 5 runs begun" in told
    found = files.read_all(tmp_path / "results")
    assert len(found) == 5
    (fast,) = (each for each in found if each.name == "cifar10-pixel-srt-fast")
    assert fast.other is None or fast.other.subject != fast.report.subject
    assert fast.seconds > 0
    assert experiment_text(experiments()["table-9"], found) + "\n\n" == printed
    assert not list((tmp_path / "results").rglob("*.safetensors"))


def test_runs_of_all_seeds_and_networks_are_collected(tmp_path, capsys, refused):
    words = (
        "table-2",
        *SMOKE,
        "--only",
        "*-srt-lambda-0.2-seed-*,*-srt-lambda-0.2-resnet18-*",
        "--out",
        tmp_path / "runs",
    )
    reproduce(*words, "--seeds", "1", "2")
    reproduce(*words, "--network", "resnet-18", "--seeds", "3")
    told = reproduce("all", *SMOKE, "--out", tmp_path / "runs", "--collect", tmp_path / "results", capsys=capsys)
    assert "3 of 3 runs" in told
    found = {(each.network, each.seed) for each in files.read_all(tmp_path / "results")}
    assert found == {("own", 1), ("own", 2), ("resnet-18", 3)}
    elsewhere = (*words[:-1], tmp_path / "no", "--collect", tmp_path / "nothing")
    assert "holds no run of these: name the directory of the runs by --out" in refused(*elsewhere)
    chosen_ones = ("all", *SMOKE, "--out", tmp_path / "runs", "--only", "*-resnet18-*")
    assert "1 of 1 run begun" in reproduce(*chosen_ones, "--collect", tmp_path / "few", capsys=capsys)
    assert [each.network for each in files.read_all(tmp_path / "few")] == ["resnet-18"]
    assert not (tmp_path / "nothing").exists()


def test_a_run_whose_network_none_replaces_is_collected_once(tmp_path):
    run = tmp_path / "mnist-pixel-srt-lambda-0.2-seed-0"
    run.mkdir()
    (run / "recipe.json").touch()
    assert [each.name for each in present(chosen(["table-6"]), "paper", tmp_path)] == [run.name]


def test_what_evaluate_found_by_other_settings_or_on_other_images_is_no_evidence(tmp_path, capsys):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*", "--out", tmp_path / "runs")
    reproduce(*words)
    run = tmp_path / "runs" / "mnist-pixel-srt-lambda-0.2-seed-0"
    results, left_out = (
        tmp_path / "results",
        f"attacks by other settings, images or weights are left out: {run.name}",
    )

    def evaluate_and_collect(images, steps):
        budget = ("--budget.eps", "0.1", "--budget.step-size", "0.005", "--budget.steps", steps)
        cli.main(["evaluate", *map(str, (run, "--attacks", "fgsm,pgd", "--images", images, *budget))])
        return reproduce(*words, "--collect", results, capsys=capsys)

    assert left_out in evaluate_and_collect(images=8, steps=3)
    (found,) = files.read_all(results)
    assert [result.name for result in found.report.attacks] == ["fgsm"]
    assert "left out" not in evaluate_and_collect(images=8, steps=2)
    (found,) = files.read_all(results)
    assert [result.name for result in found.report.attacks] == ["fgsm", "pgd"]
    shutil.rmtree(results)
    printed = evaluate_and_collect(images=9, steps=2)
    assert "0 of 1 run begun" in printed
    assert left_out in printed
    assert not results.exists()


def test_evidence_that_holds_more_of_a_run_is_not_replaced(tmp_path, capsys, refused):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*", "--out")
    reproduce(*words, tmp_path / "whole")
    reproduce(*words, tmp_path / "part", "--without", "pgd")
    (file,) = tmp_path.glob("part/*/report.json")
    write_whole(file, replace(reports.read(file), subject="other weights").dumps().encode())
    results = tmp_path / "results"
    for place in ("part", "whole", "whole"):
        assert "1 of 1 run begun" in reproduce(*words, tmp_path / place, "--collect", results, capsys=capsys)
    (file,) = results.glob("*/*.json")
    before = file.read_bytes()
    sentence = refused(*words, tmp_path / "part", "--collect", results)
    assert "seed-0.json holds more of that run (pgd): make the same here first" in sentence
    assert file.read_bytes() == before
    file.write_bytes(before[:99])
    assert "1 of 1 run begun" in reproduce(*words, tmp_path / "part", "--collect", results, capsys=capsys)


def test_evidence_with_the_log_of_a_training_is_not_replaced_by_one_without(tmp_path, refused):
    words = ("table-4", *SMOKE, "--only", "mnist-pixel-at-*", "--out", tmp_path, "--without", "autoattack,pointwise")
    reproduce(*words)
    reproduce(*words, "--collect", tmp_path / "results")
    log = tmp_path / "mnist-pixel-at-seed-0" / "log.jsonl"
    log.write_text('{"step": 3, "seconds": 0.0}\n', encoding="utf-8")
    sentence = refused(*words, "--collect", tmp_path / "results")
    assert "seed-0.json holds more of that run (its log): make the same here first" in sentence


def test_damaged_notes_of_a_run_are_no_notes_that_it_had_its_device_alone(tmp_path, refused):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*", "--out", tmp_path / "runs")
    reproduce(*words, "--beside", "3")
    file = tmp_path / "runs" / "mnist-pixel-srt-lambda-0.2-seed-0" / notes.NOTES
    assert json.loads(file.read_text())["together"] == 4
    damages = (
        file.read_bytes()[:-5],
        b"[]",
        b"\xff\xfe",
        b'{"together": "four"}',
        b'{"together": 0}',
        b'{"teacher_together": 0}',
        b'{"teacher_seconds": NaN}',
        b'{"teacher_seconds": -50000.0}',
        b'{"selected": {"step": "two"}}',
        b'{"surfaces": 1}',
        b'{"surfaces": {"surface.pixel": "much"}}',
    )
    for damaged in damages:
        file.write_bytes(damaged)
        for more in ((), ("--collect", tmp_path / "results")):
            sentence = refused(*words, *more)
            assert f"{notes.NOTES} is damaged: restore it, or delete" in sentence
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("record", [{"step": 3}, {"step": 3, "seconds": float("nan")}, {"step": 3, "seconds": "1"}])
def test_a_log_that_does_not_tell_its_seconds_is_refused_in_a_sentence(record, tmp_path, refused):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*", "--out", tmp_path / "runs")
    reproduce(*words)
    log = tmp_path / "runs" / "mnist-pixel-srt-lambda-0.2-seed-0" / "log.jsonl"
    log.write_text(json.dumps(record) + "\n", encoding="utf-8")
    for more in ((), ("--collect", tmp_path / "results")):
        assert "log.jsonl has a line without its seconds: restore it, or" in refused(*words, *more)
    assert not (tmp_path / "results").exists()


def test_what_a_curve_found_by_other_settings_is_no_evidence(tmp_path):
    words = ("figure-compound", *SMOKE, "--only", "mnist-compound-at-seed-0", "--out", tmp_path / "runs")
    reproduce(*words)
    run = tmp_path / "runs" / "mnist-compound-at-seed-0"
    sweep = sweeps.read(run)
    other = replace(sweep.reports[0.5].attacks[0], settings="others")
    changed = replace(sweep.reports[0.5], attacks=(other, *sweep.reports[0.5].attacks[1:]))
    write_whole(run / "sweep.json", replace(sweep, reports={**sweep.reports, 0.5: changed}).dumps().encode())
    reproduce(*words, "--collect", tmp_path / "results")
    (found,) = files.read_all(tmp_path / "results")
    names = {part: [result.name for result in report.attacks] for part, report in found.sweep.reports.items()}
    assert names == {0.25: names[1.0], 0.5: names[1.0][1:], 0.75: names[1.0], 1.0: names[1.0]}


def test_a_sweep_of_another_run_is_no_evidence_and_is_made_again(tmp_path, capsys):
    words = ("figure-compound", *SMOKE, "--seeds", "0", "1", "--only", "mnist-compound-at-seed-*", "--out", tmp_path)
    reproduce(*words)
    mine, others = (tmp_path / f"mnist-compound-at-seed-{seed}" / sweeps.FILE for seed in (0, 1))
    before = sweeps.read(mine.parent)
    mine.write_bytes(others.read_bytes())
    said = reproduce(*words, "--collect", tmp_path / "results", capsys=capsys)
    assert said.endswith(f"images or weights are left out: {mine.parent.name}\n")
    found = files.read(tmp_path / "results" / "smoke" / f"{mine.parent.name}.json")
    assert not found.sweep.reports
    reproduce(*words)
    again = sweeps.read(mine.parent)
    assert {part: report.subject for part, report in again.reports.items()} == {
        part: report.subject for part, report in before.reports.items()
    }


def test_what_evaluate_made_on_fewer_images_is_made_on_all(tmp_path, capsys):
    words = ("table-6", *SMOKE, "--only", "*-srt-lambda-0.2-*", "--out", tmp_path)
    reproduce(*words)
    run = tmp_path / "mnist-pixel-srt-lambda-0.2-seed-0"
    budget = ("--budget.eps", "0.1", "--budget.step-size", "0.005", "--budget.steps", "2")
    cli.main(["evaluate", str(run), "--attacks", "fgsm,pgd", "--images", "4", *budget])
    assert "| trained |" in reproduce(*words, "--plan", capsys=capsys)
    reproduce(*words)
    assert len(reports.read(run / "report.json").labels) == 8
    assert "done |" in reproduce(*words, "--plan", capsys=capsys)


def test_weights_that_were_not_kept_are_the_others():
    recipe = named("cifar10-pixel-srt-fast")
    best = {"step": 5, "weights": {"w": "best"}}
    state = {"step": 9, "best": best, "average": {}, "model": {"w": "last"}, "fallen": ""}
    assert recipe.validation.keep == "last"
    assert weights_not_kept(recipe, state) == {"w": "best"}
    assert weights_not_kept(recipe, state | {"fallen": "fell"}) == {"w": "last"}
    keeps_best = replace(recipe, validation=replace(recipe.validation, keep="best"))
    assert weights_not_kept(keeps_best, state) == {"w": "last"}
    assert weights_not_kept(keeps_best, state | {"average": {"w": "average"}}) == {"w": "average"}
    assert weights_not_kept(keeps_best, state | {"best": best | {"step": 9}}) is None


def test_without_an_experiment_all_are_listed(capsys):
    printed = reproduce(capsys=capsys)
    for name, experiment in experiments().items():
        assert re.search(rf"^{name} +{re.escape(experiment.title)}$", printed, re.M)
    cli.main(["list", "experiments"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in experiments())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tabel-3",), "there is no experiment 'tabel-3', did you mean 'table-3'?"),
        (("table-3", "--share", "3/2"), "--share must be I/N with I from 1 to N"),
        (("table-3", "--only", "nothing"), "--only 'nothing' leaves none of 10 runs: match whole names"),
        (("table-3", "--only", "*at* *srt*"), "by patterns, as '*srt*', with commas between several"),
        (("table-3", "--without", "cw ddn"), "to leave for later: put commas between several, as cw,ddn"),
        (("table-3", "--seeds", "0", "-1"), "--seeds must be whole numbers from 0 on, got -1"),
        (("--scale", "smoke", "table-3"), "reproduce needs an experiment first, or all"),
        (("--collect", "results"), "reproduce needs an experiment first, or all"),
        (("table-3", "--slow-images", "0"), "--slow-images"),
        (("table-3", "--minutes", "0"), "--minutes must be a positive number"),
        (("table-3", "--minutes", "nan"), "--minutes must be a positive number"),
        (("table-3", *SMOKE[:2], "--device", "gpu"), "there is no device 'gpu' on this machine"),
        (("table-3", "--beside", "-1"), "--beside must be a whole number from 0 on, got -1"),
        (("table-3", "--without", "autoatack"), "there is no attack 'autoatack' to leave for later, did you mean"),
        (
            ("table-3", "--scale", "short", "--data", "/nowhere/at/all"),
            "the data folder /nowhere/at/all does not exist",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(words, sentence, tmp_path, refused):
    assert sentence in refused(*words, "--out", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_table_that_needs_no_run_leaves_no_directory(tmp_path, capsys):
    assert "| SRT        | O((N + M) I_i I_o)" in reproduce("table-7", "--out", tmp_path / "runs", capsys=capsys)
    assert not (tmp_path / "runs").exists()


def test_a_place_that_cannot_be_written_is_named_in_a_sentence(tmp_path, refused):
    (tmp_path / "file").write_text("a file")
    words = ("table-6", *SMOKE, "--only", "*-rt-lambda-0.2-*", "--out")
    sentence = refused(*words, tmp_path / "file" / "runs")
    assert f"could not write {tmp_path / 'file' / 'runs' / 'reproduction.json'} (Not a directory)" in sentence
    reproduce(*words, tmp_path / "runs")
    sentence = refused(*words, tmp_path / "runs", "--collect", tmp_path / "file")
    evidence_file = tmp_path / "file" / "smoke" / "mnist-pixel-rt-lambda-0.2-seed-0.json"
    assert f"could not write {evidence_file} (Not a directory)" in sentence


def test_files_that_only_bear_the_names_of_the_papers_data_are_refused(tmp_path, monkeypatch, capsys, refused):
    random = np.random.default_rng(0)
    for file, count in zip(IDX_FILES, (60, 60, 20, 20), strict=True):
        shape = (count, 28, 28) if "images" in file else (count,)
        head = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
        (tmp_path / file).write_bytes(head + random.integers(0, 10, shape, dtype=np.uint8).tobytes())
    words = ("table-6", "--scale", "short", "--data", tmp_path, "--out", tmp_path / "runs", "--minutes", "1e-9")
    assert "mnist hold other images or labels than MNIST" in refused(*words)
    assert not (tmp_path / "runs").exists()
    digest = hashlib.sha256()
    for part in ("train_images", "train_labels", "test_images", "test_labels"):
        digest.update(getattr(load("mnist", tmp_path), part).numpy().tobytes())
    monkeypatch.setitem(SHA256, "mnist", digest.hexdigest())
    assert "after 1e-09 minutes: stopped" in reproduce(*words, capsys=capsys)


def test_a_directory_of_another_scale_or_version_is_refused(tmp_path, refused):
    words = ("table-6", *SMOKE, "--only", "*-rt-lambda-0.2-*", "--out", tmp_path)
    reproduce(*words)
    (tmp_path / "reproduction.json").write_text(json.dumps({"format": 1, "scale": "short"}))
    assert "holds runs at scale short, not smoke" in refused(*words)
    assert "holds runs at scale short, not smoke" in refused(*words, "--plan")
    collecting = (*words, "--collect", tmp_path / "results")
    assert "holds runs at scale short, not smoke" in refused(*collecting)
    assert not (tmp_path / "results").exists(), "runs of a few steps would stand there as results"
    (tmp_path / "reproduction.json").write_text(json.dumps({"format": 2, "scale": "smoke"}))
    assert "is not of this version of unperturbed" in refused(*words)


def test_a_finished_run_by_another_recipe_of_the_same_name_is_refused(tmp_path, refused):
    words = ("table-6", *SMOKE, "--only", "*-rt-lambda-0.2-*", "--out", tmp_path / "runs")
    reproduce(*words)
    recipe = tmp_path / "runs" / "mnist-pixel-rt-lambda-0.2-seed-0" / "recipe.json"
    recipe.write_text(recipe.read_text().replace('"batch": 32', '"batch": 16'))
    for more in ((), ("--plan",), ("--collect", tmp_path / "results")):
        sentence = refused(*words, *more)
        assert "seed-0 holds a run of another recipe (batch is 16 there and 32 here): name another --out" in sentence
    assert not (tmp_path / "results").exists()


def test_the_page_is_written_by_the_command_and_refuses_results_of_another_version(tmp_path, capsys, refused):
    target = tmp_path / "page.md"
    words = ("--write", target, "--results", tmp_path)
    files.write(evidence("mnist-pixel-srt", images=10_000), tmp_path)
    assert ": 1 run\n" in reproduce(*words, capsys=capsys)
    assert target.read_text().startswith("# Results")
    command = f"unperturbed reproduce {' '.join(map(str, words))}"
    assert f"JSON files in `{tmp_path}` by `{command}`." in target.read_text(), "it names the command"
    (tmp_path / "paper" / "a.json").write_text('{"format": 7}')
    assert "format 7, this version reads 1" in refused(*words)


@pytest.mark.parametrize("name", ["table-3", "all", "nothing-of-the-kind"])
def test_the_page_is_of_all_experiments_and_not_of_one_that_is_named(name, tmp_path, refused):
    files.write(evidence("mnist-pixel-srt", pgd=12.3), tmp_path)
    sentence = refused(name, "--write", tmp_path / "page.md", "--results", tmp_path)
    assert f"--write writes the page of all experiments, got '{name}': leave that out" in sentence
    assert not (tmp_path / "page.md").exists()


def test_no_page_is_written_over_another_without_a_result(tmp_path, refused):
    target = tmp_path / "page.md"
    target.write_text("results")
    words = ("--write", target, "--results", tmp_path / "evidence")
    assert "evidence holds no evidence: name the folder of the evidence by --results" in refused(*words)
    files.write(evidence("mnist-pixel-srt", pgd=12.3, scale="smoke"), tmp_path / "evidence")
    assert "holds smoke runs alone, which are no results" in refused(*words)
    assert target.read_text() == "results"


def test_attacks_left_for_later_are_made_later(tmp_path, capsys):
    words = ("table-4", *SMOKE, "--only", "mnist-pixel-at-*", "--out", tmp_path)
    reproduce(*words, "--without", "autoattack, jsma, pointwise")
    path = tmp_path / "mnist-pixel-at-seed-0" / "report.json"
    assert {result.name for result in reports.read(path).attacks} == {"fgsm", "pgd", "mi-fgsm", "cw", "ddn"}
    assert "trained |" in reproduce(*words, "--plan", capsys=capsys)
    reproduce(*words)
    assert {"autoattack", "jsma", "pointwise"} <= {result.name for result in reports.read(path).attacks}
    assert "done |" in reproduce(*words, "--plan", capsys=capsys)


def test_attacks_that_take_long_may_be_made_on_fewer_images_and_on_all_later(tmp_path, capsys):
    words = ("table-4", *SMOKE, "--only", "mnist-pixel-at-*", "--out", tmp_path)
    printed = reproduce(*words, "--slow-images", "3", capsys=capsys)
    path = tmp_path / "mnist-pixel-at-seed-0"
    slow = reports.read(path / "report-slow.json")
    assert {result.name for result in slow.attacks} == {"autoattack", "pointwise"}
    assert len(slow.labels) == 3
    assert "autoattack" not in {result.name for result in reports.read(path / "report.json").attacks}
    assert "AutoAttack and Pointwise on the first 3 where a cell says so" in printed
    assert "done |" in reproduce(*words, "--slow-images", "3", "--plan", capsys=capsys)
    assert "trained |" in reproduce(*words, "--plan", capsys=capsys)
    (row,) = (line for line in printed.splitlines() if line.startswith("| AT ") and "98.99" in line)
    assert f"– / {100 * slow.accuracy('autoattack'):.2f} (3) |" in row
    reproduce(*words, "--collect", tmp_path / "results")
    (kept,) = files.read_all(tmp_path / "results")
    assert [len(few.labels) for few in kept.on_fewer] == [3]
    reproduce(*words)
    assert "autoattack" in {result.name for result in reports.read(path / "report.json").attacks}


def test_evidence_is_collected_where_weights_are_elsewhere(tmp_path, capsys):
    words = ("table-4", *SMOKE, "--only", "mnist-pixel-at-*", "--out", tmp_path)
    reproduce(*words, "--without", "autoattack,pointwise")
    (tmp_path / "mnist-pixel-at-seed-0" / "model.safetensors").unlink()
    assert "1 of 1 run begun" in reproduce(*words, "--collect", tmp_path / "results", capsys=capsys)
    (kept,) = files.read_all(tmp_path / "results")
    assert "pgd" in {result.name for result in kept.report.attacks}


def test_what_attacks_found_on_other_images_or_another_device_is_set_aside(tmp_path, monkeypatch):
    words = ("table-4", *SMOKE, "--only", "mnist-pixel-at-*", "--out", tmp_path)
    path = tmp_path / "mnist-pixel-at-seed-0"
    reproduce(*words, "--slow-images", "3", "--without", "jsma")
    whole, slow = ((path / name).read_bytes() for name in ("report.json", "report-slow.json"))
    reproduce(*words, "--slow-images", "5", "--without", "jsma,pointwise")
    (aside,) = path.glob("report-slow-*.json")
    assert aside.read_bytes() == slow
    assert not list(path.glob("report-????????.json"))
    monkeypatch.setattr("unperturbed.evaluation.BATCH", 3)  # A GPU attacks other numbers of images at once.
    reproduce(*words, "--slow-images", "5", "--without", "pointwise")
    (aside,) = path.glob("report-????????.json")
    assert aside.read_bytes() == whole


class Interrupting:
    """A watcher that ends an attack after so many batches."""

    def __init__(self, batches):
        self.batches = batches

    def attacked(self, name, done, images, standing):
        self.batches -= 1
        if self.batches == 0:
            raise StoppedError("stopped")


def test_an_attack_that_was_interrupted_goes_on_with_the_next_batch(tmp_path):
    digits, model = load("digits"), DigitsCNN(channels=(2, 2, 2), hidden=4)((1, 8, 8), 10)
    images, labels = digits.test_images[:10], digits.test_labels[:10]
    calls = []

    class Counted:
        def __repr__(self):
            return "Counted()"

        def __call__(self, f, x, y, rng, /):
            calls.append(len(x))
            return fgsm(eps=0.3)(f, x, y, rng)

    def attacked(**changes):
        return evaluate(model, images, labels, {"counted": Counted()}, batch=2, device="cpu", **changes)["counted"]

    whole = attacked()
    unfinished = Unfinished(tmp_path / "attack.json")
    calls.clear()
    with pytest.raises(StoppedError):
        attacked(unfinished=unfinished, watcher=Interrupting(3))
    assert len(calls) == 3
    found = attacked(unfinished=unfinished)
    assert len(calls) == 5
    assert torch.equal(found.predicted, whole.predicted)
    assert found.rejected == whole.rejected
    assert not unfinished.path.exists()


def test_what_was_kept_of_an_attack_counts_its_seconds_and_is_gone_once_the_attack_is_done(tmp_path):
    digits, model = load("digits"), DigitsCNN(channels=(2, 2, 2), hidden=4)((1, 8, 8), 10)
    images, labels, unfinished = digits.test_images[:6], digits.test_labels[:6], Unfinished(tmp_path / "attack.json")
    attacked = partial(evaluate, model, images, labels, batch=2, device="cpu", unfinished=unfinished)
    with pytest.raises(StoppedError):
        attacked({"fgsm": fgsm(eps=0.3)}, watcher=Interrupting(2))
    ((key, parts),) = [(each["key"], unfinished.read(each["key"])) for each in unfinished.waiting()]
    parts[0] = parts[0]._replace(seconds=1000.0)
    parts[2] = parts[2]._replace(predicted=torch.arange(3))
    unfinished.write(key, parts)
    report = attacked({"fgsm": fgsm(eps=0.3)})
    assert report["fgsm"].seconds > 1000
    assert torch.equal(report["fgsm"].predicted, attacked({"fgsm": fgsm(eps=0.3)})["fgsm"].predicted)
    unfinished.write(key, parts)
    attacked({"fgsm": fgsm(eps=0.3)}, previous=report)
    assert not unfinished.path.exists()


def test_nothing_is_kept_of_an_attack_that_another_may_share_its_words_with(tmp_path):
    digits, model = load("digits"), DigitsCNN(channels=(2, 2, 2), hidden=4)((1, 8, 8), 10)
    unfinished = Unfinished(tmp_path / "attack.json")
    given = (model, digits.test_images[:4], digits.test_labels[:4], {"own": lambda f, x, y, rng: x})
    with pytest.raises(StoppedError):
        evaluate(*given, batch=2, device="cpu", unfinished=unfinished, watcher=Interrupting(1))
    assert not unfinished.path.exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"attacks": 3}',
        '{"attacks": [3, {"key": 3}]}',
        '{"attacks": [{"key": ["a"], "parts": {"0": {}}}]}',
        '{"attacks": [{"key": ["a"], "parts": []}]}',
        '{"attacks": [{"key": ["a"], "parts": {"0": {"predicted": "AAAA"}}}]}',
        '{"attacks": [{"key": ["a"], "parts": {"0": {"predicted": "eJwDAAAAAAE=", "rejected": Infinity}}}]}',
        "[" * 100_000,
    ],
)
def test_what_is_left_of_another_attack_counts_not(tmp_path, content):
    unfinished = Unfinished(tmp_path / "attack.json")
    unfinished.path.write_text(content)
    assert unfinished.read(["a"]) == {}
    assert Unfinished(tmp_path / "none").read(["a"]) == {}


def test_parts_of_one_attack_do_not_count_for_another(tmp_path):
    unfinished = Unfinished(tmp_path / "attack.json")
    unfinished.write(["model", "pgd"], {0: Part(torch.tensor([3, 4]), 1, torch.tensor([0.5, torch.inf]), 2.0)})
    assert unfinished.read(["model", "fgsm"]) == {}
    (part,) = unfinished.read(["model", "pgd"]).values()
    assert part.predicted.tolist() == [3, 4]
    assert part.sizes.tolist() == [0.5, float("inf")]
    assert (part.rejected, part.seconds) == (1, 2.0)


def test_an_attack_that_waits_is_not_lost_while_another_comes_first(tmp_path):
    unfinished = Unfinished(tmp_path / "attack.json")
    for name in ("autoattack", "jsma"):
        unfinished.write(["model", name], {0: Part(torch.tensor([3, 4]), 0, None, 2.0)})
    unfinished.forget(["model", "jsma"])
    assert unfinished.read(["model", "jsma"]) == {}
    assert list(unfinished.read(["model", "autoattack"])) == [0]
    unfinished.forget(["model", "autoattack"])
    assert not unfinished.path.exists()
    unfinished.forget(["model", "autoattack"])


def test_an_attack_stops_between_two_batches_and_not_before_its_last_is_kept():
    stopping = Stopping(Lines(), "run", lambda: True)
    stopping.attacked("pgd", 500, 500, 0.5)
    with pytest.raises(StoppedError, match="stopped while attacking run with pgd; the same command goes on"):
        stopping.attacked("pgd", 100, 500, 0.5)
    Stopping(Lines(), "run", lambda: False).attacked("pgd", 100, 500, 0.5)


def test_runs_that_shared_a_device_are_known_for_it(tmp_path):
    runs = planned(chosen(["table-6"]), "smoke", "own", (0,), "*-lambda-0.2-*")
    made = reproduction(tmp_path)
    made.train(runs)
    made.train(runs[:1])
    made.carry_out(runs)
    for run in runs:
        found = of_run(tmp_path / run.name, run.trial.name, 0, "smoke", "own")
        assert found.together == 2
        assert found.trained_on == files.attacked_on(found.report) != ""


def test_a_run_beside_those_of_another_command_is_not_timed(tmp_path, capsys):
    words = ("table-8", *SMOKE, "--only", "*-srt-fast-*", "--out", tmp_path)
    reproduce(*words, "--beside", "3")
    assert of_run(tmp_path / "cifar10-spatial-srt-fast-seed-0", "", 0, "smoke", "own").together == 4
    row = next(line for line in reproduce(*words, capsys=capsys).splitlines() if line.startswith("| fast SRT"))
    assert row.endswith("855 / – |")


def test_a_run_that_is_killed_while_it_shares_a_device_is_known_for_it(tmp_path):
    """Nothing can be noted after a kill, so it is noted before the second step."""
    (run,) = planned(chosen(["table-8"]), "smoke", "own", (0,), "*-srt-fast-*")

    class Looking(Lines):
        def stepped(self, step, steps, /):
            noted.append(notes.read_notes(tmp_path / run.name))
            super().stepped(step, steps)

    noted = []
    replace(reproduction(tmp_path), watcher=Looking(), beside=3).train([run])
    assert [(notes["together"], notes["trained_on"] != "") for notes in noted] == [(4, True)] * 3


def test_a_command_that_is_refused_a_run_notes_nothing_of_it(tmp_path):
    (run,) = planned(chosen(["table-8"]), "smoke", "own", (0,), "*-srt-fast-*")
    with pytest.raises(StoppedError):
        reproduction(tmp_path, StopAt(3)).train([run])
    before = notes.read_notes(tmp_path / run.name)
    assert before["together"] == 1
    with RunDirectory(tmp_path / run.name).alone(), pytest.raises(ValueError, match="is in use by process"):
        reproduction(tmp_path, beside=3).train([run])
    assert notes.read_notes(tmp_path / run.name) == before


def test_a_run_that_another_process_finishes_meanwhile_keeps_no_other_from_being_trained(tmp_path):
    runs = planned(chosen(["table-6"]), "smoke", "own", (0,), "*-lambda-0.2-*")
    made = reproduction(tmp_path)
    made.carry_out(runs[:1])
    weights = (tmp_path / runs[0].name / "model.safetensors").read_bytes()
    made.train_or_note(runs)
    made.train_or_note(runs[:1])
    assert (tmp_path / runs[1].name / "model.safetensors").is_file()
    assert (tmp_path / runs[0].name / "model.safetensors").read_bytes() == weights


def test_an_evaluation_stops_between_two_attacks_too(tmp_path):
    runs = planned(chosen(["table-6"]), "smoke", "own", (0,), "*-srt-lambda-0.2-*")
    reproduction(tmp_path).train(runs)
    with pytest.raises(StoppedError, match="between two attacks on mnist-pixel-srt-lambda-"):
        reproduction(tmp_path, StopAt(2)).carry_out(runs)
    report = reports.read(tmp_path / runs[0].name / "report.json")
    assert [result.name for result in report.attacks] == ["fgsm"]
    with pytest.raises(StoppedError, match="between two runs"):
        reproduction(tmp_path, StopAt(1)).carry_out(runs)
    reproduction(tmp_path).carry_out(runs)
    assert not (tmp_path / runs[0].name / "attack.json").exists()


def test_nothing_is_started_that_the_time_left_is_too_short_for(tmp_path):
    runs = planned(chosen(["table-6"]), "smoke", "own", (0,), "*-lambda-0.2-*")
    with pytest.raises(StoppedError, match="between two runs"):
        reproduction(tmp_path, seconds_left=lambda: 10.0).carry_out(runs)
    trained = [run for run in runs if (tmp_path / run.name / "model.safetensors").is_file()]
    assert [run.name for run in trained] == [runs[0].name], "whatever comes first is begun in any case"
    reproduction(tmp_path, seconds_left=lambda: 60.0).carry_out(runs)
    assert all(reproduction(tmp_path).complete(run) for run in runs)


def test_batches_depend_on_the_network_alone_so_that_nothing_is_attacked_twice(tmp_path, monkeypatch):
    assert attacked_at_once(named("cifar10-pixel-srt")) == 125
    assert attacked_at_once(scaled(named("cifar10-pixel-srt"), "short", "resnet-18")) is None
    assert attacked_at_once(named("mnist-pixel-srt")) is None
    monkeypatch.setattr(reproducing, "attacked_at_once", lambda recipe: 5)
    (run,) = planned(chosen(["figure-compound"]), "smoke", "own", (0,), "mnist-pixel-at-*")
    reproduction(tmp_path).carry_out([run])
    report, sweep = reports.read(tmp_path / run.name / "report.json"), sweeps.read(tmp_path / run.name)
    assert sweep.reports[1.0].subject == report.subject
    assert [result.seconds for result in sweep.reports[1.0].attacks] == [result.seconds for result in report.attacks]


def test_a_copy_of_the_runs_holds_their_teachers_too(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    (run,) = planned(chosen(["table-4"]), "smoke", "own", (0,), "mnist-pixel-rst-*")
    with pytest.raises(StoppedError):
        reproduction(tmp_path / "here", StopAt(6)).carry_out([run])
    assert (tmp_path / "here" / run.name / "checkpoint.pt").is_file()
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    (teacher,) = (tmp_path / "there" / "teachers").glob("*/model.safetensors")
    written = teacher.stat().st_mtime_ns
    reproduction(tmp_path / "there").train([run])
    assert (tmp_path / "there" / run.name / "model.safetensors").is_file()
    assert teacher.stat().st_mtime_ns == written
    assert not (tmp_path / "cache").exists()


def test_the_seconds_of_a_run_count_those_of_its_teacher(tmp_path):
    runs = planned(chosen(["table-4"]), "smoke", "own", (0,), "mnist-pixel-[rs][rs]t-*")
    reproduction(tmp_path).carry_out(runs)
    (teacher,) = (tmp_path / "teachers").iterdir()
    assert seconds_of(RunDirectory(teacher)) > 0
    for run in runs:
        taught = seconds_of(RunDirectory(teacher)) if run.recipe.labeler == "teacher" else 0.0
        found = of_run(tmp_path / run.name, run.trial.name, 0, "smoke", "own")
        assert found.seconds == pytest.approx(seconds_of(RunDirectory(tmp_path / run.name)) + taught)
        assert found.teacher_seconds == taught
    assert {run.recipe.labeler for run in runs} == {"teacher", "current"}


def test_a_run_whose_teacher_shared_its_device_or_had_another_is_not_timed(tmp_path):
    named_so = "*-selected-one-mean-awp-seed-0,*-shortest-taught-30-*,*-shortest-well-taught-three-steps-30-*"
    beside, own, same = planned(chosen(["better"]), "smoke", "own", (0,), named_so)

    def found(run):
        made = of_run(tmp_path / run.name, run.trial.name, 0, "smoke", "own")
        assert made.teacher_seconds > 0 and made.together == 1
        return made.teacher_together, made.device, Measured([made]).minutes(run.trial.name)

    reproduction(tmp_path, beside=3).carry_out([beside])
    reproduction(tmp_path).carry_out([own, same])
    together, device, minutes = found(own)
    assert together == 1 and minutes[1] == device
    assert found(same) == (4, device, None), "its teacher is that of the run beside others"
    shutil.rmtree(tmp_path / own.name)
    for teacher in (tmp_path / "teachers").iterdir():
        notes.note(teacher, trained_on="a device elsewhere")
    reproduction(tmp_path).carry_out([own])
    assert found(own) == (1, f"a device elsewhere, {device}", None)


def test_long_attacks_come_when_all_runs_have_had_the_others(tmp_path, monkeypatch):
    runs = planned(chosen(["table-4"]), "smoke", "own", (0,), "mnist-pixel-at-seed-0,mnist-pixel-trades-seed-0")
    made, order, evaluated = reproduction(tmp_path), [], Reproduction.evaluated

    def noted(self, run, model, dataset, recipe, path, attacks, watcher):
        known = {each.name for each in reports.read(path).attacks} if path.exists() else set()
        order.extend((run.name, name) for name in attacks if name not in known)
        return evaluated(self, run, model, dataset, recipe, path, attacks, watcher)

    monkeypatch.setattr(Reproduction, "evaluated", noted)
    made.carry_out(runs)
    long = [name in LONG_ATTACKS for _, name in order]
    assert long == sorted(long) and any(long)
    assert all(made.complete(run) for run in runs)
    assert {name for name, _ in order} == {run.name for run in runs}
    assert len(order) == len(set(order)) == sum(len(run.trial.attacks) for run in runs)
    made.carry_out(runs)
    assert len(order) == len(set(order)), "what is complete is not attacked again"


def test_a_finished_run_keeps_both_weights_and_no_checkpoint(tmp_path):
    (run,) = planned(chosen(["table-9"]), "smoke", "own", (0,), "cifar10-pixel-srt-fast-seed-0")
    made, path = reproduction(tmp_path), tmp_path / run.name
    made.train([run])
    state = RunDirectory(path).read_checkpoint(torch.device("cpu"))
    made.carry_out([run])
    assert not list(path.glob("checkpoint*"))
    other = weights_not_kept(run.recipe, state)
    if other is not None:
        kept = other_weights(path)
        assert all(torch.equal(kept[name], weight) for name, weight in other.items())
    found = of_run(path, run.trial.name, 0, "smoke", "own")
    assert found.selected == {"step": state["best"]["step"], "accuracy": state["best"]["accuracy"]}


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_the_last_weights_get_the_statistics_that_a_run_would_have_ended_with(tmp_path, decay):
    averaging = Average(decay=decay, batchnorm="estimated")
    data, validation = Data(labeled=100, validation=20), Validation(every=1, keep="best")
    recipe = Recipe(data=data, model=ResNet(filters=(2, 2, 2, 2), units=1), steps=2, averaging=averaging)
    dataset, kept = load("digits"), tmp_path / "kept"
    last = train(replace(recipe, validation=Validation(keep="last")), tmp_path / "last", device="cpu")
    train(replace(recipe, validation=validation), kept, device="cpu")
    run = RunDirectory(kept)
    state = run.read_checkpoint(CPU)
    assert state is not None
    state["best"]["step"] = 1  # As if the last weights had been worse.
    run.write_checkpoint(state)
    settle(kept, fresh_model(recipe, dataset), dataset, CPU)
    assert not list(kept.glob("checkpoint*"))
    other = other_weights(kept)
    assert other is not None
    for name, tensor in last.state_dict().items():
        assert torch.equal(other[name], tensor), name


def test_a_run_that_the_guard_ended_at_its_last_step_is_known_to_have_kept_the_best_weights(tmp_path):
    (run,) = planned(chosen(["table-9"]), "smoke", "own", (0,), "cifar10-pixel-srt-fast-seed-0")
    made, directory = reproduction(tmp_path), RunDirectory(tmp_path / run.name)
    made.train([run])
    state = directory.read_checkpoint(CPU)
    assert state is not None and state["step"] == run.recipe.steps and run.recipe.validation.keep == "last"
    state["best"]["step"], state["fallen"] = 1, "accuracy on held-out images fell"
    directory.write_checkpoint(state)
    made.carry_out([run])
    found = of_run(directory.path, run.trial.name, 0, "smoke", "own")
    assert found is not None and found.other is not None
    assert found.kept == "best" and files.loads(found.dumps()).kept == "best"


def test_a_run_that_patience_ended_is_known_to_have_kept_what_its_recipe_wants(tmp_path):
    (run,) = planned(chosen(["table-9"]), "smoke", "own", (0,), "cifar10-pixel-srt-fast-seed-0")
    patient = replace(run.trial.recipe.validation, every=1, patience=2)
    run = replace(run, trial=replace(run.trial, recipe=replace(run.trial.recipe, validation=patient)))
    made, directory = reproduction(tmp_path), RunDirectory(tmp_path / run.name)
    made.train([run])
    state = directory.read_checkpoint(CPU)
    assert state is not None and [step for step, _ in state["measured"]][:2] == [1, 2]
    state["step"], state["best"]["step"] = 2, 1  # As if neither of the next two had been better.
    directory.write_checkpoint(state)
    directory.forget_log_after(2)
    made.carry_out([run])
    found = of_run(directory.path, run.trial.name, 0, "smoke", "own")
    assert found is not None and found.selected["ended"] == 2
    for each in (found, files.loads(found.dumps())):
        assert each.kept == run.recipe.validation.keep == "last"
        assert each.held_out["step"] == [1, 2] and len(each.held_out["accuracy"]) == 2
        assert "held_out_accuracy" not in each.log and each.log["step"] == [1, 2]


def test_a_finished_run_is_not_trained_anew_by_train(tmp_path):
    (run,) = planned(chosen(["table-4"]), "smoke", "own", (0,), "mnist-pixel-at-*")
    reproduction(tmp_path).carry_out([run])
    path = tmp_path / run.name
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(
        ValueError, match="holds a finished run without a checkpoint, which would start from its first"
    ):
        train(run.recipe, path, device="cpu")
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_attacks_on_the_other_weights_go_on_where_they_were_stopped(tmp_path):
    (run,) = planned(chosen(["table-9"]), "smoke", "own", (0,), "cifar10-pixel-srt-fast-seed-0")
    path = tmp_path / run.name
    reproduction(tmp_path).carry_out([run])
    model = fresh_model(run.recipe, load("digits"))
    write_whole(path / OTHER_WEIGHTS, safetensors.torch.save(model.state_dict()))
    (path / "report-other.json").unlink(missing_ok=True)
    with pytest.raises(StoppedError, match="between two attacks"):
        reproduction(tmp_path, StopAt(2)).carry_out([run])
    assert len(reports.read(path / "report-other.json").attacks) == 1
    made = reproduction(tmp_path)
    assert not made.complete(run)
    made.carry_out([run])
    assert made.complete(run)
    assert [result.name for result in reports.read(path / "report-other.json").attacks] == ["fgsm", "pgd", "cw"]


def test_more_images_for_attacks_that_take_long_are_attacked_and_fewer_are_enough(tmp_path):
    (run,) = planned(chosen(["table-4"]), "smoke", "own", (0,), "mnist-pixel-at-*")
    reproduction(tmp_path, slow_images=3).carry_out([run])
    assert reproduction(tmp_path, slow_images=2).complete(run)
    more = reproduction(tmp_path, slow_images=5)
    assert not more.complete(run)
    more.carry_out([run])
    assert len(reports.read(tmp_path / run.name / "report-slow.json").labels) == 5
    assert more.complete(run)


def test_an_attack_that_was_interrupted_among_fewer_images_is_collected_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "ATTACKED_AT_ONCE", {DigitsCNN: 2})
    (run,) = planned(chosen(["table-4"]), "smoke", "own", (0,), "mnist-pixel-at-*")
    path = tmp_path / run.name

    def amid_the_slow_ones():
        return (path / "report-slow.json").is_file() and (path / "attack.json").is_file()

    with pytest.raises(StoppedError, match="stopped while attacking"):
        reproduction(tmp_path, amid_the_slow_ones, slow_images=6).carry_out([run])
    ((_, found),) = lying_in([run], tmp_path)
    ((result,),) = (few.attacks for few in found.on_fewer)
    assert result.name in SLOW_ATTACKS and len(result.predicted) == 2
    made = reproduction(tmp_path, slow_images=6)
    made.carry_out([run])
    ((_, found),) = lying_in([run], tmp_path)
    assert made.complete(run) and len(found.of_fewer(result.name).labels) == 6


def test_fewer_images_can_be_asked_for_where_the_first_of_more_were_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "ATTACKED_AT_ONCE", {DigitsCNN: 2})
    (run,) = planned(chosen(["table-4"]), "smoke", "own", (0,), "mnist-pixel-at-*")
    slow = tmp_path / run.name / "report-slow.json"
    with pytest.raises(StoppedError, match="stopped while attacking"):
        reproduction(
            tmp_path, lambda: slow.is_file() and (slow.parent / "attack.json").is_file(), slow_images=8
        ).carry_out([run])
    reproduction(tmp_path, slow_images=2).carry_out([run])
    assert len(reports.read(slow).labels) == 2


def test_surfaces_that_an_older_version_measured_are_measured_again_and_nothing_is_attacked(tmp_path):
    (run,) = planned(chosen(["figure-surfaces"]), "smoke", "own", (0,), "mnist-pixel-srt-seed-0")
    reproduction(tmp_path).carry_out([run])
    path, made = tmp_path / run.name, reproduction(tmp_path)
    whole, written = notes.read_notes(path), (path / "report.json").read_bytes()
    assert made.complete(run)
    assert whole["surfaces"].keys() == SURFACES.keys()
    for lacking in SURFACES:
        notes.note(path, surfaces={name: values for name, values in whole["surfaces"].items() if name != lacking})
        assert not made.complete(run), lacking
    notes.note(path, surfaces={name: [0.0, 0.0] for name in SURFACES if name.startswith(("surface", "peak"))})
    made.carry_out([run])
    assert made.complete(run)
    assert notes.read_notes(path) == whole
    assert (path / "report.json").read_bytes() == written


def test_runs_whose_surfaces_none_asks_for_are_complete_without(tmp_path):
    (run,) = planned(chosen(["table-6"]), "smoke", "own", (0,), "mnist-pixel-srt-lambda-0.2-seed-0")
    made = reproduction(tmp_path)
    made.carry_out([run])
    assert "surfaces" not in notes.read_notes(tmp_path / run.name)
    assert made.complete(run)


def test_rows_of_the_authors_code_differ_from_ours_in_split_and_augmentation_alone():
    for trial in by_the_authors("cifar10"):
        ours = named(trial.recipe.name)
        assert trial.recipe == replace(ours, data=replace(ours.data, split="first", crop=0, flip=True))
        assert trial.recipe.data.unlabeled == 0


def test_rows_by_their_warps_are_trained_and_attacked_by_two_interpolations():
    theirs = (by_the_authors("cifar10", 25)[1].recipe, named("cifar10-spatial-srt-authors"))
    for trial, once in zip(by_their_warps("cifar10"), theirs, strict=True):
        warps = TurnThenShift(rotation=30.0, translation=3.0)
        assert trial.recipe == replace(once, objective=replace(once.objective, solver=WorstOfK(around=warps)))
        assert trial.name == f"{once.name}{trial.variant}" and trial.variant.endswith("-warps")
        assert {name: attack.within for name, attack in trial.attacks_at("paper").items()} == {
            "randadv": warps,
            "gridadv": warps,
        }


def test_one_minute_is_planned_in_the_singular(tmp_path, capsys):
    plan = reproduce("all", "--scale", "smoke", "--plan", "--out", tmp_path / "none", capsys=capsys)
    assert ", 1 minute left (" in plan
