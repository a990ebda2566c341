"""Which schedules a page of results shows, what it says of statements, and how many of them hold at a glance."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from handmade import evidence
from unperturbed.experiments.account import experiment_text
from unperturbed.experiments.catalog import experiments
from unperturbed.experiments.editions import told_of
from unperturbed.experiments.verdicts import anchor, at_a_glance, counts, titled

ROOT = Path(__file__).parent.parent
TABLE = experiments()["table-6"]
NAMES = [trial.name for trial in TABLE.trials if "lambda" in trial.name]
ABOVE = "SRT is above RT at the same lambda under every attack"


def runs(of_srt, of_rt, scale="paper"):
    return [
        evidence(name, 99, fgsm=98, pgd=of_srt if "-srt-" in name else of_rt, scale=scale)
        if "-srt-" in name
        else evidence(name, 99, fgsm=90, pgd=of_rt, scale=scale)
        for name in NAMES
    ]


def sections(found):
    return experiment_text(TABLE, found).split("\n### ")[1:]


def test_a_short_run_stands_on_the_page_until_the_papers_schedule_is_run():
    short = runs(95, 90, "short")
    assert sections(short)[0].startswith("A cyclic rate")
    assert [edition.scale for edition in told_of(TABLE, [*runs(95, 90), *short])] == ["paper"]
    assert all("A cyclic rate" not in part for part in sections([*runs(95, 90), *short]))
    partly = [*runs(95, 90)[1:], *short]
    assert [edition.scale for edition in told_of(TABLE, partly)] == ["paper", "short"], "it has one run of its own"


def test_a_short_run_stands_in_no_table_that_the_papers_schedule_fills_beside_one_that_it_does_not():
    better = experiments()["better"]
    pixel, digits = (f"{data}-pixel-srt" for data in ("cifar10", "mnist"))
    short = [evidence(name, 99, pgd=90, scale="short") for name in (pixel, digits)]
    text = experiment_text(better, [*short, evidence(digits, 98, pgd=89)])
    assert re.findall(r"(?m)^\| SRT +\| ([\d.]+) \|", text) == ["98.00", "99.00"]
    assert text.index("MNIST, pixel-wise:") < text.index("A cyclic rate") < text.index("CIFAR-10, pixel-wise:")


def test_a_shorter_schedule_has_no_rows_without_a_number_and_that_of_the_paper_has():
    def rows(found):
        (part, *_) = sections(found)
        return [line.split("|")[1].strip() for line in part.splitlines() if re.match(r"\| S?RT,", line)]

    assert len(rows(runs(95, 90)[:1])) == len(NAMES)
    assert len(rows(runs(95, 90, "short")[:1])) == 1


@pytest.mark.parametrize(("of_rt", "times"), [(90, 1), (97, 1), (95, 2)])
def test_what_the_papers_schedule_has_decided_a_shorter_one_does_not_say_again(of_rt, times):
    """SRT has 95 by the paper's schedule, so that RT with 95 leaves the statement open."""
    own = evidence("mnist-pixel-standard-compared", 99, fgsm=90, pgd=80, scale="short")
    text = experiment_text(TABLE, [*runs(95, of_rt), *runs(95, 90, "short"), own])
    assert "A cyclic rate" in text
    assert len(re.findall(rf"(?m)^- .*: {ABOVE} \(", text)) == times


def test_at_a_glance_each_statement_counts_once_by_the_first_schedule_that_decides_it():
    statements = len(TABLE.statements)
    assert counts(TABLE, []) == [0, 0, 0, statements]
    own = evidence("mnist-pixel-standard-compared", 99, fgsm=90, pgd=80, scale="short")
    decided = counts(TABLE, [*runs(95, 97), *runs(95, 90, "short"), own])
    assert sum(decided) == statements
    assert decided[1] == 2, "SRT above RT, and by more under PGD: both fail, whatever the short runs say"
    left_open = counts(TABLE, [*runs(95, 95), *runs(95, 90, "short"), own])
    assert left_open[0] == decided[0] + 1, "what the paper's schedule leaves open the short one decides"


def test_the_glance_leads_to_each_experiment_and_adds_up():
    every = list(experiments().values())
    lines = at_a_glance(every, runs(95, 90)).splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    numbers = [[int(cell) for cell in line[1:]] for line in cells]
    assert numbers[-1] == [sum(column) for column in zip(*numbers[:-1], strict=True)]
    assert sum(numbers[-1]) == sum(len(each.statements) for each in every)
    page = (ROOT / "docs" / "results.md").read_text()
    headings = {anchor(line.removeprefix("## ")) for line in page.splitlines() if line.startswith("## ")}
    assert {re.search(r"\(#(.*?)\)", line[0])[1] for line in cells[:-1]} <= headings


def test_an_experiment_that_is_counted_has_its_verdict_without_a_run():
    assert counts(experiments()["table-7"], []) == [1, 0, 0, 0]
    assert counts(replace(experiments()["table-7"], statements=()), []) == [0, 0, 0, 0]


def test_figures_call_trials_as_the_tables_beside_them_do():
    text = experiment_text(TABLE, runs(95, 90))
    assert "PGD 95.00 (SRT, lambda 0.2) - 90.00 (RT, lambda 0.2) = +5.00" in text
    assert not re.search(r"\(mnist-pixel-", text)


def test_trials_that_tables_call_alike_are_called_by_their_names():
    table = experiments()["table-3"]
    assert titled("clean 9.00 (mnist-spatial-srt)", table) == "clean 9.00 (SRT)"
    both = "clean 9.00 (mnist-spatial-srt) - 8.00 (cifar10-spatial-srt) = +1.00"
    assert titled(both, table) == both
    assert titled("mnist-spatial-unheard-of, k-means", table) == "mnist-spatial-unheard-of, k-means"


def test_a_figure_of_the_paper_has_rows_for_what_is_measured_and_says_how_many_wait():
    figure = experiments()["figure-unlabeled"]
    (own,) = (table for table in figure.tables if table.title == "MNIST, pixel-wise")
    first, *others = own.rows
    text = experiment_text(figure, [evidence(first.name, 99, pgd=95)])
    assert f"| {first.called} |" in text
    assert f"\n\n{len(others)} rows are not measured yet.\n\n" in text
    assert "MNIST, spatial:\n\n6 rows are not measured yet." in text
    assert not any(f"| {trial.called} " in text for trial in others)
