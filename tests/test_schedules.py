"""Learning rates and the ramp of lambda, at points whose values are known."""

import math

import pytest

from unperturbed.schedules import Cyclic, Piecewise, Ramp, Schedule


@pytest.mark.parametrize(
    ("progress", "rate"),
    [(0.0, 0.4), (0.499, 0.4), (0.5, 0.04), (0.749, 0.04), (0.75, 0.004), (1.0, 0.004)],
)
def test_piecewise_drops_at_each_milestone_and_not_before(progress, rate):
    assert Piecewise(rate=0.4, milestones=(0.5, 0.75), factor=0.1)(progress) == pytest.approx(rate)


def test_piecewise_without_milestones_is_constant():
    assert {Piecewise(rate=0.3, milestones=())(progress) for progress in (0.0, 0.5, 1.0)} == {0.3}


@pytest.mark.parametrize(
    ("progress", "rate"), [(0.0, 0.0), (0.1, 0.05), (0.4, 0.2), (0.7, 0.1), (0.85, 0.05), (1.0, 0.0)]
)
def test_cyclic_climbs_to_its_peak_and_falls_to_zero(progress, rate):
    assert Cyclic(peak=0.2, top=0.4)(progress) == pytest.approx(rate)


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (0.7, 1.0), (1.0, 1.0)])
def test_the_ramp_grows_from_zero_to_one_and_stays_there(progress, share):
    assert Ramp(over=0.4)(progress) == pytest.approx(share)


def test_no_ramp_counts_the_robust_term_in_full_from_the_start():
    assert [Ramp()(progress) for progress in (0.0, 0.5, 1.0)] == [1.0, 1.0, 1.0]


def test_a_function_of_the_user_is_a_schedule():
    assert isinstance(lambda progress: 0.1, Schedule)
    assert isinstance(Cyclic(), Schedule)
    assert isinstance(Piecewise(), Schedule)


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        (Piecewise, {"rate": 0.0}, r"Piecewise\.rate must be a positive number, got 0\.0"),
        (Piecewise, {"rate": math.inf}, r"Piecewise\.rate must be a positive number, got inf"),
        (Piecewise, {"factor": -1.0}, r"Piecewise\.factor must be a positive number, got -1\.0"),
        (Piecewise, {"factor": math.nan}, r"Piecewise\.factor must be a positive number, got nan"),
        (Piecewise, {"milestones": (0.5, 75.0)}, r"Piecewise\.milestones must lie between 0 and 1, got 0\.5, 75\.0"),
        (Cyclic, {"peak": -0.1}, r"Cyclic\.peak must be a positive number, got -0\.1"),
        (Cyclic, {"peak": math.nan}, r"Cyclic\.peak must be a positive number, got nan"),
        (Cyclic, {"top": 0.0}, r"Cyclic\.top must lie between 0 and 1, got 0\.0"),
        (Cyclic, {"top": 1.0}, r"Cyclic\.top must lie between 0 and 1, got 1\.0"),
        (Ramp, {"over": -0.1}, r"Ramp\.over must lie between 0 and 1, got -0\.1"),
        (Ramp, {"over": 1.5}, r"Ramp\.over must lie between 0 and 1, got 1\.5"),
        (Ramp, {"over": math.nan}, r"Ramp\.over must lie between 0 and 1, got nan"),
    ],
)
def test_values_that_make_no_schedule_are_refused_by_name(part, values, words):
    with pytest.raises(ValueError, match=words):
        part(**values)
