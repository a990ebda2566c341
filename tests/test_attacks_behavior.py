"""C&W, Pointwise and AutoAttack behave as attacks should, and find what foolbox finds."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from reference import attacks as slow
from small_networks import network, predicted
from tiny import seeded
from unperturbed.answers import frozen
from unperturbed.attacks import (
    DDN,
    JSMA,
    Attack,
    AutoAttack,
    Bounded,
    CarliniWagnerL2,
    MinimumNorm,
    Pointwise,
    cw_linf,
    fgsm,
    grid,
    jsma,
    mi_fgsm,
    pgd,
    random,
)
from unperturbed.attacks.autoattack import NAMES
from unperturbed.attacks.pointwise import peppered, taken_back
from unperturbed.attacks.searched import FoolingFirst
from unperturbed.evaluation import evaluate
from unperturbed.losses import cross_entropy, margin
from unperturbed.neighborhoods import L2
from unperturbed.report import loads
from unperturbed.risks import NO_CLASS, decided

CW = CarliniWagnerL2(searches=4, steps=40, step_size=0.05, first_c=1.0)
POINTWISE = Pointwise(pixels=20, noises=40, restarts=2)
SMALLEST = {"C&W": CW, "Pointwise": POINTWISE}
ATTACKS = {
    **SMALLEST,
    "AutoAttack": AutoAttack(eps=0.06, parts=("apgd-ce", "apgd-t")),
    "AutoAttack in L2": AutoAttack(eps=0.3, norm="L2", parts=("apgd-dlr", "fab-t")),
}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
both_smallest = pytest.mark.parametrize("attack", SMALLEST.values(), ids=SMALLEST)


def stubborn(classes=4):
    """A classifier that says the same of every image."""
    f = nn.Sequential(nn.Flatten(), nn.Linear(36, classes))
    nn.init.zeros_(f[1].weight)
    return f


@pytest.fixture
def f():
    return network()


@pytest.fixture
def x(rng):
    return torch.rand(8, 1, 6, 6, generator=rng)


@pytest.fixture
def y(f, x):
    return predicted(f, x)


@every_attack
def test_an_attack_leaves_everything_as_it_was(attack, f, x, y, caplog, capsys):
    f[0].weight.requires_grad_(False)
    f[1].eval()
    weights, images = {name: value.clone() for name, value in f.state_dict().items()}, x.clone()
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    found = attack(f, x, y, seeded())
    assert torch.equal(found, attack(f, x, y, seeded()))
    assert (found.shape, found.dtype, found.requires_grad) == (x.shape, x.dtype, False)
    assert torch.equal(x, images)
    assert (f.training, f[1].training) == (True, False)
    assert [p.requires_grad for p in f.parameters()] == [False, True, True, True, True, True]
    assert all(p.grad is None for p in f.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in f.state_dict().items())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert capsys.readouterr() == ("", "")
    assert not caplog.records


@every_attack
def test_an_attack_fools_some_leaves_wrong_ones_alone_and_keeps_to_images(attack, f, x, y):
    wrong = torch.arange(len(x)) % 3 == 0
    labels = torch.where(wrong, (y + 1) % 4, y)
    found = attack(f, x, labels, seeded())
    changed = (found != x).flatten(1).any(1)
    assert torch.equal(changed, (predicted(f, found) != labels) & ~wrong)
    assert changed.any()
    assert found.min() >= 0
    assert found.max() <= 1
    if not isinstance(attack, MinimumNorm):
        assert attack.within.contains(x, found).all()


@every_attack
def test_with_nobody_left_to_fool_or_nobody_at_all_x_comes_back(attack, f, x, y):
    assert torch.equal(attack(f, x, (y + 1) % 4, seeded()), x)
    assert attack(f, x[:0], y[:0], seeded()).shape == (0, 1, 6, 6)


class Roots(nn.Module):
    """A network that sees the roots of pixels, whose slopes are infinite at black ones."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = network()

    def forward(self, x):
        return self.rest(x.sqrt())


@pytest.mark.parametrize(
    "attack",
    [
        pgd(eps=1.0, norm=L2),
        mi_fgsm(eps=0.1),
        DDN(eps=1.0),
        AutoAttack(eps=1.0, norm="L2", parts=("apgd-ce",)),
        AutoAttack(eps=1.0, norm="L2", parts=("fab-t",)),
        AutoAttack(eps=0.1, parts=("fab-t",)),
    ],
    ids=["PGD in L2", "MI-FGSM", "DDN", "APGD in L2", "FAB in L2", "FAB in Linf"],
)
def test_infinite_slopes_at_black_pixels_stop_no_attack(attack, x):
    x[:, :, ::2] = 0
    f = Roots()
    report = evaluate(f, x, predicted(f, x), {"it": attack}, device="cpu")
    assert report["it"].rejected == 0
    assert report.accuracy("it") <= 0.5


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32])
@pytest.mark.parametrize("attack", [*ATTACKS.values(), DDN(), JSMA(pixels=4)], ids=[*ATTACKS, "DDN", "JSMA"])
def test_labels_of_any_integer_type_do(attack, kind, rng):
    f, x = nn.Sequential(nn.AvgPool2d(3), network()), torch.rand(4, 1, 18, 18, generator=rng)
    y = predicted(f, x)
    assert torch.equal(attack(f, x, y.to(kind), seeded()), attack(f, x, y, seeded()))


@both_smallest
def test_an_image_that_cannot_be_fooled_comes_back_and_not_black(attack, x):
    f = stubborn()
    assert torch.equal(attack(f, x, predicted(f, x), seeded()), x)


@every_attack
def test_an_attack_says_what_it_keeps_to_and_can_be_evaluated(attack, f, x, y):
    typed: Attack = attack
    assert isinstance(typed, Bounded)
    assert str(attack.within) in attack.budget
    report = evaluate(f, x, y, {"it": attack}, batch=4, device="cpu")
    assert report.accuracy("it") < 1
    assert report["it"].budget == attack.budget


def test_cw_finds_changes_about_as_small_as_ddn(f, x, y):
    attack = replace(CW, searches=6, steps=150)
    found = attack(f, x, y, seeded())
    ours = DDN().size(x, DDN()(f, x, y, seeded()))
    assert (predicted(f, found) != y).all()
    assert attack.size(x, found).median().item() == pytest.approx(ours.median().item(), rel=0.1)


def test_cw_finds_what_foolbox_finds(rng):
    foolbox = pytest.importorskip("foolbox")
    f, x = network().eval().requires_grad_(False), torch.rand(40, 1, 6, 6, generator=rng)
    y, settings = predicted(f, x), {"steps": 60, "initial_const": 0.5}
    theirs = foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=5, stepsize=0.02, **settings)
    model = foolbox.PyTorchModel(f, bounds=(0, 1), device="cpu")
    ours = CarliniWagnerL2(searches=5, steps=60, step_size=0.02, first_c=0.5)
    found, peer = ours(f, x, y, seeded()), theirs.run(model, x, y)
    fooled = predicted(f, found) != y
    assert torch.equal(fooled, predicted(f, peer) != y)
    assert fooled.any()
    assert torch.allclose(ours.size(x, found)[fooled], ours.size(x, peer)[fooled], rtol=0.02)


@pytest.mark.parametrize("steps", [7, 40])
def test_cw_goes_step_by_step_where_its_slow_twin_goes(steps, f, x):
    f, x = f.double(), x[:2].double()
    y, means = predicted(f, x), {"searches": 4, "steps": steps, "step_size": 0.03, "first_c": 0.02}
    with frozen(f):
        for image, target in zip(x, y, strict=True):
            found = CarliniWagnerL2(**means)(f, image.unsqueeze(0), target.view(1), seeded())[0]
            expected = slow.carlini_wagner(f, image, target, **means)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        assert (CarliniWagnerL2(**means)(f, x, y, seeded()) != x).any()


def test_cw_raises_the_price_of_failing_until_an_image_falls(f, x, y):
    attacks = [CarliniWagnerL2(searches=count, steps=60, step_size=0.05, first_c=1e-5) for count in (1, 7)]
    once, often = ((predicted(f, attack(f, x, y, seeded())) != y).sum() for attack in attacks)
    assert once < len(x)
    assert often == len(x)


class Torn(nn.Module):
    """A network that has no answer to images close to one, though it has one to that image itself."""

    def __init__(self, rest, image) -> None:
        super().__init__()
        self.rest, self.image = rest, image

    def forward(self, x):
        far = (x - self.image).square().sum((1, 2, 3), keepdim=True).flatten(1)
        return self.rest(x).masked_fill((far > 0) & (far < 0.5), torch.nan)


def test_an_image_without_an_answer_on_its_way_stops_cw_for_no_other(f, x, y):
    attack = CarliniWagnerL2(searches=3, steps=100, step_size=0.01, first_c=1.0)
    found, others = attack(Torn(f, x[:1]), x, y, seeded()), attack(f, x[1:], y[1:], seeded())
    assert (decided(Torn(f, x[:1])(found)) == NO_CLASS).tolist() == [True, *[False] * 7]
    assert torch.allclose(found[1:], others, atol=1e-3)


class Unsure(nn.Module):
    """A network that has an answer to these images alone, and NaN for all others."""

    def __init__(self, rest, images) -> None:
        super().__init__()
        self.rest, self.images = rest, images

    def forward(self, x):
        known = (x.flatten(1).unsqueeze(1) == self.images.flatten(1)).all(2).any(1, keepdim=True)
        return self.rest(x).masked_fill(~known, torch.nan)


FINDERS = {
    **ATTACKS,
    **{part: AutoAttack(parts=(part,)) for part in NAMES},
    "FGSM": fgsm(),
    "PGD": pgd(steps=3, restarts=2),
    "C&W in Linf": cw_linf(steps=3),
    "MI-FGSM": mi_fgsm(steps=3),
    "RandAdv": random(draws=2),
    "GridAdv": grid(points=(3, 1, 1)),
    "DDN": DDN(steps=3),
    "JSMA": JSMA(),
}


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("attack", FINDERS.values(), ids=FINDERS)
def test_points_are_of_the_type_of_the_images_whatever_torch_would_take(attack, f, x, y):
    f.float()
    assert attack(f, x.float(), y, seeded()).dtype == torch.float32


@pytest.mark.parametrize("attack", FINDERS.values(), ids=FINDERS)
def test_logits_may_have_more_digits_than_images(attack, f, x, y):
    class Precise(nn.Sequential):
        def forward(self, x):
            return super().forward(x).double()

    assert attack(Precise(f), x, y, seeded()).dtype == torch.float32


@pytest.mark.parametrize("attack", FINDERS.values(), ids=FINDERS)
def test_a_network_may_begin_in_place_where_that_leaves_images_as_they_are(attack, f, x, y):
    class InPlace(nn.Sequential):
        def forward(self, x):
            return super().forward(x.clamp_(0, 1))

    assert torch.equal(attack(InPlace(f), x, y, seeded()), attack(f, x, y, seeded()))


@pytest.mark.parametrize("attack", FINDERS.values(), ids=FINDERS)
def test_an_image_of_one_gray_pixel_is_one(attack, y):
    f, x = nn.Sequential(nn.Flatten(), nn.Linear(1, 4)), torch.rand(8, 1, 1, 1)
    found = attack(f, x, y, seeded())
    assert found.shape == x.shape
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("attack", FINDERS.values(), ids=FINDERS)
def test_a_point_without_an_answer_fools_whatever_the_class(attack, f, x, y):
    assert (y == 0).any(), "the class that NaN looks like"
    report = evaluate(Unsure(f, x), x, y, {"attack": attack})
    assert report.accuracy() == 1
    assert report.accuracy("attack") == 0
    assert (report["attack"].predicted == NO_CLASS).all()
    assert report.summary()["attacks"][0]["unanswered"] == len(x)
    assert "(8 answered with NaN)" in " ".join(report.table(width=500).split())
    assert loads(report.dumps())["attack"].predicted.equal(report["attack"].predicted)


def test_cw_stops_where_the_loss_has_stopped_to_fall(f, x, y):
    asked = []
    f.register_forward_hook(lambda module, args, output: asked.append(len(args[0])))
    CarliniWagnerL2(searches=1, steps=4000, step_size=0.1, first_c=1.0)(f, x, y, seeded())
    assert set(asked) == {len(x)}
    assert (len(asked) - 1) % 400 == 0
    assert 400 < len(asked) < 4000


def test_the_least_noise_that_fools_is_taken_for_a_start(f, x, y):
    with frozen(f):
        noisy, fooling = peppered(f, x, y, 50, seeded())
        same = stubborn()
        _, none = peppered(same, x, predicted(same, x), 5, seeded())
    assert torch.equal(fooling, predicted(f, noisy) != y)
    assert fooling.any()
    assert not none.any()
    changed = noisy != x
    assert ((noisy == 0) | (noisy == 1))[changed].all()
    assert changed[fooling].float().mean() < 0.5


def test_salt_and_pepper_are_as_frequent_as_each_other():
    gray, right = torch.full((4, 1, 8, 8), 0.5), torch.zeros(4, dtype=torch.long)
    noisy, _ = peppered(lambda x: torch.tensor([[0.0, 1.0]]).expand(len(x), 2), gray, right, 1, seeded())
    assert noisy.unique().tolist() == [0.0, 1.0]
    assert 0.4 < noisy.mean() < 0.6


@pytest.mark.parametrize("channels", [1, 3])
def test_no_pixel_that_pointwise_changed_can_be_taken_back(channels, rng):
    f, x = network(shape=(channels, 6, 6)), torch.rand(5, channels, 6, 6, generator=rng)
    y = predicted(f, x)
    found = POINTWISE(f, x, y, seeded())
    assert (predicted(f, found) != y).any()
    for i in (predicted(f, found) != y).nonzero().flatten().tolist():
        for row, column in (found[i] != x[i]).any(0).nonzero().tolist():
            back = found[i].clone()
            back[:, row, column] = x[i][:, row, column]
            assert predicted(f, back.unsqueeze(0)) == y[i]


def test_points_are_taken_back_one_at_a_time_and_nobody_waits_for_the_longest_image():
    asked = []

    class Sum(torch.nn.Module):
        """Says 1 where at least three points are white, else 0."""

        def forward(self, images):
            asked.append(len(images))
            return torch.stack([torch.full((len(images),), 2.5), images.flatten(1).sum(1)], 1)

    noisy = torch.zeros(3, 1, 6, 6)
    for image, white in zip(noisy, (30, 3, 5), strict=True):
        image.view(-1)[:white] = 1
    x, y = torch.zeros_like(noisy), torch.zeros(3).long()
    found = taken_back(Sum(), x, y, noisy, seeded())
    assert found.flatten(1).sum(1).tolist() == [3, 3, 3]
    assert ((found == 0) | (found == noisy)).all()
    assert asked == [3] * 3 + [2] * 2 + [1] * 25 + [2] * 3, "a round each of 30, 5 and 3 points, and one to make sure"
    assert not torch.equal(found, taken_back(Sum(), x, y, noisy, seeded(1)))


def test_pointwise_changes_as_few_points_as_foolbox_does(f, rng, monkeypatch):
    foolbox = pytest.importorskip("foolbox")

    x = torch.rand(60, 1, 6, 6, generator=rng)
    y = predicted(f, x)
    noisy = torch.where(torch.rand(x.shape, generator=seeded()) < 0.9, (x < 0.5).float(), x)
    fooling = predicted(f, noisy) != y
    x, y, noisy = x[fooling], y[fooling], noisy[fooling]
    theirs = foolbox.attacks.PointwiseAttack(l2_binary_search=False)
    monkeypatch.setattr(np.random, "permutation", np.random.RandomState(0).permutation)
    with torch.no_grad():
        model = foolbox.PyTorchModel(f.eval(), bounds=(0, 1), device="cpu")
        counts = [
            (found != x).flatten(1).sum(1).double().mean().item()
            for found in (theirs.run(model, x, y, starting_points=noisy), taken_back(f, x, y, noisy, seeded()))
        ]
    assert len(x) > 30
    assert counts[1] == pytest.approx(counts[0], rel=0.2)


def test_more_restarts_of_pointwise_never_change_more_pixels(f, x, y):
    sizes = [POINTWISE.size(x, replace(POINTWISE, restarts=n)(f, x, y, seeded())) for n in (1, 4)]
    assert (sizes[1] <= sizes[0]).all()
    assert (sizes[1] < sizes[0]).any()


@pytest.mark.parametrize(
    ("kind", "wrong", "sentence"),
    [
        (CarliniWagnerL2, {"searches": 0}, "CarliniWagnerL2.searches must be at least 1, got 0"),
        (CarliniWagnerL2, {"first_c": 0.0}, "CarliniWagnerL2.first_c must be a positive number, got 0.0"),
        (Pointwise, {"pixels": 0}, "Pointwise.pixels must be at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(kind, wrong, sentence):
    with pytest.raises(ValueError) as error:
        kind(**wrong)
    assert str(error.value) == sentence


def test_jsma_walks_from_about_as_many_points_at_a_time_as_it_has_images(rng, monkeypatch):
    x, walks, choose = torch.rand(12, 1, 4, 4, generator=rng), [], jsma.most_salient_pair

    def counted(up, down):
        walks.append(len(up))
        return choose(up, down)

    monkeypatch.setattr(jsma, "most_salient_pair", counted)
    f = nn.Sequential(nn.Flatten(), nn.Linear(16, 6)).eval()
    y = f(x).argmax(1)
    found = jsma.JSMA(pixels=4)(f, x, y, rng)
    assert 5 <= max(walks) <= 12
    alone = torch.cat([jsma.JSMA(pixels=4)(f, x[[row]], y[[row]], rng) for row in range(12)])
    assert torch.equal(found, alone)


def shortfall(logits, target):
    """How far the logit of the target lies below the mean of all."""
    return logits.mean(1) - logits.gather(1, target.unsqueeze(1)).squeeze(1)


@pytest.mark.parametrize("loss", [cross_entropy, margin, shortfall])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_whatever_the_loss_a_point_that_fools_comes_before_any_that_does_not(loss, scale, rng):
    logits = (scale * torch.randn(500, 4, generator=rng)).requires_grad_()
    y = torch.randint(4, (500,), generator=rng)
    plain, shown = loss(logits, y), FoolingFirst(loss)(logits, y)
    fooled = logits.argmax(1) != y
    assert shown[fooled].min() > shown[~fooled].max()
    slopes, same = (torch.autograd.grad(value.sum(), logits)[0] for value in (plain, shown))
    assert torch.equal(same, slopes)
    if loss is not shortfall:
        assert torch.equal(shown, plain + 32 * fooled)


class Overflowing(nn.Module):
    """A network in half precision, whose logits are infinite where the mean of an image is 0.03 or more from 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3e6))

    def forward(self, x):
        ahead = (x.flatten(1).mean(1) - 0.5) * self.scale
        return torch.stack([-ahead, ahead], 1).half()


def test_a_restart_that_fools_by_an_infinite_logit_counts():
    f, x = Overflowing(), torch.full((100, 1, 2, 2), 0.485)
    y = f(x).argmax(1)
    once, often = (pgd(eps=0.6, restarts=count)(f, x, y, seeded()) for count in (1, 5))
    fooled = [(decided(f(found)) != y) for found in (once, often)]
    assert f(often)[fooled[1]].isinf().any()
    assert fooled[0].sum() < 60 < 90 < fooled[1].sum()


@pytest.mark.parametrize("loss", [cross_entropy, margin])
def test_points_of_infinite_logits_have_a_place_among_the_others(loss):
    logits = torch.tensor([[torch.inf, 0.0], [torch.inf, -torch.inf], [1.0, 0.0], [0.0, torch.inf]])
    shown = FoolingFirst(loss)(logits, torch.tensor([1, 1, 0, 1]))
    assert shown[:2].min() >= 32
    assert shown[2:].max() <= 16
