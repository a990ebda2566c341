"""Scales of a reproduction, the minutes that are expected, and the passes that are counted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from unperturbed.experiments.catalog import chosen, experiments
from unperturbed.experiments.definition import Trial, merged
from unperturbed.experiments.passes import Passes, counting, passes_of_attack, passes_of_image, passes_of_step
from unperturbed.experiments.planning import (
    ATTACK_START_UP,
    FOUR_TAKE,
    MEASURED,
    START_UP,
    expected,
    passes_a_second,
    planned,
    shared,
    training_seconds,
)
from unperturbed.experiments.results import page
from unperturbed.experiments.scales import SHORT, scaled, smoke
from unperturbed.experiments.table_7 import check, counted, longer, table
from unperturbed.models import ResNet18, WideResNet
from unperturbed.objectives import SRT
from unperturbed.recipe import of_teacher
from unperturbed.recipes import RECIPES, named, usual_budget
from unperturbed.schedules import Cyclic

ROOT = Path(__file__).parent.parent
TRIALS = [trial for experiment in experiments().values() for trial in experiment.trials]


def test_at_the_papers_scale_recipes_are_the_papers():
    for recipe in RECIPES.values():
        assert scaled(recipe, "paper") == recipe
    assert isinstance(scaled(named("cifar10-pixel-srt"), "paper", "resnet-18").model, ResNet18)
    assert isinstance(scaled(named("cifar10-pixel-srt"), "paper").model, WideResNet)
    assert scaled(named("mnist-pixel-srt"), "paper", "resnet-18") == named("mnist-pixel-srt")


def test_short_runs_of_a_scenario_see_as_many_images_whatever_the_defense():
    for trial in TRIALS:
        recipe = scaled(trial.recipe, "short", "resnet-18")
        images, batch, _ = SHORT["-".join(recipe.name.split("-")[:2])]
        assert isinstance(recipe.optimizer.rate, Cyclic)
        if "srt-fast" not in trial.name:
            assert abs(recipe.steps * recipe.batch - images) <= batch
        self_labeled = type(recipe.objective).__name__ in ("SRT", "UAT") and recipe.labeler != "teacher"
        assert (recipe.ramp.over > 0) == self_labeled


@pytest.mark.parametrize(
    ("data", "times", "word"), [("cifar10", 5, "five times"), ("mnist", 6, "six times on MNIST")]
)
def test_the_page_says_how_often_each_scale_shows_a_label(data, times, word):
    def shown(method, scale):
        recipe = scaled(named(f"{data}-{method}"), scale)
        return recipe.steps * recipe.batch / (times if recipe.data.unlabeled is None else 1)

    ratio = {
        (scale, scenario): shown(f"{scenario}-{rival}", scale) / shown(f"{scenario}-srt", scale)
        for scale in ("short", "paper")
        for scenario, rival in (("spatial", "worst-of-k"), ("pixel", "at"))
    }
    text = " ".join(page([]).split())
    assert word in text
    assert "So it is in the paper's spatial schedule, but not in its pixel-wise one" in text
    alike = [ratio["short", "spatial"], ratio["short", "pixel"], ratio["paper", "spatial"]]
    assert alike == pytest.approx([times] * 3)
    assert ratio["paper", "pixel"] == pytest.approx(1)
    assert "lambda of self-labeled terms grows over the first four fifths of a run" in text
    short = scaled(named(f"{data}-spatial-srt"), "short")
    rt = scaled(named(f"{data}-spatial-rt-lambda-0.2"), "short")
    assert short.ramp.over == rt.ramp.over == pytest.approx(1 - 1 / 5)


def test_short_fast_srt_keeps_its_share_and_its_place_among_the_peaks():
    whole, fast = (scaled(named(f"cifar10-pixel-{name}"), "short") for name in ("srt", "srt-fast"))
    assert fast.steps / whole.steps == pytest.approx(50 / 120, rel=1e-2)
    (double,) = (trial for trial in TRIALS if trial.name == "cifar10-pixel-srt-fast-peak-0.2-length-1")
    assert scaled(double.recipe, "short").optimizer.rate.peak == pytest.approx(2 * fast.optimizer.rate.peak)
    (short,) = (trial for trial in TRIALS if trial.name == "cifar10-pixel-srt-fast-shortest-taught-30")
    assert scaled(short.recipe, "short") == short.recipe
    assert fast.validation.every == round(fast.steps / 20)


@pytest.mark.parametrize("name", ["cifar10-pixel-rst", "mnist-pixel-rst"])
def test_a_teacher_sees_as_many_images_before_a_short_run(name):
    recipe, short = named(name), scaled(named(name), "short")
    assert short.teacher.steps * short.batch == pytest.approx(recipe.teacher.steps * recipe.batch, rel=1e-3)


def test_a_teacher_with_a_batch_of_its_own_is_the_same_before_a_short_run():
    recipe = named("cifar10-pixel-srt-plusplus")
    assert scaled(recipe, "short").batch != recipe.batch
    assert of_teacher(scaled(recipe, "short", "resnet-18")) == of_teacher(recipe)


def test_smoke_runs_need_no_download_and_little_time():
    for trial in TRIALS:
        recipe = smoke(trial.recipe)
        assert (recipe.data.name, recipe.steps) == ("digits", 3)
        assert type(recipe.objective) is type(trial.recipe.objective)
        assert recipe.labeler == trial.recipe.labeler


def test_trials_of_one_name_with_other_settings_are_refused():
    one = Trial(recipe=named("mnist-pixel-srt"))
    with pytest.raises(ValueError, match="two trials are called mnist-pixel-srt"):
        merged([one, replace(one, recipe=replace(one.recipe, steps=1))])
    with pytest.raises(ValueError, match="two trials"):
        merged([one, replace(one, budget=usual_budget("cifar10"))])


def test_the_speeds_behind_a_plan_are_those_that_were_measured():
    parts = json.loads((ROOT / "results" / "training-speed.json").read_text())
    cases = [row["images_per_second"]["ours"] for row in parts["speed"]["rows"]]
    assert [speed for speed, _ in MEASURED.values()] == pytest.approx(cases, rel=1e-4)
    assert pytest.approx(parts["four_small_runs"]["ratio"], rel=1e-2) == FOUR_TAKE


def test_an_evaluation_is_expected_to_take_a_few_times_what_one_took_in_which_images_fell():
    measured = json.loads((ROOT / "results" / "attack-speed.json").read_text())
    (run,) = planned(chosen(["table-1"]), "paper", "own", (0,), "cifar10-spatial-rt-lambda-0.15-*")
    grid = replace(run, trial=replace(run.trial, attacks=("gridadv",)))
    took = next(row["seconds"] for row in measured["grid"]["rows"].values() if row["images"] == 10_000)
    assert took < 60 * expected(grid).attacks - ATTACK_START_UP < 4 * took
    (run,) = planned(chosen(["table-4"]), "paper", "resnet-18", (0,), "cifar10-pixel-srt-resnet18-*")
    auto = replace(run, trial=replace(run.trial, attacks=("autoattack",)))
    took = measured["autoattack"]["rows"]["ours"]["seconds"]
    assert took < (60 * expected(auto).attacks - ATTACK_START_UP) / 10 < 3 * took


def test_a_run_is_expected_to_take_as_long_as_all_that_it_does():
    def training(name, pattern):
        (run,) = planned(chosen([name]), "paper", "own", (0,), pattern)
        return run.recipe, 60 * expected(run).training - START_UP

    recipe, seconds = training("table-4", "cifar10-pixel-rst-*")
    assert seconds == pytest.approx(training_seconds(recipe) + training_seconds(of_teacher(recipe)))
    recipe, seconds = training("table-6", "mnist-pixel-srt-lambda-0.2-*")
    assert seconds == pytest.approx(training_seconds(recipe) * FOUR_TAKE / 4)
    recipe, seconds = training("better", "*-selected-one-mean-awp-*")
    usual = training_seconds(replace(recipe, weight_perturbation=0.0))
    more = recipe.steps * recipe.batch * 3 / passes_a_second(recipe)
    assert training_seconds(recipe) - usual == pytest.approx(more)


def test_an_evaluation_is_expected_to_take_as_long_as_all_of_its_attacks():
    (run,) = planned(chosen(["table-4"]), "paper", "own", (0,), "mnist-pixel-srt-seed-0")

    def attacking(*attacks, without=(), slow_images=None):
        trial = replace(run.trial, attacks=attacks, swept=(), fractions=())
        return 60 * expected(replace(run, trial=trial), without, slow_images).attacks - ATTACK_START_UP

    pgd, auto, ddn = (attacking(name) for name in ("pgd", "autoattack", "ddn"))
    assert attacking("pgd", "autoattack") == pytest.approx(pgd + auto)
    assert attacking("pgd", "autoattack", without=("autoattack",)) == pytest.approx(pgd)
    assert attacking("pgd", "autoattack", slow_images=1000) == pytest.approx(pgd + auto / 10)
    swept = replace(run.trial, attacks=("pgd", "ddn"), swept=("pgd",), fractions=(0.25, 0.5, 1.0))
    several = 60 * expected(replace(run, trial=swept)).attacks - ATTACK_START_UP
    assert several == pytest.approx(3 * pgd + ddn)
    passes = {name: passes_of_attack(made, (1, 28, 28)) for name, made in usual_budget("mnist").attacks().items()}
    assert ddn / pgd == pytest.approx(2 * passes["ddn"] / passes["pgd"])


def test_shares_are_disjoint_together_everything_and_about_as_long():
    runs = planned(chosen(["table-3", "table-5"]), "paper", "own", (0, 1))
    parts = [shared(runs, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(run.name for part in parts for run in part) == sorted(run.name for run in runs)
    minutes = [sum(expected(run).minutes for run in part) for part in parts]
    assert max(minutes) < 1.2 * min(minutes)
    assert shared(runs, "1/1") == runs


@pytest.mark.parametrize("count", [10**10, 10**21])
def test_shares_beyond_the_number_of_runs_are_empty_however_many(count):
    runs = planned(chosen(["table-3"]), "paper", "own", (0,))
    parts = [shared(runs, f"{number}/{count}") for number in range(1, len(runs) + 1)]
    assert sorted(len(part) for part in parts) == [1] * len(runs)
    assert sorted(run.name for part in parts for run in part) == sorted(run.name for run in runs)
    assert shared(runs, f"{len(runs) + 1}/{count}") == shared(runs, f"{count}/{count}") == []


def test_counting_sees_every_image_and_every_gradient():
    f = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    x = torch.rand(5, 1, 2, 2)
    with counting(f) as passes:
        f(x)
        f(x[:2]).sum().backward()
        f.requires_grad_(False)
        f(x[:3].requires_grad_()).sum().backward()
    assert (passes.forward, passes.backward_to_weights, passes.backward_to_images) == (10, 2, 3)
    assert (passes.all, passes.worth) == (15, 17)
    f(x)
    assert passes.forward == 10


def test_a_step_of_srt_takes_the_passes_of_the_paper():
    """C(x), K steps there and back, and both outer terms: 1 + 2 K + 3 (1 + 1/5) passes' worth an image."""
    passes = passes_of_image(named("cifar10-pixel-srt"))
    assert passes.worth == pytest.approx(1 + 20 + 3 * 1.2)
    assert passes_of_image(named("cifar10-pixel-standard")).worth == pytest.approx(3)
    assert passes_of_image(named("cifar10-pixel-at")).worth == pytest.approx(20 + 3)
    teacher = passes_of_image(named("cifar10-pixel-rst"))
    assert teacher.forward == pytest.approx(1 + 1 + 10 + 2)


def test_the_complexity_of_the_paper_is_that_of_the_passes():
    assert check(None).verdict == "pass"
    srt = named("cifar10-pixel-srt")
    assert counted(longer(srt, 3)).all - counted(longer(srt, 2)).all == 60 * 2 * 10
    for method in ("Standard", "Worst-of-k", "KLR", "AT", "TRADES", "UAT", "RST", "SRT"):
        assert f"| {method} " in table()


def test_a_method_that_took_other_passes_would_be_found(monkeypatch):
    def twice(recipe, labeled, unlabeled):
        passes = passes_of_step(recipe, labeled, unlabeled)
        more = 2 if isinstance(recipe.objective, SRT) else 1
        return Passes(passes.forward * more, passes.backward_to_images, passes.backward_to_weights)

    monkeypatch.setattr("unperturbed.experiments.table_7.passes_of_step", twice)
    finding = check(None)
    assert finding.verdict == "fail"
    assert finding.figures.startswith("SRT: ")


def test_passes_of_attacks():
    attacks = usual_budget("cifar10").attacks()
    shape = (3, 32, 32)
    assert passes_of_attack(attacks["pgd"], shape) == pytest.approx(2 * 10, abs=3)
    assert passes_of_attack(attacks["gridadv"], shape) == pytest.approx(775, rel=0.02)
    assert passes_of_attack(attacks["fgsm"], shape) == pytest.approx(2, abs=2)
    assert passes_of_attack(attacks["pointwise"], shape) == 3 * (100 + 1024 / 4)
    assert passes_of_attack(attacks["gridadv+"], shape) > passes_of_attack(attacks["gridadv"], shape)
