"""Curves: the numbers behind the figures, and how runs are gathered into lines."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from unperturbed import evaluation
from unperturbed.attacks import fgsm, pgd
from unperturbed.comparison import Run, compared
from unperturbed.curves import over_perturbation, over_time, over_unlabeled, over_weight, training_curves
from unperturbed.engine import network as engine_network
from unperturbed.evaluation import evaluate
from unperturbed.recipe import dumps
from unperturbed.recipes import RECIPES, named
from unperturbed.recipes.budgets import REASONS
from unperturbed.recipes.words import ATTACKS, in_words, told_apart
from unperturbed.report import AttackResult, Report, wilson
from unperturbed.schedules import Cyclic
from unperturbed.sweeps import Sweep, loads, read, sweep
from unperturbed.unfinished import Unfinished

LABELS = torch.arange(10)


def report(clean, **attacked):
    """A report on ten images, of which so many are right, clean and under each attack."""

    def first(count):
        return torch.where(count > LABELS, LABELS, (LABELS + 1) % 10)

    results = [
        AttackResult(name=name, budget="b", settings="s", predicted=first(count), rejected=0, seconds=1.0)
        for name, count in attacked.items()
    ]
    return Report(labels=LABELS, clean=first(clean), attacks=tuple(results), seed=0, provenance={}, subject="s")


def make_run(folder, recipe, found=None, log=()):
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(dumps(recipe))
    if found is not None:
        (folder / "report.json").write_text(found.dumps())
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in log))
    return folder


SRT = named("digits-pixel-srt")


def with_unlabeled(count, seed=0):
    return replace(SRT, seed=seed, data=replace(SRT.data, unlabeled=count))


def test_accuracy_against_unlabeled_images_is_that_of_the_reports(tmp_path):
    folders = [
        make_run(tmp_path / "all", with_unlabeled(None), report(10, pgd=8)),
        make_run(tmp_path / "none", with_unlabeled(0), report(9, pgd=2)),
        make_run(tmp_path / "some", with_unlabeled(300), report(9, pgd=5)),
        make_run(tmp_path / "at", named("digits-pixel-at"), report(9, pgd=6)),
    ]
    attacked, clean = over_unlabeled(compared(folders), ["pgd", "clean"])
    assert (attacked.title, clean.title, attacked.x_label) == ("PGD", "no attack", "unlabeled images")
    srt, at = attacked.lines
    assert (srt.label, at.label) == ("SRT", "AT")
    assert srt.x == (0, 300, 1297), "digits have 1,397 training images, 100 of them labeled"
    assert srt.y == (20, 50, 80)
    low, high = wilson(5, 10)
    assert (srt.low[1], srt.high[1]) == (100 * low, 100 * high)
    assert (at.x, at.y) == ((0,), (60,))
    assert clean.lines[0].y == (90, 90, 100)


def test_unlabeled_images_in_files_count_among_those_of_a_run(tmp_path):
    np.save(tmp_path / "more.npy", np.zeros((40, 8, 8), np.uint8))
    others = replace(SRT.data, unlabeled=100, unlabeled_files=(str(tmp_path / "more.npy"),))
    folders = [
        make_run(tmp_path / "some", with_unlabeled(100), report(9, pgd=2)),
        make_run(tmp_path / "files", replace(SRT, data=others), report(9, pgd=5)),
        make_run(tmp_path / "both", replace(SRT, data=replace(others, unlabeled=None)), report(9, pgd=8)),
    ]
    (line,) = over_unlabeled(compared(folders))[0].lines
    assert (line.x, line.y) == ((100, 140, 1337), (20, 50, 80))


def test_steps_of_a_solver_or_a_teacher_are_not_taken_for_those_of_a_run(tmp_path):
    longer = replace(SRT, steps=900)
    harder = replace(SRT, objective=replace(SRT.objective, solver=replace(SRT.objective.solver, steps=20)))
    taught = replace(SRT, teacher=replace(SRT.teacher, steps=60))

    def labels(*recipes):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        return [run.label for run in compared([make_run(place / str(n), each) for n, each in enumerate(recipes)])]

    assert labels(SRT, longer) == ["SRT, steps 400", "SRT, steps 900"]
    assert labels(SRT, harder) == ["SRT, solver steps 7", "SRT, solver steps 20"]
    assert labels(SRT, taught) == ["SRT, teacher's steps 300", "SRT, teacher's steps 60"]


def test_runs_of_several_seeds_are_a_mean_with_the_lowest_and_the_highest(tmp_path):
    found = {0: 4, 1: 6, 2: 8}
    folders = [
        make_run(tmp_path / str(seed), with_unlabeled(0, seed), report(9, pgd=right)) for seed, right in found.items()
    ]
    ((line,),) = (panel.lines for panel in over_unlabeled(compared(folders)))
    assert (line.x, line.y, line.low, line.high) == ((0,), (60,), (40,), (80,))


def test_a_copy_of_a_run_does_not_count_as_another_seed(tmp_path):
    folders = [
        make_run(tmp_path / name, with_unlabeled(0, seed), report(9, pgd=right))
        for name, seed, right in (("one", 0, 4), ("other", 1, 8), ("copy", 0, 4))
    ]
    for curve in (over_unlabeled, over_weight, over_time):
        assert curve(compared(folders[:2]))[0].lines[0].y == pytest.approx((60,))
        with pytest.raises(ValueError, match=r"one and .*copy would count as two seeds of one run"):
            curve(compared(folders))
    drawn = replace(SRT, data=replace(SRT.data, unlabeled=0, seed=5))
    folders[2] = make_run(tmp_path / "drawn", drawn, report(9, pgd=6))
    assert over_weight(compared(folders))[0].lines[0].y == pytest.approx((60,)), "of other labels it is no copy"
    longer = make_run(tmp_path / "longer", replace(with_unlabeled(0, 0), steps=2 * SRT.steps), report(9, pgd=4))
    assert over_time(compared([folders[0], longer]))[0].lines[0].y, "nor in as many seconds, after more steps"


def test_accuracy_against_lambda_has_a_line_for_rt_and_one_for_srt(tmp_path):
    names = ["rt-lambda-0.2", "srt-lambda-0.2", "rt-lambda-0.6", "srt-lambda-0.6", "rt", "srt"]
    folders = [
        make_run(tmp_path / name, named(f"digits-pixel-{name}"), report(10, pgd=i)) for i, name in enumerate(names)
    ]
    (panel,) = over_weight(compared(folders))
    assert {line.label: (line.x, line.y) for line in panel.lines} == {
        "RT": ((0.2, 0.6, 1.0), (0, 20, 40)),
        "SRT": ((0.2, 0.6, 1.0), (10, 30, 50)),
    }


def test_an_objective_without_lambda_is_refused(tmp_path):
    folder = make_run(tmp_path / "at", named("digits-pixel-at"), report(10, pgd=1))
    with pytest.raises(ValueError, match="minimizes AT, which has no lambda: leave it out"):
        over_weight(compared([folder]))


def test_accuracy_against_time_has_a_line_for_each_peak_rate(tmp_path):
    fast = named("digits-pixel-srt-fast")
    folders = []
    for peak in (0.1, 0.2):
        for steps in (200, 100):
            recipe = replace(fast, steps=steps, optimizer=replace(fast.optimizer, rate=Cyclic(peak=peak)))
            log = [record(step, seconds=10 * peak) for step in range(50, steps + 1, 50)]
            right = int(10 * peak) + steps // 100
            folders.append(make_run(tmp_path / f"{peak}-{steps}", recipe, report(10, pgd=right), log))
    runs = compared(folders)
    (panel,) = over_time(runs)
    assert {line.label: (line.x, line.y) for line in panel.lines} == {
        "fast SRT, peak rate 0.1": ((100, 200), (20, 30)),
        "fast SRT, peak rate 0.2": ((100, 200), (30, 40)),
    }
    (panel,) = over_time(runs, unit="seconds")
    assert [line.x for line in panel.lines] == [(2, 4), (4, 8)]


def test_seeds_stand_together_at_the_mean_of_their_seconds(tmp_path):
    found = {(100, 0): (4, 3.0), (100, 1): (6, 5.0), (200, 0): (5, 8.0), (200, 1): (9, 9.0)}
    folders = [
        make_run(
            tmp_path / f"{steps}-{seed}",
            replace(SRT, steps=steps, seed=seed),
            report(10, pgd=right),
            [record(0, seconds=seconds)],
        )
        for (steps, seed), (right, seconds) in found.items()
    ]
    ((line,),) = (panel.lines for panel in over_time(compared(folders), unit="seconds"))
    assert (line.x, line.y, line.low, line.high) == ((4, 8.5), (50, 70), (40, 50), (60, 90))


def test_a_run_that_its_guard_ended_stands_at_the_steps_it_took(tmp_path):
    logs = {(100, 0): [60, 100], (400, 0): [60, 120], (400, 1): [60, 180], (800, 0): []}
    folders = [
        make_run(
            tmp_path / f"{steps}-{seed}",
            replace(SRT, steps=steps, seed=seed),
            report(10, pgd=4),
            [record(step) for step in log],
        )
        for (steps, seed), log in logs.items()
    ]
    ((line,),) = (panel.lines for panel in over_time(compared(folders)))
    assert line.x == (100, 150, 800), "seeds stand together, and a run without a log at the steps of its recipe"


def record(step, seconds=1.0, **changes):
    return {
        "step": step,
        "rate": 0.1,
        "standard": 1.0,
        "robust": 2.0,
        "robust_weight": 0.5,
        "labeled_accuracy": 0.25,
        "largest_class_share": 0.75,
        "images_per_second": 100.0,
        "seconds": seconds,
    } | changes


def test_training_curves_are_what_the_log_says(tmp_path):
    log = [record(10, standard=3.0), record(20)]
    folder = make_run(tmp_path / "run", SRT, log=[*log, {"step": 30}, record(40, rate="high")])
    panels = {panel.title: panel for panel in training_curves(compared([folder]))}
    assert len(panels) == 7
    assert panels["standard term"].lines[0].x == (10, 20)
    assert panels["standard term"].lines[0].y == (3, 1)
    assert panels["C(x) on labeled images"].lines[0].y == (25, 25)
    assert panels["C(x) on labeled images"].percent
    assert panels["largest class of C(x)"].lines[0].y == (75, 75)
    (rate,) = training_curves(compared([folder]), ["rate"])
    assert rate.lines[0].y == (0.1, 0.1)


def test_accuracy_on_held_out_images_is_shown_of_runs_that_have_some(tmp_path):
    log = [record(10), record(15, held_out_accuracy=0.5), record(20), record(30, held_out_accuracy=0.75)]
    runs = [make_run(tmp_path / f"{seed}", replace(SRT, seed=seed), log=log if seed else log[:1]) for seed in (0, 1)]
    shown = training_curves(compared(runs))[-2]
    assert (shown.title, shown.percent) == ("accuracy on held-out images", True)
    assert [(line.x, line.y) for line in shown.lines] == [((15, 30), (50, 75))]
    assert training_curves(compared(runs), ["held_out_accuracy"]) == (shown,)
    with pytest.raises(ValueError, match="no labels were held out of these runs, so that no log holds held_out_acc"):
        training_curves(compared(runs[:1]), ["rate", "held_out_accuracy"])


def test_accuracy_against_the_perturbation_is_clean_at_0(tmp_path):
    runs = compared([make_run(tmp_path / "run", SRT)])
    found = Sweep(eps=0.5, reports={0.0: report(9), 0.5: report(9, pgd=6), 1.0: report(9, pgd=2)})
    (panel,) = over_perturbation(runs, [found], ["pgd"], against="fraction")
    assert (panel.lines[0].x, panel.lines[0].y) == ((0, 0.5, 1), (90, 60, 20))
    (panel,) = over_perturbation(runs, [found], ["pgd"], against="eps")
    assert (panel.x_label, panel.lines[0].x) == ("eps", (0, 0.25, 0.5))


@pytest.fixture
def linear():
    """Two classes told apart by the brightness of a pixel: an image at distance d of 0.5 falls at eps > d."""
    f = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    f[1].weight.data, f[1].bias.data = torch.tensor([[-1.0], [1.0]]), torch.tensor([0.5, -0.5])
    return f


def test_a_sweep_of_a_linear_model_falls_where_it_must(linear, tmp_path):
    images = torch.tensor([0.45, 0.35, 0.25, 0.55, 0.65, 0.75]).view(-1, 1, 1, 1)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    asked = []

    def attacks_at(fraction):
        asked.append(fraction)
        return {"pgd": pgd(eps=0.2 * fraction)}

    fractions = (0.0, 0.2, 0.5, 1.0)
    found = sweep(linear, images, labels, attacks_at, fractions, tmp_path, eps=0.2, device="cpu")
    right = [found.reports[fraction].accuracy("pgd" if fraction else None) for fraction in fractions]
    assert right == [1, 1, pytest.approx(4 / 6), pytest.approx(2 / 6)]
    kept = read(tmp_path)
    assert kept.eps == 0.2
    assert {fraction: each.dumps() for fraction, each in kept.reports.items()} == {
        fraction: each.dumps() for fraction, each in found.reports.items()
    }


def test_a_sweep_copies_the_network_once_and_leaves_it_as_it_lay(tmp_path, monkeypatch):
    torch.manual_seed(0)
    f = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 5))
    f[0].weight.data = f[0].weight.data.contiguous(memory_format=torch.contiguous_format)
    images, fractions = torch.rand(6, 3, 16, 16), (0.0, 0.5, 1.0)
    labels = f.eval()(images).argmax(1)
    copies = Mock(wraps=engine_network.constant)
    monkeypatch.setattr(engine_network, "constant", copies)

    def attacks_at(fraction):
        return {"pgd": pgd(eps=0.1 * fraction), "fgsm": fgsm(eps=0.1 * fraction)}

    lay = f[0].weight.stride(), f[0].weight.data_ptr()
    found = sweep(f, images, labels, attacks_at, fractions, tmp_path, eps=0.1, device="cpu")
    copies.assert_called_once()
    assert (f[0].weight.stride(), f[0].weight.data_ptr()) == lay
    assert not found.reports[1.0].survivors("pgd").all()
    for fraction in fractions[1:]:
        alone = evaluate(f, images, labels, attacks_at(fraction), device="cpu")
        for ours, its in zip(found.reports[fraction].attacks, alone.attacks, strict=True):
            assert torch.equal(ours.predicted, its.predicted)
    assert copies.call_count == 3


def test_a_sweep_does_nothing_twice_and_sets_aside_what_no_longer_fits(linear, tmp_path, monkeypatch):
    images, labels = torch.rand(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])
    attacked = []

    class Watcher:
        def attacked(self, name, done, images, standing, /):
            attacked.append(name)

    def run(images=images, eps=0.2, fractions=(0.5, 1.0), names=("pgd",)):
        attacked.clear()
        attacks = {name: lambda fraction: pgd(eps=eps * fraction) for name in names}
        return sweep(
            linear,
            images,
            labels[: len(images)],
            lambda fraction: {name: attacks[name](fraction) for name in names},
            fractions,
            tmp_path,
            eps=eps,
            device="cpu",
            watcher=Watcher(),
        )

    run()
    assert attacked == ["pgd", "pgd"]
    run()
    assert attacked == []
    run(fractions=(0.25, 1.0))
    assert attacked == ["pgd"]
    assert sorted(read(tmp_path).reports) == [0.25, 0.5, 1.0]
    run(names=("pgd", "other"))
    assert attacked == ["other", "other"]
    assert not list(tmp_path.glob("sweep-*.json"))
    before = [(tmp_path / "sweep.json").read_bytes()]
    run(eps=0.3)
    assert attacked == ["pgd", "pgd"]
    assert sorted(read(tmp_path).reports) == [0.5, 1.0]
    before.append((tmp_path / "sweep.json").read_bytes())
    run(images=images[:2], eps=0.3, fractions=(1.0,))
    assert sorted(read(tmp_path).reports) == [1.0], "reports on other images must not stand beside it"
    asides = [file.read_bytes() for file in tmp_path.glob("sweep-*.json")]
    assert sorted(asides) == sorted(before), "what was replaced is set aside, once each"


def test_two_sweeps_of_one_run_at_a_time_lose_nothing(linear, tmp_path):
    images, labels = torch.rand(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])

    def run(names, fractions=(0.5, 1.0), eps=0.2, steps=20, meanwhile=None):
        class Watcher:
            def attacked(self, name, done, images, standing, /):
                nonlocal meanwhile
                other, meanwhile = meanwhile, None
                if other is not None:
                    other()

        return sweep(
            linear,
            images,
            labels,
            lambda fraction: {name: pgd(eps=eps * fraction, steps=steps) for name in names},
            fractions,
            tmp_path,
            eps=eps,
            device="cpu",
            watcher=Watcher(),
        )

    run(["pgd"], meanwhile=lambda: run(["other"], fractions=(0.25, 1.0)))
    found = {fraction: {each.name for each in report.attacks} for fraction, report in read(tmp_path).reports.items()}
    assert found == {0.25: {"other"}, 0.5: {"pgd"}, 1.0: {"pgd", "other"}}
    assert not list(tmp_path.glob("sweep-*.json"))
    run(["third"], eps=0.1, meanwhile=lambda: run(["fourth"], eps=0.3))
    asides = [loads(file.read_text()) for file in tmp_path.glob("sweep-*.json")]
    assert read(tmp_path).eps == 0.1
    assert sorted(aside.eps for aside in asides) == [0.2, 0.3]
    run(["third"], eps=0.1, steps=9)
    assert len(list(tmp_path.glob("sweep-*.json"))) == 3, "what is replaced at each fraction is set aside once"


def test_a_sweep_takes_over_the_report_at_the_whole_budget(linear, tmp_path):
    images, labels = torch.rand(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def run(folder, fractions, **more):
        def attacks_at(fraction):
            return {"pgd": pgd(eps=0.2 * fraction)}

        return sweep(linear, images, labels, attacks_at, fractions, tmp_path / folder, eps=0.2, device="cpu", **more)

    whole = run("a", (1.0,)).reports[1.0]
    assert run("b", (0.5, 1.0), at_most=whole).reports[1.0]["pgd"] is whole["pgd"]


def test_a_sweep_takes_over_a_report_that_was_made_in_batches_of_the_usual_size(linear, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "BATCH", 3)
    images, labels = torch.rand(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])

    def attacks_at(fraction):
        return {"pgd": pgd(eps=0.2 * fraction)}

    whole = evaluation.evaluate(linear, images, labels, attacks_at(1.0), device="cpu")
    found = sweep(linear, images, labels, attacks_at, (1.0,), tmp_path, eps=0.2, at_most=whole, device="cpu")
    assert found.reports[1.0]["pgd"] is whole["pgd"]


def test_a_sweep_is_not_made_again_for_a_report_with_another_budget(linear, tmp_path, monkeypatch):
    images, labels = torch.rand(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])
    whole = evaluation.evaluate(linear, images, labels, {"pgd": pgd(eps=0.1)}, device="cpu")

    def attacks_at(fraction):
        return {"pgd": pgd(eps=0.2 * fraction)}

    def run():
        return sweep(linear, images, labels, attacks_at, (1.0,), tmp_path, eps=0.2, at_most=whole, device="cpu")

    first = run()
    monkeypatch.setattr(evaluation, "run_attack", pytest.fail)
    assert run().reports[1.0]["pgd"].settings == first.reports[1.0]["pgd"].settings != whole["pgd"].settings


def test_a_sweep_takes_over_an_attack_that_was_left_out_of_it_at_first(linear, tmp_path):
    images, labels = torch.rand(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])

    def run(names, at_most):
        def attacks_at(fraction):
            return {name: pgd(eps=0.2 * fraction) for name in names}

        return sweep(linear, images, labels, attacks_at, (1.0,), tmp_path, eps=0.2, at_most=at_most, device="cpu")

    def evaluated(*names):
        return evaluation.evaluate(linear, images, labels, {name: pgd(eps=0.2) for name in names}, device="cpu")

    first = evaluated("first", "beside")
    run(("first",), replace(first, provenance={**first.provenance, "device": "cuda: another"}))
    whole = evaluated("later")
    found = run(("first", "later"), whole).reports[1.0]
    assert found["later"] is whole["later"]
    assert [result.name for result in found.attacks] == ["first", "later"]
    assert found.provenance["device"] == f"{whole.provenance['device']}, cuda: another", "it tells of both"


def test_an_attack_of_a_sweep_that_was_interrupted_goes_on_with_the_next_batch(linear, tmp_path):
    images, labels = torch.rand(6, 1, 1, 1), torch.tensor([0, 1, 0, 1, 0, 1])
    attacked = []

    class StoppedError(Exception):
        pass

    class Watcher:
        def attacked(self, name, done, images, standing, /):
            attacked.append(done)
            if len(attacked) == 2:
                raise StoppedError

    class Counted:
        calls = 0

        def __init__(self, fraction):
            self.attack = pgd(eps=0.2 * fraction)

        def __repr__(self):
            return repr(self.attack)

        def __call__(self, f, x, y, rng, /):
            Counted.calls += 1
            return self.attack(f, x, y, rng)

    def run():
        return sweep(
            linear,
            images,
            labels,
            lambda fraction: {"pgd": Counted(fraction)},
            (0.5,),
            tmp_path,
            eps=0.2,
            batch=2,
            device="cpu",
            watcher=Watcher(),
            unfinished=Unfinished(tmp_path / "attack.json"),
        )

    with pytest.raises(StoppedError):
        run()
    run()
    assert Counted.calls == 3
    assert not (tmp_path / "attack.json").exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1, "eps": 0.1, "sweep": [{"fraction": 2, "report": {}}]}', "[" * 100_000]
)
def test_a_sweep_that_cannot_be_read_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError, match=r"is no sweep .* delete it, and the same command makes it anew") as error:
        loads(text)
    assert "\n" not in str(error.value)


def test_reports_on_different_models_are_no_sweep():
    mixed = Sweep(eps=1.0, reports={0.5: report(9), 1.0: replace(report(9), subject="another")})
    with pytest.raises(ValueError, match="different models or images"):
        loads(mixed.dumps())


def test_every_method_and_every_attack_has_a_name_in_the_paper_s_words():
    assert set(ATTACKS) == {*REASONS, "clean"}
    assert all(in_words(name) != name for name in RECIPES)


def test_names_in_words_are_as_short_as_tells_them_apart():
    assert in_words("digits-pixel-srt-lambda-0.2") == "SRT, pixel-wise, lambda 0.2"
    assert in_words("cifar10-compound-at-max") == "AT (max)"
    assert in_words("my own run") == "my own run"
    assert in_words("mnist-compound-srt-lambda-0.2-against-blur") == "SRT against blur, lambda 0.2"
    assert in_words("digits-spatial-worst-of-k-against-pixels-warps-color") == (
        "Worst-of-k against pixels, warps and color"
    )
    assert in_words("digits-pixel-srt-against-all") == "digits-pixel-srt-against-all"
    assert told_apart(["digits-pixel-srt-against-blur", "digits-pixel-srt"]) == ["SRT against blur", "SRT"]
    assert told_apart(["mnist-pixel-standard", "mnist-pixel-srt"]) == ["Standard", "SRT"]
    assert told_apart(["mnist-spatial-srt", "mnist-pixel-srt", "mnist-compound-srt", "mnist-pixel-at"]) == [
        "SRT, spatial",
        "SRT, pixel-wise",
        "SRT+",
        "AT",
    ]


def test_runs_of_one_name_are_told_apart_by_the_fields_in_which_they_differ(tmp_path):
    recipes = [with_unlabeled(0), with_unlabeled(300), named("digits-pixel-at")]
    folders = [make_run(tmp_path / str(place), recipe) for place, recipe in enumerate(recipes)]
    assert [run.label for run in compared(folders)] == ["SRT, unlabeled images 0", "SRT, unlabeled images 300", "AT"]
    folders = [make_run(tmp_path / f"seed-{seed}", with_unlabeled(0, seed)) for seed in (4, 5)]
    assert [run.label for run in compared(folders)] == ["SRT, seed 4", "SRT, seed 5"]


def test_runs_of_one_recipe_are_told_apart_by_their_directories(tmp_path):
    folders = [make_run(tmp_path / name, SRT) for name in "ab"]
    assert [run.label for run in compared(folders)] == [f"SRT ({tmp_path / name})" for name in "ab"]
    assert isinstance(compared(folders)[0], Run)
    assert compared(folders)[0].path == Path(folders[0])
