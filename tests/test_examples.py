"""Every example is short, complete and says something sensible."""

import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from unperturbed import evaluate
from unperturbed.attacks import pgd, random
from unperturbed.datasets import load
from unperturbed.experiments.evidence import read
from unperturbed.files import numbers_in
from unperturbed.neighborhoods import Spatial
from unperturbed.recipes import named
from unperturbed.runs import RunDirectory

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
every_example = pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])


@pytest.fixture(scope="module")
def printed():
    """What an example prints when it is run as a script; each is run once."""
    answers = {}

    def run(path, capsys):
        if path not in answers:
            with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
                patch.setattr(sys, "argv", [str(path)])
                patch.setattr(torch.cuda, "is_available", lambda: False)
                runpy.run_path(str(path), run_name="__main__")
            answers[path] = capsys.readouterr().out
        return answers[path]

    return run


def accuracies(text):
    """The numbers in percent: clean, then under PGD."""
    table = re.search(r"none \(clean\) +│ +([\d.]+).*?pgd +│ +([\d.]+)", text, re.DOTALL)
    sentence = re.search(r"accuracy ([\d.]+)% clean, ([\d.]+)% under PGD", text)
    return [float(number) for number in (table or sentence).groups()]


def test_there_are_examples_for_a_model_and_for_a_loop_of_ones_own():
    assert {path.stem for path in EXAMPLES} >= {"own_model", "own_loop"}


@every_example
def test_an_example_has_at_most_40_lines_and_runs_only_as_a_script(path, capsys):
    lines = path.read_text().splitlines()
    assert len(lines) <= 40
    assert lines[0].startswith('"""')
    assert lines[-2:] == ['if __name__ == "__main__":', "    main()"]
    runpy.run_path(str(path), run_name="imported")
    assert capsys.readouterr().out == ""


@every_example
def test_an_example_trains_a_model_that_withstands_pgd_far_above_chance(path, capsys, printed):
    clean, under_pgd = accuracies(printed(path, capsys))
    assert 70 <= clean <= 100
    assert 40 <= under_pgd <= clean


def test_a_model_of_ones_own_gets_a_whole_table(capsys, printed):
    (path,) = [path for path in EXAMPLES if path.stem == "own_model"]
    table = printed(path, capsys)
    for word in ("400 images", "R_stand", "R_rob", "R_adv", "pgd", "shifts", "worst case of all", "Linf 0.1"):
        assert word in table


def test_a_loop_of_ones_own_sees_its_loss_fall(capsys, printed):
    (path,) = [path for path in EXAMPLES if path.stem == "own_loop"]
    losses = [float(loss) for loss in re.findall(r"step \d+: loss ([\d.]+)", printed(path, capsys))]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


TRAINED = {"mnist-srt": "mnist-pixel-srt", "mnist-srt-plus": "mnist-compound-srt"}
"""the recipes of the trained models, by folder"""
every_trained = pytest.mark.parametrize("name", TRAINED)


@cache
def trained_accuracies(name):
    """Of a trained example on digits of other writers, which scikit-learn ships, as large and as black as MNIST's."""
    run = RunDirectory(FOLDER / name)
    f = run.read_recipe().model((1, 28, 28), 10)
    run.read_weights(f)
    data = load("digits")
    x, y = data.test_images[:80].float() / 255, data.test_labels[:80]
    x = (F.pad(F.interpolate(x, size=(20, 20), mode="bilinear"), (4, 4, 4, 4)) > 0.5).float()
    attacks = {"pgd": pgd(eps=0.3, steps=20, step_size=0.02), "random": random(Spatial(rotation=30, translation=3))}
    report = evaluate(f, x, y, attacks, device="cpu")
    return report.accuracy(), report.accuracy("pgd"), report.accuracy("random")


@every_trained
def test_a_trained_example_withstands_pgd_on_digits_of_other_writers(name):
    clean, under_pgd, _ = trained_accuracies(name)
    assert clean > 0.8
    assert under_pgd > 0.7


def test_of_the_trained_examples_srt_plus_alone_withstands_warps_too():
    assert trained_accuracies("mnist-srt-plus")[2] > 0.7
    assert trained_accuracies("mnist-srt")[2] < 0.4


@every_trained
def test_a_trained_example_is_small_and_that_of_its_evidence(name):
    run = RunDirectory(FOLDER / name)
    assert run.weights.stat().st_size < 5_000_000
    assert run.read_recipe() == named(TRAINED[name])
    evidence = read(FOLDER.parent / "results" / "reproduce" / "paper" / f"{TRAINED[name]}-seed-0.json")
    assert evidence.report.weights == numbers_in(run.weights)


def test_the_trained_examples_are_all_named():
    assert {path.parent.name for path in FOLDER.glob("*/recipe.json")} == set(TRAINED)
