"""Recipes with parts of one's own, folders and files of one's own: what is told, and what is refused."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import unperturbed as up
from unperturbed import recipe as recipes
from unperturbed.cli import main
from unperturbed.datasets import IDX_FILES, SOURCES, load
from unperturbed.own_parts import is_by, own_parts, source_of_own_parts
from unperturbed.pictures import files_in
from unperturbed.progress import Warnings
from unperturbed.recipes import named
from unperturbed.schedules import value_at

RECIPE = replace(named("digits-pixel-srt"), steps=3, batch=30)


@dataclass(frozen=True, kw_only=True)
class Mine:
    """An objective of one's own."""

    smoothing: float = 0.0

    def __call__(self, f, batch, rng):
        loss = up.cross_entropy(f(batch.x), batch.y).mean()
        return up.Terms(standard=loss, robust=torch.zeros_like(loss))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x.flatten(1)).relu()).relu())


@dataclass(frozen=True, kw_only=True)
class TiedWeights:
    """A network of one's own."""

    def __call__(self, shape, classes):
        return Tied()


@dataclass(frozen=True, kw_only=True)
class LazyWeights:
    """A network whose layers find out themselves how much they take."""

    def __call__(self, shape, classes):
        return nn.Sequential(nn.Flatten(), nn.LazyBatchNorm1d(), nn.LazyLinear(classes))


class Remarks(nn.Linear):
    def get_extra_state(self):
        return {"made": "by hand"}

    def set_extra_state(self, state): ...


@dataclass(frozen=True, kw_only=True)
class RemarkedWeights:
    """A network that keeps words beside its weights."""

    def __call__(self, shape, classes):
        return nn.Sequential(nn.Flatten(), Remarks(64, classes))


@dataclass(frozen=True, kw_only=True)
class SparseWeights:
    """A network that keeps a sparse matrix beside its weights."""

    def __call__(self, shape, classes):
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
        network[1].register_buffer("mixing", torch.eye(2).to_sparse())
        return network


def test_a_checkpoint_of_another_recipe_is_not_gone_on_from(tmp_path, refused):
    run, words = tmp_path / "run", ("--steps", 3, "--batch", 30, "--device", "cpu", "--out", tmp_path / "run")
    main(["train", "digits-pixel-srt", *map(str, words)])
    file, weights = run / "recipe.json", (run / "model.safetensors").read_bytes()
    before = file.read_text()
    again = ("train", "--from", file, "--out", run, "--device", "cpu")
    for old, new in (('"weight": 1.0', '"weight": 9.0'), ('"steps": 3', '"steps": 5'), ('"steps": 3', '"steps": 2')):
        assert old in before
        file.write_text(before.replace(old, new, 1))
        assert "is of another recipe: restore recipe.json as it was, name another --out, or" in refused(*again)
        assert (run / "model.safetensors").read_bytes() == weights
    file.write_text(before)
    main([*map(str, again)])
    assert (run / "model.safetensors").read_bytes() == weights


def test_a_checkpoint_that_names_no_recipe_or_fewer_fields_is_gone_on_from():
    tree = json.loads(recipes.dumps(RECIPE))
    assert is_by(RECIPE, None)
    assert is_by(RECIPE, recipes.dumps(RECIPE))
    assert is_by(RECIPE, json.dumps({name: value for name, value in tree.items() if name != "microbatch"}))
    assert not is_by(RECIPE, json.dumps(tree | {"seed": 1}))
    mine = replace(RECIPE, objective=Mine())
    assert is_by(mine, recipes.dumps(mine))
    assert not is_by(mine, recipes.dumps(replace(mine, objective=Mine(smoothing=0.1))))


def test_parts_of_ones_own_are_found_wherever_they_are():
    assert not list(own_parts(RECIPE))
    taught = replace(RECIPE, teacher=up.Teacher(objective=Mine()), model=TiedWeights())
    assert {part.__name__ for part in own_parts(taught)} == {"Mine", "TiedWeights"}
    mixed = replace(RECIPE, objective=up.Mixture(objectives=(up.Standard(), Mine())))
    assert [part.__name__ for part in own_parts(mixed)] == ["Mine"]
    assert "An objective of one's own." in source_of_own_parts(mixed)
    assert source_of_own_parts(RECIPE) == ""


def test_a_part_of_ones_own_with_the_name_of_ours_is_refused(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class FGSM:
        around: up.Linf

        def __call__(self, loss, x, rng):
            return x

    with pytest.raises(ValueError, match=r"one of ours, FGSM, which its recipe.json would mean: rename it"):
        up.train(replace(RECIPE, objective=up.SRT(solver=FGSM(around=up.Linf()))), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_teacher_by_a_part_of_ones_own_is_used_again_only_with_a_word(tmp_path, monkeypatch):
    monkeypatch.setenv("UNPERTURBED_CACHE", str(tmp_path / "cache"))
    recipe = replace(RECIPE, labeler="teacher", teacher=up.Teacher(objective=Mine(), steps=2, batch=30))
    told = [[], []]
    for number, said in enumerate(told):
        watcher = Warnings()
        monkeypatch.setattr(watcher, "warned", said.append)
        up.train(recipe, tmp_path / f"run-{number}", device="cpu", watcher=watcher)
    (teacher,) = (tmp_path / "cache" / "teachers").iterdir()
    assert told[0] == []
    (sentence,) = told[1]
    assert re.search(rf"trained before, in {re.escape(str(teacher))}: delete it where what Mine does has", sentence)
    monkeypatch.setattr("unperturbed.own_parts.source_of", lambda part: "written anew")
    up.train(recipe, tmp_path / "anew", device="cpu")
    assert len(list((tmp_path / "cache" / "teachers").iterdir())) == 2


def test_tied_weights_are_written_each_by_itself_and_read_again(tmp_path):
    model = up.train(replace(RECIPE, model=TiedWeights()), str(tmp_path / "run"), device="cpu")
    written = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert written["first.weight"].equal(written["second.weight"])
    fresh = Tied()
    fresh.load_state_dict(written)
    x = torch.rand(3, 1, 8, 8)
    assert fresh.eval()(x).equal(model.eval().cpu()(x))


def test_a_run_of_a_network_of_ones_own_says_how_its_weights_are_read(tmp_path):
    up.train(replace(RECIPE, model=TiedWeights()), tmp_path / "run", device="cpu")
    with pytest.raises(
        ValueError, match=r"model: 'TiedWeights' is none of DigitsCNN, .*; parts of your own"
    ) as refusal:
        up.load(tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    assert str(refusal.value).endswith(f"by load_state_dict(safetensors.torch.load_file('{file}'))")
    Tied().load_state_dict(safetensors.torch.load_file(file))


def test_a_name_that_is_nearly_one_of_ours_is_no_part_of_ones_own(tmp_path):
    file = tmp_path / "recipe.json"
    file.write_text(recipes.dumps(RECIPE).replace('"DigitsCNN"', '"DigitCNN"'))
    with pytest.raises(ValueError, match=r"'DigitCNN' is none of .*, did you mean 'DigitsCNN'\?$"):
        recipes.read(file)


@dataclass(frozen=True, kw_only=True)
class NoNetwork:
    """Something else than a network."""

    def __call__(self, shape, classes):
        return classes


def test_what_makes_no_network_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"a model must be a torch\.nn\.Module, got a int"):
        up.train(replace(RECIPE, model=NoNetwork()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_lazy_layers_get_the_weights_of_the_seed(tmp_path):
    def trained(name: str, seed: int = 0) -> Tensor:
        recipe = replace(RECIPE, model=LazyWeights(), seed=seed)
        return up.train(recipe, tmp_path / name)[2].weight

    first = trained("first")
    torch.rand(3)
    assert torch.equal(trained("again"), first), "whatever was drawn before"
    assert not torch.equal(trained("other", seed=1), first)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    trained("last")
    assert torch.equal(torch.rand(1), expected), "random numbers of the caller go on"


@pytest.mark.parametrize(("model", "kept"), [(RemarkedWeights(), "_extra_state"), (SparseWeights(), "mixing")])
def test_a_network_whose_state_cannot_be_kept_is_refused_before_it_is_trained(model, kept, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(
        ValueError, match=rf"the network keeps 1\.{kept} besides dense tensors.*: keep it in a buffer"
    ):
        up.train(replace(RECIPE, model=model), out)
    assert not out.exists()


def test_the_recipe_that_nobody_has_changed_trains(tmp_path):
    up.train(up.Recipe(steps=2), tmp_path / "run", device="cpu")
    assert up.recipes.named("digits-pixel-srt").data == up.Data(labeled=100)


def test_a_grid_with_other_counts_than_parameters_is_refused_where_it_is_made():
    with pytest.raises(ValueError, match="takes 5 positive counts"):
        up.Grid(around=up.Affine(), points=(2, 2, 2))
    assert up.Grid(around=up.Affine(), points=(2, 2, 2, 2, 2)).points == (2, 2, 2, 2, 2)


@pytest.mark.parametrize("objective", [up.AT, up.SRT, up.TRADES, up.KLR, up.UAT])
@pytest.mark.parametrize(
    ("solver", "got"),
    [(lambda loss, x, rng: None, "got None"), (lambda loss, x, rng: x[:1], r"got \(1, 1, 8, 8\)")],
    ids=["nothing", "one image"],
)
def test_a_solver_that_returns_no_images_is_told_what_to_return(objective, solver, got):
    images, labels = torch.rand(4, 1, 8, 8), torch.arange(4)
    with pytest.raises(ValueError, match=rf"a solver must return an x' for each x, images of shape .*, {got}"):
        objective(solver=solver)(Tied(), up.Batch(images, labels, images[:0]), torch.Generator())


@pytest.mark.parametrize(
    "answer",
    [lambda loss: up.Terms(standard=loss, robust=0.0), lambda loss: loss, lambda loss: (loss, loss)],
    ids=["a number", "the loss itself", "a tuple"],
)
@pytest.mark.parametrize("microbatch", [None, 5])
@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "in a mixture"])
def test_an_objective_that_returns_no_terms_is_told_what_to_return(answer, mixed, microbatch):
    def objective(f, batch, rng):
        return answer(up.cross_entropy(f(batch.x), batch.y).mean())

    digits = load("digits")
    with pytest.raises(ValueError, match=r"must return unperturbed.Terms\(standard=..., robust=...\), both tensors"):
        up.fit(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
            labeled=(digits.train_images[:100], digits.train_labels[:100]),
            objective=up.Mixture(objectives=(up.Standard(), objective)) if mixed else objective,
            steps=2,
            batch=10,
            microbatch=microbatch,
            device="cpu",
        )


def test_unlabeled_bytes_of_another_scale_are_refused_in_files_too(tmp_path, refused):
    images = np.random.default_rng(0).integers(0, 16, (40, 8, 8), dtype=np.uint8)
    words = ("train", "digits-pixel-srt", "--steps", 2, "--batch", 30, "--device", "cpu", "--out", tmp_path / "run")
    np.save(tmp_path / "dark.npy", images)
    sentence = refused(*words, "--data.unlabeled-files", tmp_path / "dark.npy")
    assert "bytes that go up to 15, expected 255: multiply all images by 255 / 15, and round" in sentence
    assert not (tmp_path / "run").exists()
    for number, fine in enumerate((17 * images, 0 * images)):
        np.save(tmp_path / "dark.npy", fine)
        up.train(
            replace(RECIPE, data=replace(RECIPE.data, unlabeled_files=(str(tmp_path / "dark.npy"),))),
            tmp_path / f"fine-{number}",
            device="cpu",
        )


@pytest.mark.parametrize(("name", "other"), [("fashion-mnist", "mnist"), ("mnist", "fashion-mnist")])
def test_a_folder_of_another_data_set_in_files_of_the_same_names_is_refused(name, other, tmp_path):
    labels = np.array([*SOURCES[other].begins, *range(10)], dtype=np.uint8)
    images = np.zeros((len(labels), 28, 28), dtype=np.uint8)
    images[:, 0, 0] = 255
    for file, array in zip(IDX_FILES, (images, labels, images, labels), strict=True):
        header = b"\0\0\x08" + bytes([array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
        (tmp_path / file).write_bytes(header + array.tobytes())
    assert len(load(other, tmp_path).train_labels) == len(labels)
    with pytest.raises(ValueError, match=f"holds {other}, not {name}: name the folder of {name}, or {other} by"):
        load(name, tmp_path)


def test_folders_that_are_linked_to_each_other_are_gone_through_once_each(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.png").touch()
        (tmp_path / name / "more").symlink_to(Path("..") / other)
    assert sorted(str(path.relative_to(tmp_path / "a")) for path in files_in(tmp_path / "a")) == [
        "a.png",
        "more/b.png",
    ]


def fitted(images=None, **settings):
    digits = load("digits")
    images = digits.train_images[:100] if images is None else images
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return up.fit(model, labeled=(images, digits.train_labels[:100]), steps=4, batch=10, device="cpu", **settings)


def test_a_rate_of_ones_own_that_turns_negative_is_refused():
    with pytest.raises(
        ValueError, match=r"the rate is -0.125 at progress 0.625, expected 0 or more, at most 3.4e\+38: mend"
    ):
        fitted(optimizer=up.SGD(rate=lambda progress: 0.5 - progress))
    fitted(optimizer=up.SGD(rate=lambda progress: 0.1 * (progress < 0.5)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (1e39, r"1e\+39"),
        (float("nan"), "nan"),
        (10**400, "inf"),
        (10**5000, "inf"),
        (None, "None"),
        ("fast", "'fast'"),
        (1j, "1j"),
        (torch.ones(2), r"tensor\(\[1., 1.\]\)"),
    ],
    ids=["1e39", "nan", "401 digits", "5001 digits", "None", "word", "complex", "two numbers"],
)
def test_a_rate_or_a_ramp_of_ones_own_that_is_no_number_of_float32_is_refused(given, told):
    with pytest.raises(
        ValueError, match=rf"the rate is {told} at progress 0.125, expected 0 or more, at most 3.4e\+38"
    ):
        fitted(optimizer=up.SGD(rate=lambda progress: given))
    with pytest.raises(ValueError, match=rf"the share of the robust term is {told} at progress 0.125, expected"):
        fitted(ramp=lambda progress: given)


def test_a_rate_or_a_ramp_of_ones_own_may_be_a_number_of_numpy_or_torch():
    given = {"optimizer": up.SGD(rate=lambda progress: np.float32(0.5)), "ramp": lambda progress: torch.tensor(0.25)}
    fitted(**given)
    assert json.dumps(value_at(given["optimizer"].rate, 0.1, "rate")) == "0.5"
    assert json.dumps(value_at(given["ramp"], 0.1, "share")) == "0.25"


def test_images_that_ask_for_gradients_get_none():
    images = torch.rand(100, 1, 8, 8, requires_grad=True)
    fitted(images, unlabeled=torch.rand(20, 1, 8, 8, requires_grad=True))
    assert images.grad is None and images.requires_grad
