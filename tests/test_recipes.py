"""The recipes: their names, the paper's numbers, and that each of them trains."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from unperturbed.averaging import Average
from unperturbed.datasets import load
from unperturbed.guards import require_use_by
from unperturbed.models import DigitsCNN, ResNet, SmallCNN, WideResNet
from unperturbed.neighborhoods import L2, Linf, Spatial
from unperturbed.objectives import AT, KLR, SRT, TRADES, UAT, Mixture, Standard
from unperturbed.recipe import SGD
from unperturbed.recipes import RECIPES, digits, named, usual_budget
from unperturbed.recipes.budgets import REASONS, SETS, Budget, chosen
from unperturbed.recipes.methods import epochs
from unperturbed.recipes.words import DEFENSES
from unperturbed.runs import RunDirectory
from unperturbed.schedules import Cyclic, Piecewise, Ramp
from unperturbed.solvers import FGSM, NFGSM, PGD, PowerIteration, Sequential, Strongest, WorstOfK
from unperturbed.training import fresh_model, parts, train

SPATIAL = WorstOfK(around=Spatial(rotation=30.0, translation=3.0), k=10)
SOLVERS = {
    "mnist-pixel": PGD(around=Linf(eps=0.3), steps=40, step_size=0.01),
    "cifar10-pixel": PGD(around=Linf(eps=0.031), steps=10, step_size=0.007),
    "mnist-spatial": SPATIAL,
    "cifar10-spatial": SPATIAL,
}
MODELS = {
    "mnist-pixel": SmallCNN(),
    "mnist-spatial": SmallCNN(),
    "cifar10-pixel": WideResNet(depth=34, width=10),
    "cifar10-spatial": ResNet(filters=(16, 16, 32, 64), units=5),
}
BASICS = {"pixel": ("standard", "at", "rt", "srt"), "spatial": ("standard", "worst-of-k", "rt", "srt")}
LABELS_ALONE = ("-standard", "-at", "-worst-of-k", "-rt", "-trades", "-klr")
PAPER = [f"{name}-{method}" for name in SOLVERS for method in BASICS[name.split("-")[1]]]
"""the recipes whose every number the paper states"""

every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
every_recipe_of_the_paper = pytest.mark.parametrize("recipe", [named(name) for name in PAPER], ids=PAPER)


def scenario(recipe):
    """The first two words of a recipe's name."""
    return "-".join(recipe.name.split("-")[:2])


def method(recipe):
    """What follows them."""
    return recipe.name.removeprefix(f"{scenario(recipe)}-")


@every_recipe
def test_a_name_tells_data_scenario_and_method(recipe):
    assert re.fullmatch(r"(digits|mnist|cifar10)-(pixel|spatial|compound)-[a-z0-9.-]+", recipe.name)
    assert recipe.name.startswith(recipe.data.name)
    assert RECIPES[recipe.name] is recipe
    name, _, weight = method(recipe).partition("-lambda-")
    assert name in DEFENSES
    assert not weight or recipe.objective.weight == float(weight)


def test_every_defense_of_the_catalog_has_a_recipe_on_every_data_set():
    for data in ("digits", "mnist", "cifar10"):
        assert {method(recipe) for recipe in RECIPES.values() if recipe.data.name == data} >= set(DEFENSES)


@pytest.mark.parametrize(
    ("data", "trades", "uat", "fast", "plusplus"),
    [
        ("digits", 1.0, 1.0, (3.0, 2.0), (2.0, 2.0)),
        ("mnist", 1.0, 6.0, (1.0, 0.2), (2.0, 0.4)),
        ("cifar10", 6.0, 1.0, (1.0, 0.2), (3.0, 0.4)),
    ],
)
def test_a_method_minimizes_its_own_objective(data, trades, uat, fast, plusplus):
    srt = {kind: RECIPES[f"{data}-{kind}-srt"].objective for kind in ("pixel", "spatial")}
    ascent, turn = srt["pixel"].solver, srt["spatial"].solver
    ball = Linf(eps=usual_budget(data).eps)
    briefly = PGD(around=ball, steps=3, step_size=ball.eps / 2, start="uniform")
    joined = {"solver": briefly, "mean": "images", "forward": "together"} if data == "cifar10" else {}
    objectives = {
        "pixel-standard": Standard(),
        "pixel-at": AT(solver=ascent),
        "pixel-rt": srt["pixel"],
        "pixel-trades": TRADES(solver=ascent, weight=trades),
        "pixel-rst": TRADES(solver=ascent, weight=trades),
        "pixel-uat": UAT(solver=ascent, weight=uat),
        "pixel-uat-ft": AT(solver=ascent),
        "pixel-uat-plusplus": UAT(solver=ascent, weight=uat, form="++"),
        "pixel-vat": UAT(solver=PowerIteration(around=L2(eps=8 * ball.eps)), weight=1.0),
        "pixel-srt-fast": replace(srt["pixel"], solver=FGSM(around=ball), weight=fast[0]),
        "pixel-srt-fast-noise": replace(srt["pixel"], solver=NFGSM(around=ball), weight=fast[0]),
        "pixel-srt-plusplus": replace(srt["pixel"], weight=plusplus[0], smoothing=0.1, **joined),
        "spatial-worst-of-k": AT(solver=turn),
        "spatial-at": AT(solver=ascent),
        "spatial-klr": KLR(solver=turn, weight=1.0),
        "spatial-srt-fast": replace(srt["spatial"], weight=fast[1]),
        "spatial-srt-authors": SRT(solver=turn, weight=0.2, forward="together", mean="images"),
        "spatial-srt-plusplus": replace(srt["spatial"], weight=plusplus[1], smoothing=0.1),
        "compound-at": AT(solver=Sequential(stages=(ascent, turn))),
        "compound-at-average": Mixture(objectives=(AT(solver=ascent), AT(solver=turn))),
        "compound-at-max": AT(solver=Strongest(solvers=(ascent, turn))),
    }
    assert {name: RECIPES[f"{data}-{name}"].objective for name in objectives} == objectives


@pytest.mark.parametrize(
    ("data", "averaging"),
    [
        ("digits", Average(decay=0.99)),
        ("mnist", Average(decay=0.99, batchnorm="estimated")),
        ("cifar10", Average(decay=0.999, batchnorm="averaged")),
    ],
)
def test_srt_plusplus_averages_its_weights_and_the_spatial_average_labels(data, averaging):
    pixel, spatial = RECIPES[f"{data}-pixel-srt-plusplus"], RECIPES[f"{data}-spatial-srt-plusplus"]
    assert pixel.labeler == ("teacher" if data == "cifar10" else "current")
    assert pixel.averaging == averaging
    assert spatial.labeler == "average"
    assert spatial.averaging == Average(decay=0.99, batchnorm="own" if data == "mnist" else "copied")


@pytest.mark.parametrize("data", ["digits", "mnist", "cifar10"])
def test_srt_as_the_authors_code_has_it_takes_their_split_and_their_augmentation(data):
    authors, ours = RECIPES[f"{data}-spatial-srt-authors"], RECIPES[f"{data}-spatial-srt"]
    assert authors.data == replace(ours.data, split="first", crop=0, flip=True)
    assert replace(authors, name=ours.name, data=ours.data, objective=ours.objective) == ours


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith(("-uat-ft", "-uat-plusplus", "-rst"))])
def test_methods_that_need_labels_for_unlabeled_images_have_a_teacher(name):
    assert RECIPES[name].labeler == "teacher"
    assert RECIPES[name].data.unlabeled is None


@pytest.mark.parametrize(
    "name",
    [
        f"{data}-{method}"
        for data in ("digits", "mnist", "cifar10")
        for method in (
            "pixel-at",
            "pixel-rt",
            "pixel-srt",
            "pixel-trades",
            "spatial-worst-of-k",
            "spatial-rt",
            "spatial-srt",
            "spatial-klr",
        )
    ],
)
def test_a_solver_searches_the_neighborhood_in_which_its_model_is_attacked(name):
    budget = usual_budget(RECIPES[name].data.name)
    warps = Spatial(rotation=budget.rotation, translation=budget.translation)
    assert RECIPES[name].objective.solver.around == (warps if "-spatial-" in name else Linf(eps=budget.eps))


@pytest.mark.parametrize("data", ["digits", "mnist", "cifar10"])
def test_the_compound_scenario_puts_the_spatial_solver_on_top_of_the_pixel_wise_one(data):
    pixel, spatial, both = (
        RECIPES[f"{data}-{scenario}-srt"].objective for scenario in ("pixel", "spatial", "compound")
    )
    assert both.solver == Sequential(stages=(pixel.solver, spatial.solver))


@pytest.mark.parametrize("name", [name for name in RECIPES if "-srt-fast" in name])
def test_fast_srt_is_shorter_and_watched_by_labeled_images_that_are_held_out(name):
    fast, whole = RECIPES[name], RECIPES[name.split("-fast")[0]]
    assert fast.steps < whole.steps
    assert 0 < fast.data.validation < fast.data.labeled
    assert fast.validation.drop < 1
    assert fast.validation.keep == "last"
    assert fast.validation.every == fast.steps // 20
    ball = Linf(eps=usual_budget(fast.data.name).eps)
    guard = PGD(around=ball, steps=5, step_size=ball.eps / 3, start="uniform")
    assert fast.validation.solver == (guard if "-pixel-" in name else fast.objective.solver)
    assert isinstance(fast.optimizer.rate, Cyclic)


@every_recipe
def test_an_objective_looks_at_all_images_of_its_recipe(recipe):
    require_use_by(recipe, 0 if recipe.data.unlabeled == 0 else 1)


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith(LABELS_ALONE)])
def test_methods_that_use_labels_alone_see_no_unlabeled_image(name):
    data = RECIPES[name].data
    assert data.unlabeled == 0
    seen = parts(load("digits"), replace(data, name="digits", labeled=100))
    assert (len(seen.labeled), len(seen.unlabeled)) == (100, 0)


@pytest.mark.parametrize("name", [name for name in RECIPES if name.endswith("-srt")])
def test_srt_sees_every_image_whose_label_is_not_used(name):
    seen = parts(load("digits"), replace(RECIPES[name].data, name="digits", labeled=100))
    assert (len(seen.labeled), len(seen.unlabeled)) == (100, 1297)


@pytest.mark.parametrize("name", [name for name in RECIPES if method(RECIPES[name]).startswith("rt")])
def test_rt_differs_from_srt_by_unlabeled_images_and_steps_alone(name):
    rt, srt = RECIPES[name], RECIPES[name.replace("-rt", "-srt")]
    assert replace(rt, name=srt.name, data=srt.data, steps=srt.steps) == srt
    assert rt.data == replace(srt.data, unlabeled=0)


@every_recipe_of_the_paper
def test_the_paper_has_10_000_labels_batches_of_128_and_no_ramp(recipe):
    assert recipe.data.labeled == 10_000
    assert recipe.data.validation == 0
    assert recipe.batch == 128
    assert recipe.ramp == Ramp(over=0.0)


@every_recipe_of_the_paper
def test_the_networks_are_those_of_the_paper(recipe):
    assert recipe.model == MODELS[scenario(recipe)]


@every_recipe_of_the_paper
def test_images_of_cifar10_alone_are_cropped_and_flipped(recipe):
    augmented = (4, True) if recipe.data.name == "cifar10" else (0, False)
    assert (recipe.data.crop, recipe.data.flip) == augmented


@pytest.mark.parametrize("name", [name for name in PAPER if not name.endswith("-standard")])
def test_radius_steps_and_step_sizes_are_those_of_the_paper(name):
    assert RECIPES[name].objective.solver == SOLVERS[scenario(RECIPES[name])]


@pytest.mark.parametrize("name", [name for name in PAPER if name.endswith(("-rt", "-srt"))])
def test_lambda_is_1_pixel_wise_and_0_2_spatially(name):
    objective = RECIPES[name].objective
    assert objective.weight == (1.0 if "-pixel-" in name else 0.2)
    assert objective.mean == ("images" if "-spatial" in name else "terms")


def test_warped_images_go_through_a_network_with_batchnorm_together_with_clean_ones():
    srt = {name: recipe for name, recipe in RECIPES.items() if isinstance(recipe.objective, SRT)}
    together = {name for name, recipe in srt.items() if recipe.objective.forward == "together"}
    warped = {name for name in srt if re.match("(digits|cifar10)-(spatial|compound)-", name)}
    assert together == warped | {"mnist-spatial-srt-authors", "cifar10-pixel-srt-plusplus"}


def test_spatial_rt_and_srt_take_the_mean_that_lambda_and_rate_of_the_paper_belong_to():
    spatial = [recipe for name, recipe in RECIPES.items() if re.match(r"(mnist|cifar10)-spatial-s?rt", name)]
    assert len(spatial) == 2 * 13
    assert {recipe.objective.mean for recipe in spatial} == {"images"}
    others = [recipe.objective for name, recipe in RECIPES.items() if not re.match(r"(mnist|cifar10)-spatial", name)]
    exceptions = [RECIPES[name].objective for name in ("digits-spatial-srt-authors", "cifar10-pixel-srt-plusplus")]
    srt = [objective for objective in others if isinstance(objective, SRT) and objective not in exceptions]
    assert {objective.mean for objective in srt} == {"terms"}


def test_lambda_of_srt_plus_grows_over_a_fifth_of_a_run():
    ramps = {name: recipe.ramp for name, recipe in RECIPES.items() if not name.startswith("digits-")}
    plus = {"mnist-compound-srt", "cifar10-compound-srt"}
    assert {ramps.pop(name) for name in plus} == {Ramp(over=0.5)}
    assert set(ramps.values()) == {Ramp(over=0.0)}


def test_pixel_wise_at_beside_spatial_defenses_of_mnist_has_the_pixel_wise_schedule():
    pixel, spatial = RECIPES["mnist-pixel-at"], RECIPES["mnist-spatial-at"]
    rate = Piecewise(rate=0.01, milestones=(55 / 100, 75 / 100, 90 / 100))
    assert spatial == replace(pixel, name=spatial.name, optimizer=SGD(rate=rate))


@every_recipe_of_the_paper
def test_learning_rates_are_those_of_the_paper(recipe):
    pixel = SGD(rate=Piecewise(rate=0.05, milestones=(75 / 120, 90 / 120, 100 / 120)), weight_decay=5e-4)
    spatial = SGD(rate=Piecewise(rate=0.1, milestones=(40 / 80, 60 / 80)), weight_decay=2e-4)
    assert recipe.optimizer == (pixel if "-pixel-" in recipe.name else spatial)
    assert (recipe.optimizer.momentum, recipe.optimizer.nesterov) == (0.9, False)


@every_recipe_of_the_paper
def test_runs_take_120_epochs_pixel_wise_and_80_000_steps_spatially(recipe):
    images = 10_000 if recipe.data.unlabeled == 0 else {"mnist": 60_000, "cifar10": 50_000}[recipe.data.name]
    steps = round(120 * images / 128) if "-pixel-" in recipe.name else 80_000
    assert recipe.steps == steps


def test_epochs_are_counted_in_steps():
    assert epochs(120, images=10_000) == 9_375
    assert [epochs(1, images=images, batch=30) for images in (100, 110)] == [3, 4]


def test_digits_stay_small_enough_for_a_cpu():
    for recipe in digits.recipes():
        assert recipe.data.labeled == 100
        assert isinstance(recipe.model, DigitsCNN)
        assert recipe.steps <= 2_000


def test_budgets_are_those_of_the_papers_evaluation():
    cifar10, mnist = usual_budget("cifar10"), usual_budget("mnist")
    assert (cifar10.eps, cifar10.steps, cifar10.step_size) == (0.031, 10, 0.007)
    assert (mnist.eps, mnist.steps, mnist.step_size) == (0.3, 40, 0.01)
    for budget in (cifar10, mnist):
        assert (budget.rotation, budget.translation, budget.fraction) == (30.0, 3.0, 1.0)
    assert usual_budget("digits") == digits.BUDGET


def test_other_images_are_attacked_by_the_habits_of_the_field():
    assert usual_budget("my.npz") == Budget()
    assert (Budget().eps, Budget().steps, Budget().step_size) == (8 / 255, 20, 2 / 255)


def test_attacks_are_chosen_by_name_in_any_case_and_in_the_order_given():
    attacks = Budget().attacks()
    assert chosen(attacks, "all") == attacks
    assert list(chosen(attacks, "gridadv, PGD")) == ["gridadv", "pgd"]


def test_sets_of_attacks_are_chosen_by_their_name_and_no_attack_twice():
    attacks = Budget().attacks()
    assert list(chosen(attacks, "quick")) == ["fgsm", "pgd", "randadv", "gridadv"]
    assert list(chosen(attacks, "pgd,quick,ddn")) == ["pgd", "fgsm", "randadv", "gridadv", "ddn"]
    for members in SETS.values():
        assert set(members) <= set(attacks)
    assert set(REASONS) == set(attacks)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("pdg", "there is no attack 'pdg', did you mean 'pgd'? (there are fgsm, pgd"),
        ("pgd,gridav.t", "there is no attack 'gridav.t', did you mean 'gridadv.t'?"),
        ("pgd gridadv", "there is no attack 'pgd gridadv': put commas between several, as pgd,gridadv (there are"),
        ("spatail", "there is no attack 'spatail', did you mean 'spatial'?"),
        ("zzzzzz", "there is no attack 'zzzzzz' (there are fgsm"),
        ("", "there is no attack '' (there are fgsm"),
    ],
)
def test_an_attack_that_is_not_there_is_answered_with_the_nearest(names, sentence):
    with pytest.raises(ValueError) as refusal:
        chosen(Budget().attacks(), names)
    assert str(refusal.value).startswith(sentence)


def test_a_recipe_that_is_not_there_is_answered_with_the_nearest():
    assert named("mnist-pixel-srt") is RECIPES["mnist-pixel-srt"]
    with pytest.raises(
        ValueError, match=r"there is no recipe 'mnist-pixl-srt', did you mean 'mnist-pixel-srt'\? \(`"
    ):
        named("mnist-pixl-srt")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Two data sets of noise, of one channel and of three, with two classes."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tiny")
    for channels in (1, 3):
        images = rng.integers(0, 256, (40, 16, 16, channels), dtype=np.uint8)
        labels = np.arange(40) % 2
        np.savez(
            folder / f"{channels}.npz",
            train_images=images,
            train_labels=labels,
            test_images=images,
            test_labels=labels,
        )
    return folder


TRAINED = [name for name in RECIPES if name.startswith("digits")]
TRAINED += ["mnist-pixel-srt", "mnist-pixel-rst", "mnist-spatial-srt"]
TRAINED += ["cifar10-pixel-srt-fast", "cifar10-spatial-srt-authors", "cifar10-compound-at"]
SMALL = {
    DigitsCNN: DigitsCNN(channels=(4, 4, 4), hidden=8),
    ResNet: ResNet(units=1),
    WideResNet: WideResNet(depth=10, width=1),
}


@pytest.mark.parametrize("name", TRAINED)
def test_a_recipe_trains_three_steps_on_tiny_images(name, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    recipe = RECIPES[name]
    channels = 3 if recipe.data.name == "cifar10" else 1
    shrunk = replace(
        recipe,
        data=replace(
            recipe.data, name=str(tiny / f"{channels}.npz"), labeled=12, validation=min(4, recipe.data.validation)
        ),
        model=SMALL.get(type(recipe.model), recipe.model),
        steps=3,
        batch=6,
        teacher=replace(recipe.teacher, steps=2),
        log_every=1,
    )
    model, run = train(shrunk, tmp_path / "run", device="cpu"), RunDirectory(tmp_path / "run")
    log = run.read_log()
    assert [record["step"] for record in log] == [1, 2, 3]
    assert all(np.isfinite(value) for record in log for value in record.values())
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert run.read_recipe() == shrunk
    other = fresh_model(shrunk, load(shrunk.data.name))
    assert not all(map(torch.equal, other.parameters(), model.parameters())), "it has learned something"
    run.read_weights(other)
    assert all(map(torch.equal, other.parameters(), model.parameters()))
    assert (tmp_path / "cache").exists() == (recipe.labeler == "teacher")


def test_the_other_data_sets_have_the_methods_that_were_trained_on_digits():
    def methods(data):
        return {
            re.sub(r"-lambda-.*", "", recipe.name.removeprefix(data))
            for recipe in RECIPES.values()
            if recipe.data.name == data
        }

    assert methods("digits") == methods("mnist") == methods("cifar10")
