"""Reports: numbers that follow from stored predictions, written and read back without loss."""

import base64
import json
import zlib
from dataclasses import replace
from math import inf, nan

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from unperturbed import report as reports
from unperturbed.files import numbers_in
from unperturbed.packing import packed, unpacked
from unperturbed.report import AttackResult, Report, loads, read, wilson
from unperturbed.sweeps import means_of


def attack_result(name, predicted, **others):
    fields = {"budget": f"budget of {name}", "settings": f"{name}()", "rejected": 0, "seconds": 1.25} | others
    return AttackResult(name=name, predicted=torch.tensor(predicted), **fields)


REPORT = Report(
    labels=torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]),
    clean=torch.tensor([0, 1, 2, 3, 4, 5, 0, 0]),
    attacks=(
        attack_result("pgd", [0, 1, 2, 3, 9, 9, 6, 0], rejected=3),
        attack_result("gridadv", [9, 1, 2, 3, 4, 9, 0, 7], seconds=61.5, median_size=0.625),
    ),
    seed=7,
    provenance={"torch": "2.0", "threads": 2},
    recipe={"type": "Recipe", "steps": 3},
    subject="c0ffee",
)
"""six of eight right; pgd turns two of them, gridadv two, one of these both; each turns one wrong answer right"""


def test_numbers_follow_from_the_predictions():
    summary = REPORT.summary()
    pgd, gridadv = summary["attacks"]
    assert summary["images"] == 8
    assert summary["clean"]["accuracy"] == 6 / 8
    assert summary["standard_risk"] == 2 / 8
    assert (pgd["accuracy"], pgd["robust_risk"], pgd["adversarial_risk"]) == (4 / 8, 3 / 8, 4 / 8)
    assert (gridadv["accuracy"], gridadv["robust_risk"], gridadv["adversarial_risk"]) == (4 / 8, 3 / 8, 4 / 8)
    assert summary["worst_case"]["accuracy"] == 3 / 8
    assert (pgd["rejected"], gridadv["rejected"]) == (3, 0)


def test_every_image_has_a_verdict():
    assert REPORT.survivors().tolist() == [True] * 6 + [False] * 2
    assert REPORT.survivors("pgd").tolist() == [True] * 4 + [False] * 4
    assert REPORT.survivors("gridadv").tolist() == [False, True, True, True, True, False, False, False]
    assert REPORT.worst_case().tolist() == [False, True, True, True, False, False, False, False]


def test_a_report_may_be_on_the_weights_in_a_file_unless_it_names_others(tmp_path):
    weights = tmp_path / "model.safetensors"
    assert replace(REPORT, weights="cafe").is_on(weights), "no weights are there to compare"
    save_file({"weight": torch.ones(3)}, weights)
    assert REPORT.is_on(weights), "it names none"
    assert replace(REPORT, weights=numbers_in(weights)).is_on(weights)
    assert not replace(REPORT, weights="cafe").is_on(weights)


def test_at_a_prompt_a_report_and_what_an_attack_found_are_a_line():
    assert repr(REPORT) == "<Report: 8 images, clean 75.00%, pgd 50.00%, gridadv 50.00%>"
    assert repr(REPORT["pgd"]) == "<AttackResult pgd: 8 images, budget of pgd>"


def test_without_attacks_the_worst_case_is_the_clean_one():
    assert replace(REPORT, attacks=()).worst_case().tolist() == REPORT.survivors().tolist()


def test_a_median_that_no_number_can_tell_is_written_as_none():
    result = attack_result("ddn", [0] * 8, median_size=float("inf"))
    report = replace(REPORT, attacks=(result,))
    assert report.summary()["attacks"][0]["median_size"] is None
    assert loads(report.dumps())["ddn"].median_size is None
    assert "median" not in report.table()


def test_an_attack_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(KeyError, match="no attack 'fgsm' in this report, which has pgd, gridadv"):
        REPORT.accuracy("fgsm")


@pytest.mark.parametrize("risk", ["standard_risk", "robust_risk", "adversarial_risk"])
def test_a_report_on_which_lemma_1_does_not_hold_cannot_be_made(risk, monkeypatch):
    honest = getattr(reports, risk)
    monkeypatch.setattr(reports, risk, lambda *predictions: ~honest(*predictions))
    with pytest.raises(ArithmeticError, match="Lemma 1 does not hold on the predictions under pgd"):
        replace(REPORT)


@pytest.mark.parametrize(
    "missing",
    [
        {"labels": torch.tensor([0, 1])},
        {"clean": torch.tensor([0])},
        {"attacks": (attack_result("pgd", [1]),)},
        {"labels": torch.tensor([]), "clean": torch.tensor([]), "attacks": ()},
    ],
    ids=["labels", "clean", "attacked", "everything"],
)
def test_a_report_with_too_few_predictions_cannot_be_made(missing):
    with pytest.raises(ValueError, match="as many predictions as labels and at least one"):
        replace(REPORT, **missing)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 400, 0.0, 0.009512),
        (200, 400, 0.451225, 0.548775),
        (400, 400, 0.990488, 1.0),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, Table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_intervals_are_those_of_wilson(successes, trials, low, high):
    assert wilson(successes, trials) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 10_000), st.data())
@settings(deadline=None)
def test_an_interval_holds_its_share_and_lies_in_the_unit_interval(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
    assert high - low > 0


def test_a_report_survives_being_written_and_read():
    report = replace(REPORT, weights="a hash")
    again = loads(report.dumps())
    assert torch.equal(again.labels, REPORT.labels)
    assert torch.equal(again.clean, REPORT.clean)
    assert again.labels.dtype == torch.int64
    for name in ("seed", "provenance", "recipe", "subject", "weights"):
        assert getattr(again, name) == getattr(report, name)
    for result, stored in zip(REPORT.attacks, again.attacks, strict=True):
        assert torch.equal(result.predicted, stored.predicted)
        for name in ("name", "budget", "settings", "rejected", "median_size", "seconds"):
            assert getattr(result, name) == getattr(stored, name)
    assert again.summary() == REPORT.summary()
    assert again.dumps() == report.dumps()


def test_the_precision_of_a_search_survives_being_written_and_read():
    report = replace(REPORT, attacks=tuple(replace(result, precision="bfloat16") for result in REPORT.attacks))
    assert {result.precision for result in loads(report.dumps()).attacks} == {"bfloat16"}


def test_results_on_other_images_or_by_other_means_are_told_apart():
    def changed(**changes):
        return replace(REPORT, attacks=tuple(replace(result, **changes) for result in REPORT.attacks))

    fewer = replace(REPORT, attacks=REPORT.attacks[:1])
    assert means_of(fewer) < means_of(REPORT)
    for other in (changed(settings="pgd(eps=1)"), changed(precision="tf32"), replace(REPORT, subject="decaf")):
        assert means_of(REPORT).isdisjoint(means_of(other))
    assert not means_of(replace(REPORT, attacks=()))


@pytest.mark.parametrize("name", ["labels", "clean", "attacked", "", "[red]", "名前", 'a "quoted" name'])
def test_an_attack_of_any_name_survives_being_written_and_read(name):
    again = loads(replace(REPORT, attacks=(attack_result(name, [9] * 8),)).dumps())
    assert again[name].predicted.tolist() == [9] * 8
    assert again.labels.tolist() == REPORT.labels.tolist()
    assert again.clean.tolist() == REPORT.clean.tolist()


def test_numbers_in_the_text_are_computed_anew_and_not_believed():
    tree = json.loads(REPORT.dumps())
    tree["standard_risk"], tree["attacks"][0]["interval"] = 0.999, [0.9, 1.0]
    tree["attacks"][0]["robust_risk"] = tree["images"] = -1
    assert loads(json.dumps(tree)).summary() == REPORT.summary()


@pytest.mark.parametrize("accuracy", [0.999, float("nan")])
@pytest.mark.parametrize("where", ["clean", "attacked"])
def test_an_accuracy_that_is_not_that_of_its_predictions_is_refused(where, accuracy):
    tree = json.loads(REPORT.dumps())
    (tree["clean"] if where == "clean" else tree["attacks"][0])["accuracy"] = accuracy
    with pytest.raises(ValueError, match=r"are not those of its accuracy there.*: delete it and evaluate again"):
        loads(json.dumps(tree))


def test_a_report_is_compared_by_identity_since_tensors_have_no_single_truth():
    assert REPORT == REPORT
    assert loads(REPORT.dumps()) != REPORT


@given(st.lists(st.integers(-1, 32_767), min_size=1, max_size=50))
@settings(deadline=None)
def test_class_numbers_survive_being_packed(numbers):
    assert unpacked(packed(torch.tensor(numbers))).tolist() == numbers


def without(tree, *path):
    *parents, last = path
    for key in parents:
        tree = tree[key]
    del tree[last]


def changed(tree, value, *path):
    *parents, last = path
    for key in parents:
        tree = tree[key]
    tree[last] = value


DAMAGE = {
    "a newer format": lambda tree: changed(tree, 99, "format"),
    "a format in words": lambda tree: changed(tree, "one", "format"),
    "no format": lambda tree: without(tree, "format"),
    "no samples": lambda tree: without(tree, "samples"),
    "no labels": lambda tree: without(tree, "samples", "labels"),
    "no predictions": lambda tree: without(tree, "samples", "attacked", "pgd"),
    "samples as a list": lambda tree: changed(tree, [1, 2], "samples"),
    "a sample that is a number": lambda tree: changed(tree, 3, "samples", "clean"),
    "a sample that is no base64": lambda tree: changed(tree, "%%%", "samples", "clean"),
    "a sample that is not compressed": lambda tree: changed(tree, "AAAA", "samples", "clean"),
    "an empty sample": lambda tree: changed(tree, "", "samples", "clean"),
    "an odd number of bytes": lambda tree: changed(tree, zipped(b"123"), "samples", "clean"),
    "a sample that is cut off": lambda tree: changed(tree, cut_off(tree), "samples", "clean"),
    "a shorter sample": lambda tree: changed(tree, packed(torch.zeros(3)), "samples", "attacked", "pgd"),
    "a sample of one": lambda tree: changed(tree, packed(torch.zeros(1)), "samples", "clean"),
    "no attacks": lambda tree: without(tree, "attacks"),
    "attacks that are numbers": lambda tree: changed(tree, [1, 2], "attacks"),
    "an attack without a budget": lambda tree: without(tree, "attacks", 0, "budget"),
    "a budget that is a number": lambda tree: changed(tree, 3, "attacks", 0, "budget"),
    "a name that is a list": lambda tree: changed(tree, [], "attacks", 0, "name"),
    "rejected in words": lambda tree: changed(tree, "few", "attacks", 0, "rejected"),
    "rejected below 0": lambda tree: changed(tree, -3, "attacks", 0, "rejected"),
    "rejected as a truth value": lambda tree: changed(tree, True, "attacks", 0, "rejected"),
    "a median below 0": lambda tree: changed(tree, -0.5, "attacks", 1, "median_size"),
    "seconds below 0": lambda tree: changed(tree, -5.0, "attacks", 0, "seconds"),
    "seconds that are no number": lambda tree: changed(tree, nan, "attacks", 0, "seconds"),
    "seconds without end": lambda tree: changed(tree, inf, "attacks", 0, "seconds"),
    "a prediction below that of no class": lambda tree: changed(
        tree, packed(torch.full((8,), -2)), "samples", "clean"
    ),
    "a label that is no class": lambda tree: changed(tree, packed(torch.full((8,), -1)), "samples", "labels"),
    "a seed as a truth value": lambda tree: changed(tree, True, "seed"),
    "a median in words": lambda tree: changed(tree, "half", "attacks", 1, "median_size"),
    "seconds in words": lambda tree: changed(tree, "long", "attacks", 0, "seconds"),
    "a seed in words": lambda tree: changed(tree, "some", "seed"),
    "a subject that is a number": lambda tree: changed(tree, 3, "subject"),
    "no provenance": lambda tree: changed(tree, None, "provenance"),
    "an accuracy beyond all floats": lambda tree: changed(tree, 10**400, "attacks", 0, "accuracy"),
}


def zipped(content):
    return base64.b64encode(zlib.compress(content)).decode()


def cut_off(tree):
    """The clean predictions without the checksum at their end, so that all of them still come out."""
    whole = base64.b64decode(tree["samples"]["clean"])
    return base64.b64encode(whole[:-2]).decode()


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_report_is_refused_in_one_sentence(damage):
    tree = json.loads(REPORT.dumps())
    damage(tree)
    with pytest.raises(ValueError) as refusal:
        loads(json.dumps(tree), "runs/mine/report.json")
    assert str(refusal.value).startswith("runs/mine/report.json is no report ")
    assert "\n" not in str(refusal.value)


def test_a_report_of_a_newer_version_says_what_to_do():
    with pytest.raises(ValueError, match=r"a newer version of unperturbed wrote it\): update unperturbed$"):
        loads(REPORT.dumps().replace('"format": 1', '"format": 2'))


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "null", "3", "[]", "{}", '"text"', "[" * 100_000, '{"format": 1}', '{"format": NaN}', "\x00"],
    ids=["empty", "words", "null", "number", "list", "object", "string", "deep", "format alone", "NaN", "byte"],
)
def test_a_foreign_text_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError, match="the report is no report") as refusal:
        loads(text)
    assert "\n" not in str(refusal.value)


def test_text_that_expands_without_end_is_refused():
    press = zlib.compressobj(9)
    megabyte = bytes(1 << 20)
    bomb = b"".join(press.compress(megabyte) for _ in range(64)) + press.flush()
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="its predictions are damaged"):
        unpacked(base64.b64encode(bomb).decode())


def test_predictions_that_are_too_many_together_are_refused(monkeypatch):
    room = 4 * REPORT.labels.numel() * 2
    monkeypatch.setattr(reports, "MOST_BYTES", room)
    assert loads(REPORT.dumps()).seed == REPORT.seed
    monkeypatch.setattr(reports, "MOST_BYTES", room - 4)
    with pytest.raises(ValueError, match="its predictions are damaged"):
        loads(REPORT.dumps())


TEXT = REPORT.dumps()
EDITS = st.lists(
    st.tuples(st.integers(0, len(TEXT) - 1), st.integers(0, 12), st.text(max_size=6) | st.sampled_from('{}[]":,0')),
    min_size=1,
    max_size=4,
)


@given(EDITS)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_report_is_either_read_whole_or_refused_by_a_value_error(edits):
    text = TEXT
    for place, length, new in edits:
        text = text[:place] + new + text[place + length :]
    try:
        report = loads(text)
    except ValueError:
        return
    assert len(report.table()) > 0
    assert loads(report.dumps()).summary() == report.summary()


def words(table):
    return " ".join(table.replace("│", " ").split())


def test_the_table_holds_every_attack_budget_and_number():
    table = words(REPORT.table(width=200))
    assert "8 images, R_stand 0.2500" in table
    assert "none (clean) 75.00 40.93 - 92.85" in table
    assert "pgd 50.00 21.52 - 78.48 0.3750 0.5000 1.2 budget of pgd (3 points rejected)" in table
    assert "gridadv 50.00 21.52 - 78.48 0.3750 0.5000 61.5 budget of gridadv, median 0.625" in table
    assert "worst case of all 37.50" in table


def test_the_worst_case_of_one_attack_is_not_said_twice():
    assert "worst case" not in replace(REPORT, attacks=REPORT.attacks[:1]).table()


def test_the_table_has_escape_codes_only_where_color_is_wanted():
    assert "\x1b[" not in REPORT.table()
    assert "\x1b[" in REPORT.table(color=True)


def test_the_table_prints_names_and_budgets_as_they_are():
    result = attack_result("pgd [strong]", [0] * 8, budget="[/] in [0, 1] :smile:")
    table = words(replace(REPORT, attacks=(result,)).table(width=200))
    assert "pgd [strong]" in table
    assert "[/] in [0, 1] :smile:" in table


@pytest.mark.parametrize("width", [5, 60, 80, 118])
def test_the_table_keeps_to_its_width(width):
    assert max(map(len, REPORT.table(width=width).splitlines())) <= max(width, 30)


def test_the_table_breaks_between_words_in_a_narrow_terminal():
    budget = "brightness <= 0.1, contrast <= 0.2, saturation <= 0.2, hue <= 15 degrees, grid of 5 x 5 x 5 x 5"
    table = words(replace(REPORT, attacks=(attack_result("color", [0] * 8, budget=budget),)).table(width=80))
    assert set(budget.split()) <= set(table.split())


def test_a_report_is_read_from_its_file(tmp_path):
    (tmp_path / "report.json").write_text(REPORT.dumps())
    assert read(tmp_path / "report.json").summary() == REPORT.summary()


def test_a_report_that_was_not_made_yet_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no .*report\.json: make it with `unperturbed evaluate "):
        read(tmp_path / "report.json")


def test_a_file_that_is_no_text_is_no_report(tmp_path):
    (tmp_path / "report.json").write_bytes(bytes(range(128, 256)))
    with pytest.raises(ValueError, match=r"report\.json is no report that can be read"):
        read(tmp_path / "report.json")


@pytest.mark.parametrize("where", ["clean", "pgd"])
def test_predictions_that_were_exchanged_are_not_those_of_the_accuracy_beside_them(where):
    predicted = {name: torch.arange(10).ge(right).long() for name, right in (("pgd", 4), ("fgsm", 6))}
    results = tuple(
        AttackResult(name=name, budget="", settings="", predicted=each, rejected=0, seconds=1.0)
        for name, each in predicted.items()
    )
    zeros = torch.zeros(10).long()
    report = Report(labels=zeros, clean=zeros, attacks=results, seed=0, provenance={})
    tree = json.loads(report.dumps())
    loads(json.dumps(tree))
    place, words = (
        (tree["samples"], "of clean images") if where == "clean" else (tree["samples"]["attacked"], "under pgd")
    )
    place[where] = packed(predicted["fgsm"])
    with pytest.raises(ValueError, match=f"its predictions {words} are not those of its accuracy there"):
        loads(json.dumps(tree))
