"""L0, MomentumPGD, DDN and JSMA against laws, closed forms, slow twins and Foolbox."""

import warnings
from dataclasses import replace
from itertools import combinations
from math import inf, nan

import pytest
import torch
from torch import nn

import small_networks
from reference import attacks as slow
from small_networks import predicted
from tiny import seeded
from unperturbed.attacks import DDN, JSMA, Attack, Bounded, MinimumNorm, Pointwise, cw_linf, mi_fgsm, pgd
from unperturbed.attacks.jsma import Walks, contenders, most_salient_pair
from unperturbed.datasets import load
from unperturbed.losses import Against, cross_entropy, margin
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import L0, L2, Linf, Neighborhood, Spatial, changed_pixels
from unperturbed.solvers import MomentumPGD, Solver

ATTACKS = {
    "DDN": DDN(steps=20),
    "DDN in bytes": DDN(steps=20, levels=256),
    "JSMA": JSMA(pixels=10),
    "JSMA to the next": JSMA(pixels=10, target="next"),
    "JSMA to any": JSMA(pixels=10, target="random"),
    "darkening JSMA": JSMA(pixels=10, theta=-0.5),
    "MI-FGSM": mi_fgsm(eps=0.1, steps=5),
    "C&W in Linf": cw_linf(eps=0.1, steps=5, restarts=2),
}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
SMALLEST = {name: attack for name, attack in ATTACKS.items() if isinstance(attack, MinimumNorm)}
every_smallest = pytest.mark.parametrize("attack", SMALLEST.values(), ids=SMALLEST)


def network(classes=3, channels=1):
    return small_networks.network(classes, (channels, 6, 6)).double()


@pytest.fixture
def f():
    return network()


@pytest.fixture
def x(rng):
    return torch.rand(12, 1, 6, 6, generator=rng, dtype=torch.float64)


@pytest.fixture
def y(f, x):
    return predicted(f, x)


@pytest.fixture(scope="module")
def digits():
    """A network trained on 8x8 digits for a second or two, and images it gets right."""
    data, rng = load("digits"), seeded()
    images, labels = data.train_images.float() / 255, data.train_labels
    with torch.random.fork_rng():
        torch.manual_seed(0)
        f = DigitsCNN(channels=(8, 16, 16), hidden=32)((1, 8, 8), 10)
    optimizer = torch.optim.Adam(f.parameters(), lr=0.01)
    for _ in range(80):
        rows = torch.randint(len(images), (100,), generator=rng)
        optimizer.zero_grad()
        cross_entropy(f(images[rows]), labels[rows]).mean().backward()
        optimizer.step()
    x, y = data.test_images[:150].float() / 255, data.test_labels[:150]
    right = predicted(f.eval(), x) == y
    assert right.float().mean() > 0.9
    return f, x[right], y[right]


@pytest.fixture(params=[(5, 1, 6, 6), (4, 3, 7, 4)], ids=["gray", "color"])
def images(request, rng):
    return (torch.rand(request.param, generator=rng, dtype=torch.float64) * 1.4 - 0.2).clamp(0, 1)


@pytest.mark.parametrize("pixels", [0, 1, 6, 1000])
def test_l0_obeys_the_laws_of_a_neighborhood(pixels, images, rng):
    around, still = L0(pixels=pixels), torch.zeros_like(images)
    assert isinstance(around, Neighborhood)
    assert torch.equal(around.transform(images, around.identity(images)), images)
    assert (around.distance(images, around.identity(images)) == 0).all()
    anywhere = 40 * torch.randn(images.shape, generator=rng, dtype=images.dtype)
    for theta in (around.sample(images, rng), around.project(images, anywhere)):
        assert (changed_pixels(theta) <= pixels).all()
        assert around.contains(images, around.transform(images, theta)).all()
        torch.testing.assert_close(around.project(images, theta), theta, rtol=0, atol=1e-6)
        smaller = around.scaled(0.5).project(images, theta)
        assert (around.distance(images, smaller) <= 0.5).all()
    assert torch.equal(around.direction(still), still)


def test_l0_counts_a_pixel_once_however_many_channels_change():
    theta = torch.zeros(3, 3, 2, 2)
    theta[1, :, 0, 0] = 0.1
    theta[2, 0, 0, 0], theta[2, 1, 1, 1], theta[2, 2, 0, 1] = 0.1, -0.1, 1e-7
    assert changed_pixels(theta).tolist() == [0, 1, 2]
    assert L0(pixels=2).distance(theta, theta).tolist() == [0, 0.5, 1]
    assert L0(pixels=1).contains(torch.full_like(theta, 0.5), 0.5 + theta).tolist() == [True, True, False]
    assert L0(pixels=0).distance(theta, theta).tolist() == [0, inf, inf]


def test_no_choice_of_pixels_is_closer_than_the_projection_on_l0(rng):
    x = torch.rand(20, 2, 2, 2, generator=rng)
    theta = torch.randn(x.shape, generator=rng)
    distance = (L0(pixels=2).project(x, theta) - theta).flatten(1).norm(dim=1)
    for kept in combinations(range(4), 2):
        mask = torch.zeros(4).index_fill(0, torch.tensor(kept), 1).view(2, 2)
        other = mask * ((x + theta).clamp(0, 1) - x)
        assert (distance <= (other - theta).flatten(1).norm(dim=1) + 1e-6).all()


@pytest.mark.parametrize("value", [nan, 1.5, -0.5])
def test_l0_contains_images_alone(value):
    x = torch.full((2, 1, 3, 3), 0.5)
    perturbed = x.clone()
    perturbed[1, 0, 2, 2] = value
    assert L0(pixels=3).contains(x, perturbed).tolist() == [True, False]


def test_l0_is_scaled_in_whole_pixels_rounded_down():
    assert [L0(pixels=20).scaled(share).pixels for share in (0, 0.04, 0.29, 0.5, 1, 2)] == [0, 0, 5, 10, 20, 40]
    assert L0(pixels=100).scaled(0.29) == L0(pixels=29)
    assert (str(L0(pixels=20)), str(L0(pixels=1))) == ("L0 20 pixels", "L0 1 pixel")


@pytest.mark.parametrize("pixels", [-1, 2.5, nan])
def test_l0_refuses_what_is_no_number_of_pixels(pixels):
    with pytest.raises(ValueError, match=rf"L0.pixels must be a whole number of at least 0, got {pixels}"):
        L0(pixels=pixels)
    with pytest.raises(ValueError, match="at least 0"):
        L0().scaled(-1)


def slow_momentum(f, image, label, *, eps, alpha, steps, decay):
    """MI-FGSM for one image as Dong et al. write it."""
    momentum, perturbed = torch.zeros_like(image), image.clone()
    for _ in range(steps):
        leaf = perturbed.clone().requires_grad_()
        z = f(leaf.unsqueeze(0))[0]
        (gradient,) = torch.autograd.grad(torch.log(z.exp().sum()) - z[label], leaf)
        momentum = decay * momentum + gradient / sum(abs(g) for g in gradient.flatten().tolist())
        perturbed = (perturbed + alpha * momentum.sign()).clamp(image - eps, image + eps).clamp(0, 1)
    return perturbed


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_momentum_pgd_is_its_slow_twin(decay, f, x, y):
    f.eval()
    solver = MomentumPGD(around=Linf(eps=0.1), steps=8, step_size=0.03, decay=decay)
    found = solver(Against(cross_entropy, f, y), x, seeded())
    assert isinstance(solver, Solver)
    for i, label in enumerate(y.tolist()):
        twin = slow_momentum(f, x[i], label, eps=0.1, alpha=0.03, steps=8, decay=decay)
        torch.testing.assert_close(found[i], twin, rtol=0, atol=1e-9)


def test_momentum_pgd_starts_where_it_is_told(x):
    asked = []

    def loss(images):
        asked.append(images.detach() - x)
        return images.flatten(1).sum(1)

    for start in ("identity", "normal", "uniform"):
        MomentumPGD(around=Linf(eps=0.1), steps=1, start=start)(loss, x, seeded())
    at_x, near_x, anywhere = (change.abs().amax().item() for change in asked)
    assert at_x == 0 < near_x < 0.01 < 0.05 < anywhere <= 0.1 + 1e-9


@pytest.mark.parametrize("around", [Linf(eps=0.1), L2(eps=0.5), Spatial()], ids=str)
def test_momentum_depends_on_no_scale_of_the_loss(around, f, x, y):
    f.eval()
    loss = Against(cross_entropy, f, y)
    solver = MomentumPGD(around=around, steps=4, step_size=0.05)
    found = solver(loss, x, seeded())
    torch.testing.assert_close(solver(lambda images: 1e-30 * loss(images), x, seeded()), found)
    assert loss(found).mean() > loss(x).mean()


def test_a_gradient_that_vanishes_once_stops_no_image_and_gives_no_nan(x):
    calls = []

    def loss(images):
        calls.append(len(images))
        return (images if len(calls) != 2 else 0 * images).flatten(1).sum(1)

    found = MomentumPGD(around=Linf(eps=0.5), steps=3, step_size=0.1)(loss, x, seeded())
    torch.testing.assert_close(found, (x + 0.3).clamp(0, 1))
    flat = MomentumPGD(around=Linf(eps=0.5), steps=3, step_size=0.1)
    assert torch.equal(flat(lambda images: 0 * images.flatten(1).sum(1), x, seeded()), x)


def test_cw_in_linf_is_pgd_on_the_margin(f, x, y):
    attack = cw_linf(eps=0.1, steps=4, step_size=0.05, restarts=2)
    plain = pgd(eps=0.1, steps=4, step_size=0.05, restarts=2, loss=margin)
    assert torch.equal(attack(f, x, y, seeded()), plain(f, x, y, seeded()))
    assert attack.budget == "Linf 0.1, 4 steps of 0.05, 2 restarts, margin loss"
    assert mi_fgsm(eps=0.3, steps=10).budget == "Linf 0.3, 10 steps of 0.03"


@every_attack
def test_an_attack_leaves_the_classifier_and_the_images_as_they_were(attack, f, x, y):
    f[0].weight.requires_grad_(False)
    f[1].eval()
    before, kept = {name: value.clone() for name, value in f.state_dict().items()}, x.clone()
    with torch.no_grad():
        found = attack(f, x, y, seeded())
    assert torch.equal(found, attack(f, x, y, seeded()))
    assert (found.shape, found.dtype, found.requires_grad) == (x.shape, x.dtype, False)
    assert torch.equal(x, kept)
    assert f.training
    assert not f[1].training
    assert [p.requires_grad for p in f.parameters()] == [False, True, True, True, True, True]
    assert all(p.grad is None for p in f.parameters())
    assert all(torch.equal(value, before[name]) for name, value in f.state_dict().items())


@every_attack
def test_an_attack_says_what_it_keeps_to(attack):
    typed: Attack = attack
    assert isinstance(typed, Bounded)
    assert str(attack.within) in attack.budget
    assert replace(attack) == attack


@every_smallest
def test_what_changed_fools_and_what_is_wrong_already_or_cannot_be_fooled_stays(attack, f, x, y):
    wrong = torch.arange(len(x)) % 3 == 0
    labels = torch.where(wrong, (y + 1) % 3, y)
    found = attack(f, x, labels, seeded())
    changed = attack.size(x, found) > 0
    assert torch.equal(changed, (predicted(f, found) != labels) & ~wrong)
    assert changed.any()
    stubborn = nn.Sequential(nn.Flatten(), nn.Linear(36, 3)).double()
    nn.init.zeros_(stubborn[1].weight)
    assert torch.equal(attack(stubborn, x, predicted(stubborn, x), seeded()), x)
    assert attack(f, x[:0], y[:0], seeded()).shape == (0, 1, 6, 6)


def test_ddn_goes_step_by_step_where_its_slow_twin_goes(f, x, y):
    means = {"steps": 20, "gamma": 0.1, "init_norm": 0.5}
    found = DDN(**means)(f, x, y, seeded())
    theirs = torch.stack([slow.ddn(f.eval(), image, target, **means) for image, target in zip(x, y, strict=True)])
    assert (theirs != x).flatten(1).any(1).all()
    torch.testing.assert_close(found, theirs, rtol=0, atol=1e-6)


def test_ddn_comes_as_close_as_the_plane_that_divides_two_classes(rng):
    x = 0.4 + 0.2 * torch.rand(12, 1, 6, 6, generator=rng, dtype=torch.float64)
    line = nn.Sequential(nn.Flatten(), nn.Linear(36, 2, bias=False)).double()
    with torch.no_grad():
        # A plane closer to x than the sphere can shrink in all its steps, to 0.95^100, would be out of reach.
        line[1].weight.normal_(generator=rng)
        difference = line(x)[:, 1] - line(x)[:, 0]
        plane = difference.abs() / (line[1].weight[1] - line[1].weight[0]).norm()
    size = DDN().size(x, DDN()(line, x, predicted(line, x), seeded()))
    assert (size >= plane).all()
    torch.testing.assert_close(size, plane, rtol=0.02, atol=1e-4)


def test_ddn_finds_changes_as_small_as_the_one_of_foolbox(digits):
    f, x, y = digits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        foolbox = pytest.importorskip("foolbox")
        model = foolbox.PyTorchModel(f, bounds=(0, 1), device="cpu")
        _, oracle, success = foolbox.attacks.DDNAttack()(model, x, y, epsilons=None)
    found = DDN()(f, x, y, seeded())
    assert success.all()
    assert (predicted(f, found) != y).all()
    ours, theirs = (DDN().size(x, points).median().item() for points in (found, oracle))
    assert ours == pytest.approx(theirs, rel=0.01)


def test_ddn_in_bytes_returns_bytes_at_hardly_a_higher_price(digits):
    f, x, y = digits
    plain, rounded = DDN(steps=50), DDN(steps=50, levels=256)
    found = rounded(f, x, y, seeded())
    torch.testing.assert_close(255 * found, (255 * found).round(), rtol=0, atol=1e-4)
    price = rounded.size(x, found).median() / plain.size(x, plain(f, x, y, seeded())).median()
    assert 0.98 < price < 1.05


def test_a_classifier_that_is_sure_of_itself_does_not_stop_ddn(digits):
    f, x, y = digits
    sure = nn.Sequential(f, nn.Linear(10, 10, bias=False)).eval()
    sure[1].weight.data.copy_(100 * torch.eye(10))
    x, y = x[:60], y[:60]
    modest, loud = (DDN().size(x, DDN()(g, x, y, seeded())).median().item() for g in (f, sure))
    assert loud == pytest.approx(modest, rel=0.1)


def salience(rise, fall, pair):
    rises, falls = (sum(slope[i].item() for i in pair) for slope in (rise, fall))
    return rises * falls if rises > 0 and falls > 0 else -inf


def slow_pair(rise, fall):
    """The best of all d (d - 1) / 2 pairs, and where none is salient the two of the largest rise + fall."""
    allowed = [i for i, slope in enumerate(rise.tolist()) if slope > -inf]
    best = max(combinations(allowed, 2), key=lambda pair: salience(rise, fall, pair))
    if salience(rise, fall, best) > -inf:
        return best
    return tuple(sorted(sorted(allowed, key=lambda i: (rise[i] + fall[i]).item())[-2:]))


def slopes_of(kind, rng, shape=(20, 40)):
    rise, fall = torch.randn(2, *shape, generator=rng, dtype=torch.float64)
    if kind == "with a trade-off":
        fall = 0.1 * fall - rise
    elif kind == "rarely salient":
        rise, fall = rise - 1.5, fall - 1.5
    elif kind == "never salient":
        rise = -rise.abs()
    elif kind == "with ties":
        rise, fall = rise.round(), fall.round()
    elif kind == "at odds":
        fall = 0.3 - rise
    forbidden = torch.rand(shape, generator=rng) < 0.3
    return rise.masked_fill(forbidden, -inf), fall.masked_fill(forbidden, -inf)


@pytest.mark.parametrize(
    "kind", ["independent", "with a trade-off", "rarely salient", "never salient", "with ties", "at odds"]
)
def test_the_pruned_search_finds_the_best_of_all_pairs(kind, rng):
    rise, fall = slopes_of(kind, rng)
    pairs = most_salient_pair(rise, fall)
    for up, down, pair in zip(rise, fall, pairs.tolist(), strict=True):
        expected = slow_pair(up, down)
        if kind == "with ties":
            assert salience(up, down, pair) == salience(up, down, expected)
        else:
            assert tuple(sorted(pair)) == expected


def test_where_no_pair_is_salient_features_move_that_have_room():
    x = torch.tensor([1.0, 0.2, 0.3, 0.4]).view(1, 1, 2, 2)
    walks, full = Walks(torch.tensor([0]), torch.tensor([1]), x), torch.tensor([False])
    rise, fall = torch.tensor([[9.0, -1.0, -2.0, -3.0], [9.0, -1.0, -1.0, -1.0]]).split(1)
    moved = JSMA().advanced(walks, x, full, rise, fall).point
    assert torch.equal(moved.flatten(), torch.tensor([1.0, 1.0, 1.0, 0.4]))


def test_few_features_of_many_are_contenders_for_the_best_pair(rng):
    rise, fall = torch.randn(2, 50, 3072, generator=rng)
    assert contenders(rise, fall)[0].shape[1] < 60
    rows = torch.full((2, 6), 1.0)
    assert contenders(rows, rows)[0].tolist() == [[0, 1], [0, 1]]


def slow_jsma(f, image, label, target, *, pixels, theta):
    """One image, one target, the whole Jacobian, every pair; once enough pixels are changed, of these alone."""
    point = image.clone().flatten()

    def logits(values):
        return f(values.view(1, *image.shape))[0]

    def changed():
        return (point.view_as(image) != image).any(0)

    for _ in range(pixels * len(image) // 2):
        if logits(point).argmax() != label or changed().sum() > pixels:
            break
        jacobian = theta * torch.autograd.functional.jacobian(logits, point)
        others = sum(row for i, row in enumerate(jacobian) if i != target)
        stuck = (1 - point if theta > 0 else point) <= 0.01
        if changed().sum() == pixels:
            stuck |= ~changed().expand_as(image).flatten()
        if (~stuck).sum() < 2:
            break
        pair = slow_pair(jacobian[target].masked_fill(stuck, -inf), (-others).masked_fill(stuck, -inf))
        for i in pair:
            point[i] = (point[i] + theta).clamp(0, 1)
    fooled = logits(point).argmax() != label and changed().sum() <= pixels
    return point.view_as(image) if fooled else image


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("theta", [1.0, 0.3, -1.0])
def test_jsma_is_its_slow_twin(theta, channels, rng):
    f, x = network(4, channels).eval(), torch.rand(4, channels, 6, 6, generator=rng, dtype=torch.float64)
    y = predicted(f, x)
    found = JSMA(pixels=8, theta=theta, target="next")(f, x, y, seeded())
    twins = [slow_jsma(f, x[i], y[i], (y[i] + 1) % 4, pixels=8, theta=theta) for i in range(len(x))]
    torch.testing.assert_close(found, torch.stack(twins), rtol=0, atol=1e-12)
    assert (found != x).any()


def gray(f):
    """The same classifier of the same pictures, stored in color."""
    return torch.nn.Sequential(Averaged(), f).eval()


class Averaged(torch.nn.Module):
    def forward(self, x):
        return x.mean(1, keepdim=True)


@pytest.mark.parametrize("attack", [JSMA(pixels=4), Pointwise(pixels=1)], ids=["JSMA", "Pointwise"])
def test_pictures_stored_in_color_stand_no_better_against_as_many_pixels(attack, rng):
    f, x = network(4, 1).eval(), torch.rand(60, 1, 6, 6, generator=rng, dtype=torch.float64)
    y, color = predicted(f, x), x.expand(-1, 3, -1, -1).contiguous()
    fooled = [
        (predicted(g, found) != y) & attack.within.contains(images, found)
        for g, images in ((f, x), (gray(f), color))
        for found in (attack(g, images, y, seeded()),)
    ]
    assert fooled[0].any()
    assert not fooled[0].all()
    assert fooled[1].sum() >= fooled[0].sum() - 1


@pytest.mark.parametrize("theta", [1.0, 0.3])
def test_with_all_targets_the_smallest_change_of_any_target_wins(theta, rng):
    f, x = network(4).eval(), torch.rand(8, 1, 6, 6, generator=rng, dtype=torch.float64)
    y, attack = predicted(f, x), JSMA(pixels=8, theta=theta)
    found = attack(f, x, y, seeded())
    for i in range(len(x)):
        twins = [slow_jsma(f, x[i], y[i], (y[i] + k) % 4, pixels=8, theta=theta) for k in (1, 2, 3)]
        sizes = [size for twin in twins if (size := changed_pixels((twin - x[i]).unsqueeze(0)).item())]
        assert attack.size(x, found)[i].item() == min(sizes, default=0)


def test_jsma_treats_each_image_as_if_it_were_alone(f, x, y):
    attack = JSMA(pixels=10)
    alone = [attack(f, x[i : i + 1], y[i : i + 1], seeded()) for i in range(len(x))]
    torch.testing.assert_close(attack(f, x, y, seeded()), torch.cat(alone))


def test_jsma_stops_where_nothing_is_left_to_move(f, rng):
    white = torch.ones(2, 1, 6, 6, dtype=torch.float64)
    assert torch.equal(JSMA(pixels=10)(f, white, predicted(f, white), rng), white)


@pytest.mark.parametrize(
    ("kind", "wrong", "sentence"),
    [
        (DDN, {"gamma": 1.0}, "DDN.gamma must lie between 0 and 1, got 1.0"),
        (DDN, {"eps": 0.0}, "DDN.eps must be a positive number, got 0.0"),
        (DDN, {"steps": 0}, "DDN.steps must be at least 1, got 0"),
        (DDN, {"levels": 1}, "DDN.levels must be at least 2, or None for any value, got 1"),
        (JSMA, {"pixels": 1}, "JSMA.pixels must be at least 2, since pixels change in pairs, got 1"),
        (JSMA, {"pixels": 2.5}, "JSMA.pixels must be a whole number, got 2.5"),
        (JSMA, {"theta": 0.0}, "JSMA.theta must lie between 0.01 and 1 or between -1 and -0.01, got 0.0"),
        (JSMA, {"target": "none"}, "JSMA.target must be all, next or random, got 'none'"),
        (MomentumPGD, {"decay": -1.0}, "MomentumPGD.decay must be a finite number of at least 0, got -1.0"),
        (MomentumPGD, {"step_size": nan}, "MomentumPGD.step_size must be a positive number, got nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(kind, wrong, sentence):
    with pytest.raises(ValueError) as error:
        kind(**wrong)
    assert str(error.value) == sentence
