"""A finished run is a classifier that needs nothing but its own directory."""

import json
from dataclasses import replace

import pytest
import safetensors.torch
import torch

import unperturbed as up
from unperturbed import datasets
from unperturbed.comparison import read_report
from unperturbed.datasets import Use
from unperturbed.models import DigitsCNN
from unperturbed.recipes import RECIPES
from unperturbed.runs import USE, RunDirectory

RECIPE = replace(RECIPES["digits-pixel-srt"], model=DigitsCNN(channels=(2, 2, 4), hidden=8), steps=2, batch=32)
DIGITS = datasets.load("digits")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run."""
    path = tmp_path_factory.mktemp("run")
    up.train(RECIPE, path)
    return path


def with_use(run, said):
    """A copy of the run whose weights say that of their use."""
    weights = safetensors.torch.load_file(run / "model.safetensors")
    copy = run.with_name(f"copy-{abs(hash(said))}")
    copy.mkdir(exist_ok=True)
    (copy / "recipe.json").write_bytes((run / "recipe.json").read_bytes())
    safetensors.torch.save_file(weights, copy / "model.safetensors", None if said is None else {USE: said})
    return copy


def test_a_run_is_loaded_without_its_data(run, monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda *_: pytest.fail("the data set was looked up"))
    before = torch.random.get_rng_state()
    found = up.load(str(run))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (found.shape, found.classes) == ((1, 8, 8), tuple(map(str, range(10))))
    assert found.recipe.steps == 2
    assert not any(module.training for module in found.model.modules())
    state = safetensors.torch.load_file(run / "model.safetensors")
    assert all(torch.equal(tensor, state[name]) for name, tensor in found.model.state_dict().items())


def test_at_a_prompt_a_finished_run_and_its_data_are_a_line(run):
    assert repr(up.load(run)) == "<Finished digits-pixel-srt: DigitsCNN, 1 x 8 x 8, 10 classes>"
    assert repr(datasets.load("digits")) == (
        "<Dataset digits: 1,397 training, 400 test, 0 unlabeled images, 1 x 8 x 8, 10 classes>"
    )


def test_probabilities_are_those_of_the_model(run):
    found = up.load(run)
    images = DIGITS.test_images[:7]
    expected = found.model(images / 255).softmax(1)
    for given in (images, images / 255, images.double() / 255):
        assert torch.allclose(found.probabilities(given), expected, atol=1e-6)
    assert found.probabilities(images[:0]).shape == (0, 10)
    assert not found.probabilities(images).requires_grad
    with pytest.raises(ValueError, match="images must be a tensor"):
        found.probabilities(images.tolist())
    with pytest.raises(ValueError, match=r"got \(1, 8, 8\): of one image, give images\[None\]"):
        found.probabilities(images[0])


def test_probabilities_are_computed_in_float32_as_attacks_judge(run):
    precisions, found = set(), up.load(run)
    found.model.register_forward_hook(lambda *_: precisions.add(torch.backends.cudnn.allow_tf32))
    assert torch.backends.cudnn.allow_tf32, "what a device would do else"
    found.probabilities(DIGITS.test_images[:5])
    assert precisions == {False}


def test_many_images_are_answered_in_parts(run, monkeypatch):
    found = up.load(run)
    expected = found.probabilities(DIGITS.test_images[:20])
    monkeypatch.setattr("unperturbed.finished.AT_ONCE", 6)
    assert torch.allclose(found.probabilities(DIGITS.test_images[:20]), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (torch.rand(2, 1, 28, 28), r"must have the shape \(N, 1, 8, 8\), got \(2, 1, 28, 28\): cut or scale them"),
        (torch.rand(1, 8, 8), r"must have the shape \(N, 1, 8, 8\), got \(1, 8, 8\)"),
        (2 * torch.ones(2, 1, 8, 8), r"must lie in \[0, 1\]"),
    ],
)
def test_images_that_are_not_the_models_are_refused(run, images, sentence):
    with pytest.raises(ValueError, match=sentence):
        up.load(run).probabilities(images)


@pytest.mark.parametrize(
    "said",
    [
        None,
        "no JSON",
        "[]",
        "[" * 100_000,
        json.dumps({"shape": [1, 8, 8]}),
        json.dumps({"shape": [1, 8], "classes": ["0"]}),
        json.dumps({"shape": [2, 8, 8], "classes": ["0"]}),
        json.dumps({"shape": [1, 0, 8], "classes": ["0"]}),
        json.dumps({"shape": [1, 1 << 20, 1 << 20], "classes": ["0"]}),
        json.dumps({"shape": [1, 8, 8], "classes": []}),
        json.dumps({"shape": [1, 8, 8], "classes": 3}),
    ],
)
def test_weights_that_do_not_say_what_they_are_for_are_used_by_their_data_set(run, said):
    found = up.load(with_use(run, said))
    assert (found.shape, found.classes) == (DIGITS.use.shape, DIGITS.classes)


def test_weights_of_another_network_are_refused(run):
    copy = with_use(run, Use((1, 8, 8), ("yes", "no")).dumps())
    with pytest.raises(ValueError, match=r"does not hold the weights of this recipe's model"):
        up.load(copy)


def test_names_of_classes_are_made_fit_to_print(run):
    names = ("\x1b[31mred", *map(str, range(1, 10)))
    assert up.load(with_use(run, Use((1, 8, 8), names).dumps())).classes[0] == r"\x1b[31mred"


def test_a_run_that_is_not_finished_is_refused(run, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run \(no recipe.json\)"):
        up.load(tmp_path)
    (tmp_path / "recipe.json").write_bytes((run / "recipe.json").read_bytes())
    with pytest.raises(FileNotFoundError, match=r"holds no finished model \(no model.safetensors\): finish it with"):
        up.load(tmp_path)
    waits = "wait where a process still trains there, else finish it with"
    with RunDirectory(tmp_path).alone():
        with pytest.raises(FileNotFoundError, match=rf"holds no finished model .*: {waits}"):
            up.load(tmp_path)
        with pytest.raises(
            FileNotFoundError, match=rf"holds neither a report nor a finished model: {waits} .*, then"
        ):
            read_report(RunDirectory(tmp_path))


def test_the_use_of_weights_is_read_as_it_was_written(run):
    assert RunDirectory(run).read_use() == DIGITS.use


def test_the_example_in_the_repository_says_what_it_is_for(pytestconfig):
    found = up.load(pytestconfig.rootpath / "examples" / "mnist-srt")
    assert (found.shape, found.classes) == ((1, 28, 28), tuple(map(str, range(10))))
