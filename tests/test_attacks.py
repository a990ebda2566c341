"""Attacks against closed forms, brute force and Foolbox."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from itertools import product
from threading import Barrier

import pytest
import torch
from torch import nn

from small_networks import network, predicted
from tiny import seeded
from unperturbed.answers import frozen
from unperturbed.attacks import (
    DDN,
    JSMA,
    Attack,
    Bounded,
    Searched,
    compound,
    cw_linf,
    fgsm,
    grid,
    mi_fgsm,
    pgd,
    random,
)
from unperturbed.losses import cross_entropy, margin
from unperturbed.neighborhoods import L2, Blur, Color, Linf, Spatial
from unperturbed.recipes.budgets import Budget
from unperturbed.solvers import PGD, Strongest

TURNS = Spatial(rotation=30.0, translation=0.0)
SHIFTS = Spatial(rotation=0.0, translation=2.0)
BOTH = Spatial(rotation=25.0, translation=2.0)
ATTACKS = {
    "fgsm": fgsm(eps=0.1),
    "pgd": pgd(eps=0.1, steps=5),
    "pgd with restarts": pgd(eps=0.1, steps=3, restarts=3),
    "pgd on the margin": pgd(eps=0.1, steps=3, loss=margin),
    "pgd in L2": pgd(eps=1.0, steps=5, norm=L2),
    "mi-fgsm": mi_fgsm(eps=0.1, steps=4),
    "c&w in Linf": cw_linf(eps=0.1, steps=3),
    "random": random(BOTH, draws=4),
    "random in Linf": random(Linf(eps=0.1), draws=4),
    "random shifts": random(SHIFTS, draws=4),
    "random turns": random(TURNS, draws=4),
    "grid": grid(BOTH, points=(5, 3, 3)),
    "grid of shifts": grid(SHIFTS, points=(1, 5, 5)),
    "grid of turns": grid(TURNS, points=(7, 1, 1)),
}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


@pytest.fixture
def x(rng):
    return torch.rand(24, 1, 6, 6, generator=rng, dtype=torch.float64)


@pytest.fixture
def f():
    """A small classifier of three classes that is far from linear, left in training mode."""
    return network(classes=3).double()


@pytest.fixture
def y(f, x):
    return predicted(f, x)


@pytest.fixture
def line(rng):
    """A linear classifier of two classes, which x in [0.3, 0.7] and eps = 0.1 never leave [0, 1] under."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64))
    return network


@pytest.fixture
def inner(rng):
    return 0.3 + 0.4 * torch.rand(24, 1, 6, 6, generator=rng, dtype=torch.float64)


@torch.no_grad()
def loss_at(f, x, y, loss=cross_entropy):
    mode = f.training
    value = loss(f.eval()(x), y)
    f.train(mode)
    return value


def uphill(line, y):
    """The direction in which the loss of a linear classifier of two classes grows, for each image."""
    difference = line[1].weight[1 - y] - line[1].weight[y]
    return difference.detach().view(-1, 1, 6, 6)


def test_fgsm_reaches_the_corner_of_the_ball_on_a_linear_classifier(line, inner):
    y = predicted(line, inner)
    found = fgsm(eps=0.1)(line, inner, y, seeded())
    torch.testing.assert_close(found, inner + 0.1 * uphill(line, y).sign())


def test_fgsm_takes_one_step_from_x_itself_and_needs_no_random_numbers(f, x, y):
    first, second = (fgsm(eps=0.1)(f, x, y, seeded(seed)) for seed in (0, 1))
    assert torch.equal(first, second)
    image = x.clone().requires_grad_()
    cross_entropy(f.eval()(image), y).sum().backward()
    torch.testing.assert_close(first, (x + 0.1 * image.grad.sign()).clamp(0, 1))


def test_pgd_reaches_the_corner_of_the_ball_on_a_linear_classifier(line, inner):
    y = predicted(line, inner)
    found = pgd(eps=0.1, steps=20)(line, inner, y, seeded())
    torch.testing.assert_close(found, inner + 0.1 * uphill(line, y).sign())


def test_pgd_in_l2_goes_along_the_gradient_to_the_edge_on_a_linear_classifier(line, inner):
    y = predicted(line, inner)
    found = pgd(eps=0.2, steps=60, step_size=0.05, norm=L2)(line, inner, y, seeded())
    direction = uphill(line, y)
    farthest = inner + 0.2 * direction / direction.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    torch.testing.assert_close(found, farthest, atol=1e-6, rtol=0)
    torch.testing.assert_close((found - inner).flatten(1).norm(dim=1), torch.full((24,), 0.2).double())


def test_pgd_is_at_least_as_strong_as_fgsm_on_every_image_of_a_linear_classifier(line, inner):
    y = predicted(line, inner)
    strong, weak = (attack(line, inner, y, seeded()) for attack in (pgd(eps=0.1), fgsm(eps=0.1)))
    assert (loss_at(line, strong, y) >= loss_at(line, weak, y) - 1e-9).all()


def test_threads_that_attack_one_frozen_model_find_what_they_find_alone_and_leave_it_as_it_was(x, y):
    f = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(x[0].numel()), nn.Linear(x[0].numel(), 10)).to(x.dtype).train()

    def found(seed: int) -> torch.Tensor:
        return ATTACKS["pgd"](f, x, y, seeded(seed))

    alone, state = [found(seed) for seed in range(4)], deepcopy(f.state_dict())
    together = Barrier(len(alone), timeout=60)

    def wait_for_the_others(module: nn.Module, given: object) -> None:
        together.wait()

    waits = f.register_forward_pre_hook(wait_for_the_others)
    with frozen(f), ThreadPoolExecutor(len(alone)) as threads:
        assert all(map(torch.equal, threads.map(found, range(len(alone))), alone))
    waits.remove()
    assert f.training
    assert all(module.training for module in f.modules())
    assert all(parameter.requires_grad for parameter in f.parameters())
    assert all(torch.equal(state[name], value) for name, value in f.state_dict().items())


def test_pgd_returns_its_best_iterate_and_not_its_last(f, x, y):
    """With a step far too long, the iterates jump about; the naive twin remembers each of them."""
    attack = pgd(eps=0.1, steps=6, step_size=0.3)
    ball, rng = Linf(eps=0.1), seeded()
    f.eval()
    theta = ball.sample(x, rng)
    losses = [loss_at(f, x + theta, y)]
    for _ in range(6):
        image = (x + theta).requires_grad_()
        (slope,) = torch.autograd.grad(cross_entropy(f(image), y).sum(), image)
        theta = ball.project(x, theta + 0.3 * slope.sign())
        losses.append(loss_at(f, x + theta, y))
    best = torch.stack(losses).amax(0)
    assert (best > losses[-1]).any()
    torch.testing.assert_close(loss_at(f, attack(f, x, y, seeded()), y), best)


@pytest.mark.parametrize("seed", range(3))
def test_restarts_never_weaken_pgd(f, x, y, seed):
    once, thrice = (pgd(eps=0.1, steps=3, restarts=restarts) for restarts in (1, 3))
    weak, strong = (loss_at(f, attack(f, x, y, seeded(seed)), y) for attack in (once, thrice))
    assert (strong >= weak).all()
    assert (strong > weak).any()


class GrowingDoubt(nn.Module):
    """Sure of class 0 where images are black, wrong where they are gray, and right by a hair where they are white."""

    answers = torch.tensor([[0.9, 0.05, 0.05], [0.45, 0.55, 1e-9], [0.36, 0.32, 0.32]]).log()

    def forward(self, x):
        shade = x.flatten(1).mean(1, keepdim=True)
        return self.answers[(2 * shade[:, 0]).round().long()] + (shade.detach() - shade) * torch.tensor([1.0, 0, 0])


@pytest.mark.parametrize(
    "solver",
    [
        PGD(around=Linf(eps=1.0), steps=2, step_size=0.5, start="identity", keep="best"),
        Strongest(solvers=(lambda loss, x, rng: x + 0.5, lambda loss, x, rng: x + 1.0)),
    ],
    ids=["iterates", "restarts"],
)
def test_a_point_that_fools_is_not_left_for_one_of_larger_loss_that_does_not(solver):
    f, x, y = GrowingDoubt(), torch.zeros(2, 1, 1, 1), torch.tensor([0, 0])
    losses = [loss_at(f, x + shade, y) for shade in (0.0, 0.5, 1.0)]
    assert (losses[0] < losses[1]).all()
    assert (losses[1] < losses[2]).all()
    attack = Searched(solver=solver, loss=cross_entropy, within=Linf(eps=1.0), budget="any image")
    assert (predicted(f, attack(f, x, y, seeded())) == 1).all()


def test_a_smaller_ball_never_fools_more(f, x, y):
    survivors = [
        (predicted(f, pgd(eps=eps, steps=40, restarts=4)(f, x, y, seeded())) == y).sum() for eps in (1e-6, 0.03, 0.5)
    ]
    assert survivors == sorted(survivors, reverse=True)
    assert survivors[0] == len(x)
    assert survivors[-1] == 0


def test_pgd_climbs_the_loss_it_was_given(f, x, y):
    on_margin, on_entropy = (
        pgd(eps=0.02, steps=20, loss=loss)(f, x, y, seeded()) for loss in (margin, cross_entropy)
    )
    assert not torch.equal(on_margin, on_entropy)
    assert loss_at(f, on_margin, y, margin).mean() > loss_at(f, on_entropy, y, margin).mean()


def naive_grid(around, points):
    """Every theta of the grid, one at a time."""
    bounds = (around.rotation, around.translation, around.translation)
    axes = [
        [0.0] if bound == 0 else [-bound + 2 * bound * i / (count - 1) for i in range(count)]
        for bound, count in zip(bounds, points, strict=True)
    ]
    return product(*axes)


@pytest.mark.parametrize(
    ("around", "points"),
    [
        (Spatial(rotation=10.0, translation=0.1), (5, 3, 3)),
        (Spatial(rotation=0.0, translation=0.2), (1, 5, 5)),
        (Spatial(rotation=30.0, translation=0.0), (31, 1, 1)),
    ],
    ids=["both", "shifts", "turns"],
)
def test_grid_fools_exactly_the_images_that_an_exhaustive_search_fools(f, x, y, around, points):
    survives = torch.ones(len(x), dtype=torch.bool)
    for theta in naive_grid(around, points):
        moved = around.transform(x, torch.tensor(theta, dtype=x.dtype).expand(len(x), 3))
        survives &= predicted(f, moved) == y
    found = grid(around, points=points)(f, x, y, seeded())
    assert 0 < survives.sum() < len(x)
    assert torch.equal(predicted(f, found) == y, survives)


def test_random_fools_exactly_the_images_that_one_of_its_draws_fools(f, x, y):
    attack, rng = random(BOTH, draws=6), seeded()
    draws = [BOTH.sample(x, rng) for _ in range(6)]
    survives = torch.stack([predicted(f, BOTH.transform(x, theta)) == y for theta in draws]).all(0)
    found = attack(f, x, y, seeded())
    assert 0 < survives.sum() < len(x)
    assert torch.equal(predicted(f, found) == y, survives)


def test_more_draws_fool_every_image_that_fewer_fool(f, x, y):
    few, many = (predicted(f, random(BOTH, draws=draws)(f, x, y, seeded())) != y for draws in (2, 20))
    assert (many | ~few).all()
    assert many.sum() > few.sum()


@pytest.mark.parametrize("attack", [random(SHIFTS, draws=5), grid(SHIFTS, points=(1, 3, 3))], ids=["random", "grid"])
def test_attacks_by_shifts_only_shift(attack, rng):
    """A single bright pixel on a wide black image keeps its mass and its distances, wherever it goes."""
    image = torch.zeros(6, 1, 9, 9).double()
    image[:, 0, 4, 4] = 1
    image[:, 0, 4, 5] = 1
    found = attack(whole_pixel_critic(), image, torch.zeros(6).long(), rng)
    torch.testing.assert_close(found.sum((1, 2, 3)), image.sum((1, 2, 3)))
    assert not torch.equal(found, image)
    center = center_of_mass(found) - center_of_mass(image)
    assert (center.abs() <= 2 + 1e-9).all()
    across, down = found.sum(2).squeeze(1), found.sum(3).squeeze(1)
    assert ((across > 1e-9).sum(1) <= 3).all()
    assert ((down > 1e-9).sum(1) <= 2).all()


@pytest.mark.parametrize("attack", [random(TURNS, draws=5), grid(TURNS, points=(5, 1, 1))], ids=["random", "grid"])
def test_attacks_by_rotation_only_rotate(attack, rng):
    """A pixel in the center of an odd square stays where it is, and a bar through it keeps its center of mass."""
    image = torch.zeros(6, 1, 9, 9).double()
    image[:, 0, 4, 2:7] = 1
    found = attack(whole_pixel_critic(), image, torch.zeros(6).long(), rng)
    assert not torch.equal(found, image)
    torch.testing.assert_close(found[:, 0, 4, 4], image[:, 0, 4, 4])
    torch.testing.assert_close(center_of_mass(found), center_of_mass(image))


def whole_pixel_critic():
    """Dislikes any change of the middle row, so that every search moves what it is shown."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(81, 2)).double()
    with torch.no_grad():
        network[1].weight.zero_()
        network[1].bias.copy_(torch.tensor([0.0, -1e3]))
        network[1].weight[0, 36:45] = 1
    return network


def center_of_mass(images):
    places = torch.arange(images.shape[-1], dtype=images.dtype)
    mass = images.sum((1, 2, 3))
    return torch.stack([(images.sum(axis).squeeze(1) * places).sum(1) / mass for axis in (2, 3)], dim=1)


@every_attack
def test_every_point_lies_in_the_neighborhood_the_attack_states(attack, f, x, y):
    found = attack(f, x, y, seeded())
    assert found.shape == x.shape
    assert attack.within.contains(x, found).all()
    assert found.min() >= 0
    assert found.max() <= 1
    assert not torch.equal(found, x)


@every_attack
def test_the_model_is_left_as_it_was(attack, f, x, y):
    f.train()
    f[3].eval()
    f[0].weight.requires_grad_(False)
    f[-1].weight.grad = torch.ones_like(f[-1].weight)
    before = {name: tensor.clone() for name, tensor in f.state_dict().items()}
    attack(f, x, y, seeded())
    assert [module.training for module in f] == [module is not f[3] for module in f]
    assert [parameter.requires_grad for parameter in f.parameters()] == [False, *[True] * 5]
    assert all(torch.equal(f.state_dict()[name], tensor) for name, tensor in before.items())
    assert torch.equal(f[-1].weight.grad, torch.ones_like(f[-1].weight))
    assert all(parameter.grad is None for parameter in f.parameters() if parameter is not f[-1].weight)


@every_attack
def test_the_model_is_restored_even_if_it_breaks_down(attack, f, x, y):
    def break_down(*_):
        raise RuntimeError("out of memory")

    f.train()
    f[2].register_forward_hook(break_down)
    with pytest.raises(RuntimeError, match="out of memory"):
        attack(f, x, y, seeded())
    assert all(module.training for module in f.modules())
    assert all(parameter.requires_grad for parameter in f.parameters())


@every_attack
def test_images_and_labels_are_left_as_they_were(attack, f, x, y):
    images, labels = x.clone(), y.clone()
    found = attack(f, x, y, seeded())
    assert torch.equal(x, images)
    assert torch.equal(y, labels)
    assert not found.requires_grad


@every_attack
def test_the_same_seed_finds_the_same_points(attack, f, x, y):
    assert torch.equal(attack(f, x, y, seeded(3)), attack(f, x, y, seeded(3)))


@pytest.mark.parametrize(
    ("attack", "budget"),
    [
        (fgsm(), "Linf 0.03137"),
        (fgsm(eps=0.3), "Linf 0.3"),
        (pgd(eps=0.3, steps=40, step_size=0.01), "Linf 0.3, 40 steps of 0.01"),
        (pgd(eps=0.5, steps=10, norm=L2), "L2 0.5, 10 steps of 0.125"),
        (pgd(eps=0.031, steps=10, step_size=0.007, restarts=5), "Linf 0.031, 10 steps of 0.007, 5 restarts"),
        (mi_fgsm(eps=0.3, steps=40, step_size=0.01), "Linf 0.3, 40 steps of 0.01"),
        (cw_linf(eps=0.3, steps=30, step_size=0.02), "Linf 0.3, 30 steps of 0.02, margin loss"),
        (random(), "<= 30 degrees, <= 3 px, 10 draws"),
        (random(Linf(eps=0.25), draws=7), "Linf 0.25, 7 draws"),
        (grid(), "<= 30 degrees, <= 3 px, grid of 31 x 5 x 5"),
        (grid(TURNS, points=(31, 1, 1)), "<= 30 degrees, <= 0 px, grid of 31 x 1 x 1"),
    ],
)
def test_an_attack_states_its_budget_in_words(attack, budget):
    assert attack.budget == budget


def test_the_step_of_pgd_follows_from_eps_and_steps_unless_it_is_given():
    assert pgd(eps=0.2, steps=50).solver.step_size == pytest.approx(0.01)
    assert pgd(eps=0.2, steps=50, step_size=0.3).solver.step_size == 0.3


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: pgd(steps=0), "PGD.steps must be at least 1, got 0"),
        (lambda: mi_fgsm(steps=0), "PGD.steps must be at least 1, got 0"),
        (lambda: pgd(step_size=-1.0), "PGD.step_size must be a positive number, got -1.0"),
        (lambda: pgd(restarts=0), "the restarts of pgd must be at least 1, got 0"),
        (lambda: pgd(restarts=1.5), "the restarts of pgd must be a whole number, got 1.5"),
        (lambda: pgd(norm="L2"), r"the norm of pgd must be Linf or L2 itself, as in pgd\(norm=L2\), got 'L2'"),
        (lambda: fgsm(eps=-0.1), "Linf.eps must be a finite number of at least 0, got -0.1"),
        (lambda: random(draws=0), "WorstOfK.k must be at least 1, got 0"),
        (lambda: grid(Spatial), "Grid.around must be a neighborhood, as .*, got <class "),
        (lambda: compound(Strongest(solvers=(PGD(),))), r"Strongest.around, in compound, must be a neighborhood"),
        (lambda: compound(PGD), r"each of Sequential.stages must be a solver, as .*, got <class "),
        (lambda: replace(pgd(), solver=PGD), r"Searched.solver must be a solver, as .*, got <class "),
        (lambda: replace(pgd(), within=Linf), r"Searched.within must be a neighborhood, as .*, got <class "),
        (lambda: grid(Linf()), "Grid.around must have a handful of parameters"),
    ],
)
def test_an_attack_that_cannot_be_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_grid_needs_a_count_for_each_parameter(f, x, y):
    with pytest.raises(ValueError, match="takes 3 positive counts"):
        grid(BOTH, points=(5, 5))(f, x, y, seeded())


@every_attack
def test_ours_are_bounded_attacks_that_print_their_settings(attack):
    typed: Attack = attack
    assert isinstance(typed, Searched)
    assert isinstance(typed, Bounded)
    assert repr(attack.solver) in repr(attack)
    assert replace(attack) == attack


def test_a_plain_function_is_an_attack_without_a_budget():
    assert not isinstance(lambda f, x, y, rng: x, Bounded)


def test_the_attacks_of_a_budget_go_as_far_as_it_says_and_no_farther():
    attacks = Budget(eps=0.2, steps=7, step_size=0.05, rotation=20.0, translation=2.0, l2=1.5, pixels=9).attacks()
    both = Spatial(rotation=20.0, translation=2.0)
    assert attacks["fgsm"] == fgsm(eps=0.2)
    assert attacks["pgd"] == pgd(eps=0.2, steps=7, step_size=0.05)
    assert attacks["mi-fgsm"] == mi_fgsm(eps=0.2, steps=7, step_size=0.05)
    assert {attacks[name].within for name in ("pgd-restarts", "cw", "autoattack")} == {Linf(eps=0.2)}
    assert {attacks[name].within for name in ("cw-l2", "ddn")} == {L2(eps=1.5)}
    assert {attacks[name].pixels for name in ("jsma", "pointwise")} == {9}
    for search in ("randadv", "gridadv"):
        assert attacks[search].within == both
        assert attacks[f"{search}.t"].within == replace(both, rotation=0.0)
        assert attacks[f"{search}.r"].within == replace(both, translation=0.0)
    for name, count in {"gridadv": 775, "gridadv.t": 25, "gridadv.r": 31}.items():
        solver = attacks[name].solver
        assert len(solver.around.grid(torch.zeros(1), solver.points)) == count
        assert attacks[name.replace("grid", "rand")].solver.k == 10


def test_the_compound_attacks_follow_one_perturbation_by_the_other():
    attacks = Budget(eps=0.2, rotation=20.0, translation=2.0).attacks()
    stages = {name: [type(stage).__name__ for stage in attacks[name].solver.stages] for name in ("pgd+", "gridadv+")}
    assert stages == {"pgd+": ["PGD", "Grid"], "gridadv+": ["Grid", "PGD"]}


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_a_fraction_of_a_budget_scales_every_radius(fraction):
    attacks = Budget(eps=0.2, step_size=0.1, rotation=20.0, translation=2.0, l2=1.0, fraction=fraction).attacks()
    assert attacks["pgd"].within.eps == pytest.approx(0.2 * fraction, abs=1e-8)
    assert attacks["pgd"].solver.step_size == pytest.approx(0.1 * fraction, abs=1e-8)
    assert attacks["ddn"].within.eps == pytest.approx(1.0 * fraction, abs=1e-8)
    assert attacks["gridadv"].within == Spatial(rotation=20.0 * fraction, translation=2.0 * fraction)
    assert attacks["blur"].within == Blur(sigma=fraction)
    assert attacks["color"].within == Color().scaled(fraction)


class Judge(nn.Module):
    """Says 1 of images that have more of something than they may."""

    def __init__(self, amount, most):
        super().__init__()
        self.amount, self.most = amount, most

    def forward(self, x):
        amount = self.amount(x)
        return torch.stack([torch.full_like(amount, self.most), amount], 1)


@pytest.mark.parametrize(
    ("name", "amount", "most"),
    [
        ("blur", lambda x: -(x - x.roll(1, 3)).square().mean((1, 2, 3)), -0.01),
        ("color", lambda x: x.mean((1, 2, 3)), 0.56),
    ],
)
def test_images_are_blurred_and_lit_as_far_as_a_budget_says(name, amount, most, rng):
    x, y, f = 0.3 + 0.4 * torch.rand(20, 3, 8, 8, generator=rng), torch.zeros(20).long(), Judge(amount, most)
    assert bool((predicted(f, x) == 0).all())
    assert bool((predicted(f, Budget().attacks()[name](f, x, y, rng)) == 1).all())
    assert torch.equal(Budget(blur=0.0, color=0.0).attacks()[name](f, x, y, rng), x)


@pytest.mark.parametrize("eps", [0.02, 0.05, 0.1])
def test_pgd_succeeds_as_often_as_the_one_of_foolbox(f, eps, rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        foolbox = pytest.importorskip("foolbox")
        x = torch.rand(400, 1, 6, 6, generator=rng)
        f = f.float().eval()
        y = predicted(f, x)
        oracle = foolbox.attacks.LinfPGD(steps=40, abs_stepsize=eps / 16, random_start=True)
        _, _, success = oracle(foolbox.PyTorchModel(f, bounds=(0, 1), device="cpu"), x, y, epsilons=eps)
    found = pgd(eps=eps, steps=40)(f, x, y, rng)
    ours = (predicted(f, found) != y).float().mean()
    assert 0.05 < ours < 0.95
    assert abs(ours - success.float().mean()) <= 0.01


@pytest.mark.parametrize(
    "attack", [pgd(eps=0.1), fgsm(eps=0.1), DDN(), JSMA(pixels=4)], ids=["pgd", "fgsm", "ddn", "jsma"]
)
@pytest.mark.parametrize("weights", [torch.eye(16, 4), torch.eye(16, 4, requires_grad=True)], ids=["still", "own"])
def test_a_search_along_gradients_says_that_there_is_none(attack, weights, rng):
    class Cut(nn.Module):
        def forward(self, x):
            return x.detach().flatten(1) @ weights

    x = torch.rand(3, 1, 4, 4, generator=rng)
    with pytest.raises(ValueError, match="passes no gradient"):
        attack(Cut(), x, Cut()(x).argmax(1), rng)
