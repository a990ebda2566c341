"""The trust card: a zoo of broken classifiers is flagged, honestly trained ones are not."""

import json
import re
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import broken_models as broken
import unperturbed as up
from unperturbed.answers import frozen
from unperturbed.datasets import load
from unperturbed.losses import Against, cross_entropy, margin
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import L2, Blur, Linf, Spatial
from unperturbed.trust import CHECKS, Card, Finding, binarization, examination, trust
from unperturbed.trust import card as card_room
from unperturbed.trust.attacking import convergence, other_loss, silent_success, single_step, sweep
from unperturbed.trust.binarization import Readouts, fit, guessed, last_linear, solved
from unperturbed.trust.check import noticeable
from unperturbed.trust.examination import affordable, affordable_panel
from unperturbed.trust.outputs import company, count_calls, normalized, randomized
from unperturbed.trust.reported import REPORTED, reported_accuracy
from unperturbed.trust.searching import Squares, black_box, denser_grid, noise, transfer
from unperturbed.trust.subject import Connected, Memory, Queries, Reference, Speed, Subject, seconds_of, spread

BALL = Linf(eps=0.15)
TURNS = Spatial(rotation=30.0, translation=1.0)
PIXEL = up.PGD(around=BALL, steps=4, step_size=0.06)
DIGITS = load("digits")


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return DigitsCNN(channels=(8, 16, 16), hidden=128)((1, 8, 8), 10)


def perceptron():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


HONEST = {
    "standard": (network, up.Standard(), 1397),
    "AT": (network, up.AT(solver=PIXEL), 1397),
    "SRT, pixel-wise": (network, up.SRT(solver=PIXEL), 400),
    "SRT, spatial": (network, up.SRT(solver=up.WorstOfK(around=TURNS, k=4)), 400),
    "AT of another architecture": (perceptron, up.AT(solver=PIXEL), 1397),
}


@cache
def honest(name):
    """One of the five honestly trained models, in a second or two."""
    fresh, objective, labeled = HONEST[name]
    x, y = DIGITS.train_images, DIGITS.train_labels
    return up.fit(
        fresh(),
        labeled=(x[:labeled], y[:labeled]),
        unlabeled=x[labeled:],
        objective=objective,
        steps=100,
        batch=64,
        optimizer=up.SGD(rate=up.Cyclic(peak=0.1)),
        device="cpu",
    )


def card_of(f, images=70, **settings):
    settings = {"around": BALL, "device": "cpu", **settings}
    return trust(f, DIGITS.test_images[:images], DIGITS.test_labels[:images], **settings)


def standing_under(f, attack, images=70):
    x, y = DIGITS.test_images[:images], DIGITS.test_labels[:images]
    return up.evaluate(f, x, y, {"attack": attack}, device="cpu").survivors("attack")


def names(findings):
    return {finding.check for finding in findings}


@pytest.fixture
def only(monkeypatch):
    """Has models examined by these checks alone, to which the others would add nothing but time."""

    def chosen(*wanted):
        monkeypatch.setattr(examination, "CHECKS", tuple(check for check in CHECKS if check.name in wanted))

    return chosen


@pytest.mark.parametrize("name", HONEST)
def test_honest_models_raise_no_flag(name):
    longer = (up.attacks.pgd(eps=BALL.eps, steps=100, restarts=5, loss=loss) for loss in (cross_entropy, margin))
    stood = torch.stack([standing_under(honest(name), attack, 100) for attack in longer]).all(0)
    card = card_of(honest(name), images=100, spatial=TURNS, sibling=honest("standard"), stood=stood)
    assert card.passed, card.table()
    assert not card.of("skipped"), card.table()


ZOO = {
    "logits times 1,000": (broken.LoudLogits, {"zero gradients", "other loss"}),
    "quantized input": (broken.QuantizedInput, {"zero gradients", "black box", "binarization"}),
    "gradient cut off": (broken.CutGradient, {"zero gradients", "radius sweep", "binarization"}),
    "gradient of NaN": (broken.Lost, {"zero gradients", "black box", "binarization"}),
    "gradient garbled": (broken.Garbled, {"transfer", "black box", "binarization"}),
    "softmax outputs": (broken.Probabilities, {"logits"}),
    "random noise layer": (broken.Noisy, {"randomized outputs"}),
    "BatchNorm in training mode": (broken.BatchStatistics, {"batch dependence"}),
    "optimization in the forward pass": (broken.Purified, {"dynamic forward"}),
    "detector with a stored answer": (
        lambda f: broken.Detector(f, DIGITS.train_images / 255, DIGITS.train_labels, threshold=0.065),
        {"convergence", "radius sweep"},
    ),
}


@pytest.mark.parametrize("name", ZOO)
def test_every_model_of_the_broken_zoo_is_flagged(name, monkeypatch):
    broken_model, checks = ZOO[name]
    # What is checked later changes nothing for them.
    last = max(place for place, check in enumerate(CHECKS) if check.name in checks)
    monkeypatch.setattr(examination, "CHECKS", CHECKS[: last + 1])
    images = 70 if "binarization" in checks else 45
    card = card_of(broken_model(honest("standard")), images, sibling=honest("AT"))
    assert checks <= names(card.flags), card.table()


@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-25, 1e37])
def test_a_classifier_that_depends_on_chance_or_company_is_flagged_however_large_its_logits_are(scale):
    x, y = DIGITS.test_images[:20] / 255, torch.arange(20) % 10

    class Answering(broken.Wrapped):
        def forward(self, x):
            return scale * self.f(x, (5 * nn.functional.one_hot(y, 10)).repeat(len(x) // 20, 1))

    def checked(check, answer):
        f = Answering(answer)
        settings = {"spatial": None, "sibling": None, "seed": 0, "watcher": None}
        return check(Subject(f=Connected(f), x=x, y=y, classes=10, around=BALL, **settings), torch.arange(20))[0]

    assert checked(randomized, lambda x, right: right + torch.rand(len(x), 10)) == "flag"
    assert checked(company, lambda x, right: right + x.mean()) == "flag"
    assert checked(randomized, lambda x, right: right + x.mean((1, 2, 3)).unsqueeze(1)) == "pass"
    assert checked(company, lambda x, right: right + x.mean((1, 2, 3)).unsqueeze(1)) == "pass"


def test_normalized_logits_have_the_length_one_where_squares_are_none_and_infinite_ones_are_told_apart():
    logits = torch.tensor([[3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0]])
    assert normalized(logits).allclose(torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]))
    one, other = normalized(torch.tensor([[0.0, -torch.inf], [0.0, torch.inf]]))
    assert one.tolist() == [0.0, -1.0]
    assert other.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("ball", [BALL, L2(eps=0.8)])
def test_gradients_none_of_which_is_finite_are_flagged(ball, only):
    only("zero gradients")
    card = card_of(broken.Endless(honest("standard")), 45, around=ball)
    assert card["zero gradients"].verdict == "flag", card.table()


def test_a_grid_that_misses_a_blind_spot_is_flagged(only):
    only("denser grid")
    x = torch.zeros(40, 1, 8, 8)
    x[::2, :, 2:6, 2:6], x[1::2, :, 2:6, 2:6] = 0.2, 0.8
    card = trust(
        broken.BlindSpot(), x, torch.arange(40) % 2, spatial=Spatial(rotation=0.0, translation=1.0), device="cpu"
    )
    assert card["denser grid"].verdict == "flag"
    assert "100.0 % of 40 images stand on the usual grid" in card["denser grid"].figure


def test_an_attack_that_leaves_what_it_found_is_seen():
    memory = Memory(3, torch.device("cpu"))
    y = torch.zeros(3, dtype=torch.long)
    for logits in ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]):
        memory(torch.tensor(logits), y)
    assert memory.fooled.tolist() == [False, True, False]


def test_silent_success_is_flagged_where_the_answer_depends_on_the_count_of_queries():
    card = card_of(broken.Moody(honest("AT of another architecture")), 45, around=Linf(eps=0.01))
    assert card["silent success"].verdict == "flag", card.table()


@pytest.mark.parametrize("scale", [1 / 255, 255.0])
def test_images_of_another_range_are_flagged(scale):
    images = DIGITS.test_images[:45] / 255 * scale
    card = trust(honest("standard"), images, DIGITS.test_labels[:45], around=BALL, device="cpu")
    assert card["input range"].verdict == "flag"
    if scale > 1:
        assert card["black box"].figure == "images outside [0, 1] cannot be attacked"


def test_an_accuracy_that_may_be_chance_is_called_so_and_not_laid_to_the_images_alone(only):
    only("input range")
    poor, good = card_of(perceptron(), images=45), card_of(honest("standard"), images=45)
    assert poor["input range"].verdict == "flag"
    assert "as chance may have it among 10 classes" in poor["input range"].figure
    assert "needs training first, or more test images" in poor["input range"].remedy
    assert "chance" not in good["input range"].figure


def test_an_accuracy_that_one_answer_to_all_has_where_most_images_are_of_one_class_is_flagged(only):
    only("input range")
    images, labels = torch.rand(200, 1, 8, 8), (torch.arange(200) % 10 == 0).long()
    always = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        always[1].bias.copy_(torch.tensor([9.0, 0.0]))
        images[labels == 1, :, 0] = 1.0
    finding = trust(always, images, labels, seconds=10)["input range"]
    assert finding.verdict == "flag"
    assert "90.0 % of 200 images are classified correctly, as one answer to all may be" in finding.figure
    with torch.no_grad():
        always[1].weight[:, :8] += torch.tensor([[-9.0], [9.0]])
        always[1].bias.copy_(torch.tensor([120.0, 0.0]))
    finding = trust(always, images, labels, seconds=10)["input range"]
    assert finding.verdict == "pass", finding.figure


def test_half_precision_is_flagged():
    class Half(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float16))
            self.f = f

        def forward(self, x):
            return self.f(x)

    card = card_of(Half(perceptron()), images=5)
    assert card["input range"].verdict == "flag"
    assert "torch.float16" in card["input range"].figure


def test_early_bound_calls_of_autograd_are_counted():
    from torch.autograd import grad

    def f(x):
        grad(x.square().sum(), x)
        x.square().sum().backward()

    watched = {torch.autograd.grad.__code__, torch.autograd.backward.__code__}
    assert count_calls(watched, f, torch.ones(2, requires_grad=True)) == 2
    assert count_calls(watched, lambda x: x + 1, torch.ones(2)) == 0


def test_the_same_seed_gives_the_same_card_even_of_a_random_model():
    noisy = broken.Noisy(honest("AT of another architecture"))
    torch.manual_seed(1)
    first = card_of(noisy, 45)
    state = torch.random.get_rng_state()
    assert card_of(noisy, 45).findings == first.findings
    assert torch.equal(torch.random.get_rng_state(), state)
    assert card_of(noisy, 45, seed=1).findings != first.findings


def test_points_are_judged_in_float32_as_they_are_searched():
    precisions, f = set(), network()
    f.register_forward_hook(lambda *_: precisions.add(torch.backends.cudnn.allow_tf32))
    assert torch.backends.cudnn.allow_tf32, "what a device would do else"
    trust(f, DIGITS.test_images[:60], DIGITS.test_labels[:60], around=BALL, seconds=5.0)
    assert precisions == {False}


def test_the_model_is_left_as_it_was():
    f = broken.BatchStatistics(network())
    f.train()
    before = {name: value.clone() for name, value in f.state_dict().items()}
    card_of(f, images=20)
    assert f.training
    assert all(parameter.requires_grad for parameter in f.parameters())
    assert all(torch.equal(value, before[name]) for name, value in f.state_dict().items())


def test_checks_for_which_the_time_is_too_short_are_skipped_with_that_reason(monkeypatch):
    monkeypatch.setattr(Subject, "speed", lambda self: Speed(forward=1e-3, gradient=1e-3, warp=0.0))
    card = card_of(honest("AT of another architecture"), 45, seconds=50.0)
    assert card["silent success"].verdict == "pass"
    assert card["black box"].verdict == "skipped"
    assert re.match(
        r"30 images would take about 30 seconds, and a check gets half of the \d+ that are left",
        card["black box"].figure,
    )


def test_a_time_too_short_for_any_attack_is_refused():
    with pytest.raises(
        ValueError, match=r"1e-09 seconds are too few to examine this model: give at least .*30 images"
    ):
        card_of(honest("AT of another architecture"), 45, seconds=1e-9)


def test_too_few_correct_images_are_said():
    card = card_of(honest("AT of another architecture"), images=10)
    assert card.passed
    assert 0 < card.seconds < 100
    assert card["convergence"].figure.endswith("correctly classified images, and at least 30 are needed")
    card = card_of(honest("AT of another architecture"), images=1)
    assert card["convergence"].figure == "1 correctly classified image, and at least 30 are needed"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("four is too few\nfor me"), "four is too few"),
        (ValueError("expected more than 4"), "expected more than 4"),
        (AssertionError(), "AssertionError"),
    ],
    ids=["RuntimeError", "ValueError", "AssertionError"],
)
def test_a_model_that_fails_on_a_batch_does_not_end_the_examination(error, words):
    class Picky(nn.Module):
        def forward(self, x):
            if len(x) == 4:
                raise error
            return perceptron()(x)

    card = card_of(Picky(), images=20)
    assert card["dynamic forward"].verdict == "skipped"
    assert card["dynamic forward"].figure == f"it failed: {words}"


def test_a_sibling_without_a_gradient_does_not_end_the_examination(only):
    only("transfer", "random noise")

    class Cut(nn.Sequential):
        def forward(self, x):
            return super().forward(x.detach())

    card = card_of(honest("AT"), sibling=Cut(perceptron()))
    assert card["transfer"].verdict == "skipped"
    assert card["transfer"].figure.startswith("it failed: the model passes no gradient from its answer to the image")
    assert card["random noise"].verdict == "pass"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"around": TURNS}, "around must be Linf or L2 with a positive eps"),
        ({"around": Linf(eps=0.0)}, "around must be Linf or L2 with a positive eps"),
        ({"around": Blur()}, "give warps as spatial, and search what else has a few parameters, as blur, by attacks"),
        ({"spatial": Spatial}, "spatial must be a neighborhood, as .*, got <class"),
        ({"spatial": Blur()}, "spatial must have a rotation and two shifts as its parameters, .*, got blur <= 1 px"),
        ({"seconds": 0.0}, "seconds must be a positive number"),
        ({"images": 0}, "no image was given"),
        ({"stood": [True] * 70}, "stood must be a tensor, got a list"),
        ({"stood": torch.ones(70)}, "stood must say of each of 70 images .* got torch.float32 of shape "),
        ({"stood": torch.ones(69).bool()}, r"got torch.bool of shape \(69,\)"),
        ({"device": "abacus"}, "there is no device"),
    ],
)
def test_what_cannot_be_examined_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        card_of(perceptron(), **settings)


def test_images_with_nan_are_refused_and_not_laid_to_the_model():
    x = torch.rand(4, 1, 8, 8)
    x[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="images must be finite, got NaN or infinity"):
        trust(perceptron(), x, torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (nn.Identity(), "logits of shape"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "labels must lie in 0 to 2"),
    ],
)
def test_models_that_are_no_classifiers_of_these_images_are_refused(f, message):
    with pytest.raises(ValueError, match=message):
        card_of(f)


def test_a_model_that_answers_a_clean_image_with_nan_is_refused():
    class Silent(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, last = perceptron(), DIGITS.test_images[49:50].float() / 255
            self.register_buffer("last", last)

        def forward(self, x):
            here = ((x - self.last).abs() < 1e-6).flatten(1).all(1)
            return self.f(x).masked_fill(here.unsqueeze(1), torch.nan)

    with pytest.raises(ValueError, match="answers some of these images with NaN"):
        card_of(Silent(), 50)


def test_a_ball_in_l2_is_examined_too():
    card = card_of(honest("AT of another architecture"), 45, around=L2(eps=0.8))
    assert card.passed, card.table()
    assert "at 8 (any image)" in card["radius sweep"].figure


def test_the_card_reads_well_and_fits_into_json():
    found = [
        Finding(
            check=name,
            verdict=verdict,
            figure=f"{name} [x] on as many images as the title has room for",
            why="Because.",
            remedy="Do.",
        )
        for name, verdict in {"first": "pass", "second": "flag", "third": "skipped"}.items()
    ]
    card = Card(findings=tuple(found), seed=3, seconds=1.5, images=9, provenance={"torch": "2"})
    assert not card.passed
    assert names(card.flags) == {"second"}
    table = card.table()
    assert "trust: 1 flagged, 1 passed, 1 skipped; 9 images, 2 seconds" in table
    assert "second: Because. Do." in table
    assert "first: " not in table
    assert "second [x]" in table
    assert json.loads(json.dumps(card.plain()))["flags"] == ["second"]
    for seconds in ("NaN", "Infinity", "-1"):
        with pytest.raises(
            ValueError, match=r"mine.json is no trust card that can be read .9 images in .* seconds can"
        ):
            card_room.loads(json.dumps(card.plain()).replace('"seconds": 1.5', f'"seconds": {seconds}'), "mine.json")
    with pytest.raises(KeyError, match="no check 'fourth' on this card, which has first, second, third"):
        card["fourth"]


def test_every_check_says_why_it_matters_and_what_to_do():
    assert len(names_of_checks := [check.name for check in CHECKS]) == len(set(names_of_checks)) == 17
    for check in CHECKS:
        assert check.why.endswith(".")
        assert check.remedy.endswith(".")
        assert check.fewest <= check.most


@pytest.mark.parametrize(
    ("count", "images", "points", "expected"),
    [(2, 10, 0.5, False), (3, 100, 1.0, True), (3, 500, 0.5, False), (6, 500, 0.5, True), (20, 100, 25.0, False)],
)
def test_a_count_is_noticeable_beyond_its_noise(count, images, points, expected):
    assert noticeable(count, images, points) is expected


def test_images_are_evenly_spaced():
    assert spread(4, 10).tolist() == [0, 2, 5, 7]
    assert spread(3, 3).tolist() == [0, 1, 2]


def test_a_check_gets_as_many_images_as_half_of_the_time_allows():
    check = next(check for check in CHECKS if check.name == "binarization")
    speed = Speed(forward=1.0, gradient=0.0, warp=0.0)
    each = speed.seconds(check.queries)
    assert affordable(check, 1_000, 2_000 * each, speed) == 512
    assert affordable(check, 1_000, 2 * 300 * each, speed) == 256
    assert affordable(check, 100, 2 * 99 * each, speed) == 64
    assert affordable(check, 1_000, 2 * 63 * each, speed) == 0
    assert Speed(forward=1.0, gradient=2.0, warp=4.0).seconds(Queries(forwards=1, gradients=1, warps=1)) == 8.0


def test_a_query_takes_as_long_as_the_shortest_of_three_after_one_to_warm_up(monkeypatch):
    clock = iter([0.0, 0.5, 1.0, 4.0, 5.0, 6.0, 7.0, 9.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert seconds_of(lambda: torch.zeros(2)) == 1.0
    assert not list(clock)
    assert Speed(forward=1.0, gradient=1.0, warp=1.0).seconds(Queries()) == 0


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.name != "input range"], ids=lambda check: check.name
)
def test_a_check_asks_f_about_each_image_as_often_as_it_says(check, rng):
    asked, f = [], nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).eval()
    with torch.no_grad():
        f[3].bias += torch.tensor([9.0, 0.0])
    f.register_forward_hook(lambda module, args, output: asked.append(len(args[0])))
    ball = Linf(eps=1e-3)
    settings = {"sibling": f, "spatial": Spatial(rotation=1.0, translation=0.1), "seed": 0, "watcher": None}
    x = torch.rand(16, 1, 4, 4, generator=rng)
    subject = Subject(f=Connected(f), x=x, y=torch.zeros(16).long(), classes=2, around=ball, **settings)
    if check.name != "silent success":
        subject.reference  # noqa: B018 - It is what the first check asks for.
    asked.clear()
    check.measure(subject, torch.arange(16))
    assert sum(asked) / 16 == pytest.approx(sum(check.queries), rel=0.1, abs=2)


def test_an_attack_solves_the_tests_whose_plane_it_can_reach_and_points_at_random_the_easy_ones(rng):
    x, ball = torch.full((4, 1, 2, 2), 0.5), Linf(eps=0.1)
    weight = torch.tensor([[1.0, -2.0, 3.0, 4.0]] * 3 + [[1.0, 0.0, 0.0, 0.0]])
    reach = torch.tensor([0.99, 1.01, 0.0, 0.05])  # Of 0.1 in each pixel a sum of 1 comes, and of 0.1 in one 0.1.
    readouts = Readouts(lambda images: images.flatten(1), weight, -(weight * 0.5).sum(1) - reach)
    assert readouts.score(x).allclose(-reach, atol=1e-6)
    rows = torch.tensor([3, 0])
    assert readouts.score(x[rows], rows).allclose(-reach[rows], atol=1e-6)
    assert readouts.loss(x[rows], rows).allclose((1 + (-2 * reach[rows]).exp()).log())
    assert solved(readouts, ball, x, rng).tolist() == [True, False, True, True]
    by_chance = guessed(Readouts(readouts.features, weight, readouts.bias - 1e-6), ball, x, rng)
    assert by_chance[1:].tolist() == [False, True, True], "what lies farther than any corner is hit by none"
    assert not solved(readouts, Linf(eps=0.04), x, rng)[3]


@pytest.mark.parametrize(
    ("fitted", "by_attack", "by_chance", "verdict", "figure"),
    [
        (79, 79, 0, "skipped", "features of only 79 of 100 images tell a boundary point from inner ones"),
        (80, 66, 10, "flag", "of 80 tests that .* PGD with 5 restarts solves 82.5 %, 200 random points solve 12.5 %"),
        (80, 67, 10, "pass", "of 80 tests that .* PGD with 5 restarts solves 83.8 %, 200 random points solve 12.5 %"),
    ],
)
def test_the_binarization_test_counts_what_is_solved(
    fitted, by_attack, by_chance, verdict, figure, under, monkeypatch
):
    def first(count):
        return lambda readouts, around, x, rng: torch.arange(len(x)) < count

    left, columns = iter(range(100)), (torch.zeros(10), torch.tensor(0.0))
    monkeypatch.setattr(binarization, "fit", lambda *_: columns if next(left) < fitted else None)
    monkeypatch.setattr(binarization, "solved", first(by_attack))
    monkeypatch.setattr(binarization, "guessed", first(by_chance))
    found = binarization.binarization(under(), torch.arange(100))
    assert found[0] == verdict
    assert re.search(figure, found[1]), found[1]


@pytest.mark.parametrize("ball", [Linf(eps=0.1), L2(eps=0.5)], ids=str)
def test_random_search_with_squares_stays_in_the_ball_and_fools_without_gradients(ball, rng):
    f = honest("standard")
    x, y = DIGITS.test_images[:40] / 255, DIGITS.test_labels[:40]
    with frozen(f):
        loss = Against(margin, f, y)
        found = Squares(within=ball)(f, x, y, rng)
        again = Squares(within=ball)(f, x, y, torch.Generator().manual_seed(0))
        assert ball.contains(x, found).all()
        assert torch.equal(found, again)
        drawn = up.WorstOfK(around=ball, k=1000)(loss, x, rng)
        assert (loss(found) > 0).sum() > (loss(drawn) > 0).sum() + 3


def test_the_last_linear_layer_is_found_by_running():
    f = perceptron()
    assert last_linear(f, torch.rand(1, 1, 8, 8)) is f[-1]
    assert last_linear(nn.Flatten(), torch.rand(1, 1, 8, 8)) is None
    tokens = nn.Sequential(nn.Flatten(2), nn.Linear(64, 3), nn.Flatten())
    assert last_linear(tokens, torch.rand(1, 1, 8, 8)) is None


def test_features_too_narrow_for_the_binarization_test_are_said():
    f = nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.ReLU(), nn.Linear(2, 10))
    x = DIGITS.test_images[:70]
    card = trust(f, x, f(x / 255).argmax(1), around=BALL, device="cpu")
    assert card["binarization"].verdict == "skipped"
    assert "tell a boundary point from inner ones" in card["binarization"].figure


class Scripted(Subject):
    """100 images under attacks that leave as many of the first ones as a test says."""

    def survivors(self, attack, rows, name):
        self.attacks[name] = attack
        return rows[rows < self.left[name]]


@pytest.fixture
def under():
    def make(silent=0, **left):
        f = Connected(nn.Sequential(nn.Flatten(), nn.Linear(4, 10)))
        settings = {
            "classes": 10,
            "around": Linf(eps=0.1),
            "spatial": TURNS,
            "sibling": f,
            "seed": 0,
            "watcher": None,
        }
        subject = Scripted(f=f, x=torch.rand(100, 1, 2, 2), y=torch.zeros(100).long(), **settings)
        subject.unbroken = torch.arange(100) < 60
        subject.fallen = ~subject.unbroken
        subject.reference = Reference(stands=subject.unbroken.clone(), silent=torch.arange(100) < silent)
        subject.attacks = {}
        subject.left = {name.replace("_", " "): count for name, count in left.items()}
        return subject

    return make


SWEPT = {
    f"PGD within Linf {eps}": left for eps, left in {0.025: 90, 0.05: 80, 0.2: 40, 0.4: 20, 0.8: 12, 1: 12}.items()
}
GRID, DENSE, DRAWN = "GridAdv", "GridAdv, twice as dense", "RandAdv"


@pytest.mark.parametrize(
    ("check", "left", "verdict", "figure"),
    [
        (silent_success, {"silent": 3}, "flag", "PGD broke 40 of 100 images, and 3 more on its way without"),
        (silent_success, {"silent": 2}, "pass", "PGD broke 40 of 100 images, and 2 more on its way without"),
        (single_step, {"FGSM": 57}, "flag", "one step breaks 3 of 100 images that 20 steps do not"),
        (single_step, {"FGSM": 58}, "pass", "one step breaks 2 of 100 images that 20 steps do not"),
        (
            other_loss,
            {"PGD on the margin": 50},
            "flag",
            "60.0 % stand under cross-entropy and 50.0 % under the margin",
        ),
        (
            other_loss,
            {"PGD on the margin": 51},
            "pass",
            "60.0 % stand under cross-entropy and 51.0 % under the margin",
        ),
        (
            convergence,
            {"PGD with more steps": 55, "PGD with more restarts": 50},
            "flag",
            "60.0 % of 100 images stand after 20 steps; 100 steps break 5 more, 5 restarts 10 more",
        ),
        (
            convergence,
            {"PGD with more steps": 50, "PGD with more restarts": 55},
            "flag",
            "break 10 more, 5 restarts 5",
        ),
        (
            convergence,
            {"PGD with more steps": 51, "PGD with more restarts": 51},
            "pass",
            "break 9 more, 5 restarts 9",
        ),
        (
            sweep,
            SWEPT,
            "pass",
            "100 at 0, 90 at 0.025, 80 at 0.05, 60 at 0.1, 40 at 0.2, 20 at 0.4, 12 at 0.8, 12 at 1",
        ),
        (sweep, SWEPT | {"PGD within Linf 0.2": 64}, "pass", "60 at 0.1, 64 at 0.2"),
        (sweep, SWEPT | {"PGD within Linf 0.2": 63, "PGD within Linf 0.4": 66}, "flag", "at 0.1, 63 at 0.2, 66 at"),
        (sweep, SWEPT | {"PGD within Linf 0.8": 20, "PGD within Linf 1": 20}, "flag", "20 at 1 (any image)"),
        (
            transfer,
            {"PGD on the sibling": 55},
            "flag",
            "break 5 of 100 images, 60 of which stood under all white-box",
        ),
        (
            transfer,
            {"PGD on the sibling": 56},
            "pass",
            "break 4 of 100 images, 60 of which stood under all white-box",
        ),
        (noise, {"random noise": 57}, "flag", "1,000 random points each break 3 of 100 images, 60 of which stood"),
        (noise, {"random noise": 58}, "pass", "1,000 random points each break 2 of 100 images, 60 of which stood"),
        (black_box, {"Square": 55}, "flag", "with 1,000 queries breaks 5 of 100 images, 60 of which stood"),
        (black_box, {"Square": 56}, "pass", "with 1,000 queries breaks 4 of 100 images, 60 of which stood"),
        (
            denser_grid,
            {GRID: 70, DENSE: 65, DRAWN: 69},
            "flag",
            "70.0 % of 100 images .* breaks 5 .* 1,000 .* 1 more",
        ),
        (
            denser_grid,
            {GRID: 70, DENSE: 69, DRAWN: 65},
            "flag",
            "70.0 % of 100 images .* breaks 1 .* 1,000 .* 5 more",
        ),
        (
            denser_grid,
            {GRID: 70, DENSE: 66, DRAWN: 66},
            "pass",
            "70.0 % of 100 images .* breaks 4 .* 1,000 .* 4 more",
        ),
    ],
)
def test_a_check_counts_what_an_attack_breaks_and_is_flagged_beyond_its_share(check, left, verdict, figure, under):
    found = check(under(**left), torch.arange(100))
    assert found[0] == verdict
    assert re.search(figure.replace("(", r"\(").replace(")", r"\)"), found[1]), found[1]


def test_checks_attack_as_long_and_as_wide_as_their_names_say(under):
    names = ["FGSM", "PGD on the margin", "PGD with more steps", "PGD with more restarts", "PGD on the sibling"]
    subject = under(**dict.fromkeys([*names, "random noise", "Square", GRID, DENSE, DRAWN], 50))
    for check in (single_step, other_loss, convergence, transfer, noise, black_box, denser_grid):
        check(subject, torch.arange(100))
    assert {name: attack.budget for name, attack in subject.attacks.items()} == {
        "FGSM": "one step",
        "PGD on the margin": "Linf 0.1, 20 steps of 0.0125",
        "PGD with more steps": "Linf 0.1, 100 steps of 0.0025",
        "PGD with more restarts": "Linf 0.1, 20 steps of 0.0125, 4 restarts",
        "PGD on the sibling": "Linf 0.1, 20 steps of 0.0125",
        "random noise": "Linf 0.1, 1000 draws",
        "Square": "Linf 0.1, 1,000 queries",
        GRID: "<= 30 degrees, <= 1 px, grid of 31 x 5 x 5",
        DENSE: "<= 30 degrees, <= 1 px, grid of 61 x 9 x 9",
        DRAWN: "<= 30 degrees, <= 1 px, 1000 draws",
    }
    losses = [attack.loss for name, attack in subject.attacks.items() if "PGD" in name and "sibling" not in name]
    assert losses == [margin, cross_entropy, cross_entropy]
    assert subject.attacks["FGSM"].solver == up.FGSM(around=Linf(eps=0.1), step=1.0, start="identity")


def test_a_sweep_ends_at_the_radius_that_holds_every_image(under):
    subject = under(**{f"PGD within L2 {eps}": 50 for eps in (0.125, 0.25, 1, 2)})
    subject.around = L2(eps=0.5)
    verdict, figure = sweep(subject, torch.arange(100))
    assert figure.endswith("100 at 0, 50 at 0.125, 50 at 0.25, 60 at 0.5, 50 at 1, 50 at 2 (any image)")
    assert verdict == "flag"


def test_checks_that_lack_a_sibling_or_a_spatial_neighborhood_are_skipped(under):
    subject = under()
    subject.sibling = subject.spatial = None
    assert transfer(subject, torch.arange(100))[1].startswith("no sibling was given: a model of the same task")
    assert denser_grid(subject, torch.arange(100)) == ("skipped", "no spatial neighborhood was given")


def test_what_a_white_box_attack_breaks_is_no_find_of_a_black_box(under):
    subject = under(FGSM=50, Square=45, PGD_on_the_sibling=30)
    subject.left["GridAdv"] = subject.left["GridAdv, twice as dense"] = subject.left["RandAdv"] = 10
    rows = torch.arange(20, 100)
    denser_grid(subject, rows)
    assert "breaks 15 of 80 images, 40 of which" in black_box(subject, rows)[1], "a warp is no change within the ball"
    single_step(subject, rows)
    assert "breaks 5 of 80 images, 30 of which" in black_box(subject, rows)[1]
    assert "break 20 of 80 images, 30 of which" in transfer(subject, rows)[1]
    assert subject.unbroken.nonzero().flatten().tolist() == list(range(50))


@pytest.mark.parametrize(("fallen", "verdict"), [(5, "flag"), (4, "pass")])
def test_an_evaluation_is_flagged_that_leaves_what_attacks_of_the_card_have_broken(fallen, verdict, under):
    subject = under()
    assert reported_accuracy(subject, torch.arange(100))[0] == "skipped"
    subject.stood, subject.fallen = torch.arange(100) < 60, torch.arange(100) >= 60 - fallen
    found = "60.0 % of 100 images stand under the attacks of the evaluation; those of this card break {} of them"
    assert reported_accuracy(subject, torch.arange(100)) == (verdict, found.format(fallen))


def test_what_falls_within_the_ball_is_held_against_the_evaluation_and_nothing_else(only):
    f = honest("standard")
    weak, strong = (standing_under(f, up.attacks.pgd(eps=eps, steps=20)) for eps in (0.01, 0.15))
    only("silent success", "radius sweep", "denser grid", "reported accuracy")
    for stood, verdict in ((weak, "flag"), (strong, "pass")):
        card = card_of(f, spatial=TURNS, stood=stood)
        assert card["reported accuracy"].verdict == verdict, card.table()
    only("denser grid", "reported accuracy")
    everywhere = torch.ones(70).bool()
    assert card_of(f, spatial=TURNS, stood=everywhere)["reported accuracy"].figure.endswith("break 0 of them")


def test_verdicts_of_all_images_are_looked_up_for_those_that_are_examined(only, monkeypatch):
    monkeypatch.setattr(examination, "MOST_IMAGES", 35)
    only("reported accuracy")
    every_other = torch.arange(70) % 2 == 0  # Just those that are examined of 70.
    figure = card_of(honest("standard"), stood=every_other)["reported accuracy"].figure
    assert re.match(r"100\.0 % of 3\d images stand under", figure), figure


def test_the_time_that_an_examination_asks_for_is_enough(under):
    subject, speed = under(), Speed(forward=0.0, gradient=1e-3, warp=0.0)
    subject.panel = torch.arange(60)
    with pytest.raises(ValueError, match=r"1 seconds are too few to examine this model: give at least 1\.2,"):
        affordable_panel(subject, speed, time.perf_counter(), 1.0)
    assert affordable_panel(subject, speed, time.perf_counter(), 1.3).tolist() == list(range(0, 60, 2))
    subject.panel = torch.arange(29)
    assert len(affordable_panel(subject, speed, time.perf_counter(), 1.0)) == 29


def test_what_asks_the_model_nothing_is_checked_also_where_no_time_is_left():
    speed, rows = Speed(forward=1.0, gradient=1.0, warp=1.0), 60
    assert affordable(REPORTED, rows, -1.0, speed) == rows
    assert affordable(replace(REPORTED, queries=Queries(forwards=1)), rows, -1.0, speed) == 0


@pytest.mark.parametrize("ball", [Linf(eps=0.1), L2(eps=0.2)], ids=str)
def test_a_readout_tells_a_boundary_point_from_inner_points_as_fisher_does(ball, rng):
    seen, x = [], 0.2 + 0.6 * torch.rand(1, 4, 4, generator=rng)

    def features(images):
        seen.append(images)
        return images.flatten(1).tanh()

    weight, bias = fit(features, ball, x, rng)
    (images,) = seen
    distances = ball.distance(x.unsqueeze(0), images - x)
    assert distances[0] == 0
    torch.testing.assert_close(distances[1:-1], torch.full((998,), 0.95))
    assert distances[-1].item() == pytest.approx(1)
    assert len(images) == 1000
    points = features(images)
    scores = points @ weight + bias
    assert scores[-1].item() == pytest.approx(1, abs=1e-4)
    assert scores[:-1].max().item() == pytest.approx(-1, abs=1e-4)
    inner, outer = points[:-1].double().numpy(), points[-1].double().numpy()
    covariance = np.cov(inner.T, bias=True)
    ridge = 0.3 * covariance.trace() / len(covariance) * np.eye(len(covariance))
    direction = np.linalg.solve(covariance + ridge, outer - inner.mean(0))
    cosine = direction @ weight.double().numpy() / np.linalg.norm(direction) / weight.norm().item()
    assert cosine == pytest.approx(1)
