from itertools import product
from math import inf, nan

import pytest
import torch

from reference import risks as slow
from unperturbed.risks import NO_CLASS, adversarial_risk, decided, robust_risk, standard_risk

CASES = list(product(range(3), repeat=3))
"""every C(x), C(x') and y among three classes"""
CLEAN, PERTURBED, Y = torch.tensor(CASES).T


@pytest.mark.parametrize("row", range(len(CASES)), ids=[f"C(x)={c} C(x')={p} y={y}" for c, p, y in CASES])
def test_the_risks_of_an_image_are_those_of_definition_2(row):
    clean, perturbed, y = CASES[row]
    classify = {"x": clean, "x'": perturbed}.__getitem__
    assert standard_risk(CLEAN, Y)[row] == slow.standard_risk(classify, "x", y)
    assert adversarial_risk(CLEAN, PERTURBED, Y)[row] == slow.adversarial_risk(classify, ["x", "x'"], y)
    assert robust_risk(CLEAN, PERTURBED)[row] == slow.robust_risk(classify, "x", ["x", "x'"])


def test_risks_are_true_or_false_for_each_image():
    for risk in (standard_risk(CLEAN, Y), adversarial_risk(CLEAN, PERTURBED, Y), robust_risk(CLEAN, PERTURBED)):
        assert risk.shape == Y.shape
        assert risk.dtype == torch.bool


def test_an_adversary_that_does_nothing_leaves_the_standard_risk():
    assert torch.equal(adversarial_risk(CLEAN, CLEAN, Y), standard_risk(CLEAN, Y))
    assert not robust_risk(CLEAN, CLEAN).any()


def test_where_one_logit_is_no_number_there_is_no_class():
    logits = torch.tensor([[0.0, 2.0, 1.0], [nan, nan, nan], [5.0, nan, 1.0], [inf, 0.0, -inf]])
    assert decided(logits).tolist() == [1, NO_CLASS, NO_CLASS, 0]
    assert standard_risk(decided(logits[1:2].expand(3, -1)), torch.arange(3)).all()
