"""The demonstration: what it writes, what it prints, and that it does not praise what it did not see."""

import json
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console

from unperturbed import cli
from unperturbed import recipe as recipe_files
from unperturbed.attacks import fgsm
from unperturbed.datasets import load
from unperturbed.experiments import demo, gallery
from unperturbed.models import DigitsCNN
from unperturbed.recipes import named
from unperturbed.report import AttackResult, Report, read

PNG = b"\x89PNG\r\n\x1a\n"


def shrunk(name):
    """The recipe of that name, with three steps of a tiny network."""
    return replace(named(name), steps=3, batch=40, model=DigitsCNN(channels=(2, 2, 2), hidden=4))


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """The folder of a shrunk demonstration on few test images, and what it printed."""
    out = tmp_path_factory.mktemp("runs") / "mine"
    digits = load("digits")
    few = replace(digits, test_images=digits.test_images[:40], test_labels=digits.test_labels[:40])
    printed = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "named", shrunk)
        patch.setattr(demo, "load", lambda name: few)
        patch.setattr(demo, "Console", lambda: Console(file=printed, width=120))
        patch.setattr("builtins.print", lambda *words, **_: printed.write(" ".join(map(str, words)) + "\n"))
        demo.run(out, seed=3)
    return out, printed.getvalue()


def test_the_report_of_the_demonstration_has_a_row_for_each_of_seven_models(demonstration):
    out, _ = demonstration
    report = json.loads((out / "report.json").read_text())
    assert [row["method"] for row in report["rows"]] == list(demo.METHODS)
    assert len(report["rows"]) == 7
    assert report["provenance"]["seed"] == 3
    for row in report["rows"]:
        assert row["own_attack"] == ("gridadv" if "spatial" in row["method"] else "pgd")
        assert 0 <= row[row["own_attack"]] <= row["clean"] <= 100
        assert row["adversarial_risk"] == pytest.approx(1 - row[row["own_attack"]] / 100, abs=1e-3)
        assert row["adversarial_risk"] >= row["standard_risk"] == pytest.approx(1 - row["clean"] / 100, abs=1e-3)
        assert row["seconds"] > 0


def test_every_model_lies_beside_its_own_report_and_recipe(demonstration):
    out, _ = demonstration
    rows = {row["method"]: row for row in json.loads((out / "report.json").read_text())["rows"]}
    for method, name in demo.METHODS.items():
        report = read(out / name / "report.json")
        assert (out / name / "model.safetensors").is_file()
        assert [result.name for result in report.attacks] == ["pgd", "gridadv"]
        assert rows[method]["pgd"] == pytest.approx(100 * report.accuracy("pgd"))
        assert rows[method]["gridadv"] == pytest.approx(100 * report.accuracy("gridadv"))
        recipe = recipe_files.read(out / name / "recipe.json")
        assert (recipe.name, recipe.seed, recipe.data.seed, recipe.steps) == (name, 3, 3, 3)
        assert report.recipe == recipe_files.plain(recipe)


def test_a_picture_is_drawn(demonstration):
    out, _ = demonstration
    assert (out / "demo.png").read_bytes().startswith(PNG)


def test_the_table_the_verdict_and_the_files_are_printed(demonstration):
    out, printed = demonstration
    report = json.loads((out / "report.json").read_text())
    for row in report["rows"]:
        assert row["method"] in printed
        assert f"{row['pgd']:.1f}" in printed
        assert f"{row['gridadv']:.1f}" in printed
    assert "*" in printed
    assert report["verdict"] in printed
    assert f"written: {out / 'report.json'}, {out / 'demo.png'}" in printed


def test_three_commands_to_go_on_with_are_printed_and_are_understood(demonstration, capsys):
    out, printed = demonstration
    commands = [line.split("      ")[0].split() for line in printed.split("next:\n")[1].splitlines()]
    assert [command[:2] for command in commands] == [
        ["unperturbed", "evaluate"],
        ["unperturbed", "train"],
        ["unperturbed", "train"],
    ]
    assert recipe_files.read(out / "digits-pixel-srt" / "recipe.json").name == "digits-pixel-srt"
    assert commands[0][2] == str(out / "digits-pixel-srt")
    for command in commands[1:]:
        cli.main([*command[1:], "--dry-run"])
        assert recipe_files.loads(capsys.readouterr().out).name == command[2]


def row(method, clean, pgd, gridadv, seconds=1.0):
    """A row of 100 images of which so many are right: clean, under PGD, under GridAdv."""
    places = torch.arange(100)
    zero_until = {name: (places >= right).long() for name, right in (("pgd", pgd), ("gridadv", gridadv))}
    results = tuple(
        AttackResult(name=name, budget="", settings="", predicted=predicted, rejected=0, seconds=0.0)
        for name, predicted in zero_until.items()
    )
    report = Report(
        labels=torch.zeros(100).long(), clean=(places >= clean).long(), attacks=results, seed=0, provenance={}
    )
    return demo.Row(
        method=method, own_attack="gridadv" if "spatial" in method else "pgd", report=report, seconds=seconds
    )


def rows(**changes):
    """Rows in which SRT is on top of both scenarios, but for the changes."""
    numbers = {
        "Standard": (90, 5, 10),
        "AT, pixel-wise": (85, 50, 12),
        "RT, pixel-wise": (86, 52, 13),
        "SRT, pixel-wise": (88, 60, 14),
        "Worst-of-k, spatial": (87, 2, 55),
        "RT, spatial": (88, 3, 57),
        "SRT, spatial": (92, 4, 66),
    } | {name.replace("_", ", ").replace("pixel", "pixel-wise"): value for name, value in changes.items()}
    return [row(method, *triple) for method, triple in numbers.items()]


def test_where_srt_is_on_top_the_verdict_says_so_with_the_numbers_of_the_table():
    sentence = demo.verdict(rows())
    assert sentence.startswith("Unlabeled images pay")
    assert "SRT keeps 60.0 % under PGD, RT 52.0 % and AT 50.0 %" in sentence
    assert "under GridAdv SRT keeps 66.0 %, RT 57.0 % and Worst-of-k 55.0 %" in sentence
    assert "14.0 % (GridAdv)" in sentence
    assert "4.0 % (PGD)" in sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"SRT_pixel": (88, 51, 14)},
        {"SRT_pixel": (88, 52, 14)},
        {"SRT_spatial": (88, 4, 56)},
        {"RT_spatial": (88, 3, 80)},
        {"SRT_pixel": (88, 10, 14), "SRT_spatial": (92, 4, 10)},
    ],
    ids=["below RT", "level with RT", "below RT spatially", "RT above", "below in both"],
)
def test_where_srt_is_not_on_top_the_verdict_says_that(changes):
    sentence = demo.verdict(rows(**changes))
    assert sentence.startswith("This time SRT is not above")
    assert "pay" not in sentence


def cells(shown):
    """The rows of a printed table by their first cell."""
    screen = Console(file=StringIO(), width=140)
    screen.print(shown)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in screen.file.getvalue().splitlines()]
    return {line[0]: line[1:] for line in lines if len(line) == 8}


def test_the_best_of_each_column_is_marked_and_nothing_else():
    printed = cells(demo.table(rows()))
    assert printed["SRT, spatial"] == ["92.0*", "4.0", "66.0*", "0.080*", "0.260*", "0.340*", "1*"]
    assert printed["SRT, pixel-wise"] == ["88.0", "60.0*", "14.0", "0.120", "0.280", "0.400", "1*"]
    assert printed["Standard"] == ["90.0", "5.0", "10.0", "0.100", "0.850", "0.950", "1*"]


def test_the_smallest_risk_is_the_best():
    printed = cells(demo.table(rows(Standard=(50, 50, 0))))
    assert printed["Standard"][4] == "0.000*"


def test_another_seed_changes_split_weights_and_batches():
    recipe = demo.seeded(named("digits-pixel-srt"), 9)
    assert (recipe.seed, recipe.data.seed) == (9, 9)
    assert replace(recipe, seed=0, data=replace(recipe.data, seed=0)) == named("digits-pixel-srt")


def test_the_command_runs_the_demonstration_with_its_options(monkeypatch, tmp_path):
    called = []
    monkeypatch.setattr(demo, "run", lambda *arguments: called.append(arguments))
    cli.main(["demo", "--out", str(tmp_path), "--seed", "4"])
    assert called == [(tmp_path, 4)]


def test_the_gallery_shows_the_first_image_of_each_class_in_gray_or_color(tmp_path):
    assert gallery.first_of_each_class(torch.tensor([3, 3, 1, 3, 0, 1])) == [0, 2, 4]
    assert gallery.pixels(torch.zeros(1, 8, 6)).shape == (8, 6)
    assert gallery.pixels(torch.zeros(3, 8, 6)).shape == (8, 6, 3)


def test_a_gallery_of_one_model_is_drawn(tmp_path):
    model = DigitsCNN(channels=(2, 2, 2), hidden=4)((1, 8, 8), 10).eval()
    gallery.draw_gallery(tmp_path / "one.png", {"one": model}, load("digits"), {"fgsm": fgsm(eps=0.1)}, seed=0)
    assert (tmp_path / "one.png").read_bytes().startswith(PNG)
