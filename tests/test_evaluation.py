"""What an evaluation shows an attack, what it believes of its answer, and what it reports."""

import math
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from types import FunctionType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unperturbed import defender, evaluation
from unperturbed.attacks import DDN, JSMA, AutoAttack, compound, cw_linf, fgsm, grid, mi_fgsm, pgd, random
from unperturbed.engine import Engine
from unperturbed.neighborhoods import L2, Linf, Neighborhood, Spatial
from unperturbed.packing import MOST_CLASSES
from unperturbed.report import loads
from unperturbed.sameness import fingerprint
from unperturbed.solvers import PGD, Grid, WorstOfK

evaluate = partial(evaluation.evaluate, device="cpu")
TURNS = Spatial(rotation=30.0, translation=1.0)


class Threshold(nn.Module):
    """C(x) is whether the first pixel exceeds one half."""

    def forward(self, x):
        bright = 10 * (x[:, 0, 0, 0] - 0.5)
        return torch.stack([-bright, bright], dim=1)


@dataclass
class Stated:
    """An attack that says what it keeps to, and then does what it likes."""

    within: Neighborhood
    move: Callable[[Tensor], Tensor]
    budget: str = "as stated"

    def __call__(self, f, x, y, rng, /):
        return self.move(x)


def flip(f, x, y, rng):
    """Turns every prediction of `Threshold`."""
    return 1 - x


def idle(f, x, y, rng):
    return x


@pytest.fixture
def images(rng):
    return torch.rand(23, 1, 4, 4, generator=rng)


@pytest.fixture
def labels(images):
    """Those of `Threshold`, every third of them wrong."""
    right = (images[:, 0, 0, 0] > 0.5).long()
    right[::3] = 1 - right[::3]
    return right


@pytest.fixture
def network():
    """A trained-looking classifier of four classes with BatchNorm and Dropout, in training mode and float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 4)
        result = nn.Sequential(*layers).double()
    with torch.no_grad():
        result[-1].weight *= 3
    return result


@pytest.fixture
def pictures(rng):
    return torch.rand(23, 1, 4, 4, generator=rng, dtype=torch.float64)


@pytest.fixture
def classes(rng):
    return torch.randint(0, 4, (23,), generator=rng)


SEVERAL = {"fgsm": fgsm(eps=0.1), "pgd": pgd(eps=0.1, steps=3), "random": random(TURNS), "idle": idle, "flip": flip}


def test_an_attack_sees_each_image_once_with_its_prediction_and_the_model_in_evaluation_mode(
    network, pictures, classes
):
    seen, shown, modes = [], [], set()

    def spy(f, x, y, rng):
        assert f.f is network
        seen.append(x)
        shown.append(y)
        modes.update(module.training for module in f.modules())
        modes.update(parameter.requires_grad for parameter in f.parameters())
        return x

    network.train()
    report = evaluate(network, pictures, classes, {"spy": spy}, batch=10)
    assert [len(part) for part in seen] == [10, 10, 3]
    assert torch.equal(torch.cat(seen), pictures)
    assert torch.equal(torch.cat(shown), network.eval()(pictures).argmax(1))
    assert torch.equal(torch.cat(shown), report.clean)
    assert modes == {False}


def test_the_model_gets_its_modes_and_flags_back_even_if_an_attack_breaks_down(network, pictures, classes):
    def break_down(f, x, y, rng):
        raise RuntimeError("no idea")

    network[1].eval()
    network[0].weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    evaluate(network, pictures, classes, SEVERAL)
    with pytest.raises(RuntimeError, match="no idea"):
        evaluate(network, pictures, classes, {"break down": break_down})
    assert [module.training for module in network] == [True, False, True, True, True, True]
    assert [parameter.requires_grad for parameter in network.parameters()] == [False, *[True] * 5]
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_three_risks_are_those_of_definition_2_recomputed_naively(network, pictures, classes):
    attack = fgsm(eps=0.15)
    report = evaluate(network, pictures, classes, {"fgsm": attack})
    network.eval()
    found = attack(network, pictures, network(pictures).argmax(1), torch.Generator())
    standard = robust = adversarial = 0
    for x, perturbed, y in zip(pictures, found, classes, strict=True):
        before, after = (int(network(image[None]).argmax()) for image in (x, perturbed))
        standard += before != y
        robust += after != before
        adversarial += before != y or after != y
    (row,) = report.summary()["attacks"]
    assert 0 < robust < 23
    assert report.summary()["standard_risk"] == pytest.approx(standard / 23)
    assert row["robust_risk"] == pytest.approx(robust / 23)
    assert row["adversarial_risk"] == pytest.approx(adversarial / 23)
    assert row["accuracy"] == pytest.approx(1 - adversarial / 23)


def test_lemma_1_holds_on_every_image_and_attack_of_a_report(network, pictures, classes):
    report = evaluate(network, pictures, classes, SEVERAL)
    for result in report.attacks:
        standard, robust, adversarial = (risk.long() for risk in report.risks_by_image(result))
        assert torch.equal(adversarial, standard + (1 - standard) * robust)


def test_an_attack_that_does_nothing_leaves_the_clean_accuracy(network, pictures, classes):
    report = evaluate(network, pictures, classes, {"idle": idle})
    assert torch.equal(report["idle"].predicted, report.clean)
    assert report.accuracy("idle") == report.accuracy()


def test_an_attack_that_turns_wrong_predictions_right_gains_nothing(images, labels):
    wrong = (images[:, 0, 0, 0] > 0.5).long() != labels

    def heal(f, x, y, rng):
        return torch.where(wrong.view(-1, 1, 1, 1), 1 - x, x)

    report = evaluate(Threshold(), images, labels, {"heal": heal})
    assert torch.equal(report["heal"].predicted, labels)
    assert report.accuracy("heal") == report.accuracy() == pytest.approx(15 / 23)
    assert report.summary()["attacks"][0]["robust_risk"] == pytest.approx(8 / 23)


def test_an_attack_that_turns_every_prediction_leaves_nothing(images, labels):
    report = evaluate(Threshold(), images, labels, {"flip": flip})
    assert report.accuracy("flip") == 0
    assert (
        report.summary()["attacks"][0] | {"robust_risk": 1, "adversarial_risk": 1} == report.summary()["attacks"][0]
    )


CHEATS = {
    "no numbers": lambda x: torch.full_like(x, torch.nan),
    "one pixel that is no number": lambda x: (1 - x).index_fill(3, torch.tensor([2]), torch.nan),
    "infinite": lambda x: torch.full_like(x, torch.inf),
    "brighter than white": lambda x: 2 - x,
    "darker than black": lambda x: -x,
}


@pytest.mark.parametrize("move", CHEATS.values(), ids=CHEATS)
def test_points_that_are_no_images_do_not_count(move, images, labels):
    report = evaluate(Threshold(), images, labels, {"cheat": lambda f, x, y, rng: move(x)}, batch=10)
    assert report["cheat"].rejected == 23
    assert torch.equal(report["cheat"].predicted, report.clean)
    assert report.accuracy("cheat") == report.accuracy()
    assert "(23 points rejected)" in " ".join(report.table(width=200).split())


@pytest.mark.parametrize(
    ("within", "move"),
    [
        (Linf(eps=0.1), lambda x: 1 - x),
        (Linf(eps=0.1), lambda x: x.sub_(0.5).abs_()),
        (Linf(eps=0.0), lambda x: (x + 1e-3).clamp(0, 1)),
        (L2(eps=0.1), lambda x: 1 - x),
        (Spatial(), lambda x: (1.2 * x.amax((1, 2, 3), keepdim=True)).clamp_max(1).expand_as(x)),
    ],
    ids=["Linf", "Linf in place", "Linf of radius 0", "L2", "Spatial"],
)
def test_points_outside_the_stated_budget_do_not_count(within, move, images, labels):
    images = 0.8 * images
    report = evaluate(Threshold(), images, labels, {"cheat": Stated(within, move)})
    assert report["cheat"].rejected == 23
    assert torch.equal(report["cheat"].predicted, report.clean)


def test_a_point_on_the_edge_of_the_budget_counts(images, labels):
    edge = Stated(Linf(eps=0.1), lambda x: (x - 0.1).clamp(0, 1))
    report = evaluate(Threshold(), images, labels, {"edge": edge})
    assert report["edge"].rejected == 0
    assert report["edge"].budget == "as stated"
    assert (report["edge"].predicted != report.clean).any()


def test_only_the_points_that_break_the_rules_are_set_aside(images, labels):
    def half_cheat(f, x, y, rng):
        return torch.cat([1 - x[:5], 5 + x[5:]])

    report = evaluate(Threshold(), images, labels, {"half": half_cheat})
    assert report["half"].rejected == 18
    changed = report["half"].predicted != report.clean
    assert torch.equal(changed, torch.arange(23) < 5)


@pytest.mark.parametrize(
    ("cheat", "shape"),
    [(lambda f, x, y, rng: x[:1], (1, 1, 4, 4)), (lambda f, x, y, rng: x.flatten(1), (23, 16))],
    ids=["fewer images", "another shape"],
)
def test_an_answer_of_another_shape_is_refused(cheat, shape, images, labels):
    with pytest.raises(ValueError) as refusal:
        evaluate(Threshold(), images, labels, {"cheat": cheat})
    assert str(refusal.value) == f"an attack must return images of shape (23, 1, 4, 4), got {shape}"


def test_an_attack_cannot_move_the_images_or_labels_it_is_measured_against(images, labels):
    def vandal(f, x, y, rng):
        x.zero_()
        y.fill_(1)
        return x

    kept = images.clone(), labels.clone()
    report = evaluate(Threshold(), images, labels, {"vandal": vandal, "idle": idle})
    assert torch.equal(images, kept[0])
    assert torch.equal(labels, kept[1])
    assert torch.equal(report.clean, (kept[0][:, 0, 0, 0] > 0.5).long())
    assert torch.equal(report["idle"].predicted, report.clean)


def test_an_attack_cannot_leave_the_model_in_another_mode(network, pictures, classes):
    def leave_in_training(f, x, y, rng):
        f.train().requires_grad_()
        return x

    report = evaluate(network, pictures, classes, {"careless": leave_in_training, "idle": idle})
    assert torch.equal(report["careless"].predicted, report.clean)
    assert torch.equal(report["idle"].predicted, report.clean)


def test_adding_an_attack_changes_no_other_number(network, pictures, classes):
    alone = evaluate(network, pictures, classes, {"random": random(TURNS, draws=2)})
    among = evaluate(network, pictures, classes, {**SEVERAL, "random": random(TURNS, draws=2), "last": idle})
    assert torch.equal(alone.clean, among.clean)
    assert torch.equal(alone["random"].predicted, among["random"].predicted)


def test_an_attack_draws_other_numbers_under_another_name_or_seed_and_in_another_batch(network, pictures, classes):
    drawn = []

    def draw(f, x, y, rng):
        drawn.append(torch.rand(3, generator=rng).tolist())
        return x

    evaluate(network, pictures, classes, {"one": draw, "two": draw}, batch=20)
    evaluate(network, pictures, classes, {"one": draw}, batch=20, seed=1)
    evaluate(network, pictures, classes, {"one": draw}, batch=20)
    assert drawn[-2:] == drawn[:2]
    assert len({tuple(numbers) for numbers in drawn}) == 6


def test_the_same_seed_gives_the_same_report_and_leaves_the_random_numbers_of_the_caller_alone(
    network, pictures, classes
):
    state = torch.get_rng_state()
    first, second = (evaluate(network, pictures, classes, SEVERAL, seed=5) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.seed == 5
    for result in first.attacks:
        assert torch.equal(result.predicted, second[result.name].predicted)


@pytest.mark.parametrize("batch", [1, 7, 23, 500])
def test_the_size_of_a_batch_does_not_change_what_attacks_without_randomness_find(network, pictures, classes, batch):
    attacks = {"fgsm": fgsm(eps=0.1), "grid": grid(TURNS, points=(5, 3, 3))}
    whole = evaluate(network, pictures, classes, attacks)
    parts = evaluate(network, pictures, classes, attacks, batch=batch)
    for name in attacks:
        assert torch.equal(whole[name].predicted, parts[name].predicted)
        assert (whole[name].predicted != whole.clean).sum() > 0


def test_the_worst_case_is_taken_image_by_image(images, labels):
    def turn(rows):
        return lambda f, x, y, rng: torch.where(rows.view(-1, 1, 1, 1), 1 - x, x)

    first, last = torch.arange(23) < 8, torch.arange(23) >= 15
    report = evaluate(Threshold(), images, labels, {"first": turn(first), "last": turn(last)})
    right = report.clean == labels
    assert torch.equal(report.survivors("first"), right & ~first)
    assert torch.equal(report.survivors("last"), right & ~last)
    assert torch.equal(report.worst_case(), right & ~first & ~last)
    assert report.summary()["worst_case"]["accuracy"] < min(report.accuracy("first"), report.accuracy("last"))


def test_a_report_has_a_verdict_on_every_image(network, pictures, classes):
    report = loads(evaluate(network, pictures, classes, SEVERAL).dumps())
    network.eval()
    assert torch.equal(report.labels, classes)
    assert torch.equal(report.clean, network(pictures).argmax(1))
    assert torch.equal(report["flip"].predicted, network(1 - pictures).argmax(1))


def test_bytes_and_fractions_give_the_same_report(rng):
    pixels = torch.randint(0, 256, (23, 1, 4, 4), generator=rng, dtype=torch.uint8)
    labels = torch.randint(0, 2, (23,), generator=rng)
    attacks = {"pgd": pgd(eps=0.1), "flip": flip}
    of_bytes = evaluate(Threshold(), pixels, labels, attacks)
    of_fractions = evaluate(Threshold(), pixels.float() / 255, labels, attacks)
    assert of_bytes.summary()["images"] == 23
    for result in of_bytes.attacks:
        assert torch.equal(result.predicted, of_fractions[result.name].predicted)


def test_a_report_says_what_it_was_made_with(images, labels):
    report = evaluate(Threshold(), images, labels, {"pgd": pgd(eps=0.2), "flip": flip}, seed=9, recipe={"steps": 3})
    assert report.seed == 9
    assert report.recipe == {"steps": 3}
    assert report.provenance["torch"] == metadata.version("torch")
    assert report["pgd"].budget == "Linf 0.2, 20 steps of 0.025"
    assert re.sub(r" at 0x\w+", "", repr(pgd(eps=0.2))) == report["pgd"].settings
    assert "cross_entropy" in report["pgd"].settings
    assert report["flip"].budget == "not stated"
    assert report["pgd"].seconds > 0


def test_a_watcher_hears_of_every_batch(images, labels):
    heard = []

    class Watcher:
        def attacked(self, *news):
            heard.append(news)

    def turn_the_first_five(f, x, y, rng):
        return torch.cat([1 - x[:5], x[5:]])

    attacks = {"flip": flip, "some": turn_the_first_five}
    evaluate(Threshold(), images, labels, attacks, batch=10, watcher=Watcher())
    assert heard[:3] == [("flip", 10, 23, 0.0), ("flip", 20, 23, 0.0), ("flip", 23, 23, 0.0)]
    assert heard[3:] == [("some", 10, 23, 0.5), ("some", 20, 23, 0.5), ("some", 23, 23, pytest.approx(10 / 23))]


def counting(attack):
    """The attack, with settings that can be compared, and how often it was called."""

    class Counting:
        calls = 0

        def __call__(self, *arguments):
            Counting.calls += 1
            return attack(*arguments)

        def __repr__(self):
            return "Counting()"

    return Counting()


def test_the_report_is_saved_after_each_attack(images, labels):
    saved = []
    report = evaluate(Threshold(), images, labels, {"idle": idle, "flip": flip}, save=saved.append)
    assert [[result.name for result in stage.attacks] for stage in saved] == [["idle"], ["idle", "flip"]]
    assert saved[-1] is report


def test_what_a_previous_report_holds_is_not_computed_again(network, pictures, classes):
    attack, saved = counting(flip), []
    first = evaluate(network, pictures, classes, {"flip": attack})
    second = evaluate(
        network, pictures, classes, {"flip": attack, "idle": idle}, previous=loads(first.dumps()), save=saved.append
    )
    assert attack.calls == 1
    assert [result.name for result in second.attacks] == ["flip", "idle"]
    assert torch.equal(second["flip"].predicted, first["flip"].predicted)
    assert len(saved) == 1


@pytest.mark.parametrize("change", ["weights", "statistics", "images", "labels", "seed", "batch"])
def test_a_previous_report_on_something_else_is_not_believed(change, network, pictures, classes):
    attack = counting(flip)
    first = evaluate(network, pictures, classes, {"flip": attack, "idle": idle})
    with torch.no_grad():
        network[0].weight += change == "weights"
        network[1].running_mean += change == "statistics"
    pictures = pictures.flip(0) if change == "images" else pictures
    classes = classes.flip(0) if change == "labels" else classes
    options = {"seed": int(change == "seed"), "batch": 10 if change == "batch" else 500}
    second = evaluate(network, pictures, classes, {"flip": attack}, previous=first, **options)
    assert attack.calls == (4 if change == "batch" else 2)
    assert [result.name for result in second.attacks] == ["flip"]


class Sharpened(nn.Module):
    """A network whose logits are multiplied, by a number that it keeps or that lies in its settings."""

    def __init__(self, network, times, settings=None):
        super().__init__()
        self.network, self.times, self.settings = network, times, settings or {"times": 1.0}

    def forward(self, x):
        return self.times * self.settings["times"] * self.network(x)


@pytest.mark.parametrize("where", ["kept", "in settings"])
def test_a_previous_report_on_a_network_that_keeps_another_number_is_not_believed(where, network, pictures, classes):
    times = {"times": 4.0}
    other = Sharpened(network, 4.0) if where == "kept" else Sharpened(network, 1.0, times)
    attack = counting(flip)
    first = evaluate(other, pictures, classes, {"flip": attack})
    evaluate(other, pictures, classes, {"flip": attack}, previous=first)
    assert attack.calls == 1
    evaluate(Sharpened(network, 1.0), pictures, classes, {"flip": attack}, previous=first)
    assert attack.calls == 2


class Tossing(nn.Module):
    """A network that sees some images mirrored, by chance."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        mirrored = torch.rand(len(x), 1, 1, 1) < 0.5
        return self.network(torch.where(mirrored, x.flip(-1), x))


def test_the_same_seed_gives_the_same_report_of_a_classifier_that_answers_by_chance(network, pictures, classes):
    reports = []
    for chance, seed in ((0, 5), (1, 5), (1, 6)):
        torch.manual_seed(chance)
        state = torch.get_rng_state()
        reports.append(evaluate(Tossing(network), pictures, classes, SEVERAL, seed=seed, batch=10))
        assert torch.equal(torch.get_rng_state(), state)
    first, again, other = reports
    assert torch.equal(first.clean, again.clean)
    for result in first.attacks:
        assert torch.equal(result.predicted, again[result.name].predicted)
    assert any(not torch.equal(result.predicted, other[result.name].predicted) for result in first.attacks)


def test_adding_an_attack_changes_no_number_of_a_classifier_that_answers_by_chance(network, pictures, classes):
    alone = evaluate(Tossing(network), pictures, classes, {"flip": flip}, batch=10)
    among = evaluate(Tossing(network), pictures, classes, {**SEVERAL, "flip": flip}, batch=10)
    assert torch.equal(alone["flip"].predicted, among["flip"].predicted)


def test_a_previous_report_in_which_the_model_answered_otherwise_is_not_believed(network, pictures, classes):
    attack = counting(flip)
    first = evaluate(network, pictures, classes, {"flip": attack})
    evaluate(network, pictures, classes, {"flip": attack}, previous=replace(first, clean=(first.clean + 1) % 4))
    assert attack.calls == 2


def test_an_attack_of_the_same_name_with_other_settings_takes_the_place_of_the_old_one(network, pictures, classes):
    first = evaluate(network, pictures, classes, {"pgd": pgd(eps=0.1), "idle": idle})
    second = evaluate(network, pictures, classes, {"pgd": pgd(eps=0.5)}, previous=first)
    assert sorted(result.name for result in second.attacks) == ["idle", "pgd"]
    assert second["pgd"].budget.startswith("Linf 0.5")
    assert second.accuracy("pgd") <= first.accuracy("pgd")


def test_a_report_tells_only_of_the_ways_in_which_its_numbers_were_made(network, pictures, classes):
    first = evaluate(network, pictures, classes, {"pgd": pgd(eps=0.1), "fgsm": fgsm(eps=0.1)})
    first = replace(first, provenance={**first.provenance, "device": "cuda: another"})
    here = evaluate(network, pictures, classes, {}).provenance["device"]
    partly = evaluate(network, pictures, classes, {"pgd": pgd(eps=0.5)}, previous=first)
    assert "another" in str(partly.provenance["device"])
    anew = evaluate(network, pictures, classes, {"pgd": pgd(eps=0.5), "fgsm": fgsm(eps=0.5)}, previous=first)
    assert anew.provenance["device"] == here


@dataclass
class Smallest:
    """A minimum-norm attack on `Threshold`: it shifts by 0.25, however far the budget goes."""

    within: Neighborhood
    budget: str = "smallest"

    def __call__(self, f, x, y, rng, /):
        return (x + 0.25 * (1 - 2 * y.view(-1, 1, 1, 1))).clamp(0, 1)

    def size(self, x, perturbed):
        return (perturbed - x).flatten(1).abs().amax(1)


@pytest.mark.parametrize("eps", [0.1, 0.3])
def test_what_a_minimum_norm_attack_finds_counts_within_its_budget_alone(eps, labels):
    images = torch.linspace(0.3, 0.7, 23).view(23, 1, 1, 1).repeat(1, 1, 4, 4)
    fooled = (images[:, 0, 0, 0] - 0.5).abs() < 0.25
    report = evaluate(Threshold(), images, labels, {"smallest": Smallest(Linf(eps=eps))})
    moved = report["smallest"].predicted != report.clean
    assert torch.equal(moved, fooled & (eps > 0.25))
    assert report["smallest"].rejected == 0
    assert report["smallest"].median_size == pytest.approx(0.25)


def test_the_median_change_is_infinite_where_most_images_stand(images, labels):
    images = images.round()
    report = evaluate(Threshold(), images, labels, {"smallest": Smallest(Linf(eps=1.0))})
    assert report["smallest"].median_size == torch.inf
    assert evaluate(Threshold(), images, labels, {"idle": idle})["idle"].median_size is None


def test_labels_of_any_integer_type_are_welcome(images, labels):
    for dtype in (torch.uint8, torch.int32):
        assert evaluate(Threshold(), images, labels.to(dtype), {}).accuracy() == pytest.approx(15 / 23)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda x, y: (255 * x, y), r"images must lie in \[0, 1\], got a maximum of 2.*: divide them by 255"),
        (lambda x, y: (x - 0.5, y), r"images must lie in \[0, 1\], got a minimum of -0"),
        (lambda x, y: (x.half(), y), r"images must have at least 32 bits, got torch\.float16"),
        (lambda x, y: (x / 0, y), "images must be finite, got NaN or infinity"),
        (lambda x, y: ((255 * x).long(), y), r"images must be .*floating point, got torch\.int64"),
        (lambda x, y: (x[:, 0], y), r"images must have the shape \(N, C, H, W\), got \(23, 4, 4\)"),
        (lambda x, y: (x[:0], y[:0]), "no image was given, expected at least one"),
        (lambda x, y: (x, y + 1), "labels must lie in 0 to 1, got 2: number the 2 classes from 0"),
        (lambda x, y: (x, y - 1), "labels must lie in 0 to 1, got -1"),
        (lambda x, y: (x, y.float()), r"labels must be integers, got torch\.float32"),
        (lambda x, y: (x, y[:7]), r"labels must have the shape \(23,\), got \(7,\)"),
    ],
    ids=[
        "bytes as floats",
        "centered",
        "half precision",
        "infinite",
        "integers",
        "no channels",
        "empty",
        "from 1",
        "from -1",
        "floats",
        "few",
    ],
)
def test_images_and_labels_that_cannot_be_used_are_refused_in_a_sentence(spoil, sentence, images, labels):
    with pytest.raises(ValueError, match=sentence):
        evaluate(Threshold(), *spoil(images, labels), {"idle": idle})


class Answering(nn.Module):
    """A model with an answer of its own kind."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(Threshold()(x))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda logits: logits[:, 0], r"logits of shape \(batch, classes\), got \(2,\)"),
        (lambda logits: logits[:, :1], r"got \(2, 1\): return one logit for each of at least 2 classes"),
        (lambda logits: logits[:1], r"got \(1, 2\): return one row for each of the 2 images"),
        (lambda logits: (logits, logits), "got a tuple: return one tensor"),
        (lambda logits: logits.softmax(1), "already probabilities: return the logits, before the softmax"),
        (lambda logits: logits / 0, "that are finite, got NaN or infinity"),
        (lambda logits: logits.long(), "as floats, got torch.int64"),
    ],
    ids=["one number", "one class", "one row", "two answers", "probabilities", "infinite", "integers"],
)
def test_a_model_that_does_not_answer_with_logits_is_refused_in_a_sentence(answer, sentence, images, labels):
    with pytest.raises(ValueError, match=sentence):
        evaluate(Answering(answer), images, labels, {"idle": idle})


def on_engines(monkeypatch, **precisions):
    """Let a CPU search on several engines, as a GPU does."""
    monkeypatch.setattr(defender, "engines", lambda device, precision: precisions[precision])


@pytest.mark.parametrize("copied", [True, False])
def test_a_classifier_on_a_gpu_that_only_judges_has_its_channels_first(copied, monkeypatch):
    class OnGPU(torch.Tensor):
        is_cuda = True

    f = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 30 * 30, 10))
    if not copied:
        f.register_forward_hook(lambda *_: None)  # Such a one is searched itself, with channels last.
    fast = Engine(precision="tf32", folded=True)
    monkeypatch.setattr(defender, "engines", lambda *_: (fast, Engine(folded=True)))
    found = defender.defended(f, "auto", torch.rand(2, 3, 32, 32).as_subclass(OnGPU), 4)
    assert [bool(rung.network.copies) for rung in found.rungs] == [copied, copied]
    layout = torch.contiguous_format if copied else torch.channels_last
    assert f[0].weight.is_contiguous(memory_format=layout)


def test_defenders_of_one_model_search_images_in_doubt_on_one_network(network, pictures, monkeypatch):
    coarse, fine = Engine(folded=True, precision="tf32"), Engine(folded=True)
    on_engines(monkeypatch, bfloat16=(coarse, fine), tf32=(fine, Engine()))
    one = defender.defended(network, "bfloat16", pictures[:2], 4)
    other = defender.defended(network, "tf32", pictures[:2], 4, beside=one)
    assert one.rungs[1].network is other.rungs[0].network
    assert one.engine == coarse
    assert [rung.engine for rung in other.rungs] == [fine, Engine()]
    assert other.rungs[1].network is network
    assert len({one.rungs[0].network, one.rungs[1].network, network}) == 3


@pytest.mark.parametrize(
    ("shape", "images"), [((3, 32, 32), 1000), ((1, 28, 28), 3918), ((1, 8, 8), 5000), ((3, 224, 224), 32)]
)
def test_a_gpu_attacks_as_many_images_at_once_as_their_size_allows(shape, images):
    assert evaluation.at_once(math.prod(shape)) == images


@pytest.mark.parametrize("batch", [0, -3])
def test_batches_without_an_image_are_refused(batch, images, labels):
    with pytest.raises(ValueError, match=f"batch must be at least 1, got {batch}"):
        evaluate(Threshold(), images, labels, {"idle": idle}, batch=batch)


def test_a_device_that_is_not_there_is_refused_by_naming_those_that_are(images, labels):
    with pytest.raises(ValueError, match="there is no device 'cuda:99' on this machine, which has cpu"):
        evaluate(Threshold(), images, labels, {}, device="cuda:99")


class Optimist(nn.Module):
    """Believes that a bright second pixel turns what `Threshold` says, which it does not."""

    def forward(self, x):
        logits = Threshold()(x)
        return torch.where(x[:, 0, 0, 1:2] > 0.9, logits.flip(1), logits)


def test_what_a_fast_search_wrongly_believes_to_fool_is_searched_again_in_float32(images, labels, monkeypatch):
    seen = []

    def touch(f, x, y, rng):
        """Brightens the second pixel where f falls for it, and else turns everything."""
        seen.append((type(f).__name__, len(x)))
        bright = x.clone()
        bright[:, 0, 0, 1] = 1.0
        falls = f(bright).argmax(1) != y
        return torch.where(falls.view(-1, 1, 1, 1), bright, 1 - x)

    images[:, 0, 0, 1] = 0.5
    f = Threshold()
    monkeypatch.setattr(defender, "on_engine", lambda *arguments: Optimist())
    report = evaluate(f, images, labels, {"touch": touch})
    assert seen == [("Optimist", 23), ("Threshold", 23)]
    assert torch.equal(report["touch"].predicted, 1 - report.clean)
    seen.clear()
    assert torch.equal(evaluate(f, images, labels, {"flip": flip})["flip"].predicted, 1 - report.clean)
    assert torch.equal(
        evaluate(f, images, labels, {"touch": touch}, precision="float32")["touch"].predicted, 1 - report.clean
    )
    assert seen == [("Threshold", 23)]


@pytest.mark.parametrize(
    ("first", "precisions"),
    [
        (Engine(precision="bfloat16", folded=True, recorded=True), ["bfloat16", "tf32", "float32"]),
        (Engine(precision="tf32", folded=True, recorded=True), ["tf32", "float32"]),
    ],
)
def test_images_in_doubt_are_searched_more_and_more_exactly_with_recorded_questions(first, precisions, monkeypatch):
    monkeypatch.setattr(defender, "searching_engine", lambda device, precision: first)
    found = defender.engines(torch.device("cuda"), "auto")
    assert [engine.precision for engine in found] == precisions
    assert all(engine.recorded and engine.folded for engine in found)


def test_on_a_cpu_images_in_doubt_are_searched_on_the_network_as_it_is():
    assert defender.engines(torch.device("cpu"), "auto") == (Engine(folded=True), Engine())
    assert defender.engines(torch.device("cpu"), "float32") == (Engine(),)


def test_only_images_in_doubt_are_searched_again(images, labels, monkeypatch):
    sizes = []

    def brighten(f, x, y, rng):
        sizes.append(len(x))
        point = x.clone()
        point[:, 0, 0, 1] = torch.where(x[:, 0, 0, 2] > 0.5, 1.0, 0.0)
        return point

    monkeypatch.setattr(defender, "on_engine", lambda *arguments: Optimist())
    report = evaluate(Threshold(), images, labels, {"brighten": brighten})
    assert sizes == [23, int((images[:, 0, 0, 2] > 0.5).sum())]
    assert torch.equal(report["brighten"].predicted, report.clean)


@pytest.mark.parametrize(
    ("exact", "rounded", "doubtful"),
    [
        ([1.0, 0.0], [0.9, 0.1], False),  # Stands by 1, and rounding moved it by 0.1.
        ([0.3, 0.0], [0.2, 0.0], True),
        ([0.3, 0.0], [-0.1, 0.0], True),  # What it is taken for by rounding alone.
        ([0.0, 0.3], [0.0, 0.3], False),  # Fell.
        ([0.3, 0.0], [0.3, 0.0], False),
        ([0.3, 0.0], [torch.nan, 0.0], True),  # Who searched there saw nothing.
        ([torch.nan, 0.0], [0.3, 0.0], False),  # No answer, no stand.
    ],
)
def test_images_are_in_doubt_that_stand_by_less_than_rounding_moves_a_few_logits(exact, rounded, doubtful):
    found = defender.in_doubt(torch.tensor([exact]), torch.tensor([rounded]), torch.tensor([0]))
    assert found.tolist() == [doubtful]


class Coarse(nn.Module):
    """`Threshold` with logits that are rounded to halves."""

    def forward(self, x):
        return (Threshold()(x) * 2).round() / 2


def test_an_image_that_a_coarse_network_saved_is_searched_again(images, labels, monkeypatch):
    seen = []

    def to_the_edge(f, x, y, rng):
        """Goes as far as it sees the logits move, or across where it sees them well."""
        seen.append((type(f).__name__, len(x)))
        return 1 - x if isinstance(f, Threshold) else nearly

    f = Threshold()
    nearly = images.clone()
    nearly[:, 0, 0, 0] = torch.where(f(images).argmax(1) == 1, 0.501, 0.499)
    monkeypatch.setattr(defender, "on_engine", lambda *arguments: Coarse())
    report = evaluate(f, images, labels, {"edge": to_the_edge})
    assert seen == [("Coarse", 23), ("Threshold", 23)]
    assert torch.equal(report["edge"].predicted, 1 - report.clean)


def test_what_is_in_doubt_still_is_searched_once_more(images, labels, monkeypatch):
    class Rounded(nn.Module):
        def __init__(self, f, engine, *_):
            super().__init__()
            self.unit = {"bfloat16": 0.5, "tf32": 0.05}[engine.precision]

        def forward(self, x):
            return (Threshold()(x) / self.unit).round() * self.unit

    seen, stand_by = [], torch.tensor([0.3, 0.012, 0.0013])[torch.arange(23) % 3]

    def to_the_edge(f, x, y, rng):
        """Leaves images standing by so much; where it sees the logits as they are, it goes across."""
        seen.append((getattr(f, "unit", 0), len(x)))
        rows = (x.flatten(1)[:, None] == images.flatten(1)).all(2).float().argmax(1)
        point, by = x.clone(), stand_by[rows] if isinstance(f, Rounded) else -stand_by[rows]
        point[:, 0, 0, 0] = torch.where(y == 1, 0.5 + by, 0.5 - by)
        return point

    engines = *(Engine(precision=each, folded=True) for each in ("bfloat16", "tf32")), Engine()
    on_engines(monkeypatch, auto=engines)
    monkeypatch.setattr(defender, "on_engine", Rounded)
    report = evaluate(Threshold(), images, labels, {"edge": to_the_edge})
    fell = report["edge"].predicted != report.clean
    assert seen == [(0.5, 23), (0.05, 15), (0, 7)]
    assert torch.equal(fell, torch.arange(23) % 3 == 2)


def test_a_report_says_how_it_was_searched_and_is_used_again_for_that_alone(network, pictures, classes):
    first = evaluate(network, pictures, classes, {"fgsm": fgsm(eps=0.1)})
    assert first["fgsm"].precision == "float32"
    assert loads(first.dumps())["fgsm"].precision == "float32"
    of_old = first.dumps().replace('"precision": "float32",', "")
    assert loads(of_old)["fgsm"].precision == "float32"
    fast = replace(first, attacks=(replace(first.attacks[0], precision="bfloat16", seconds=7.0),))
    assert "searched in bfloat16" in fast.table().replace("\n", " ")
    again = evaluate(network, pictures, classes, {"fgsm": fgsm(eps=0.1)}, previous=fast)
    assert again["fgsm"].precision == "float32"
    assert again["fgsm"].seconds != 7.0


def test_a_gpu_tries_more_points_of_a_search_at_once_and_fewer_of_large_images():
    class OnGPU:
        """Stands for images of a shape on a GPU."""

        is_cuda = True

        def __init__(self, *shape: int) -> None:
            self.shape = shape

        def __getitem__(self, row: int) -> Tensor:
            return torch.empty(self.shape)

    both, small = compound(Grid(), WorstOfK()), OnGPU(3, 32, 32)
    for attack in (grid(), random(), both):
        assert defender.roomy(attack, torch.rand(2, 3, 32, 32)) is attack
    assert defender.roomy(grid(), small).solver.at_once == 8192
    assert defender.roomy(grid(), OnGPU(3, 48, 64)).solver.at_once == 8192 // 3
    assert defender.roomy(grid(), OnGPU(3, 512, 512)).solver.at_once == grid().solver.at_once
    assert [stage.at_once for stage in defender.roomy(both, small).solver.stages] == [8192] * 2
    assert defender.roomy(pgd(), small) == pgd()
    assert defender.roomy(flip, small) is flip


def test_attacks_that_stop_at_the_boundary_are_not_searched_in_bfloat16():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    for attack in (AutoAttack(), DDN(), JSMA()):
        assert defender.precision_for(attack, "auto", gpu) == "tf32"
        assert defender.precision_for(attack, "auto", cpu) == "auto"
        assert defender.precision_for(attack, "bfloat16", gpu) == "bfloat16"
    for attack in (pgd(), grid(), flip):
        assert defender.precision_for(attack, "auto", gpu) == "auto"


class Nameless:
    """An attack of a stranger, without a word on its settings."""

    def __init__(self, move):
        self.move = move

    def __call__(self, f, x, y, rng, /):
        return x + self.move * (1 - 2 * x)


@dataclass(frozen=True)
class Transfer:
    """Another network decides how far images move."""

    source: nn.Module

    def __call__(self, f, x, y, rng, /):
        return moved_by(f, x, y, rng, source=(self.source,))


def moved_by(f, x, y, rng, source):
    move = source[0](x.new_ones(1, 1)) if callable(source[0]) else source[0].mean()
    return (x + torch.as_tensor(move) * (1 - 2 * x)).detach()


def constant(move):
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, move)
    return network


@pytest.mark.parametrize(
    "kind", ["object", "lambda", "function", "network", "network of a function", "tensor", "array"]
)
def test_what_an_attack_found_is_not_reused_where_another_may_have_the_same_words(kind, images, labels):
    def attack(move):
        def moved(f, x, y, rng):
            return x + move * (1 - 2 * x)

        many = torch.zeros(50, 50)
        many[5:45, 5:45] = move * 50 * 50 / 40 / 40
        return {
            "object": Nameless(move),
            "lambda": lambda *given: moved(*given),
            "function": moved,
            "network": Transfer(constant(move)),
            "network of a function": partial(moved_by, source=[constant(move)]),
            "tensor": partial(moved_by, source=(many,)),
            "array": partial(moved_by, source=(many.numpy(),)),
        }[kind]

    first = evaluate(Threshold(), images, labels, {"own": attack(0.0)})
    second = evaluate(Threshold(), images, labels, {"own": attack(1.0)}, previous=loads(first.dumps()))
    assert second.accuracy("own") != first.accuracy("own")
    assert len(second.attacks) == 1


class Scaled(Threshold):
    """The same predictions by other logits."""

    def forward(self, x):
        return 1e-3 * super().forward(x)


def test_what_an_attack_found_on_another_model_with_the_same_weights_is_not_reused(images, labels):
    class Counted:
        calls = 0

        def __repr__(self):
            return "Counted()"

        def __call__(self, f, x, y, rng, /):
            Counted.calls += 1
            return x

    first = evaluate(Threshold(), images, labels, {"own": Counted()})
    evaluate(Threshold(), images, labels, {"own": Counted()}, previous=first)
    assert Counted.calls == 1
    evaluate(Scaled(), images, labels, {"own": Counted()}, previous=first)
    assert Counted.calls == 2


def test_bytes_are_made_fractions_batch_by_batch(monkeypatch, images, labels):
    sizes, whole = [], evaluation.as_float

    def seen(part):
        sizes.append(len(part))
        return whole(part)

    for room in ("unperturbed.evaluation", "unperturbed.inputs"):
        monkeypatch.setattr(f"{room}.as_float", seen)
    evaluate(Threshold(), (255 * images).byte(), labels, {"idle": idle}, batch=5)
    assert max(sizes) == 5


@pytest.mark.parametrize(
    "attacks",
    [pgd(), [pgd()], {"pgd": "pgd"}, {"pgd": pgd}, {"pgd": PGD()}, nn.Sequential(nn.Flatten())],
    ids=["attack", "list", "words", "no parentheses", "solver", "another model"],
)
def test_attacks_that_are_no_dict_of_attacks_are_refused(attacks, images, labels):
    with pytest.raises(
        ValueError, match=r"attacks must be a dict of attacks by name, \{'pgd': attacks.pgd\(\)\}, got"
    ) as refusal:
        evaluate(Threshold(), images, labels, attacks)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("make", [fgsm, pgd, mi_fgsm, cw_linf])
def test_a_radius_of_nothing_changes_nothing(make, images, labels):
    report = evaluate(Threshold(), images, labels, {"attack": make(eps=0.0)})
    assert report.accuracy("attack") == report.accuracy()


class Multiplied(nn.Module):
    """A network whose logits are so many times as large: masked gradients, the same answers."""

    def __init__(self, times, keep) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
        self.kept, self.look_up = keep(times)

    def forward(self, x):
        return self.net(x) * self.look_up(self.kept)


class Config:
    def __init__(self, times) -> None:
        self.inner = {"times": times}


def kept_layer(times):
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, times)
    return [layer], lambda kept: kept[0].weight.item()


KEEPING = {
    "tensor": lambda times: (torch.tensor(times), lambda kept: kept),
    "tensors in a long list": lambda times: ([torch.tensor(times)] * 99, lambda kept: kept[98]),
    "array": lambda times: (np.array([times], dtype=np.float32), lambda kept: float(kept[0])),
    "arguments": lambda times: (Namespace(times=times), lambda kept: kept.times),
    "object of a stranger": lambda times: (Config(times), lambda kept: kept.inner["times"]),
    "layer in a list": kept_layer,
}


@pytest.mark.parametrize("keep", KEEPING.values(), ids=KEEPING)
def test_what_a_model_keeps_unregistered_tells_it_from_another(keep):
    attacks = {"pgd": pgd(eps=0.2)}

    def scaled(times):
        torch.manual_seed(0)
        return Multiplied(times, keep).eval()

    x = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    y = scaled(1.0)(x).argmax(1)
    masked = evaluate(scaled(1e5), x, y, attacks)
    again = evaluate(scaled(1e5), x, y, attacks, previous=masked)
    assert again.attacks[0] is masked.attacks[0], "the same model is not attacked again"
    other = evaluate(scaled(1.0), x, y, attacks, previous=masked)
    assert other.accuracy("pgd") == evaluate(scaled(1.0), x, y, attacks).accuracy("pgd") < masked.accuracy("pgd")


def harmless(f, x, y, rng):
    return x


def test_a_function_that_was_written_anew_under_its_name_is_carried_out_again():
    x, y, f = torch.rand(10, 1, 4, 4), torch.zeros(10).long(), Threshold()
    first = evaluate(f, x, y, {"mine": harmless, "mine in parts": partial(harmless)})
    assert first.accuracy("mine") == first.accuracy()
    anew = FunctionType((lambda f, x, y, rng: 1 - x).__code__, globals(), "harmless")
    anew.__module__, anew.__qualname__ = harmless.__module__, harmless.__qualname__
    again = evaluate(f, x, y, {"mine": anew, "mine in parts": partial(anew)}, previous=first)
    fresh = evaluate(f, x, y, {"mine": anew})
    for name in ("mine", "mine in parts"):
        assert again[name].predicted.equal(fresh["mine"].predicted)
    assert not fresh["mine"].predicted.equal(first["mine"].predicted)


def test_more_classes_than_a_report_can_hold_are_refused():
    class Many(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :1].expand(-1, self.classes)

    f, x, y = Many(), torch.rand(2, 1, 2, 2), torch.tensor([0, 1])
    f.classes = MOST_CLASSES
    found = evaluate(f, x, torch.tensor([0, MOST_CLASSES - 1]), {})
    assert loads(found.dumps()).labels.tolist() == [0, MOST_CLASSES - 1]
    f.classes += 1
    with pytest.raises(ValueError, match=r"tells 32,768 classes apart, a report holds up to 32,767: give it one"):
        evaluate(f, x, y, {})


class Named(nn.BatchNorm2d):
    """A BatchNorm that calls itself as those of some version of PyTorch do."""

    words = "4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True"

    def _get_name(self):
        return "BatchNorm2d"

    def extra_repr(self):
        return self.words


def test_a_model_stays_the_same_however_a_version_of_pytorch_describes_its_batchnorms():
    images, labels = torch.zeros(2, 4, 3, 3), torch.zeros(2).long()

    def subject(words):
        norm = type("Named", (Named,), {"words": words, "__module__": "torch.nn.modules.batchnorm"})(4)
        return fingerprint(nn.Sequential(norm), images, labels, 0, 500)

    old, new, biased = (
        Named.words,
        Named.words.replace("affine=True", "affine=True, bias=True"),
        Named.words.replace("affine=True", "affine=True, bias=False"),
    )
    assert subject(old) == subject(new) != subject(biased)
