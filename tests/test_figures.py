"""Figures: the commands that draw them, what ends up on disk, and how they say no."""

import json
import shlex
import shutil
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tiny import NETWORK
from unperturbed import figures
from unperturbed.cli import main
from unperturbed.cli.surface import spoken
from unperturbed.curves import Line, Panel
from unperturbed.figures import as_text, draw_panels, draw_surfaces, files_for, rendered
from unperturbed.report import read
from unperturbed.surfaces import Surface

TINY = ["--batch", "40", *NETWORK, "--device", "cpu"]
KINDS = {
    "perturbation": ["--attacks", "pgd", "--images", "10"],
    "unlabeled": [],
    "lambda": [],
    "time": [],
    "training": [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two evaluated runs that differ in lambda, in the folder that is returned."""
    folder = tmp_path_factory.mktemp("made")
    for name, weight in (("low", "0.2"), ("high", "1.0")):
        out = str(folder / name)
        main(["train", "digits-pixel-srt", "--steps", "4", "--objective.weight", weight, "--out", out, *TINY])
        main(["evaluate", out, "--attacks", "fgsm,pgd", "--images", "20", "--device", "cpu"])
    return folder


@pytest.fixture
def runs(made, tmp_path, monkeypatch):
    """A copy of them in an empty folder, in which the test works."""
    monkeypatch.chdir(tmp_path)
    for name in ("low", "high"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def refused(refused):
    """Runs a command that must be refused in one sentence; no file may come of it."""

    def run(*words):
        before = sorted(Path.cwd().rglob("*"))
        sentence = refused(*words)
        assert sorted(Path.cwd().rglob("*")) == before
        return sentence

    return run


@pytest.mark.parametrize("scenario", ["pixel", "spatial"])
@pytest.mark.parametrize("value", ["decision", "loss"])
def test_a_surface_is_drawn_as_png_and_pdf(scenario, value, runs, capsys):
    main(["surface", "low", "high", "--around", "3", "--scenario", scenario, "--value", value, "--points", "5"])
    assert Path(f"surface-{scenario}-{value}-3.png").read_bytes().startswith(b"\x89PNG")
    assert Path(f"surface-{scenario}-{value}-3.pdf").read_bytes().startswith(b"%PDF")
    seen = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in seen] == ["SRT, lambda 0.2", "SRT, lambda 1.0", "written"]
    assert ("positive at" in seen[0]) == (value == "decision")


@pytest.mark.parametrize("kind", KINDS)
def test_each_curve_is_drawn_by_one_command(kind, runs):
    main(["curve", kind, "low", "high", *KINDS[kind], "--out", f"new/{kind}", "--device", "cpu"])
    assert Path(f"new/{kind}.png").read_bytes().startswith(b"\x89PNG")
    assert Path(f"new/{kind}.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_is_the_same_bytes_each_time(runs):
    for name in ("one", "two"):
        for ending in ("png", "pdf", "svg"):
            main(["curve", "training", "low", "--out", f"{name}.{ending}"])
    for ending in ("png", "pdf", "svg"):
        assert Path(f"one.{ending}").read_bytes() == Path(f"two.{ending}").read_bytes()


def test_the_numbers_of_a_curve_are_printed_as_json_and_nothing_else(runs, capsys):
    main(["curve", "lambda", "low", "high", "--json"])
    panels = json.loads(capsys.readouterr().out)
    assert [panel["title"] for panel in panels] == ["FGSM", "PGD"]
    found = [json.loads(Path(name, "report.json").read_text())["attacks"][1]["accuracy"] for name in ("low", "high")]
    assert panels[1]["lines"][0]["x"] == [0.2, 1.0]
    assert panels[1]["lines"][0]["y"] == [pytest.approx(100 * accuracy) for accuracy in found]
    assert Path("curve-lambda.png").exists()


def test_a_sweep_is_kept_in_the_directory_of_its_run(runs, capsys):
    words = ["--attacks", "pgd", "--images", "20", "--fractions", "0", "1", "--json", "--device", "cpu"]
    main(["curve", "perturbation", "low", *words])
    (panel,) = json.loads(capsys.readouterr().out)
    found = json.loads(Path("low/report.json").read_text())
    assert panel["lines"][0]["x"] == [0, 1]
    expected = [found["clean"]["accuracy"], found["attacks"][1]["accuracy"]]
    assert panel["lines"][0]["y"] == [pytest.approx(100 * accuracy) for accuracy in expected]
    kept = json.loads(Path("low/sweep.json").read_text())
    assert [row["fraction"] for row in kept["sweep"]] == [0.0, 1.0]
    main(["curve", "perturbation", "low", "--against", "eps", "--budget.fraction", "0.5", *words])
    (panel,) = json.loads(capsys.readouterr().out)
    assert panel["lines"][0]["x"] == [0, pytest.approx(0.075)], "digits are attacked at 0.15"


def test_a_run_trained_against_blur_is_drawn_under_blur_too(runs, capsys):
    main(["train", "digits-pixel-srt", "--against", "warps,blur", "--steps", "4", "--out", "blurred", *TINY])
    words = ["--images", "3", "--fractions", "0", "1", "--json", "--device", "cpu"]
    capsys.readouterr()
    main(["curve", "perturbation", "low", "blurred", *words])
    panels = json.loads(capsys.readouterr().out)
    assert [panel["title"] for panel in panels] == ["PGD", "GridAdv", "PGD+", "GridAdv+", "Blur"]
    assert [line["label"] for line in panels[-1]["lines"]] == ["SRT", "SRT against warps and blur"]


def newer(file, **changes):
    tree = json.loads(Path(file).read_text())
    Path(file).write_text(json.dumps(tree | changes))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["surface"], "surface needs the directory of a run first: unperturbed surface DIR [DIR …] --around INDEX"),
        (["surface", "--around", "3", "mine"], "surface needs the directory of a run first"),
        (["surface", "absent"], "absent holds no run (no recipe.json): make one with unperturbed train RECIPE"),
        (["surface", "low", "--around", "400"], "there is no test image 400: --around takes 0 to 399"),
        (["surface", "low", "--around", "-1"], "there is no test image -1: --around takes 0 to 399"),
        (["surface", "low", "--points", "1"], "at least 2 points along each axis, got 1"),
        (["surface", "low", "--reach", "0", "1"], "--reach must be a positive number, got 0.0"),
        (["surface", "low", "--reach", "0"], "--reach takes two numbers, one for each axis, got 1: as --reach 0.1"),
        (["surface", "low", "--scenario", "spatial", "--reach", "9"], "for each axis, got 1: as --reach 30 3"),
        (["surface", "low", "--out", ".."], "a figure cannot be written to ..: give it a name"),
        (
            ["surface", "low", "--scenario", "spatial", "--directions", "random"],
            "a spatial surface goes along rotation and translation, not along directions: omit them",
        ),
        (["surface", "low", "low"], "low is named more than once: name each run once"),
        (["report", "low", "./low"], "low is named more than once: name each run once"),
        (["surface", "low", "--out", "a.jpeg"], "a.jpeg: give it a name that ends with .png, .pdf, .svg, or"),
        (["surface", "low", "--out", ".png"], "cannot be written to .png: give it a name that ends with .png, .pdf"),
        (["surface", "low", "--out", "low/log.jsonl/a.png"], "could not write low/log.jsonl/a.png ("),
        (["surface", "low", "--device", "gpu"], "there is no device 'gpu' on this machine"),
        (["curve"], "curve needs a kind (perturbation, unlabeled, lambda, time, training) and directories of runs"),
        (["curve", "training"], "curve needs a kind"),
        (["curve", "--columns", "2", "training", "mine"], "curve needs a kind"),
        (["curve", "lamda", "low"], "there is no curve 'lamda', did you mean 'lambda'? (there are perturbation, "),
        (["curve", "training", "absent"], "absent holds no run"),
        (["curve", "training", "low", "--show", "los"], "the log holds no 'los' (there are standard, robust, rate, "),
        (
            ["curve", "lambda", "low", "--images=5"],
            "--images would do nothing, for it is for curve perturbation: draw",
        ),
        (["curve", "time", "low", "--budget.eps", "0.1"], "--budget.eps would do nothing"),
        (["curve", "lambda", "low", "--unit", "seconds"], "--unit would do nothing, for it is for curve time: draw"),
        (["curve", "time", "low", "--show", "rate"], "--show would do nothing, for it is for curve training: draw"),
        (["curve", "training", "low", "--columns", "0"], "--columns must be at least 1, got 0"),
        (["curve", "lambda", "low", "--attacks", "gridadv"], "evaluate low --attacks gridadv --images 20` adds it"),
        (["curve", "lambda", "low", "--attacks", "pg"], "there is no attack 'pg', did you mean 'pgd'?"),
        (["curve", "training", "low", "--attacks", "pgd"], "logs hold no attacks: leave --attacks out"),
        (
            ["curve", "perturbation", "low", "--attacks", "clean,pgd"],
            "clean is no attack, and where every curve begins, at fraction 0: leave it out of --attacks",
        ),
        (["curve", "perturbation", "low", "--attacks", "pg"], "there is no attack 'pg', did you mean 'pgd'?"),
        (["curve", "perturbation", "low", "--attacks", "jsma"], "the perturbation fraction does not scale jsma"),
        (
            ["curve", "perturbation", "low", "--attacks", "blur", "--budget.blur", "0"],
            "grid of 21: choose an attack in an Linf or an L2 ball, by warps, blur or color, and a budget above 0",
        ),
        (["curve", "perturbation", "low", "--fractions", "0", "2"], "must lie between 0 and 1, got 0.0, 2.0"),
        (["curve", "perturbation", "low", "--images", "0"], "--images must be at least 1, got 0"),
        (
            ["curve", "perturbation", "low", "--attacks", "gridadv", "--against", "eps"],
            "gridadv does not keep to an Linf ball, so it has no eps: use --against fraction",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(words, sentence, runs, refused):
    assert sentence in refused(*words)


def test_the_command_that_adds_a_missing_attack_keeps_to_the_budget_of_the_report(runs, refused, capsys):
    main(["evaluate", "low", "--attacks", "pgd", "--budget.eps", "0.05", "--images", "10", "--device", "cpu"])
    capsys.readouterr()
    command = refused("curve", "lambda", "low", "--attacks", "fgsm").split("`")[1]
    assert command == "unperturbed evaluate low --attacks fgsm --budget.eps 0.05 --images 10"
    main(shlex.split(command)[1:])
    assert {result.name for result in read(runs / "low" / "report.json").attacks} == {"pgd", "fgsm"}


def test_a_folder_that_a_figure_cannot_be_written_to_is_refused_before_any_work(runs, refused, monkeypatch):
    def unexpected(*_, **__):
        raise AssertionError("work was done before the output was looked at")

    monkeypatch.setattr("unperturbed.surfaces.values_of", unexpected)
    (runs / "taken.png").mkdir()
    assert "could not write taken.png (it is a directory)" in refused("surface", "low", "--out", "taken.png")
    (runs / "file").write_text("")
    assert "could not write file/a.png (" in refused("surface", "low", "--out", "file/a.png")


def test_a_run_without_weights_says_how_to_finish_it(runs, refused):
    (runs / "low" / "model.safetensors").unlink()
    for words in (["surface", "low"], ["curve", "perturbation", "low", "--attacks", "pgd"]):
        assert "finish it with `unperturbed train --from low/recipe.json --out low`" in refused(*words)


def test_a_run_without_a_report_says_how_to_make_one(runs, refused):
    (runs / "high" / "report.json").unlink()
    assert "make it with `unperturbed evaluate high`" in refused("curve", "lambda", "low", "high")


def test_a_run_without_a_log_is_refused(runs, refused):
    (runs / "low" / "log.jsonl").unlink()
    sentence = "low holds no log of its training (log.jsonl): make it with `unperturbed train --from low/recipe.json "
    assert f"{sentence}--out DIR`" in refused("curve", "training", "low")
    (runs / "low" / "model.safetensors").unlink()
    assert f"{sentence}--out low`" in refused("curve", "training", "low"), "it is not finished, and goes on"


def test_a_report_of_a_newer_version_is_refused(runs, refused):
    newer("low/report.json", format=99)
    sentence = refused("curve", "lambda", "low", "high")
    assert (
        "low/report.json is no report that this version can read (a newer version of unperturbed wrote it" in sentence
    )


def test_a_sweep_of_a_newer_version_is_refused(runs, refused):
    found = {"format": 1, "eps": 0.15, "sweep": [{"fraction": 1.0, "report": {"format": 99}}]}
    for tree in ({"format": 99}, found):
        (runs / "low" / "sweep.json").write_text(json.dumps(tree))
        sentence = refused("curve", "perturbation", "low", "--attacks", "pgd")
        assert "low/sweep.json is no sweep that this version can read (a newer version of unperturbed wr" in sentence
        assert sentence.endswith(": update unperturbed")


def test_a_sweep_that_cannot_be_written_is_refused_before_anything_is_attacked(runs, refused, monkeypatch):
    (runs / "low" / "sweep.json").mkdir()
    monkeypatch.setattr("unperturbed.sweeps.evaluate", pytest.fail)
    sentence = refused("curve", "perturbation", "low", "--attacks", "pgd")
    assert "could not write low/sweep.json (it is a directory)" in sentence


def test_runs_of_different_data_sets_are_refused(runs, refused):
    recipe = json.loads((runs / "high" / "recipe.json").read_text())
    recipe["data"]["name"] = "mnist"
    (runs / "high" / "recipe.json").write_text(json.dumps(recipe))
    for words in (["surface"], ["curve", "lambda"], ["curve", "training"]):
        sentence = refused(*words, "low", "high")
        assert "runs of 2 data sets cannot share a figure" in sentence
        assert "high of mnist" in sentence
        assert "low of digits" in sentence


def test_reports_on_different_images_are_refused(runs, refused, capsys):
    main(["evaluate", "high", "--attacks", "pgd", "--images", "30", "--device", "cpu"])
    capsys.readouterr()
    sentence = refused("curve", "lambda", "low", "high")
    assert "low was evaluated on 20 test images and high on 30: evaluate it on as many" in sentence
    assert refused("curve", "lambda", "high", "low") == sentence, "whichever is named first"
    main([*shlex.split(sentence.split("`")[1])[1:], "--device", "cpu"])
    main(["curve", "lambda", "low", "high", "--out", "cured.png"])
    assert Path("cured.png").is_file()


@pytest.mark.parametrize("kind", ["unlabeled", "lambda", "time"])
def test_a_report_on_weights_that_were_replaced_is_refused_until_they_are_attacked(kind, runs, refused, capsys):
    own = Path("low/model.safetensors").read_bytes()
    Path("low/model.safetensors").write_bytes(Path("high/model.safetensors").read_bytes())
    sentence = refused("curve", kind, "low", "high")
    assert "low/report.json is of other weights than model.safetensors beside it" in sentence
    assert "is of other weights" in refused("report", "low", "high")
    Path("low/model.safetensors").write_bytes(own)
    main(["curve", kind, "low", "high", "--out", "restored.png"])
    Path("low/model.safetensors").write_bytes(Path("high/model.safetensors").read_bytes())
    main([*shlex.split(sentence.split("`")[1])[1:], "--attacks", "pgd", "--images", "20", "--device", "cpu"])
    main(["curve", kind, "low", "high", "--out", "cured.png"])
    assert Path("cured.png").is_file()


def test_a_report_does_not_mind_what_its_weights_say_of_their_use_nor_that_they_are_gone(runs):
    tensors = safetensors.torch.load_file("low/model.safetensors")
    safetensors.torch.save_file(tensors, "low/model.safetensors", {"said by": "another version"})
    main(["curve", "lambda", "low", "high", "--out", "renamed.png"])
    Path("low/model.safetensors").unlink()
    main(["curve", "lambda", "low", "high", "--out", "gone.png"])


def test_a_report_of_an_earlier_version_learns_its_weights_when_it_is_made_again(runs):
    found = read(Path("low/report.json"))
    tree = json.loads(found.dumps())
    del tree["weights"]
    Path("low/report.json").write_text(json.dumps(tree))
    main(["curve", "lambda", "low", "high", "--out", "earlier.png"])
    main(["evaluate", "low", "--attacks", "pgd", "--images", "20", "--device", "cpu"])
    again = read(Path("low/report.json"))
    assert found.weights
    assert again.weights == found.weights
    assert again["pgd"].seconds == found["pgd"].seconds, "and is not attacked anew"


def test_reports_on_as_many_images_with_other_labels_are_refused(runs, refused):
    found = read(Path("low/report.json"))
    Path("low/report.json").write_text(replace(found, labels=found.labels.flip(0)).dumps())
    sentence = refused("curve", "lambda", "low", "high")
    assert "the test images of high have other labels than those of low: evaluate both again" in sentence


@pytest.mark.parametrize("kind", ["unlabeled", "lambda", "time"])
def test_sets_of_attacks_are_drawn_attack_by_attack(kind, runs, refused, capsys):
    sentence = refused("curve", kind, "low", "--attacks", "clean,quick")
    assert "the report of low does not hold randadv, gridadv" in sentence
    main([*shlex.split(sentence.split("`")[1])[1:], "--device", "cpu"])
    capsys.readouterr()
    main(["curve", kind, "low", "--attacks", "clean,quick", "--json"])
    titles = [panel["title"] for panel in json.loads(capsys.readouterr().out)]
    assert titles == ["no attack", "FGSM", "PGD", "RandAdv", "GridAdv"]


def test_attacks_that_go_to_different_budgets_are_refused(runs, refused, capsys):
    main(["evaluate", "high", "--attacks", "pgd", "--images", "20", "--budget.eps", "0.2", "--device", "cpu"])
    capsys.readouterr()
    sentence = refused("curve", "lambda", "low", "high", "--attacks", "pgd")
    assert "pgd goes to" in sentence
    assert "evaluate both with one budget" in sentence


def test_attacks_of_one_budget_that_search_otherwise_are_refused_with_what_they_differ_by(runs, refused, capsys):
    for run, steps in (("low", 1), ("high", 2)):
        size = ["--budget.rotation", "1", "--budget.translation", "0", "--budget.steps", str(steps)]
        main(["evaluate", run, "--attacks", "pgd+", "--images", "20", *size, "--device", "cpu"])
    capsys.readouterr()
    sentence = refused("curve", "lambda", "low", "high", "--attacks", "pgd+")
    assert "pgd+ goes to steps=2 in the report of high and to steps=1 in that of low" in sentence


@pytest.mark.parametrize("marked", [False, True])
def test_lines_and_marks_look_different_from_each_other(marked):
    looks = [tuple(figures.look(number, marked=marked).values()) for number in range(16)]
    assert len({*looks}) == 16


@pytest.mark.parametrize("words", ["$x^{$", "_hidden", "a\nb\x1b[31m", "\\frac{", "<script>"])
def test_names_of_strangers_are_shown_as_text(words):
    panel = Panel(title=words, x_label="x", y_label="y", lines=(Line(label=words, x=(0.0, 1.0), y=(0.0, 1.0)),))
    assert rendered(draw_panels([panel]), "png")
    assert as_text(words).isprintable()


def flat_surface(value):
    return Surface(
        values=torch.full((3, 3), 0.0 if value == "loss" else 1.0),
        down=torch.tensor([-1.0, 0.0, 1.0]),
        across=torch.tensor([-1.0, 0.0, 1.0]),
        value=value,
        scenario="spatial",
        index=0,
        label=0,
        axes=("rotation (degrees)", "translation (pixels)"),
    )


@pytest.mark.parametrize("value", ["decision", "loss"])
def test_a_surface_without_any_relief_is_drawn(value):
    assert rendered(draw_surfaces({"flat": flat_surface(value)}), "png")


@pytest.mark.parametrize(("reach", "radius"), [((0.1, 0.1), 0.1), ((0.1, 0.3), 0.1), ((0.2, 0.05), 0.05)])
def test_the_diamond_is_a_ball_however_far_the_axes_go(reach, radius):
    down, across = (torch.tensor([-far, 0.0, far]) for far in reach)
    figure = draw_surfaces({"x": replace(flat_surface("decision"), scenario="pixel", down=down, across=across)})
    _, flat, _ = figure.subfigs[0].axes
    along, up = flat.lines[0].get_data()
    assert [abs(s) + abs(t) for s, t in zip(up, along, strict=True)] == pytest.approx([radius] * 5)


@pytest.mark.parametrize("value", ["decision", "loss"])
def test_a_surface_with_gaps_is_drawn_and_told(value):
    gaps = torch.tensor([[0.5, nan, nan], [0.25, 0.5, 0.75], [0.5, 0.5, 0.5]])
    found = replace(flat_surface(value), values=gaps)
    assert rendered(draw_surfaces({"gaps": found}), "png")
    assert spoken(found).endswith("; 2 of 9 points have no finite value")
    assert "nan" not in spoken(found)


def test_right_answers_are_red_and_wrong_ones_blue():
    values = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
    scale = figures.Scale([replace(flat_surface("decision"), values=values)])
    red, _, blue, _ = scale.colors(scale.norm(0.9))
    assert red > 2 * blue
    red, _, blue, _ = scale.colors(scale.norm(-0.9))
    assert blue > 2 * red


@pytest.mark.parametrize(
    ("out", "files"),
    [("a", ["a.png", "a.pdf"]), ("b/a.PNG", ["b/a.PNG"]), ("a.pdf", ["a.pdf"]), ("a.svg", ["a.svg"])],
)
def test_the_ending_of_a_name_decides_what_is_written(out, files):
    assert files_for(Path(out)) == [Path(file) for file in files]
