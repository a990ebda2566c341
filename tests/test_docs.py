"""README and docs name what there is: files, options, recipes, public names, parts and checks."""

import io
import re
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

import unperturbed as up
from unperturbed.cli import main
from unperturbed.experiments.catalog import experiments
from unperturbed.page.sections import HEADINGS
from unperturbed.recipe import PARTS
from unperturbed.recipes import RECIPES
from unperturbed.trust import CHECKS

ROOT = Path(__file__).parent.parent
TEXTS = {
    str(file.relative_to(ROOT)): file.read_text(encoding="utf-8")
    for file in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
}
README, PAPER, EXTENDING = (TEXTS[name] for name in ("README.md", "docs/paper.md", "docs/extending.md"))
PLACES = (ROOT, ROOT / "src" / "unperturbed", ROOT / "tests")
"""folders from which the files that texts name in passing are counted"""
every_text = pytest.mark.parametrize("name", TEXTS)


@every_text
def test_links_lead_to_files_that_are_there(name):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", TEXTS[name])
    assert [target for target in targets if not (ROOT / name).parent.joinpath(target).exists()] == []


@every_text
def test_links_within_texts_lead_to_headings(name):
    """By the rule of GitHub: small letters, hyphens for spaces, and no other signs."""
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", TEXTS[name]):
        file = (ROOT / name).parent.joinpath(target).resolve() if target else ROOT / name
        titles = re.findall(r"^#+ (.+)$", TEXTS[str(file.relative_to(ROOT))], re.MULTILINE)
        assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@every_text
def test_files_that_are_named_in_passing_are_there(name):
    named = re.findall(r"`([a-z][\w-]*/[\w./-]*|test_\w+\.py)`|python ((?:benchmarks|tests)/\w+\.py)", TEXTS[name])
    files = {first or second for first, second in named if not first.startswith("build/")}
    assert [file for file in files if not any((place / file).exists() for place in PLACES)] == []


@pytest.fixture(scope="module")
def options():
    """All options of our commands, those of training by every kind of recipe."""
    commands = [
        [word, "--help"] for word in ("evaluate", "report", "surface", "curve", "reproduce", "demo", "list", "pack")
    ]
    recipes = ("digits-pixel-srt", "digits-pixel-srt-fast", "cifar10-pixel-srt", "digits-pixel-uat-ft")
    commands += [["train", recipe, "--help"] for recipe in recipes]
    commands += [["train", recipes[0], "--against", "blur", "--help"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        return {"--from"}.union(*(re.findall(r"--[a-z][\w.-]*", helped(words)) for words in commands))


def helped(words: list[str]) -> str:
    """What a command prints of itself."""
    with redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        main(words)
    return said.getvalue()


@every_text
def test_options_of_our_commands_are_theirs(name, options):
    text = TEXTS[name].replace("\\\n", " ")
    words = [line for line in text.splitlines() if re.match(r" *unperturbed \w|torchrun .* unperturbed", line)]
    words += re.findall(r"`(unperturbed [^`]+|--[^`]+)`", text.replace("\n", " "))
    ours = [part.split("-m unperturbed")[-1].split(" # ")[0] for part in words]
    torchruns = {"--max-restarts"}
    named = {option for part in ours for option in re.findall(r"(?<=\s)--[a-z][\w.-]*", f" {part}")} - torchruns
    scripts = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "benchmarks").glob("*.py"))
    of_benchmarks = {
        option for option in named if re.search(rf"^    {option[2:].replace('-', '_')}: ", scripts, re.MULTILINE)
    }
    assert sorted(named - options - of_benchmarks) == []


@every_text
def test_recipes_that_are_named_are_there(name):
    words = re.findall(r"(?<![\w/-])(?:digits|mnist|cifar10)-(?:pixel|spatial|compound)-[\w.-]*\w", TEXTS[name])
    known = {*RECIPES, *(trial.name for experiment in experiments().values() for trial in experiment.trials)}
    assert [word for word in words if re.sub(r"(-resnet18)?-seed-.*", "", word) not in known] == []


def test_recipes_are_counted_rightly():
    assert f"# {len(RECIPES)} recipes" in README
    assert f"{len(RECIPES)} recipes" in TEXTS["CHANGELOG.md"]


@pytest.mark.parametrize("kind", [up.Neighborhood, up.Solver, up.Objective])
def test_the_readme_names_every_part(kind):
    row = next(line for line in README.splitlines() if line.startswith(f"| {kind.__name__.lower()} |"))
    assert set(re.findall(r"`(\w+)`", row)) == {part.__name__ for part in PARTS[kind]}


def test_every_public_name_is_spoken_of():
    words = set(re.findall(r"\w+", "".join(TEXTS.values())))
    assert [name for name in up.__all__ if name not in words] == []
    for named in re.findall(r"^\| (`.+?`) \|", EXTENDING.split("## What else")[1], re.MULTILINE):
        assert set(re.findall(r"`(\w+)`", named)) <= set(up.__all__)


def test_the_way_from_the_paper_to_the_code_ends_at_something():
    symbols = re.findall(r"`([a-z_]\w*(?:\.\w+)+)(?:\(.*?\))?`", PAPER)
    assert len(symbols) > 40
    for symbol in {word for word in symbols if not word.endswith(".py")}:
        room, *path = symbol.split(".")
        found = import_module(f"unperturbed.{room}")
        for part in path:
            found = getattr(found, part, None) or import_module(f"unperturbed.{room}.{part}")


def test_the_page_of_trust_has_every_check_in_its_order():
    text = TEXTS["docs/trust.md"]
    tables = text.split("| check | what is done |")[1:]
    rows = [row for table in tables for row in re.findall(r"^\| ([a-z ]+) \|", table.split("\n\n")[0], re.MULTILINE)]
    assert rows == [check.name for check in CHECKS]
    assert len(CHECKS) == 17
    assert "by seventeen checks" in text


def test_the_page_of_the_report_has_every_section_in_its_order():
    rows = re.findall(r"^\| ([A-Z][\w ]+) \|", TEXTS["docs/report.md"], re.MULTILINE)
    assert rows == list(HEADINGS.values())


def test_the_library_works_as_the_readme_shows_it(capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(12, 1, 8, 8, generator=rng), torch.arange(12) % 3
    f = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    exec(block.replace("steps=2_000", "steps=2"), {"model": f, "x": x, "y": y, "u": x, "x_test": x, "y_test": y})
    said = capsys.readouterr().out
    assert all(word in said for word in ("pgd", "grid", "Linf 0.03137", "30 degrees"))
    loop = re.search(r"`loss = (objective\(.+?\)\.total)`", README)[1]
    objective = up.SRT(solver=up.PGD(steps=1))
    assert eval(loop, {"up": up, "objective": objective, "model": f, "x": x, "y": y, "u": x, "rng": rng}).isfinite()
