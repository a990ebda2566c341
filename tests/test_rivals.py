"""The rivals of SRT against their equations, written image by image in float64."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tiny import seeded
from unperturbed import training
from unperturbed.averaging import Average
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.guards import CollapseAlarm
from unperturbed.images import parts
from unperturbed.losses import Against, cross_entropy, kl
from unperturbed.neighborhoods import L2, Linf, Spatial
from unperturbed.objectives import AT, KLR, SRT, TRADES, UAT, Batch, Mixture, Standard
from unperturbed.recipe import SGD, Recipe, Teacher, of_teacher, read
from unperturbed.recipes import RECIPES
from unperturbed.schedules import Piecewise, Ramp
from unperturbed.solvers import FGSM, NFGSM, PGD, PowerIteration, WorstOfK
from unperturbed.trainer import Trainer

SOLVER = PGD(around=Linf(eps=0.1), steps=3, step_size=0.05, start="uniform")


@pytest.fixture
def f():
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 3)).double()


@pytest.fixture
def batch(rng):
    x, u = (torch.rand(n, 1, 5, 4, generator=rng, dtype=torch.float64) for n in (4, 6))
    return Batch(x=x, y=torch.tensor([2, 0, 1, 1]), u=u)


@pytest.fixture
def opinion(rng):
    return torch.randn(10, 3, generator=rng, dtype=torch.float64)


def probabilities(logits):
    weights = [math.exp(value) for value in logits.tolist()]
    return [weight / sum(weights) for weight in weights]


def mean_cross_entropy(f, images, labels):
    answers = [probabilities(f(image[None])[0]) for image in images]
    return sum(-math.log(p[label]) for p, label in zip(answers, labels.tolist(), strict=True)) / len(answers)


def mean_kl(f, images, perturbed):
    total = 0.0
    for image, other in zip(images, perturbed, strict=True):
        p, q = probabilities(f(image[None])[0]), probabilities(f(other[None])[0])
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    return total / len(images)


def inconsistent(f, images):
    """The images that the solver finds when it maximizes the KL from f's answer to x."""
    return SOLVER(Against(kl, f, f(images).detach()), images, seeded())


def mistaken(f, images, labels):
    return SOLVER(Against(cross_entropy, f, labels), images, seeded())


def test_kl_of_an_answer_from_itself_is_zero_and_its_gradient_reaches_both(rng):
    logits = torch.randn(4, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    target = torch.randn(4, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(kl(logits, logits), torch.zeros(4, dtype=torch.float64))
    assert torch.autograd.gradcheck(kl, (logits, target))


def test_kl_stays_finite_for_answers_without_doubt():
    logits = torch.tensor([[200.0, 0.0, -200.0]], requires_grad=True)
    target = torch.tensor([[-200.0, 0.0, 200.0]], requires_grad=True)
    kl(logits, target).sum().backward()
    assert logits.grad.isfinite().all()
    assert target.grad.isfinite().all()


def test_trades_is_its_equation(f, batch, rng):
    terms = TRADES(solver=SOLVER, weight=6.0)(f, batch, seeded())
    assert terms.standard.item() == pytest.approx(mean_cross_entropy(f, batch.x, batch.y), abs=1e-6)
    expected = 6 * mean_kl(f, batch.x, inconsistent(f, batch.x))
    assert terms.robust.item() == pytest.approx(expected, abs=1e-6)


def test_the_gradient_of_trades_goes_through_the_clean_answer_too(f, batch, rng):
    perturbed = inconsistent(f, batch.x)
    (through,) = torch.autograd.grad(TRADES(solver=SOLVER, weight=1.0)(f, batch, seeded()).robust, f[1].weight)
    (one_way,) = torch.autograd.grad(kl(f(perturbed), f(batch.x).detach()).mean(), f[1].weight)
    (both_ways,) = torch.autograd.grad(kl(f(perturbed), f(batch.x)).mean(), f[1].weight)
    torch.testing.assert_close(through, both_ways)
    assert not torch.allclose(through, one_way)


def test_rst_is_trades_on_the_labels_and_the_labelers_labels(f, batch, opinion, rng):
    terms = TRADES(solver=SOLVER, weight=6.0)(f, batch._replace(opinion=opinion), seeded())
    pool, labels = torch.cat([batch.x, batch.u]), torch.cat([batch.y, opinion[4:].argmax(1)])
    assert terms.standard.item() == pytest.approx(mean_cross_entropy(f, pool, labels), abs=1e-6)
    assert terms.robust.item() == pytest.approx(6 * mean_kl(f, pool, inconsistent(f, pool)), abs=1e-6)


def test_uat_ft_is_at_on_the_labels_and_the_labelers_labels(f, batch, opinion, rng):
    terms = AT(solver=SOLVER)(f, batch._replace(opinion=opinion), seeded())
    pool, labels = torch.cat([batch.x, batch.u]), torch.cat([batch.y, opinion[4:].argmax(1)])
    expected = mean_cross_entropy(f, mistaken(f, pool, labels), labels)
    assert terms.total.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("labels_on", ["mixed", "clean"])
def test_klr_is_its_equation(labels_on, f, batch, rng):
    terms = KLR(solver=SOLVER, weight=2.0, labels_on=labels_on)(f, batch, seeded())
    perturbed = inconsistent(f, batch.x)
    clean, warped = (mean_cross_entropy(f, images, batch.y) for images in (batch.x, perturbed))
    standard = (clean + warped) / 2 if labels_on == "mixed" else clean
    assert terms.standard.item() == pytest.approx(standard, abs=1e-6)
    assert terms.robust.item() == pytest.approx(2 * mean_kl(f, batch.x, perturbed), abs=1e-6)


def test_uat_with_online_targets_is_its_equation(f, batch, rng):
    terms = UAT(solver=SOLVER, weight=3.0)(f, batch, seeded())
    pool = torch.cat([batch.x, batch.u])
    assert terms.standard.item() == pytest.approx(mean_cross_entropy(f, batch.x, batch.y), abs=1e-6)
    assert terms.robust.item() == pytest.approx(3 * mean_kl(f, pool, inconsistent(f, pool)), abs=1e-6)


def test_the_targets_of_uat_are_constants(f, batch, rng):
    pool = torch.cat([batch.x, batch.u])
    perturbed = inconsistent(f, pool)
    (ours,) = torch.autograd.grad(UAT(solver=SOLVER, weight=1.0)(f, batch, seeded()).robust, f[1].weight)
    (theirs,) = torch.autograd.grad(kl(f(perturbed), f(pool).detach()).mean(), f[1].weight)
    torch.testing.assert_close(ours, theirs)


def test_uat_plusplus_has_both_kinds_of_targets(f, batch, opinion, rng):
    batch = batch._replace(opinion=opinion)
    terms = UAT(solver=SOLVER, weight=3.0, form="++")(f, batch, seeded())
    drawn = seeded()
    pool = torch.cat([batch.x, batch.u])
    SOLVER(Against(kl, f, f(pool).detach()), pool, drawn)
    assert terms.standard.item() == pytest.approx(AT(solver=SOLVER)(f, batch, drawn).total.item(), abs=1e-6)
    assert terms.robust.item() == pytest.approx(UAT(solver=SOLVER, weight=3.0)(f, batch, seeded()).robust.item())


@pytest.mark.parametrize("form", ["OT", "++"])
def test_one_pass_of_uat_answers_what_two_do_where_no_batchnorm_is(form, f, batch, opinion, rng):
    batch = batch._replace(opinion=opinion)
    one, two = (
        UAT(solver=SOLVER, weight=3.0, form=form, forward=forward)(f, batch, seeded())
        for forward in ("together", "separate")
    )
    torch.testing.assert_close(one, two)


def test_a_mixture_is_the_mean_of_its_objectives(f, batch, rng):
    parts = (AT(solver=SOLVER), TRADES(solver=SOLVER), Standard())
    mixed = Mixture(objectives=parts)(f, batch, seeded())
    drawn = seeded()
    every = [part(f, batch, drawn) for part in parts]
    torch.testing.assert_close(mixed.standard, sum(terms.standard for terms in every) / 3)
    torch.testing.assert_close(mixed.robust, sum(terms.robust for terms in every) / 3)
    with pytest.raises(ValueError, match=r"Mixture\.objectives must be a tuple of at least one objective, got \(\)"):
        Mixture(objectives=())


@pytest.mark.parametrize("targets", ["hard", "soft"])
def test_srt_takes_another_labelers_word(targets, f, batch, opinion, rng):
    terms = SRT(solver=SOLVER, targets=targets)(f, batch._replace(opinion=opinion), seeded())
    pool = torch.cat([batch.x, batch.u])
    target = opinion.argmax(1) if targets == "hard" else opinion.softmax(1)
    expected = cross_entropy(f(mistaken(f, pool, target)), target).mean()
    torch.testing.assert_close(terms.robust, expected)


def test_smoothing_spreads_the_labels_of_both_terms(f, batch, rng):
    terms = SRT(solver=SOLVER, smoothing=0.3)(f, batch, seeded())
    pool = torch.cat([batch.x, batch.u])
    predicted = f(pool).argmax(1)
    for term, images, labels in (
        (terms.standard, batch.x, batch.y),
        (terms.robust, mistaken(f, pool, predicted), predicted),
    ):
        logs = f(images).log_softmax(1)
        own = -logs.gather(1, labels[:, None]).squeeze(1)
        torch.testing.assert_close(term, (0.7 * own - 0.3 * logs.mean(1)).mean())


@pytest.mark.parametrize("objective", [TRADES, KLR, UAT, SRT])
def test_a_negative_weight_is_refused(objective):
    with pytest.raises(ValueError, match=r"\.weight must be a finite number of at least 0"):
        objective(weight=-1.0)


# Solvers


def test_n_fgsm_goes_past_the_radius_as_far_as_it_says(f, batch, rng):
    pool = torch.full((50, 1, 5, 4), 0.5, dtype=torch.float64)
    found = NFGSM(around=Linf(eps=0.1), noise=2.0, step=1.0)(
        Against(cross_entropy, f, torch.zeros(50).long()), pool, rng
    )
    reach = (found - pool).abs().amax().item()
    assert 0.25 < reach <= 0.3 + 1e-9


def test_n_fgsm_takes_its_step_along_the_gradient_at_the_noise(f, rng):
    x, y = torch.full((6, 1, 5, 4), 0.5, dtype=torch.float64), torch.arange(6) % 3
    noise = Linf(eps=0.2).sample(x, torch.Generator().manual_seed(7))
    noisy = (x + noise).requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(f(noisy), y).sum(), noisy)
    found = NFGSM(around=Linf(eps=0.1))(Against(cross_entropy, f, y), x, torch.Generator().manual_seed(7))
    torch.testing.assert_close(found, x + noise + 0.1 * gradient.sign())


def test_power_iteration_finds_the_direction_of_largest_curvature(rng):
    curvature = torch.linspace(0.1, 1.0, 20, dtype=torch.float64)
    x = torch.full((3, 1, 5, 4), 0.5, dtype=torch.float64)

    def bowl(images, rows=None):
        return ((images - 0.5).flatten(1).square() * curvature).sum(1)

    found = PowerIteration(around=L2(eps=0.2), iterations=200)(bowl, x, rng) - 0.5
    torch.testing.assert_close(
        found.flatten(1)[:, -1].abs(), torch.full((3,), 0.2, dtype=torch.float64), rtol=0, atol=1e-3
    )


def test_one_power_iteration_is_virtual_adversarial_training(f, batch, rng):
    start = torch.empty_like(batch.x).normal_(generator=torch.Generator().manual_seed(3))
    unit = start / start.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    near = (batch.x + 0.05 * unit).clamp(0, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(kl(f(near), f(batch.x).detach()).sum(), near)
    expected = (batch.x + 0.5 * gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)).clamp(0, 1)
    solver = PowerIteration(around=L2(eps=0.5), iterations=1, probe=0.1)
    found = solver(Against(kl, f, f(batch.x).detach()), batch.x, torch.Generator().manual_seed(3))
    torch.testing.assert_close(found, expected)


# Teachers and recipes

TAUGHT = Recipe(
    data=Data(name="digits", labeled=60, unlabeled=60),
    objective=TRADES(solver=FGSM(around=Linf(eps=0.1))),
    labeler="teacher",
    teacher=Teacher(steps=4),
    steps=2,
    batch=30,
)


def test_a_teacher_is_trained_once_and_shared(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    training.train(TAUGHT, tmp_path / "one", device="cpu")
    (teacher,) = (tmp_path / "cache" / "teachers").iterdir()
    written = (teacher / "model.safetensors").stat().st_mtime_ns
    training.train(replace(TAUGHT, objective=AT(solver=FGSM())), tmp_path / "two", device="cpu")
    assert [path.name for path in (tmp_path / "cache" / "teachers").iterdir()] == [teacher.name]
    training.train(replace(TAUGHT, seed=1), tmp_path / "three", device="cpu")
    assert len(list((tmp_path / "cache" / "teachers").iterdir())) == 2
    assert (teacher / "model.safetensors").stat().st_mtime_ns == written


def test_the_weights_of_a_teacher_are_enough_to_label_with(tmp_path):
    def weights(name):
        (model,) = training.train_together({tmp_path / name: TAUGHT}, device="cpu", teachers=tmp_path / "teachers")
        return torch.cat([weight.flatten() for weight in model.parameters()])

    first = weights("one")
    (teacher,) = (tmp_path / "teachers").iterdir()
    for file in teacher.iterdir():
        if file.name not in ("model.safetensors", "recipe.json"):
            file.unlink()
    assert torch.equal(weights("two"), first)
    assert {file.name for file in teacher.iterdir()} == {"model.safetensors", "recipe.json"}


def test_a_teacher_may_learn_from_unlabeled_images_by_an_objective_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    warps = SRT(solver=WorstOfK(around=Spatial(rotation=10, translation=1), k=1), weight=0.5)
    teacher = Teacher(objective=warps, unlabeled=True, steps=4, ramp=Ramp(over=0.5))
    recipe = replace(TAUGHT, teacher=teacher)
    training.train(recipe, tmp_path / "run", device="cpu")
    (teacher,) = (tmp_path / "cache" / "teachers").iterdir()
    by = read(teacher / "recipe.json")
    assert (by.objective, by.steps, by.ramp, by.data.unlabeled) == (warps, 4, Ramp(over=0.5), 60)
    alone = of_teacher(replace(recipe, teacher=Teacher(objective=warps, steps=4)))
    assert alone.data.unlabeled == 0


def test_a_teacher_may_be_the_average_that_labels_while_it_learns(tmp_path):
    average = Average(decay=0.9, batchnorm="own")
    teacher = Teacher(objective=SRT(solver=FGSM()), unlabeled=True, steps=4, averaging=average, labeler="average")
    recipe = replace(TAUGHT, teacher=teacher)
    training.train_together({tmp_path / "run": recipe}, device="cpu", teachers=tmp_path / "teachers")
    (kept,) = (tmp_path / "teachers").iterdir()
    by = read(kept / "recipe.json")
    assert (by.averaging, by.labeler) == (average, "average")
    again = training.train(by, tmp_path / "again", device="cpu")
    weights = load_file(kept / "model.safetensors")
    assert all(torch.equal(weights[name], tensor) for name, tensor in again.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labeler": "average"}, r"none is kept: set --teacher\.averaging\.decay, to 0\.99 for example"),
        (
            {"averaging": Average(decay=0.9, batchnorm="own")},
            r"set --teacher\.labeler average, or --teacher",
        ),
        ({"labeler": "teacher"}, r"Teacher\.labeler must be current or average, got 'teacher'"),
    ],
)
def test_a_teacher_that_cannot_be_is_refused_in_words_of_its_own(changes, words):
    with pytest.raises(ValueError, match=words):
        Teacher(**changes)


def test_a_teacher_that_learned_from_other_unlabeled_images_is_not_taken(tmp_path):
    for number, name in enumerate(("one", "two")):
        np.save(tmp_path / "more.npy", np.full((9, 1, 8, 8), 100 + number, dtype=np.uint8))
        recipe = replace(
            TAUGHT,
            data=replace(TAUGHT.data, unlabeled_files=(str(tmp_path / "more.npy"),)),
            teacher=Teacher(objective=SRT(solver=FGSM()), unlabeled=True, steps=1),
        )
        training.train_together({tmp_path / name: recipe}, device="cpu", teachers=tmp_path / "teachers")
    assert len(list((tmp_path / "teachers").iterdir())) == 2


@pytest.mark.parametrize(
    "method",
    [
        "pixel-trades", "pixel-uat", "pixel-uat-ft", "pixel-uat-plusplus", "pixel-rst", "pixel-vat", "pixel-srt-fast",
        "pixel-srt-fast-noise", "pixel-srt-plusplus", "spatial-klr", "spatial-at", "spatial-srt-authors",
        "spatial-srt-plusplus", "spatial-srt-fast", "compound-at", "compound-srt", "compound-at-average",
        "compound-at-max",
    ],
)  # fmt: skip
def test_every_defense_trains_on_digits(method, tmp_path):
    recipe = replace(RECIPES[f"digits-{method}"], steps=3, teacher=Teacher(steps=3))
    model = training.train(recipe, tmp_path / "run", device="cpu")
    assert all(weight.isfinite().all() for weight in model.state_dict().values())


class Misled:
    """Standard training that, after sixty steps, is told each time the label next to the right one."""

    def __init__(self):
        self.steps = 0

    def __call__(self, f, batch, rng):
        self.steps += 1
        lie = batch._replace(y=(batch.y + 1) % 10) if self.steps > 60 else batch
        return Standard()(f, lie, rng)


def test_the_guard_catches_a_collapse_that_was_provoked(monkeypatch):
    recipe, said = RECIPES["digits-pixel-srt-fast"], []
    images = parts(load("digits"), replace(recipe.data, validation=40, unlabeled=0))
    run = Trainer(
        f=training.fresh_model(recipe, load("digits")),
        images=images,
        recipe=Recipe(
            objective=Misled(),
            steps=90,
            batch=60,
            optimizer=SGD(rate=Piecewise(rate=0.1, milestones=())),
            validation=replace(recipe.validation, every=10, drop=0.2, solver=None),
        ),
        device=torch.device("cpu"),
    )
    monkeypatch.setattr(CollapseAlarm, "sentence", lambda self, record, progress: None)
    run.run(watcher=SimpleNamespace(stepped=lambda *_: None, logged=lambda _: None, warned=said.append))
    assert run.step < 90
    assert run.selection.best["step"] <= 60
    assert run.selection.accuracy(run.f) == run.selection.best["accuracy"] > 0.5
    assert "training stops and the weights of step" in said[0]
