"""The page of figures: its commands work as they are written, and its pictures and numbers are there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import NETWORK
from unperturbed.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
TRAIN, EVALUATE, *FIGURES = BLOCKS
SMALLER = {
    "train": ["--batch", "40", *NETWORK],
    "evaluate": ["--images", "3"],
    "surface": ["--points", "3"],
    "curve": [],
}
"""what makes a command of the page take no time"""


def commands(block):
    """The commands of a block, with its loops and patterns expanded by a shell in the present folder."""
    spoken = subprocess.run(
        ["bash", "-c", 'unperturbed() { printf "%s\\t" "$@"; echo; }\n' + block],
        capture_output=True,
        text=True,
        check=True,
    )
    assert spoken.stderr == ""
    return [line.split("\t")[:-1] for line in spoken.stdout.splitlines()]


def run(block):
    for words in commands(block):
        few = ["--images", "3", "--fractions", "0", "1"] if words[:2] == ["curve", "perturbation"] else []
        if words[0] == "train":  # Runs that differ in their steps go on doing so.
            few = ["--steps", str(int(words[words.index("--steps") + 1]) // 50 if "--steps" in words else 2)]
        main([*words, *SMALLER[words[0]], *few, "--device", "cpu"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with all runs of the page, made and evaluated by its commands."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(TRAIN)
        run(EVALUATE)
    assert len(list(folder.rglob("model.safetensors"))) == 9 + 10 + 6 + 9
    assert len(list(folder.rglob("report.json"))) == 10 + 6 + 9
    return folder


def test_each_figure_of_the_page_is_made_by_the_command_above_it(runs, monkeypatch):
    monkeypatch.chdir(runs)
    for block in FIGURES:
        run(block)
    shown = re.findall(r"!\[.+?\]\((figures/.+?\.png)\)", PAGE)
    assert len(shown) == len(FIGURES) == 12
    for picture in shown:
        assert (runs / picture).read_bytes().startswith(b"\x89PNG")
        assert (runs / picture).with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_the_pictures_of_the_page_are_there_and_small():
    shown = re.findall(r"!\[.+?\]\((figures/.+?\.png)\)", PAGE)
    assert {ROOT / "docs" / picture for picture in shown} == set((ROOT / "docs" / "figures").iterdir())
    for picture in shown:
        assert 5_000 < (ROOT / "docs" / picture).stat().st_size < 100_000


def drawn(name):
    """For each panel of a curve of the page its lines, by their labels."""
    panels = json.loads((ROOT / "results" / "figures.json").read_text(encoding="utf-8"))[name]
    return {panel["title"]: {line["label"]: line["y"] for line in panel["lines"]} for panel in panels}


def test_the_pictures_show_what_the_page_says_of_them():
    eps = drawn("eps")["PGD"]
    assert all(srt > at > standard for srt, at, standard in zip(eps["SRT"], eps["AT"], eps["Standard"], strict=True))
    for attack in ("PGD+", "GridAdv+"):
        compound = drawn("compound")[attack]
        for rival in compound.keys() - {"SRT+"}:
            assert all(srt >= other for srt, other in zip(compound["SRT+"][1:], compound[rival][1:], strict=True))
    unlabeled = drawn("unlabeled")
    for attack, own in (("PGD", "SRT, pixel-wise"), ("GridAdv", "SRT, spatial")):
        assert unlabeled[attack][own][-1] == max(unlabeled[attack][own]) > unlabeled[attack][own][0] + 20
    weights = drawn("lambda")["PGD"]
    assert all(srt > rt for srt, rt in zip(weights["SRT"], weights["RT"], strict=True))
    fast = drawn("time")["PGD"]
    lines = list(fast.values())
    assert all(line == sorted(line) for line in lines)
    assert fast["fast SRT, peak rate 0.2"][0] == min(line[0] for line in lines) < 12
    surfaces = json.loads((ROOT / "results" / "figures.json").read_text(encoding="utf-8"))
    assert "positive at 100.0% of the points" in surfaces["decision-spatial"][1]
    assert "positive at 100.0% of the points" not in surfaces["decision-spatial"][0]


def test_the_page_shows_how_long_surfaces_take(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    from surfaces import markdown

    found = json.loads((ROOT / "results" / "surface-speed.json").read_text(encoding="utf-8"))
    assert markdown(found) in PAGE
    assert {row["points"] for row in found["rows"]} == {101**2}
    assert all(row["worked"] <= row["seconds"] < 10 for row in found["rows"])
