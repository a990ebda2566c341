"""What surfaces come to in numbers: known answers, a slow twin, and what is outside of the budget."""

from dataclasses import replace
from math import hypot, nan

import pytest
import torch
from torch import nn

from reference import surfaces as slow
from unperturbed.datasets import load
from unperturbed.experiments import terrain
from unperturbed.experiments.definition import SURFACES, Trial
from unperturbed.experiments.terrain import highest, percent_right, ruggedness, slope, surfaces_around
from unperturbed.recipes import named
from unperturbed.surfaces import Surface

every_scenario = pytest.mark.parametrize("scenario", ["pixel", "spatial"])
every_size = pytest.mark.parametrize("points", [5, 20, 41])


def relief(height, points=41, scenario="spatial", value="loss"):
    """The surface of that height over (s, t), both from -1 to 1."""
    axis = torch.linspace(-1, 1, points, dtype=torch.float64)
    values = height(*torch.meshgrid(axis, axis, indexing="ij")).float()
    return Surface(
        values=values, down=axis, across=axis, value=value, scenario=scenario, index=0, label=0, axes=("s", "t")
    )


def saw(points, teeth=None):
    """Teeth of height 1 along the first axis; as many as there can be, if no number is named."""
    steps = points - 1 if teeth is None else 2 * teeth
    return lambda s, t: 1 - ((s + 1) / 2 * steps % 2 - 1).abs()


@every_scenario
@every_size
def test_a_plane_is_as_steep_as_it_is_and_not_rugged(scenario, points):
    plane = relief(lambda s, t: 0.3 * s - 0.4 * t + 2, points, scenario)
    assert slope(plane) == pytest.approx(0.5, abs=1e-5)
    assert ruggedness(plane) == pytest.approx(0, abs=1e-5)


@every_scenario
def test_what_is_constant_is_neither_steep_nor_rugged(scenario):
    flat = relief(lambda s, t: torch.full_like(s, 0.7), scenario=scenario, value="decision")
    assert (slope(flat), ruggedness(flat)) == (0, 0)


@every_size
def test_the_finest_saw_tooth_is_steep_and_rugged(points):
    """Each step changes the value by 1 along one axis, up and down again in two, and by nothing along the other."""
    found = relief(saw(points), points)
    pairs = (points - 1) // 2
    assert slope(found) == pytest.approx((points - 1) / 2, rel=1e-5)
    assert ruggedness(found) == pytest.approx(pairs / 4, rel=1e-5), "a way along each axis is 2 long"


@pytest.mark.parametrize("teeth", [1, 2, 5, 10])
def test_many_teeth_are_so_many_times_as_rugged_as_one(teeth):
    found = relief(saw(41, teeth))
    assert ruggedness(found) == pytest.approx(teeth / 4, rel=1e-5)
    assert slope(found) == pytest.approx(teeth, rel=1e-5)


def test_steep_and_curved_is_not_rugged_where_it_only_rises_or_only_falls():
    cliff = relief(lambda s, t: torch.tanh(9 * s) - t**3)
    assert slope(cliff) > 1
    assert ruggedness(cliff) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("points", [21, 41, 81, 161])
def test_no_measure_grows_with_the_number_of_points(points):
    """A ridge with a cliff on either side, which are thinner than most steps: 2 up and 2 down on a way of 2."""
    ridge = relief(lambda s, t: 1 - torch.tanh(60 * (s - 0.52)) * torch.tanh(60 * (s + 0.52)), points)
    assert slope(ridge) == pytest.approx(2, rel=0.06)
    assert ruggedness(ridge) == pytest.approx(0.5, rel=0.06)


@every_scenario
@every_size
def test_slopes_and_ruggedness_are_those_of_naive_loops(scenario, points, rng):
    for _ in range(5):
        found = relief(lambda s, t: torch.randn(s.shape, generator=rng), points, scenario)
        values = found.values.double().tolist()
        assert slope(found) == pytest.approx(slow.slope(values, scenario), rel=1e-6)
        assert ruggedness(found) == pytest.approx(slow.ruggedness(values, scenario), rel=1e-6)


def test_either_axis_counts_alike():
    def height(s, t):
        return torch.sin(7 * s) + 0.2 * torch.cos(11 * t) * s

    found, turned = relief(height), relief(lambda s, t: height(t, s))
    assert slope(found) == pytest.approx(slope(turned), rel=1e-3)
    assert ruggedness(found) == pytest.approx(ruggedness(turned), rel=1e-6)


def test_decision_values_are_in_percent_and_losses_as_they_are():
    loss, decision = (relief(saw(41, 3), value=value) for value in ("loss", "decision"))
    assert slope(decision) == pytest.approx(100 * slope(loss))
    assert ruggedness(decision) == pytest.approx(100 * ruggedness(loss))
    assert highest(loss) == pytest.approx(1)


@pytest.mark.parametrize("measure", [percent_right, highest, slope, ruggedness])
def test_pixel_wise_what_is_farther_than_eps_does_not_count(measure):
    def height(s, t):
        return torch.sin(7 * s * t) - 0.1

    def beyond(s, t):
        return torch.where(s.abs() + t.abs() > 1 + 1e-9, 5 + torch.cos(9 * s), height(s, t))

    assert measure(relief(height, scenario="pixel")) == measure(relief(beyond, scenario="pixel"))
    assert measure(relief(height)) != measure(relief(beyond)), "spatially the whole square is within the budget"


@pytest.mark.parametrize("points", [4, 5])
def test_the_ball_is_a_diamond_with_its_edge(points):
    found = relief(lambda s, t: s, points, "pixel")
    assert terrain.inside(found).sum() == {4: 4, 5: 13}[points]
    assert terrain.inside(relief(lambda s, t: s, points)).all()


@every_scenario
def test_gaps_are_not_right_and_leave_slopes_as_they_are(scenario):
    plane = relief(lambda s, t: 3 + s + t, 41, scenario, "decision")
    gaps = plane.values.clone()
    gaps[20, 10:30:3] = nan
    found = replace(plane, values=gaps)
    assert percent_right(plane) == 100
    assert percent_right(found) == pytest.approx(100 * (1 - 7 / terrain.inside(plane).sum().item()))
    assert slope(found) == pytest.approx(100 * hypot(1, 1), rel=1e-5)
    assert ruggedness(found) == pytest.approx(0, abs=1e-4)
    assert highest(found) == highest(plane)


class Always(nn.Module):
    """Answers with one class, whatever it is asked, and keeps in mind how it computes."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer
        self.computed_in_tf32 = False

    def forward(self, x):
        self.computed_in_tf32 |= torch.backends.cudnn.allow_tf32
        return 5.0 * torch.eye(10)[self.answer].expand(len(x), 10) + 0 * x.sum()


@pytest.fixture
def digits():
    """Digits that are all said to be of one class."""
    found = load("digits")
    return replace(found, test_labels=torch.full_like(found.test_labels, 3))


@pytest.fixture
def trial():
    return Trial(recipe=named("mnist-pixel-srt"), surfaces=True)


def test_surfaces_tell_where_answers_stay_right_and_how_high_the_loss_rises(digits, trial):
    right, wrong = (surfaces_around(Always(answer), digits, trial, "smoke") for answer in (3, 4))
    assert right.keys() == wrong.keys() == SURFACES.keys()
    for scenario in ("pixel", "spatial"):
        assert right[f"surface.{scenario}"] == [100.0, 100.0]
        assert wrong[f"surface.{scenario}"] == [0.0, 0.0]
        assert max(right[f"peak.{scenario}"]) < 0.1 < 5 < min(wrong[f"peak.{scenario}"])
        for flat in ("decision-slope", "loss-slope", "ruggedness"):
            assert right[f"{flat}.{scenario}"] == wrong[f"{flat}.{scenario}"] == [0.0, 0.0]


def test_each_column_is_its_measure_of_its_surface_and_no_surface_is_computed_twice(digits, trial, monkeypatch):
    asked = []

    def surface(f, image, label, *, scenario, value, points, reach, index):
        asked.append((scenario, value, index))
        height = {"decision": saw(points), "loss": lambda s, t: 3 * s}[value]
        return relief(height, points, scenario, value)

    monkeypatch.setattr(terrain, "surface", surface)
    found = surfaces_around(Always(3), digits, trial, "smoke")
    assert len(asked) == len(set(asked)) == 2 * 2 * 2
    assert found["loss-slope.spatial"] == found["peak.spatial"] == [3.0, 3.0]
    assert found["decision-slope.spatial"] == [200.0, 200.0]
    assert found["ruggedness.spatial"] == [50.0, 50.0]
    assert found["surface.spatial"] == [40.0, 40.0]


def test_surfaces_are_computed_in_float32_to_the_last_digit(digits, trial):
    f = Always(3)
    assert torch.backends.cudnn.allow_tf32, "what a device would do else"
    surfaces_around(f, digits, trial, "smoke")
    assert not f.computed_in_tf32
