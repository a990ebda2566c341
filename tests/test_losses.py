from math import inf, log, nan

import pytest
import torch

from reference import solvers as slow
from unperturbed.losses import Against, ahead_of, answer_of, cross_entropy, kl, margin, slope_of


@pytest.fixture
def logits(rng):
    return 3 * torch.randn(6, 5, generator=rng, dtype=torch.float64)


@pytest.fixture
def target(rng):
    return torch.randint(5, (6,), generator=rng)


@pytest.mark.parametrize(("fast", "twin"), [(cross_entropy, slow.cross_entropy), (margin, slow.margin)])
def test_a_loss_is_its_slow_twin_on_each_image(fast, twin, logits, target):
    expected = torch.stack([twin(row, int(label)) for row, label in zip(logits, target, strict=True)])
    torch.testing.assert_close(fast(logits, target), expected)


@pytest.mark.parametrize("loss", [cross_entropy, margin, lambda z, y: ahead_of(z, y, y.flip(0))])
@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_a_loss_takes_labels_of_any_integer_type(loss, kind, logits, target):
    assert torch.equal(loss(logits, target.to(kind)), loss(logits, target))


@pytest.mark.parametrize("loss", [cross_entropy, margin])
def test_a_loss_is_differentiable(loss, logits, target):
    assert torch.autograd.gradcheck(lambda z: loss(z, target), (logits.requires_grad_(),))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_losses_of_answers_of_16_bits_are_not_rounded_themselves(kind, rng):
    """The KL of two answers to one image is far below 1, where their softmax in 16 bits is not far from it."""
    one = torch.randn(200, 10, generator=rng)
    other = (one + 0.05 * torch.randn(200, 10, generator=rng)).to(kind)
    one, label = one.to(kind), one.argmax(1)
    assert kl(one, other).min() > -1e-6
    torch.testing.assert_close(kl(one, other), kl(one.float(), other.float()))
    for target in (label, other.softmax(1)):
        exact = target.float() if target.is_floating_point() else target
        torch.testing.assert_close(cross_entropy(one, target), cross_entropy(one.float(), exact))


def test_cross_entropy_of_no_opinion_is_the_logarithm_of_the_number_of_classes():
    torch.testing.assert_close(cross_entropy(torch.zeros(2, 7), torch.tensor([0, 6])), torch.full((2,), log(7)))


def test_cross_entropy_takes_distributions_too(logits, target):
    certain = torch.nn.functional.one_hot(target, 5).double()
    torch.testing.assert_close(cross_entropy(logits, certain), cross_entropy(logits, target))
    torch.testing.assert_close(
        cross_entropy(logits, torch.full_like(logits, 1 / 5)), logits.logsumexp(1) - logits.mean(1)
    )


@pytest.mark.parametrize("wrong", [-100, -1, 5])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_label_that_is_no_class_is_refused_in_a_sentence(wrong, smoothing, logits, target):
    target[2] = wrong
    apart = ", and give images without a label apart, as u" if wrong < 0 else ""
    with pytest.raises(ValueError, match=rf"^labels must lie in 0 to 4, got {wrong}: .* 5 classes from 0{apart}$"):
        cross_entropy(logits, target, smoothing=smoothing)


def test_the_margin_is_positive_exactly_where_the_prediction_is_wrong(logits, target):
    target[:2] = logits[:2].argmax(1)
    assert torch.equal(margin(logits, target) > 0, logits.argmax(1) != target)


def test_the_margin_of_probabilities_is_minus_the_paper_s_distance_to_the_boundary():
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])
    torch.testing.assert_close(margin(probabilities, torch.tensor([0, 2])), torch.tensor([-0.5, 0.6]))


def test_against_asks_for_the_target_of_the_image_that_was_perturbed(logits, target):
    images, rows = torch.randn(4, 5), torch.tensor([5, 0, 0, 3])
    against = Against(cross_entropy, lambda x: 2 * x, target)
    torch.testing.assert_close(against(images, rows), cross_entropy(2 * images, target[rows]))
    torch.testing.assert_close(against(logits), cross_entropy(2 * logits, target))


def test_slopes_of_confident_answers_come_through_float16():
    x, target = torch.tensor([[8.0, 0.0, 0.5], [0.5, 0.0, 1.0]], requires_grad=True), torch.tensor([0, 2])
    narrow, exact = (
        slope_of(cross_entropy(answer_of(f, x), target), x) for f in (lambda x: 2 * x.half(), lambda x: 2 * x)
    )
    assert (exact != 0).all()
    torch.testing.assert_close(narrow, exact, rtol=1e-2, atol=0)


def test_slopes_that_are_no_numbers_stay_with_their_pixels():
    slopes = torch.tensor([[1.0, -3.0, 2.0], [nan, 0.5, -2.0], [inf, -inf, 0.5], [inf, 0.0, nan], [nan, nan, nan]])
    point = torch.zeros(5, 3, requires_grad=True)
    found, as_they_are = (slope_of((slopes * point).sum(1), point, signs=signs) for signs in (False, True))
    assert torch.equal(as_they_are.sign(), found.sign())
    assert as_they_are.isnan().any()
    assert torch.equal(found[:3], torch.tensor([[1.0, -3.0, 2.0], [0.0, 0.5, -2.0], [0.5, -0.5, 0.5]]))
    assert torch.equal(found[3:].sign(), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
