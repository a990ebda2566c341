"""The paper's accuracies: held against what its text and its bold numbers say of them."""

from dataclasses import replace

import pytest

from unperturbed.evaluation import settings_of
from unperturbed.recipes import RECIPES, usual_budget
from unperturbed.recipes.published import TABLES, published

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


def test_the_sums_of_the_columns_are_those_of_the_paper():
    """Sums over the rows of a table, read from the paper's source by a script: a wrong digit changes one of them."""
    sums = {
        ("Table 4", "cifar10"): (478.73, 284.83, 219.57, 217.53, 76.68, 196.00, 73.49, 122.77),
        ("Table 4", "mnist"): (594.26, 527.08, 480.89, 478.41, 126.86, 474.74, 19.22, 492.65),
        ("Table 3", "cifar10"): (402.51, 236.42, 176.22, 284.92, 247.79, 262.84, 235.60),
        ("Table 3", "mnist"): (490.27, 330.90, 262.85, 377.52, 301.75, 425.67, 394.29),
        ("Table 1", "cifar10"): (694.83, 579.83, 431.84),
        ("Table 2", "cifar10"): (649.96, 426.04, 312.18),
        ("appendix, spatial attacks on MNIST", "mnist"): (788.01, 762.17, 672.05),
        ("appendix, pixel-wise attacks on MNIST", "mnist"): (793.77, 783.81, 776.45),
    }
    for table in TABLES[:-2]:
        data = next(iter(table.rows)).split("-")[0]
        columns = tuple(round(sum(column), 2) for column in zip(*table.rows.values(), strict=True))
        assert columns == pytest.approx(sums[table.place, data], abs=1e-6), (table.place, data)


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
    assert published(recipe, "pgd", settings_of(smaller["pgd"])) == (97.86, "appendix, pixel-wise attacks on MNIST")
