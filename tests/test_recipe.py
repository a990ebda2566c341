"""Recipes: through JSON and the command line and back, and what is refused on the way."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unperturbed import cli
from unperturbed.averaging import Average
from unperturbed.data import Data
from unperturbed.models import DigitsCNN, ResNet
from unperturbed.neighborhoods import L2, Linf, Spatial
from unperturbed.objectives import AT, SRT, Objective, Standard
from unperturbed.printing import nearest
from unperturbed.recipe import PARTS, SGD, Recipe, Teacher, Validation, dumps, loads, plain, read
from unperturbed.recipes import RECIPES, named
from unperturbed.schedules import Cyclic, Piecewise
from unperturbed.solvers import FGSM, PGD, Grid, Sequential, Strongest, WorstOfK


def shape(tree: object) -> str:
    """A JSON tree without its numbers: recipes of one shape differ in numbers alone."""
    if isinstance(tree, dict):
        return str({key: value if key == "type" else shape(value) for key, value in tree.items()})
    return str([shape(item) for item in tree]) if isinstance(tree, list) else type(tree).__name__


KINDS = {shape(plain(recipe)): recipe for recipe in RECIPES.values()}
every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
every_kind_of_recipe = pytest.mark.parametrize("recipe", KINDS.values(), ids=lambda recipe: recipe.name)

INTRICATE = Recipe(
    name="intricate \N{SNOWMAN}",
    data=Data(name="mine.npz", labeled=None, validation=3),
    model=ResNet(filters=(2, 4, 8), units=1),
    objective=AT(
        solver=Sequential(
            stages=(
                Strongest(solvers=(PGD(around=L2(eps=1.0)), FGSM(around=Linf(eps=1 / 3)))),
                Grid(around=Spatial(), points=(3, 1, 1), enough=1e-300),
                WorstOfK(),
            )
        )
    ),
    optimizer=SGD(rate=Piecewise(milestones=(0.1, 1 / 3))),
    validation=Validation(every=1, solver=WorstOfK(k=1)),
)
"""a recipe with every kind of part in it"""


def edited(**changes: object) -> str:
    """The JSON of the standard recipe after some edits; a__b is field b of part a."""
    tree = json.loads(dumps(Recipe()))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = tree
        for parent in parents:
            place = place[parent]
        place[last] = value
    return json.dumps(tree)


# There and back


@every_recipe
def test_a_recipe_survives_json(recipe):
    assert loads(dumps(recipe)) == recipe
    assert dumps(loads(dumps(recipe))) == dumps(recipe)


def test_parts_within_parts_survive_json():
    assert loads(dumps(INTRICATE)) == INTRICATE


def test_a_recipe_survives_a_file(tmp_path):
    file = tmp_path / "recipe.json"
    file.write_text(dumps(INTRICATE), encoding="utf-8")
    assert read(file) == INTRICATE


def test_fields_that_are_left_out_have_their_standard_values():
    assert loads('{"steps": 7, "data": {"labeled": 50}}') == Recipe(steps=7, data=Data(labeled=50))


def test_a_whole_number_may_stand_for_a_float():
    weight = loads(edited(objective__weight=2)).objective.weight
    assert (weight, type(weight)) == (2.0, float)


def test_json_names_the_type_of_every_part():
    assert plain(SRT(solver=FGSM()))["type"] == "SRT"
    assert plain(SRT(solver=FGSM()))["solver"]["around"] == {"type": "Linf", "eps": Linf().eps}


@every_kind_of_recipe
def test_a_recipe_survives_command_line_json_and_command_line(recipe, capsys, tmp_path):
    cli.main(["train", recipe.name, "--dry-run"])
    printed = capsys.readouterr().out
    assert printed == dumps(recipe)
    file = tmp_path / "recipe.json"
    file.write_text(printed)
    cli.main(["train", "--from", str(file), "--dry-run"])
    assert capsys.readouterr().out == printed


def test_the_command_line_edits_any_field(capsys):
    words = "--steps 7 --objective.solver.around.eps 0.25 --data.unlabeled 0 --model.channels 1 2 3 --ramp.over 0.5"
    cli.main(["train", "digits-pixel-srt", *words.split(), "--dry-run"])
    recipe = loads(capsys.readouterr().out)
    assert (recipe.steps, recipe.objective.solver.around.eps, recipe.data.unlabeled) == (7, 0.25, 0)
    assert (recipe.model, recipe.ramp.over) == (DigitsCNN(channels=(1, 2, 3)), 0.5)


# Refusals

OBJECTIVES = ", ".join(part.__name__ for part in PARTS[Objective])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (edited(steps="many"), "steps: expected a whole number without a point or quotes, got 'many'"),
        (edited(steps=1.5), "steps: expected a whole number without a point or quotes, got 1.5"),
        (edited(steps=True), "steps: expected a whole number without a point or quotes, got True"),
        (edited(name=3), "name: expected a text in quotes, got 3"),
        (edited(data__flip=1), "data: flip: expected true or false, got 1"),
        (edited(objective__weight="1"), "objective: weight: expected a number without quotes, got '1'"),
        (edited(objective__weight=True), "objective: weight: expected a number without quotes, got True"),
        (edited(objective__weight=None), "objective: weight: expected a number without quotes, got None"),
        (edited(data__labeled=1.0), "data: labeled: expected a whole number without a point or quotes, got 1.0"),
        (edited(data__split="last"), "data: split: 'last' is none of balanced, first"),
        (edited(data__split=["balanced"]), "data: split: ['balanced'] is none of balanced, first"),
        (edited(model__channels=4), "model: channels: expected a list, got 4"),
        (edited(model__channels=[4, 4]), "model: channels: expected 3 items, got 2"),
        (
            edited(model__channels=[4, "4", 4]),
            "model: channels[1]: expected a whole number without a point or quotes, got '4'",
        ),
        (edited(data="digits"), "data: expected an object with a type (Data), got 'digits'"),
        (edited(objective=[]), f"objective: expected an object with a type ({OBJECTIVES}), got []"),
        ("[]", "expected an object with a type (Recipe), got []"),
        ("null", "expected an object with a type (Recipe), got None"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_place(text, words):
    with pytest.raises(ValueError) as error:
        loads(text, "my.json")
    assert str(error.value) == f"my.json: {words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (edited(stepz=5), "Recipe has no field 'stepz', did you mean 'steps'?"),
        (edited(optimizer__momentun=0.5), "optimizer: SGD has no field 'momentun', did you mean 'momentum'?"),
        (edited(ramp__epochs=5), "ramp: Ramp has no field 'epochs' (there are over)"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_name_or_all(text, words):
    with pytest.raises(ValueError) as error:
        loads(text)
    assert str(error.value) == f"the recipe: {words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (edited(objective__type="SRTT"), f"objective: 'SRTT' is none of {OBJECTIVES}, did you mean 'SRT'?"),
        (edited(objective__solver={"type": "SRT"}), "objective: solver: 'SRT' is none of PGD"),
        (edited(objective__solver={"type": "Recipe"}), "objective: solver: 'Recipe' is none of PGD"),
        (edited(objective__solver={"steps": 3}), "objective: solver: None is none of PGD"),
        (edited(objective__solver={"type": 3}), "objective: solver: 3 is none of PGD"),
        (edited(objective__solver={"type": ["PGD"]}), "objective: solver: ['PGD'] is none of PGD"),
        (edited(objective__solver={"type": "Grid", "around": {"type": "Linf"}}), "around: 'Linf' is none of Spatial"),
        (edited(data={"type": "SGD"}), "data: 'SGD' is none of Data"),
        (edited(objective__solver={"type": "Sequential"}), "objective: solver: Sequential is not complete"),
    ],
)
def test_a_part_that_does_not_belong_there_is_refused(text, words):
    with pytest.raises(ValueError) as error:
        loads(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (edited(objective__solver__around__eps=-0.1), "Linf.eps must be a finite number of at least 0, got -0.1"),
        (
            edited(objective__solver__around__eps=1e-60),
            "Linf.eps must be at least 1.2e-38, the smallest number of float32 above 0, got 1e-60: raise it",
        ),
        (
            edited(objective__weight=1e39),
            "SRT.weight must be at most 3.4e+38, the largest number of float32, got 1e+39: lower it",
        ),
        (
            edited(objective__solver__step_size=1e-60),
            "PGD.step_size must be at least 1.2e-38, the smallest number of float32 above 0, got 1e-60: raise it",
        ),
        (
            edited(optimizer__rate__peak=1e39),
            "Cyclic.peak must be at most 3.4e+38, the largest number of float32, got 1e+39: lower it",
        ),
        (
            edited(optimizer__weight_decay=1e39),
            "SGD.weight_decay must be at most 3.4e+38, the largest number of float32, got 1e+39: lower it",
        ),
        (edited(objective__weight=-1), "SRT.weight must be a finite number of at least 0, got -1.0"),
        (edited(objective__solver__steps=0), "PGD.steps must be at least 1, got 0"),
        (edited(objective__solver__step_size=0), "PGD.step_size must be a positive number, got 0.0"),
        (
            edited(objective__solver={"type": "Strongest", "solvers": []}),
            "Strongest.solvers must be a tuple of at least one solver, got ()",
        ),
        (edited(optimizer__rate__peak=-1), "Cyclic.peak must be a positive number, got -1.0"),
        (edited(optimizer__momentum=2), "SGD.momentum must lie between 0 and 1, got 2.0"),
        (edited(optimizer__weight_decay=-1), "SGD.weight_decay must be a finite number of at least 0, got -1.0"),
        (edited(validation__every=0), "Validation.every must be at least 1, got 0"),
        (edited(steps=0), "steps must be at least 1, got 0"),
        (edited(batch=-3), "batch must be at least 1, got -3"),
        (edited(log_every=0), "log_every must be at least 1, got 0"),
        (edited(data__labeled=0), "--data.labeled must be at least 1, got 0"),
        (edited(model__hidden=0), "DigitsCNN takes three channels and hidden units, all at least 1"),
        (edited(model={"type": "WideResNet", "depth": 11}), "WideResNet.depth must be 6n + 4"),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_part_itself(text, words):
    with pytest.raises(ValueError) as error:
        loads(text)
    assert str(error.value).startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (edited(objective__weight=math.nan), "NaN is not a number"),
        (edited(objective__weight=math.inf), "Infinity is not a number"),
        (edited(objective__weight=0.5).replace("0.5,", "1e999,", 1), "too large"),
        (edited(objective__weight=-(10**400)), "too large"),
        ("[" * 100_000, "nested too deeply"),
        ('{"name":' * 100_000, "nested too deeply"),
        ("", "is not JSON (line 1"),
        ("{", "is not JSON (line 1"),
        (dumps(Recipe())[:-20], "is not JSON (line"),
        ("steps: 7", "is not JSON (line 1"),
    ],
    ids=["nan", "infinity", "1e999", "large integer", "lists", "objects", "empty", "brace", "cut off", "yaml"],
)
def test_what_is_no_json_or_no_number_is_refused(text, words):
    with pytest.raises(ValueError) as error:
        loads(text)
    assert words in str(error.value)


@pytest.mark.parametrize("depth", [50, 200, 400])
def test_parts_may_be_nested_but_not_without_end(depth):
    text = edited(objective__solver="HERE").replace(
        '"HERE"', '{"type": "Sequential", "stages": [' * depth + '{"type": "FGSM"}' + "]}" * depth
    )
    if depth == 50:
        assert loads(text).objective.solver.stages[0].stages
    else:
        with pytest.raises(ValueError, match="nested too deeply to be a recipe"):
            loads(text)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    file = tmp_path / "recipe.json"
    file.write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(ValueError, match="is not a text file, expected a recipe in JSON"):
        read(file)


def test_a_file_that_begins_with_the_mark_of_utf_8_is_read(tmp_path):
    file = tmp_path / "recipe.json"
    file.write_text(dumps(Recipe(steps=7)), encoding="utf-8-sig")
    assert read(file) == Recipe(steps=7)


def test_a_directory_in_place_of_a_file_is_refused_with_the_file_in_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is a directory, expected a recipe in JSON.*: name another$"):
        read(tmp_path)
    (tmp_path / "recipe.json").write_text(dumps(Recipe()))
    with pytest.raises(FileNotFoundError, match=r"is a directory, expected .*: name .*/recipe\.json$"):
        read(tmp_path)


def test_a_recipe_with_a_number_json_cannot_hold_is_not_written():
    with pytest.raises(ValueError):
        dumps(Recipe(objective=AT(solver=WorstOfK(enough=math.inf))))


def test_the_nearest_name_is_offered_only_where_one_is_near():
    assert nearest("SRTT", ["AT", "SRT"]) == ", did you mean 'SRT'?"
    assert nearest("zebra", ["AT", "SRT"]) == ""


def test_an_unknown_recipe_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"there is no recipe 'digits-pixel-str', did you mean 'digits-pixel-"):
        named("digits-pixel-str")


# Any recipe at all

EXTREMES = [0, -1, 2**63, 10**400, -(10**400), 0.5, 1e308, 1e-320, True, None, "", "type", "PGD", "SRT", [], {}]
VALUES = st.recursive(
    st.one_of(st.sampled_from(EXTREMES), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["type", "steps", "stages", "around", "eps", "x"]), inner, max_size=3),
    ),
    max_leaves=5,
)


def containers(tree: object) -> list[dict | list]:
    """Every object and list in a JSON tree that has something in it, from the top down."""
    if not isinstance(tree, dict | list) or not tree:
        return []
    children = tree.values() if isinstance(tree, dict) else tree
    return [tree, *(found for child in children for found in containers(child))]


@st.composite
def spoiled_recipes(draw: st.DrawFn) -> str:
    """JSON of a recipe after a change or two of values, names and characters."""
    recipe = draw(st.one_of(st.just(INTRICATE), st.sampled_from(list(RECIPES.values()))))
    tree = json.loads(dumps(recipe))
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(containers(tree) or [{"type": "Recipe"}]))
        key = draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        change = draw(st.sampled_from(["value", "removal", "name"]))
        if change == "value":
            place[key] = draw(VALUES)
        elif change == "removal":
            del place[key]
        elif isinstance(place, dict):
            place[draw(st.text(max_size=6))] = place.pop(key)
    text = json.dumps(tree)
    if draw(st.integers(0, 3)) == 0:
        start, length = draw(st.integers(0, len(text))), draw(st.integers(0, 5))
        text = text[:start] + draw(st.text(max_size=5)) + text[start + length :]
    return text


@settings(
    max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(spoiled_recipes())
def test_whatever_stands_in_a_recipe_file_only_a_sentence_comes_out(text):
    try:
        recipe = loads(text)
    except ValueError as error:
        assert str(error)
    else:
        assert loads(dumps(recipe)) == recipe


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Average(batchnorm="estimate"),
            r"Average\.batchnorm must be copied, averaged, estimated or own, got 'estimate'",
        ),
        (lambda: Validation(keep="latest"), r"Validation\.keep must be best or last, got 'latest'"),
        (lambda: Validation(solver=PGD), r"Validation\.solver must be a solver, as .*, got <class "),
        (lambda: Recipe(objective=SRT), r"^objective must be one .*, as SRT\(\), got <class "),
        (lambda: Teacher(objective=SRT), r"Teacher\.objective must be one .*, as SRT\(\), got <class "),
        (lambda: Validation(drop=-1), r"Validation\.drop must be a finite number of at least 0, got -1"),
        (
            lambda: Recipe(objective=Standard(), validation=Validation(robust=True)),
            r"validation\.robust asks for .* the search of Standard, which has none: leave it out, or name a valid",
        ),
        (lambda: Recipe(validation=None), r"validation must be unperturbed\.Validation, got None"),
        (lambda: Validation(patience=0), r"Validation\.patience must be at least 1, got 0"),
        (lambda: Recipe(labeler="techer"), r"labeler must be current, average or teacher, got 'techer'"),
        (lambda: Recipe(batchnorm="global"), r"batchnorm must be local or synchronized, got 'global'"),
    ],
)
def test_misspelled_words_and_numbers_that_are_none_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("rate", [0.1, Cyclic, None])
def test_a_rate_alone_is_no_schedule(rate):
    with pytest.raises(ValueError, match=r"SGD\.rate must be a function of the progress, as Cyclic\(peak=0\.1\) or"):
        SGD(rate=rate)


def test_any_function_of_the_progress_is_a_schedule():
    assert SGD(rate=lambda progress: 0.1 * (1 - progress)).rate(0.5) == 0.05


def test_a_field_that_stands_twice_in_a_file_is_refused():
    with pytest.raises(ValueError, match=r"mine\.json: 'seed' stands there twice"):
        loads('{"seed": 3, "steps": 10, "seed": 0}', "mine.json")
