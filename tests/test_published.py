"""The paper's accuracies: held against what its text and its bold numbers say of them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from unperturbed.experiments.catalog import experiments
from unperturbed.recipes import RECIPES, usual_budget
from unperturbed.recipes.published import REPEATED, TABLES, printed, published
from unperturbed.sameness import settings_of

PLACES = {table.place for table in TABLES}
ROWS = {
    name: dict(zip(("clean", *table.attacks), numbers, strict=True))
    for table in TABLES
    for name, numbers in table.rows.items()
}


def row(name):
    return ROWS[name]


def test_every_row_is_a_recipe_and_stands_once():
    names = [name for table in TABLES for name in table.rows]
    assert len(names) == len(set(names)) == 56
    assert set(names) <= set(RECIPES)


@pytest.mark.parametrize(
    ("data", "attacks"),
    [
        ("cifar10", ("pgd", "mi-fgsm", "jsma", "cw", "pointwise")),
        ("mnist", ("fgsm", "pgd", "mi-fgsm", "jsma", "cw", "pointwise")),
    ],
)
def test_srt_is_bold_where_the_paper_prints_it_bold(data, attacks):
    rivals = [f"{data}-pixel-{method}" for method in ("standard", "at", "trades", "uat", "rst")]
    for attack in row(f"{data}-pixel-srt"):
        best = all(row(f"{data}-pixel-srt")[attack] > row(rival)[attack] for rival in rivals)
        if attack != "clean":
            assert best == (attack in attacks)


def test_srt_is_above_rt_at_every_lambda_as_the_text_says():
    compared = [name for name in ROWS if "-srt-lambda-" in name]
    assert len(compared) == 16
    for name in compared:
        srt, rt = row(name), row(name.replace("-srt-", "-rt-"))
        assert all(srt[column] > rt[column] for column in srt)
        if name.startswith("cifar10-spatial"):
            assert srt["gridadv"] - rt["gridadv"] > 17


def test_spatial_srt_exceeds_klr_by_nearly_five_points_or_more_under_each_attack():
    srt, klr = row("cifar10-spatial-srt"), row("cifar10-spatial-klr")
    assert all(srt[attack] - klr[attack] > 4.7 for attack in srt if attack != "clean")
    assert row("cifar10-spatial-srt-lambda-0.2") == {key: srt[key] for key in ("clean", "randadv", "gridadv")}


def test_a_number_is_the_papers_only_where_recipe_and_attack_are():
    recipe, attacks = RECIPES["mnist-pixel-srt"], usual_budget("mnist").attacks()
    usual = settings_of(attacks["pgd"])
    assert published(recipe) == (99.28, "Table 4")
    assert published(recipe, "pgd", usual) == (96.60, "Table 4")
    assert published(replace(recipe, seed=7, precision="float32"), "pgd", usual) == (96.60, "Table 4")
    assert published(replace(recipe, steps=10), "pgd", usual) is None
    assert published(recipe, "pgd", usual.replace("eps=0.3", "eps=0.2")) is None
    assert published(recipe, "gridadv", settings_of(attacks["gridadv"])) is None
    assert published(RECIPES["digits-pixel-srt"]) is None


def test_the_comparison_on_mnist_has_a_smaller_ball_than_its_main_table():
    recipe, attacks = RECIPES["mnist-pixel-srt-lambda-0.8"], usual_budget("mnist")
    smaller = replace(attacks, eps=0.1, step_size=0.005).attacks()
    assert published(recipe, "pgd", settings_of(attacks.attacks()["pgd"])) is None
    assert published(recipe, "pgd", settings_of(smaller["pgd"])) == (97.86, "Table 6")


DEFENSES = {"Standard": "standard", "AT": "at", "TRADES": "trades", "UAT": "uat", "RST": "rst", "SRT": "srt"}
DEFENSES |= {"Worst-of-$k$": "worst-of-k", "KLR": "klr", "fast SRT": "srt-fast"}
SCENARIOS = {1: "cifar10-spatial", 2: "cifar10-pixel", 5: "mnist-spatial", 6: "mnist-pixel"}
SCENARIOS |= {8: "cifar10-spatial", 9: "cifar10-pixel", 3: "{}-spatial", 4: "{}-pixel"}
COLUMNS = {"C&W": "cw", "Point-wise Attack": "pointwise", "DDNA": "ddn", "Time (mins)": "minutes"}


def printed_cells():
    """(table, row, column, number) for every number of the paper's tables, read from their LaTeX source."""
    source = (Path(__file__).parent / "reference" / "paper_tables.tex").read_text(encoding="utf-8")
    for number, body in re.findall(r"% Table (\d)\n(.*?)\\end\{tabular\}", source, re.S):
        if number == "7":
            continue
        rows = [row.replace(r"\&", "+").split("&") for row in body.split(r"\\")]
        rows = [[cell.strip().removeprefix(r"\hline").strip() for cell in row] for row in rows if len(row) > 3]
        rows[0] = [cell.replace("\n", " ").rsplit(r"\hline", 1)[-1].strip().replace("+", "&") for cell in rows[0]]
        start = rows[0].index("Clean")
        columns = [COLUMNS.get(word, word.lower()) for word in rows[0][start:]]
        data = ""
        for row in rows[1:]:
            found = re.search(r"multirow\{\d\}\{\*\}\{([\w-]+)\}", row[0])
            data = found[1].lower().replace("-", "") if found else data
            yield from (
                (int(number), row_name(int(number), row[start - 1], data), column, numeral(cell))
                for column, cell in zip(columns, row[start:], strict=True)
            )


def row_name(table, words, data):
    found = re.fullmatch(r"(S?RT) \(\$\\lambda = ([\d.]+)\$\)", words)
    method = f"{found[1].lower()}-lambda-{float(found[2]):g}" if found else DEFENSES[words]
    compared = "-compared" if (table, method) in ((2, "standard"), (6, "standard")) else ""
    return f"{SCENARIOS[table].format(data)}-{method}{compared}"


def numeral(cell):
    return float(re.sub(r"\\(bm|textbf)|[${}]", "", cell).replace(",", ""))


def test_every_cell_of_the_papers_tables_is_transcribed():
    cells = list(printed_cells())
    assert len(cells) == 27 + 27 + 70 + 96 + 27 + 27 + 20 + 32
    for table, name, column, number in cells:
        assert printed(f"Table {table}", name).get(column) == number, (table, name, column)
    ours = {place: sum(len(t.rows) for t in (*TABLES, *REPEATED) if t.place == place) for place in PLACES}
    assert ours == {f"Table {n}": len({name for t, name, _, _ in cells if t == n}) for n in SCENARIOS}


def test_where_two_tables_print_one_row_differently_a_remark_tells_both():
    apart = 0
    for table in REPEATED:
        remarks = " ".join(experiments()[table.place.lower().replace(" ", "-")].remarks)
        for row, numbers in table.rows.items():
            first = next((printed(main.place, row) for main in TABLES if row in main.rows), {})
            for column, number in zip(("clean", *table.attacks), numbers, strict=True):
                if first.get(column, number) != number:
                    apart += 1
                    assert f"{number:.2f}" in remarks and f"{first[column]:.2f}" in remarks, (
                        table.place,
                        row,
                        column,
                    )
    assert apart == 3
    assert "10,94" in " ".join(experiments()["table-9"].remarks), "as the paper has it"


def test_a_row_that_a_table_does_not_print_is_empty():
    assert printed("Table 4", "cifar10-pixel-vat") == {}
    assert printed("Table 3", "cifar10-pixel-srt") == {}
