"""The command line: what it does, what it prints where, and how it says no."""

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch

import unperturbed
from evaluated_runs import write_card
from tiny import NETWORK
from unperturbed import recipe as recipe_files
from unperturbed.cli import COMMANDS, main
from unperturbed.cli.wrong_options import LISTS
from unperturbed.models import DigitsCNN
from unperturbed.neighborhoods import Affine, Blur, Color, Composed, Linf, Spatial, TurnThenShift
from unperturbed.objectives import SRT
from unperturbed.recipes import RECIPES, named, usual_budget
from unperturbed.recipes.against import against
from unperturbed.recipes.budgets import SETS, Budget
from unperturbed.recipes.words import DEFENSES
from unperturbed.report import read
from unperturbed.selection import Selection
from unperturbed.solvers import NFGSM, PGD, Grid, Strongest, WorstOfK
from unperturbed.trainer import Trainer

RECIPE = "digits-pixel-srt"
MNIST_SRT = Path(__file__).parent.parent / "examples" / "mnist-srt"
SEVERAL = [
    "digits-pixel-standard",
    "digits-pixel-vat",
    "digits-compound-at-average",
    "mnist-pixel-trades",
    "mnist-pixel-uat-plusplus",
    "mnist-compound-srt",
    "cifar10-pixel-srt-fast",
    "cifar10-spatial-klr",
]
"""recipes that together hold every kind of part"""
USUAL = "what is not given is as usual on the data set of"
"""of budgets: no number that a help shows holds for all data"""
TINY = ["--steps", "5", "--batch", "40", *NETWORK, "--device", "cpu"]


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """Every test works in an empty folder, in 80 columns and without what the user's environment says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for variable in ("UNPERTURBED_DATA", "UNPERTURBED_TRACEBACK", "FORCE_COLOR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a finished run of five steps."""
    out = tmp_path_factory.mktemp("trained") / "run"
    main(["train", RECIPE, "--out", str(out), *TINY])
    return out


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of that directory."""
    return Path(shutil.copytree(trained, tmp_path / "finished"))


@pytest.fixture
def rejected(capsys):
    """Runs a command whose options cannot be read, and returns what stands on stderr."""

    def run(*words):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        assert stop.value.code == 2
        seen = capsys.readouterr()
        assert seen.out == ""
        return seen.err

    return run


def weights(directory):
    return safetensors.torch.load_file(directory / "model.safetensors")


def same_weights(one, other):
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def steps_in_log(directory):
    return [json.loads(line)["step"] for line in (directory / "log.jsonl").read_text().splitlines()]


def test_help_and_an_empty_line_name_every_command(capsys):
    for words in ([], ["-h"], ["--help"]):
        main(words)
        seen = capsys.readouterr().out
        assert all(f"\n  {command}" in seen for command in COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        "train digits-pixel-srt --out",
        "train --from",
        "evaluate",
        "report",
        "surface",
        "predict trained",
        "demo --out",
    ],
)
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(words, trained):
    words = words.replace("trained", str(trained))
    with pytest.raises(SystemExit) as stop:
        main([*words.split(), "a" * 300])
    found = (
        r"unperturbed: could not use a{300}.* \(File name too long\): put that right, and the same command goes on"
    )
    assert re.fullmatch(found, str(stop.value.code))


def test_the_version_is_that_of_the_package(capsys):
    main(["--version"])
    assert capsys.readouterr().out.strip() == unperturbed.__version__
    main(["--help"])
    assert "--version" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train"], ["--out", "--steps", "--objective.weight", "lambda, the price of robust risk", "--dry-run"]),
        (["train", "mnist-spatial-srt"], ["--objective.solver.around.rotation", "largest rotation in degrees"]),
        (["evaluate"], ["--attacks", "--budget.eps", "--json", "names separated by commas", USUAL]),
        (["predict"], ["--attacks", "--budget.eps", USUAL]),
        (["surface"], ["--around", "--scenario", "number of the test image, from 0"]),
        (["curve"], ["--fractions", "--show", "--budget.eps", "panels side by side", USUAL]),
        (["list"], ["--json"]),
        (["demo"], ["--out", "--seed"]),
    ],
    ids=["train", "train a recipe", "evaluate", "predict", "surface", "curve", "list", "demo"],
)
def test_each_command_has_help_made_of_its_fields(words, expected, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    seen = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"usage: unperturbed {words[0]}" in seen
    assert all(word in seen for word in expected)


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_help_names_every_set_of_attacks(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    seen = " ".join(capsys.readouterr().out.replace("│", " ").split())
    named_there = re.search(r"names separated by commas, or of sets: ([a-z, ]+);", seen)[1].split(", ")
    assert sorted(named_there) == sorted([*SETS, "all"])


def test_help_shows_the_numbers_of_the_recipe_that_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["train", "cifar10-pixel-srt", "--help"])
    assert "(default: 46875)" in capsys.readouterr().out


@pytest.mark.parametrize("command", list(COMMANDS))
@pytest.mark.parametrize("columns", [60, 100])
def test_help_is_no_wider_than_the_terminal_and_breaks_where_that_ends(command, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main([command, "--help"])
    usage, _, *lines = capsys.readouterr().out.splitlines()
    assert usage.startswith("usage: ")
    assert max(map(len, lines)) <= columns


def test_help_of_an_option_does_not_break_where_its_source_does(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    lines = [line.strip(" |│") for line in capsys.readouterr().out.splitlines()]
    place = lines.index("separated by commas, searched together in place of")
    assert lines[place + 1] == "what the recipe searches, as far as `evaluate`"


def test_list_names_every_recipe_in_full(capsys):
    main(["list"])
    printed = capsys.readouterr().out
    assert "…" not in printed and "labeled unlabeled" in printed
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    assert set(RECIPES) <= set(rows)
    assert rows["cifar10-spatial-worst-of-k"] == ["ResNet", "AT", "10,000", "0", "80,000"]
    assert rows["mnist-pixel-srt"] == ["SmallCNN", "SRT", "10,000", "the", "rest", "56,250"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["defenses"], DEFENSES),
        (["attacks"], [*Budget().attacks(), *SETS]),
        (["attacks", "--data", "cifar10"], ["0.031,"]),
        (["parts"], ["Linf,", "PGD,", "SRT,", "WideResNet"]),
    ],
)
def test_list_names_defenses_attacks_and_parts(words, expected, capsys):
    main(["list", *words])
    assert set(expected) <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize("kind", ["recipes", "defenses", "attacks", "experiments", "parts"])
def test_lists_break_no_word_however_narrow_the_terminal_is(kind, monkeypatch, capsys):
    def listed(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        main(["list", kind])
        return capsys.readouterr().out

    words = {word for line in listed(400).splitlines()[1:] for word in line.split()}
    for columns in (32, 40, 60, 76, 77, 80, 118):
        narrow = listed(columns)
        assert max(map(len, narrow.splitlines())) <= columns
        assert words <= {form for word in narrow.split() for form in (word, word.rstrip(";"))}, columns


def test_there_is_no_list_of_anything_else(refused):
    assert "there is no list of 'models' (there are recipes, defenses, attacks, experiments, parts)" in refused(
        "list", "models"
    )


def test_recipes_of_one_data_set_are_listed_alone(capsys, refused):
    main(["list", "recipes", "--data", "mnist"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [
        name for name, each in RECIPES.items() if each.data.name == "mnist"
    ]
    main(["list", "--json", "--data", "digits"])
    assert {row["recipe"].split("-")[0] for row in json.loads(capsys.readouterr().out)["recipes"]} == {"digits"}
    assert "recipes are for digits, mnist and cifar10" in refused("list", "--data", "other")
    assert "there is one list of parts for all data: leave --data out" in refused("list", "parts", "--data", "mnist")


def test_list_for_machines_is_json_and_nothing_else(capsys):
    main(["list", "--json"])
    assert [row["recipe"] for row in json.loads(capsys.readouterr().out)["recipes"]] == list(RECIPES)
    main(["list", "--json", "--data", "digits"])
    listed = json.loads(capsys.readouterr().out)
    assert {row["attack"]: row["budget"] for row in listed["attacks"]}["fgsm"] == "Linf 0.15"
    assert listed["attack_sets"]["quick"] == ["fgsm", "pgd", "randadv", "gridadv"]
    assert "SRT" in listed["objectives"]


def test_a_dry_run_prints_the_resolved_recipe_and_does_nothing(capsys, tmp_path):
    main(["train", RECIPE, "--dry-run"])
    seen = capsys.readouterr()
    assert recipe_files.loads(seen.out) == named(RECIPE)
    assert seen.err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", SEVERAL)
def test_a_recipe_goes_through_the_command_line_unchanged(name, capsys, tmp_path):
    main(["train", name, "--dry-run"])
    text = capsys.readouterr().out
    assert recipe_files.loads(text) == RECIPES[name]
    (tmp_path / "recipe.json").write_text(text)
    main(["train", "--from", str(tmp_path / "recipe.json"), "--dry-run"])
    assert capsys.readouterr().out == text


def test_any_field_of_a_recipe_is_overridden_by_its_name(capsys):
    options = {
        "--name": "mine",
        "--steps": "7",
        "--seed": "3",
        "--objective.weight": "0.5",
        "--objective.forward": "together",
        "--objective.solver.steps": "4",
        "--objective.solver.around.eps": "0.05",
        "--optimizer.rate.peak": "0.3",
        "--optimizer.momentum": "0.8",
        "--ramp.over": "0.25",
        "--data.labeled": "50",
        "--data.unlabeled": "200",
        "--data.split": "first",
    }
    main(["train", RECIPE, "--dry-run", "--data.flip", *(word for pair in options.items() for word in pair)])
    recipe = recipe_files.loads(capsys.readouterr().out)
    default = named(RECIPE)
    solver = default.objective.solver
    assert recipe == replace(
        default,
        name="mine",
        steps=7,
        seed=3,
        objective=replace(
            default.objective,
            weight=0.5,
            forward="together",
            solver=replace(solver, steps=4, around=replace(solver.around, eps=0.05)),
        ),
        optimizer=replace(default.optimizer, rate=replace(default.optimizer.rate, peak=0.3), momentum=0.8),
        ramp=replace(default.ramp, over=0.25),
        data=replace(default.data, labeled=50, unlabeled=200, split="first", flip=True),
    )


def test_parts_that_a_recipe_may_lack_are_edited_where_it_has_them(capsys, tmp_path):
    teacher = replace(named(RECIPE).teacher, model=DigitsCNN(channels=(2, 2, 2), hidden=4))
    recipe = replace(named("digits-pixel-srt-fast"), labeler="teacher", teacher=teacher)
    (tmp_path / "recipe.json").write_text(recipe_files.dumps(recipe))
    words = ["--teacher.model.hidden", "6", "--validation.solver.around.eps", "8/255"]
    main(["train", "--from", str(tmp_path / "recipe.json"), "--dry-run", *words])
    edited = recipe_files.loads(capsys.readouterr().out)
    assert edited.teacher.model == replace(teacher.model, hidden=6)
    assert edited.validation.solver == replace(recipe.validation.solver, around=Linf(eps=8 / 255))


def test_a_run_that_its_guard_ends_is_not_said_to_have_taken_all_steps(capsys, monkeypatch):
    accuracies = iter([0.9, 0.8, 0.2])
    monkeypatch.setattr(Selection, "accuracy", lambda *_: next(accuracies))
    main(["train", "digits-pixel-srt-fast", "--against", "color", "--validation.every", "1", "--out", "run", *TINY])
    seen = capsys.readouterr()
    assert (
        "trained digits-pixel-srt-fast-against-color for 3 of 5 steps; next: unperturbed evaluate run\n" in seen.out
    )
    assert "fell from 90.0% (step 1) to 20.0% (step 3)" in seen.err
    assert "try NFGSM or PGD in the place of FGSM, or lower objective.weight or the learning rate" in seen.err


def test_a_run_that_chooses_its_weights_says_which_it_kept_and_ends_with_its_patience(capsys, monkeypatch):
    accuracies = iter([0.25, 0.75, 0.5])
    monkeypatch.setattr(Selection, "accuracy", lambda *_: next(accuracies))
    words = ["--data.validation", "20", "--validation.every", "1", "--validation.patience", "1"]
    main(["train", RECIPE, "--out", "run", *words, *TINY])
    seen = capsys.readouterr()
    kept = "kept the weights of step 2, by which 75.0% of the held-out images stand"
    assert seen.out == f"trained {RECIPE} for 3 of 5 steps and {kept}; next: unperturbed evaluate run\n"
    assert "warning" not in seen.err


def test_of_one_step_and_one_image_the_singular_is_told(capsys):
    main(["train", RECIPE, "--out", "run", *TINY, "--steps", "1"])
    assert f"trained {RECIPE} for 1 step; next" in capsys.readouterr().out
    main(["evaluate", "run", "--images", "1", "--attacks", "fgsm", "--device", "cpu"])
    assert "1 image, R_stand" in capsys.readouterr().out
    main(["report", "run", "--out", "page.html", "--no-surfaces", "--images", "1", "--device", "cpu"])
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<small>1 image</small>" in page and "1 test image, as many of each class" in page
    assert not re.search(r"\b1 images", page)


def test_training_writes_a_run_and_says_what_comes_next(capsys, tmp_path):
    out = tmp_path / "some" / "where"
    main(["train", RECIPE, "--out", str(out), *TINY])
    seen = capsys.readouterr()
    assert seen.out == f"trained {RECIPE} for 5 steps; next: unperturbed evaluate {out}\n"
    assert {path.name for path in out.iterdir()} == {"recipe.json", "log.jsonl", "checkpoint.pt", "model.safetensors"}
    assert recipe_files.read(out / "recipe.json").steps == 5
    assert f"{RECIPE}: step 5 of 5, loss " in seen.err
    assert "\x1b" not in seen.err


def test_without_a_directory_a_run_lies_under_its_name(tmp_path):
    main(["train", RECIPE, "--name", "mine", *TINY])
    assert (tmp_path / "runs" / "mine" / "model.safetensors").is_file()


def test_a_run_can_be_made_again_from_its_recipe(finished, tmp_path):
    main(["train", "--from", str(finished / "recipe.json"), "--out", str(tmp_path / "again"), "--device", "cpu"])
    assert same_weights(finished, tmp_path / "again")
    assert (finished / "recipe.json").read_bytes() == (tmp_path / "again" / "recipe.json").read_bytes()


def test_a_finished_run_given_twice_stays_as_it_is(finished, trained):
    main(["train", RECIPE, "--out", str(finished), *TINY])
    assert same_weights(finished, trained)
    assert steps_in_log(finished) == [5]


def test_an_interrupted_run_says_so_and_goes_on_with_the_same_command(trained, tmp_path, monkeypatch, capsys):
    advance = Trainer.advance

    def stop_at_the_fourth_step(self):
        if self.step == 3:
            raise KeyboardInterrupt
        return advance(self)

    command = ["train", RECIPE, "--out", str(tmp_path / "run"), *TINY, "--checkpoint-seconds", "0"]
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(Trainer, "advance", stop_at_the_fourth_step)
        main(command)
    assert stop.value.code == 130
    assert "stopped; the same command goes on from what is on disk" in capsys.readouterr().err
    assert not (tmp_path / "run" / "model.safetensors").exists()
    taken = []
    monkeypatch.setattr(Trainer, "advance", lambda self: taken.append(self.step) or advance(self))
    main(command)
    assert taken == [3, 4]
    assert same_weights(tmp_path / "run", trained)


def test_several_recipes_are_trained_side_by_side_as_if_each_were_alone(trained, tmp_path, capsys):
    other = "digits-spatial-srt"
    main(["train", RECIPE, other, "--together", "--out", str(tmp_path / "both"), *TINY])
    assert capsys.readouterr().out.count("next: unperturbed evaluate") == 2
    assert same_weights(tmp_path / "both" / RECIPE, trained)
    main(["train", other, "--out", str(tmp_path / "alone"), *TINY])
    assert same_weights(tmp_path / "both" / other, tmp_path / "alone")
    assert steps_in_log(tmp_path / "both" / other) == [5]


def test_one_of_several_runs_that_ends_early_is_kept_when_another_breaks_down(trained, tmp_path, monkeypatch):
    advance = Trainer.advance

    def break_down_late(self):
        if self.recipe.objective == named("digits-spatial-srt").objective and self.step == 4:
            raise KeyboardInterrupt
        return advance(self)

    command = ["train", RECIPE, "digits-spatial-srt", "--together", *TINY, "--checkpoint-seconds", "0"]
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Trainer, "advance", break_down_late)
        main(command)
    assert steps_in_log(tmp_path / "runs" / RECIPE) == [5]
    main(command)
    assert same_weights(tmp_path / "runs" / RECIPE, trained)
    assert (tmp_path / "runs" / "digits-spatial-srt" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "words",
    [
        [RECIPE, "--labeler", "teacher", "--teacher.steps", "5"],
        ["digits-pixel-uat-ft", "--teacher.steps", "5"],
        [RECIPE, "--data.validation", "20", "--validation.every", "5"],
        [RECIPE, "digits-pixel-srt-fast", "--together", "--validation.every", "5"],
    ],
)
def test_options_of_parts_that_a_recipe_uses_are_taken(words, capsys):
    main(["train", *words, "--dry-run"])
    assert capsys.readouterr().out.count('": 5,') >= 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([RECIPE, "digits-pixel-at"], "2 recipes are named: add --together"),
        ([RECIPE, RECIPE, "--together"], "a recipe is named twice"),
        ([RECIPE, "digits-pixel-atr", "--together"], "did you mean"),
        ([RECIPE, "digits-pixel-at", "--together", "--batch", "200"], "digits-pixel-at: batch of 200 is larger than"),
        ([RECIPE, "--microbatch", "0"], "microbatch must be at least 1, got 0"),
        ([RECIPE, "--microbatch", "2"], "--microbatch 2 cuts a batch of 100 into 50 parts"),
        (
            [RECIPE, "--teacher.steps", "5"],
            "--teacher.steps would do nothing, for there is no teacher: add --labeler",
        ),
        ([RECIPE, "--validation.every=5"], "--validation.every would do nothing, for no labels are held out: set"),
        (
            [RECIPE, "--unlabeled=a.npy", "--data.unlabeled_files", "b.npy"],
            "--data.unlabeled-files would do nothing, for --unlabeled names such files too: name all of them there",
        ),
        ([RECIPE, "--device", "cuda:99"], "there is no device 'cuda:99' on this machine"),
    ],
)
def test_runs_that_cannot_be_made_are_refused_before_anything_is_written(refused, words, sentence, tmp_path):
    assert sentence in refused("train", *words)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "..", "a/b"])
def test_a_recipe_whose_name_leads_elsewhere_needs_a_directory(refused, name, tmp_path):
    file = tmp_path / "evil.json"
    file.write_text(recipe_files.dumps(replace(named(RECIPE), name=name)))
    assert "is no name for a directory: name one by --out" in refused("train", "--from", file, *TINY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.json"]


def test_a_batch_that_does_not_fit_into_memory_is_answered_with_one_that_does(refused, monkeypatch):
    def full(self):
        raise MemoryError("128 images at a time do not fit into the memory of cpu, 64 do: add --microbatch 64")

    monkeypatch.setattr(Trainer, "advance", full)
    assert "add --microbatch 64" in refused("train", RECIPE, *TINY)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 3840000000000 bytes."),
            "not enough memory for another 3,576.28 GiB: ask for less",
        ),
        (
            torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has a total capacity of …"
            ),
            "not enough memory for another 20.00 GiB: ask for less",
        ),
        (RuntimeError("Storage size calculation overflowed with sizes=[9]"), "not enough memory: ask for less"),
        (MemoryError(), "not enough memory: ask for less"),
        (
            RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in …"),
            "the GPU has no memory left: end other processes that use it, or choose another --device",
        ),
    ],
    ids=["host", "GPU", "beyond all", "Python", "GPU of others"],
)
def test_where_memory_runs_out_one_sentence_says_so(refused, monkeypatch, error, sentence):
    def full(self):
        raise error

    monkeypatch.setattr(Trainer, "advance", full)
    assert sentence in refused("train", RECIPE, *TINY)
    monkeypatch.setenv("UNPERTURBED_TRACEBACK", "1")
    with pytest.raises(type(error)):
        main(["train", RECIPE, "--out", "again", *TINY])


def test_an_error_that_should_not_have_happened_keeps_its_traceback(monkeypatch):
    def broken(self):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(Trainer, "advance", broken)
    with pytest.raises(RuntimeError, match="no such thing"):
        main(["train", RECIPE, *TINY])


def test_the_precision_of_training_is_a_field_of_the_recipe_and_said_where_it_cannot_be_had(tmp_path, capsys):
    main(["train", RECIPE, "--out", str(tmp_path / "run"), *TINY, "--precision", "bfloat16"])
    assert "bfloat16 is for GPUs that compute with it: on the cpu, float32 is used instead" in capsys.readouterr().err
    assert '"precision": "bfloat16"' in (tmp_path / "run" / "recipe.json").read_text()


def test_the_directory_of_another_recipe_is_refused_untouched(refused, finished, trained):
    sentence = refused("train", RECIPE, "--out", finished, *TINY, "--objective.weight", 0.125)
    assert "holds a run of another recipe (objective.weight is " in sentence
    assert "there and 0.125 here): name another --out" in sentence
    assert same_weights(finished, trained)


@pytest.mark.parametrize(("name", "written"), [("my läufe", "'my läufe'"), ("-mine", "./-mine")])
def test_what_train_says_comes_next_can_be_copied_into_a_shell(finished, capsys, name, written):
    beside = finished.rename(name)
    main(["train", "--from", f"{beside}/recipe.json", f"--out={beside}", "--device", "cpu"])
    assert capsys.readouterr().out.endswith(f"next: unperturbed evaluate {written}\n")


def test_weights_that_are_cut_off_are_written_again_by_the_command_that_is_named(finished, trained, refused):
    (finished / "model.safetensors").write_bytes((finished / "model.safetensors").read_bytes()[:-100])
    command = f"unperturbed train --from {finished / 'recipe.json'} --out {finished}"
    assert f"`{command}` writes them again" in refused("evaluate", finished)
    main(command.split()[1:])
    assert same_weights(finished, trained)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["evaluate", "a", "b", "c"],
            "evaluate attacks one run at a time, got 3 directories: call it for each of them",
        ),
        (
            ["train", "runs/a/recipe.json"],
            "'runs/a/recipe.json' is a file and no recipe's name: read it by `unperturbed t",
        ),
        (
            ["train", "my own.npz"],
            "'my own.npz' is a data set and no recipe's name: name one (`unperturbed list`), and the data set behind "
            "it by --data.name 'my own.npz'",
        ),
        (
            ["train", RECIPE, "--checkpoint-seconds", "-1"],
            "--checkpoint-seconds must be a finite number of at least 0",
        ),
        (
            ["train", RECIPE, "--checkpoint-seconds", "nan"],
            "--checkpoint-seconds must be a finite number of at least 0",
        ),
        (["train", RECIPE, "--unlabeled", "a.npy", "--unlabeled=b.npy"], "--unlabeled is given twice, and the last"),
    ],
)
def test_a_slip_is_answered_with_what_to_write(refused, words, sentence):
    assert sentence in refused(*words)
    assert not Path("runs").exists()


def test_a_trust_card_looks_at_the_warps_of_the_budget(monkeypatch):
    evaluating, seen = import_module("unperturbed.cli.evaluate"), {}
    monkeypatch.setattr(evaluating, "examine", lambda *_, **words: seen.update(words))
    command = evaluating.Evaluate(budget=replace(usual_budget("digits"), interpolations=2, fraction=0.5))
    evaluating.trusted(command, None, None, SimpleNamespace(attacks=(), labels=None), None)
    assert seen["spatial"] == TurnThenShift(rotation=15.0, translation=0.5)


def test_the_time_for_a_trust_card_is_checked_before_any_attack(refused, finished):
    sentence = refused("evaluate", finished, "--trust", "--trust-seconds", "-1")
    assert "--trust-seconds must be a positive number, got -1.0" in sentence
    assert not (finished / "report.json").exists()


def test_the_time_for_a_trust_card_that_nobody_asked_for_is_refused(refused, finished):
    sentence = refused("evaluate", finished, "--trust-seconds", "60")
    assert "--trust-seconds would do nothing, for no trust card was asked for: add --trust, or omit it" in sentence
    assert not (finished / "report.json").exists()


@pytest.mark.parametrize("field", ["eps", "fraction"])
def test_a_trust_card_within_nothing_is_refused_before_any_attack(refused, finished, field):
    words = ["--trust", f"--budget.{field}", 0, "--images", 10]
    assert "--trust looks around each image" in refused("evaluate", finished, *words)
    assert not (finished / "report.json").exists()


def test_evaluation_prints_a_table_and_writes_a_report(finished, capsys):
    main(["evaluate", str(finished), "--attacks", "pgd,gridadv.r", "--images", "30", "--device", "cpu"])
    seen = capsys.readouterr()
    report = read(finished / "report.json")
    after = f"kept in {finished / 'report.json'}; next: unperturbed report {finished}"
    assert seen.out == f"{report.table()}\n{after}\n"
    assert [result.name for result in report.attacks] == ["pgd", "gridadv.r"]
    assert len(report.labels) == 30
    assert recipe_files.plain(recipe_files.read(finished / "recipe.json")) == report.recipe
    assert f"{RECIPE}: pgd, 30 of 30 images, " in seen.err
    assert "\x1b" not in seen.out + seen.err


def test_evaluation_runs_the_quick_attacks_unless_others_are_named(finished):
    main(["evaluate", str(finished), "--images", "4", "--device", "cpu"])
    assert [result.name for result in read(finished / "report.json").attacks] == list(SETS["quick"])


def test_what_a_run_was_trained_against_is_tried_too_or_said_not_to_be(finished, capsys):
    kinds = (Linf(eps=0.1), Composed(parts=(Blur(), Spatial())), Affine())
    objective = SRT(solver=Strongest(solvers=tuple(WorstOfK(around=around) for around in kinds)))
    recipe = replace(recipe_files.read(finished / "recipe.json"), objective=objective)
    (finished / "recipe.json").write_text(recipe_files.dumps(recipe))
    main(["evaluate", str(finished), "--images", "4", "--device", "cpu"])
    assert [result.name for result in read(finished / "report.json").attacks] == [*SETS["quick"], "blur"]
    sentence = (
        f"this run was trained against {Affine()}, which none of these attacks tries: up.attacks.random(Affine("
    )
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--against", "warps,blur"], ["--against=blur", "--against", "warps, blur"]])
def test_a_recipe_is_pointed_at_several_perturbations_within_the_budget_of_its_data(words, capsys):
    main(["train", RECIPE, "--data.name", "my.npz", *words, "--objective.weight", "0.5", "--dry-run"])
    recipe = recipe_files.loads(capsys.readouterr().out)
    around = Composed(parts=(Spatial(rotation=30.0, translation=3.0), Blur(sigma=1.0)))
    assert recipe.objective == SRT(solver=WorstOfK(around=around), weight=0.5, forward="together")
    assert (recipe.name, recipe.ramp) == (f"{RECIPE}-against-warps-blur", named(RECIPE).ramp)


def test_pixels_and_warps_together_are_what_srt_plus_is_trained_against():
    pointed = against(named("cifar10-pixel-srt"), "pixels,warps", usual_budget("cifar10"))
    plus = named("cifar10-compound-srt")
    assert (pointed.objective, pointed.ramp) == (plus.objective, plus.ramp)
    alone = against(named("cifar10-pixel-srt"), "pixels", usual_budget("cifar10"))
    assert (alone.objective, alone.ramp) == (named("cifar10-pixel-srt").objective, named("cifar10-pixel-srt").ramp)


def test_fast_srt_keeps_its_single_step_over_pixels_and_its_guard_takes_several():
    fast, budget = named("digits-pixel-srt-fast"), Budget()
    alone = against(fast, "pixels", budget)
    assert alone.objective.solver == replace(fast.objective.solver, around=Linf(eps=8 / 255))
    assert alone.validation.solver == PGD(around=Linf(eps=8 / 255), steps=20, step_size=2 / 255)
    noisy = against(named("digits-pixel-srt-fast-noise"), "blur,pixels", budget)
    assert noisy.objective.solver.stages == (NFGSM(around=Linf(eps=8 / 255)), WorstOfK(around=Blur()))
    assert noisy.validation.solver.stages == (alone.validation.solver, WorstOfK(around=Blur()))


def test_a_recipe_that_is_pointed_elsewhere_once_more_is_named_by_the_last_alone():
    recipe, budget = named(RECIPE), usual_budget("digits")
    again = against(against(recipe, "blur,color", budget), "warps", budget)
    assert again == against(recipe, "warps", budget)
    others = replace(recipe, name="mine-against-all")
    assert against(others, "warps", budget).name == "mine-against-all-against-warps"


def test_an_option_in_the_place_of_perturbations_is_none_of_them(rejected):
    assert "--against: expected a value behind it" in rejected("train", RECIPE, "--against", "--dry-run")
    assert "--against: expected a value behind it" in rejected("train", RECIPE, "--dry-run", "--against")


def test_held_out_images_are_searched_for_the_same_perturbations():
    pointed = against(named("digits-pixel-srt-fast"), "color", usual_budget("digits"))
    assert pointed.validation.solver == pointed.objective.solver == WorstOfK(around=Color())


@pytest.mark.parametrize(
    ("recipe", "names", "sentence"),
    [
        (
            RECIPE,
            "pixels,wraps",
            "--against has no 'wraps', did you mean 'warps'? (there are pixels, warps, blur, color)",
        ),
        (RECIPE, "pixels warps", "--against has no 'pixels warps': put commas between several, as pixels,warps ("),
        (RECIPE, "", "or has a comma too many or a blank behind one, in '': choose of pixels, warps, blur, color"),
        (
            RECIPE,
            "blur,",
            "--against names nothing, or has a comma too many or a blank behind one, in 'blur,': choose",
        ),
        ("digits-pixel-standard", "blur", "--against needs a recipe that searches for perturbations, which digits"),
        ("digits-compound-at-average", "blur", "digits-compound-at-average mixes objectives with one each: choose"),
    ],
)
def test_perturbations_that_are_not_there_or_not_searched_for_are_refused(refused, recipe, names, sentence):
    assert sentence in refused("train", recipe, "--against", names)


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (["--budget.blur", 2], ["--budget.blur"]),
        (["--budget.blur", 2, "--attacks", "blur", "--budget.step-size", 0.1], ["--budget.step-size"]),
        (["--budget.rotation", 5, "--attacks", "pgd", "--trust", "--trust-seconds", "0.001"], []),
        (["--budget.interpolations", 2, "--attacks", "pgd"], ["--budget.interpolations"]),
        (["--budget.interpolations", 2, "--attacks", "gridadv"], []),
        (["--budget.blur", 1, "--budget.color", 1.0], []),
    ],
)
def test_a_budget_that_no_attack_goes_by_is_told(words, idle, finished, capsys):
    with suppress(SystemExit):  # That is too short a time for a card.
        main(["evaluate", str(finished), "--images", "3", "--device", "cpu", *map(str, words)])
    said = [line for line in capsys.readouterr().err.splitlines() if line.endswith(": name other attacks")]
    assert [line.split()[1] for line in said] == idle


def test_a_whole_table_of_the_paper_is_named_by_one_word(finished):
    main(["evaluate", str(finished), "--images", "4", "--device", "cpu", "--attacks", "spatial"])
    names = [result.name for result in read(finished / "report.json").attacks]
    assert names == ["randadv", "gridadv", "randadv.t", "gridadv.t", "randadv.r", "gridadv.r"]


def test_attacks_that_the_report_holds_already_are_not_run_again(finished, capsys):
    command = ["evaluate", str(finished), "--images", "10", "--device", "cpu", "--attacks"]
    main([*command, "fgsm"])
    first = read(finished / "report.json")["fgsm"]
    capsys.readouterr()
    main([*command, "fgsm,pgd"])
    seen = capsys.readouterr()
    report = read(finished / "report.json")
    assert [result.name for result in report.attacks] == ["fgsm", "pgd"]
    assert report["fgsm"].seconds == first.seconds
    assert "fgsm" not in seen.err
    assert "fgsm" in seen.out


def test_a_model_that_changed_is_attacked_anew(finished):
    command = ["evaluate", str(finished), "--images", "10", "--device", "cpu", "--attacks"]
    main([*command, "fgsm"])
    changed = {name: 2 * tensor for name, tensor in weights(finished).items()}
    safetensors.torch.save_file(changed, finished / "model.safetensors")
    main([*command, "pgd"])
    assert [result.name for result in read(finished / "report.json").attacks] == ["pgd"]


@pytest.mark.parametrize(
    "change", [["--images", "5"], ["--seed", "1"], ["--budget.eps", "0.2"]], ids=lambda words: words[0]
)
def test_a_report_that_is_replaced_is_kept_under_another_name(finished, capsys, change):
    command = ["evaluate", str(finished), "--images", "10", "--device", "cpu", "--attacks", "fgsm"]
    main([*command[:-1], "fgsm,pgd"])
    before = (finished / "report.json").read_bytes()
    assert "is kept as" not in capsys.readouterr().err
    main([*command, *change])
    (aside,) = finished.glob("report-*.json")
    assert aside.read_bytes() == before
    assert f"it is kept as {aside}" in capsys.readouterr().err
    assert read(finished / "report.json")["fgsm"] is not None


def test_a_trust_card_goes_with_the_report_that_it_was_made_with(finished, capsys):
    command = ["evaluate", str(finished), "--images", "10", "--device", "cpu", "--attacks"]
    main([*command, "fgsm"])
    write_card(finished)
    card = (finished / "trust.json").read_bytes()
    main([*command, "fgsm,randadv"])
    assert (finished / "trust.json").read_bytes() == card
    capsys.readouterr()
    main([*command, "fgsm", "--budget.eps", "0.01"])
    assert not (finished / "trust.json").exists(), "it was made within another budget"
    (aside,) = finished.glob("trust-*.json")
    assert aside.read_bytes() == card
    assert f" with {aside}" in capsys.readouterr().err


def test_attacks_within_different_budgets_are_never_in_one_report(finished, capsys):
    command = ["evaluate", str(finished), "--images", "10", "--device", "cpu", "--attacks"]
    main([*command, "pgd,randadv", "--budget.eps", "0"])
    nowhere = (finished / "report.json").read_bytes()
    main([*command, "fgsm"])
    usual = read(finished / "report.json")
    assert [result.name for result in usual.attacks] == ["randadv", "fgsm"], "RandAdv goes as far under both"
    assert [file.read_bytes() for file in finished.glob("report-*.json")] == [nowhere]
    main([*command, "pgd", "--budget.fraction", "2"])
    assert [result.name for result in read(finished / "report.json").attacks] == ["pgd"]
    capsys.readouterr()
    main([*command, "fgsm,randadv", "--budget.eps", "0.25"])
    assert "worst case of all" in capsys.readouterr().out
    main([*command, "randadv"])
    assert "fgsm" not in capsys.readouterr().out
    assert [result.name for result in read(finished / "report.json").attacks] == ["randadv"], "as it was printed"
    assert len(list(finished.glob("report-*.json"))) == 4


def test_an_interrupted_evaluation_keeps_the_attacks_that_were_done(finished, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    command = ["evaluate", str(finished), "--images", "10", "--device", "cpu", "--attacks", "fgsm,gridadv.r"]
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as exit_:
        patch.setattr(Grid, "__call__", stop)
        main(command)
    assert exit_.value.code == 130
    assert [result.name for result in read(finished / "report.json").attacks] == ["fgsm"]
    main(command)
    assert [result.name for result in read(finished / "report.json").attacks] == ["fgsm", "gridadv.r"]


def test_evaluation_for_machines_is_json_and_nothing_else(finished, capsys):
    main(["evaluate", str(finished), "--attacks", "fgsm", "--images", "10", "--device", "cpu", "--json"])
    assert json.loads(capsys.readouterr().out) == read(finished / "report.json").summary()


def test_the_budget_and_the_seed_of_an_evaluation_are_options(finished):
    options = ["--budget.eps", "0.5", "--budget.steps", "3", "--budget.step-size", "0.25", "--seed", "4"]
    main(["evaluate", str(finished), "--attacks", "pgd", "--images", "10", "--device", "cpu", *options])
    report = read(finished / "report.json")
    assert report["pgd"].budget == "Linf 0.5, 3 steps of 0.25"
    assert report.seed == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--data.validation", "10", "--steps", "400"],
            "digits-pixel-srt: 10 images held out to choose the weights by, but looked at every 500 of 400 steps "
            "alone: lower --validation.every, to 20 for instance",
        ),
        (
            ["--objective.solver.around.eps", "0.5", "--objective.solver.step-size", "0.01"],
            "pixel-srt: the search goes 0.07 in 7 steps of 0.01, less than eps 0.5: take longer steps, or more",
        ),
        ([], ""),
    ],
)
def test_what_is_in_vain_in_a_training_is_said_before_it(options, sentence, capsys):
    main(["train", RECIPE, *options, "--dry-run"])
    told = capsys.readouterr().err
    assert told.count("\n") == bool(sentence) and sentence in told


def test_steps_of_pgd_go_with_the_radius_unless_they_are_named(finished):
    def budget_under(*options):
        main(["evaluate", str(finished), "--attacks", "pgd", "--images", "10", "--device", "cpu", *options])
        return read(finished / "report.json")["pgd"].budget

    usual = usual_budget("digits")
    ours = f"Linf {2 * usual.eps:g}, {usual.steps} steps of {2 * usual.step_size:.4g}"
    assert budget_under("--budget.eps", repr(2 * usual.eps)).startswith(ours)
    named = budget_under("--budget.eps", repr(2 * usual.eps), "--budget.step-size", repr(usual.step_size))
    assert named.startswith(f"Linf {2 * usual.eps:g}, {usual.steps} steps of {usual.step_size:.4g}")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget.eps", "8"], "the scale of pixels, got 8.0: write 8 of 255 as 8/255"),
        (["--budget.eps", "-1"], "--budget.eps must lie between 0 and 1, the scale of pixels, got -1.0 ("),
        (["--budget.eps", "nan"], "--budget.eps must lie between 0 and 1, the scale of pixels, got nan"),
        (["--budget.fraction", "10"], "--budget.fraction 10 times --budget.eps 0.15 is more than 1, the scale of"),
        (["--budget.rotation", "400"], "--budget.rotation must be at most 180, got 400.0: lower it"),
        (
            ["--budget.rotation", "100", "--budget.fraction", "2"],
            "2 times --budget.rotation 100 is more than 180 deg",
        ),
        (["--budget.eps", "1/0"], "expected a number, as 0.03 or 8/255, got '1/0'"),
        (["--budget.l2", "-0.5"], "--budget.l2 must be a finite number of at least 0, got -0.5"),
        (["--budget.fraction", "-1"], "--budget.fraction must be a finite number of at least 0, got -1.0"),
        (["--budget.step-size", "0"], "--budget.step-size must be a positive number, got 0.0"),
        (["--budget.steps", "0"], "--budget.steps must be at least 1, got 0"),
        (["--budget.pixels", "-3"], "--budget.pixels must be at least 1, got -3"),
        (["--budget.steps", 10**20], f"--budget.steps must be below 2 ** 63, by which torch counts, got {10**20}"),
        (["--budget.steps", "1e3"], "expected a whole number, as 1000, got '1e3'"),
    ],
)
def test_a_budget_that_is_none_is_refused(rejected, finished, words, sentence):
    assert sentence in rejected("evaluate", finished, *words)
    assert not (finished / "report.json").exists()


def test_numbers_may_be_written_as_fractions(finished, capsys):
    main(
        ["evaluate", str(finished), "--images", "5", "--device", "cpu", "--attacks", "fgsm", "--budget.eps", "8/255"]
    )
    assert read(finished / "report.json")["fgsm"].budget == "Linf 0.03137"
    capsys.readouterr()
    main(["train", RECIPE, "--objective.solver.around.eps", "8/255", "--steps", "7", "--dry-run"])
    recipe = recipe_files.loads(capsys.readouterr().out)
    assert recipe.objective.solver.around.eps == 8 / 255
    assert recipe.steps == 7


def test_test_images_of_ones_own_that_are_trained_on_are_told(tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    labels, unlabeled = np.arange(12) % 2, np.concatenate([images[:2], images[9:11]])
    split = {"train_images": images[:9], "train_labels": labels[:9], "test_images": images[8:]}
    np.savez(tmp_path / "my.npz", **split, test_labels=labels[8:], unlabeled_images=unlabeled)
    told = (
        "3 test images can also be found among the others, to the last bit: accuracy on what was trained on flatters"
    )
    main(["train", RECIPE, "--data.name", "my.npz", "--data.labeled", "None", "--out", "own", *TINY, "--batch", "6"])
    assert told in capsys.readouterr().err
    main(["evaluate", "own", "--attacks", "fgsm", "--device", "cpu"])
    assert told in capsys.readouterr().err


def test_classes_that_the_attacked_test_images_do_not_show_are_told(tmp_path, capsys):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (90, 8, 8), dtype=np.uint8), np.arange(90) % 3
    split = {"train_images": images[:45], "train_labels": labels[:45], "test_images": images[45:]}

    def told(test_labels, *words):
        np.savez(tmp_path / "my.npz", **split, test_labels=test_labels, classes=["red", "green", "blue"])
        main([*words, "--device", "cpu"])
        return capsys.readouterr().err

    told(labels[45:], "train", RECIPE, "--data.name", "my.npz", "--data.labeled", "None", "--out", "own", *TINY)
    evaluate = ["evaluate", "own", "--attacks", "fgsm", "--images"]
    curve = ["curve", "perturbation", "own", "--attacks", "fgsm", "--fractions", "0", "--images"]
    for words in (evaluate, curve):
        assert "the first 12 test images show only 1 of the 3 classes" in told(np.sort(labels[45:]), *words, "12")
        assert "classes" not in told(np.sort(labels[45:]), *words, "45")
        assert "classes" not in told(labels[45:], *words, "3")
        assert "no test image shows red, blue: add some" in told(np.ones(45, dtype=np.int64), *words, "12")


def test_images_of_ones_own_are_trained_on_and_attacked_end_to_end(tmp_path, capsys):
    labels = np.arange(60) % 3
    images = np.random.default_rng(0).integers(0, 256, (60, 9, 7, 3), dtype=np.uint8)
    labeled = {"train_images": images[:45], "train_labels": labels[:45]}
    unseen = {"test_images": images[45:], "test_labels": labels[45:]}
    np.savez(tmp_path / "my.npz", **labeled, **unseen, unlabeled_images=images[:20], classes=["red", "green", "blue"])
    main(["train", RECIPE, "--data.name", "my.npz", "--data.labeled", "15", "--out", "own", *TINY])
    main(["evaluate", "own", "--attacks", "pgd", "--device", "cpu"])
    assert "found among the others" not in capsys.readouterr().err
    report = read(tmp_path / "own" / "report.json")
    assert report.labels.tolist() == labels[45:].tolist()
    assert report.clean.max() <= 2
    assert report["pgd"].budget == "Linf 0.03137, 20 steps of 0.00784"


def test_a_class_that_only_test_images_have_is_told_as_such(refused, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
    labels = {"train_labels": np.arange(60) % 3, "test_labels": np.arange(20) % 4}
    np.savez(tmp_path / "my.npz", train_images=images[:60], test_images=images[60:], **labels)
    sentence = refused("train", RECIPE, "--data.name", "my.npz", "--data.labeled", "None", "--out", "own", *TINY)
    assert "class 3 is among the 60 to train on: no training image has that label; add some, or leave" in sentence
    assert "of the test images too" in sentence
    np.savez(
        tmp_path / "my.npz", train_images=images[:60], test_images=images[60:], **labels, classes=[*"abc", "dog"]
    )
    sentence = refused("train", RECIPE, "--data.name", "my.npz", "--data.labeled", "None", "--out", "own", *TINY)
    assert "no labeled image of class 3 (dog) is among the 60 to train on" in sentence


def test_a_run_that_may_not_be_written_to_is_refused_before_it_is_attacked(finished, refused, capsys, monkeypatch):
    words = ["evaluate", finished, "--images", "5", "--device", "cpu", "--attacks"]
    main([str(word) for word in (*words, "fgsm")])
    capsys.readouterr()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    said = refused(*words, "fgsm,pgd")
    assert f"could not write {finished}/report.json (" in said and "may not be written to" in said
    assert "5 of 5 images" not in said
    main([str(word) for word in (*words, "fgsm")])
    assert "5 images, R_stand" in capsys.readouterr().out, "what is known already is shown"
    for others in (("--images", "6"), ("--seed", "1"), ("--budget.eps", "0.1"), ("--trust",)):
        said = refused(*words, "fgsm", *others)
        assert "may not be written to" in said and " of 6 images" not in said and "reference PGD" not in said, others
    assert [result.name for result in read(finished / "report.json").attacks] == ["fgsm"]


def test_weights_that_may_not_be_read_are_not_said_to_be_missing(finished, refused, unreadable):
    unreadable("model.safetensors")
    said = refused("surface", finished)
    assert f"could not use {finished}/model.safetensors (Permission denied): put that right" in said


def test_advice_on_damaged_weights_and_checkpoints_leads_out_when_followed(finished, refused, capsys):
    weights, checkpoints = finished / "model.safetensors", sorted(finished.glob("checkpoint*.pt"))
    train_again = ["train", "--from", str(finished / "recipe.json"), "--out", str(finished)]
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    assert "` writes them again" in refused("evaluate", finished, "--attacks", "fgsm")
    main(train_again)
    assert weights.read_bytes() == whole and "trained" in capsys.readouterr().out
    for checkpoint in checkpoints:
        checkpoint.write_bytes(b"no checkpoint")
    weights.write_bytes(whole[:100])
    them = f"{', '.join(each.name for each in checkpoints)} and model.safetensors"
    assert f"delete {them} there to start this run anew" in refused(*train_again)
    for checkpoint in checkpoints:
        checkpoint.unlink()
    said = refused("evaluate", finished, "--attacks", "fgsm")
    assert "put that file back, or train anew by its recipe.json and another --out" in said
    weights.unlink()
    main(train_again)
    assert weights.read_bytes() == whole


def test_tables_are_as_wide_as_the_terminal_where_that_is_narrow(finished, capsys, monkeypatch):
    words = ["evaluate", str(finished), "--attacks", "fgsm,pgd", "--images", "5", "--device", "cpu"]

    def longest():
        main(words)
        table = capsys.readouterr().out.partition("kept in ")[0]
        return max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in table.splitlines())

    monkeypatch.setenv("COLUMNS", "80")
    assert longest() > 80, "a file has no width"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert longest() <= 80


@pytest.mark.parametrize("words", [["--from"], [RECIPE, "--from"], ["--from", "--dry-run"]])
def test_a_file_that_is_forgotten_behind_from_is_asked_for(words, refused):
    assert "--from: expected a file behind it, as --from runs/mine/recipe.json" in refused("train", *words)


@pytest.mark.parametrize(
    ("words", "got"),
    [
        (["pack", "pictures", "--size", "32x32"], "'32x32'"),
        (["surface", "examples/mnist-srt", "--reach", "0.1,0.2"], "'0.1,0.2'"),
        (["reproduce", "table-3", "--seeds", "0,1"], "'0,1'"),
        (["train", "mnist-spatial-srt", "--optimizer.rate.milestones", "0.1,0.5"], "'0.1,0.5'"),
    ],
)
def test_numbers_with_commas_in_place_of_blanks_are_answered_in_a_sentence(words, got, rejected):
    said = rejected(*words)
    assert f"{words[-2]}: expected values with blanks between them, as 1 2, got {got} (" in said


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--size", ["pack", "pictures", "--size", "--out", "my.npz"]),
        ("--reach", ["surface", MNIST_SRT, "--reach"]),
        ("--show", ["curve", "training", MNIST_SRT, "--show"]),
        ("--fractions", ["curve", "perturbation", MNIST_SRT, "--fractions", "--against", "eps"]),
        ("--seeds", ["reproduce", "table-3", "--seeds", "--plan"]),
        ("--unlabeled", ["train", RECIPE, "--unlabeled", "--steps", "3"]),
        ("--data.unlabeled-files", ["train", RECIPE, "--data.unlabeled-files", "--dry-run"]),
        ("--optimizer.rate.milestones", ["train", "mnist-spatial-srt", "--dry-run", "--optimizer.rate.milestones"]),
    ],
)
def test_values_that_are_forgotten_are_not_taken_for_none(option, words, rejected):
    assert f"{option}: expected a value behind it, or several (see unperturbed {words[0]} " in rejected(*words)


def test_choices_beside_none_are_told_in_one_order(rejected):
    assert "--color: expected one of gray, rgb, None, got 'grey' (" in rejected("pack", "pictures", "--color", "grey")


def test_a_name_that_is_empty_is_no_folder(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("secret.npy", np.zeros((3, 8, 8), dtype=np.uint8))
    for given in (("--unlabeled", ""), ("--unlabeled=",)):
        assert "a file of unlabeled images has no name" in refused("train", RECIPE, "--out", "mine", *given)
    assert "unknown data set ''" in refused("train", RECIPE, "--out", "mine", "--data.name", "")
    assert not Path("mine").exists()


def test_a_recipe_is_read_from_a_pipe_too(tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    main(["train", RECIPE, "--dry-run"])
    shown = capsys.readouterr().out
    writer = threading.Thread(target=pipe.write_text, args=(shown,))
    writer.start()
    main(["train", "--from", str(pipe), "--dry-run"])
    writer.join()
    assert capsys.readouterr().out == shown


def test_a_full_disk_behind_the_output_is_told_in_a_sentence(refused, monkeypatch):
    def full(*_words, **_settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("unperturbed.cli.COMMANDS", {"list": full})
    said = refused("list")
    assert "nothing more could be written (No space left on device): make room" in said and "Errno" not in said


def test_a_misspelt_command_is_answered_with_the_nearest(refused):
    assert "there is no command 'evalute', did you mean 'evaluate'?" in refused("evalute", "runs/mine")


def test_a_misspelt_kind_of_list_is_answered_with_the_nearest(refused):
    assert "there is no list of 'Attack', did you mean 'attacks'? (there are recipes, " in refused("list", "Attack")


def test_a_misspelt_recipe_is_answered_with_the_nearest(refused):
    sentence = refused("train", "digits-pixel-slt", "--out", "mine")
    assert "there is no recipe 'digits-pixel-slt', did you mean 'digits-pixel-srt'?" in sentence
    assert "did you mean 'digits-pixel-srt'?" in refused("train", "Digits-Pixel-SRT", "--out", "mine")


def test_a_misspelt_attack_is_answered_with_the_nearest(refused, finished):
    sentence = refused("evaluate", finished, "--attacks", "fgsm,griddav")
    assert "there is no attack 'griddav', did you mean 'gridadv'?" in sentence
    assert not (finished / "report.json").exists()


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("--stepz", "--steps"), ("--objective.wieght", "--objective.weight"), ("--data.labelled", "--data.labeled")],
)
def test_a_misspelt_field_is_answered_with_the_nearest(rejected, word, nearest, tmp_path):
    assert nearest in rejected("train", RECIPE, "--out", "mine", word, 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--steps", "many", "expected a whole number, as 1000, got 'many'"),
        ("--objective.solver.around.eps", "-1", "Linf.eps must be a finite number of at least 0, got -1.0"),
        ("--data.labeled", "0", "--data.labeled must be at least 1, got 0"),
        ("--data.split", "fair", "balanced"),
        ("--optimizer.momentum", "2", "SGD.momentum must lie between 0 and 1, got 2.0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_what_does(rejected, option, value, words, tmp_path):
    assert words in rejected("train", RECIPE, "--out", "mine", option, value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--data.labeled all",
            "--data.labeled: expected a whole number, as 1000, or None, got 'all' "
            "(labeled training images, |D_L|; None: all; see",
        ),
        ("--objective.weight 1//3", "--objective.weight: expected a number, as 0.03 or 8/255, got '1//3' (see"),
        ("--objective.weight -1", "SRT.weight must be a finite number of at least 0, got -1.0 (see"),
        ("--labeler bob", "--labeler: expected one of current, average, teacher, got 'bob' (see"),
        ("--model.channels 2 x 2", "--model.channels: expected 3 whole numbers, got '2 x 2' (see"),
        ("--model.channels 2", "--model.channels: expected 3 values behind it (see"),
        ("--seed", "--seed: expected a value behind it (see"),
        ("--dry-run yes", "train has no use for 'yes': no option before it takes that (see"),
        ("--against pixels warps", "--against takes names with commas and no blanks between them: pixels,warps (see"),
        ("--against=blur warps", "--against takes names with commas and no blanks between them: blur,warps (see"),
        (
            "--data.labels 3",
            "train has no option --data.labels, did you mean --data.labeled or --data.unlabeled? (see",
        ),
        ("--nonsense 3", "train has no option --nonsense (see"),
        (f"--steps {'9' * 70}-{'9' * 20}", f"--steps: expected a whole number, as 1000, got '{'9' * 70}-{'9' * 20}'"),
    ],
)
def test_options_that_cannot_be_read_are_one_sentence(rejected, words, sentence, encoding, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    said = rejected("train", RECIPE, "--out", "mine", *words.split())
    assert said.startswith(f"unperturbed: {sentence}")
    assert said.endswith("see unperturbed train RECIPE --help)\n")
    assert said.count("\n") == 1
    assert os.environ["COLUMNS"] == "40"
    assert list(tmp_path.iterdir()) == []


def test_a_list_with_blanks_in_place_of_commas_is_answered_with_commas(rejected, finished):
    told = "--attacks takes names with commas and no blanks between them: pgd,gridadv (see unperturbed evaluate DIR"
    assert told in rejected("evaluate", finished, "--attacks", "pgd,", "gridadv", "--images", "5")
    assert told in rejected("evaluate", finished, "--attacks", "pgd", "gridadv")


def test_all_options_whose_help_speaks_of_commas_are_known_as_lists(capsys):
    for command, options in LISTS.items():
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown = re.sub(r"[│\s]+", " ", capsys.readouterr().out).split(" --")
        assert [f"--{words.split()[0]}" for words in shown if "separated by commas" in words] == list(options), (
            command
        )
    assert {command for command in COMMANDS if command not in LISTS} == {"pack", "surface", "list", "demo"}


def test_a_number_that_may_be_none_is_read_and_shown_as_such(capsys):
    main(["train", RECIPE, "--data.labeled", "None", "--microbatch", "50", "--dry-run"])
    recipe = recipe_files.loads(capsys.readouterr().out)
    assert (recipe.data.labeled, recipe.microbatch) == (None, 50)
    with pytest.raises(SystemExit):
        main(["train", RECIPE, "--help"])
    assert "--data.labeled {None}|INT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--steps", 0], "steps must be at least 1, got 0"),
        (["--batch", 100_000], "larger than the 1397 training images: lower batch (--batch) to at most 1397"),
        (["--data.labeled", 100_000], "--data.labeled 100000 is more than the 1397 images with a label: lower it"),
        (["--data.name", "digitz"], "unknown data set 'digitz': did you mean 'digits'?"),
        (["--data.name", "mine.npz"], "the data file mine.npz does not exist"),
        (["--device", "cuda:99"], "there is no device 'cuda:99' on this machine"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused_before_anything_is_written(refused, words, sentence, tmp_path):
    assert sentence in refused("train", RECIPE, "--out", "mine", *words)
    assert list(tmp_path.iterdir()) == []


def test_data_that_are_named_where_a_folder_is_expected_or_the_other_way_round_are_not_passed_over(
    refused, tmp_path, capsys
):
    (tmp_path / "my.npz").write_bytes(b"mine")
    (tmp_path / "pictures").mkdir()
    sentence = refused("train", RECIPE, "--out", "mine", "--data", "my.npz")
    assert "my.npz is not a folder: name the folder that the data files lie in by --data" in sentence
    assert "--data.name my.npz" in sentence
    sentence = refused("train", RECIPE, "--out", "mine", "--data.name", "pictures")
    assert "pictures is a folder, expected a data set" in sentence and "unperturbed pack pictures" in sentence
    sentence = refused("train", RECIPE, "--out", "mine", "--data.name", "more.npy")
    assert "unknown data set 'more.npy': a file of images alone goes behind --unlabeled" in sentence
    assert {path.name for path in tmp_path.iterdir()} == {"my.npz", "pictures"}
    main(["train", RECIPE, "--data", "pictures", "--dry-run"])
    assert "--data pictures changes nothing, for digits need no files" in capsys.readouterr().err


def test_a_folder_of_data_that_is_missing_or_empty_is_named_with_what_it_lacks(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "the data folder missing does not exist" in refused("train", "mnist-pixel-srt", "--data", "missing")
    sentence = refused("train", "mnist-pixel-srt", "--data", "empty")
    assert "mnist lacks train-images-idx3-ubyte" in sentence
    assert "--data" in sentence
    assert not (tmp_path / "runs").exists()


def test_a_run_that_diverges_names_the_rate_and_the_weight_to_lower(refused):
    sentence = refused("train", RECIPE, "--out", "wild", *TINY, "--optimizer.rate.peak", 1e30)
    assert "from step 1 on: lower optimizer.rate.peak = 1e+30 or objective.weight = 1.0" in sentence


def test_a_recipe_in_a_file_is_named_anywhere_and_in_place_of_another(refused, tmp_path, capsys):
    (tmp_path / "mine.json").write_text(recipe_files.dumps(replace(named(RECIPE), steps=7)))
    printed = []
    for words in (["--from", "mine.json", "--dry-run"], ["--batch", "8", "--dry-run", "--from=mine.json"]):
        main(["train", *words])
        printed.append(json.loads(capsys.readouterr().out))
    assert [recipe["steps"] for recipe in printed] == [7, 7]
    assert printed[1]["batch"] == 8
    for words in ((RECIPE, "--from", "mine.json"), ("--from", "mine.json", "--from", RECIPE)):
        sentence = f"--from 'mine.json' stands in place of a recipe, and {RECIPE!r} is named too: name one"
        assert sentence in refused("train", *words)


@pytest.mark.parametrize(
    ("option", "here"),
    [
        ("--epochs", "--steps"),
        ("--lr", "--optimizer.rate.peak"),
        ("--batch-size=8", "--batch"),
        ("--lambda", "--objective.weight"),
        ("--objective.lambda", "--objective.weight"),
    ],
)
def test_options_by_their_names_elsewhere_are_answered_with_ours(refused, option, here):
    sentence = refused("train", RECIPE, option, "3")
    assert f"train has no option {option.partition('=')[0]}: " in sentence and here in sentence.split(": ")[2]


@pytest.mark.parametrize("words", [[], ["--out", "mine"]])
def test_training_needs_a_recipe_first(refused, words):
    assert "train needs a recipe first: unperturbed train RECIPE, or train --from FILE" in refused("train", *words)


@pytest.mark.parametrize(
    "content", [None, "no JSON", '{"type": "Recipe", "stepz": 3}'], ids=["none", "words", "field"]
)
def test_a_recipe_file_that_cannot_be_read_is_refused_by_its_name(refused, content, tmp_path):
    if content is not None:
        (tmp_path / "mine.json").write_text(content)
    assert "mine.json" in refused("train", "--from", "mine.json")


@pytest.mark.parametrize("words", [["--json"], ["--images", "3", "runs/mine"]], ids=["none", "after the options"])
def test_evaluation_needs_a_directory_first(refused, words):
    assert "evaluate needs the directory of a run first: unperturbed evaluate DIR" in refused("evaluate", *words)


def test_a_report_needs_directories_first(refused):
    sentence = "report needs the directories of evaluated runs first: unperturbed report DIR [DIR …] --out FILE"
    assert sentence in refused("report", "--out", "page.html", "runs/mine")


def test_a_directory_without_a_run_is_named_with_the_command_that_makes_one(refused, tmp_path):
    sentence = refused("evaluate", tmp_path / "none")
    assert sentence.endswith(f"make one with unperturbed train RECIPE --out {tmp_path / 'none'}")


def test_a_run_without_a_finished_model_is_named_with_the_command_that_finishes_it(refused, finished, trained):
    (finished / "model.safetensors").unlink()
    sentence = refused("evaluate", finished)
    assert "holds no finished model" in sentence
    command = sentence.split("`")[1].split()
    assert command[0] == "unperturbed"
    main([*command[1:], "--device", "cpu"])
    assert same_weights(finished, trained)


@pytest.mark.parametrize("words", [["--images", 0], ["--images", -5], ["--batch", 0], ["--device", "cuda:99"]])
def test_an_evaluation_of_nothing_is_refused(refused, finished, words):
    assert str(words[1]) in refused("evaluate", finished, *words)
    assert not (finished / "report.json").exists()


def test_a_damaged_model_is_refused_by_its_name(refused, finished):
    (finished / "model.safetensors").write_bytes(b"nothing of the kind")
    assert "model.safetensors does not hold the weights of this recipe's model" in refused("evaluate", finished)


def test_the_whole_story_of_an_error_is_there_for_those_who_ask(monkeypatch):
    monkeypatch.setenv("UNPERTURBED_TRACEBACK", "1")
    with pytest.raises(ValueError, match="there is no command"):
        main(["evalute"])


def as_a_process(*words, stdout=subprocess.PIPE):
    environment = os.environ | {"PYTHONPATH": str(Path(unperturbed.__file__).parent.parent)}
    command = [sys.executable, "-m", "unperturbed", *words]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, check=False, timeout=120
    )


@pytest.mark.parametrize("words", [["list", "--json"], ["train", RECIPE, "--help"]], ids=" ".join)
def test_output_that_nobody_reads_to_its_end_is_no_fault(words):
    reader, writer = os.pipe()
    os.close(reader)
    done = as_a_process(*words, stdout=writer)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141


@pytest.mark.parametrize(("encoding", "errors"), [("cp1252", "strict"), ("ascii", "surrogateescape")])
def test_output_in_an_encoding_that_lacks_letters_is_no_fault(finished, monkeypatch, encoding, errors):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding, errors))
    main(["evaluate", str(finished), "--attacks", "fgsm", "--images", "5"])
    assert "? fgsm " in written.getvalue().decode(encoding)


@pytest.mark.skipif(os.name != "posix", reason="closes streams in a shell")
def test_streams_that_are_closed_are_no_fault(finished):
    words = [sys.executable, "-m", "unperturbed", "evaluate", str(finished), "--attacks", "fgsm", "--images", "5"]
    environment = os.environ | {"PYTHONPATH": str(Path(unperturbed.__file__).parent.parent)}
    for closed, left in ((">&-", ""), ("2>&-", "accuracy")):
        command = [*("sh", "-c", f'exec "$@" {closed}', "sh"), *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert left in done.stdout
        assert "unmoved" not in done.stdout, "what is for stderr is not in the way on stdout"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_progress_and_advice_that_cannot_be_written_are_no_fault():
    words = [*("sh", "-c", 'exec "$@" 2>/dev/full', "sh"), sys.executable, "-m", "unperturbed"]
    environment = os.environ | {"PYTHONPATH": str(Path(unperturbed.__file__).parent.parent)}
    for command in (
        ["train", RECIPE, "--out", "run", "--data", ".", *TINY],
        ["evaluate", "run", "--attacks", "fgsm", "--images", "5", "--budget.blur", "2"],
    ):
        done = subprocess.run([*words, *command], capture_output=True, env=environment, check=False, timeout=120)
        assert done.returncode == 0
    assert weights(Path("run"))
    assert Path("run", "report.json").is_file()


def test_the_package_runs_as_a_module():
    done = as_a_process("--help")
    assert done.returncode == 0
    assert "evaluate" in done.stdout
    assert done.stderr == ""


def test_a_wrong_input_is_one_line_on_stderr_and_the_exit_code_1():
    done = as_a_process("train", "digits-pixel-slt")
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "did you mean 'digits-pixel-srt'?" in done.stderr
