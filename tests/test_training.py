"""`fit` on tensors of one's own, and `train` in a directory: killed at any moment, it ends as if it had not been."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import TensorDataset

from disturbed import Disturbing, StopError, killed_again_and_again, stop, trained, wait_until
from tiny import TINY, assert_same_end, timeless
from unperturbed import cli, training
from unperturbed.attacks import pgd
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.fitting import fit
from unperturbed.guards import DivergedError, done_in_vain, sees_unlabeled
from unperturbed.models import DigitsCNN, SmallCNN
from unperturbed.neighborhoods import L1, L2, Affine, Blur, Color, Composed, Linf, Spatial, TurnThenShift
from unperturbed.objectives import AT, KLR, SRT, TRADES, UAT, Batch, Mixture, Standard, Terms
from unperturbed.recipe import SGD, Recipe, Teacher, Validation, read
from unperturbed.recipes import RECIPES
from unperturbed.runs import RunDirectory
from unperturbed.schedules import Cyclic, Piecewise, Ramp
from unperturbed.selection import Selection
from unperturbed.solvers import FGSM, PGD, MomentumPGD, Sequential, Strongest, WorstOfK
from unperturbed.training import fresh_model, parts, train, train_together

CPU = torch.device("cpu")
LABELED = replace(TINY, data=replace(TINY.data, unlabeled=0))
needs_sigkill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows knows no SIGKILL")


# Interruptions


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return trained(TINY, tmp_path_factory.mktemp("uninterrupted"))


@pytest.mark.parametrize("step", [1, 5, 6, 11, 12])
def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(uninterrupted, tmp_path, step):
    with pytest.raises(StopError):
        trained(TINY, tmp_path, watcher=Disturbing(step, stop), checkpoint_seconds=0.0)
    assert not RunDirectory(tmp_path).weights.exists()
    run = trained(TINY, tmp_path)
    assert run.weights.read_bytes() == uninterrupted.weights.read_bytes()
    assert timeless(run.read_log()) == timeless(uninterrupted.read_log())


def test_lines_of_the_log_that_are_newer_than_the_checkpoint_are_written_once(uninterrupted, tmp_path):
    with pytest.raises(StopError):
        trained(TINY, tmp_path, watcher=Disturbing(11, stop), checkpoint_seconds=3600.0)
    assert [record["step"] for record in RunDirectory(tmp_path).read_log()] == [5, 10]
    assert not RunDirectory(tmp_path).checkpoint.exists()
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"step": 11, "ra')
    assert timeless(trained(TINY, tmp_path).read_log()) == timeless(uninterrupted.read_log())


def test_a_finished_run_returns_at_once_with_the_same_weights(uninterrupted, tmp_path):
    run = trained(TINY, tmp_path)
    log = (tmp_path / "log.jsonl").read_bytes()
    again = train(TINY, tmp_path, device="cpu", watcher=Disturbing(12, stop))
    assert run.weights.read_bytes() == uninterrupted.weights.read_bytes()
    assert (tmp_path / "log.jsonl").read_bytes() == log
    finished = fresh_model(TINY, load("digits"))
    run.read_weights(finished)
    assert all(torch.equal(one, other) for one, other in zip(again.parameters(), finished.parameters(), strict=True))
    assert not again.training


# Killed processes

DIGITS = RECIPES["digits-pixel-srt"]
KILLED = replace(
    DIGITS,
    steps=200,
    batch=20,
    model=DigitsCNN(channels=(2, 2, 2), hidden=8),
    objective=replace(DIGITS.objective, solver=FGSM(around=Linf(eps=0.15))),
)


def assert_as_if_never_killed(run: RunDirectory, whole: RunDirectory, recipe: Recipe) -> None:
    assert_same_end(run, whole)
    steps = [json.loads(line)["step"] for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert steps == [*range(recipe.log_every, recipe.steps, recipe.log_every), recipe.steps]
    visible = {file.name for file in run.path.iterdir() if not file.name.startswith(".")}
    assert visible - {"checkpoint-before.pt"} == {"recipe.json", "log.jsonl", "checkpoint.pt", "model.safetensors"}


@needs_sigkill
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_run_killed_at_random_moments_ends_bit_for_bit_as_one_that_was_not(tmp_path):
    whole, run = trained(KILLED, tmp_path / "whole"), RunDirectory(tmp_path / "killed")
    killed_again_and_again(KILLED, run, 10)
    assert 10 < run.read_checkpoint(CPU)["step"] < KILLED.steps
    assert_as_if_never_killed(trained(KILLED, run.path), whole, KILLED)


@needs_sigkill
def test_the_same_command_goes_on_after_it_was_killed(tmp_path):
    recipe = replace(
        DIGITS,
        steps=150,
        batch=20,
        model=DigitsCNN(channels=(4, 4, 4), hidden=8),
        objective=replace(DIGITS.objective, solver=replace(DIGITS.objective.solver, steps=2)),
    )
    run = RunDirectory(tmp_path / "killed")
    edits = "--steps 150 --batch 20 --model.channels 4 4 4 --model.hidden 8 --objective.solver.steps 2"
    words = ["train", DIGITS.name, *edits.split(), "--checkpoint-seconds", "0.05", "--device", "cpu"]
    words += ["--out", str(run.path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "unperturbed", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    whole = trained(recipe, tmp_path / "whole")
    wait_until(run.checkpoint.exists, lambda: process.poll() is None)
    time.sleep(random.Random(1).uniform(0.0, 0.1))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not run.weights.exists()
    cli.main(words)
    assert run.read_recipe() == recipe
    assert_as_if_never_killed(run, whole, recipe)


# What a directory may hold


def test_the_run_of_another_recipe_is_refused_and_left_untouched(uninterrupted):
    def files() -> dict[str, tuple[bytes, int]]:
        return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in uninterrupted.path.iterdir()}

    before = files()
    with pytest.raises(ValueError, match=r"another recipe \(optimizer\.momentum is 0\.9 there and 0\.5 here\)"):
        train(replace(TINY, optimizer=SGD(momentum=0.5)), uninterrupted.path, device="cpu")
    assert files() == before


def test_the_checkpoint_of_another_model_is_refused(uninterrupted, tmp_path):
    larger = trained(replace(TINY, model=DigitsCNN(channels=(3, 3, 3), hidden=4), steps=1), tmp_path / "larger")
    run = trained(replace(TINY, steps=1), tmp_path / "run")
    run.checkpoint.write_bytes(larger.checkpoint.read_bytes())
    with pytest.raises(
        ValueError, match=r"is of another recipe: restore recipe\.json as it was, name another --out, or delete"
    ):
        train(replace(TINY, steps=1), run.path, device="cpu")


def test_a_checkpoint_of_a_run_holds_nothing_but_tensors_and_plain_values(tmp_path):
    recipe = replace(TINY, steps=2, data=replace(TINY.data, validation=20))
    state = torch.load(trained(recipe, tmp_path).checkpoint, weights_only=True)
    assert state["step"] == 2
    assert state["best"]["weights"].keys() == state["model"].keys()


def test_a_run_that_diverges_keeps_the_last_good_checkpoint_and_no_model(tmp_path):
    recipe = replace(LABELED, objective=Standard(), optimizer=SGD(rate=Piecewise(rate=1e25)))
    with pytest.raises(DivergedError, match=r"not finite from step \d+ on.*optimizer\.rate\.rate = 1e\+25"):
        train(recipe, tmp_path, device="cpu", checkpoint_seconds=0.0)
    run = RunDirectory(tmp_path)
    state = run.read_checkpoint(CPU)
    assert state is not None
    assert state["step"] >= 1
    assert all(weight.isfinite().all() for weight in state["model"].values())
    fresh_model(recipe, load("digits")).load_state_dict(state["model"])
    assert not run.weights.exists()


def test_a_checkpoint_is_spoken_of_only_where_there_is_one(tmp_path):
    hot = replace(LABELED, objective=Standard(), optimizer=SGD(rate=Piecewise(rate=1e25)))
    for seconds, spoken_of in ((3600.0, False), (0.0, True)):
        with pytest.raises(DivergedError) as error:
            train(hot, tmp_path / str(seconds), device="cpu", checkpoint_seconds=seconds)
        assert ("a checkpoint from before that is kept" in str(error.value)) is spoken_of
        assert RunDirectory(tmp_path / str(seconds)).checkpoint.exists() is spoken_of
    with pytest.raises(DivergedError) as error:
        fit(dense(), labeled=stripes(20), steps=60, device="cpu", optimizer=SGD(rate=Piecewise(rate=1e25)))
    assert "checkpoint" not in str(error.value)


def test_a_run_that_diverges_does_not_cost_its_neighbors_their_steps(uninterrupted, tmp_path):
    hot = replace(LABELED, objective=Standard(), optimizer=SGD(rate=Piecewise(rate=1e25)))
    with pytest.raises(DivergedError, match=rf"^{re.escape(str(tmp_path / 'hot'))}: the loss is not finite"):
        train_together({tmp_path / "good": TINY, tmp_path / "hot": hot}, device="cpu", checkpoint_seconds=3600.0)
    state = RunDirectory(tmp_path / "good").read_checkpoint(CPU)
    assert state is not None
    assert state["step"] == TINY.log_every
    assert not RunDirectory(tmp_path / "hot").checkpoint.exists()
    assert trained(TINY, tmp_path / "good").weights.read_bytes() == uninterrupted.weights.read_bytes()


# Which images are used


def test_training_never_reads_test_images(uninterrupted, tmp_path, monkeypatch):
    digits = load("digits")
    without_test = {
        name: getattr(digits, name) for name in digits.__slots__ if name not in ("test_images", "test_labels")
    }
    monkeypatch.setattr(training, "load", lambda name, folder: SimpleNamespace(use=digits.use, **without_test))
    run = trained(TINY, tmp_path / "plain")
    assert run.weights.read_bytes() == uninterrupted.weights.read_bytes()
    trained(
        replace(TINY, data=replace(TINY.data, validation=20), validation=Validation(every=2)), tmp_path / "chosen"
    )


def test_the_model_that_is_written_is_the_one_validation_chose(tmp_path):
    recipe = replace(
        TINY,
        data=replace(TINY.data, validation=40),
        optimizer=SGD(rate=Piecewise(rate=1.0, milestones=())),
        validation=Validation(every=1),
    )
    f = train(recipe, tmp_path, device="cpu")
    state = RunDirectory(tmp_path).read_checkpoint(CPU)
    assert state is not None
    assert state["best"]["step"] < recipe.steps, "the last weights must not be the best for the test to mean anything"
    written = safetensors.torch.load_file(RunDirectory(tmp_path).weights)
    for name, weight in state["best"]["weights"].items():
        assert torch.equal(written[name], weight)
        assert torch.equal(f.state_dict()[name], weight)
    assert any(not torch.equal(written[name], weight) for name, weight in state["model"].items())


def test_images_that_never_had_a_label_join_the_unlabeled_ones():
    digits = load("digits")
    extra = torch.full((7, 1, 8, 8), 9, dtype=torch.uint8)
    images = parts(replace(digits, unlabeled_images=extra), Data(labeled=100, validation=30))
    assert (len(images.labeled), len(images.validation)) == (70, 30)
    assert len(images.unlabeled) == len(digits.train_images) - 100 + 7
    assert (images.unlabeled == 9).all((1, 2, 3)).sum() == 7


def test_fresh_weights_follow_from_the_seed_and_leave_the_random_numbers_of_the_caller_alone():
    digits, before = load("digits"), torch.get_rng_state()
    one, same, other = (fresh_model(replace(TINY, seed=seed), digits).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


ASCENT = FGSM(around=Linf(eps=0.1))
TAUGHT = replace(TINY, objective=AT(solver=ASCENT), labeler="teacher")


@pytest.mark.parametrize(
    ("objective", "labeled_by_another", "sees"),
    [
        (Standard(), True, False),
        (KLR(), True, False),
        (AT(), False, False),
        (AT(), True, True),
        (TRADES(), False, False),
        (TRADES(), True, True),
        (SRT(), False, True),
        (UAT(), False, True),
        (Mixture(objectives=(AT(), Standard())), False, False),
        (Mixture(objectives=(AT(), Standard())), True, True),
        (Mixture(objectives=(AT(), SRT())), False, True),
        (lambda f, batch, rng: Standard()(f, batch, rng), False, True),
    ],
)
def test_unlabeled_images_count_in_some_objectives_and_in_some_where_another_model_labels_them(
    objective, labeled_by_another, sees
):
    assert sees_unlabeled(objective, labeled_by_another=labeled_by_another) is sees


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (
            replace(TINY, objective=AT(solver=ASCENT)),
            "AT sees labeled images alone, and 200 unlabeled ones would take their place in each batch: set "
            "--data.unlabeled 0 and name no files of them, set --labeler teacher or average, or choose a recipe",
        ),
        (
            replace(TINY, objective=Standard()),
            "Standard sees labeled images alone, and 200 unlabeled ones would take their place in each batch: set "
            "--data.unlabeled 0 and name no files of them, or choose a recipe",
        ),
        (
            replace(TAUGHT, teacher=Teacher(steps=2, unlabeled=True)),
            "Standard sees labeled images alone, and 200 unlabeled ones would take their place in each batch: leave "
            "--teacher.unlabeled out",
        ),
    ],
)
def test_unlabeled_images_that_nobody_looks_at_are_refused_before_anything_is_written(tmp_path, recipe, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        train(recipe, tmp_path / "run", device="cpu")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("changes", [{"objective": lambda f, batch, rng: None}, {"seed": np.int64(3)}])
def test_a_recipe_that_no_file_can_hold_is_refused_before_anything_is_written(tmp_path, changes):
    with pytest.raises(ValueError, match=r"a recipe is kept as JSON, which cannot hold .*: make it a frozen data"):
        train(replace(TINY, **changes), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("digits-pixel-srt", r"got 'digits-pixel-srt': pass unperturbed\.recipes\.named\('digits-pixel-srt'\), or"),
        (Recipe, r"got <class '.*Recipe'>: pass unperturbed\.recipes\.named\(\"digits-pixel-srt\"\), or an unper"),
        (None, r"got None: pass unperturbed\.recipes\.named"),
    ],
)
def test_what_is_no_recipe_is_refused_before_anything_is_written(tmp_path, given, words):
    for recipes in ({tmp_path / "run": given}, {tmp_path / "run": given, tmp_path / "other": LABELED}):
        with pytest.raises(ValueError, match=f"^a recipe must be an unperturbed.Recipe, {words}") as error:
            train_together(recipes, device="cpu")
        assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_teacher_with_fewer_labels_than_its_batch_is_refused_before_anything_is_written(tmp_path):
    recipe = replace(TAUGHT, data=replace(TAUGHT.data, labeled=50, validation=10), teacher=Teacher(steps=2))
    with pytest.raises(ValueError, match="the teacher sees the 40 labeled images alone, fewer than its batch of 60"):
        training.train_together({tmp_path / "run": recipe}, device="cpu", teachers=tmp_path / "teachers")
    assert not list(tmp_path.iterdir())
    seeing_all = replace(recipe, teacher=Teacher(steps=2, unlabeled=True, objective=SRT(solver=ASCENT)))
    training.train_together({tmp_path / "run": seeing_all}, device="cpu", teachers=tmp_path / "teachers")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": SmallCNN()}, "SmallCNN needs images of shape (1, 16, 16) or larger"),
        (
            {"batch": 500, "unlabeled": True, "objective": SRT(solver=ASCENT)},
            "batch of 500 is larger than the 300 training images: lower batch (--teacher.batch) to at most 300",
        ),
    ],
)
def test_a_teacher_that_cannot_be_trained_is_refused_before_anything_is_written(tmp_path, changes, reason):
    recipe = replace(TAUGHT, teacher=Teacher(steps=2, **changes))
    with pytest.raises(ValueError, match="the teacher cannot be trained: " + re.escape(reason)):
        training.train_together({tmp_path / "run": recipe}, device="cpu", teachers=tmp_path / "teachers")
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_ended_needs_no_teacher_any_more(tmp_path):
    recipe = replace(TAUGHT, teacher=Teacher(steps=2))
    training.train_together({tmp_path / "run": recipe}, device="cpu", teachers=tmp_path / "gone")
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    (tmp_path / "run" / "model.safetensors").unlink()
    training.train_together({tmp_path / "run": recipe}, device="cpu", teachers=tmp_path / "teachers")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights
    assert not (tmp_path / "teachers").exists()


def test_a_teacher_leaves_checkpoints_as_often_as_its_run(tmp_path):
    recipe = replace(TAUGHT, teacher=Teacher(steps=3, batch=20))
    often, rarely = tmp_path / "often", tmp_path / "rarely"
    training.train_together({often: recipe}, device="cpu", teachers=tmp_path / "a", checkpoint_seconds=0)
    training.train_together({rarely: recipe}, device="cpu", teachers=tmp_path / "b")
    assert len(list(tmp_path.glob("a/*/checkpoint-before.pt"))) == 1
    assert not list(tmp_path.glob("b/*/checkpoint-before.pt"))


def test_a_teacher_may_have_a_network_and_a_batch_of_its_own(tmp_path):
    wide = DigitsCNN(channels=(6, 6, 6), hidden=12)
    teacher = Teacher(model=wide, batch=20, steps=2, optimizer=SGD(rate=Cyclic(peak=0.1)))
    recipe = replace(TAUGHT, teacher=teacher, least_labeled=30)
    training.train_together({tmp_path / "run": recipe}, device="cpu", teachers=tmp_path / "teachers")
    (its,) = (tmp_path / "teachers").iterdir()
    made = read(its / "recipe.json")
    assert (made.model, made.batch, made.least_labeled) == (wide, 20, 20)
    assert read(tmp_path / "run" / "recipe.json").model == TAUGHT.model != wide
    other = replace(TAUGHT, batch=50, teacher=teacher, least_labeled=30, model=DigitsCNN(channels=(3, 3, 3)))
    training.train_together({tmp_path / "other": other}, device="cpu", teachers=tmp_path / "teachers")
    assert list((tmp_path / "teachers").iterdir()) == [its], "another network is taught by the same teacher"


def test_files_of_unlabeled_images_that_nobody_looks_at_are_refused_too(tmp_path, monkeypatch):
    np.save(tmp_path / "more.npy", np.zeros((7, 1, 8, 8), dtype=np.uint8))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="AT sees labeled images alone, and 7 unlabeled ones"):
        cli.main(["train", "digits-pixel-at", "--steps", "1", "--unlabeled", "more.npy", "--device", "cpu"])
    assert [path.name for path in tmp_path.iterdir()] == ["more.npy"]


# Models and tensors of one's own


def stripes(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy images with a bright row or a bright column, and which of the two."""
    rng = Generator().manual_seed(seed)
    images, labels = 0.3 * torch.rand(count, 1, 6, 6, generator=rng), torch.arange(count) % 2
    images[labels == 0, :, 2, :] += 0.6
    images[labels == 1, :, :, 3] += 0.6
    return images, labels


def dense(outputs: int = 2) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, outputs))


def accuracy(f: nn.Module, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return (f(images).argmax(1) == labels).double().mean().item()


def as_bytes(images: Tensor) -> Tensor:
    return (255 * images).round().byte()


@pytest.mark.parametrize(
    ("convert", "unlabeled"),
    [(torch.Tensor.float, None), (torch.Tensor.float, 100), (as_bytes, None), (as_bytes, 100)],
    ids=["floats", "floats and unlabeled", "bytes", "bytes and unlabeled"],
)
def test_fit_learns_from_few_labels(convert, unlabeled):
    images, labels = stripes(20)
    more = None if unlabeled is None else convert(stripes(unlabeled, seed=1)[0])
    model, (unseen, answers) = dense(), stripes(200, seed=2)
    assert accuracy(model.eval(), unseen, answers) < 0.8
    returned = fit(model, labeled=(convert(images), labels), unlabeled=more, steps=60, batch=20, device="cpu")
    assert returned is model
    assert not any(module.training for module in model.modules())
    assert accuracy(model, unseen, answers) > 0.9


def test_fit_gives_the_same_weights_for_bytes_as_for_the_floats_they_stand_for():
    images, labels = stripes(20)
    as_floats = as_bytes(images).float() / 255
    pair = [
        fit(dense(), labeled=(given, labels), steps=3, batch=20, device="cpu")
        for given in (as_bytes(images), as_floats)
    ]
    assert all(torch.equal(one, other) for one, other in zip(*(f.parameters() for f in pair), strict=True))


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.int16, torch.uint16])
def test_fit_takes_labels_of_any_integer_type(kind):
    images, labels = stripes(20)
    one, other = (
        fit(dense(), labeled=(images, given), steps=2, batch=20, device="cpu") for given in (labels, labels.to(kind))
    )
    assert torch.equal(next(one.parameters()), next(other.parameters()))


def test_fit_repeats_itself_and_leaves_the_random_numbers_of_the_caller_alone():
    before = torch.get_rng_state()
    one, same, other = (
        fit(dense(), labeled=stripes(20), steps=3, batch=20, device="cpu", seed=seed) for seed in (4, 4, 5)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(next(one.parameters()), next(same.parameters()))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_fit_leaves_no_gradients_behind():
    f = fit(dense(), labeled=stripes(20), steps=2, batch=20, device="cpu")
    assert all(weight.grad is None for weight in f.parameters())


def test_fit_takes_images_and_labels_in_a_list_too():
    weights = [
        fit(dense(), labeled=labeled, objective=Standard(), steps=2, batch=10, device="cpu").state_dict()
        for labeled in (stripes(20), list(stripes(20)))
    ]
    assert all(torch.equal(*pair) for pair in zip(*(each.values() for each in weights), strict=True))


def test_fit_ends_with_the_weights_that_were_best_on_held_out_images_under_its_search(monkeypatch):
    seen: list[tuple[int, object]] = []
    accuracies = {3: 0.25, 6: 0.75, 9: 0.5, 12: 0.5, 15: 1.0}

    def measured(selection: Selection, f: nn.Module) -> float:
        step = 3 * (len(seen) + 1)
        seen.append((step, selection.validation.solver))
        return accuracies[step]

    monkeypatch.setattr(Selection, "accuracy", measured)
    search = PGD(around=Linf(eps=0.1), steps=2, step_size=0.05)
    settings = {"labeled": stripes(20), "objective": SRT(solver=search), "batch": 20, "device": "cpu"}
    held_out, rate = stripes(10, seed=3), SGD(rate=Piecewise(rate=0.1, milestones=()))
    patient = Validation(every=3, patience=2, robust=True)
    model = fit(dense(), held_out=held_out, validation=patient, steps=15, optimizer=rate, ramp=Ramp(), **settings)
    assert seen == [(3, search), (6, search), (9, search), (12, search)]
    shorter = fit(dense(), steps=6, optimizer=rate, ramp=Ramp(), **settings)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), shorter.parameters(), strict=True))


class Searched(Standard):
    """A stranger's objective, whose solver is something else."""

    solver = "conjugate gradients"


@pytest.mark.parametrize(
    ("objective", "steps", "looked"), [(SRT(), 40, 20), (AT(), 7, 7), (Standard(), 30, 30), (Searched(), 30, 30)]
)
def test_fit_looks_at_held_out_images_about_twenty_times_under_attack_where_it_searches(
    objective, steps, looked, monkeypatch
):
    seen: list[object] = []
    measure = Selection.accuracy

    def measured(selection: Selection, f: nn.Module) -> float:
        seen.append(selection.validation.solver)
        return measure(selection, f)

    monkeypatch.setattr(Selection, "accuracy", measured)
    images, labels = stripes(20)
    fit(
        dense(),
        labeled=(as_bytes(images), labels),
        held_out=(as_bytes(images), labels),
        objective=objective,
        steps=steps,
        batch=10,
        device="cpu",
    )
    assert seen == [objective.solver if isinstance(objective, SRT | AT) else None] * looked


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.int16, torch.uint16])
def test_fit_takes_labels_of_held_out_images_of_any_integer_type(kind):
    images, labels = stripes(20)
    one, other = (
        fit(dense(), labeled=(images, labels), held_out=(images, given), steps=4, batch=20, device="cpu")
        for given in (labels, labels.to(kind))
    )
    assert torch.equal(next(one.parameters()), next(other.parameters()))


class Called(nn.Module):
    """A network that notes how many images are searched on it at a time, and has room for so many."""

    def __init__(self, room: int = 10**9) -> None:
        super().__init__()
        self.inner, self.room, self.most = dense(), room, 0

    def forward(self, x: Tensor) -> Tensor:
        self.most = max(self.most, len(x) if x.requires_grad else 0)
        if len(x) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return self.inner(x)


def test_as_many_held_out_images_at_a_time_are_looked_at_as_are_trained_on():
    f, held_out = Called(), stripes(600)
    fit(f, labeled=stripes(20), held_out=held_out, steps=2, batch=8, microbatch=4, device="cpu")
    assert f.most == 4
    with pytest.raises(MemoryError, match=r"512 held-out images at a time do not fit .*set --microbatch to 256 or"):
        fit(Called(room=64), labeled=stripes(20), held_out=held_out, steps=2, batch=8, device="cpu")


class Remembering(nn.Module):
    """It remembers how often it was trained, where its weights do not tell, and among them something that is none."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = dense()
        self.register_buffer("shift", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.shift += 1.0
        return self.inner(x - 0.1 * self.shift)

    def get_extra_state(self) -> object:
        return {"version": 1}

    def set_extra_state(self, state: object) -> None:
        assert state == {"version": 1}


def test_fit_ends_with_all_that_was_best_on_held_out_images_and_not_with_its_weights_alone(monkeypatch):
    looks = iter([0.5, 0.9, 0.1])
    monkeypatch.setattr(Selection, "accuracy", lambda selection, f: next(looks))
    settings = {"labeled": stripes(20), "objective": Standard(), "batch": 20, "device": "cpu", "steps": 6}
    f = fit(Remembering(), held_out=stripes(10), validation=Validation(every=2), **settings)
    assert f.shift == 4.0


class OwnSearch:
    """A stranger's objective with a solver that takes a network, and some number of objectives."""

    objectives = 2

    def solver(self, f: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(nn.functional.cross_entropy(f(x), y), x)
        return (x + 0.1 * slope.sign()).clamp(0, 1).detach()

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        loss = nn.functional.cross_entropy(f(self.solver(f, batch.x, batch.y)), batch.y)
        return Terms(standard=loss, robust=torch.zeros_like(loss))


def test_fit_does_not_take_what_a_stranger_calls_a_solver_for_one():
    settings = {"labeled": stripes(20), "objective": OwnSearch(), "steps": 2, "batch": 20, "device": "cpu"}
    fit(dense(), **settings)
    fit(dense(), held_out=stripes(10), **settings)


@pytest.mark.parametrize("kind", [np.int64, np.int32, torch.tensor])
def test_whole_numbers_of_any_kind_count_as_those_of_python(kind):
    settings = {"labeled": stripes(20), "held_out": stripes(10), "device": "cpu"}
    plain = {"seed": 3, "batch": 8, "microbatch": 4, "steps": 3, "least_labeled": 2}
    one, other = (
        fit(dense(), **settings, **{name: make(value) for name, value in plain.items()}) for make in (int, kind)
    )
    assert torch.equal(next(one.parameters()), next(other.parameters()))
    reports = [
        evaluate(one, *stripes(10), {"pgd": pgd(eps=0.1)}, seed=make(3), batch=make(4)).dumps()
        for make in (int, kind)
    ]
    subjects = {json.loads(report)["subject"] for report in reports}
    assert len(subjects) == 1
    with pytest.raises(ValueError, match=r"seed must be a whole number, got 3\.0"):
        fit(dense(), labeled=stripes(20), seed=3.0)


def test_fit_says_where_held_out_images_choose_nothing():
    settings = {"labeled": stripes(20), "held_out": stripes(10), "steps": 4, "batch": 20, "device": "cpu"}
    with pytest.warns(UserWarning, match="10 images held out .* looked at every 500 of 4 steps alone: lower"):
        fit(dense(), validation=Validation(patience=2), **settings)


@pytest.mark.parametrize("ball", [Linf(eps=0.3), L2(eps=1.0), L1(eps=3.0)])
@pytest.mark.parametrize("solver", [PGD, MomentumPGD])
def test_fit_says_where_a_search_does_not_come_to_its_radius(ball, solver):
    settings = {"labeled": stripes(20), "steps": 2, "batch": 20, "device": "cpu"}
    with pytest.warns(UserWarning, match=r"the search goes 0\.0784314 in 10 steps of 0\.00784314, less than eps"):
        fit(dense(), objective=Mixture(objectives=(Standard(), AT(solver=solver(around=ball)))), **settings)


@pytest.mark.parametrize(
    "around", [Spatial(), TurnThenShift(), Affine(), Blur(), Color(), Composed(parts=(Linf(eps=0.01), Spatial()))]
)
def test_fit_says_where_steps_in_units_of_the_radius_are_too_short(around):
    settings = {"labeled": stripes(20), "steps": 2, "batch": 20, "device": "cpu"}
    words = re.escape(
        f"the search goes 0.0784314 radii in 10 steps of 0.00784314, less than the radius of ({around}), in units of "
        "which steps are: take longer ones, as of 0.25, or more"
    )
    with pytest.warns(UserWarning, match=words):
        fit(dense(), objective=SRT(solver=PGD(around=around)), **settings)
    fit(dense(), objective=SRT(solver=PGD(around=around, step_size=0.25)), **settings)  # Nothing is said.


@pytest.mark.parametrize(
    "solver",
    [
        PGD(around=Linf(eps=0.45), steps=3, step_size=0.15),
        PGD(around=L2(eps=0.9), steps=10, step_size=0.09),
        PGD(around=Spatial(), steps=49, step_size=1 / 49),
        PGD(around=Spatial(rotation=0.0, translation=0.0)),
        PGD(around=Composed(parts=(Linf(eps=0.0), Blur(sigma=0.0)))),
    ],
)
def test_nothing_is_said_of_a_search_that_comes_to_its_radius_but_for_rounding_or_has_none(solver):
    recipe = replace(RECIPES["digits-pixel-at"], objective=AT(solver=solver))
    assert done_in_vain(recipe, held_out=0) == []


def test_of_several_searches_that_are_too_short_alike_one_sentence_tells():
    once = PGD(around=Linf(eps=0.3), steps=2, step_size=0.01)
    recipe = replace(RECIPES["digits-pixel-at"], objective=AT(solver=Strongest(solvers=(once, once, once))))
    assert len(done_in_vain(recipe, held_out=0)) == 1


AT_X = MomentumPGD(around=Linf(eps=0.05))


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        (TRADES(solver=AT_X), True),
        (KLR(solver=FGSM(around=Linf(eps=0.05), start="identity")), True),
        (UAT(solver=Sequential(stages=(AT_X, WorstOfK(k=2)))), True),
        (SRT(solver=AT_X, targets="soft"), True),
        (TRADES(solver=PGD(around=Linf(eps=0.05), noise=0.0)), True),
        (Mixture(objectives=(Standard(), TRADES(solver=Strongest(solvers=(AT_X, AT_X))))), True),
        (TRADES(solver=Strongest(solvers=(AT_X, WorstOfK(k=2)))), False),
        (UAT(solver=Sequential(stages=(WorstOfK(k=2), AT_X))), False),
        (TRADES(solver=MomentumPGD(around=Linf(eps=0.05), start="normal")), False),
        (SRT(solver=AT_X), False),
        (AT(solver=AT_X), False),
    ],
)
def test_fit_says_where_a_search_starts_at_x_and_has_no_slope_there(objective, told):
    sentence = "the search starts at x, where what .* has no slope but that of rounding"
    with pytest.warns(UserWarning, match=sentence) if told else nullcontext():
        fit(dense(), labeled=stripes(20), objective=objective, steps=2, batch=20, device="cpu")


def test_fit_passes_its_settings_on():
    seen: list[Batch] = []

    def objective(f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        seen.append(batch)
        return Standard()(f, batch, rng)

    images, labels = stripes(20)
    settings = {"steps": 2, "batch": 12, "optimizer": SGD(rate=Cyclic(peak=1e-9), weight_decay=0.0), "flip": True}
    model, untouched = dense(), dense()
    fit(model, labeled=(images, labels), unlabeled=images, objective=objective, crop=1, **settings, device="cpu")
    assert [(len(batch.x), len(batch.u)) for batch in seen] == [(6, 6)] * 2
    assert all(
        torch.allclose(*pair, atol=1e-6) for pair in zip(model.parameters(), untouched.parameters(), strict=True)
    )
    originals = {image.numpy().tobytes() for image in images}
    assert not all(image.numpy().tobytes() in originals for batch in seen for image in batch.x)


class Pair(nn.Module):
    """A model that returns two things."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = dense()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x), x


IMAGES, LABELS = stripes(20)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"images": 255 * IMAGES},
            r"labeled images must lie in \[0, 1\], got a maximum of 2\d\d\.\d+: divide them by 255",
        ),
        ({"images": IMAGES - 0.5}, r"labeled images must lie in \[0, 1\], got a minimum of -0\.\d+"),
        ({"images": IMAGES / 0}, r"labeled images must be finite, got NaN or infinity"),
        ({"images": IMAGES[:, 0]}, r"labeled images must have the shape \(N, C, H, W\), got \(20, 6, 6\)"),
        (
            {"images": IMAGES.permute(0, 2, 3, 1), "model": nn.Conv2d(1, 2, 3)},
            r"does not take images of the shape \(6, 6, 1\), whose channels seem to come last.*permute\(0, 3, 1, 2\)",
        ),
        ({"images": IMAGES.half(), "model": dense().half()}, r"must have at least 32 bits, got torch\.float16"),
        ({"images": IMAGES.long()}, r"images must be .*floating point, got torch\.int64"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, r"no labeled image was given"),
        ({"labels": LABELS + 1}, r"labels must lie in 0 to 1, got 2: number the 2 classes from 0$"),
        ({"labels": LABELS - 1}, r"labels must lie in 0 to 1, got -1: .* and give images without a label apart"),
        ({"labels": LABELS.float()}, r"labels must be integers, got torch\.float32"),
        ({"labels": LABELS[:-1]}, r"labels must have the shape \(20,\), got \(19,\)"),
        ({"labels": LABELS[:, None]}, r"labels must have the shape \(20,\), got \(20, 1\)"),
        ({"labels": 0 * LABELS}, r"no labeled image of class 1 was given, though the model has 2 outputs"),
        ({"model": dense(3)}, r"no labeled image of class 2 was given, though the model has 3 outputs"),
        ({"batch": 21}, r"batch of 21 is larger than the 20 training images"),
        ({"batch": 0}, r"^batch must be at least 1, got 0"),
        ({"batch": 8.0}, r"^batch must be a whole number, got 8\.0"),
        ({"microbatch": 0}, r"^microbatch must be at least 1, got 0"),
        ({"steps": 0}, r"steps must be at least 1, got 0"),
        ({"unlabeled": torch.rand(9, 1, 5, 5)}, r"unlabeled images are .*5, 5\) and labeled ones .*6, 6\)"),
        ({"unlabeled": torch.rand(9, 3, 6, 6)}, r"unlabeled images are .*3, 6, 6\) and labeled ones .*1, 6, 6\)"),
        ({"unlabeled": as_bytes(IMAGES)}, r"unlabeled images are .*uint8.* and labeled ones .*float32"),
        *(
            ({"unlabeled": given}, rf"^unlabeled images must be a tensor, got a {type(given).__name__}: convert it")
            for given in ([IMAGES], (IMAGES,), 5, IMAGES.numpy())
        ),
        ({"unlabeled": torch.tensor(5)}, r"^unlabeled images must be a tensor of them all, got a single number"),
        ({"images": IMAGES.tolist()}, r"^labeled images must be a tensor, got a list: convert it"),
        ({"labels": LABELS.tolist()}, r"^labels must be a tensor, got a list: convert it"),
        ({"unlabeled": IMAGES + 0.5}, r"unlabeled images must lie in \[0, 1\], got a maximum of 1\.\d+"),
        ({"model": nn.Conv2d(1, 2, 3)}, r"logits of shape \(batch, classes\), got \(2, 2, 4, 4\)"),
        ({"model": dense(1)}, r"logits of shape \(batch, classes\), got \(2, 1\)"),
        ({"model": Pair()}, r"logits of shape \(batch, classes\), got a tuple"),
        ({"model": nn.Sequential(dense(), nn.Softmax(1))}, r"already probabilities: return the logits"),
        (
            {"unlabeled": IMAGES, "objective": AT()},
            r"AT sees labeled images alone, and 20 unlabeled ones .*: leave unlabeled out, or choose an objective",
        ),
        ({"device": "banana"}, r"there is no device 'banana'"),
        ({"labeled": IMAGES}, r"labeled must be images and their labels, got a Tensor: write labeled=\(x, y\)"),
        ({"labeled": TensorDataset(IMAGES, LABELS)}, r"labeled must be images .*, got a TensorDataset"),
        ({"labeled": (IMAGES, LABELS, IMAGES)}, r"labeled must be images and their labels, got a tuple"),
        ({"objective": SRT}, r"objective must be one that \(f, batch, rng\) can be given to, as SRT\(\), got <class"),
        ({"objective": "srt"}, r"objective must be one .*, got 'srt'"),
        ({"objective": [*range(1000)]}, r"objective must be one .*, got \[0, 1, .{,100} …$"),
        *(
            ({"optimizer": adam}, r"optimizer must be unperturbed\.SGD, .* got .*Adam.*: with any other write")
            for adam in (torch.optim.Adam, torch.optim.Adam(dense().parameters()))
        ),
        *(
            ({"ramp": ramp}, r"ramp must be a function of the progress, as Ramp\(over=0\.3\), got")
            for ramp in (0, 0.3, Ramp)
        ),
        ({"held_out": IMAGES}, r"held_out must be images and their labels, got a Tensor: write held_out=\(x, y\)"),
        ({"held_out": (IMAGES[:0], LABELS[:0])}, r"held_out has no image: give some, or leave it out"),
        ({"held_out": (IMAGES, LABELS + 1)}, r"labels of held-out images must lie in 0 to 1, got 2"),
        ({"held_out": (IMAGES, LABELS[1:])}, r"labels of held-out images must have the shape \(20,\), got \(19,\)"),
        ({"held_out": (as_bytes(IMAGES), LABELS)}, r"held-out images are .*uint8.* and labeled ones .*float32"),
        ({"held_out": (IMAGES.tolist(), LABELS)}, r"held-out images must be a tensor, got a list: convert it"),
        ({"validation": Validation()}, r"validation tells how .*, but there are none: give held_out=\(x, y\)"),
        ({"held_out": (IMAGES, LABELS), "validation": 5}, r"validation must be unperturbed\.Validation, .*, got 5"),
        ({"averaging": 0.99}, r"averaging must be unperturbed\.Average, as Average\(decay=0\.99\), got 0\.99"),
    ],
)
def test_fit_refuses_what_it_cannot_use_in_a_sentence(given, words):
    settings = {"model": dense(), "batch": 10, "steps": 2, "device": "cpu"} | given
    labeled = settings.pop("images", IMAGES), settings.pop("labels", LABELS)
    with pytest.raises(ValueError, match=words) as error:
        fit(settings.pop("model"), **({"labeled": labeled} | settings))
    assert "\n" not in str(error.value)


def test_fit_takes_the_number_of_labeled_images_that_it_advises():
    def fitted(**settings: int) -> nn.Module:
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        few = (IMAGES[:4], LABELS[:4])
        return fit(
            model, labeled=few, unlabeled=IMAGES.repeat(2, 1, 1, 1)[:36], steps=4, batch=10, device="cpu", **settings
        )

    with pytest.raises(ValueError, match=r"a single image.* set least_labeled \(--least-labeled\) to 2$"):
        fitted()
    fitted(least_labeled=2)
