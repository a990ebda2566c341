"""What the neighborhoods beyond the paper's do, where the answer is known; and that each of them trains."""

from dataclasses import dataclass, replace
from math import log, pi, sqrt

import pytest
import torch
import torch.nn.functional as F

import unperturbed
from unperturbed.datasets import load
from unperturbed.fitting import fit
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import L0, L1, L2, Affine, Blur, Color, Composed, Linf, Spatial, TurnThenShift
from unperturbed.objectives import SRT
from unperturbed.recipe import Recipe, dumps, loads
from unperturbed.solvers import FGSM, PGD, Grid, MomentumPGD, WorstOfK

BOXES = {
    "TurnThenShift": (TurnThenShift(translation=1.0), (7, 3, 1)),
    "Affine": (Affine(translation=1.0), (3, 1, 1, 2, 2)),
    "Blur": (Blur(), (3,)),
    "Color": (Color(), (2, 2, 2, 2)),
    "Composed of boxes": (Composed(parts=(Blur(), Spatial(translation=1.0))), (2, 3, 1, 1)),
}
BESIDES = {
    "L1": L1(eps=2.0, share=0.05),
    "Composed with pixels": Composed(parts=(Spatial(translation=1.0), Linf(eps=0.1))),
}
ALL = BESIDES | {name: around for name, (around, _) in BOXES.items()}

every_neighborhood = pytest.mark.parametrize("around", ALL.values(), ids=ALL)
every_box = pytest.mark.parametrize(("around", "points"), BOXES.values(), ids=BOXES)


@pytest.fixture(params=[1, 3], ids=["gray", "color"])
def x(request, rng):
    return torch.rand(4, request.param, 6, 5, generator=rng, dtype=torch.float64)


@pytest.fixture
def rgb(rng):
    """Colors so pale and so little bright or dark that no change of them is cut off."""
    return 0.4 + 0.2 * torch.rand(3, 3, 4, 5, generator=rng, dtype=torch.float64)


def theta_of(x, *parameters):
    """The same parameters for each image."""
    return x.new_tensor(parameters).expand(len(x), -1)


def along(weights):
    """The loss <w, x'>."""
    return lambda images, rows=None: (images * (weights if rows is None else weights[rows])).flatten(1).sum(1)


# L1


def by_bisection(row, eps):
    """The projection onto the L1 ball, its threshold found by halving an interval."""
    low, high = 0.0, row.abs().max().item()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (row.abs() - middle).clamp_min(0).sum() > eps else (low, middle)
    return row.sign() * (row.abs() - high).clamp_min(0)


@pytest.mark.parametrize("spread", [0.01, 1.0, 100.0])
def test_the_projection_onto_the_l1_ball_is_that_found_by_bisection(spread, rng):
    eps, middle = 0.45, torch.full((6, 1, 3, 4), 0.5, dtype=torch.float64)
    theta = spread * torch.randn(middle.shape, generator=rng, dtype=middle.dtype)
    expected = theta if spread == 0.01 else torch.stack([by_bisection(row, eps) for row in theta])
    torch.testing.assert_close(L1(eps=eps).project(middle, theta), expected)


def test_what_is_far_away_is_projected_into_a_small_l1_ball_in_spite_of_rounding(rng):
    middle, around = torch.full((20, 1, 8, 8), 0.5), L1(eps=1e-4)
    far = 100 * torch.randn(middle.shape, generator=rng)
    assert around.distance(middle, around.project(middle, far)).max() < 1.01


def test_a_step_in_l1_moves_the_share_of_the_largest_gradients_alike():
    gradient = torch.tensor([[3.0, -5.0, 0.1, 4.0, -1.0, 0.0, 0.2, -0.3], [0, 0, 0, 0, -1e-9, 0, 0, 0]])
    step = L1(share=0.25).direction(gradient.view(2, 2, 2, 2)).flatten(1)
    assert step.tolist() == [[0, -0.5, 0, 0.5, 0, 0, 0, 0], [0, 0, 0, 0, -1, 0, 0, 0]]


def test_no_step_of_unit_length_is_steeper_than_that_of_a_single_value(x):
    gradient = x - 0.5
    gain = (L1(share=0.0).direction(gradient) * gradient).flatten(1).sum(1)
    torch.testing.assert_close(gain, gradient.abs().flatten(1).amax(1))


def test_pgd_in_l1_reaches_the_maximizer_of_a_linear_loss(x, rng):
    x = 0.4 + 0.2 * x
    weights = torch.randn(x.shape, generator=rng, dtype=x.dtype)
    found = PGD(around=L1(eps=0.3, share=0.0), steps=20, step_size=0.05, start="identity")(along(weights), x, rng)
    torch.testing.assert_close(found - x, 0.3 * L1(share=0.0).direction(weights))


@pytest.mark.parametrize("before", [None, (), (Linf(eps=0.0),)], ids=["alone", "composed", "after another part"])
@pytest.mark.parametrize(
    "solver",
    [PGD(steps=20, step_size=0.1, start="identity"), MomentumPGD(steps=20, step_size=0.1), FGSM(start="identity")],
    ids=lambda solver: type(solver).__name__,
)
def test_an_ascent_in_l1_spends_nothing_on_values_that_cannot_move_on(solver, before, x, rng):
    x, ball = x.round(), L1(eps=0.3, share=0.0)
    weights = torch.randn(x.shape, generator=rng, dtype=x.dtype)
    movable = torch.where(x > 0.5, weights.clamp_max(0), weights.clamp_min(0))
    around = ball if before is None else Composed(parts=(*before, ball))
    found = replace(solver, around=around)(along(weights), x, rng)
    torch.testing.assert_close(found - x, 0.3 * ball.direction(movable))


def test_a_step_in_l1_moves_values_of_the_image_that_the_parts_before_made(x, rng):
    composed = Composed(parts=(Color(brightness=1.0), L1(share=1.0)))
    theta = composed.identity(x)
    theta[:, 0] = -1.0
    assert not composed.transform(x, theta).any()
    slopes = torch.randn(theta.shape, generator=rng, dtype=x.dtype)
    steps = composed.long_step(x, theta, slopes, 1.0)
    assert torch.equal(steps[:, 4:].sign(), slopes[:, 4:].sign().clamp_min(0))


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_the_share_of_a_step_is_a_fraction(share):
    with pytest.raises(ValueError, match=f"share must be a fraction between 0 and 1, got {share}"):
        L1(share=share)


# TurnThenShift


@pytest.mark.parametrize("kept", [(1, 0, 0), (0, 1, 1)], ids=["turned", "shifted"])
def test_a_second_interpolation_changes_nothing_where_a_warp_only_turns_or_only_shifts(kept, x, rng):
    theta = Spatial().sample(x, rng) * x.new_tensor(kept)
    torch.testing.assert_close(TurnThenShift().transform(x, theta), Spatial().transform(x, theta))


@pytest.mark.parametrize("translation", [0.5, 3.0])
def test_a_rotated_image_is_shifted_on_a_canvas_that_keeps_what_comes_back(translation, x, rng):
    around, once = TurnThenShift(rotation=170.0, translation=translation), Spatial(rotation=170.0, translation=3.0)
    theta = around.sample(x, rng)
    turned = once.transform(F.pad(x, (16,) * 4), theta * x.new_tensor([1, 0, 0]))
    theirs = once.transform(turned, theta * x.new_tensor([0, 1, 1]))[..., 16:-16, 16:-16]
    torch.testing.assert_close(around.transform(x, theta), theirs)
    assert not torch.allclose(around.transform(x, theta), once.transform(x, theta))


# Affine


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_affine_without_zoom_and_shear_is_spatial(padding, x, rng):
    theta = Spatial().sample(x, rng)
    affine = Affine(padding=padding).transform(x, F.pad(theta, (0, 2)))
    assert torch.equal(affine, Spatial(padding=padding).transform(x, theta))


def test_zoom_by_two_is_interpolation_and_cropping(rng):
    x = torch.rand(2, 3, 6, 4, generator=rng, dtype=torch.float64)
    zoomed = Affine().transform(x, theta_of(x, 0.0, 0.0, 0.0, log(2), 0.0))
    torch.testing.assert_close(zoomed, F.interpolate(x, scale_factor=2, mode="bilinear")[..., 3:-3, 2:-2])


def test_45_degrees_of_shear_move_each_row_by_its_distance_from_the_center(rng):
    x = torch.rand(2, 1, 5, 5, generator=rng, dtype=torch.float64)
    sheared = Affine().transform(x, theta_of(x, 0.0, 0.0, 0.0, 0.0, 45.0))
    expected = torch.zeros_like(x)
    for row, moved in enumerate(range(-2, 3)):
        expected[..., row, max(moved, 0) : 5 + min(moved, 0)] = x[..., row, max(-moved, 0) : 5 - max(moved, 0)]
    torch.testing.assert_close(sheared, expected)


def test_shear_comes_before_rotation_and_rotation_before_translation():
    x = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    x[0, 0, 5, 4] = 1
    moved = Affine().transform(x, theta_of(x, 90.0, 2.0, 0.0, 0.0, 45.0))
    # One below the center is sheared one to the right, turned to one below and left of it, and goes two to the right.
    assert (moved > 0.5).nonzero().tolist() == [[0, 0, 5, 5]]


def test_a_shear_that_flattens_the_image_is_refused():
    with pytest.raises(ValueError, match="shear must be less than 90 degrees"):
        Affine(shear=90.0)


# Blur


def closed_laplacian(size):
    """The matrix of (1, -2, 1) on a row of pixels, with nothing flowing over its ends."""
    neighbors = torch.diag(torch.ones(size - 1, dtype=torch.float64), 1)
    neighbors = neighbors + neighbors.T
    return neighbors - torch.diag(neighbors.sum(1))


@pytest.mark.parametrize("theta", [0.05, 0.7, 3.0])
def test_blur_is_the_exponential_of_the_laplacian(theta, x):
    down, right = (torch.matrix_exp(theta**2 / 2 * closed_laplacian(size)) for size in x.shape[-2:])
    torch.testing.assert_close(Blur().transform(x, theta_of(x, theta)), down @ x @ right)


def test_a_blurred_point_is_a_gaussian_of_that_variance():
    point = torch.zeros(1, 1, 61, 61, dtype=torch.float64)
    point[..., 30, 30] = 1
    blurred = Blur().transform(point, theta_of(point, 3.0))[0, 0]
    offset = torch.arange(-30, 31, dtype=torch.float64)
    bell = torch.exp(-offset.square() / (2 * 9)) / sqrt(2 * pi * 9)
    assert (blurred - torch.outer(bell, bell)).abs().max() < 0.03 * blurred.max()
    torch.testing.assert_close((blurred.sum(0) * offset.square()).sum().item(), 9.0)


@pytest.mark.parametrize("theta", [0.0, 0.3, 2.0, 100.0])
def test_blur_neither_darkens_nor_brightens(theta, x):
    blurred = Blur().transform(x, theta_of(x, theta))
    torch.testing.assert_close(blurred.mean((2, 3)), x.mean((2, 3)))
    flat = torch.full_like(x, 0.7)
    torch.testing.assert_close(Blur().transform(flat, theta_of(x, theta)), flat)


def test_no_blur_is_exactly_nothing_and_endless_blur_leaves_the_mean(x):
    assert torch.equal(Blur().transform(x, theta_of(x, 0.0)), x)
    torch.testing.assert_close(Blur().transform(x, theta_of(x, 100.0)), x.mean((2, 3), keepdim=True).expand_as(x))


def test_the_variances_of_two_blurs_add_up(x):
    twice = Blur().transform(Blur().transform(x, theta_of(x, 0.3)), theta_of(x, 0.4))
    torch.testing.assert_close(twice, Blur().transform(x, theta_of(x, 0.5)))


def test_each_image_has_its_own_blur(x):
    theta = torch.linspace(0, 2, len(x), dtype=x.dtype).view(-1, 1)
    one_by_one = [Blur().transform(x[i : i + 1], theta[i : i + 1]) for i in range(len(x))]
    torch.testing.assert_close(Blur().transform(x, theta), torch.cat(one_by_one))


def test_beside_x_blur_has_a_gradient_and_a_negative_theta_means_the_same(x):
    theta = theta_of(x, 1e-3).float().clone().requires_grad_()
    Blur().transform(x.float(), theta).square().sum().backward()
    assert (theta.grad < 0).all()
    assert torch.equal(Blur().transform(x, theta_of(x, -0.8)), Blur().transform(x, theta_of(x, 0.8)))
    assert Blur(sigma=2.0).project(x, theta_of(x, -0.8))[0].item() == 0.8


def test_an_ascent_over_blurs_leaves_x(x, rng):
    """Where it starts at x, as MI-FGSM does, a slope of 0 would hold it there for good."""

    def smooth(images):
        return -images.diff().square().flatten(1).sum(1)

    thetas = [theta_of(x, theta).clone().requires_grad_() for theta in (0.0, 1e-3)]
    at_x, beside = (torch.autograd.grad(smooth(Blur().transform(x, each)).sum(), each)[0] for each in thetas)
    torch.testing.assert_close(at_x, beside, rtol=1e-4, atol=0)
    expected = Blur().transform(x, theta_of(x, 0.9))
    for solver in (
        MomentumPGD(around=Blur(), steps=3, step_size=0.3),
        PGD(around=Blur(), steps=3, step_size=0.3, start="identity"),
        FGSM(around=Blur(), step=0.9, start="identity"),
    ):
        torch.testing.assert_close(solver(smooth, x, rng), expected)
    both = MomentumPGD(around=Composed(parts=(Linf(eps=0.1), Blur())), steps=3, step_size=0.3)
    alone = MomentumPGD(around=Composed(parts=(Linf(eps=0.1),)), steps=3, step_size=0.3)
    assert (smooth(both(smooth, x, rng)) > smooth(alone(smooth, x, rng))).all()


def test_blur_takes_no_pixel_out_of_the_range_of_its_own_image():
    x = torch.stack([torch.full((1, 3, 3), 0.2), torch.full((1, 3, 3), 0.8)])
    assert Blur().contains(x, x).all()
    assert not Blur().contains(x, x.flip(0)).any()


def test_a_grid_over_blur_goes_from_none_to_sigma(x):
    assert Blur(sigma=2.0).grid(x, (5,)).flatten().tolist() == [0, 0.5, 1, 1.5, 2]
    assert Blur(sigma=2.0).grid(x, (1,)).tolist() == [[0]]


# Color


def luma(x):
    """Rec. 601, or the gray value itself."""
    return (x * x.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1) if x.shape[1] == 3 else x[:, 0]


@pytest.mark.parametrize("shift", [-0.2, 0.35])
def test_brightness_is_added_and_kept_within_images(shift, x):
    torch.testing.assert_close(Color().transform(x, theta_of(x, shift, 0, 0, 0)), (x + shift).clamp(0, 1))


def test_without_contrast_everything_has_the_mean_luma(x):
    flat = Color(contrast=1.0).transform(x, theta_of(x, 0, -1, -1, 0))
    torch.testing.assert_close(flat, luma(x).mean((1, 2)).view(-1, 1, 1, 1).expand_as(x))


def test_contrast_multiplies_what_lies_between_pixels(rgb):
    strong = Color().transform(rgb, theta_of(rgb, 0, 0.5, 0, 0))
    torch.testing.assert_close(strong - strong[..., :1, :1], 1.5 * (rgb - rgb[..., :1, :1]))
    torch.testing.assert_close(luma(strong).mean((1, 2)), luma(rgb).mean((1, 2)))


def test_without_saturation_everything_is_gray(rgb):
    gray = Color(saturation=1.0).transform(rgb, theta_of(rgb, 0, 0, -1, 0))
    torch.testing.assert_close(gray, luma(rgb).unsqueeze(1).expand_as(rgb))


def test_a_full_turn_of_the_hue_is_none_and_turns_add_up(rgb):
    turned = rgb
    for angle in (360, 100, -40, 300):
        turned = Color().transform(turned, theta_of(rgb, 0, 0, 0, angle))
    torch.testing.assert_close(turned, rgb)


def test_a_third_of_a_turn_takes_red_to_green_at_the_same_luma(rgb):
    turned = Color().transform(rgb, theta_of(rgb, 0, 0, 0, 120))
    cycled = rgb.roll(1, 1)
    torch.testing.assert_close(turned, cycled + (luma(rgb) - luma(cycled)).unsqueeze(1))


def test_hue_saturation_contrast_and_brightness_commute_within_images(rgb):
    theta = (0.03, -0.2, 0.3, 50.0)
    alone = [theta_of(rgb, *(value if i == j else 0.0 for j, value in enumerate(theta))) for i in range(4)]
    forth, back = rgb, rgb
    for one, other in zip(alone, reversed(alone), strict=True):
        forth, back = Color().transform(forth, one), Color().transform(back, other)
    torch.testing.assert_close(forth, Color().transform(rgb, theta_of(rgb, *theta)))
    torch.testing.assert_close(back, forth)


def test_gray_images_have_neither_saturation_nor_hue(rng):
    x = torch.rand(2, 1, 3, 3, generator=rng)
    assert torch.equal(Color().transform(x, theta_of(x, 0, 0, -0.2, 15)), x)
    assert Color().grid(x, (3, 2, 5, 7)).shape == (6, 4)
    assert Color().grid(x.expand(-1, 3, -1, -1), (3, 2, 5, 7)).shape == (210, 4)


# Composed


def test_composed_parts_are_applied_one_after_the_other(x, rng):
    first, second, third = Blur(), Linf(eps=0.1), Spatial()
    both = Composed(parts=(first, second, third))
    theta = both.sample(x, rng)
    assert theta.shape == (4, 1 + x[0].numel() + 3)
    noise = theta[:, 1:-3].view_as(x)
    step_by_step = third.transform(second.transform(first.transform(x, theta[:, :1]), noise), theta[:, -3:])
    torch.testing.assert_close(both.transform(x, theta), step_by_step)


@pytest.mark.parametrize("part", [L2(eps=0.5), Spatial(), Color()], ids=str)
def test_composed_of_one_part_is_that_part(part, x):
    one, weights = Composed(parts=(part,)), x.flip(2) - 0.5
    seeded = torch.Generator().manual_seed
    theta = part.sample(x, seeded(0))
    assert str(one) == str(part)
    assert torch.equal(one.sample(x, seeded(0)), theta.flatten(1))
    assert torch.equal(one.transform(x, theta.flatten(1)), part.transform(x, theta))
    assert torch.equal(one.project(x, 9 * theta.flatten(1)), part.project(x, 9 * theta).flatten(1))
    assert torch.equal(one.distance(x, theta.flatten(1)), part.distance(x, theta))
    assert torch.equal(one.contains(x, 1 - x), part.contains(x, 1 - x))
    for solver in (FGSM(), WorstOfK(k=3)):
        found, same = (replace(solver, around=around)(along(weights), x, seeded(1)) for around in (part, one))
        torch.testing.assert_close(found, same)


def test_what_a_later_part_adds_leaves_a_valid_image_of_the_earlier_ones(x, rng):
    bright = Composed(parts=(Color(brightness=0.9), Linf(eps=0.4), Affine(), L1(eps=9.0)))
    far = 5 * torch.randn(bright.identity(x).shape, generator=rng, dtype=x.dtype)
    image = bright.transform(x, bright.project(x, far))
    assert image.min() >= 0 - 1e-12
    assert image.max() <= 1 + 1e-12


def test_each_part_of_a_composed_step_is_as_long_as_its_radius(x, rng):
    parts = (L1(eps=2.0), Spatial(), Linf(eps=0.1), Blur(sigma=0.0), Composed(parts=(L2(eps=3.0), Color())))
    composed = Composed(parts=parts)
    step = composed.direction(torch.randn(composed.identity(x).shape, generator=rng, dtype=x.dtype))
    lengths = [part.distance(x, own) for part, own in composed.pieces(x, step)]
    torch.testing.assert_close(torch.stack(lengths)[[0, 1, 2, 4]], torch.ones(4, 4, dtype=x.dtype))
    assert (lengths[3] == 0).all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lit:
    """Two numbers for each pixel, whatever its channels: one adds light to all of them, one takes some away."""

    most: float

    def identity(self, x):
        return x.new_zeros(len(x), 2, *x.shape[2:])

    def sample(self, x, rng):
        return self.identity(x).uniform_(-self.most, self.most, generator=rng)

    def transform(self, x, theta):
        return x + theta[:, :1] - theta[:, 1:] / 2

    def project(self, x, theta):
        return theta.clamp(-self.most, self.most)

    def distance(self, x, theta):
        return theta.abs().flatten(1).amax(1) / self.most

    def direction(self, gradient):
        return gradient.sign()

    def scaled(self, fraction):
        return replace(self, most=fraction * self.most)

    def contains(self, x, perturbed):
        return ((perturbed - x).abs() <= 1.5 * self.most + 1e-4).flatten(1).all(1)


@pytest.mark.parametrize("side", [3, 4])
@pytest.mark.parametrize("solver", [PGD(step_size=0.3, steps=2, start="identity"), FGSM(start="identity")])
def test_parts_of_a_stranger_have_the_shape_that_they_say(solver, side, rng):
    """Three channels and two numbers for each pixel: what belongs to whom cannot be told from their sum alone."""
    x = 0.4 + 0.2 * torch.rand(2, 3, side, side, generator=rng, dtype=torch.float64)
    own, none = Lit(most=0.1), Linf(eps=0.0)
    weights = torch.randn(x.shape, generator=rng, dtype=x.dtype)
    alone, first, last = (
        replace(solver, around=around)(along(weights), x, rng)
        for around in (Composed(parts=(own,)), Composed(parts=(own, none)), Composed(parts=(none, own)))
    )
    assert (alone - x).abs().max() > 0.05
    torch.testing.assert_close(first, alone)
    torch.testing.assert_close(last, alone)


def test_a_long_step_in_l0_moves_the_largest_slope_by_its_length_however_many_pixels_have_one(x, rng):
    weights = torch.full_like(x, 0.5)
    weights[:, 0, 1, 2] = 1.0
    around, gray = L0(pixels=1), torch.full_like(x, 0.2)
    for neighborhood in (around, Composed(parts=(around, Linf(eps=0.0)))):
        found = FGSM(around=neighborhood, step=0.5, start="identity")(along(weights), gray, rng) - gray
        torch.testing.assert_close(found[:, 0, 1, 2], torch.full_like(found[:, 0, 1, 2], 0.5))
        assert around.contains(gray, gray + found).all()


def test_a_composed_grid_holds_every_combination_of_its_parts(x):
    thetas = Composed(parts=(Blur(), Spatial())).grid(x, (2, 3, 1, 2)).tolist()
    assert len(thetas) == 2 * 3 * 1 * 2 == len(set(map(tuple, thetas)))
    assert {blur for blur, *_ in thetas} == {0, 1}
    assert {tuple(rest) for _, *rest in thetas} == {tuple(row) for row in Spatial().grid(x, (3, 1, 2)).tolist()}


def test_a_composed_grid_names_the_part_that_has_none(x):
    with pytest.raises(ValueError, match="handful of parameters and a method grid, as Spatial has, got L1"):
        Composed(parts=(Spatial(), L1())).grid(x, (3, 3, 3))


@pytest.mark.parametrize("points", [(), (2, 3, 1), (2, 3, 1, 2, 5)], ids=str)
def test_a_composed_grid_refuses_wrong_counts(points, x):
    with pytest.raises(ValueError, match=r"a grid over \(blur <= 1 px, then .*\) takes 4 counts, .*\(5, 5, 5, 5\)"):
        Composed(parts=(Blur(), Spatial())).grid(x, points)


def test_a_grid_of_the_usual_counts_over_one_parameter_is_answered_with_what_to_write(x):
    with pytest.raises(
        ValueError, match=r"a grid over \(blur\) takes 1 positive count, got .*: .* as points=\(5,\)$"
    ):
        Blur().grid(x, (31, 5, 5))


def test_composed_of_nothing_or_of_what_is_no_neighborhood_is_refused():
    with pytest.raises(ValueError, match="at least one neighborhood"):
        Composed(parts=())
    with pytest.raises(ValueError, match=r"a tuple of at least one neighborhood, got Linf\("):
        Composed(parts=Linf())
    with pytest.raises(ValueError, match=r"^each of Composed\.parts must be a neighborhood, as .*, got <class "):
        Composed(parts=(Spatial(), Linf))


# All of them


@every_neighborhood
def test_pgd_climbs_from_wherever_it_starts(around, x):
    loss, seeded = along(x.flip(2) - 0.5), torch.Generator().manual_seed
    start = around.transform(x, around.sample(x, seeded(0)))
    found = PGD(around=around, steps=10, step_size=0.02, start="uniform", keep="best")(loss, x, seeded(0))
    assert (loss(found) > loss(start)).all()
    assert around.contains(x, found).all()


@pytest.fixture(scope="module")
def digits():
    data = load("digits")
    return data.train_images[:60], data.train_labels[:60]


def trains(digits, solver):
    """Two steps of SRT on digits, half of them unlabeled, leave finite weights."""
    images, labels = digits
    f = fit(
        DigitsCNN()((1, 8, 8), 10),
        labeled=(images[:30], labels[:30]),
        unlabeled=images[30:],
        objective=SRT(solver=solver),
        steps=2,
        batch=20,
        device="cpu",
    )
    return all(parameter.isfinite().all() for parameter in f.parameters())


@every_neighborhood
def test_srt_trains_with_gradients_and_with_draws(around, digits):
    assert trains(digits, PGD(around=around, steps=2, step_size=2.0 if isinstance(around, L1) else 0.5))
    assert trains(digits, WorstOfK(around=around, k=2))


@every_box
def test_srt_trains_with_a_grid(around, points, digits):
    assert trains(digits, Grid(around=around, points=points))


@every_neighborhood
def test_a_recipe_with_each_survives_json(around):
    recipe = Recipe(objective=SRT(solver=WorstOfK(around=around)))
    assert loads(dumps(recipe)) == recipe


@every_box
def test_a_recipe_with_a_grid_over_each_survives_json(around, points):
    recipe = Recipe(objective=SRT(solver=Grid(around=around, points=points)))
    assert loads(dumps(recipe)) == recipe


@every_neighborhood
def test_each_is_public_and_says_what_it_is_in_words(around):
    assert getattr(unperturbed, type(around).__name__) is type(around)
    assert "(" not in str(around).replace("exp(", "")


def test_budgets_in_words():
    assert str(L1(eps=12)) == "L1 12"
    assert str(Blur(sigma=1.5)) == "blur <= 1.5 px"
    assert str(TurnThenShift()) == "<= 30 degrees, then <= 3 px"
    assert str(Affine()) == "<= 30 degrees, <= 3 px, zoom <= exp(0.1), shear <= 10 degrees"
    assert str(Color()) == "brightness <= 0.1, contrast <= 0.2, saturation <= 0.2, hue <= 15 degrees"
    assert str(Composed(parts=(Blur(), Linf(eps=0.1)))) == "blur <= 1 px, then Linf 0.1"
