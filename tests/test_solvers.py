import weakref
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan

import numpy as np
import pytest
import torch
from torch import nn

from reference import solvers as slow
from small_networks import network
from tiny import seeded
from unperturbed.losses import Against, cross_entropy, margin
from unperturbed.neighborhoods import L0, L1, L2, Blur, Composed, Linf, Neighborhood, Spatial
from unperturbed.solvers import (
    FGSM,
    NFGSM,
    PGD,
    Grid,
    MomentumPGD,
    PowerIteration,
    Sequential,
    Solver,
    Strongest,
    WorstOfK,
    takes,
)

SMALL_GRID = Grid(points=(5, 3, 3))
PIXELS = Linf(eps=0.1)
SOLVERS = {
    "PGD": PGD(),
    "PGD in L2": PGD(around=L2(), step_size=0.1, start="uniform", keep="best"),
    "PGD in Spatial": PGD(around=Spatial(), step_size=0.1, start="identity"),
    "FGSM": FGSM(),
    "FGSM in L2": FGSM(around=L2(), start="normal"),
    "FGSM in Spatial": FGSM(around=Spatial()),
    "WorstOfK": WorstOfK(),
    "WorstOfK in Linf": WorstOfK(around=PIXELS, k=3),
    "Grid": SMALL_GRID,
    "Sequential": Sequential(stages=(PGD(), SMALL_GRID)),
    "Strongest": Strongest(solvers=(PGD(), WorstOfK(), FGSM())),
}
SEARCHES = {name: solver for name, solver in SOLVERS.items() if isinstance(solver, WorstOfK | Grid)}

every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
every_search = pytest.mark.parametrize("solver", SEARCHES.values(), ids=SEARCHES)


@pytest.fixture
def x(rng):
    return torch.rand(5, 1, 6, 5, generator=rng, dtype=torch.float64)


@pytest.fixture
def f():
    """A classifier as an adversary sees it."""
    return network(3, (1, 6, 5)).double().eval().requires_grad_(False)


@pytest.fixture
def target(f, x):
    return f(x).argmax(1)


@pytest.fixture
def loss(f, target):
    return Against(cross_entropy, f, target)


@pytest.fixture
def linear(rng):
    """Weights w of a linear loss <w, x'>, with another w for each image."""
    return torch.randn(5, 1, 6, 5, generator=rng, dtype=torch.float64)


def along(weights):
    """The loss <w, x'>."""
    return lambda images, rows=None: (images * (weights if rows is None else weights[rows])).flatten(1).sum(1)


class Witness:
    """A loss that remembers what it was asked, and what it answered."""

    def __init__(self, loss):
        self.loss, self.questions, self.answers = loss, [], []

    def __call__(self, images, rows=None):
        self.questions.append(images.detach())
        self.answers.append(self.loss(images, rows).detach())
        return self.loss(images, rows)


@pytest.mark.parametrize("start", ["identity", "normal", "uniform"])
@pytest.mark.parametrize("keep", ["last", "best"])
def test_pgd_in_linf_reaches_the_maximizer_of_a_linear_loss(start, keep, x, linear, rng):
    found = PGD(around=PIXELS, steps=20, step_size=0.03, start=start, keep=keep)(along(linear), x, rng)
    torch.testing.assert_close(found, (x + 0.1 * linear.sign()).clamp(0, 1))


@pytest.mark.parametrize("start", ["identity", "normal", "uniform"])
def test_pgd_in_l2_reaches_the_maximizer_of_a_linear_loss(start, x, linear, rng):
    x = 0.4 + 0.2 * x
    found = PGD(around=L2(eps=0.3), steps=60, step_size=0.3, start=start)(along(linear), x, rng)
    torch.testing.assert_close(found, x + 0.3 * linear / linear.flatten(1).norm(dim=1).view(-1, 1, 1, 1))


def test_pgd_fools_a_linear_classifier_as_far_as_the_closed_form_says(x, linear, rng):
    f, y = nn.Sequential(nn.Flatten(), nn.Linear(30, 2).double()), torch.tensor([0, 1, 0, 1, 1])
    w = f[1].weight.detach()
    found = PGD(around=PIXELS, steps=10, step_size=0.03)(Against(margin, f, y), x, rng)
    toward_other_class = (w[1 - y] - w[y]).view_as(x).sign()
    torch.testing.assert_close(found, (x + 0.1 * toward_other_class).clamp(0, 1))


@pytest.mark.parametrize("share", [0.5, 1.0, 1.25])
def test_an_fgsm_step_from_x_goes_its_share_of_the_way_to_the_maximizer_of_a_linear_loss(share, x, linear, rng):
    way = min(share, 1.0) * 0.2
    in_linf, in_l2 = (
        FGSM(around=around, step=share, start="identity")(along(linear), 0.3 + 0.4 * x, rng) - (0.3 + 0.4 * x)
        for around in (Linf(eps=0.2), L2(eps=0.2))
    )
    torch.testing.assert_close(in_linf, way * linear.sign())
    torch.testing.assert_close(in_l2, way * linear / linear.flatten(1).norm(dim=1).view(-1, 1, 1, 1))


def test_fgsm_in_linf_stays_within_valid_images(x, linear, rng):
    found = FGSM(around=PIXELS, step=1.0, start="identity")(along(linear), x, rng)
    torch.testing.assert_close(found, (x + 0.1 * linear.sign()).clamp(0, 1))


@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_a_grid_over_one_angle_finds_the_planted_angle_of_each_image(at_once, x, rng):
    around = Spatial(rotation=30, translation=0)
    planted = torch.tensor([[angle, 0.0, 0.0] for angle in (-30, -10, 0, 5, 25)], dtype=x.dtype)
    wanted = around.transform(x, planted)

    def closeness(images, rows):
        return -(images - wanted[rows]).square().flatten(1).sum(1)

    torch.testing.assert_close(Grid(around=around, points=(13, 1, 1), at_once=at_once)(closeness, x, rng), wanted)


def test_worst_of_k_draws_independently_for_each_image(x, rng):
    alike = x[:1].expand(4, -1, -1, -1)
    found = WorstOfK(k=1)(lambda images, rows: (images - x[0]).square().flatten(1).sum(1), alike, rng)
    assert len(found.flatten(1).unique(dim=0)) == 4


def test_worst_of_k_gains_from_every_draw(x, loss):
    one, all_draws = (loss(WorstOfK(k=k)(loss, x, seeded())) for k in (1, 20))
    assert (all_draws >= one).all()
    assert (all_draws > one).any()


@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_enough_finds_fooling_points_for_the_same_images(at_once, f, rng):
    x = torch.rand(40, 1, 6, 5, generator=rng, dtype=torch.float64)
    loss = Against(margin, f, f(x).argmax(1))
    gentle = Spatial(rotation=8, translation=0.5)
    everywhere, early = (replace(SMALL_GRID, around=gentle, at_once=at_once, enough=enough) for enough in (None, 0.0))
    fooled = loss(everywhere(loss, x, rng)) > 0
    assert 0 < fooled.sum() < len(x)
    assert torch.equal(loss(early(loss, x, rng)) > 0, fooled)


@pytest.mark.parametrize("solver", [Grid(points=(5, 5, 5), at_once=40), WorstOfK(k=100, at_once=40)], ids=type)
def test_enough_saves_queries(solver, f, rng):
    x = torch.rand(40, 1, 6, 5, generator=rng, dtype=torch.float64)
    loss = Against(margin, f, f(x).argmax(1))
    everywhere, early = Witness(loss), Witness(loss)
    solver(everywhere, x, seeded())
    replace(solver, enough=0.0)(early, x, seeded())
    assert sum(map(len, early.answers)) < 0.9 * sum(map(len, everywhere.answers))


@pytest.mark.parametrize("solver", [SMALL_GRID, WorstOfK()], ids=type)
def test_an_image_that_has_enough_from_the_start_is_not_searched(solver, f, x, rng):
    loss = Witness(Against(margin, f, (f(x).argmax(1) + 1) % 3))
    assert torch.equal(replace(solver, enough=0.0)(loss, x, rng), x)
    assert len(loss.answers) == 1


@pytest.mark.parametrize("solver", [SMALL_GRID, WorstOfK()], ids=type)
def test_what_does_not_exceed_enough_is_searched_on(solver, x, rng):
    def change(images, rows):
        return (images - x[rows]).abs().flatten(1).sum(1)

    assert (change(replace(solver, enough=0.0)(change, x, rng), torch.arange(len(x))) > 0).all()


def test_what_an_image_gets_does_not_depend_on_how_others_fare(x, linear):
    def answers(lead_of_the_first):
        lead = torch.tensor([lead_of_the_first] * 3 + [0.0] * 2)
        solver = WorstOfK(around=PIXELS, k=5, at_once=1, enough=1e5)
        return solver(lambda images, rows: along(linear)(images, rows) + lead[rows], x, seeded())

    assert torch.equal(answers(1e6)[:3], x[:3])
    assert torch.equal(answers(1e6)[3:], answers(0.0)[3:])
    assert not torch.equal(answers(0.0)[3:], x[3:])


@every_search
def test_the_number_of_images_at_once_changes_nothing(solver, loss, x):
    answers = [replace(solver, at_once=at_once)(loss, x, seeded()) for at_once in (1, 7, 10_000)]
    torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(answers[0], answers[2], rtol=0, atol=1e-12)


@every_search
@pytest.mark.parametrize("at_once", [5, 12, 2048])
def test_a_query_holds_no_more_images_than_allowed(solver, at_once, loss, x, rng):
    witness = Witness(loss)
    replace(solver, at_once=at_once)(witness, x, rng)
    assert max(map(len, witness.answers)) <= at_once


@pytest.mark.parametrize(
    ("at_once", "sizes"), [(55, [55]), (54, [50, 5]), (20, [20, 20, 15]), (9, [5] * 11), (2, [5] * 11)]
)
def test_x_itself_goes_along_with_the_first_draws_where_there_is_room(at_once, sizes, loss, x, rng):
    witness = Witness(loss)
    WorstOfK(k=10, at_once=at_once)(witness, x, rng)
    assert [len(answer) for answer in witness.answers] == sizes
    alone = Witness(loss)
    WorstOfK(k=10, at_once=at_once, enough=torch.inf)(alone, x, rng)
    assert len(alone.answers[0]) == len(x)


@every_search
def test_a_point_without_a_loss_hides_no_other(solver, loss, x):
    def without_some(images, rows=None):
        return loss(images, rows).where(images.mean((1, 2, 3)).mul(1e6).floor() % 4 > 0, nan)

    one_by_one = replace(solver, at_once=1)(without_some, x, seeded())
    assert not torch.equal(one_by_one, x)
    assert torch.equal(replace(solver, at_once=200)(without_some, x, seeded()), one_by_one)


@every_search
def test_a_search_is_never_below_the_loss_at_x(solver, f, x, rng):
    loss = Against(cross_entropy, f, torch.tensor([0, 1, 2, 0, 1]))
    assert (loss(solver(loss, x, rng)) >= loss(x)).all()


@every_search
def test_a_search_without_success_returns_x_itself(solver, x, rng):
    assert torch.equal(solver(lambda images, rows: -(images - x[rows]).abs().flatten(1).sum(1), x, rng), x)


@pytest.mark.parametrize("around", [PIXELS, L2(eps=2.0), Spatial()], ids=str)
def test_the_best_iterate_is_no_worse_than_any_other(around, loss, x):
    solver = PGD(around=around, steps=12, step_size=1.5, start="uniform", keep="best")
    witness = Witness(loss)
    best = loss(solver(witness, x, seeded()))
    assert len(witness.answers) == 13
    torch.testing.assert_close(best, torch.stack(witness.answers).amax(0))
    last = loss(replace(solver, keep="last")(loss, x, seeded()))
    assert (best >= last).all()
    assert (best > last).any()


def test_the_last_iterate_costs_one_query_for_each_step(loss, x, rng):
    witness = Witness(loss)
    PGD(steps=4)(witness, x, rng)
    assert len(witness.answers) == 4


@pytest.mark.parametrize("start", ["identity", "normal", "uniform"])
def test_an_ascent_asks_only_about_images_in_the_neighborhood(start, loss, x, rng):
    witness = Witness(loss)
    PGD(around=PIXELS, start=start, noise=0.5, step_size=0.3)(witness, x, rng)
    for images in witness.questions:
        assert PIXELS.contains(x, images).all()
        assert -1e-9 <= images.min() <= images.max() <= 1 + 1e-9


def test_a_grid_asks_about_far_points_first(loss, x, rng):
    witness = Witness(loss)
    Grid(around=Spatial(rotation=30, translation=0), points=(5, 1, 1), at_once=1)(witness, x, rng)
    untouched, *asked = witness.questions
    changes = [(images - untouched).abs().max() for images in asked]
    assert min(changes[:2]) > max(changes[2:4]) > changes[4]
    assert changes[4] < 1e-9


@pytest.mark.parametrize("stage", [PGD(), FGSM(), WorstOfK(), SMALL_GRID], ids=type)
def test_a_sequence_of_one_stage_is_that_stage(stage, loss, x):
    assert torch.equal(Sequential(stages=(stage,))(loss, x, seeded()), stage(loss, x, seeded()))


def test_each_stage_of_a_sequence_starts_where_the_one_before_stopped(loss, x):
    rng, stages = seeded(), (FGSM(around=PIXELS), SMALL_GRID, PGD())
    expected = x
    for stage in stages:
        expected = stage(loss, expected, rng)
    assert torch.equal(Sequential(stages=stages)(loss, x, seeded()), expected)


def test_the_order_of_a_sequence_matters(loss, x):
    pixels_first, grid_first = (
        Sequential(stages=stages)(loss, x, seeded()) for stages in ((PGD(), SMALL_GRID), (SMALL_GRID, PGD()))
    )
    assert not torch.allclose(pixels_first, grid_first)


@pytest.mark.parametrize("order", [1, -1])
def test_the_strongest_is_as_strong_as_the_best_of_its_solvers_on_every_image(order, loss, x):
    solvers = (PGD(), WorstOfK(), FGSM(around=PIXELS), WorstOfK())[::order]
    rng = seeded()
    alone = torch.stack([loss(solver(loss, x, rng)) for solver in solvers])
    assert len(alone.argmax(0).unique()) > 1
    torch.testing.assert_close(loss(Strongest(solvers=solvers)(loss, x, seeded())), alone.amax(0))


def test_the_strongest_is_found_where_losses_are_negative_too(loss, x):
    solvers = (PGD(), WorstOfK())

    def below_zero(images, rows=None):
        return loss(images, rows) - 1000

    found = Strongest(solvers=solvers)(below_zero, x, seeded())
    assert torch.equal(found, Strongest(solvers=solvers)(loss, x, seeded()))
    assert not torch.equal(found, x)


@every_solver
def test_a_solver_returns_plain_images_of_the_same_kind_and_leaves_x_alone(solver, loss, x, rng):
    before = x.clone()
    found = solver(loss, x.requires_grad_(), rng)
    assert isinstance(solver, Solver)
    assert not found.requires_grad
    assert found.grad_fn is None
    assert (found.shape, found.dtype) == (x.shape, x.dtype)
    assert torch.equal(x, before)
    assert x.grad is None


@every_solver
def test_a_solver_repeats_itself_from_the_same_seed(solver, loss, x):
    assert torch.equal(solver(loss, x, seeded(3)), solver(loss, x, seeded(3)))


@pytest.mark.parametrize("name", ["PGD", "PGD in L2", "FGSM", "FGSM in L2", "WorstOfK", "WorstOfK in Linf"])
def test_a_random_solver_differs_from_another_seed(name, loss, x):
    assert not torch.equal(SOLVERS[name](loss, x, seeded(3)), SOLVERS[name](loss, x, seeded(4)))


@every_solver
def test_a_solver_works_where_gradients_are_off(solver, loss, x):
    with torch.no_grad():
        found = solver(loss, x, seeded())
    assert torch.equal(found, solver(loss, x, seeded()))


@every_solver
def test_a_solver_finds_a_larger_loss(solver, loss, x, rng):
    assert loss(solver(loss, x, rng)).mean() > loss(x).mean()


@pytest.mark.parametrize("kind", [PGD, FGSM, WorstOfK])
@pytest.mark.parametrize("around", [PIXELS, L2(eps=0.3), Linf(eps=0.0), L2(eps=0.0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_answers_lie_in_the_neighborhood(kind, around, dtype, f, x, rng):
    x, f = x.to(dtype), f.to(dtype)
    found = kind(around=around)(Against(cross_entropy, f, f(x).argmax(1)), x, rng)
    assert (around.distance(x, found - x) <= 1 + 1e-4).all()
    assert -1e-6 <= found.min() <= found.max() <= 1 + 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "around", [L2(eps=0.7), L0(pixels=3), Spatial(), Blur(), Composed(parts=(Spatial(), Blur()))]
)
@pytest.mark.parametrize("kind", [FGSM, PGD, MomentumPGD, PowerIteration])
def test_an_image_without_a_slope_stays_an_image_in_any_arithmetic(kind, around, dtype, rng):
    blank = torch.zeros(2, 1, 6, 6, dtype=dtype)
    found = kind(around=around)(lambda images, rows=None: (images * 0).flatten(1).sum(1), blank, rng)
    assert found.isfinite().all()


@every_search
def test_no_images_have_no_worst_case(solver, f, x, rng):
    loss = Against(cross_entropy, f, torch.zeros(0, dtype=torch.long))
    assert solver(loss, x[:0], rng).shape == (0, 1, 6, 5)


@dataclass(frozen=True)
class Brightness:
    """A user's own neighborhood: every pixel of an image changes by the same theta, one number an image."""

    limit: float = 0.1

    def identity(self, x):
        return x.new_zeros(len(x))

    def sample(self, x, rng):
        return self.limit * (2 * torch.rand(len(x), generator=rng, dtype=x.dtype) - 1)

    def transform(self, x, theta):
        return x + theta.view(-1, 1, 1, 1)

    def project(self, x, theta):
        return theta.clamp(-self.limit, self.limit)

    def distance(self, x, theta):
        return theta.abs() / self.limit

    def direction(self, gradient):
        return gradient.sign()

    def scaled(self, fraction):
        return Brightness(fraction * self.limit)

    def contains(self, x, perturbed):
        return (perturbed - x).abs().flatten(1).amax(1) <= self.limit


@pytest.mark.parametrize("solver", [PGD(around=Brightness(), step_size=0.03), FGSM(around=Brightness())], ids=type)
def test_ascent_works_in_a_neighborhood_of_the_user(solver, x, linear, rng):
    assert isinstance(solver.around, Neighborhood)
    found = solver(along(linear), x, rng)
    torch.testing.assert_close(found, x + 0.1 * linear.flatten(1).sum(1).sign().view(-1, 1, 1, 1))


def test_search_works_in_a_neighborhood_of_the_user(x, linear, rng):
    change = WorstOfK(around=Brightness(), k=200)(along(linear), x, rng) - x
    brighter = change.flatten(1).mean(1)
    torch.testing.assert_close(change, brighter.view(-1, 1, 1, 1).expand_as(change))
    torch.testing.assert_close(brighter, 0.1 * linear.flatten(1).sum(1).sign(), rtol=0, atol=0.01)


class ImageItself(Brightness):
    """A user's own neighborhood whose theta is the new image, so that the identity is x, the very tensor."""

    def identity(self, x):
        return x

    def sample(self, x, rng):
        return x + self.limit * (2 * torch.rand(len(x), 1, 1, 1, generator=rng, dtype=x.dtype) - 1)

    def transform(self, x, theta):
        return theta


def test_search_leaves_x_alone_even_where_x_is_the_identity(x, linear, rng):
    before = x.clone()
    WorstOfK(around=ImageItself(), k=5)(along(linear), x, rng)
    assert torch.equal(x, before)


@pytest.mark.parametrize("start", ["identity", "normal"])
def test_pgd_is_algorithm_1(start, f, loss, target, x):
    found = PGD(around=PIXELS, steps=8, step_size=0.03, start=start, noise=0.01)(loss, x, seeded(1))
    noise = torch.zeros_like(x) if start == "identity" else 0.01 * torch.empty_like(x).normal_(generator=seeded(1))
    for i, label in enumerate(target.tolist()):
        twin = slow.pgd(f, x[i], label, noise=noise[i], eps=0.1, alpha=0.03, steps=8)
        torch.testing.assert_close(found[i], twin, rtol=0, atol=1e-6)


def test_fgsm_is_algorithm_2(f, loss, target, x):
    found = FGSM(around=PIXELS)(loss, x, seeded(1))
    noise = torch.empty_like(x).uniform_(-0.1, 0.1, generator=seeded(1))
    for i, label in enumerate(target.tolist()):
        twin = slow.fgsm(f, x[i], label, noise=noise[i], eps=0.1, alpha=0.125)
        torch.testing.assert_close(found[i], twin, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("fast", "twin"), [(cross_entropy, slow.cross_entropy), (margin, slow.margin)])
def test_worst_of_k_is_its_slow_twin(fast, twin, f, target, x):
    around = Spatial(rotation=20, translation=2)
    found = WorstOfK(around=around, k=6)(Against(fast, f, target), x, seeded(1))
    rng = seeded(1)
    thetas = torch.stack([around.sample(x, rng) for _ in range(6)], dim=1)
    for i, label in enumerate(target.tolist()):
        torch.testing.assert_close(found[i], slow.worst_of(f, x[i], label, thetas[i], twin), rtol=0, atol=1e-6)


def test_the_grid_is_its_slow_twin(f, loss, target, x, rng):
    found = Grid(around=Spatial(rotation=20, translation=2), points=(5, 3, 2))(loss, x, rng)
    thetas = slow.grid_points(20, 2, (5, 3, 2))
    for i, label in enumerate(target.tolist()):
        torch.testing.assert_close(found[i], slow.worst_of(f, x[i], label, thetas), rtol=0, atol=1e-6)


@pytest.mark.parametrize("around", [Linf(), L2()], ids=str)
def test_a_grid_over_pixels_is_refused_with_advice(around):
    with pytest.raises(ValueError, match=rf"got {type(around).__name__}: search it with PGD or WorstOfK"):
        Grid(around=around)


def test_a_grid_refuses_counts_that_do_not_fit_its_neighborhood():
    with pytest.raises(ValueError, match=r"takes 3 positive counts, got \(5, 5\)"):
        Grid(points=(5, 5))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((PGD, "steps", value) for value in (0, -1)),
        *((PGD, "step_size", value) for value in (0.0, -0.1, nan, inf)),
        *((FGSM, "step", value) for value in (0.0, -0.1, nan, inf)),
        *((WorstOfK, "k", value) for value in (0, -1)),
        (WorstOfK, "at_once", 0),
        (Grid, "at_once", 0),
    ],
)
def test_a_solver_refuses_to_do_nothing(kind, name, value):
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.{name} must be (at least 1|a positive number), got "):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        *((kind, "start", "identity, normal or uniform") for kind in (PGD, MomentumPGD, FGSM)),
        (PGD, "keep", "last or best"),
    ],
)
def test_a_solver_refuses_a_word_that_it_does_not_know(kind, name, words):
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.{name} must be {words}, got 'unifrom'"):
        kind(**{name: "unifrom"})


def test_draws_for_images_that_fell_are_not_held():
    x, alive, held = torch.full((30, 1, 4, 4), 0.5), weakref.WeakSet(), []

    class Drawn(torch.Tensor):
        """A draw that can be counted."""

    class Counting(type(PIXELS)):
        def sample(self, x, rng):
            theta = super().sample(x, rng).as_subclass(Drawn)
            alive.add(theta)
            return theta

    def loss(points, rows):
        held.append(len(alive))
        return torch.where(rows == 7, -1.0, 1.0)

    WorstOfK(around=Counting(eps=0.1), k=60, enough=0.0, at_once=30)(loss, x, seeded())
    assert len(held) == 3
    assert max(held) <= 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PGD(steps=1.5), r"PGD\.steps must be a whole number, got 1\.5"),
        (lambda: WorstOfK(k=2.5), r"WorstOfK\.k must be a whole number, got 2\.5"),
        (lambda: WorstOfK(at_once=nan), r"WorstOfK\.at_once must be a whole number, got nan"),
        (lambda: Grid(points=(3, 2.5, 1)), r"each of Grid\.points must be a whole number, got 2\.5"),
        (lambda: Grid(points=5), r"Grid\.points must be a count for each parameter, as \(31, 5, 5\), got 5"),
        (lambda: PGD(noise=nan), r"PGD\.noise must be a finite number of at least 0, got nan"),
        (lambda: PGD(noise=-1.0), r"PGD\.noise must be a finite number of at least 0, got -1\.0"),
    ],
)
def test_a_number_of_things_is_whole_and_noise_is_a_length(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("around", [8 / 255, Linf], ids=["radius", "class"])
@pytest.mark.parametrize("solver", [PGD, MomentumPGD, FGSM, NFGSM, PowerIteration, WorstOfK])
def test_a_radius_or_a_class_in_place_of_a_neighborhood_is_refused(solver, around):
    with pytest.raises(
        ValueError, match=rf"{solver.__name__}\.around must be a neighborhood, as Linf\(eps=8 / 255\)"
    ):
        solver(around=around)


def test_a_grid_refuses_a_class_in_place_of_a_neighborhood():
    with pytest.raises(
        ValueError, match=r"^Grid\.around must be a neighborhood, as Spatial\(rotation=30\.0\), got <cla"
    ):
        Grid(around=Spatial)


@pytest.mark.parametrize(("kind", "name"), [(Sequential, "stages"), (Strongest, "solvers")])
def test_solvers_made_of_solvers_refuse_what_is_none(kind, name):
    for solver in (PGD, Linf(), None):
        with pytest.raises(ValueError, match=rf"^each of {kind.__name__}\.{name} must be a solver, as PGD\(.*, got "):
            kind(**{name: (PGD(), solver)})
    for solvers in (PGD(), PGD, ()):
        with pytest.raises(
            ValueError, match=rf"^{kind.__name__}\.{name} must be a tuple of at least one solver, got "
        ):
            kind(**{name: solvers})


@pytest.mark.parametrize("solver", [PGD(keep="best"), MomentumPGD(), FGSM(), PowerIteration(), WorstOfK(k=2)])
def test_a_loss_of_all_images_together_is_refused(solver, x, rng):
    with pytest.raises(ValueError, match=r"one value for each of the .* leave the mean out, as by reduction='none'"):
        solver(lambda images, rows=None: images.mean(), x, rng)


@pytest.mark.parametrize(
    "loss",
    [
        lambda images: images.flatten(1).sum(1),
        lambda images, y=1.0: images.flatten(1).sum(1) - y,  # It would get rows for y.
        lambda images, which=None: images.flatten(1).sum(1),
    ],
    ids=["one value", "labels of its own", "another name"],
)
@pytest.mark.parametrize("solver", [WorstOfK(k=2), Grid(points=(3, 1, 1))])
def test_a_search_says_what_a_loss_has_to_take(solver, loss, x, rng):
    with pytest.raises(
        ValueError, match=r"write loss\(images, rows=None\) with the labels y\[rows\], or take Against"
    ):
        solver(loss, x, rng)


def test_a_number_of_things_may_be_an_integer_of_numpy():
    assert PGD(steps=np.int64(3)).steps == 3


def test_a_part_that_does_not_say_what_it_takes_is_believed():
    assert takes(torch.relu, 4)
    assert takes(lambda x, y, z=0: 0, 2)
    assert not takes(lambda x: 0, 2)
    assert takes(lambda x, rows: 0, 1, "rows") and not takes(lambda x, y: 0, 1, "rows")
    assert not takes(8 / 255, 2)


def waving(weights, images, rows=None):
    """A loss that leads from another start elsewhere."""
    return ((99 * images).sin() * (weights if rows is None else weights[rows])).flatten(1).sum(1)


@pytest.mark.parametrize(
    "solver",
    [
        *SOLVERS.values(),
        PGD(around=L1(eps=2.0), step_size=0.5, start="uniform"),
        NFGSM(),
        MomentumPGD(start="normal"),
        PowerIteration(),
    ],
    ids=str,
)
def test_what_is_found_does_not_depend_on_how_images_lie_in_memory(solver, rng):
    x, weights = (torch.rand(5, 3, 6, 5, generator=rng, dtype=torch.float64) for _ in range(2))
    waves = partial(waving, weights)
    one, other = (solver(waves, images, seeded()) for images in (x, x.mT.contiguous().mT))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_what_nobody_says_is_as_in_the_paper():
    assert (PGD().steps, PGD().step_size, PGD().around) == (10, 2 / 255, Linf(eps=8 / 255))
    assert (PGD().start, PGD().noise, PGD().keep) == ("normal", 0.001, "last")
    assert FGSM() == FGSM(around=Linf(eps=8 / 255), step=1.25, start="uniform")
    turns = Spatial(rotation=30.0, translation=3.0)
    assert WorstOfK() == WorstOfK(around=turns, k=10, enough=None, at_once=2048)
    assert Grid() == Grid(around=turns, points=(31, 5, 5), enough=None, at_once=2048)
