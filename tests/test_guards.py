"""The alarm for a collapsing C(x), and what to lower for a loss that is no number."""

from dataclasses import replace

import pytest

from unperturbed.averaging import Average
from unperturbed.guards import (
    CollapseAlarm,
    done_in_vain,
    has_robust_term,
    normalizes_apart,
    require_teachable,
    require_use_by,
    steps_taken,
    to_lower,
    with_checksum,
)
from unperturbed.models import DigitsCNN, SmallCNN
from unperturbed.objectives import AT, KLR, SRT, TRADES, UAT, Mixture, Standard
from unperturbed.recipe import SGD, Recipe, Teacher, Validation
from unperturbed.schedules import Cyclic, Piecewise
from unperturbed.solvers import FGSM


def record(*, step: int = 100, share: float = 0.1, accuracy: float = 0.5) -> dict[str, float | int]:
    return {"step": step, "largest_class_share": share, "labeled_accuracy": accuracy}


def warnings_of(alarm: CollapseAlarm, *records: dict[str, float | int], progress: float = 0.5) -> list[str]:
    return [sentence for line in records if (sentence := alarm.sentence(line, progress))]


def test_one_class_with_more_than_half_of_the_predictions_is_an_alarm_with_remedies():
    (warning,) = warnings_of(CollapseAlarm(largest_label_share=0.1), record(step=70, share=0.51))
    assert warning.startswith("step 70: one class takes 51% of C(x)")
    assert warning.endswith(": lengthen ramp.over, lower objective.weight or lower the learning rate")


def test_where_there_is_no_robust_term_the_remedy_is_the_learning_rate():
    (warning,) = warnings_of(CollapseAlarm(largest_label_share=0.1, robust_term=False), record(step=70, share=0.51))
    assert warning == "step 70: one class takes 51% of C(x): lower the learning rate"


def test_where_batchnorm_sees_warped_images_by_themselves_one_pass_is_a_remedy():
    (warning,) = warnings_of(CollapseAlarm(largest_label_share=0.1, normalized_apart=True), record(share=0.51))
    assert warning.endswith("learning rate, and where images are warped set objective.forward to together")


@pytest.mark.parametrize(
    ("model", "objective", "apart"),
    [
        (DigitsCNN(), SRT(), True),
        (DigitsCNN(), SRT(forward="together"), False),
        (DigitsCNN(), UAT(), True),
        (DigitsCNN(), UAT(forward="together"), False),
        (DigitsCNN(), KLR(), False),
        (SmallCNN(), SRT(), False),
    ],
    ids=["two passes", "one pass", "UAT in two", "UAT in one", "KLR", "no BatchNorm"],
)
def test_clean_and_perturbed_images_are_normalized_apart_by_batchnorm_in_two_passes(model, objective, apart):
    shape = (1, 8, 8) if isinstance(model, DigitsCNN) else (1, 28, 28)
    assert normalizes_apart(model(shape, 10), objective) is apart


@pytest.mark.parametrize(
    ("objective", "has_one"),
    [
        (Standard(), False),
        (AT(), False),
        (Mixture(objectives=(AT(), Standard())), False),
        (Mixture(objectives=(AT(), TRADES())), True),
        (SRT(), True),
        (KLR(), True),
        (UAT(), True),
        (lambda f, batch, rng: Standard()(f, batch, rng), True),
    ],
)
def test_objectives_with_a_robust_term(objective, has_one):
    assert has_robust_term(objective) is has_one


def test_exactly_half_of_the_predictions_is_no_alarm():
    assert not warnings_of(CollapseAlarm(largest_label_share=0.1), record(share=0.5))


def test_an_untrained_model_may_favor_one_class_until_patience_ends():
    alarm = CollapseAlarm(largest_label_share=0.1)
    assert not warnings_of(alarm, record(share=1.0), progress=0.19)
    assert warnings_of(alarm, record(share=1.0), progress=0.2)


def test_an_untrained_model_may_favor_one_class_for_fifty_steps_of_the_shortest_run():
    alarm = CollapseAlarm(largest_label_share=0.1)
    assert not warnings_of(alarm, record(step=49, share=1.0), progress=1.0)
    assert warnings_of(alarm, record(step=50, share=1.0), progress=1.0)


def test_a_constant_model_is_an_alarm_after_a_thousand_steps_of_the_longest_run():
    alarm = CollapseAlarm(largest_label_share=0.1)
    early = [record(step=999, share=1.0), record(step=1000, share=0.99), record(step=1000, accuracy=0.0)]
    assert not warnings_of(alarm, *early, progress=0.01)
    (warning,) = warnings_of(alarm, record(step=1000, share=1.0), progress=0.01)
    assert warning.startswith("step 1000: one class takes 100% of C(x)")


def test_a_fall_of_labeled_accuracy_by_more_than_twenty_points_is_an_alarm():
    alarm = CollapseAlarm(largest_label_share=0.1)
    assert not warnings_of(alarm, record(accuracy=0.8), record(accuracy=0.61))
    (warning,) = warnings_of(alarm, record(accuracy=0.59))
    assert "fell from 80% to 59%" in warning


def test_accuracy_may_go_up_and_down_until_patience_ends():
    alarm = CollapseAlarm(largest_label_share=0.1)
    assert not warnings_of(alarm, record(accuracy=0.9), record(accuracy=0.6), progress=0.19)
    assert warnings_of(alarm, record(accuracy=0.6), progress=0.2)


def test_accuracy_is_compared_with_its_best_and_not_with_the_line_before():
    alarm = CollapseAlarm(largest_label_share=0.1)
    assert len(warnings_of(alarm, *(record(accuracy=percent / 100) for percent in (80, 70, 62, 58)))) == 1


def test_the_alarm_sounds_once():
    alarm = CollapseAlarm(largest_label_share=0.1)
    falling_and_constant = [record(accuracy=0.9), *[record(share=1.0, accuracy=0.1)] * 5]
    assert len(warnings_of(alarm, *falling_and_constant)) == 1


def test_balanced_predictions_of_two_classes_are_no_alarm():
    alarm = CollapseAlarm(largest_label_share=0.5)
    assert not warnings_of(alarm, *(record(share=share) for share in (0.5, 0.55, 0.7)))
    assert warnings_of(alarm, record(share=0.8))


def test_half_as_many_predictions_again_as_the_most_frequent_label_has_are_no_alarm():
    alarm = CollapseAlarm(largest_label_share=0.4)
    assert not warnings_of(alarm, record(share=0.59))
    assert warnings_of(alarm, record(share=0.61))


@pytest.mark.parametrize("largest_label_share", [0.1, 0.5, 0.7, 0.9, 0.95])
def test_a_constant_classifier_is_an_alarm_however_the_labels_are_distributed(largest_label_share):
    alarm = CollapseAlarm(largest_label_share=largest_label_share)
    assert not warnings_of(alarm, record(share=largest_label_share))
    assert warnings_of(alarm, record(share=1.0))


def test_a_healthy_run_is_silent():
    alarm = CollapseAlarm(largest_label_share=0.1)
    lines = [record(step=10 * i, share=0.3 - i / 100, accuracy=0.1 + i / 25) for i in range(20)]
    assert not any(alarm.sentence(line, line["step"] / 200) for line in lines)


@pytest.mark.parametrize(("logged", "words"), [((5, 12), "12"), ((5, 8), "8 of 12"), ((5, 8, 12), "12"), ((), "12")])
def test_the_steps_of_a_run_are_those_of_its_recipe_unless_its_log_ends_before(logged, words):
    assert steps_taken([{"step": step} for step in logged], 12) == words


@pytest.mark.parametrize("labeler", ["average", "teacher"])
def test_unlabeled_images_count_in_at_where_an_average_or_a_teacher_labels_them(labeler):
    require_use_by(Recipe(objective=AT(), labeler=labeler), 1)
    with pytest.raises(ValueError, match=r"AT sees labeled images alone, .* set --labeler teacher or average"):
        require_use_by(Recipe(objective=AT()), 1)


def test_unlabeled_images_that_no_labeler_makes_count_are_refused_without_naming_one():
    with pytest.raises(ValueError, match=r"name no files of them, or choose a recipe that uses them"):
        require_use_by(Recipe(objective=KLR()), 1)
    require_use_by(Recipe(objective=KLR()), 0)
    require_use_by(Recipe(teacher=Teacher(objective=AT(), unlabeled=True)), 1)  # Nobody asks that teacher.


@pytest.mark.parametrize("labeler", ["average", "teacher"])
@pytest.mark.parametrize(
    ("objective", "unlabeled", "advice"),
    [
        (Standard(), 0, "omit it, or choose a recipe that asks"),
        (KLR(), 0, "omit it, or choose a recipe that asks"),
        (UAT(), 5, "omit it, or choose a recipe that asks"),
        (AT(), 0, "omit it, set --data.unlabeled None, or choose"),
        (TRADES(), 0, "omit it, set --data.unlabeled None, or choose"),
        (UAT(form="++"), 0, "omit it, set --data.unlabeled None, or choose"),
        (Mixture(objectives=(AT(), Standard())), 0, "omit it, set --data.unlabeled None, or choose"),
    ],
)
def test_a_labeler_that_nobody_asks_is_refused(labeler, objective, unlabeled, advice):
    recipe = Recipe(objective=objective, labeler=labeler)
    words = f"--labeler {labeler} would do nothing, for {type(objective).__name__} asks nobody about {unlabeled} "
    with pytest.raises(ValueError, match=f"{words}unlabeled images: {advice}"):
        require_use_by(recipe, unlabeled)
    require_use_by(Recipe(objective=SRT(), labeler=labeler), 0)
    require_use_by(Recipe(objective=Mixture(objectives=(objective, SRT())), labeler=labeler), unlabeled)


def test_a_teacher_that_sees_no_others_needs_as_many_labels_as_its_batch():
    recipe = Recipe(batch=60, labeler="teacher", teacher=Teacher(batch=40))
    require_teachable(recipe, 40)
    require_teachable(replace(recipe, labeler="current"), 39)
    with pytest.raises(ValueError, match=r"the 39 labeled images alone, fewer than its batch of 40: lower"):
        require_teachable(recipe, 39)
    require_teachable(replace(recipe, teacher=Teacher(batch=40, unlabeled=True)), 39)
    with pytest.raises(ValueError, match=r"the 59 labeled images alone, fewer than its batch of 60: lower"):
        require_teachable(replace(recipe, teacher=Teacher()), 59)


@pytest.mark.parametrize(
    ("objective", "labeler", "told"),
    [
        (SRT(solver=FGSM(start="identity"), targets="soft"), "current", 1),
        (SRT(solver=FGSM(start="identity"), targets="soft"), "average", 0),
        (SRT(solver=FGSM(start="identity")), "current", 0),
        (TRADES(solver=FGSM(start="identity")), "current", 1),
        (TRADES(solver=FGSM(start="identity")), "average", 1),
        (Mixture(objectives=(AT(), UAT(solver=FGSM(start="identity")))), "current", 1),
        (KLR(solver=FGSM(start="uniform")), "current", 0),
    ],
)
def test_a_search_from_x_of_how_far_answers_are_apart_has_no_slope_where_f_labels_itself(objective, labeler, told):
    sentences = done_in_vain(Recipe(objective=objective, labeler=labeler), 0)
    assert [sentence.startswith("the search starts at x") for sentence in sentences] == [True] * told


@pytest.mark.parametrize(("every", "told"), [(79, False), (80, True), (81, True)])
def test_images_held_out_to_choose_the_weights_are_to_be_looked_at_before_the_end(every, told):
    recipe = Recipe(objective=Standard(), steps=80, validation=Validation(every=every))
    assert [
        sentence.endswith("lower --validation.every, to 4 for instance") for sentence in done_in_vain(recipe, 9)
    ] == ([True] if told else [])
    assert not done_in_vain(recipe, 0)


def test_a_recipe_holds_the_checksum_of_its_images_and_is_for_no_others():
    recipe = with_checksum(Recipe(), "abc")
    assert recipe.data.sha256 == "abc"
    assert with_checksum(recipe, "abc") == recipe
    with pytest.raises(ValueError, match=r"SHA-256 abc, these have def"):
        with_checksum(recipe, "def")


def test_unlabeled_images_count_in_the_at_of_a_teacher_whose_own_average_labels_them():
    averaged = Teacher(objective=AT(), unlabeled=True, labeler="average", averaging=Average(decay=0.9))
    require_use_by(Recipe(labeler="teacher", teacher=averaged), 1)
    with pytest.raises(ValueError, match=r"AT sees labeled images alone, .* leave --teacher\.unlabeled out"):
        require_use_by(Recipe(labeler="teacher", teacher=Teacher(objective=AT(), unlabeled=True)), 1)


@pytest.mark.parametrize(
    ("optimizer", "objective", "words"),
    [
        (SGD(rate=Cyclic(peak=7.0)), AT(), "optimizer.rate.peak = 7.0"),
        (SGD(rate=Piecewise(rate=9.0)), Standard(), "optimizer.rate.rate = 9.0"),
        (SGD(rate=lambda progress: 1.0), Standard(), "optimizer.rate"),
        (SGD(rate=Cyclic(peak=7.0)), SRT(weight=1e30), "optimizer.rate.peak = 7.0 or objective.weight = 1e+30"),
        (SGD(rate=Piecewise(rate=9.0)), UAT(weight=2.0), "optimizer.rate.rate = 9.0 or objective.weight = 2.0"),
    ],
)
def test_whatever_may_have_made_a_loss_infinite_is_to_be_lowered(optimizer, objective, words):
    assert to_lower(optimizer, objective, robust_alone=False) == words
    assert to_lower(optimizer, objective, robust_alone=True).startswith("objective.weight or objective.solver (only")
