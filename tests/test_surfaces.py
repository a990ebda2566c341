"""Decision and loss surfaces: closed forms, slow twins, and what is refused."""

from math import inf, nan

import pytest
import torch
from torch import nn

from reference import surfaces as slow
from small_networks import network
from unperturbed.losses import cross_entropy
from unperturbed.runtime import generator
from unperturbed.surfaces import CPU, surface, two_directions

REACH = (0.4, 0.3)
"""far enough that pixels meet 0 and 1"""
VALUES = {"decision": slow.decision, "loss": slow.loss}


@pytest.fixture
def f():
    return network(3, (1, 6, 5), dropout=0.5).double()


@pytest.fixture
def x(rng):
    return torch.rand(1, 6, 5, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("value", VALUES)
def test_a_spatial_surface_is_the_naive_loop_over_rotations_and_shifts(f, x, value):
    found = surface(f, x, 2, scenario="spatial", value=value, points=5, reach=(40.0, 2.0), at_once=3)
    expected = slow.spatial_surface(f.eval(), x, 2, value=VALUES[value], reach=(40.0, 2.0), points=5)
    assert torch.allclose(found.values.double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=1e-6)
    assert found.down.tolist() == [-40, -20, 0, 20, 40]
    assert found.across.tolist() == [-2, -1, 0, 1, 2]
    assert found.axes == ("rotation (degrees)", "translation (pixels)")


@pytest.mark.parametrize("value", VALUES)
def test_a_pixel_surface_is_the_naive_loop_over_two_directions(f, x, value):
    found = surface(f, x, 1, scenario="pixel", value=value, points=5, reach=REACH, at_once=7, seed=3, index=8)
    f.eval()
    rng = generator(CPU, 3, "surface", 8)
    directions = two_directions(f, x.unsqueeze(0), torch.tensor([1]), "adversarial", rng)
    expected = slow.pixel_surface(f, x, 1, *directions, value=VALUES[value], reach=REACH, points=5)
    assert torch.allclose(found.values.double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=1e-6)
    assert (found.index, found.label, found.value, found.scenario) == (8, 1, value, "pixel")


def test_the_surface_of_a_linear_model_has_a_closed_form(rng):
    """For logits W x the margin grows along a by |w_j - w_y|_1 s, and D of two classes is tanh(-margin / 2)."""
    weights = torch.randn(2, 12, generator=rng)
    f = nn.Sequential(nn.Flatten(), nn.Linear(12, 2, bias=False))
    f[1].weight.data = weights
    x = torch.full((3, 2, 2), 0.5)
    found = surface(f, x, 0, scenario="pixel", points=3, reach=(0.2, 0.0))
    difference = weights[1] - weights[0]
    margins = difference.sum() / 2 + found.down * difference.abs().sum()
    assert torch.allclose(found.values, torch.tanh(-margins / 2).unsqueeze(1).expand(3, 3), atol=1e-6)


@pytest.mark.parametrize("directions", ["adversarial", "random"])
@pytest.mark.parametrize("shape", [(1, 1, 6, 5), (1, 3, 3, 3)])
def test_the_two_directions_are_signs_and_orthogonal(directions, shape, rng):
    x = torch.rand(shape, generator=rng)
    f = nn.Sequential(nn.Flatten(), nn.Linear(x.numel(), 3))
    first, second = two_directions(f, x, torch.tensor([1]), directions, rng)
    assert (first * second).sum() == 0
    assert (first.abs() == 1).all()
    assert (second == 0).sum() == x.numel() % 2
    assert (second[second != 0].abs() == 1).all()
    assert 0 < (second == first).sum() < x.numel()


def test_the_adversarial_direction_leads_uphill_where_the_softmax_is_flat(rng):
    f = nn.Sequential(nn.Flatten(), nn.Linear(30, 3))
    f[1].weight.data = 1e4 * torch.randn(3, 30, generator=rng)
    x = torch.full((1, 1, 6, 5), 0.5)
    y = f(x).argmax(1)
    z = x.clone().requires_grad_()
    cross_entropy(f(z), y).sum().backward()
    assert z.grad.abs().max() == 0, "the loss tells no direction here"
    found = surface(f, x[0], y, scenario="pixel", points=3, reach=(0.4, 0.0))
    assert found.values[1, 1] > 0 > found.values[2, 1]


def test_pixels_without_a_gradient_get_random_signs(rng):
    f = nn.Sequential(nn.Flatten(), nn.Linear(30, 3))
    f[1].weight.data[:, 10:] = 0
    x = torch.rand(1, 1, 6, 5, generator=rng)
    first, _ = two_directions(f, x, torch.tensor([1]), "adversarial", rng)
    assert {-1.0, 1.0} == set(first.flatten()[10:].tolist())


@pytest.mark.parametrize("scenario", ["pixel", "spatial"])
@pytest.mark.parametrize("points", [7, 31])
def test_the_image_itself_is_in_the_middle(f, x, scenario, points):
    found = surface(f, x, 1, scenario=scenario, value="loss", points=points)
    middle = points // 2
    assert found.down[middle] == found.across[middle] == 0
    expected = cross_entropy(f.eval()(x.unsqueeze(0)), torch.tensor([1])).item()
    assert found.values[middle, middle].item() == pytest.approx(expected, rel=1e-6)
    assert found.correct is None


def test_the_share_of_correct_points_is_that_of_positive_decision_values(f, x):
    found = surface(f, x, 1, scenario="pixel", points=9, reach=REACH)
    assert found.correct == (found.values > 0).sum().item() / 81
    assert found.values.shape == (9, 9)
    assert found.values.dtype == torch.float32


class Breaking(nn.Module):
    """Answers with an infinite logit or with NaN where the image is other than the one it knows, if any."""

    def __init__(self, f, known, answer):
        super().__init__()
        self.f, self.known, self.answer = f, known, answer

    def forward(self, images):
        broken = (images - self.known).flatten(1).abs().amax(1) > 0.2
        return self.f(images).masked_fill(broken.unsqueeze(1), self.answer)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("answer", [nan, inf])
def test_points_that_are_answered_with_no_number_are_gaps_and_never_right(f, x, value, answer):
    whole = surface(f, x, 1, scenario="pixel", value=value, points=9, reach=REACH)
    found = surface(Breaking(f, x, answer), x, 1, scenario="pixel", value=value, points=9, reach=REACH)
    kept = found.values.isfinite()
    assert 0 < found.gaps == (~kept).sum().item() == found.values.isnan().sum().item() < 80
    assert torch.equal(found.values[kept], whole.values[kept])
    assert found.bounds == (whole.values[kept].min().item(), whole.values[kept].max().item())
    if value == "decision":
        assert found.correct == (whole.values[kept] > 0).sum().item() / 81


def test_a_surface_of_gaps_alone_is_refused(f, x):
    with pytest.raises(ValueError, match="answers every point of this surface with NaN or infinity"):
        surface(Breaking(f, x, nan), x, 1, scenario="pixel", points=2, reach=(0.5, 0.5))


def test_a_model_without_a_gradient_is_seen_along_random_directions_alone(f, x):
    class Cut(nn.Module):
        def forward(self, images):
            return f(images).detach()

    with pytest.raises(ValueError, match=r"passes no gradient .* set directions to random$"):
        surface(Cut(), x, 1, scenario="pixel", points=3)
    cut, whole = (surface(each, x, 1, scenario="pixel", points=3, directions="random") for each in (Cut(), f.eval()))
    assert torch.equal(cut.values, whole.values)


def test_the_seed_decides_the_random_direction_and_nothing_else_is_drawn(f, x):
    before = torch.get_rng_state()
    one, again, other = (surface(f, x, 1, scenario="pixel", points=5, reach=REACH, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.values, again.values)
    assert torch.equal(one.values[:, 2], other.values[:, 2]), "the adversarial direction is the model's"
    assert not torch.equal(one.values, other.values)
    assert torch.equal(before, torch.get_rng_state())


def test_the_model_stays_as_it_was(f, x):
    weights = {name: tensor.clone() for name, tensor in f.state_dict().items()}
    surface(f, x, 1, scenario="pixel", points=3)
    assert f.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in f.parameters())
    assert all(torch.equal(weights[name], tensor) for name, tensor in f.state_dict().items())


def test_a_model_may_begin_in_place_where_that_leaves_images_as_they_are(f, x):
    given, begun = x.clone(), nn.Sequential(nn.ReLU(inplace=True), f)
    usual, found = (surface(each, given, 1, scenario="pixel", points=3).values for each in (f, begun))
    assert torch.equal(found, usual)
    assert torch.equal(given, x)


def test_bytes_are_images_too(f):
    image = torch.arange(30, dtype=torch.uint8).view(1, 6, 5)
    found = surface(f.float(), image, 0, scenario="spatial", points=3)
    assert torch.equal(found.values, surface(f, image.float() / 255, 0, scenario="spatial", points=3).values)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"points": 1}, "a surface needs at least 2 points along each axis, got 1"),
        ({"reach": (-1.0, 1.0)}, "the reach of a surface must be a finite number of at least 0, got -1.0"),
        ({"reach": (1.0, nan)}, "got nan"),
        ({"reach": (inf, 1.0)}, "got inf"),
        ({"at_once": 0}, "at_once must be at least 1, got 0"),
        ({"scenario": "pixels"}, "scenario must be pixel or spatial, got 'pixels'"),
        ({"value": "los"}, "value must be decision or loss, got 'los'"),
        ({"directions": "adversarail"}, "directions must be adversarial or random, got 'adversarail'"),
        ({"scenario": "spatial", "directions": "random"}, "along rotation and translation, not along directions"),
    ],
)
def test_a_surface_that_cannot_be_is_refused(f, x, changes, sentence):
    with pytest.raises(ValueError) as error:
        surface(f, x, 1, **({"scenario": "pixel"} | changes))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("image", "label", "sentence"),
    [
        (lambda x: x, 3, "the label of a surface must lie in 0 to 2, got 3"),
        (lambda x: x, -1, "must lie in 0 to 2, got -1"),
        (lambda x: 255 * x, 1, "the image of a surface must lie in [0, 1]"),
        (lambda x: x.expand(2, 1, 6, 5), 1, "a surface surrounds one image, got 2"),
    ],
)
def test_an_image_or_a_label_that_does_not_fit_is_refused(f, x, image, label, sentence):
    with pytest.raises(ValueError) as error:
        surface(f, image(x), label, scenario="pixel")
    assert sentence in str(error.value)


@pytest.mark.parametrize("scenario", ["pixel", "spatial"])
def test_a_surface_is_computed_in_float32_to_the_last_digit(f, x, scenario):
    precisions = set()
    f.register_forward_hook(lambda *_: precisions.add(torch.backends.cudnn.allow_tf32))
    assert torch.backends.cudnn.allow_tf32, "what a device would do else"
    surface(f, x, 1, scenario=scenario, points=3)
    assert precisions == {False}
