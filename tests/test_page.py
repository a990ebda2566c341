"""The page of a report: its numbers, its pictures, its commands, and what it refuses."""

import base64
import io
import json
import re
import shlex
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import image as png_reader

from evaluated_runs import HOSTILE, make_run, small, write_card, write_hostile_data
from tiny import seeded
from unperturbed import cli
from unperturbed import recipe as recipe_files
from unperturbed.datasets import load
from unperturbed.inputs import as_float
from unperturbed.neighborhoods import Linf
from unperturbed.page import Page, write_page
from unperturbed.page.again import attack_of, commands
from unperturbed.page.content import columns_of, confusions_of, rows_of
from unperturbed.page.evaluated import read_groups, titled
from unperturbed.page.landscapes import surfaces_of
from unperturbed.page.markup import script_data, text
from unperturbed.page.pages import navigation, summary_of, title_of
from unperturbed.page.pictures import balanced, draw_pictures, sheet_of
from unperturbed.page.sections import Chapter, findings, gallery, lines_of, page_command
from unperturbed.page.tables import results_table, told_of, training_table, trust_section
from unperturbed.recipes import RECIPES, usual_budget
from unperturbed.recipes.against import against
from unperturbed.recipes.inferred import budget_of
from unperturbed.report import AttackResult, read
from unperturbed.runs import RunDirectory
from unperturbed.sameness import settings_of
from unperturbed.trust import card as cards

CPU = torch.device("cpu")
QUICK = Page(images=8, points=5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two evaluated runs on digits, one of them with a trust card."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "standard", small("digits-pixel-standard"))
    make_run(folder / "srt", small("digits-pixel-srt", seed=3), attacks="fgsm,randadv,pgd", eps=0.1)
    write_card(folder / "srt")
    return [folder / "standard", folder / "srt"]


@pytest.fixture(scope="module")
def group(runs):
    return read_groups(runs)[0]


@pytest.fixture(scope="module")
def page(runs):
    out = runs[0].parent / "page.html"
    write_page(runs, out, QUICK, device="cpu")
    return out.read_text(encoding="utf-8")


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_every_row_of_a_table_has_a_cell_under_each_head(page):
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert len(tables) >= 5
    for table in tables:
        heads, *rows = (len(re.findall(r"<t[hd][ >]", row)) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL))
        assert rows
        assert set(rows) == {heads}, table[:200]


def test_the_numbers_are_those_of_the_reports(group):
    for run, row in zip(group.runs, rows_of(group), strict=True):
        summary = json.loads((run.directory / "report.json").read_text())
        assert row.clean.share == summary["clean"]["accuracy"]
        assert [row.clean.low, row.clean.high] == summary["clean"]["interval"]
        found = {
            column.name: (cell, risks)
            for column, cell, risks in zip(columns_of(group), row.attacked, row.risks, strict=True)
            if cell is not None
        }
        assert set(found) == {each["name"] for each in summary["attacks"]}
        for each in summary["attacks"]:
            cell, risks = found[each["name"]]
            assert (cell.share, [cell.low, cell.high]) == (each["accuracy"], each["interval"])
            assert (risks.robust, risks.adversarial) == (each["robust_risk"], each["adversarial_risk"])
            both = risks.standard_and_robust
            assert risks.adversarial == pytest.approx(row.standard_risk + risks.robust - both)


def test_a_finding_names_every_run_that_is_best(group):
    one, other = rows_of(group)
    tied = replace(other, clean=one.clean)
    share, low, high = (f"{100 * value:.1f}" for value in (one.clean.share, one.clean.low, one.clean.high))
    assert findings([one, tied], columns_of(group))[0] == (
        f"Without an attack, <strong>{one.title}</strong> and <strong>{other.title}</strong> are right on {share} % "
        f"of 60 images ({low} – {high}), the most of 2 runs."
    )


def test_a_gallery_without_its_attacks_does_not_say_that_none_was_asked_for(group):
    def words(pictures):
        return gallery(Chapter(group=group, pictures=pictures, surfaces=None), 0)

    assert words(None) == "<p>No pictures were asked for.</p>"
    pictures = draw_pictures(group, images=2, attacks=["gridadv"], seed=0, device=CPU)
    assert words(pictures) == "<p>These runs did not meet the attacks of the gallery.</p>"


def test_an_attack_with_two_budgets_has_two_columns_and_no_worst_case(group):
    columns = columns_of(group)
    assert [column.name for column in columns] == ["fgsm", "randadv", "fgsm", "pgd"]
    assert [column.budget for column in columns if column.name == "fgsm"] == ["Linf 0.15", "Linf 0.1"]
    assert [row.worst for row in rows_of(group)] == [None, None]


def test_attacks_of_one_name_are_told_apart_wherever_they_are_named(group, page):
    labels = ["FGSM, Linf 0.15", "RandAdv", "FGSM, Linf 0.1", "PGD"]
    assert [column.label for column in columns_of(group)] == labels
    assert [column["name"] for column in data_of(page)[0]["columns"]] == labels
    chosen = re.search(r'<select id="class-attack-0">(.*?)</select>', page)[1]
    assert re.findall(r">([^<]+)</option>", chosen) == ["no attack", *labels]
    risks = re.search(r'<table class="risks">.*?</table>', page, re.DOTALL)[0]
    said = findings(rows_of(group), columns_of(group))
    for label in labels:
        assert f"<td>{label}</td>" in risks
        assert any(sentence.startswith(f"Under {label}, ") for sentence in said)


def test_the_gallery_shows_attacks_of_one_name_apart_where_they_go_differently_far(page):
    shown, labels = data_of(page)[0]["gallery"], ["FGSM, Linf 0.15", "RandAdv", "FGSM, Linf 0.1", "PGD"]
    chosen = re.search(r'<select id="gallery-attack-0">(.*?)</select>', page)[1]
    assert re.findall(r'value="([^"]+)"[^>]*>([^<]+)</option>', chosen) == [(label, label) for label in labels]
    runs = {label: [each["run"] for each in shown["attacked"] if each["attack"] == label] for label in labels}
    assert runs == {"FGSM, Linf 0.15": [0], "RandAdv": [0, 1], "FGSM, Linf 0.1": [1], "PGD": [1]}
    assert shown["amplified"]["FGSM, Linf 0.15"] == 3, "half of the scale over 0.15"
    assert shown["amplified"]["FGSM, Linf 0.1"] == 5, "half of the scale over 0.1"


def test_attacks_of_one_budget_are_told_apart_by_their_settings(group):
    report = group.runs[0].report
    others = tuple(replace(result, settings=f"{result.settings} twice") for result in report.attacks)
    pair = replace(group, runs=(group.runs[0], replace(group.runs[0], report=replace(report, attacks=others))))
    labels = [column.label for column in columns_of(pair)]
    assert len({*labels}) == 4
    assert labels[2] == f"FGSM, {others[0].settings}"


def test_a_table_tells_by_what_attacks_of_one_budget_differ(group):
    report = group.runs[0].report
    first, other = (
        replace(report.attacks[0], name="pgd+", budget="PGD, then Grid", settings=f"S(PGD(steps={steps}, eps=0.15))")
        for steps in (1, 20)
    )
    pair = replace(
        group,
        runs=tuple(
            replace(group.runs[0], report=replace(report, attacks=(attack,), subject=f"of {number}"))
            for number, attack in enumerate((first, other))
        ),
    )
    columns = columns_of(pair)
    assert [column.label for column in columns] == ["PGD+, steps=1", "PGD+, steps=20"]
    assert [told_of(column, columns) for column in columns] == [
        "PGD, then Grid; steps=1",
        "PGD, then Grid; steps=20",
    ]
    assert told_of(columns[0], columns[:1]) == "PGD, then Grid"


def test_the_best_of_a_column_is_marked_and_a_run_alone_is_not(group):
    rows = rows_of(group)
    for column in zip(*((row.clean, *row.attacked) for row in rows), strict=True):
        cells = [cell for cell in column if cell is not None]
        best = max(cell.share for cell in cells)
        assert [cell.best for cell in cells] == [len(cells) > 1 and cell.share == best for cell in cells]
    assert lines_of(rows) == [row.title for row in rows]
    assert "– stands where a run did not meet an attack" in results_table(rows, columns_of(group))
    (alone,) = rows_of(replace(group, runs=group.runs[:1]))
    assert "– stands" not in results_table([alone], columns_of(replace(group, runs=group.runs[:1])))
    assert not alone.clean.best
    assert alone.worst is not None


def on_fewer_images(run, images):
    """The run as if it had been evaluated on the first few images alone."""
    report = run.report
    attacks = tuple(replace(result, predicted=result.predicted[:images]) for result in report.attacks)
    few = replace(report, labels=report.labels[:images], clean=report.clean[:images], attacks=attacks)
    return replace(run, run=replace(run.run, label=f"{run.title} on {images}"), report=few)


def test_runs_on_different_images_are_not_compared(group):
    one, other = group.runs[0], on_fewer_images(group.runs[0], 20)
    apart, columns = rows_of(replace(group, runs=(one, other))), columns_of(replace(group, runs=(one, other)))
    assert not any(cell.best for row in apart for cell in (row.clean, *row.attacked, row.worst))
    assert not any("the most of" in sentence for sentence in findings(apart, columns))
    assert len(findings(apart, columns)) == 2 * (1 + len(columns)), "each run speaks for itself"
    caption = results_table(apart, columns)
    assert "★" not in caption
    assert "Runs on different test images are not compared." in caption
    assert lines_of(apart) == [f"{row.title}, {row.images} images" for row in apart]
    both = replace(group, runs=(one, other, group.runs[1]))
    rows = rows_of(both)
    assert [row.clean.best for row in rows][1] is False
    assert any(row.clean.best for row in rows)
    assert "★ marks the best of a column among runs on the same images." in results_table(rows, columns_of(both))
    assert sum("the most of 2 runs" in sentence for sentence in findings(rows, columns_of(both))) >= 1
    assert summary_of([both]) == "digits: 1 run attacked on 20 and 2 runs attacked on 60 of 400 test images."
    assert summary_of([group]) == "digits: 2 runs attacked on 60 of 400 test images."


def test_the_diagonal_of_the_confusions_counts_what_the_accuracies_count(group):
    for run, tables, row in zip(group.runs, confusions_of(group), rows_of(group), strict=True):
        for pairs, cell in zip(tables, (row.clean, *row.attacked), strict=True):
            assert (pairs is None) == (cell is None)
            if pairs is not None:
                assert sum(count for _, _, count in pairs) == len(run.report.labels)
                right = sum(count for label, said, count in pairs if label == said)
                assert right / len(run.report.labels) == pytest.approx(cell.share)


def test_attacks_are_made_again_from_their_settings():
    for data in ("digits", "mnist", "cifar10"):
        for budget in (
            usual_budget(data),
            replace(usual_budget(data), fraction=0.5, steps=7, pixels=3),
            replace(usual_budget(data), blur=2.5, color=0.3),
            replace(usual_budget(data), interpolations=2, rotation=12.0),
            replace(usual_budget(data), blur=0.7, color=0.2, fraction=0.35),
            replace(usual_budget(data), color=1.4, fraction=0.05),
        ):
            for name, attack in budget.attacks().items():
                result = AttackResult(
                    name=name,
                    budget=attack.budget,
                    settings=settings_of(attack),
                    predicted=torch.zeros(1).long(),
                    rejected=0,
                    seconds=0.0,
                )
                assert settings_of(attack_of(result, data)) == result.settings, (data, name)


@pytest.mark.parametrize(
    "settings", ["", "PGD()", "Searched(eps=1e999)", "steps=999999999999", "eps=....", "eps=-3", "pixels=0.5"]
)
def test_an_attack_of_somebodys_own_is_not_made_again(settings):
    nothing = torch.zeros(1).long()
    result = AttackResult(name="pgd", budget="", settings=settings, predicted=nothing, rejected=0, seconds=0.0)
    assert budget_of(result, usual_budget("digits")) is None
    assert budget_of(replace(result, name="mine"), usual_budget("digits")) is None


def pointed(known, names, data="digits", **changes):
    recipe = RECIPES[known]
    recipe = replace(recipe, data=replace(recipe.data, name=data), **changes)
    return against(recipe, names, usual_budget(data))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (pointed("digits-pixel-srt", "pixels,blur", seed=3), "digits-pixel-srt --against pixels,blur --seed 3"),
        (pointed("digits-pixel-at", "color", "a b.npz"), "digits-pixel-at --against color --data.name 'a b.npz'"),
        (pointed("digits-pixel-at", "color", name="mine"), "--from run/recipe.json"),
        (
            replace(RECIPES["digits-pixel-standard"], name="digits-pixel-standard-against-blur"),
            "--from run/recipe.json",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_against_perturbations_is_made_again_by_its_recipe_and_their_names(group, recipe, words, capsys):
    run = replace(group.runs[0].run, recipe=recipe, directory=RunDirectory(Path("run")))
    train = commands(replace(group.runs[0], run=run), group.dataset)[0]
    assert train == f"unperturbed train {words} --out run"
    if "--from" not in words:
        cli.main([*shlex.split(train)[1:], "--dry-run"])
        assert recipe_files.loads(capsys.readouterr().out) == recipe


def test_the_commands_make_the_same_recipe_and_the_same_attacks(group, capsys):
    for run in group.runs:
        train, *evaluations = commands(run, group.dataset)
        cli.main([*shlex.split(train)[1:], "--dry-run"])
        made = recipe_files.loads(capsys.readouterr().out)
        assert made == run.recipe
        assert len(evaluations) == 1, "one budget, one command"
        split = [shlex.split(line) for line in evaluations]
        named = [word for line in split for word in line[line.index("--attacks") + 1].split(",")]
        assert sorted(named) == sorted(result.name for result in run.report.attacks)
        assert all("--images" in line for line in split)
        for line in evaluations:
            cli.main(shlex.split(line.removesuffix(" --trust"))[1:])
        assert "fgsm" in capsys.readouterr().out
        assert read(run.directory / "report.json").dumps() == run.report.dumps()


def test_the_command_for_a_trust_card_examines_the_numbers_of_the_page(group):
    run = replace(group.runs[1], card=None, report=replace(group.runs[1].report, seed=4))
    evaluation = commands(run, group.dataset)[1]
    assert "--budget.eps 0.1 --budget.step-size 0.02 --images 60 --seed 4" in evaluation
    assert f"<code>{evaluation} --trust</code>" in trust_section(run, group.dataset)
    bare = replace(run, report=replace(run.report, attacks=()))
    assert f"<code>unperturbed evaluate {run.directory} --images 60 --seed 4 --trust</code>" in trust_section(
        bare, group.dataset
    )


def carded(run, eps, **changes):
    """The run with a trust card that was made within that radius and by the usual warps."""
    around, spatial = Linf(eps=eps), usual_budget("digits").warps
    noted = {"around": str(around), "spatial": str(spatial)}
    card = replace(run.card, around=repr(around), spatial=repr(spatial), provenance=noted)
    return replace(run, card=replace(card, **changes))


def test_a_trust_card_tells_within_which_radius_it_was_made(group):
    shown = unescape(trust_section(carded(group.runs[1], 0.1), group.dataset))
    assert "50 images, within Linf 0.1 and <= 30 degrees, <= 1 px, 3.0 s, seed 0." in shown
    assert ", within" not in trust_section(group.runs[1], group.dataset), "nobody knows"


def test_the_commands_ask_for_a_trust_card_within_the_budget_it_was_made_in(group):
    run, (_, evaluation) = group.runs[1], commands(replace(group.runs[1], card=None), group.dataset)
    assert "--budget.eps 0.1" in evaluation

    def lines(run):
        return commands(run, group.dataset)[1:]

    assert lines(run) == [f"{evaluation} --trust"], "it does not say within which"
    assert lines(carded(run, 0.1)) == [f"{evaluation} --trust"]
    aside, *others = lines(carded(run, 0.25))
    assert "--budget.eps 0.25" in aside
    assert aside.endswith(" --trust")
    assert others == [evaluation], "attacks were made within another budget than the card"
    warped = replace(run, report=replace(run.report, attacks=(run.report["randadv"],)))
    (line,) = lines(carded(warped, 0.25))
    assert "--attacks randadv --budget.eps 0.25 --images" in line
    assert line.endswith(" --trust")
    older = carded(run, 0.1, around="", spatial="")
    assert lines(older) == [f"{evaluation} --trust"]
    unknown = replace(older, card=replace(older.card, provenance={"around": "Linf 0.77"}))
    assert lines(unknown) == [evaluation], "no command is known to make it"
    for hostile in ("Linf(eps=....)", "L2(eps=0.1)", "eps=1e999", "<b>"):
        assert lines(carded(run, 0.1, around=hostile)) == [evaluation]


def test_a_trust_card_of_other_weights_or_images_is_not_shown(runs, tmp_path):
    run = copied(runs[1], tmp_path / "mine")
    for subject, shown in (("", True), ("another", False), (read(run / "report.json").subject, True)):
        write_card(run, subject=subject)
        assert (read_groups([run])[0].runs[0].card is not None) is shown


@pytest.mark.parametrize("changes", [{"eps": 0.1}, {"steps": 25}, {"fraction": 0.5, "pixels": 3}, {"rotation": 0.0}])
def test_one_command_makes_all_attacks_of_one_budget_again(group, changes):
    budget, nothing = replace(usual_budget("digits"), **changes), torch.zeros(1).long()
    results = [
        AttackResult(name=name, budget="", settings=settings_of(attack), predicted=nothing, rejected=0, seconds=0.0)
        for name, attack in budget.attacks().items()
    ]
    report = replace(
        group.runs[0].report,
        labels=nothing,
        clean=nothing,
        attacks=tuple(sorted(results, key=lambda each: each.name)),
    )
    (line,) = commands(replace(group.runs[0], report=report), group.dataset)[1:]
    options = {
        word: line.split()[place + 1] for place, word in enumerate(line.split()) if word.startswith("--budget")
    }
    fields = {word.removeprefix("--budget.").replace("-", "_"): float(value) for word, value in options.items()}
    whole = {name: int(value) if name in ("steps", "pixels") else value for name, value in fields.items()}
    usual = usual_budget("digits")
    made = replace(usual.with_radius(whole.get("eps", usual.eps)), **whole).attacks()
    assert {each.name: each.settings for each in results} == {name: settings_of(each) for name, each in made.items()}


def test_the_command_of_an_edited_recipe_names_what_was_edited_or_the_file(group):
    run = group.runs[1]
    again = replace(run, run=replace(run.run, recipe=replace(RECIPES["digits-pixel-srt"], steps=7)))
    assert commands(again, group.dataset)[0].startswith("unperturbed train digits-pixel-srt --steps 7 --out ")
    other = replace(run, run=replace(run.run, recipe=replace(run.recipe, name="mine")))
    assert f"--from {run.directory / 'recipe.json'}" in commands(other, group.dataset)[0]


def test_of_a_run_without_a_log_nobody_knows_how_long_it_took(group):
    run = group.runs[0]
    assert "not known" not in training_table(group)
    assert "not known" in training_table(replace(group, runs=(replace(run, log=()), *group.runs[1:])))


def test_a_run_with_unlabeled_images_in_files_alone_is_no_robust_training_on_labels(group):
    run = group.runs[1]

    def row(**changes):
        recipe = RECIPES["digits-pixel-srt"]
        changed = replace(run.run, recipe=replace(recipe, data=replace(recipe.data, **changes)))
        return training_table(replace(group, runs=(replace(run, run=changed),)))

    assert ">RT, λ 1, PGD<" in row(unlabeled=0)
    assert ">SRT, λ 1, PGD<" in row(unlabeled=0, unlabeled_files=("more.npy",))
    assert "0, and those in files" in row(unlabeled=0, unlabeled_files=("more.npy",))
    assert ">all others<" in row()


def test_a_run_that_its_guard_ended_has_the_steps_it_took(group):
    def row(log):
        return training_table(replace(group, runs=(replace(group.runs[0], log=log),)))

    assert ">20<" in row([{"step": 10}, {"step": 20}])
    assert ">20<" in row([])
    assert ">13 of 20<" in row([{"step": 10}, {"step": 13}])


def test_the_commands_do_not_take_a_directory_for_an_option(group):
    run = group.runs[0]
    dashed = replace(run, run=replace(run.run, directory=RunDirectory(Path("-mine"))))
    assert all("./-mine" in command.split() for command in commands(dashed, group.dataset))
    written = page_command([Path("-mine")], ["--images", "0"], Path("-page.html"))
    assert written == "unperturbed report ./-mine --images 0 --out ./-page.html"


def test_the_command_of_a_page_names_the_folder_of_its_data(runs, tmp_path):
    folder = tmp_path / "my data"
    folder.mkdir()
    write_page(runs[:1], tmp_path / "page.html", Page(images=0, surfaces=False), data=folder, device="cpu")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    command = unescape(re.search(r"<code>(unperturbed report .*?)</code>", page)[1])
    words = shlex.split(command)
    assert words[words.index("--data") + 1] == str(folder)
    before = page.split("Written ")[0]
    cli.main(words[1:])
    assert (tmp_path / "page.html").read_text(encoding="utf-8").split("Written ")[0] == before


def test_the_gallery_is_balanced_and_its_choice_seeded():
    labels = torch.tensor([0] * 50 + [1] * 5 + [2] * 45)
    places = balanced(labels, 15, seed=0)
    assert labels[places].bincount().tolist() == [5, 5, 5]
    assert places == sorted(places) == balanced(labels, 15, seed=0) != balanced(labels, 15, seed=1)
    assert labels[balanced(labels, 30, seed=0)].bincount()[1] == 5
    assert balanced(labels, 500, seed=0) == list(range(100))


@pytest.mark.parametrize(
    "made",
    [
        lambda channels: torch.randint(256, (23, channels, 4, 6), dtype=torch.uint8, generator=seeded()),
        lambda channels: (torch.arange(23 * channels * 24) // 7 % 256).to(torch.uint8).view(23, channels, 4, 6),
        lambda channels: torch.arange(6).mul(40).to(torch.uint8).expand(23, channels, 4, 6),
        lambda channels: torch.arange(4).mul(60).to(torch.uint8)[:, None].expand(23, channels, 4, 6),
    ],
    ids=["noise", "ramp", "columns", "lines"],
)
def test_a_sheet_holds_the_images_as_a_png(made):
    for channels in (1, 3):
        images = made(channels)
        uri = sheet_of(images)
        pixels = png_reader.imread(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
        assert pixels.shape[:2] == (2 * 4, 20 * 6)
        cut = pixels[4:8, 2 * 6 : 3 * 6]
        np.testing.assert_allclose(cut * 255, images[22].permute(1, 2, 0).squeeze(2).numpy(), atol=1e-3)


def test_the_pictures_lie_within_the_budget_and_are_the_same_again(group):
    first = draw_pictures(group, images=10, attacks=["fgsm"], seed=0, device=CPU)
    again = draw_pictures(group, images=10, attacks=["fgsm"], seed=0, device=CPU)
    assert first == again
    assert [each.run for each in first.attacked] == [0, 1]
    assert [each.largest for each in first.attacked] == pytest.approx([0.15, 0.1], abs=1e-5)
    for run, before in zip(group.runs, first.before, strict=True):
        assert before == run.report.clean[first.places].tolist()


def test_fgsm_of_the_gallery_says_what_the_report_says(group):
    drawn = draw_pictures(group, images=60, attacks=["fgsm"], seed=0, device=CPU)
    for each in drawn.attacked:
        assert each.after == group.runs[each.run].report["fgsm"].predicted[drawn.places].tolist()


def test_the_gallery_is_judged_in_float32_like_the_report(group):
    precisions = set()
    hooks = [
        run.model.register_forward_hook(lambda *_: precisions.add(torch.backends.cudnn.allow_tf32))
        for run in group.runs
    ]
    try:
        assert torch.backends.cudnn.allow_tf32, "what a device would do else"
        draw_pictures(group, images=4, attacks=["fgsm"], seed=0, device=CPU)
    finally:
        for hook in hooks:
            hook.remove()
    assert precisions == {False}


def test_a_gallery_that_would_be_too_large_is_smaller_and_says_so(group):
    drawn = draw_pictures(group, images=50, attacks=["fgsm"], seed=0, device=CPU, room=3000)
    assert 1 <= len(drawn.places) < 50
    assert len(drawn.sheet) + sum(len(each.sheet) for each in drawn.attacked) < 4000
    assert any("50 would make the page too large" in sentence for sentence in drawn.missing)


def test_an_attack_without_known_settings_has_no_pictures_and_a_sentence(group):
    run = group.runs[0]
    strange = replace(run.report.attacks[0], settings="mine()")
    changed = replace(group, runs=(replace(run, report=replace(run.report, attacks=(strange,))),))
    drawn = draw_pictures(changed, images=4, attacks=None, seed=0, device=CPU)
    assert drawn.attacked == []
    assert drawn.missing == [f"No pictures of fgsm on {run.title}: its settings are none that this version knows."]


def test_runs_of_one_recipe_get_names_of_their_own(tmp_path):
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "x" / "a"
    assert titled([("digits-pixel-srt", a), ("digits-pixel-rt", b)]) == ["SRT", "RT"]
    assert titled([("digits-pixel-srt", a), ("digits-spatial-srt", b)]) == ["SRT, pixel-wise", "SRT, spatial"]
    assert titled([("srt", a), ("srt", b)]) == ["srt (a)", "srt (b)"]
    assert len(set(titled([("srt", a), ("srt", c)]))) == 2


def test_a_directory_that_is_named_twice_counts_once(runs):
    (found,) = read_groups([runs[0], runs[0], runs[0].parent / "." / runs[0].name])
    assert len(found.runs) == 1


def test_the_page_holds_all_sections_and_nothing_from_elsewhere(page):
    for key in ("results", "risks", "training", "gallery", "classes", "surfaces", "trust", "again"):
        assert f'<section id="{key}-0"' in page
    head = page.split("<script")[0]
    assert "default-src 'none'" in head
    assert not re.findall(r'(?:src|href)="(?!#|data:)', head)
    assert "unperturbed report " in head
    assert "Take more steps." in head
    assert "not examined" in head


def test_every_surface_is_told_in_numbers(page, group):
    surfaces = data_of(page)[0]["surfaces"]
    assert {len(found["values"]) for found in surfaces["scenarios"].values()} == {2}
    shown = page.split("D where it is least.")[1].split("</table>")[0]
    for found in surfaces["scenarios"].values():
        for values, share, least in zip(found["values"], found["correct"], found["least"], strict=True):
            flat = [value for row in values for value in row]
            assert share == pytest.approx(sum(value > 0 for value in flat) / 25)
            assert least == pytest.approx(min(flat), abs=1e-3)
            assert f"{100 * share:.1f} %<small>{least:.2f}</small>" in shown
    right = sum(run.report.survivors().int() for run in group.runs)
    assert surfaces["place"] == right.tolist().index(right.max())


def test_answers_of_nan_are_gaps_in_the_surfaces_of_the_page(group):
    class Breaking(torch.nn.Module):
        def forward(self, images):
            said = group.runs[0].model(images)
            return said.masked_fill((images - image).flatten(1).abs().amax(1, keepdim=True) > 0.1, torch.nan)

    image = as_float(group.dataset.test_images[7])
    broken = replace(group, runs=(replace(group.runs[0], model=Breaking()), group.runs[1]))
    surfaces = surfaces_of(broken, around=7, points=5, seed=0, device=CPU)
    script_data(surfaces)
    for found in surfaces["scenarios"].values():
        flat = [value for row in found["values"][0] for value in row]
        known = [value for value in flat if value is not None]
        assert 0 < len(known) < len(flat)
        assert found["least"][0] == pytest.approx(min(known), abs=1e-3)


def test_the_scripts_are_those_that_the_policy_allows(page):
    import hashlib

    allowed = re.findall(r"'sha256-([^']+)'", page)
    scripts = re.findall(r'<script(?: type="text/plain" id="library")?>(.*?)</script>', page, re.DOTALL)
    assert [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts] == allowed
    assert len(scripts) == 2


def test_words_of_strangers_are_text():
    for words in HOSTILE:
        assert "<" not in text(words)
        assert '"' not in text(words)
        assert unescape(text(words)) == words.replace("\u2028", "\\u2028")
        assert not set("<>&\u2028") & set(script_data({words: words}))
        assert json.loads(script_data([words])) == [words]


def test_hostile_names_stay_in_their_place(tmp_path):
    data = write_hostile_data(tmp_path / "<i>data.npz")
    recipe = small("digits-pixel-standard")
    name = "</title><script>alert(1)</script>"
    run = tmp_path / "<b>run"
    make_run(run, replace(recipe, name=name, data=replace(recipe.data, name=str(data), labeled=60)), images=20)
    write_page([run], tmp_path / "page.html", QUICK, device="cpu")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown, data, library, script = page.split("<script ")[0], *re.split(r"<script\b", page)[-3:]
    assert page == "<script".join([shown, data, library, script])
    assert "<img" not in shown
    assert "<b>run" not in page
    assert data_of(page)[0]["classes"] == [word.replace("\u2028", "\\u2028") for word in HOSTILE]


def test_two_data_sets_have_a_chapter_each(runs, tmp_path):
    data = write_hostile_data(tmp_path / "mine.npz")
    recipe = small("digits-pixel-standard")
    make_run(tmp_path / "other", replace(recipe, data=replace(recipe.data, name=str(data), labeled=60)), images=20)
    write_page([runs[0], tmp_path / "other"], tmp_path / "page.html", Page(images=0, surfaces=False), device="cpu")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<h2 id="data-0">digits</h2>' in page
    assert '<h2 id="data-1">mine.npz</h2>' in page
    assert page.count('<section id="results-') == page.count('<table class="results">') == 2
    assert [len(chapter["runs"]) for chapter in data_of(page)] == [1, 1]


def test_data_sets_whose_files_have_one_name_are_told_apart(tmp_path):
    recipe = small("digits-pixel-standard")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        data = write_hostile_data(tmp_path / name / "mine.npz")
        make_run(tmp_path / name / "run", replace(recipe, data=replace(recipe.data, name=str(data), labeled=60)))
    groups = read_groups([tmp_path / name / "run" for name in ("a", "b")])
    paths = [str(tmp_path / name / "mine.npz") for name in ("a", "b")]
    assert [group.title for group in groups] == paths
    assert title_of(groups) == f"2 models on {' and '.join(paths)}, under attack"
    for place, path in enumerate(paths):
        assert f"{path}: 1 run attacked on 60 of 200" in summary_of(groups)
        assert f'href="#results-{place}">{path}: Results' in navigation(groups)
    (alone,) = read_groups([tmp_path / "a" / "run"])
    assert alone.title == "mine.npz"


def test_progress_tells_runs_on_two_data_sets_apart_where_one_recipe_made_them(runs, tmp_path, capsys):
    data, recipe = write_hostile_data(tmp_path / "mine.npz"), small("digits-pixel-standard")
    make_run(tmp_path / "other", replace(recipe, data=replace(recipe.data, name=str(data), labeled=60)))
    words = ["--images", "4", "--no-surfaces", "--out", str(tmp_path / "page.html")]
    cli.main(["report", str(runs[0]), str(tmp_path / "other"), *words])
    told = re.findall(r"^pictures: (\S+) on (.*), 4 of 4 images", capsys.readouterr().err, re.MULTILINE)
    assert len(told) == len(set(told)) == 4
    assert {subject for _, subject in told} == {"Standard for digits", "Standard for mine.npz"}


def refused(arguments, out):
    quick = ["--images", "4", *([] if "--points" in arguments else ["--points", "3"])]
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", *map(str, arguments), "--out", str(out), *quick])
    sentence = str(stop.value)
    assert sentence.startswith("unperturbed: ")
    assert "\n" not in sentence
    assert not out.is_file()
    assert not list(out.parent.glob(".*.new"))
    return sentence


def copied(run, to):
    """A copy of a run, to damage."""
    to.mkdir()
    for file in run.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_directory_without_a_report_says_which_command_makes_it(runs, tmp_path):
    run = copied(runs[0], tmp_path / "mine")
    (run / "report.json").unlink()
    assert f"make it with `unperturbed evaluate {run}`" in refused([runs[0], run], tmp_path / "page.html")


def test_an_unfinished_run_says_which_commands_finish_and_attack_it(runs, tmp_path):
    run = copied(runs[0], tmp_path / "mine")
    for file in ("report.json", "model.safetensors"):
        (run / file).unlink()
    sentence = refused([runs[0], run], tmp_path / "page.html")
    assert f"finish it with `unperturbed train --from {run}/recipe.json --out {run}`, then attack it with" in sentence
    assert f"`unperturbed evaluate {run}`" in sentence


def test_a_directory_without_a_run_says_which_command_makes_one(tmp_path):
    assert f"unperturbed train RECIPE --out {tmp_path / 'none'}" in refused([tmp_path / "none"], tmp_path / "a.html")


def test_no_directory_is_refused(tmp_path):
    assert "unperturbed report DIR" in refused([], tmp_path / "page.html")


@pytest.mark.parametrize("out", ["missing/page.html", "mine", "mine/recipe.json/page.html"])
def test_a_place_that_cannot_be_written_is_refused(runs, tmp_path, out):
    copied(runs[0], tmp_path / "mine")
    place = tmp_path / out
    sentence = refused([tmp_path / "mine"], place)
    assert str(place.parent if out != "mine" else place) in sentence


def test_a_report_of_a_newer_version_is_refused(runs, tmp_path):
    run = copied(runs[0], tmp_path / "mine")
    (run / "report.json").write_text((run / "report.json").read_text().replace('"format": 1', '"format": 9'))
    sentence = refused([run], tmp_path / "page.html")
    assert "a newer version of unperturbed wrote it): update unperturbed" in sentence
    assert "delete" not in sentence


def test_weights_of_another_network_are_refused(runs, tmp_path):
    run = copied(runs[0], tmp_path / "mine")
    text = (run / "recipe.json").read_text().replace('"hidden": 8', '"hidden": 16')
    (run / "recipe.json").write_text(text)
    assert "does not hold the weights of this recipe's model" in refused([run], tmp_path / "page.html")


def test_weights_that_were_not_evaluated_are_refused(runs, tmp_path):
    run = copied(runs[0], tmp_path / "mine")
    (run / "model.safetensors").write_bytes((runs[1] / "model.safetensors").read_bytes())
    by_their_hash = refused([run], tmp_path / "page.html")
    assert f"{run / 'report.json'} is of other weights than model.safetensors beside it" in by_their_hash
    (run / "report.json").write_text(replace(read(run / "report.json"), weights="").dumps())
    by_their_answers = refused([run], tmp_path / "page.html")
    assert "are not those of its report.json" in by_their_answers
    assert all(f"unperturbed evaluate {run}" in sentence for sentence in (by_their_hash, by_their_answers))


def test_a_report_on_other_images_is_refused(runs, tmp_path):
    run = copied(runs[0], tmp_path / "mine")
    report = read(run / "report.json")
    (run / "report.json").write_text(replace(report, labels=report.labels.flip(0)).dumps())
    assert "is of other test images than digits holds" in refused([run], tmp_path / "page.html")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--around", "400"], "there is no test image 400: digits has 400, from 0 on"),
        (["--around", "-1"], "there is no test image -1"),
        (["--points", "1"], "--points must be odd and at least 3, so that the image itself is in the middle, got 1"),
        (["--points", "4"], "--points must be odd and at least 3, so that the image itself is in the middle, got 4"),
        (["--attacks", "nope"], "no report holds an attack 'nope', they hold fgsm, randadv"),
        (["--attacks", "a b"], ": name some, with commas between several"),
    ],
)
def test_options_that_fit_nothing_are_refused_before_anything_is_attacked(runs, tmp_path, capsys, options, words):
    assert words in refused([runs[0], *options], tmp_path / "page.html")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["page.pdf", "page", "page.html.png"])
def test_a_page_that_no_browser_would_open_is_refused(runs, tmp_path, name):
    out = tmp_path / name
    sentence = refused([runs[0]], out)
    assert (
        f"{out} does not end in .html or .htm, but the page is HTML: name it {out.with_suffix('.html')}" in sentence
    )


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"findings": [{}]}', '{"findings": [3]}', "no JSON", "[" * 9999]
)
def test_a_damaged_trust_card_is_refused(runs, tmp_path, content):
    run = copied(runs[0], tmp_path / "mine")
    (run / "trust.json").write_text(content)
    assert "trust.json is no trust card " in refused([run], tmp_path / "page.html")


def test_a_trust_card_is_read_as_it_was_written(runs):
    content = (runs[1] / "trust.json").read_text()
    assert cards.loads(content).plain() == json.loads(content)
    with pytest.raises(ValueError, match="is damaged"):
        cards.loads(content.replace('"flag"', '"<b>"'))


def test_the_command_says_where_the_page_is_and_how_large(runs, tmp_path, capsys):
    out = tmp_path / "page.html"
    cli.main(["report", str(runs[0]), "--out", str(out), "--images", "0", "--no-surfaces"])
    assert f"written: {out} ({out.stat().st_size / 1e6:.1f} MB)" in capsys.readouterr().out
    page = unescape(out.read_text(encoding="utf-8"))
    assert f"unperturbed report {runs[0]} --images 0 --no-surfaces --out {out}" in page
    assert load("digits").name in page
