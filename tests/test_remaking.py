"""What is measured on digits is by the recipes of today, and one command makes it again where it is not."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from unperturbed.recipe import plain
from unperturbed.recipes import RECIPES

ROOT = Path(__file__).parent.parent
NAMES = ("digits-pixel-at", "digits-pixel-srt")


@pytest.fixture
def remake(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import remake

    return remake


def test_what_is_measured_on_digits_is_by_the_recipes_of_today(remake):
    assert {part.result: reasons for part in remake.PARTS if (reasons := part.reasons())} == {}, "run make results"


def test_every_file_of_results_that_holds_recipes_of_digits_and_every_picture_is_made_by_that_command(remake):
    files = {file for file in (ROOT / "results").glob("*.json") if '"digits-' in file.read_text(encoding="utf-8")}
    assert {ROOT / part.result for part in remake.PARTS} == files
    pictures = {*(ROOT / "docs").glob("*.png"), *(ROOT / "docs" / "figures").iterdir()}
    assert {ROOT / picture for part in remake.PARTS for picture in part.pictures} == pictures


def test_every_command_has_a_script_that_knows_its_options(remake):
    for part in remake.PARTS:
        script, *words = part.command.split()
        told = (ROOT / script).read_text(encoding="utf-8")
        options = ["out", *(word[2:] for word in words if word.startswith("--"))]
        assert [option for option in options if f"\n    {option}: " not in told] == []


@pytest.fixture
def part(remake, monkeypatch, tmp_path):
    """A part of two recipes with one number, and a text with it; its command writes another number."""
    (tmp_path / "part.py").write_text(
        "import json, os, pathlib\n"
        "assert os.listdir(os.environ['UNPERTURBED_CACHE']) == []\n"
        "held = json.loads(pathlib.Path('now.json').read_text())\n"
        "pathlib.Path('part.json').write_text(json.dumps({'number': 2, 'recipes': held}))\n"
    )
    from measured_by import spelled_out

    (tmp_path / "now.json").write_text(json.dumps(spelled_out(NAMES)))
    (tmp_path / "part.json").write_text(json.dumps({"number": 1, "recipes": spelled_out(NAMES)}))
    (tmp_path / "text.md").write_text("It is | 1 | and 11.")
    monkeypatch.setattr(remake, "ROOT", tmp_path)
    return remake.Part(
        result="part.json",
        command="part.py",
        recipes=NAMES,
        text="text.md",
        table=lambda result: f"| {result['number']} |",
    )


def test_a_part_by_the_recipes_of_today_is_kept(part):
    assert part.reasons() == []


def test_a_part_by_a_recipe_that_has_changed_is_made_again_and_its_table_with_it(part, monkeypatch, tmp_path):
    recipe = replace(RECIPES["digits-pixel-srt"], steps=7)
    monkeypatch.setitem(RECIPES, recipe.name, recipe)
    assert part.reasons() == ["digits-pixel-srt has changed: steps is 400 there and 7 now"]
    now = json.loads((tmp_path / "now.json").read_text()) | {recipe.name: plain(recipe)}
    (tmp_path / "now.json").write_text(json.dumps(now))
    part.remake()
    assert part.reasons() == []
    assert (tmp_path / "text.md").read_text() == "It is | 2 | and 11."


def test_a_part_is_made_again_where_a_recipe_or_a_file_is_new_or_gone(part, tmp_path):
    assert replace(part, recipes=(*NAMES, "digits-pixel-rt")).reasons() == ["digits-pixel-rt is not in it"]
    assert replace(part, recipes=NAMES[:1]).reasons() == [f"{NAMES[1]} does not belong to it any more"]
    assert replace(part, pictures=("drawn.png",)).reasons() == ["drawn.png is missing"]
    (tmp_path / "part.json").write_text(json.dumps({"number": 1}))
    assert part.reasons() == [f"{name} is not in it" for name in NAMES]
    (tmp_path / "part.json").unlink()
    assert part.reasons() == ["part.json is missing"]
    part.remake()
    assert part.reasons() == []


def test_a_recipe_that_cannot_be_read_any_more_has_changed(part, tmp_path):
    held = json.loads((tmp_path / "part.json").read_text())
    held["recipes"]["digits-pixel-at"]["objective"]["type"] = "Forgotten"
    (tmp_path / "part.json").write_text(json.dumps(held))
    (reason,) = part.reasons()
    assert reason.startswith("digits-pixel-at is none any more: ") and "Forgotten" in reason


def test_a_command_that_fails_ends_it_and_changes_no_text(part, tmp_path):
    (tmp_path / "part.py").write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match=r"part\.py has failed"):
        part.remake()
    assert (tmp_path / "text.md").read_text() == "It is | 1 | and 11."


@pytest.mark.parametrize("everything", [False, True])
def test_what_has_reasons_or_all_is_made_again_and_texts_are_compared_in_the_end(
    everything, remake, part, monkeypatch, capsys
):
    asked = []

    def run(words, **_):
        asked.append(words[1:])
        return subprocess.CompletedProcess(words, 1 if "pytest" in words else 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(remake, "PARTS", (part, replace(part, command="other.py", pictures=("drawn.png",))))
    with pytest.raises(SystemExit, match="texts tell other numbers"):
        remake.main(remake.Options(all=everything))
    first = [["part.py", "--out", "part.json"]] if everything else []
    assert asked == [*first, ["other.py", "--out", "part.json"], ["-m", "pytest", "--tb=line", *remake.TESTS]]
    assert capsys.readouterr().out.splitlines() == [
        *(["part.json: made again", "  all are"] if everything else ["part.json: kept"]),
        "part.json: made again",
        "  drawn.png is missing",
    ]


def test_blocks_of_the_page_of_figures_run_on_the_cpu_and_curves_tell_their_numbers(remake, monkeypatch, tmp_path):
    from figures import FIGURES, numbers, printed

    monkeypatch.setattr(sys, "executable", "echo")
    said = printed("unperturbed surface a --out b\nfor x in 1 2; do\n  unperturbed curve $x\ndone", tmp_path)
    assert said.splitlines() == [
        "-m unperturbed surface a --out b --device cpu",
        *(f"-m unperturbed curve {x} --device cpu --json" for x in (1, 2)),
    ]
    assert numbers('[{"title": "PGD"}]\n') == [{"title": "PGD"}]
    assert numbers("SRT: D(x') from 0 to 1\nwritten: a.png, a.pdf\n") == ["SRT: D(x') from 0 to 1"]
    held = json.loads((ROOT / "results" / "figures.json").read_text(encoding="utf-8"))
    assert list(held) == [*FIGURES, "recipes"]
    with pytest.raises(subprocess.CalledProcessError):
        printed("false\nunperturbed curve", tmp_path)
