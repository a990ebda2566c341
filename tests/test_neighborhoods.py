from itertools import product
from math import inf, nan
from types import SimpleNamespace

import pytest
import torch

from reference import solvers as slow
from unperturbed.evaluation import checked
from unperturbed.inputs import check_images
from unperturbed.neighborhoods import (
    L0,
    L1,
    L2,
    Affine,
    Blur,
    Box,
    Color,
    Composed,
    Linf,
    Neighborhood,
    Spatial,
    TurnThenShift,
)

WITH_RADIUS = {
    "Linf": Linf(eps=8 / 255),
    "wide Linf": Linf(eps=0.6),
    "L2": L2(eps=0.5),
    "wide L2": L2(eps=20.0),
    "L1": L1(eps=1.5),
    "wide L1": L1(eps=60.0),
    "Spatial": Spatial(),
    "Spatial with border": Spatial(rotation=180.0, translation=1.5, padding="border"),
    "Spatial with reflection": Spatial(rotation=5.0, padding="reflection"),
    "TurnThenShift": TurnThenShift(),
    "wide TurnThenShift": TurnThenShift(rotation=180.0, translation=1.5),
    "Affine": Affine(),
    "wide Affine": Affine(rotation=180.0, translation=1.5, scale=1.0, shear=80.0, padding="border"),
    "Blur": Blur(),
    "wide Blur": Blur(sigma=30.0),
    "Color": Color(),
    "wide Color": Color(brightness=1.0, contrast=1.0, saturation=1.0, hue=180.0),
    "Composed of boxes": Composed(parts=(Blur(), Affine(), Color())),
    "Composed with pixels": Composed(parts=(Linf(eps=0.1), Spatial(), L2(eps=0.5))),
    "Composed of one": Composed(parts=(L2(eps=0.5),)),
}
NEIGHBORHOODS = WITH_RADIUS | {
    "Linf of radius 0": Linf(eps=0.0),
    "L2 of radius 0": L2(eps=0.0),
    "L1 of radius 0": L1(eps=0.0),
    "rotation alone": Spatial(translation=0.0),
    "translation alone": Spatial(rotation=0.0),
    "Spatial of radius 0": Spatial(rotation=0.0, translation=0.0),
    "TurnThenShift of radius 0": TurnThenShift().scaled(0.0),
    "hue alone": Color(brightness=0.0, contrast=0.0, saturation=0.0),
    "shear alone": Affine(rotation=0.0, translation=0.0, scale=0.0),
    "Blur of radius 0": Blur(sigma=0.0),
    "Color of radius 0": Color().scaled(0.0),
    "Composed of radius 0": Composed(parts=(Spatial(), L1())).scaled(0.0),
}
POINTLESS = [name for name in NEIGHBORHOODS if name.endswith("of radius 0")]
BOXES = Spatial | TurnThenShift | Affine | Blur | Color

every_neighborhood = pytest.mark.parametrize("around", NEIGHBORHOODS.values(), ids=NEIGHBORHOODS)
every_radius = pytest.mark.parametrize("around", WITH_RADIUS.values(), ids=WITH_RADIUS)
every_extent = pytest.mark.parametrize(
    "around", [pytest.param(around, id=name) for name, around in NEIGHBORHOODS.items() if name not in POINTLESS]
)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=[(5, 1, 6, 6), (4, 3, 7, 4)], ids=["square gray", "tall color"])
def x(request, dtype, rng):
    """Images with many pixels exactly black or white."""
    return (torch.rand(request.param, generator=rng, dtype=dtype) * 1.4 - 0.2).clamp(0, 1)


def is_box(around):
    """Whether it has a handful of parameters."""
    return all(map(is_box, around.parts)) if isinstance(around, Composed) else isinstance(around, BOXES)


def anywhere(around, x, rng):
    """Thetas far outside of most neighborhoods."""
    theta = around.identity(x)
    return 40 * torch.randn(theta.shape, generator=rng, dtype=theta.dtype)


def assert_feasible(around, x, theta, radius=1.0):
    assert (around.distance(x, theta) <= radius * (1 + 1e-4)).all()
    image = around.transform(x, theta)
    assert image.min() >= -2e-6
    assert image.max() <= 1 + 2e-6


@every_neighborhood
def test_each_is_a_neighborhood_and_only_those_with_few_parameters_are_boxes(around):
    assert isinstance(around, Neighborhood)
    assert isinstance(around, Box) == (is_box(around) or isinstance(around, Composed))


@every_neighborhood
def test_the_identity_leaves_every_image_as_it_is(around, x):
    theta = around.identity(x)
    assert theta.dtype == x.dtype
    assert (around.distance(x, theta) == 0).all()
    torch.testing.assert_close(
        around.transform(x, theta), x, rtol=0, atol=1e-5 if x.dtype == torch.float32 else 1e-12
    )


@every_neighborhood
def test_samples_are_feasible(around, x, rng):
    theta = around.sample(x, rng)
    assert theta.shape == around.identity(x).shape
    assert theta.dtype == x.dtype
    assert_feasible(around, x, theta)


@every_neighborhood
def test_projections_are_feasible(around, x, rng):
    projected = around.project(x, anywhere(around, x, rng))
    assert projected.dtype == x.dtype
    assert_feasible(around, x, projected)


@every_neighborhood
def test_projecting_twice_is_projecting_once(around, x, rng):
    once = around.project(x, anywhere(around, x, rng))
    torch.testing.assert_close(around.project(x, once), once, rtol=1e-6, atol=1e-6)


@every_neighborhood
def test_a_feasible_theta_is_not_changed_by_projection(around, x, rng):
    theta = around.sample(x, rng)
    torch.testing.assert_close(around.project(x, theta), theta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "around", [Linf(eps=0.1), Linf(eps=0.9), L2(eps=0.4), L1(eps=0.4), Spatial(), Affine(), Color()], ids=str
)
def test_no_sample_is_closer_than_the_projection(around, rng):
    x = torch.full((3, 1, 4, 4), 0.5, dtype=torch.float64)
    theta = anywhere(around, x, rng)
    distance = (around.project(x, theta) - theta).flatten(1).norm(dim=1)
    for _ in range(20):
        assert (distance <= (around.sample(x, rng) - theta).flatten(1).norm(dim=1)).all()


@every_neighborhood
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_scaling_shrinks(around, x, rng, fraction):
    smaller = around.scaled(fraction)
    for _ in range(5):
        assert_feasible(around, x, smaller.sample(x, rng), radius=fraction)
    assert_feasible(around, x, smaller.project(x, anywhere(around, x, rng)), radius=fraction)


@every_radius
def test_scaling_shrinks_by_no_more_than_asked_and_changes_nothing_else(around):
    assert around.scaled(0.5).scaled(2.0) == around
    assert around.scaled(1.0) == around


@every_extent
def test_samples_differ_between_images(around, x, rng):
    alike = x[:1].expand_as(x)
    theta = around.sample(alike, rng).flatten(1)
    for i, j in product(range(len(x)), repeat=2):
        assert i == j or not torch.equal(theta[i], theta[j])


@pytest.mark.parametrize(
    ("around", "mean"),
    [
        (Linf(eps=0.2), 16 / 17),
        (L2(eps=0.2), 16 / 17),
        (L1(eps=0.2), 16 / 17),
        (Spatial(translation=0.0), 1 / 2),
        (Spatial(), 3 / 4),
        (Affine(), 5 / 6),
        (Color(), 4 / 5),
    ],
    ids=str,
)
def test_samples_fill_the_neighborhood_uniformly(around, mean, rng):
    x = torch.full((4000, 1, 4, 4), 0.5)
    theta = around.sample(x, rng)
    assert around.distance(x, theta).mean().item() == pytest.approx(mean, abs=0.02)
    assert around.distance(x[:1], theta.mean(0, keepdim=True)) < 0.06


@every_radius
def test_the_distance_of_a_scaled_theta_is_scaled(around, x, rng):
    theta = around.sample(x, rng)
    torch.testing.assert_close(around.distance(x, 0.5 * theta), 0.5 * around.distance(x, theta))


@pytest.mark.parametrize(
    ("around", "theta"),
    [
        (Linf(eps=0.1), torch.tensor([[[[0.1, -0.02]]], [[[0.0, -0.1]]]])),
        (L2(eps=0.5), torch.tensor([[[[0.3, -0.4]]], [[[0.0, -0.5]]]])),
        (L1(eps=0.5), torch.tensor([[[[0.3, -0.2]]], [[[0.0, -0.5]]]])),
        (Spatial(rotation=30, translation=3), torch.tensor([[-30.0, 1.0, 0.0], [0.0, 2.0, -3.0]])),
        (Affine(scale=0.1, shear=20), torch.tensor([[-3.0, 1.0, 0.0, 0.1, 2.0], [5.0, 0.3, 0.0, -0.02, -20.0]])),
        (Blur(sigma=2.0), torch.tensor([[2.0], [2.0]])),
        (Color(contrast=0.5, hue=40), torch.tensor([[0.0, -0.5, 0.0, 1.0], [0.0, 0.0, 0.0, 40.0]])),
        (Composed(parts=(Linf(eps=0.1), Blur(sigma=2.0))), torch.tensor([[0.1, 0.0, 1.0], [0.0, -0.02, 2.0]])),
    ],
    ids=str,
)
def test_the_distance_on_the_boundary_is_one(around, theta):
    torch.testing.assert_close(around.distance(torch.zeros(2, 1, 1, 2), theta), torch.ones(2))


@pytest.mark.parametrize("around", [NEIGHBORHOODS[name] for name in POINTLESS], ids=POINTLESS)
def test_with_radius_0_everything_but_the_identity_is_infinitely_far(around, x):
    theta = around.identity(x)
    theta[0] += 1e-3
    assert around.distance(x, theta)[0] == inf
    assert (around.distance(x, theta)[1:] == 0).all()


@every_neighborhood
@pytest.mark.parametrize("shape", [(2, 1, 3, 3), (2, 3, 4, 2)], ids=str)
def test_the_transform_is_differentiable_in_both_arguments(around, shape, rng):
    x = torch.rand(shape, generator=rng, dtype=torch.float64, requires_grad=True)
    theta = around.identity(x.detach())
    if isinstance(around, Spatial):
        theta += torch.tensor([[11.3, 0.37, -0.21], [-7.9, -0.58, 0.43]], dtype=torch.float64)
    else:
        theta += 0.1
    assert torch.autograd.gradcheck(around.transform, (x, theta.requires_grad_()))


@every_radius
def test_the_direction_is_the_steepest_among_steps_of_its_length(around, x, rng):
    x = x.double()
    gradient = torch.randn(around.identity(x).shape, generator=rng, dtype=x.dtype)
    direction = around.direction(gradient)
    length, gain = around.distance(x, direction), (gradient * direction).flatten(1).sum(1)
    assert (gain > 0).all()
    for magnitude in [0.01, 0.1, 1.0, 10.0] * 5:
        step = direction * (1 + magnitude * torch.randn(direction.shape, generator=rng, dtype=x.dtype))
        step *= (length / around.distance(x, step)).view(-1, *[1] * (step.dim() - 1))
        assert (gain >= (gradient * step).flatten(1).sum(1) - 1e-9).all()


def test_the_direction_has_unit_length(rng):
    gradient = 1e-3 * torch.randn(3, 1, 4, 5, generator=rng)
    torch.testing.assert_close(Linf().direction(gradient).abs(), torch.ones(3, 1, 4, 5))
    torch.testing.assert_close(L2().direction(gradient).flatten(1).norm(dim=1), torch.ones(3))
    step = Spatial().direction(torch.randn(3, 3, generator=rng))
    torch.testing.assert_close(Spatial().distance(gradient, step), torch.ones(3))


@every_radius
@pytest.mark.parametrize("scale", [1e-25, 1e-15, 1e15])
def test_the_direction_does_not_depend_on_the_length_of_the_gradient(around, scale, rng):
    """A very confident classifier has very small gradients, which must not make it look robust."""
    gradient = torch.randn(around.identity(torch.zeros(3, 1, 4, 5)).shape, generator=rng)
    torch.testing.assert_close(around.direction(scale * gradient), around.direction(gradient))


@every_neighborhood
def test_without_a_gradient_the_direction_stays_put(around, x):
    assert (around.direction(torch.zeros_like(around.identity(x))) == 0).all()


@every_neighborhood
def test_contains_accepts_transforms_of_samples(around, x, rng):
    assert around.contains(x, around.transform(x, around.sample(x, rng))).all()


@every_neighborhood
def test_contains_rejects_one_outside_image_alone(around, x):
    perturbed = x.clone()
    perturbed[1, 0, 2, 3] += 50
    assert torch.equal(around.contains(x, perturbed), torch.arange(len(x)) != 1)


@every_neighborhood
def test_contains_rejects_what_is_not_a_number(around, x):
    perturbed = x.clone()
    perturbed[1, 0, 2, 3] = nan
    assert torch.equal(around.contains(x, perturbed), torch.arange(len(x)) != 1)


@pytest.mark.parametrize("around", [Linf(eps=0.1), L2(eps=0.1), L1(eps=0.1)], ids=str)
@pytest.mark.parametrize(("inside", "outside"), [(0.99, 1.01), (0.01, -0.01)])
def test_contains_rejects_what_is_not_an_image(around, inside, outside):
    x = torch.full((1, 1, 2, 2), inside)
    assert not around.contains(x, torch.full_like(x, outside)).any()


@pytest.mark.parametrize("around", [Linf(eps=0.1), L0(pixels=4), Spatial(), Blur(), Color()], ids=str)
@pytest.mark.parametrize(("edge", "outside"), [(1.0, 1e-5), (0.0, -1e-5)])
def test_contains_accepts_what_rounding_carries_over_the_edge_and_no_more(around, edge, outside):
    x = torch.full((1, 1, 2, 2), edge)
    assert around.contains(x, x + outside).all()
    assert not around.contains(x, x + 100 * outside).any()


@pytest.mark.parametrize("around", [Linf(eps=0.1), L2(eps=0.1), L1(eps=0.1)], ids=str)
def test_contains_rejects_twice_the_radius(around):
    x = torch.full((1, 1, 1, 1), 0.5)
    assert around.contains(x, x + 0.1).all()
    assert not around.contains(x, x + 0.2).any()


@every_neighborhood
def test_no_images_are_no_trouble(around, rng):
    nothing = torch.zeros(0, 1, 4, 4)
    theta = around.project(nothing, around.sample(nothing, rng))
    assert around.transform(nothing, theta).shape == nothing.shape
    assert around.distance(nothing, theta).shape == (0,)


@pytest.mark.parametrize("size", [4, 5])
def test_90_degrees_turn_the_image_clockwise(size, rng):
    x = torch.rand(2, 3, size, size, generator=rng, dtype=torch.float64)
    turned = Spatial(rotation=90).transform(x, torch.tensor([[90.0, 0, 0]], dtype=x.dtype).expand(2, 3))
    torch.testing.assert_close(turned, torch.rot90(x, -1, (2, 3)))


@pytest.mark.parametrize("down", [-2, 0, 1])
@pytest.mark.parametrize("right", [-3, 0, 2])
def test_whole_shifts_move_pixels_and_fill_with_zeros(right, down, x):
    height, width = x.shape[-2:]
    expected = torch.zeros_like(x)
    expected[..., max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = x[
        ..., max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)
    ]
    theta = x.new_tensor([0.0, right, down]).expand(len(x), 3)
    torch.testing.assert_close(Spatial().transform(x, theta), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("padding", "row"),
    [("zeros", [0, 0, 0.5, 0.6]), ("border", [0.5, 0.5, 0.5, 0.6]), ("reflection", [0.6, 0.5, 0.5, 0.6])],
)
def test_the_padding_fills_what_a_shift_leaves_open_and_contains_knows_it(padding, row):
    x = torch.tensor([0.5, 0.6, 0.7, 0.8]).view(1, 1, 1, 4)
    shifted = Spatial(padding=padding).transform(x, torch.tensor([[0.0, 2.0, 0.0]]))
    torch.testing.assert_close(shifted.flatten(), torch.tensor(row, dtype=x.dtype), rtol=0, atol=1e-5)
    assert Spatial(padding=padding).contains(x, shifted)
    assert Spatial(padding=padding).contains(x, torch.zeros_like(x)) == (padding == "zeros")


def test_rotation_comes_before_translation():
    x = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    x[0, 0, 4, 6] = 1
    moved = Spatial(rotation=90).transform(x, torch.tensor([[90.0, 1, 0]], dtype=x.dtype))
    # Two right of the center turns to two below it, and then goes one to the right.
    assert (moved > 0.5).nonzero().tolist() == [[0, 0, 6, 5]]


@pytest.mark.parametrize("shape", [(1, 5, 5), (3, 6, 4), (1, 3, 8)], ids=str)
@pytest.mark.parametrize("theta", [(17.0, 1.3, -0.6), (-30.0, -3.0, 3.0), (131.0, 0.25, 2.0)], ids=str)
def test_a_warp_equals_padding_warping_and_cropping_back(shape, theta, rng):
    x = torch.rand(2, *shape, generator=rng, dtype=torch.float64)
    fast = Spatial().transform(x, torch.tensor([theta, (0.0, 0.0, 0.0)], dtype=x.dtype))
    torch.testing.assert_close(fast[0], slow.warp(x[0], *theta), rtol=0, atol=1e-9)
    torch.testing.assert_close(fast[1], x[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("points", [(3, 2, 4), (1, 5, 1), (31, 1, 1)], ids=str)
def test_a_grid_holds_every_combination_once(points, x):
    thetas = Spatial(rotation=10, translation=2).grid(x, points)
    assert thetas.dtype == x.dtype
    expected = slow.grid_points(10, 2, points)
    assert thetas.shape == (len(expected), 3)
    torch.testing.assert_close(torch.tensor(sorted(thetas.tolist())), torch.tensor(sorted(expected)))


@pytest.mark.parametrize(
    ("around", "shape"),
    [
        (Spatial(rotation=0), (9, 3)),
        (Spatial(translation=0), (7, 3)),
        (Spatial(rotation=0, translation=0), (1, 3)),
    ],
    ids=str,
)
def test_an_axis_without_range_gets_one_point_of_the_grid(around, shape, x):
    thetas = around.grid(x, (7, 3, 3))
    assert thetas.shape == shape
    assert (around.distance(x, thetas) <= 1).all()


@pytest.mark.parametrize("points", [(), (3, 3), (3, 3, 3, 3), (3, 0, 3), (-1, 1, 1)], ids=str)
def test_a_grid_refuses_wrong_counts(points, x):
    with pytest.raises(ValueError, match=r"rotation, shift right, shift down\) takes 3 positive counts, got \("):
        Spatial().grid(x, points)


@pytest.mark.parametrize(
    ("kind", "name", "radius", "sentence"),
    [
        (L2, "eps", 1e39, r"must be at most 3.4e\+38, the largest number of float32, got 1e\+39: lower it"),
        (L1, "eps", 1e-60, "must be at least 1.2e-38, the smallest number of float32 above 0, got 1e-60: raise it"),
        (Color, "hue", 10**400, r"must be at most 3.4e\+38, the largest number of float32, got 10{99} …: lower it"),
        (TurnThenShift, "translation", 1e20, r"must be at most 1,000,000, got 1e\+20: lower it"),
        (Blur, "sigma", 1e20, r"must be at most 1,000,000, got 1e\+20: lower it"),
        (Affine, "scale", 100.0, r"must be at most 40, got 100.0: lower it"),
    ],
)
def test_a_radius_that_no_image_or_no_tensor_can_hold_is_refused(kind, name, radius, sentence):
    with pytest.raises(ValueError, match=rf"{kind.__name__}.{name} {sentence}"):
        kind(**{name: radius})


def test_the_widest_warps_and_blurs_that_are_allowed_leave_numbers(rng):
    x = torch.rand(2, 3, 8, 8, generator=rng)
    for around in (Spatial(translation=1e6), Affine(scale=40.0), Blur(sigma=1e6)):
        for theta in (around.sample(x, rng), around.direction(torch.ones_like(around.identity(x)))):
            assert around.transform(x, theta).isfinite().all()


@pytest.mark.parametrize("radius", [-0.1, nan, inf, -inf])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Linf.eps", Linf),
        ("L2.eps", L2),
        ("L1.eps", L1),
        ("Spatial.rotation", Spatial),
        ("Spatial.translation", Spatial),
        ("TurnThenShift.rotation", TurnThenShift),
        ("TurnThenShift.translation", TurnThenShift),
        ("Affine.rotation", Affine),
        ("Affine.translation", Affine),
        ("Affine.scale", Affine),
        ("Affine.shear", Affine),
        ("Blur.sigma", Blur),
        ("Color.brightness", Color),
        ("Color.contrast", Color),
        ("Color.saturation", Color),
        ("Color.hue", Color),
    ],
)
def test_a_radius_must_be_finite_and_not_negative(name, kind, radius):
    with pytest.raises(ValueError, match=rf"{name} must be a finite number of at least 0, got {radius}"):
        kind(**{name.split(".")[1]: radius})
    with pytest.raises(ValueError, match="at least 0"):
        kind().scaled(-1)


@pytest.mark.parametrize("kind", [Spatial, TurnThenShift, Affine])
def test_no_rotation_goes_further_than_half_a_turn_either_way(kind):
    with pytest.raises(ValueError, match=rf"^{kind.__name__}.rotation must be at most 180, got 400: lower it"):
        kind(rotation=400)
    assert kind(rotation=180).scaled(0.5).rotation == 90


@every_neighborhood
@pytest.mark.parametrize("side", [28, 96])
def test_points_on_black_and_white_images_are_images_as_an_evaluation_checks_them(around, side, rng):
    x = torch.ones(6, 3, side, side)
    x[:, :, side // 4 : side // 2, side // 3 :] = 0
    attack = SimpleNamespace(within=around, budget="")
    for _ in range(5):
        assert checked(attack, x, around.transform(x, around.sample(x, rng))).all()


@pytest.mark.parametrize("side", [8, 9, 33])
@pytest.mark.parametrize("around", WITH_RADIUS.values(), ids=WITH_RADIUS)
def test_points_on_white_images_are_images_that_can_be_evaluated_again(around, side, rng):
    x = torch.ones(200, 1, side, side)
    check_images(around.transform(x, around.sample(x, rng)))


@pytest.mark.parametrize("eps", [1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("ball", [Linf, L2, L1])
def test_a_small_ball_contains_its_own_corners_and_nothing_far_outside(ball, eps, rng):
    around = ball(eps=eps)
    x = torch.rand(20, 3, 8, 8, generator=rng)
    corner = around.project(x, eps * around.direction(torch.randn(x.shape, generator=rng)))
    assert around.contains(x, x + corner).all()
    inside = x.clamp(0.1, 0.9)
    farther = 2 if ball is Linf else 100  # Rounding of all pixels adds up.
    outside = farther * eps * around.direction(torch.randn(x.shape, generator=rng))
    assert not around.contains(inside, inside + outside).any()


def test_a_radius_that_is_no_fraction_of_the_pixel_scale_is_refused():
    with pytest.raises(
        ValueError, match=r"Linf.eps must be at most 1, the scale of pixels, got 8: write 8 of 255 as"
    ):
        Linf(eps=8)
    with pytest.raises(ValueError, match=r"Linf.eps must be a finite number of at least 0, got '8/255'"):
        Linf(eps="8/255")
    assert Linf(eps=0.3).scaled(5) == Linf(eps=1.0)
