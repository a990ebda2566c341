"""Verdicts on statements: on numbers made by hand, with known answers, and on the paper's own."""

from dataclasses import dataclass, replace
from statistics import stdev

import pytest
import torch

from handmade import evidence, report, sweep
from unperturbed.experiments.beside_print import as_printed, nearer_to_print
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.definition import SURFACES, Cell, Difference, Figure
from unperturbed.experiments.measured import Measured, standard_error
from unperturbed.experiments.ramped import GROWN
from unperturbed.experiments.statements import (
    NOT_MEASURED,
    NOTHING_TO_COMPARE,
    Comparison,
    above,
    alike,
    among_the_best,
    decided,
    falls_under,
    faster,
    growing,
    mostly_above,
    over,
    reaches,
    wider,
)
from unperturbed.objectives import TRADES
from unperturbed.recipes.published import printed
from unperturbed.recipes.words import DATA_SETS, SCENARIOS
from unperturbed.sweeps import Sweep

GOAL = ", reaches the accuracy of the paper's fast SRT, clean and under PGD"


def verdict(statement, *runs):
    return statement.check(Measured(runs)).verdict


@pytest.mark.parametrize(
    ("points", "error", "by", "expected"),
    [
        (3.0, 1.0, 0.0, "pass"),
        (2.0, 1.0, 0.0, "undecided"),
        (-2.0, 1.0, 0.0, "undecided"),
        (-2.1, 1.0, 0.0, "fail"),
        (18.0, 0.4, 17.0, "pass"),
        (17.5, 0.4, 17.0, "undecided"),
        (16.0, 0.4, 17.0, "fail"),
        (-0.5, 0.2, -1.0, "pass"),
        (0.0, 0.0, 0.0, "undecided"),
        (0.01, 0.0, 0.0, "pass"),
    ],
)
def test_a_difference_decides_beyond_two_standard_errors(points, error, by, expected):
    assert decided(Difference(points, error), by) == expected


def test_a_model_above_another_passes_and_below_it_fails():
    statement = above("a above b", over("a", "b", ["pgd"]))
    assert verdict(statement, evidence("a", pgd=60), evidence("b", pgd=50)) == "pass"
    assert verdict(statement, evidence("a", pgd=50), evidence("b", pgd=60)) == "fail"
    assert verdict(statement, evidence("a", pgd=50.1), evidence("b", pgd=50)) == "undecided"
    assert verdict(statement, evidence("a", pgd=60)) == "undecided"
    assert verdict(statement) == "undecided"


def test_figures_tell_numbers_difference_and_what_is_missing():
    statement = above("a above b", over("a", "b", ["pgd", "fgsm"]))
    finding = statement.check(Measured((evidence("a", pgd=60), evidence("b", pgd=50))))
    assert finding.verdict == "undecided"
    assert "1 of 2 hold, 1 not yet measured" in finding.figures
    assert "PGD 60.00 (a) - 50.00 (b) = +10.00" in finding.figures


def test_one_failed_comparison_fails_a_statement_and_is_quoted_first():
    statement = above("a above b", over("a", "b", ["pgd", "fgsm"]))
    finding = statement.check(Measured((evidence("a", pgd=60, fgsm=50), evidence("b", pgd=50, fgsm=70))))
    assert finding.verdict == "fail"
    assert finding.figures.startswith("1 of 2 hold, 1 fail. FGSM 50.00 (a) - 70.00 (b) = -20.00")


def test_a_gap_has_to_be_as_wide_as_claimed():
    statement = above("by 17", over("a", "b", ["gridadv"], 17.0))
    assert verdict(statement, evidence("a", gridadv=70), evidence("b", gridadv=50)) == "pass"
    assert verdict(statement, evidence("a", gridadv=60), evidence("b", gridadv=50)) == "fail"


def test_what_has_nothing_left_to_lose_decides_nothing():
    claim = above("w", [Comparison(Cell(name, "pgd"), Cell(name, "pgd+")) for name in ("a", "b")], while_above=1.0)
    fallen, standing = evidence("a", pgd=0, pgdplus=0), evidence("b", pgd=60, pgdplus=40)
    assert verdict(claim, fallen, standing) == "pass"
    assert claim.check(Measured([fallen, standing])).figures.startswith("1 of 1 hold")
    assert verdict(claim, fallen, evidence("b", pgd=40, pgdplus=60)) == "fail"
    assert verdict(claim, fallen, evidence("b", pgd=0, pgdplus=0)) == "undecided"
    assert verdict(claim, fallen) == "undecided"
    fallen = claim.check(Measured([evidence(name, **{"pgd": 0.0, "pgd+": 0.0}) for name in ("a", "b")]))
    assert fallen == ("undecided", NOTHING_TO_COMPARE), "these were measured"


def test_most_cases_are_more_than_half():
    claim = mostly_above("w", [Comparison(Cell(name, "pgd"), Cell("low", "pgd"), 5.0) for name in "abcd"])
    low = evidence("low", pgd=40)

    def with_accuracies(*accuracies):
        return verdict(claim, low, *(evidence(name, pgd=pgd) for name, pgd in zip("abcd", accuracies, strict=False)))

    assert with_accuracies(60, 60, 60, 40) == "pass"
    assert with_accuracies(60, 60, 60) == "pass"
    assert with_accuracies(60, 60, 40, 40) == "fail"
    assert with_accuracies(60, 60, 40) == "undecided"
    assert with_accuracies() == "undecided"


def test_so_many_cases_as_are_named_are_enough():
    claim = mostly_above("w", [Comparison(Cell(name, "pgd"), Cell("low", "pgd")) for name in "abcd"], least=2)
    low = evidence("low", pgd=40)

    def with_accuracies(*accuracies):
        return verdict(claim, low, *(evidence(name, pgd=pgd) for name, pgd in zip("abcd", accuracies, strict=False)))

    assert with_accuracies(60, 60, 20, 20) == "pass"
    assert with_accuracies(60, 20, 20, 20) == "fail"
    assert with_accuracies(60, 20, 20) == "undecided"


def test_one_lead_is_wider_than_another():
    claim, low = wider("w", [tuple(over("a", "b", ("pgd", "fgsm")))]), evidence("b", fgsm=50, pgd=40)
    assert verdict(claim, evidence("a", fgsm=60, pgd=60), low) == "pass"
    assert verdict(claim, evidence("a", fgsm=70, pgd=50), low) == "fail"
    assert verdict(claim, evidence("a", fgsm=60, pgd=50), low) == "undecided"
    assert verdict(claim, evidence("a", fgsm=60), low) == "undecided"
    figures = claim.check(Measured([evidence("a", fgsm=60, pgd=60), low])).figures
    assert "PGD +20.00 - FGSM +10.00 = +10.00 ± 0.95 (a over b)" in figures, (
        "of a tenth of the images, as both are theirs"
    )


def test_leads_of_different_trials_are_compared_too():
    claim = wider("w", [(Comparison(Cell("a", "gridadv"), Cell("b", "gridadv")), *over("c", "d", ("pgd",)))])
    runs = [evidence("b", gridadv=50), evidence("c", pgd=60), evidence("d", pgd=50)]
    assert verdict(claim, evidence("a", gridadv=80), *runs) == "pass"
    assert verdict(claim, evidence("a", gridadv=52), *runs) == "fail"
    figures = claim.check(Measured([evidence("a", gridadv=80), *runs])).figures
    assert "GridAdv +30.00 (a over b) - PGD +10.00 (c over d) = +20.00 ± " in figures


def test_a_lead_that_is_none_is_not_wider_than_another():
    claim, high = wider("w", [tuple(over("a", "b", ("pgd", "fgsm")))]), evidence("b", fgsm=70, pgd=50)
    assert verdict(claim, evidence("a", fgsm=50, pgd=40), high) == "fail", "10 points behind are no lead, if under 20"
    assert verdict(claim, evidence("a", fgsm=50, pgd=50), high) == "undecided"
    assert verdict(claim, evidence("a", fgsm=50, pgd=60), high) == "pass"


def test_best_in_most_columns_lets_others_win_the_rest():
    statement = among_the_best("most", "a", ["b", "c"], ["fgsm", "pgd", "cw"], place=1, least=2)
    rivals = [evidence("b", fgsm=50, pgd=50, cw=50), evidence("c", fgsm=40, pgd=40, cw=40)]
    assert verdict(statement, evidence("a", fgsm=60, pgd=60, cw=45), *rivals) == "pass"
    assert verdict(statement, evidence("a", fgsm=60, pgd=45, cw=45), *rivals) == "fail"
    assert verdict(statement, evidence("a", fgsm=60, pgd=50.1, cw=45), *rivals) == "undecided"


def test_a_limit_is_kept_or_not():
    claim = falls_under("w", [(Cell("a", "pgd"), 5.0)])
    assert verdict(claim, evidence("a", pgd=4)) == "pass"
    assert verdict(claim, evidence("a", pgd=5)) == "fail"
    assert verdict(claim) == "undecided"


def test_growth_fails_where_one_step_falls():
    cells = [Cell(name, "pgd") for name in "abc"]
    statement = above("grows", growing(cells))
    rising = [evidence(name, pgd=value) for name, value in zip("abc", (40, 50, 60), strict=True)]
    falling = [evidence(name, pgd=value) for name, value in zip("abc", (40, 60, 50), strict=True)]
    assert verdict(statement, *rising) == "pass"
    assert verdict(statement, *falling) == "fail"


def test_best_or_second_allows_one_rival_above_and_no_more():
    statement = among_the_best("best or second", "a", ["b", "c"], ["pgd"])
    rivals = [evidence("b", pgd=70), evidence("c", pgd=50)]
    assert verdict(statement, evidence("a", pgd=60), *rivals) == "pass"
    assert verdict(statement, evidence("a", pgd=80), *rivals) == "pass"
    assert verdict(statement, evidence("a", pgd=40), *rivals) == "fail"
    assert verdict(statement, evidence("a", pgd=50.05), *rivals) == "undecided"
    assert verdict(statement, evidence("a", pgd=60), rivals[0]) == "undecided"
    for accuracy, place in ((70, 1), (69.5, 2)):
        told = statement.check(Measured([evidence("a", pgd=accuracy), *rivals])).figures
        assert f"PGD (a): place {place} of 3" in told


def test_rivals_that_are_not_measured_yet_save_no_column_that_others_have_won():
    statement = among_the_best("best or second", "a", ["b", "c", "d"], ["pgd"])
    rivals = [evidence("b", pgd=70), evidence("c", pgd=50)]
    assert verdict(statement, evidence("a", pgd=60), *rivals) == "undecided"
    finding = statement.check(Measured([evidence("a", pgd=40), *rivals]))
    assert finding.verdict == "fail"
    assert "PGD (a): place 3 of 3" in finding.figures


def answering(name, share, **attacks):
    """A run on ten classes that answers that share of all images, the first ones, by 0, and all others rightly."""
    run = evidence(name, **attacks)
    labels = torch.arange(len(run.report.labels)) % 10
    answers = labels.masked_fill(torch.arange(len(labels)) < share * len(labels), 0)
    attacked = tuple(replace(result, predicted=answers) for result in run.report.attacks)
    return replace(run, report=replace(run.report, labels=labels, clean=answers, attacks=attacked))


def test_to_be_above_a_rival_that_has_collapsed_decides_nothing():
    ours, rival = answering("a", 0.0, pgd=90), answering("b", 1.0, pgd=10)
    finding = above("w", over("a", "b", ("pgd",))).check(Measured([ours, rival]))
    assert finding.verdict == "undecided"
    assert finding.figures.startswith(
        "0 of 1 hold, 1 over one that has collapsed. PGD 100.00 (a) - 10.00 (b, collapsed) = +90.00"
    )
    assert verdict(above("w", over("b", "a", ("pgd",))), ours, rival) == "fail", "it is under others nonetheless"
    half = answering("b", 0.5, pgd=50)
    assert verdict(above("w", over("a", "b", ("pgd",))), ours, half) == "pass", "it has learned something"
    assert Measured([half, replace(rival, seed=1)]).collapsed("b") is False, "not with every seed"


def test_the_best_beside_a_rival_that_has_collapsed_is_not_yet_the_best():
    statement = among_the_best("w", "a", ["b", "c"], ["pgd"], place=1)
    ours, middling = answering("a", 0.0, pgd=90), answering("b", 0.5, pgd=50)
    assert verdict(statement, ours, middling, answering("c", 0.5, pgd=50)) == "pass"
    assert verdict(statement, ours, middling, answering("c", 1.0, pgd=10)) == "undecided"
    assert verdict(statement, middling, replace(ours, name="c"), replace(ours, name="a")) == "undecided"


def test_one_class_among_images_of_one_class_is_no_collapse():
    assert not Measured([evidence("a", 95)]).collapsed("a")
    assert not Measured([]).collapsed("a")


def test_a_reading_that_has_collapsed_is_called_so():
    runs = [answering("ours", 1.0), answering("theirs", 0.0)]
    statement = nearer_to_print("w", ("ours", "theirs"), "cifar10-spatial-srt", "Table 3", ("clean",))
    assert "(ours, collapsed), 11.13 (theirs)" in statement.check(Measured(runs)).figures


def test_rst_is_also_held_against_uat_on_cifar10_that_has_not_collapsed():
    names = [f"cifar10-pixel-{name}" for name in ("rst", "uat", f"uat{GROWN}")]
    rst, uat, grown = (
        answering(name, share, **dict.fromkeys(("fgsm", "pgd", "mi-fgsm", "jsma", "cw", "pointwise", "ddn"), 50))
        for name, share in zip(names, (0.0, 1.0, 0.5), strict=True)
    )
    printed_one, learned = (
        each for each in experiments()["table-4"].statements if each.words.startswith("on CIFAR-10 RST is above UAT")
    )
    assert verdict(printed_one, rst, uat, grown) == "undecided"
    assert verdict(learned, rst, uat, grown) == "pass"
    assert verdict(learned, replace(grown, name=names[0]), replace(rst, name=names[2])) == "fail"


def test_cells_that_are_not_measured_are_counted():
    finding = falls_under("w", [(Cell(name, "pgd"), 5.0) for name in "ab"]).check(Measured([evidence("a", pgd=4)]))
    assert finding.figures.startswith("1 of 2 hold, 1 not yet measured. ")


def test_columns_that_cannot_be_decided_yet_are_counted():
    statement = among_the_best("best", "a", ["b", "c"], ["fgsm", "pgd"], place=1)
    runs = [evidence("a", fgsm=60, pgd=60), evidence("b", fgsm=50, pgd=50), evidence("c", fgsm=50)]
    assert statement.check(Measured(runs)).figures.startswith("1 of 2 hold, 1 not yet measured. FGSM")


def test_what_is_too_close_to_tell_is_shown_before_what_holds():
    runs = [evidence("a", fgsm=60, pgd=50), evidence("b", fgsm=50, pgd=50)]
    figures = above("w", over("a", "b", ("fgsm", "pgd"))).check(Measured(runs)).figures
    assert figures.index("PGD") < figures.index("FGSM")


@pytest.mark.parametrize(
    "statement",
    [
        above("w", [*over("a", "b", ("fgsm",)), *over("a", "b", ("pgd",), by=7)]),
        reaches("w", [(Cell("a", "fgsm"), 10.0), (Cell("a", "pgd"), 55.0)]),
        falls_under("w", [(Cell("b", "fgsm"), 18.0), (Cell("b", "pgd"), 52.0)]),
    ],
    ids=["above", "reaches", "falls under"],
)
def test_what_holds_most_narrowly_is_shown_first(statement):
    figures = statement.check(Measured([evidence("a", fgsm=20, pgd=60), evidence("b", fgsm=15, pgd=50)])).figures
    assert figures.startswith("2 of 2 hold. PGD")


def test_a_goal_is_reached_or_not():
    statement = reaches("goal", [(Cell("a", "autoattack"), 50.0)])
    assert verdict(statement, evidence("a", autoattack=50)) == "pass"
    assert verdict(statement, evidence("a", autoattack=49.9)) == "fail"
    assert verdict(statement) == "undecided"


def test_a_number_short_of_the_papers_by_a_point_at_most_is_no_fail():
    statement = as_printed("near", "Table 4", "mnist-pixel-srt", ["pgd"])
    for pgd, expected in ((95.5, "fail"), (95.6, "pass"), (100, "pass")):
        finding = statement.check(Measured([evidence("mnist-pixel-srt", 100, pgd=pgd)]))
        assert finding.verdict == expected, "its words speak of less alone"
        assert f"PGD {pgd:.2f} (mnist-pixel-srt) against 96.6 less 1" in finding.figures


def test_times_are_compared_only_where_runs_had_one_device_for_themselves():
    statement = faster("ten times", "quick", "slow", 10.0)
    slow = evidence("slow", seconds=1000.0)
    assert verdict(statement, evidence("quick", seconds=99.0), slow) == "pass"
    assert verdict(statement, evidence("quick", seconds=101.0), slow) == "fail"
    assert verdict(statement, evidence("quick", seconds=99.0, together=4), slow) == "undecided"
    assert verdict(statement, evidence("quick", seconds=99.0, device="cuda"), slow) == "undecided"
    assert verdict(statement, slow) == "undecided"
    moved = [
        evidence(name, seconds=seconds, trained_on="cpu, cuda") for name, seconds in (("quick", 9), ("slow", 999))
    ]
    assert verdict(statement, *moved) == "undecided", "how much of each on which device is not known"


def test_the_reading_that_is_nearer_to_print_is_named():
    statement = nearer_to_print("Eq. (9)", ("ours", "theirs"), "cifar10-spatial-srt", "Table 3", ("clean", "gridadv"))
    near, far = {"clean": 88.0, "gridadv": 64.0}, {"clean": 80.0, "gridadv": 50.0}
    assert verdict(statement, evidence("ours", **near), evidence("theirs", **far)) == "pass"
    assert verdict(statement, evidence("ours", **far), evidence("theirs", **near)) == "fail"
    assert verdict(statement, evidence("ours", **near)) == "undecided"
    few = evidence("ours", 88, on_fewer=(report(88, {"gridadv": 64}, images=10),))
    assert verdict(statement, few, evidence("theirs", **far)) == "undecided", "what is printed is on all images"
    figures = statement.check(Measured((evidence("ours", **near), evidence("theirs", **far)))).figures
    assert figures.startswith("points from Table 3 on average: 0.85 (ours), ")


@pytest.mark.parametrize(
    ("name", "data", "read", "theirs", "ours"),
    [
        ("table-1", "cifar10", "a mean for each term", "-terms", "-two-passes"),
        ("table-1", "cifar10", "one forward pass", "", "-two-passes"),
        ("table-5", "mnist", "a mean for each term", "-terms", ""),
    ],
)
def test_both_readings_of_eq_9_are_judged_by_runs_that_differ_in_nothing_else(name, data, read, theirs, ours):
    (statement,) = [
        each for each in experiments()[name].statements if "nearer to the paper" in each.words and read in each.words
    ]
    far, near, authors = (
        evidence(f"{data}-spatial-srt{variant}", accuracy, randadv=accuracy, gridadv=accuracy)
        for variant, accuracy in ((theirs, 20), (ours, 60), ("-authors", 80))
    )
    assert verdict(statement, far, near) == "fail"
    assert verdict(statement, far, authors) == "undecided"


def test_seeds_that_disagree_leave_a_statement_open():
    statement = above("a above b", [Comparison(Cell("a"), Cell("b"))])
    agreeing = [evidence("a", 60 + seed, seed=seed) for seed in range(3)]
    apart = [evidence("a", value, seed=seed) for seed, value in enumerate((40, 55, 75))]
    rival = [evidence("b", 50, seed=seed) for seed in range(3)]
    assert verdict(statement, *agreeing, *rival) == "pass"
    assert verdict(statement, *apart, *rival) == "undecided"


def test_only_seeds_that_both_have_are_compared():
    found = Measured((evidence("a", 60, seed=0), evidence("a", 90, seed=1), evidence("b", 50, seed=0)))
    assert found.difference(Cell("a"), Cell("b")).points == pytest.approx(10)
    assert found.figure(Cell("a")).mean == pytest.approx(75)
    assert Measured((evidence("a", seed=0), evidence("b", seed=1))).difference(Cell("a"), Cell("b")) is None
    statement = above("a above b", [Comparison(Cell("a"), Cell("b"), 3.0)])
    words = "clean 75.00 ± 15.00 (a) - 50.00 (b): +10.00 ± 0.95 over 1 of 2 seeds (at least +3)"
    assert words in statement.check(found).figures, "else the numbers and their difference would not fit"
    both = Measured((*found.evidence, evidence("b", 50, seed=1)))
    assert "seeds" not in statement.check(both).figures


def test_models_on_other_images_are_not_compared():
    found = Measured((evidence("a", 60), evidence("b", 50, images=500)))
    assert found.difference(Cell("a"), Cell("b")) is None


def test_seeds_that_were_attacked_on_fewer_images_count_with_the_others():
    slow = {name: report(90, {"autoattack": share}, images=500) for name, share in (("a", 60), ("b", 50))}
    runs = [
        evidence("a", autoattack=60),
        evidence("b", autoattack=35),
        evidence("a", seed=1, on_fewer=(slow["a"],)),
        evidence("b", seed=1, on_fewer=(slow["b"],)),
    ]
    found, higher, lower = Measured(runs), Cell("a", "autoattack"), Cell("b", "autoattack")
    difference = found.difference(higher, lower)
    assert difference.points == pytest.approx((30 + 10) / 2), "of the first 500 images all are right, and 350"
    assert difference.error == pytest.approx(10, abs=1.0), "that of seeds, which is the larger one by far"
    assert (found.figure(lower).mean, found.figure(lower).first) == (pytest.approx((70 + 50) / 2), 500)


@pytest.mark.parametrize("points", [{"rt": 50, "at": 90}, {"rt": 90, "at": 50}])
def test_a_similar_effect_is_neither_above_nor_under(points):
    runs = [evidence(f"mnist-pixel-{name}", pgd=share) for name, share in points.items()]
    (similar,) = (
        each for each in experiments()["table-4"].statements if "on MNIST" in each.words and "similar" in each.words
    )
    assert similar.check(Measured(runs)).verdict == "fail"


@pytest.mark.parametrize(("ours", "theirs", "expected"), [(96, 97, "fail"), (47, 50, "pass"), (44, 50, "fail")])
def test_what_is_alike_is_few_points_under_and_has_hardly_more_wrong_images(ours, theirs, expected):
    comparisons = over("a", "b", ("pgd",), -5.0)
    runs = [evidence(name, 100, pgd=pgd, images=10_000) for name, pgd in (("a", ours), ("b", theirs))]
    finding = above("w", alike(comparisons)).check(Measured(runs))
    assert finding.verdict == expected
    assert f"(at least -5; {100 - ours:.2f} wrong, at most 1.2 x {100 - theirs:.2f})" in finding.figures
    assert (verdict(above("w", comparisons), *runs) == "pass") == (theirs - ours < 5), "points alone say less"


def test_the_error_of_wrong_images_is_that_of_pairs_too():
    runs = [evidence(name, 100, pgd=pgd, images=1000) for name, pgd in (("a", 88), ("b", 90))]
    spared = Measured(runs).spared(Cell("a", "pgd"), Cell("b", "pgd"), 1.2)
    by_image = [0.0] * 880 + [-100.0] * 20 + [20.0] * 100
    assert spared.points == pytest.approx(1.2 * 10 - 12, abs=1e-9)
    assert spared.error == pytest.approx(stdev(by_image) / 1000**0.5)
    finding = above("w", alike(over("a", "b", ("pgd",), -5.0))).check(Measured(runs))
    assert finding.verdict == "undecided" and "1 too close to tell" in finding.figures


@pytest.mark.parametrize(
    ("name", "words"),
    [("table-4", "effect similar to that of AT"), ("table-5", "does not fall"), ("figure-unlabeled", "says similar")],
)
def test_statements_of_likeness_ask_for_hardly_more_wrong_images(name, words):
    class More(Extreme):
        def spared(self, cell, other, times, /):
            return Difference(-1.0, 0.1)

    statements = [statement for statement in experiments()[name].statements if words in statement.words]
    assert statements
    for statement in statements:
        assert "with at most 1.2 times as many wrong images" in statement.words
        assert (statement.check(Extreme(1)).verdict, statement.check(More(1)).verdict) == ("pass", "fail")


def test_an_attack_that_was_interrupted_was_made_on_all_images_at_a_smaller_fraction():
    few = report(98, {"pgd": 90}, images=500)
    found = Measured([evidence("a", on_fewer=(few,), sweep=sweep(half=97, whole=96))])
    assert (found.figure(Cell("a", "pgd")).first, found.figure(Cell("a", "pgd", 0.5)).first) == (500, None)


def test_an_attack_on_fewer_images_is_compared_on_these_alone():
    few = report(90, {"autoattack": 80}, images=500)
    found = Measured([evidence("a", on_fewer=(few,)), evidence("b", autoattack=30)])
    higher, lower = Cell("a", "autoattack"), Cell("b", "autoattack")
    difference = found.difference(higher, lower)
    assert (difference.points, difference.first) == (pytest.approx(80 - 60), 500), "b has the first 300 images right"
    assert found.difference(Cell("a"), Cell("b")).first is None
    words = above("a above b", [Comparison(higher, lower)]).check(found).figures
    assert "AutoAttack of a less that of b, on the first 500 images: +20.00" in words
    assert "30.00" not in words, "numbers of other images would not add up"


@pytest.mark.parametrize(("goal", "verdict"), [(39.9, "pass"), (90.1, "fail")])
def test_a_goal_may_be_out_of_reach_or_reached_whatever_becomes_of_the_other_images(goal, verdict):
    few, cell = report(90, {"autoattack": 80}, images=500), Cell("a", "autoattack")
    finding = reaches("a reaches it", [(cell, goal)]).check(Measured([evidence("a", on_fewer=(few,))]))
    assert finding.verdict == verdict
    said = f"80.00 (a) on the first 500 images alone, 40.00 to 90.00 on all 1,000, against {goal:g}"
    assert finding.figures.endswith(said)
    opposite = falls_under("a falls under it", [(cell, goal)]).check(Measured([evidence("a", on_fewer=(few,))]))
    assert {opposite.verdict, verdict} == {"pass", "fail"}


@pytest.mark.parametrize("goal", [70.0, 90.0])
def test_a_goal_is_one_on_all_images(goal):
    few, cell = report(90, {"autoattack": 80}, images=500), Cell("a", "autoattack")
    assert Measured([evidence("a", on_fewer=(few,))]).figure(cell).first == 500
    statement = reaches("a reaches it", [(cell, goal)])
    finding = statement.check(Measured([evidence("a", on_fewer=(few,))]))
    assert finding == (
        "undecided",
        "0 of 1 hold, 1 measured on fewer images. "
        f"AutoAttack 80.00 (a) on the first 500 images alone, against {goal:g}",
    ), "it is not decided, but not unmeasured either"
    assert statement.check(Measured([evidence("a", autoattack=80, on_fewer=(few,))])).verdict == (
        "pass" if goal < 80 else "fail"
    )


def test_the_error_over_images_is_that_of_pairs():
    found = Measured((evidence("a", 60), evidence("b", 50)))
    difference = found.difference(Cell("a"), Cell("b"))
    share = 0.1  # Of the images, a tenth is right in the one and wrong in the other.
    assert difference.error == pytest.approx(100 * (share * (1 - share) / 999) ** 0.5)


def test_of_a_single_image_there_is_no_error():
    found = Measured((evidence("a", 100, images=1), evidence("b", 0, images=1)))
    difference = found.difference(Cell("a"), Cell("b"))
    assert (difference.points, difference.error) == (100, 0)


def test_the_error_is_that_of_images_and_of_seeds_together():
    runs = [evidence("a", share, seed=seed) for seed, share in enumerate((59, 61))]
    difference = Measured([*runs, *(evidence("b", 50, seed=seed) for seed in (0, 1))]).difference(
        Cell("a"), Cell("b")
    )
    over_images = stdev([100.0] * 90 + [50.0] * 20 + [0.0] * 890) / 1000**0.5
    assert difference.error == pytest.approx((over_images**2 + 1.0) ** 0.5), "1 over seeds, which other images leave"


def test_the_standard_error_of_three_seeds():
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx((1 / 3) ** 0.5)
    assert standard_error([1.0]) is None
    figure = Measured([evidence("a", value, seed=value) for value in (50, 60, 70)]).figure(Cell("a"))
    assert str(figure) == "60.00 ± 5.77"


SPATIAL = {2: 1, 6: 5, 9: 8}
"""the table of spatial attacks with which one of pixel-wise attacks is compared"""


def wrong(figure):
    """The images that are not right, in percent."""
    return 100 - figure.mean


@dataclass(frozen=True, slots=True)
class Printed:
    """What the paper prints, in one of its tables and in the one that goes with it."""

    table: int

    def number(self, trial, column):
        """The number of the paper, of its own table first."""
        places = (f"Table {table}" for table in (self.table, SPATIAL.get(self.table, self.table)))
        return next((row[column] for row in (printed(place, trial) for place in places) if column in row), None)

    def figure(self, cell, /):
        """The number of the paper."""
        number = self.number(cell.trial, cell.column) if cell.fraction == 1 else None
        return None if number is None else Figure(number)

    def difference(self, cell, other, /):
        """The difference of both numbers, to the last digit of which the paper stands."""
        first, second = self.figure(cell), self.figure(other)
        return None if first is None or second is None else Difference(first.mean - second.mean, 0.0)

    def gain(self, lead, other, /):
        """The difference of both differences."""
        first, second = self.difference(*lead), self.difference(*other)
        return None if first is None or second is None else Difference(first.points - second.points, 0.0)

    def spared(self, cell, other, times, /):
        """Of the wrong images of both."""
        first, second = self.figure(cell), self.figure(other)
        return None if first is None or second is None else Difference(times * wrong(second) - wrong(first), 0.0)

    def collapsed(self, trial, /):
        """None of the paper's has."""
        return False

    def minutes(self, trial, /):
        """The minutes that the paper prints."""
        number = self.number(trial, "minutes")
        return None if number is None else (number, "GTX 1080")


PLACES = {
    "table-1": 1,
    "table-2": 2,
    "table-3": 3,
    "table-4": 4,
    "table-5": 5,
    "table-6": 6,
    "table-8": 8,
    "table-9": 9,
}


@pytest.mark.parametrize("name", PLACES)
def test_every_statement_whose_numbers_the_paper_prints_holds_in_them(name):
    paper = Printed(PLACES[name])
    found = {statement.words: statement.check(paper) for statement in experiments()[name].statements}
    decided_there = {words: finding for words, finding in found.items() if finding.figures != NOT_MEASURED}
    assert decided_there
    for words, finding in decided_there.items():
        assert finding.verdict == "pass", (words, finding.figures)


def test_the_statements_of_the_paper_are_all_there():
    words = " ".join(statement.words for each in experiments().values() for statement in each.statements)
    for claim in (
        "SRT is above RT at the same lambda under every attack",
        "at least 17 points above RT",
        "more than 20 points above RT",
        "by more under GridAdv than under RandAdv",
        "by more under PGD than under FGSM",
        "clean accuracy falls and that under PGD rises",
        "clean accuracy does not fall as lambda grows",
        "the best or the second in every pixel-wise column",
        "the best in most pixel-wise columns",
        "above supervised AT and TRADES in clean accuracy",
        "no help against spatial attacks on CIFAR-10",
        "no help against GridAdv on MNIST",
        "rises with the number of unlabeled images",
        "SRT is at most 5 points under supervised training on all labels, with at most 1.2 times as many wrong "
        "images (the text says similar), on MNIST, spatial",
        "SRT exceeds supervised training on all labels on MNIST, spatial",
        "compound attacks are stronger than PGD and GridAdv by themselves",
        "SRT+ is above AT+, AT (average) and AT (max)",
        "AT+ is above AT (average) and AT (max)",
        "spatial defenses have limited benefit against PGD",
        "SRT+ and AT+ defend against single attacks too",
        "SRT+ and AT+ defend well against single attacks (the text gives no number)",
        "pixel-wise defenses have limited benefit against GridAdv",
        "AT+ is above AT (average) and AT (max) under PGD+ and GridAdv+ at every smaller perturbation fraction",
        "more than 5 points above RT in most cases",
        "RST is above UAT",
        "UAT is above RST",
        "SRT is above UAT",
        "our spatial fast SRT is at most a point under the paper's",
        "our pixel-wise fast SRT is at most a point under the paper's",
        "ten times faster than SRT",
        "fast SRT is above TRADES and AT",
        "fast SRT is under SRT under every attack",
        "fast SRT loses more where it searches by FGSM",
        "spatially unlabeled images pay more",
        "spatial defenses serve as augmentation",
        "SRT+ is the best of the compound defenses under PGD+ and GridAdv+ at every smaller perturbation fraction",
        "SRT+ is above AT+ under PGD and GridAdv too",
        "at the perturbation fraction 0.25",
        "RT at lambda 1 has an effect similar to that of AT on the same labels",
        "SRT is right on a larger part of the surface than standard training",
        "the decision surface of standard training has larger slopes than that of SRT",
        "the decision surface of SRT in the spatial scenario is more rugged than in the pixel-wise one",
        "the loss of standard training peaks higher than that of SRT",
        "the loss surface of standard training has larger slopes than that of SRT",
    ):
        assert claim in words


@pytest.mark.parametrize("name", list(experiments()))
def test_pixel_wise_srt_on_cifar10_which_fell_stands_also_as_it_learns(name):
    names = {trial.name for trial in experiments()[name].trials}
    assert {f"{each}{GROWN}" for each in names & {"cifar10-pixel-srt"}} <= names


def test_fast_srt_is_held_against_pixel_wise_srt_as_it_learns_too():
    claims = ("fast SRT is under SRT", "fast SRT loses more where it searches by FGSM")
    attacks = dict.fromkeys(("fgsm", "pgd", "mi-fgsm", "jsma", "cw", "ddn"), 40)
    fast = evidence("cifar10-pixel-srt-fast", 80, **attacks)
    fell = evidence("cifar10-pixel-srt", 40, **dict.fromkeys(attacks, 30))
    learned = evidence(f"cifar10-pixel-srt{GROWN}", 80, **dict.fromkeys(attacks, 50))
    spatially = [evidence(f"cifar10-spatial-srt{how}", 90, gridadv=65) for how in ("", "-fast")]
    for claim in claims:
        by_print, as_learned = (each for each in experiments()["table-9"].statements if claim in each.words)
        assert "a lambda that grows" in as_learned.words and "a lambda that grows" not in by_print.words
        assert verdict(by_print, fast, fell, learned, *spatially) == "fail"
        assert verdict(as_learned, fast, fell, learned, *spatially) == "pass"


@pytest.mark.parametrize("name", list(experiments()))
def test_without_runs_nothing_but_what_is_counted_is_decided(name):
    for statement in experiments()[name].statements:
        assert statement.check(Measured(())).verdict == ("pass" if name == "table-7" else "undecided")


@pytest.mark.parametrize("name", [name for name in experiments() if name != "table-7"])
def test_statements_speak_of_numbers_that_the_experiment_measures(name):
    """All runs of an experiment with one accuracy everywhere: each statement has all it needs."""
    beside = next((f"table-{of}" for table, of in SPATIAL.items() if name == f"table-{table}"), name)
    trials = {trial.name: trial for each in (beside, name) for trial in experiments()[each].trials}.values()
    runs = [
        evidence(
            trial.name,
            **{attack.replace("+", "plus"): 50 for attack in trial.attacks},
            sweep=Sweep(
                eps=0.1,
                reports={part: report(90, dict.fromkeys(trial.attacks, 50)) for part in trial.fractions},
            ),
            surfaces={column: [50.0, 60.0] for column in SURFACES},
        )
        for trial in trials
    ]
    for statement in experiments()[name].statements:
        assert "not yet measured" not in statement.check(Measured(runs)).figures


class Extreme:
    """Numbers in which every comparison holds by far, or none does, and every goal is reached, or none is."""

    def __init__(self, sign):
        self.sign = sign

    def figure(self, cell, /):
        return Figure(50.0 + (48.5 if cell.fraction == 1 else -48.5) * self.sign)

    def difference(self, cell, other, /):
        return Difference((60.0 if cell.column in ("pgd", "gridadv") else 40.0) * self.sign, 0.5)

    def gain(self, lead, other, /):
        return Difference(20.0 * self.sign, 0.5)

    def spared(self, cell, other, times, /):
        return Difference(20.0 * self.sign, 0.5)

    def collapsed(self, trial, /):
        return False

    def minutes(self, trial, /):
        return (1.0 if ("fast" in trial) == (self.sign > 0) else 100.0), "device"


@pytest.mark.parametrize("name", [name for name in experiments() if name != "table-7"])
def test_every_statement_can_pass_and_can_fail(name):
    for statement in experiments()[name].statements:
        if "nearer to the paper" in statement.words:
            continue
        assert statement.check(Extreme(1)).verdict == "pass", statement.words
        assert statement.check(Extreme(-1)).verdict == "fail", statement.words


class Apart:
    """Numbers in which every cell lies above every other by so many points."""

    def __init__(self, points):
        self.points = points

    def figure(self, cell, /):
        return Figure(50.0)

    def difference(self, cell, other, /):
        return Difference(self.points, 0.1)

    def spared(self, cell, other, times, /):
        return Difference(10.0, 0.1)

    def collapsed(self, trial, /):
        return False


@pytest.mark.parametrize(
    ("name", "words", "gap"),
    [
        ("table-1", "at least 17 points above RT", 17.0),
        ("table-1", "more than 20 points above RT", 20.0),
        ("table-1", "nowhere more than a point under", -1.0),
        ("table-2", "more than 5 points above RT in most cases", 5.0),
        ("table-3", "by more than 4.7 points", 4.7),
        ("table-4", "both are within 3 points of each other", -3.0),
        ("table-3", "at most 5 points above Standard", -5.0),
        ("table-5", "nowhere more than a point under", -1.0),
        ("figure-compound", "and more than 10 under GridAdv+", 10.0),
        ("figure-compound", "they are at most 5 points under the defenses made for them", -5.0),
        ("figure-unlabeled", "at most 5 points under supervised training", -5.0),
    ],
)
def test_the_points_that_a_statement_names_are_those_that_decide_it(name, words, gap):
    statements = [statement for statement in experiments()[name].statements if words in statement.words]
    assert statements
    for statement in statements:
        assert statement.check(Apart(gap + 0.3)).verdict == "pass"
        assert statement.check(Apart(gap - 0.3)).verdict == "fail"


class Losing(Extreme):
    """Numbers in which every comparison holds but those in one column, or those with one trial."""

    def __init__(self, where):
        super().__init__(1)
        self.where = where

    def difference(self, cell, other, /):
        return Difference(-60.0 if self.where in (*cell, *other) else 60.0, 0.5)


@pytest.mark.parametrize(
    ("name", "words", "where"),
    [
        ("table-2", "there is a trade-off", "clean"),
        ("table-2", "there is a trade-off", "pgd"),
        ("table-3", "no help against spatial attacks on CIFAR-10", "randadv.t"),
        ("table-4", "the best in most pixel-wise columns on CIFAR-10", "cifar10-pixel-rst"),
        ("table-4", "in clean accuracy on CIFAR-10", "cifar10-pixel-rst"),
        ("table-4", "in clean accuracy on MNIST", "mnist-pixel-uat"),
        ("table-4", "above supervised AT and TRADES under every pixel-wise attack on MNIST", "cw"),
        ("table-4", "above supervised AT and TRADES under every pixel-wise attack on MNIST", "ddn"),
        ("table-4", "above supervised AT and TRADES under every pixel-wise attack on CIFAR-10", "pointwise"),
        ("table-4", "RT at lambda 1 has an effect similar to that of AT", "mnist-pixel-rt"),
        ("table-4", "RT at lambda 1 has an effect similar to that of AT", "mnist-pixel-at"),
        ("table-5", "serve as augmentation where images are only mirrored", "mnist-spatial-rt-lambda-0.2-authors"),
        ("table-4", "RST is above UAT under every pixel-wise attack", "pointwise"),
        ("table-4", "UAT is above RST under every pixel-wise attack but JSMA", "cw"),
        ("table-4", "under AutoAttack too on MNIST", "mnist-pixel-trades"),
        (
            "table-4",
            "in one forward pass is above AT and TRADES under AutoAttack too on CIFAR-10",
            "cifar10-pixel-at",
        ),
        ("table-4", "script SRT is above UAT under every pixel-wise attack but DDN", "cw"),
        ("table-4", "script SRT is above UAT under every pixel-wise attack but DDN", "mnist-pixel-uat-authors"),
        ("table-8", "fast SRT is above KLR", "clean"),
        ("table-9", "fast SRT is above TRADES", "cifar10-pixel-at"),
        (
            "table-4",
            "the best in most pixel-wise columns on CIFAR-10, SRT and UAT",
            "cifar10-pixel-uat-ramped-one-pass",
        ),
        ("table-9", "fast SRT is under SRT under", "jsma"),
        ("table-9", "fast SRT is under SRT with a lambda that grows", "cifar10-pixel-srt-ramped-one-pass"),
        ("figure-compound", "AT+ is above AT (average)", "gridadv+"),
        ("figure-compound", "defend against single attacks too", "pgd"),
        ("figure-compound", "defend against single attacks too", "mnist-pixel-at"),
        ("figure-compound", "defend against single attacks too", "mnist-spatial-srt"),
        ("figure-compound", "defend well against single attacks (", "gridadv"),
        ("figure-compound", "defend well against single attacks (", "mnist-pixel-srt"),
        ("figure-compound", "AT+ is above AT (average) and AT (max) under PGD+ and GridAdv+ at every smaller", 0.75),
        ("figure-compound", "limited benefit against GridAdv: on CIFAR-10", "cifar10-pixel-at"),
        ("figure-compound", "limited benefit against GridAdv: on MNIST", 0.25),
        ("figure-compound", "SRT+ is above AT+ under PGD and GridAdv too", "gridadv"),
        ("figure-compound", "compound attacks are stronger", 0.25),
        ("figure-compound", "above the defenses against one perturbation on MNIST", "mnist-spatial-srt"),
        ("figure-compound", "limited benefit against PGD: on MNIST", "mnist-spatial-srt"),
        (
            "figure-unlabeled",
            "still rises where all unlabeled images are used on MNIST, spatial",
            "mnist-spatial-srt",
        ),
        ("table-5", "serve as augmentation where images are only mirrored", "mnist-spatial-srt-authors"),
        ("figure-surfaces", "decision surface of standard training has larger slopes", "decision-slope.pixel"),
        ("figure-surfaces", "loss surface of standard training has larger slopes", "loss-slope.spatial"),
        ("figure-surfaces", "the loss of standard training peaks higher", "peak.spatial"),
        ("figure-surfaces", "more rugged than in the pixel-wise one, on MNIST", "ruggedness.pixel"),
        ("figure-surfaces", "more rugged than in the pixel-wise one, on CIFAR-10", "cifar10-spatial-srt"),
    ],
)
def test_a_statement_fails_in_each_column_and_with_each_trial_that_it_speaks_of(name, words, where):
    statements = [statement for statement in experiments()[name].statements if words in statement.words]
    assert any(statement.check(Losing(where)).verdict == "fail" for statement in statements)


def test_srt_past_the_paper_is_held_against_srt_by_its_own_rate_scenario_by_scenario():
    better = experiments()["better"]
    trials = {trial.name: trial for trial in better.trials}
    kept = "SRT++ is above SRT under every attack on "
    pairs = (
        (f"{kept}CIFAR-10, pixel-wise", "cifar10-pixel", "-three-steps", "srt"),
        ("SRT++ is above SRT with a lambda that grows", "cifar10-pixel", "-three-steps", "srt-ramped-one-pass"),
        (f"{kept}CIFAR-10, spatial", "cifar10-spatial", "", "srt"),
        ("SRT++ with lambda 6 trained within 0.35 is above SRT", "mnist-pixel", "-lambda-6-wider", "srt-authors"),
    )
    for words, scenario, variant, srt in pairs:
        (statement,) = (each for each in better.statements if each.words.startswith(words))
        ours, theirs = (trials[f"{scenario}-{method}"] for method in (f"srt-plusplus-selected{variant}", srt))
        assert (ours.recipe.optimizer, ours.recipe.steps) == (theirs.recipe.optimizer, theirs.recipe.steps)
        plus = evidence(ours.name, **dict.fromkeys(ours.attacks, 60))
        plain = evidence(theirs.name, **dict.fromkeys(theirs.attacks, 40))
        assert verdict(statement, plus, plain) == "pass", "whatever the scale of other scenarios"
        assert verdict(statement, plus, evidence(f"{scenario}-standard")) == "undecided"


def test_the_rival_of_srt_past_the_paper_has_all_that_it_has_but_its_objective():
    trials = {trial.name: trial for trial in experiments()["better"].trials}
    ours = trials["cifar10-pixel-srt-plusplus-selected-three-steps"]
    theirs = trials["cifar10-pixel-rst-taught-alike-three-steps"]
    assert replace(theirs.recipe, name=ours.recipe.name, objective=ours.recipe.objective) == ours.recipe
    assert theirs.recipe.objective == TRADES(solver=ours.recipe.objective.solver, weight=6.0)
    (statement,) = (
        each for each in experiments()["better"].statements if f"{ours.called} is above RST" in each.words
    )
    plus, rst = (
        evidence(trial.name, **dict.fromkeys(trial.attacks, accuracy))
        for trial, accuracy in ((ours, 60), (theirs, 40))
    )
    assert verdict(statement, plus, rst) == "pass"
    assert verdict(statement, evidence(ours.name, **dict.fromkeys(ours.attacks, 20)), rst) == "fail"


@pytest.mark.parametrize("short_of", ["clean", "pgd"])
def test_the_shortest_training_reaches_the_paper_clean_and_under_pgd_or_not_at_all(short_of):
    better = experiments()["better"]
    trials = {trial.called: trial.name for trial in better.trials if "-shortest" in trial.variant}
    statements = {each.words.removesuffix(GOAL): each for each in better.statements if each.words.endswith(GOAL)}
    assert statements.keys() == trials.keys()
    for called, statement in statements.items():
        assert verdict(statement, evidence(trials[called], clean=99, pgd=99)) == "pass"
        assert verdict(statement, evidence(trials[called], **{"clean": 99, "pgd": 99, short_of: 20})) == "fail"


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
@pytest.mark.parametrize("scenario", ["spatial", "pixel"])
@pytest.mark.parametrize(
    ("column", "least_by", "words"),
    [
        ("surface", "standard", "SRT is right on a larger part of the surface"),
        ("decision-slope", "srt", "the decision surface of standard training has larger slopes"),
        ("peak", "srt", "the loss of standard training peaks higher"),
        ("loss-slope", "srt", "the loss surface of standard training has larger slopes"),
    ],
)
def test_each_claim_on_surfaces_is_decided_by_its_own_column(column, least_by, words, data, scenario):
    def runs(of_standard, of_srt):
        numbers = {"standard": of_standard, "srt": of_srt}
        return [
            evidence(
                f"{data}-{scenario}-{method}",
                surfaces={name: [1.0, 1.1] for name in SURFACES} | {f"{column}.{scenario}": [number, number + 0.1]},
            )
            for method, number in numbers.items()
        ]

    panel = f"on {DATA_SETS[data]}, {SCENARIOS[scenario]}"
    (statement,) = [
        each
        for each in experiments()["figure-surfaces"].statements
        if words in each.words and each.words.endswith(panel)
    ]
    larger, smaller = runs(5.0, 2.0), runs(2.0, 5.0)
    assert verdict(statement, *larger) == ("pass" if least_by == "srt" else "fail")
    assert verdict(statement, *smaller) == ("fail" if least_by == "srt" else "pass")


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_ruggedness_is_that_of_each_scenario_with_the_model_trained_for_it(data):
    def runs(spatially, pixelwise):
        return [
            evidence(
                f"{data}-{scenario}-srt",
                surfaces={name: [9.0, 9.1] for name in SURFACES} | {f"ruggedness.{scenario}": [number, number + 0.1]},
            )
            for scenario, number in (("spatial", spatially), ("pixel", pixelwise))
        ]

    (statement,) = [
        each
        for each in experiments()["figure-surfaces"].statements
        if "more rugged" in each.words and each.words.endswith(DATA_SETS[data])
    ]
    assert verdict(statement, *runs(3.0, 1.0)) == "pass"
    assert verdict(statement, *runs(1.0, 3.0)) == "fail"
    assert verdict(statement, runs(3.0, 1.0)[0]) == "undecided"
