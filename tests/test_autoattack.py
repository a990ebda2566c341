"""AutoAttack: its searches beside what their papers say, exact answers, and those of another library."""

from dataclasses import replace
from itertools import pairwise
from math import inf, nan, prod

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from reference import attacks as slow
from small_networks import answers, network, predicted
from tiny import seeded
from unperturbed.answers import frozen
from unperturbed.attacks import AutoAttack, autoattack, pgd, rounds
from unperturbed.attacks.apgd import APGD, difference_of_logits_ratio, targeted_difference_of_logits_ratio
from unperturbed.attacks.fab import FAB
from unperturbed.attacks.rounds import carried_out, repeated
from unperturbed.attacks.square import Square, margin_at, moved, placed, pyramids
from unperturbed.losses import cross_entropy
from unperturbed.neighborhoods import L2, Linf

BALLS = {"Linf": Linf(eps=0.06), "L2": L2(eps=0.3)}
both_balls = pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
SEARCHES = {
    f"{name} in {norm}": search
    for norm, ball in BALLS.items()
    for name, search in {
        "APGD-CE": APGD(around=ball, steps=30),
        "APGD-DLR": APGD(around=ball, steps=30, loss="dlr"),
        "APGD-T": APGD(around=ball, steps=30, loss="targeted dlr"),
        "FAB": FAB(around=ball, targeted=False, steps=15),
        "FAB-T": FAB(around=ball, steps=15),
        "Square": Square(around=ball, steps=150),
    }.items()
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def second(f, x):
    """The class that f finds likeliest but one."""
    return answers(f, x).argsort(1, descending=True)[:, 1]


@pytest.fixture
def f():
    return network()


@pytest.fixture
def x(rng):
    return torch.rand(24, 1, 6, 6, generator=rng)


@pytest.fixture
def y(f, x):
    return predicted(f, x)


def close(ours, theirs, apart=1e-6):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=apart)


# Searches


@every_search
def test_a_search_says_truly_whom_it_fooled_and_keeps_to_the_ball(search, f, x, y):
    with frozen(f):
        found, fooled = carried_out(f, search, x, y, second(f, x), seeded())
        again, _ = carried_out(f, search, x, y, second(f, x), seeded())
    assert torch.equal(found, again)
    assert torch.equal(fooled, (predicted(f, found) != y) & search.around.contains(x, found))
    assert fooled.any()


@every_search
def test_no_image_knows_of_another(search, f, x, y):
    with frozen(f), torch.no_grad():
        state, now = search.begin(f, x, y, second(f, x), seeded()), search.plan(x)[0]
        x_of_others = state[2].clone()
        others = tuple(torch.cat([part[:1], part[1:].flip(0)]) for part in state)
        # Random numbers come row by row, so those of the first image stay the same.
        together, apart = (search.step(f, rows, now, seeded()) for rows in (state, others))
    assert not torch.equal(others[2], x_of_others)
    for one, other in zip(together, apart, strict=True):
        assert torch.allclose(one[0].double(), other[0].double(), atol=1e-6)


class Waits(TorchDispatchMode):
    """Notices what waits for a value: a device that records does not stand that."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket._qualified_op_name
        masks = name == "aten::index" and any(part is not None and part.dtype == torch.bool for part in args[1])
        if masks or name in ("aten::_local_scalar_dense", "aten::nonzero"):
            self.waiting.append(name)
        return function(*args, **kwargs or {})


@every_search
def test_no_step_waits_for_a_value(search, f, x, y):
    with frozen(f), torch.no_grad():
        state, plan = search.begin(f, x, y, second(f, x), seeded()), search.plan(x)
        with Waits() as watched:
            for now in plan[:3]:
                state = search.step(f, state, now, seeded())
        assert not watched.waiting
        with Waits() as watched:
            x[x > 0.5].sum().item()
        assert len(watched.waiting) == 2


def test_whoever_has_fallen_is_let_go_once_they_are_many(f, x, y, monkeypatch):
    monkeypatch.setattr(rounds, "ROUND", 5)
    search, asked = APGD(around=Linf(eps=0.06), steps=20), []
    handle = f.register_forward_hook(lambda module, args, output: asked.append(len(args[0])))
    with frozen(f):
        found, fooled = carried_out(f, search, x, y, y, seeded())
        handle.remove()
        monkeypatch.setattr(rounds, "FALLEN", 2.0)
        patient, same = carried_out(f, search, x, y, y, seeded())
    assert asked[0] == len(x)
    assert asked[-1] == (~fooled).sum()
    assert sorted(asked, reverse=True) == asked
    assert len(asked) == 21
    assert torch.equal(fooled, same)
    assert torch.allclose(found, patient, atol=1e-6)


def test_a_search_ends_when_nobody_is_left(f, x, y):
    asked = []
    f.register_forward_hook(lambda module, args, output: asked.append(len(args[0])))
    with frozen(f):
        _, fooled = carried_out(f, APGD(around=Linf(eps=0.5)), x, y, y, seeded())
    assert fooled.all()
    assert len(asked) == rounds.ROUND


# APGD


@pytest.mark.parametrize(
    ("steps", "looks"), [(100, [22, 41, 57, 70, 80, 87, 93, 99]), (20, [4, 7, 9, *range(10, 21)]), (1, [1])]
)
def test_apgd_looks_back_when_its_paper_says(steps, looks):
    start, *plan = APGD(around=Linf(eps=0.1), steps=steps).plan(torch.zeros(1))
    plan = torch.stack(plan)
    assert start.tolist() == [1.0, 0.0]
    assert (plan[:, 1].nonzero().squeeze(1) + 1).tolist() == looks
    assert plan[:, 1][plan[:, 1] > 0].tolist() == [b - a for a, b in zip([0, *looks], looks, strict=False)]
    assert plan[:, 0].tolist() == [1.0, *[0.75] * (steps - 1)]


def test_apgd_halves_steps_that_stop_to_gain_and_goes_back_to_its_best_point():
    class Ridge(nn.Module):
        """The loss is highest at 0.5 and falls to both sides, so that long steps leap over it."""

        def forward(self, x):
            value = -(x - 0.5).abs().flatten(1).mean(1)
            return torch.stack([-value, value], 1)

    f, x, y = Ridge(), torch.full((2, 1, 2, 2), 0.4), torch.zeros(2).long()
    search = APGD(around=Linf(eps=0.2), steps=100)
    state = search.begin(f, x, y, y, seeded())
    sizes = []
    for now in search.plan(x):
        state = search.step(f, state, now, seeded())
        sizes.append(state.size[0].item())
        if len(sizes) > 1 and sizes[-1] < sizes[-2]:
            assert torch.equal(state.here[0], state.best[0])
            assert torch.equal(state.gradient[0], state.best_gradient[0])
    changes = [step for step in range(1, 101) if sizes[step] != sizes[step - 1]]
    assert set(changes) <= {22, 41, 57, 70, 80, 87, 93, 99}
    assert len(changes) >= 4
    assert all(sizes[step] == sizes[step - 1] / 2 for step in changes)
    assert sizes[0] == pytest.approx(0.4)
    assert (state.best - 0.5).abs().max() < 0.02


def test_the_difference_of_logits_ratio_is_that_of_the_paper():
    logits, y, target = torch.tensor([[1.0, 5.0, 3.0, 2.0]]), torch.tensor([1]), torch.tensor([0])
    assert difference_of_logits_ratio(logits, y).item() == pytest.approx(-(5 - 3) / (5 - 2))
    assert targeted_difference_of_logits_ratio(logits, y, target).item() == pytest.approx(-(5 - 1) / (5 - 1.5))
    for scaled in (difference_of_logits_ratio(7 * logits, y), difference_of_logits_ratio(logits + 3, y)):
        assert scaled.item() == pytest.approx(-2 / 3)


@pytest.mark.parametrize(
    ("gains", "shrunk", "seen", "look", "halved"),
    [
        (2, True, -inf, 4, True),  # Three of four steps gained, which is not more than three quarters.
        (3, True, -inf, 4, False),
        (3, False, inf, 4, True),  # The last look saw a loss that none since was larger than, and steps were as long.
        (3, True, inf, 4, False),
        (3, False, -inf, 4, False),
        (0, False, inf, 0, False),
    ],
)
def test_apgd_halves_its_steps_on_two_conditions(gains, shrunk, seen, look, halved):
    f, x = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)), torch.full((1, 1, 2, 2), 0.5)
    with torch.no_grad():
        f[1].weight.copy_(torch.tensor([[-1.0], [1.0]]).expand(2, 4))
    search, y = APGD(around=Linf(eps=0.4)), torch.tensor([0])
    with frozen(f):
        at = search.step(f, search.begin(f, x, y, y, seeded()), torch.tensor([1.0, 0.0]), seeded())
        before = at._replace(
            size=torch.tensor([0.01]),
            gains=torch.tensor([float(gains)]),
            shrunk=torch.tensor([shrunk]),
            seen=torch.tensor([seen]),
        )
        after = search.step(f, before, torch.tensor([0.75, float(look)]), seeded())
    assert after.loss > before.loss, "the step gained"
    assert after.size.item() == pytest.approx(0.005 if halved else 0.01)
    assert after.gains.item() == (0 if look else gains + 1)
    assert after.shrunk.item() == (halved if look else shrunk)
    assert after.seen.item() == (after.best_loss.item() if look else seen)


def test_apgd_climbs_the_loss_that_it_names(rng):
    logits, y, target = torch.randn(6, 5, generator=rng), torch.arange(6) % 5, (torch.arange(6) + 2) % 5
    named = {"ce": cross_entropy(logits, y), "dlr": difference_of_logits_ratio(logits, y)}
    named["targeted dlr"] = targeted_difference_of_logits_ratio(logits, y, target)
    for name, expected in named.items():
        assert torch.equal(APGD(around=Linf(eps=0.1), loss=name).losses(logits, y, target), expected)


@both_balls
def test_apgd_first_looks_at_where_it_starts(ball, f, x, y):
    search = APGD(around=ball, steps=3)
    with frozen(f), torch.no_grad():
        begun = search.begin(f, x, y, y, seeded())
        at = search.step(f, begun, search.plan(x)[0], seeded())
        assert torch.allclose(at.here, begun.here, atol=1e-6)
        assert torch.equal(at.best, at.here)
        assert torch.equal(at.fooled, f(at.here).argmax(1) != y)
        assert at.loss.isfinite().all()
        assert not at.gains.any()
        later = search.step(f, at, search.plan(x)[1], seeded())
    assert (later.here != at.here).flatten(1).any(1).all()


@both_balls
def test_apgd_agrees_with_its_slow_twin(ball, rng):
    f, x = network().double(), torch.rand(4, 1, 6, 6, generator=rng, dtype=torch.float64)
    y, search = predicted(f, x), APGD(around=replace(ball, eps=ball.eps / 12), steps=50)
    plan = search.plan(x)
    looks = plan[1:, 1].nonzero().squeeze(1) + 1
    with frozen(f):
        state = search.begin(f, x, y, y, seeded())
        ours = repeated(f, search, state, plan, seeded())
        for row, (image, target) in enumerate(zip(x, y, strict=True)):
            means = {"ball": (type(ball).__name__, search.around.eps), "steps": 50, "looks": looks.tolist()}
            best, largest, size, found = slow.apgd(f, image, target, start=state.here[row], **means)
            close(ours.best[row], best)
            close(ours.best_loss[row], largest)
            close(ours.size[row], torch.tensor(size).double())
            close(ours.found[row], found)
    assert (ours.size < 2 * search.around.eps).all()
    assert 0 < ours.fooled.sum() < len(x)


# FAB


@both_balls
@pytest.mark.parametrize("targeted", [False, True])
def test_fab_agrees_with_its_slow_twin(ball, targeted, rng):
    f, x = network().double(), torch.rand(6, 1, 6, 6, generator=rng, dtype=torch.float64)
    y, aims = predicted(f, x), second(f, x)
    search = FAB(around=ball, targeted=targeted, steps=12)
    with frozen(f), torch.no_grad():
        found, fooled, *_, nearest = repeated(
            f, search, search.begin(f, x, y, aims, seeded()), search.plan(x), seeded()
        )
    for row, (image, target) in enumerate(zip(x, y, strict=True)):
        aim = aims[row] if targeted else None
        with frozen(f):
            closest, size = slow.fab(f, image, target, kind=type(ball).__name__, steps=12, aim=aim)
        close(found[row], closest)
        assert nearest[row].item() == pytest.approx(float(size))
        assert fooled[row] == (size <= ball.eps)
    assert nearest.isfinite().any()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reach", [0.05, 0.6, 3.0])
def test_the_way_to_a_hyperplane_is_the_shortest_in_linf(seed, reach):
    optimize = pytest.importorskip("scipy.optimize")
    point, slope, ahead = problem(seed, reach)
    found = FAB(around=Linf(eps=0.1)).way(point, slope, ahead).flatten(1).double()
    w, t = slope.flatten(1).double().numpy(), point.flatten(1).double().numpy()
    for row in range(len(point)):
        count = w.shape[1]
        bounds = [(-value, 1 - value) for value in t[row]] + [(0, 1)]
        below = np.block([[np.eye(count), -np.ones((count, 1))], [-np.eye(count), -np.ones((count, 1))]])
        answer = optimize.linprog(
            np.eye(count + 1)[-1],
            A_ub=below,
            b_ub=np.zeros(2 * count),
            A_eq=np.append(w[row], 0)[None],
            b_eq=[-ahead[row].item()],
            bounds=bounds,
        )
        if answer.status == 0:
            assert found[row].abs().max().item() == pytest.approx(answer.x[-1], abs=1e-5)
            assert (found[row] * torch.from_numpy(w[row])).sum().item() == pytest.approx(-ahead[row].item(), abs=1e-4)
        else:
            corner = torch.where(slope[row].flatten() * ahead[row] > 0, 0.0, 1.0)
            assert torch.allclose(point[row].flatten() + found[row].float(), corner, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_way_to_a_hyperplane_is_the_shortest_in_l2(seed):
    point, slope, ahead = problem(seed, 0.6)
    way = FAB(around=L2(eps=0.1)).way(point, slope, ahead)
    assert torch.allclose((way * slope).flatten(1).sum(1), -ahead, atol=1e-4)
    assert (point + way).min() >= 0
    assert (point + way).max() <= 1
    for row in range(len(point)):
        w, move, t = slope[row].flatten(), way[row].flatten(), point[row].flatten()
        free = (t + move > 1e-6) & (t + move < 1 - 1e-6)
        rates = (move / w)[free]
        assert (rates - rates[0]).abs().max() < 1e-4 * rates[0].abs().clamp_min(1)
        bound = ~free
        assert (move.abs()[bound] <= rates[0].abs() * w.abs()[bound] + 1e-5).all()


def problem(seed, reach):
    """Images, slopes, and values that a change has to undo: for some pixels the image ends before."""
    rng = seeded(seed)
    point = torch.rand(5, 1, 4, 4, generator=rng)
    point[:, :, 0] = (point[:, :, 0] > 0.5).float()
    slope = torch.randn(5, 1, 4, 4, generator=rng)
    sign = torch.tensor([1.0, -1, 1, -1, 1])
    return point, slope, sign * reach * slope.abs().flatten(1).mean(1) * 4


@both_balls
@pytest.mark.parametrize(("steepness", "ahead"), [(1e-30, -1.0), (1.0, -torch.inf)], ids=["flat", "never predicted"])
def test_a_hyperplane_out_of_reach_draws_pixels_to_their_ends_and_makes_no_nan(ball, steepness, ahead):
    point, slope = torch.full((1, 1, 2, 2), 0.25), steepness * torch.tensor([[[[1.0, 0.5], [-1.0, 0.0]]]])
    way = FAB(around=ball).way(point, slope, torch.tensor([ahead]))
    torch.testing.assert_close(point + way, torch.tensor([[[[1.0, 1.0], [0.0, 0.25]]]]))


def test_tiny_slopes_have_the_same_way_as_large_ones():
    point, slope, ahead = problem(0, 0.3)
    for ball in BALLS.values():
        large, tiny = (FAB(around=ball).way(point, scale * slope, scale * ahead) for scale in (1.0, 1e-12))
        assert torch.allclose(large, tiny, atol=1e-5)


@both_balls
def test_slopes_that_all_fall_lead_as_far_as_those_that_rise(ball):
    point, slope = torch.full((1, 1, 2, 2), 0.5), -torch.tensor([[[[1.0, 0.5], [0.25, 0.1]]]])
    way = FAB(around=ball).way(point, slope, torch.tensor([-0.1]))
    linf, l2 = 0.1 * slope.sign() / slope.abs().sum(), 0.1 * slope / slope.square().sum()
    torch.testing.assert_close(way, linf if isinstance(ball, Linf) else l2)


@both_balls
def test_a_step_of_fab_is_that_computed_by_hand(ball):
    """Class 1 wins where the first pixel is above 0.7: 0.3 away from here, and 0.2 from x."""

    def f(points):
        ahead = points[:, 0, 0, 0] - 0.7
        return torch.stack([0 * ahead, ahead], 1)

    x, here = torch.tensor([[[[0.5, 0.2]]], [[[0.7, 0.2]]]]), torch.tensor([[[[0.4, 0.6]]], [[[0.7, 0.2]]]])
    search, y = FAB(around=ball), torch.tensor([0, 0])
    state = search.begin(f, x, y, 1 - y, seeded())
    found, fooled, *_, here, nearest = search.step(f, (*state[:5], here, state[6]), torch.empty(0), seeded())
    # 0.9 of the way from here and 0.1 of that from x, each 1.05 times as far as the boundary.
    reached = torch.tensor([0.9 * (0.4 + 1.05 * 0.3) + 0.1 * (0.5 + 1.05 * 0.2), 0.9 * 0.6 + 0.1 * 0.2])
    torch.testing.assert_close(found[0].flatten(), reached)
    torch.testing.assert_close(here[0], x[0] + 0.9 * (found[0] - x[0]))
    change = (found - x)[0].flatten()
    torch.testing.assert_close(nearest[0], change.abs().max() if isinstance(ball, Linf) else change.norm())
    assert not fooled[0]
    assert torch.allclose(here[1], x[1]), "a boundary that is reached already is no distance to divide by"


def test_fab_takes_the_boundary_that_is_nearest_in_its_own_norm():
    weights = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]])
    x, y = torch.full((1, 1, 2, 2), 0.5), torch.tensor([0])
    bias = torch.tensor([0.0, -0.3, -0.4]) - (weights * 0.5).sum(1)

    def f(points):
        return points.flatten(1) @ weights.T + bias

    for ball, nearest in ((L2(eps=0.5), 1), (Linf(eps=0.5), 2)):  # 0.3 before 0.4, and 0.4 / 2 before 0.3.
        ahead, slope = FAB(around=ball, targeted=False).nearest_boundary(f, x, y, y)
        torch.testing.assert_close(ahead, (f(x)[:, nearest]).detach())
        torch.testing.assert_close(slope.flatten(), weights[nearest])


def test_lengths_of_changes_know_no_sign():
    change = torch.tensor([[[[-0.4, 0.3]]]])
    assert FAB(around=Linf(eps=0.1)).size(change).item() == pytest.approx(0.4)
    assert FAB(around=L2(eps=0.1)).size(change).item() == pytest.approx(0.5)


@both_balls
def test_fab_finds_about_the_distance_of_a_linear_boundary(ball, rng):
    f = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    x = 0.5 + 0.02 * torch.rand(6, 1, 6, 6, generator=rng)
    y, target = predicted(f, x), second(f, x)
    weights = f[1].weight.detach()[target] - f[1].weight.detach()[y]
    ahead = answers(f, x).gather(1, target[:, None]) - answers(f, x).gather(1, y[:, None])
    lengths = weights.abs().sum(1) if isinstance(ball, Linf) else weights.norm(dim=1)
    nearest = ahead.squeeze(1).abs() / lengths
    wide = replace(ball, eps=1.01 * nearest.max().item())
    search = FAB(around=wide, steps=20)
    with frozen(f):
        state = repeated(f, search, search.begin(f, x, y, target, seeded()), search.plan(x), seeded())
    assert torch.allclose(state[-1], nearest, rtol=0.02)


# Square


@both_balls
def test_squares_shrink_as_their_paper_says(ball):
    plan = Square(around=ball).plan(torch.zeros(1, 3, 32, 32)).squeeze(1).int().tolist()
    sides = [29, 20, 14, 10, 7, 5, 4, 3, 2, 1] if isinstance(ball, Linf) else [29, 21, 15, 11, 7, 5, 5, 3]
    assert sorted(set(plan), reverse=True) == sorted(set(sides), reverse=True)
    assert plan == sorted(plan, reverse=True)
    assert len(plan) == 5000
    finer = Square(around=Linf(eps=0.1), steps=10_000).plan(torch.zeros(1, 1, 32, 32)).squeeze(1)
    assert (finer.diff().nonzero().squeeze(1)).tolist() == [10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000]
    assert max(Square(around=ball).plan(torch.zeros(1, 1, 2, 2)).flatten()) <= 2


def test_squares_lie_anywhere_in_an_image_and_nowhere_else():
    x, seen = torch.zeros(500, 1, 5, 6), set()
    mask, down, along = placed(x, torch.tensor(3.0), seeded())
    assert (mask.sum((1, 2, 3)) == 9).all()
    for row in range(len(x)):
        top, left = (-down[row, 0]).int().item(), (-along[row, 0]).int().item()
        assert mask[row, 0, top : top + 3, left : left + 3].all()
        seen.add((top, left))
    assert seen == {(top, left) for top in range(3) for left in range(4)}


@pytest.mark.parametrize("side", [3, 5, 7])
def test_pyramids_have_two_halves_and_the_length_one(side):
    shape = pyramids(torch.tensor(float(side)), 9, 8)
    assert shape.square().sum().item() == pytest.approx(1)
    assert (shape[: side // 2, :side] > 0).all()
    assert (shape[side // 2 : side, :side] < 0).all()
    assert not shape[side:].any()
    assert not shape[:, side:].any()
    assert shape[:, side // 2].abs().max() == shape.abs().max()


def test_what_a_change_in_l2_has_left_is_spent_in_one_square_and_taken_from_another(rng):
    change, side = 0.01 * torch.randn(4, 3, 6, 6, generator=rng), torch.tensor(3.0)
    here, there = (placed(change, side, seeded(number)) for number in (0, 1))
    found = moved(change, here, there, side, 0.5, rng)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.full((4,), 0.5))
    emptied, kept = (there[0] > here[0]).expand_as(found), (there[0] + here[0] == 0).expand_as(found)
    assert not found[emptied].any()
    assert torch.equal(found[kept], change[kept])


def test_half_of_the_pyramids_lie_on_their_side(rng):
    change, side = torch.zeros(400, 1, 5, 5), torch.tensor(5.0)
    whole = placed(change, side, rng)
    found = moved(change, whole, whole, side, 0.5, rng)
    turned = found[:, 0, 0, 0] * found[:, 0, -1, 0] > 0
    assert 0.4 < turned.double().mean() < 0.6


@both_balls
@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 9, 6), (1, 34, 36)])
def test_square_agrees_with_its_slow_twin(ball, shape):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        f = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 8), nn.Tanh(), nn.Linear(8, 3)).double()
    search, kept = Square(around=ball, steps=80), set()
    for seed in range(3):
        x = torch.rand(1, *shape, generator=seeded(seed), dtype=torch.float64)
        y, sides = predicted(f, x), search.plan(x).squeeze(1).int().tolist()
        with torch.no_grad():
            rng = seeded(seed)
            state = repeated(f, search, search.begin(f, x, y, y, rng), search.plan(x), rng)
            means = {"ball": (type(ball).__name__, ball.eps), "sides": sides, "rng": seeded(seed)}
            here, ahead = slow.square(f, x[0], y[0], **means)
        # The root of what a change has left makes 1e-6 of 1e-12, by which ours divides rather than by 0.
        close(state[0][0], here, 1e-5)
        close(state[-1][0], ahead, 1e-4)
        kept.add(ahead.item())
    assert len(kept) == 3


def test_a_margin_is_above_0_where_f_is_wrong_and_there_alone_whatever_the_logits():
    answers_to = [
        ([1.0, 3.0], 0, 2.0),
        ([1.0, 3.0], 1, -2.0),
        ([inf, 0.0], 0, -inf),
        ([inf, 0.0], 1, inf),
        ([inf, inf], 0, -inf),  # A tie is won by the first class, as argmax has it.
        ([inf, inf], 1, 1e-12),
        ([2.0, 2.0], 0, 0.0),
        ([2.0, 2.0], 1, 1e-12),
        ([nan, 9.0], 1, inf),
    ]
    logits, y, expected = (torch.tensor(column) for column in zip(*answers_to, strict=True))
    assert torch.equal(margin_at(lambda points: logits, torch.zeros(len(y)), y), expected)


@both_balls
def test_square_goes_on_from_a_start_of_infinite_logits(ball, f, x, y):
    class Late(nn.Sequential):
        asked = 0

        def forward(self, x):
            self.asked += 1
            return super().forward(x) if self.asked > 1 else torch.full_like(super().forward(x), torch.inf)

    with frozen(f):
        fooled = carried_out(Late(f), Square(around=ball, steps=150), x, y, y, seeded())[1]
    assert fooled.any()


def test_square_never_gives_up_what_it_gained(f, x, y):
    for ball in BALLS.values():
        search = Square(around=ball, steps=60)
        with frozen(f):
            state = search.begin(f, x, y, y, seeded())
            ahead = [state[-1]]
            for now in search.plan(x):
                before, state = state, search.step(f, state, now, seeded(len(ahead)))
                ahead.append(state[-1])
                assert torch.equal(state[0][before[1]], before[0][before[1]]), "whoever has fallen stays as he fell"
        assert all((later >= earlier).all() for earlier, later in pairwise(ahead))
        assert (ahead[-1] > ahead[0]).any()


# The ensemble


def test_autoattack_fools_whatever_pgd_fools(f, rng):
    x = torch.rand(40, 1, 6, 6, generator=rng)
    y, attacks = predicted(f, x), (pgd(eps=0.03), AutoAttack(eps=0.03, parts=("apgd-ce", "apgd-t")))
    by_pgd, by_all = (predicted(f, attack(f, x, y, seeded())) == y for attack in attacks)
    assert 0 < by_all.sum() <= by_pgd.sum() < len(x)


def test_square_fools_a_network_whose_gradients_say_nothing(f, x, y):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = f

        def forward(self, x):
            logits = self.f(x)
            return logits.detach() + 0 * logits

    masked, eps = Masked(), 0.1
    for parts, some in ((("apgd-ce", "apgd-t", "fab-t"), False), (("square",), True)):
        found = AutoAttack(eps=eps, parts=parts)(masked, x, y, seeded())
        by_search = (predicted(f, found) != y).sum().item()
        assert (by_search > 12) == some


@pytest.mark.parametrize(
    ("part", "passes"), [("apgd-ce", 101), ("apgd-t", 3 * 101), ("fab", 2 * 100), ("fab-t", 6 * 100)]
)
def test_a_part_looks_for_100_steps_at_whoever_does_not_fall(part, passes, x):
    asked, f = [], nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    with torch.no_grad():
        f[1].weight.mul_(1e-3)
        f[1].bias.copy_(torch.tensor([9.0, 0.0, 1.0, 2.0]))
    f.register_forward_hook(lambda module, args, output: asked.append(len(args[0])))
    AutoAttack(eps=0.1, parts=(part,))(f, x, torch.zeros(len(x)).long(), seeded())
    assert asked == [len(x)] * (1 + passes)


@pytest.mark.parametrize(
    ("classes", "parts"),
    [
        (2, ("apgd-ce", "fab-t", "square")),
        (3, ("apgd-ce", "fab-t", "square")),
        (4, ("apgd-ce", "apgd-t", "fab-t", "square")),
        (12, ("apgd-ce", "apgd-t", "fab-t", "square")),
    ],
)
def test_the_standard_parts_and_targets_fit_the_number_of_classes(classes, parts, x, monkeypatch):
    seen = []

    def watched(f, search, x, y, target, rng):
        seen.append((search, target))
        return x, torch.zeros_like(y, dtype=torch.bool)

    monkeypatch.setattr(autoattack, "carried_out", watched)
    f = network(classes)
    y = predicted(f, x)
    attack = AutoAttack(eps=0.03)
    attack(f, x, y, seeded())
    targets = min(9, classes - 1)
    counts = {part: targets if part.endswith("-t") else 1 for part in parts}
    assert [search for search, _ in seen] == [attack.search(part) for part in parts for _ in range(counts[part])]
    ranked = answers(f, x).argsort(1, descending=True)
    aimed = [target for search, target in seen if isinstance(search, FAB)]
    assert torch.equal(torch.stack(aimed, 1), ranked[:, 1 : targets + 1])


def test_a_part_that_is_chosen_but_not_defined_for_so_few_classes_is_refused(x):
    f = network(3)
    with pytest.raises(ValueError, match=r"^AutoAttack.parts apgd-t are not defined for 3 classes$"):
        AutoAttack(parts=("apgd-t", "apgd-dlr"))(f, x, predicted(f, x), seeded())


def test_the_budget_of_autoattack_names_its_parts():
    assert AutoAttack(eps=0.3).budget == "Linf 0.3, APGD-CE, APGD-T, FAB-T, Square (APGD-T from 4 classes on)"
    assert AutoAttack(eps=0.5, norm="L2", parts=("square",)).budget == "L2 0.5, Square"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"eps": -1.0}, "AutoAttack.eps must be a positive number, got -1.0"),
        ({"eps": "8/255"}, "AutoAttack.eps must be a positive number, got '8/255'"),
        ({"eps": 8}, "Linf.eps must be at most 1, the scale of pixels, got 8: write 8 of 255 as 8/255"),
        ({"norm": "L1"}, "AutoAttack.norm must be Linf or L2, got 'L1'"),
        (
            {"parts": ("pgd",)},
            "AutoAttack.parts must be some of apgd-ce, apgd-dlr, apgd-t, fab, fab-t, square, got ('pgd',)",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(ValueError) as error:
        AutoAttack(**wrong)
    assert str(error.value) == sentence


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "fab", "square"])
@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.02), ("L2", 0.08)])
def test_each_part_leaves_about_as_many_standing_as_that_of_another_library(part, norm, eps, rng, monkeypatch):
    pyautoattack = pytest.importorskip("pyautoattack")
    f, x = network().eval().requires_grad_(False), torch.rand(150, 1, 6, 6, generator=rng)
    y = predicted(f, x)
    peer = pyautoattack.AutoAttack(f, eps=eps, norm=norm, seed=0, device="cpu")
    peer.attacks_to_run = [part]
    peer.apgd_targeted.n_target_classes = peer.fab.n_target_classes = 3
    peer.square.n_queries = 300
    attack = AutoAttack(eps=eps, norm=norm, parts=(part,))
    if part == "square":
        monkeypatch.setattr(AutoAttack, "search", lambda self, part: Square(around=self.within, steps=300))
    with torch.random.fork_rng():
        theirs = predicted(f, peer.run_standard_evaluation(x, y, batch_size=150)[0]) == y
    ours = predicted(f, attack(f, x, y, seeded())) == y
    assert 0 < ours.sum() < len(x)
    more = (ours.sum() - theirs.sum()).item()
    # Their squares lie at the same place in all images, and never at the far ends: on small images ours find more.
    assert more <= 2
    assert more >= -2 or part == "square"


@pytest.mark.parametrize("ball", [Linf(eps=0.2), L2(eps=1.0)])
def test_square_counts_a_tie_that_is_lost(ball, f, x):
    class Coarse(nn.Module):
        def forward(self, points):
            return (2 * f.eval()(points)).round()

    coarse = Coarse().eval()
    with torch.no_grad():
        y = coarse(x).argmax(1)
        points, fooled = carried_out(coarse, Square(around=ball, steps=300), x, y, y, seeded())
        logits = coarse(points)
    tied = logits.gather(1, y.unsqueeze(1)).squeeze(1) == logits.amax(1)
    assert (tied & (logits.argmax(1) != y)).any(), "some are fooled by a tie"
    assert fooled.equal(logits.argmax(1) != y)


def test_targets_are_ranked_with_the_answer_first_however_many_classes_tie():
    seen = []

    class Tied(nn.Module):
        def forward(self, points):
            return torch.zeros(len(points), 100) + 0 * points.flatten(1)[:, :1]

    attack = AutoAttack(eps=0.1, parts=("apgd-t",))
    x = torch.rand(3, 1, 6, 6)

    def noting(f, search, x, y, target, rng):
        seen.append(target.clone())
        return x, torch.zeros(len(x), dtype=torch.bool)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(autoattack, "carried_out", noting)
        attack(Tied(), x, torch.zeros(3).long(), seeded())
    assert torch.stack(seen, 1).tolist() == [list(range(1, 10))] * 3, "y itself is no target"
