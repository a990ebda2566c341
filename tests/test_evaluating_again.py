"""Evaluations that follow one another, or meet: what they keep, what they set aside, and of what data they speak."""

import json
import re
import shutil
import threading
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from evaluated_runs import make_run, small, write_card
from unperturbed.cli import main
from unperturbed.comparison import compared
from unperturbed.datasets import load
from unperturbed.locks import by_turns
from unperturbed.neighborhoods import Linf, Spatial
from unperturbed.recipes import usual_budget
from unperturbed.report import read
from unperturbed.runs import RunDirectory
from unperturbed.trust import card as cards

OTHER_DATA = "{} is not the data that {} was trained on: its test images may have been trained on"
NAMES = [f"digit {number}" for number in range(10)]


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNPERTURBED_DATA", raising=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a finished run on digits, evaluated by nobody."""
    path = tmp_path_factory.mktemp("trained") / "run"
    make_run(path, small("digits-pixel-srt"))
    (path / "report.json").unlink()
    return path


@pytest.fixture
def finished(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "finished"))


@pytest.fixture
def own(tmp_path):
    """The directory of a run on a file of one's own, whose classes have names."""
    pack(tmp_path / "mine.npz")
    recipe = small("digits-pixel-srt")
    make_run(tmp_path / "own", replace(recipe, data=replace(recipe.data, name="mine.npz")), images=20)
    return tmp_path / "own"


def pack(path, *, first=0, names=tuple(NAMES), order=range(10)):
    """Digits in an .npz file: test images from that place on, training images all others, classes in that order."""
    digits = load("digits")
    images = np.concatenate([digits.train_images.numpy(), digits.test_images.numpy()])
    labels = np.argsort(list(order))[np.concatenate([digits.train_labels.numpy(), digits.test_labels.numpy()])]
    tested = np.zeros(len(labels), bool)
    tested[first : first + 100] = True
    arrays = {"train_images": images[~tested], "test_images": images[tested]}
    arrays |= {"train_labels": labels[~tested], "test_labels": labels[tested]}
    np.savez(path, **arrays, **({"classes": np.array([names[each] for each in order])} if names else {}))


def attacking(run, names, *options):
    return ["evaluate", str(run), "--images", "10", "--device", "cpu", "--attacks", names, *map(str, options)]


def meanwhile(monkeypatch, words):
    """Let another evaluation begin and end while the next one is at work."""
    module = import_module("unperturbed.cli.evaluate")
    usual = module.evaluate_model

    def interrupted(*arguments, **options):
        monkeypatch.setattr(module, "evaluate_model", usual)
        main(words)
        return usual(*arguments, **options)

    monkeypatch.setattr(module, "evaluate_model", interrupted)


@pytest.mark.parametrize("before", [False, True])
def test_two_evaluations_of_one_run_at_a_time_lose_nothing(finished, monkeypatch, capsys, before):
    if before:
        main(attacking(finished, "fgsm"))
    meanwhile(monkeypatch, attacking(finished, "randadv"))
    capsys.readouterr()
    main(attacking(finished, "fgsm", "--json"))
    found = read(finished / "report.json")
    assert {result.name for result in found.attacks} == {"fgsm", "randadv"}
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == found.summary(), "what is written is printed"
    assert not list(finished.glob("report-*.json"))


@pytest.mark.parametrize("options", [("--budget.eps", 0.2), ("--seed", 3)], ids=str)
def test_what_an_evaluation_by_other_means_wrote_meanwhile_is_set_aside(finished, monkeypatch, options):
    meanwhile(monkeypatch, attacking(finished, "fgsm", *options))
    main(attacking(finished, "pgd"))
    assert [result.name for result in read(finished / "report.json").attacks] == ["pgd"]
    (aside,) = finished.glob("report-*.json")
    assert [result.name for result in read(aside).attacks] == ["fgsm"]


def test_what_was_set_aside_is_not_set_aside_for_each_attack_again(finished):
    main(attacking(finished, "fgsm,randadv"))
    tree = json.loads((finished / "report.json").read_text())
    for row in tree["attacks"]:
        row["precision"] = "bfloat16"
    (finished / "report.json").write_text(json.dumps(tree))
    main(attacking(finished, "fgsm,randadv"))
    assert {result.precision for result in read(finished / "report.json").attacks} == {"float32"}
    assert len(list(finished.glob("report-*.json"))) == 1


def test_files_of_a_directory_are_written_by_turns(tmp_path):
    inside, waited = threading.Event(), threading.Event()

    def second():
        inside.wait()
        with by_turns(tmp_path):
            waited.set()

    other = threading.Thread(target=second)
    other.start()
    with by_turns(tmp_path):
        inside.set()
        assert not waited.wait(0.2)
    other.join()
    assert waited.is_set()
    assert not list(tmp_path.iterdir())


def test_data_that_was_packed_again_since_training_is_told(own, capsys):
    main(attacking(own, "fgsm"))
    assert "is not the data" not in capsys.readouterr().err
    pack(own.parent / "mine.npz", first=900)
    told = f"unperturbed: {OTHER_DATA.format('mine.npz', own)}"
    main(attacking(own, "fgsm"))
    assert capsys.readouterr().err.splitlines().count(told) == 1
    main(["surface", str(own), "--points", "3", "--device", "cpu", "--out", "surface.png"])
    assert capsys.readouterr().err.splitlines().count(told) == 1
    words = ["--fractions", "1", "--attacks", "pgd", "--images", "5", "--device", "cpu", "--out", "curve.png"]
    main(["curve", "perturbation", str(own), *words])
    assert capsys.readouterr().err.splitlines().count(told) == 1


def test_only_data_that_can_be_told_apart_are_told(own):
    (run,) = compared([own])
    dataset = load("mine.npz")

    def told(dataset=dataset, **changes):
        return replace(run, recipe=replace(run.recipe, data=replace(run.recipe.data, **changes))).other_data(dataset)

    assert told() is None
    other = OTHER_DATA.format("mine.npz", own)
    few = replace(dataset, train_images=dataset.train_images[:50], train_labels=dataset.train_labels[:50])
    assert told(few) == other, "it cannot even be split as the recipe says"
    assert told(few, sha256=None) is None
    assert told(unlabeled_files=("gone.npy",)) is None
    fresh = replace(dataset, test_images=dataset.test_images[:3], test_labels=dataset.test_labels[:3])
    assert told(fresh) is None, "fresh test images beside the same training images are meant"


def test_classes_in_another_order_are_refused(own, refused):
    pack(own.parent / "mine.npz", order=[1, 0, *range(2, 10)])
    sentence = (
        f"the model of {own} has 'digit 0' for class 0 and mine.npz has 'digit 1': its answers would be scored as "
        "other classes; restore the data that it was trained on, or pack the data with the same classes in the same "
        "order"
    )
    assert sentence in refused("evaluate", own, "--attacks", "fgsm", "--device", "cpu")
    (run,) = compared([own])
    with pytest.raises(ValueError, match=re.escape(sentence)):
        run.model(load("mine.npz"))
    assert len(read(own / "report.json").labels) == 20, "the report stays as it was"


def test_classes_without_names_are_not_held_against_those_with_names(own):
    (run,) = compared([own])
    pack(own.parent / "mine.npz", names=())
    run.model(load("mine.npz"))
    pack(own.parent / "mine.npz", names=tuple("1023456789"))
    run.model(load("digits"))
    RunDirectory(own).write_weights(run.model(load("digits")), load("digits").use)
    with pytest.raises(ValueError, match=r"has '0' for class 0 and mine\.npz has '1'"):
        run.model(load("mine.npz"))
    few = load("digits")
    with pytest.raises(ValueError, match="has 10 classes and digits has 11"):
        run.model(replace(few, classes=(*few.classes, "ten")))


BUDGET = usual_budget("digits")
AROUND = {"around": repr(Linf(eps=BUDGET.eps)), "spatial": repr(BUDGET.warps)}
OLD = {"around": str(Linf(eps=BUDGET.eps)), "spatial": str(BUDGET.warps)}


@pytest.mark.parametrize(
    ("changes", "options", "stays"),
    [
        (AROUND, (), True),
        (AROUND, ("--budget.steps", 9), True),
        (AROUND, ("--budget.eps", 0.25), False),
        (AROUND, ("--budget.fraction", 0.5), False),
        (AROUND, ("--budget.rotation", 10), False),
        ({"provenance": OLD}, (), True),
        ({"provenance": OLD}, ("--budget.eps", 0.25), False),
        ({}, ("--budget.eps", 0.25), True),
        (AROUND | {"subject": "another"}, (), False),
    ],
)
def test_a_card_stays_only_beside_a_report_of_its_radius_and_subject(finished, capsys, changes, options, stays):
    main(attacking(finished, "jsma"))
    write_card(finished, **changes)
    content = (finished / "trust.json").read_bytes()
    capsys.readouterr()
    main(attacking(finished, "pgd", *options))
    assert (finished / "trust.json").exists() is stays
    if not stays:
        (aside,) = finished.glob("trust-*.json")
        assert aside.read_bytes() == content
        said = f"what {finished / 'trust.json'} held was of other images, weights, seeds or settings: it is kept as "
        assert f"{said}{aside}" in capsys.readouterr().err


def test_a_card_is_told_what_stands_under_all_attacks_of_the_report_within_its_ball(finished, monkeypatch):
    evaluating, given = import_module("unperturbed.cli.evaluate"), []
    examine = evaluating.examine
    monkeypatch.setattr(
        evaluating, "examine", lambda *values, **words: given.append(words) or examine(*values, **words)
    )
    main(attacking(finished, "randadv,gridadv", "--trust"))
    main(attacking(finished, "fgsm"))
    main(attacking(finished, "ddn,pgd", "--trust"))
    report = read(finished / "report.json")
    assert {result.name for result in report.attacks} == {"randadv", "gridadv", "fgsm", "ddn", "pgd"}
    without, stood = (words["stood"] for words in given)
    assert without is None, "a warp is no change within the ball"
    assert stood.equal(report.survivors("fgsm") & report.survivors("pgd"))


def test_a_card_tells_what_it_was_made_with_and_an_older_one_can_be_read(finished):
    main(attacking(finished, "fgsm", "--budget.eps", 0.1, "--trust", "--trust-seconds", 5))
    content = json.loads((finished / "trust.json").read_text())
    card = cards.loads(json.dumps(content))
    assert card.around == "Linf(eps=0.1)"
    assert card.spatial == repr(BUDGET.warps)
    assert card.subject == read(finished / "report.json").subject
    assert card.within == f"Linf 0.1 and {BUDGET.warps}"
    assert card.looked_within(Linf(eps=0.1), BUDGET.warps)
    assert not card.looked_within(Linf(eps=0.1), Spatial(rotation=1.0))
    older = {name: value for name, value in content.items() if name not in cards.NOTED}
    assert cards.loads(json.dumps(older)) == replace(card, around="", spatial="", subject="")
    with pytest.raises(ValueError, match="its subject is damaged"):
        cards.loads(json.dumps(content | {"subject": 3}))
