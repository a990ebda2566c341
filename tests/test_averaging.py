"""The moving average of weights, labelers other than the model, and adversarial weight perturbation."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from tiny import trainer_with
from unperturbed.averaging import Average, AveragedModel, estimate_batchnorm, gathering
from unperturbed.awp import perturbed_weights, remembering
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.engine import Engine
from unperturbed.images import AT_ONCE, for_statistics, parts
from unperturbed.inputs import as_float
from unperturbed.losses import cross_entropy
from unperturbed.neighborhoods import Linf
from unperturbed.objectives import AT, SRT, Batch, Mixture, Standard, Terms
from unperturbed.solvers import FGSM, PGD
from unperturbed.trainer import Trainer

CPU = torch.device("cpu")
IMAGES = parts(load("digits"), Data(labeled=100, unlabeled=100))


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def trainer(**changes: object) -> Trainer:
    settings = {"f": network(), "images": IMAGES, "objective": Standard(), "steps": 20, "batch": 50, "device": CPU}
    return trainer_with(**settings | changes)


@pytest.mark.parametrize("statistics", ["averaged", "estimated", "own"])
def test_statistics_of_torchscript_are_those_of_the_model_or_refused(statistics):
    settings = {"f": torch.jit.script(network()), "labeler": "average"}
    trainer(**settings, averaging=Average(decay=0.9)).run()
    with pytest.raises(
        ValueError, match=f"TorchScript cannot be those of Average.batchnorm='{statistics}'.*'copied'"
    ):
        trainer(**settings, averaging=Average(decay=0.9, batchnorm=statistics))
    settings["f"] = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    trainer(**settings, averaging=Average(decay=0.9, batchnorm=statistics))  # It has no statistics to look after.


class Overheard:
    """An objective that keeps the batches it is given."""

    def __init__(self):
        self.batches: list[Batch] = []

    def __call__(self, f, batch, rng):
        self.batches.append(batch)
        return Standard()(f, batch, rng)


def test_the_average_follows_the_bias_corrected_rule():
    f, expected = nn.Linear(1, 1, bias=False), None
    average = AveragedModel(f, 0.9)
    expected = f.weight.item()
    for step in range(40):
        with torch.no_grad():
            f.weight.fill_(float(step))
        average.update(f, torch.tensor(average.share(step)))
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
        assert average.module.weight.item() == pytest.approx(expected, rel=1e-5)


def test_batchnorm_statistics_are_copied_and_never_averaged():
    f = network()
    average = AveragedModel(f, 0.99)
    f(torch.rand(8, 1, 8, 8))
    average.update(f, torch.tensor(average.share(1000)))
    assert torch.equal(average.module[2].running_mean, f[2].running_mean)


def test_estimated_statistics_are_those_of_the_images():
    f = network().eval()
    images = torch.rand(64, 1, 8, 8)
    estimate_batchnorm(f, [images])
    torch.testing.assert_close(f[2].running_mean, f[1](images.flatten(1)).mean(0).detach())
    assert not f.training
    assert f[2].momentum == 0.1


def test_statistics_are_estimated_without_dropout():
    f = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm2d(1)).train()
    images = torch.rand(64, 1, 8, 8)
    estimate_batchnorm(f, [images])
    torch.testing.assert_close(f[1].running_var, images.var().view(1))
    assert not any(module.training for module in f.modules())


class FrozenNorm(nn.BatchNorm1d):
    """A BatchNorm that stays in evaluation mode, as one of a network that was trained before."""

    def train(self, mode=True):
        return super().train(False)


@pytest.mark.parametrize("norm", [FrozenNorm(3), nn.Identity()], ids=["one that stays", "none"])
def test_a_network_whose_norms_gather_nothing_labels_in_evaluation_mode(norm):
    f = nn.Sequential(nn.Dropout(0.9), norm).train()
    assert not any(module.training for module in gathering(f).modules())


@pytest.mark.parametrize("engine", [Engine(), Engine(folded=True)], ids=["plain", "folded"])
@pytest.mark.parametrize(("batchnorm", "labeler"), [("estimated", "current"), ("own", "average")])
@pytest.mark.parametrize("others", [[], [nn.BatchNorm1d(10)]], ids=["alone", "beside another"])
def test_a_norm_that_stays_in_evaluation_mode_keeps_its_statistics(batchnorm, labeler, others, engine):
    f, heard = nn.Sequential(*network(), *deepcopy(others)), Overheard()
    f[2] = FrozenNorm(16)
    f[2].running_mean.fill_(0.3)
    averaging = Average(decay=0.9, batchnorm=batchnorm)
    run = trainer(f=f, objective=heard, averaging=averaging, labeler=labeler, steps=3, engine=engine)
    with torch.random.fork_rng(devices=()):
        run.advance()
        module = gathering(deepcopy(run.average.module))
        run.advance()
    if labeler == "average":
        batch = heard.batches[1]
        torch.testing.assert_close(batch.opinion, module(torch.cat([batch.x, batch.u])))
    run.run()
    assert torch.equal(run.f[2].running_mean, torch.full((16,), 0.3))
    assert torch.equal(run.f[2].num_batches_tracked, torch.tensor(0))
    assert all(norm.running_mean.any() for norm in run.f[5:]), "others gather theirs"


@pytest.mark.parametrize(
    ("batchnorm", "labeler"),
    [
        ("copied", "current"),
        ("averaged", "current"),
        ("estimated", "current"),
        ("copied", "average"),
        ("averaged", "average"),
        ("own", "average"),
    ],
)
def test_a_run_with_an_average_ends_with_the_average_and_resumes_exactly(batchnorm, labeler):
    changes = {"averaging": Average(decay=0.95, batchnorm=batchnorm), "labeler": labeler}
    plain, whole, stopped = trainer(), trainer(**changes), trainer(**changes)
    plain.run()
    whole.run()
    assert not torch.equal(plain.f[1].weight, whole.f[1].weight)
    assert torch.equal(whole.f[1].weight, whole.average.module[1].weight)
    gathered = torch.equal(whole.f[2].running_mean, whole.average.module[2].running_mean)
    assert gathered == (batchnorm != "estimated")
    with torch.random.fork_rng(devices=()):
        for _ in range(7):
            stopped.advance()
    resumed = trainer(f=network(9), **changes)
    resumed.resume(deepcopy(stopped.state()))
    resumed.run()
    for ours, theirs in zip(resumed.f.state_dict().values(), whole.f.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_run_without_an_average_may_end_with_statistics_estimated_anew_too():
    plain, fresh = trainer(), trainer(averaging=Average(batchnorm="estimated"))
    plain.run()
    fresh.run()
    assert torch.equal(plain.f[1].weight, fresh.f[1].weight)
    assert not torch.equal(plain.f[2].running_mean, fresh.f[2].running_mean)
    expected = deepcopy(plain.f)
    estimate_batchnorm(expected, for_statistics(plain.images, plain.recipe.seed))
    for ours, theirs in zip(fresh.f.state_dict().values(), expected.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_statistics_are_estimated_in_parts_of_one_size_where_one_image_would_be_left_over():
    images = parts(load("digits"), Data(labeled=100, unlabeled=AT_ONCE + 1 - 100))
    run = trainer(images=images, steps=1, averaging=Average(decay=0.95, batchnorm="estimated"))
    run.run()
    every = as_float(torch.cat([images.labeled, images.unlabeled]))
    torch.testing.assert_close(
        run.f[2].running_mean, run.f[1](every.flatten(1)).mean(0).detach(), atol=1e-3, rtol=1e-2
    )


def test_the_labeler_is_f_unless_another_is_named():
    objective = Overheard()
    trainer(objective=objective, steps=1).run()
    assert objective.batches[0].opinion is None


def test_a_teacher_gives_its_opinion_of_the_very_images_of_the_batch():
    objective, teacher = Overheard(), network(5).eval()
    untouched = deepcopy(teacher)
    run = trainer(objective=objective, steps=1)
    run.outer.teacher = teacher
    run.run()
    (batch,) = objective.batches
    torch.testing.assert_close(batch.opinion, untouched(torch.cat([batch.x, batch.u])))


def test_the_average_gives_its_opinion_in_evaluation_mode():
    objective = Overheard()
    run = trainer(objective=objective, steps=3, averaging=Average(decay=0.9), labeler="average")
    with torch.random.fork_rng(devices=()):
        run.advance()
        module = deepcopy(run.average.module).eval()
        run.advance()
    batch = objective.batches[1]
    torch.testing.assert_close(batch.opinion, module(torch.cat([batch.x, batch.u])))


@pytest.mark.parametrize("engine", [Engine(), Engine(folded=True)], ids=["plain", "folded"])
def test_an_average_with_statistics_of_its_own_labels_by_those_of_the_images(engine):
    """Its weights are not those that the model's statistics belong to."""
    objective, averaging = Overheard(), Average(decay=0.9, batchnorm="own")
    f = nn.Sequential(*network(), nn.Dropout(0.5))
    run = trainer(f=f, objective=objective, steps=3, averaging=averaging, labeler="average", engine=engine)
    with torch.random.fork_rng(devices=()):
        run.advance()
        module = gathering(deepcopy(run.average.module))
        run.advance()
    batch = objective.batches[1]
    images = torch.cat([batch.x, batch.u])
    torch.testing.assert_close(batch.opinion, module(images))
    mean = run.average.module[2].running_mean
    torch.testing.assert_close(mean, module[2].running_mean)
    assert not torch.allclose(mean, run.f[2].running_mean, rtol=1e-3)


@pytest.mark.parametrize("engine", [Engine(), Engine(folded=True)], ids=["plain", "folded"])
def test_an_average_without_batchnorm_labels_by_its_present_weights(engine):
    heard, f = Overheard(), nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    averaging = Average(decay=0.5, batchnorm="own")
    run = trainer(f=f, objective=heard, averaging=averaging, labeler="average", engine=engine)
    for _ in range(5):
        with torch.no_grad():
            present = deepcopy(run.average.module)
        run.advance()
        seen = torch.cat([heard.batches[-1].x, heard.batches[-1].u])
        assert torch.allclose(heard.batches[-1].opinion, present(seen), atol=1e-5)


def test_an_average_with_statistics_of_its_own_takes_all_other_buffers_over():
    f = nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), nn.BatchNorm2d(1))
    average = AveragedModel(f, 0.9, batchnorm="own")
    f(torch.rand(8, 1, 4, 4))
    average.update(f, torch.tensor(1.0))
    assert torch.equal(average.module[0].running_mean, f[0].running_mean), "nobody else would ever change these"
    assert torch.equal(average.module[1].running_mean, torch.zeros(1)), "these it gathers while it labels"


def test_statistics_may_be_averaged_as_weights_are():
    f = nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), nn.BatchNorm2d(1, momentum=None))
    average = AveragedModel(f, 0.9, batchnorm="averaged")
    f(1 + torch.rand(8, 1, 4, 4))
    average.update(f, torch.tensor(0.25))
    before, norm = torch.ones(1), average.module[1]
    torch.testing.assert_close(norm.running_mean, 0.25 * f[1].running_mean)
    torch.testing.assert_close(norm.running_var, 0.75 * before + 0.25 * f[1].running_var)
    assert norm.num_batches_tracked == 1, "a count has no mean"
    assert torch.equal(average.module[0].running_mean, f[0].running_mean), "others are copied"


def test_statistics_cannot_be_averaged_where_no_average_is_kept():
    with pytest.raises(ValueError, match=r"no average is kept: set --averaging\.decay, .* or --averaging\.batchnorm"):
        trainer(averaging=Average(batchnorm="averaged"))


def test_an_average_that_does_not_label_has_no_statistics_of_its_own():
    with pytest.raises(ValueError, match=r"set --labeler average, or --averaging\.batchnorm estimated"):
        trainer(averaging=Average(decay=0.9, batchnorm="own"))


def test_an_average_that_is_not_kept_cannot_label():
    with pytest.raises(ValueError, match=r"none is kept: set --averaging\.decay"):
        trainer(labeler="average")


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_outside_its_range_is_refused(decay):
    with pytest.raises(ValueError, match=r"Average\.decay must be at least 0 and below 1"):
        Average(decay=decay)


def test_weights_are_perturbed_by_a_share_of_their_norm_and_come_back_exactly():
    f = network()
    before = deepcopy(f.state_dict())
    f(torch.rand(8, 1, 8, 8)).square().sum().backward()
    for name, value in f.named_buffers():
        before[name] = value.clone()
    with perturbed_weights(f, 0.1):
        moved = (f[1].weight - before["1.weight"]).norm() / before["1.weight"].norm()
        assert moved.item() == pytest.approx(0.1, rel=1e-4)
        assert torch.equal(f[1].bias, before["1.bias"])
    for name, value in f.state_dict().items():
        assert torch.equal(value, before[name])


def test_remembered_solvers_answer_the_second_time_as_the_first(rng):
    solver = PGD(around=Linf(eps=0.1), steps=2, step_size=0.1, start="uniform")
    objective, memories = remembering(Mixture(objectives=(AT(solver=solver), SRT(solver=solver))))
    x = torch.rand(6, 1, 8, 8)
    batch = Batch(x, torch.arange(6), x[:0])
    f = network()
    objective(f, batch, rng)
    kept = [list(getattr(memory, "answers", ()) or memory.opinions) for memory in memories]
    assert list(map(len, kept)) == [1, 1, 1]
    for memory in memories:
        memory.asked = 0
    with torch.no_grad():
        f[1].weight.neg_()
    objective(f, batch, rng)
    assert [list(getattr(memory, "answers", ()) or memory.opinions) for memory in memories] == kept


def test_worse_weights_are_judged_by_the_labels_of_those_before(rng):
    objective, (_, labels) = remembering(SRT(solver=lambda loss, x, rng: x))
    x, f = torch.rand(6, 1, 8, 8), network().eval()
    batch = Batch(x, torch.arange(6), x[:0])
    objective(f, batch, rng)
    before = f(x).argmax(1)
    with torch.no_grad():
        f[4].weight.neg_()
    labels.asked = 0
    assert torch.equal(objective(f, batch, rng).robust, cross_entropy(f(x), before).mean())


def test_worse_weights_are_judged_by_the_same_labels_in_a_mixture_too():
    srt = SRT(solver=FGSM(around=Linf(eps=0.1)))
    alone, mixed = (
        trainer(objective=objective, weight_perturbation=0.5) for objective in (srt, Mixture(objectives=(srt,)))
    )
    alone.run()
    mixed.run()
    assert torch.equal(alone.f[1].weight, mixed.f[1].weight)


def test_worse_weights_are_judged_on_the_same_perturbed_images():
    searched = []

    def solver(loss, x, rng):
        searched.append(len(x))
        return x

    trainer(objective=SRT(solver=solver), weight_perturbation=0.1, steps=2).run()
    assert searched == [50, 50]


def test_weight_perturbation_minimizes_the_loss_at_worse_weights():
    solver = FGSM(around=Linf(eps=0.1))
    flat, plain = (trainer(objective=SRT(solver=solver), weight_perturbation=radius) for radius in (0.05, 0.0))
    with torch.random.fork_rng(devices=()):
        worse: Terms = flat.advance()
        terms: Terms = plain.advance()
    assert worse.total > terms.total
    assert not torch.equal(flat.f[1].weight, plain.f[1].weight)


def test_batchnorm_remembers_a_step_once_and_by_the_weights_that_are_kept():
    solver = FGSM(around=Linf(eps=0.1))
    flat, plain = (trainer(objective=SRT(solver=solver), weight_perturbation=radius) for radius in (0.05, 0.0))
    with torch.random.fork_rng(devices=()):
        flat.advance()
        plain.advance()
    for mine, its in zip(flat.f.buffers(), plain.f.buffers(), strict=True):
        assert torch.equal(mine, its)


def test_a_run_with_everything_on_is_reproducible():
    settings = {
        "objective": SRT(solver=FGSM(around=Linf(eps=0.1)), targets="soft", smoothing=0.1),
        "averaging": Average(decay=0.9),
        "labeler": "average",
        "weight_perturbation": 0.01,
    }
    first, second = trainer(**settings), trainer(**settings)
    first.run()
    second.run()
    assert torch.equal(first.f[1].weight, second.f[1].weight)


def test_an_average_takes_whole_numbers_over_as_they_are():
    f = nn.Linear(2, 2)
    f.order = nn.Parameter(torch.arange(3), requires_grad=False)
    average = AveragedModel(f, 0.9)
    f.order.data = torch.tensor([2, 1, 0])
    average.update(f, torch.tensor(0.5))
    assert average.module.order.tolist() == [2, 1, 0]


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("averaging", [Average(decay=0.9), Average(batchnorm="estimated")], ids=["kept", "none"])
def test_networks_that_keep_results_of_operations_are_averaged_and_estimated_as_others_are(averaging):
    def ended(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
        f = network()
        norm(f[1])
        run = trainer(f=f, averaging=averaging)
        run.advance()
        assert run.result_so_far()(as_float(IMAGES.labeled)).isfinite().all()
        run.run()
        return run.f

    old, new = (ended(norm) for norm in (nn.utils.weight_norm, nn.utils.parametrizations.weight_norm))
    assert torch.allclose(old(as_float(IMAGES.labeled)), new(as_float(IMAGES.labeled)), atol=1e-6)


class Counting(nn.Module):
    """It remembers how often it was trained, and its weights do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.register_buffer("times", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.times += 1.0
        return self.inner(x - 0.1 * self.times)


def test_an_average_that_labels_goes_on_with_all_that_it_remembers():
    def run() -> Trainer:
        return trainer(
            f=Counting(),
            labeler="average",
            averaging=Average(decay=0.9),
            objective=SRT(solver=FGSM(), targets="soft"),
        )

    whole, stopped, resumed = run(), run(), run()
    whole.run()
    for _ in range(10):
        stopped.advance()
    resumed.resume(deepcopy(stopped.state()))
    resumed.run()
    assert all(torch.equal(*pair) for pair in zip(whole.f.parameters(), resumed.f.parameters(), strict=True))


def test_weights_are_perturbed_under_an_objective_without_a_solver():
    @dataclass(frozen=True)
    class Searchless:
        solver: None = None

        def __call__(self, f: nn.Module, batch: Batch, rng: torch.Generator) -> Terms:
            assert self.solver is None
            return Standard()(f, batch, rng)

    trainer(objective=Searchless(), steps=2, weight_perturbation=0.01).run()
