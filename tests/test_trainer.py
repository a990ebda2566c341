"""The training loop: exact resume, an honest log, the choice of weights, and inputs it cannot use."""

import io
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
import torch
from torch import Generator, Tensor, nn

from tiny import timeless, trainer_with
from unperturbed.averaging import Average
from unperturbed.data import Data
from unperturbed.datasets import load
from unperturbed.guards import CollapseAlarm, DivergedError
from unperturbed.images import Images, parts
from unperturbed.losses import Against, margin
from unperturbed.neighborhoods import Linf, Spatial
from unperturbed.objectives import AT, SRT, Batch, Mixture, Standard, Terms
from unperturbed.progress import Record
from unperturbed.recipe import SGD, Validation
from unperturbed.schedules import Cyclic, Piecewise, Ramp
from unperturbed.selection import Selection, unsaved_buffers
from unperturbed.solvers import FGSM, PGD, Solver, Strongest, WorstOfK
from unperturbed.trainer import Trainer

CPU = torch.device("cpu")


@cache
def digits(labeled: int = 100, unlabeled: int = 200, validation: int = 0) -> Images:
    return parts(load("digits"), Data(labeled=labeled, unlabeled=unlabeled, validation=validation))


def network(seed: int = 0, *, dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        layers = (nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 10))
        return nn.Sequential(nn.Flatten(), *layers)


def trainer(**changes: object) -> Trainer:
    settings: dict[str, object] = {
        "f": network(),
        "images": digits(),
        "objective": Standard(),
        "steps": 12,
        "batch": 60,
        "log_every": 5,
        "device": CPU,
    }
    return trainer_with(**settings | changes)


@dataclass
class Diary:
    """A watcher that remembers all it was told."""

    steps: list[tuple[int, int]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def stepped(self, step: int, steps: int) -> None:
        self.steps.append((step, steps))

    def logged(self, record: Record) -> None:
        self.records.append(record)

    def warned(self, sentence: str) -> None:
        self.warnings.append(sentence)


@dataclass
class Scripted:
    """An objective whose terms are written down in advance, step by step; f is trained a little meanwhile."""

    standard: list[float]
    robust: list[float]
    batches: list[Batch] = field(default_factory=list)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        nothing = 0 * f(batch.x).sum()
        step = len(self.batches)
        self.batches.append(batch)
        return Terms(nothing + self.standard[step], nothing + self.robust[step])


@dataclass
class GradientOverflow:
    """An objective that stays finite while its gradient, at one step, does not."""

    at: int
    step: int = 0

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        mean = f(batch.x).square().mean()
        infinitely_steep = (mean - mean.detach()).abs().sqrt()
        self.step += 1
        return Terms(mean + infinitely_steep if self.step - 1 == self.at else mean, torch.zeros_like(mean))


def stored(state: dict[str, object]) -> dict[str, object]:
    """The state as another process would read it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_same(one: object, other: object, place: str = "state") -> None:
    """Equal to the last bit, also within dictionaries and lists."""
    assert type(one) is type(other), place
    if isinstance(one, Tensor):
        assert torch.equal(one, other), place
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), place
        for key in one:
            assert_same(one[key], other[key], f"{place}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for i, (item, counterpart) in enumerate(zip(one, other, strict=True)):
            assert_same(item, counterpart, f"{place}[{i}]")
    else:
        assert one == other, place


# Resume


@pytest.mark.parametrize(
    "extras",
    [{}, {"averaging": Average(decay=0.9), "labeler": "average", "weight_perturbation": 0.01}],
    ids=["plain", "average and AWP"],
)
def test_a_run_stopped_after_any_step_and_resumed_leaves_no_trace(extras):
    def started(seed: int) -> Trainer:
        return trainer(
            f=network(seed, dropout=0.5),
            images=digits(labeled=80, unlabeled=220, validation=20),
            objective=SRT(solver=FGSM(around=Linf(eps=0.1))),
            optimizer=SGD(rate=Cyclic(peak=0.1)),
            ramp=Ramp(over=0.5),
            data=Data(crop=1, flip=True),
            validation=Validation(every=4, solver=FGSM(around=Linf(eps=0.1))),
            **extras,
        )

    whole, states, records = started(0), {}, []
    whole.run(
        write_log=records.append,
        write_checkpoint=lambda: states.update({whole.step: stored(whole.state())}),
        checkpoint_seconds=0.0,
    )
    assert whole.batches.steps_per_epoch == 4
    assert [record["step"] for record in records] == [4, 5, 8, 10, 12]
    assert sorted(states) == list(range(1, 13))
    final = whole.state()
    assert final["optimizer"]["state"][0]["momentum_buffer"].any()
    for stop, state in states.items():
        resumed, later = started(seed=1), []
        resumed.resume(state)
        assert_same(stored(resumed.state()), state, f"resumed at {stop}")
        resumed.run(write_log=later.append)
        assert_same(resumed.state(), final, f"after a stop at {stop}")
        assert_same(resumed.f.state_dict(), whole.f.state_dict(), f"chosen after a stop at {stop}")
        assert timeless(later) == timeless([record for record in records if record["step"] > stop])


class Remembering(nn.Module):
    """A network that counts its passes in training and keeps the number out of the file of its weights."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.f = network(seed)
        self.register_buffer("passes", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.passes = self.passes + 1
        return self.f(x) / (1 + self.passes)


def test_a_resumed_run_remembers_what_the_file_of_the_weights_does_not_hold():
    whole, states = trainer(f=Remembering(0)), []
    whole.run(write_checkpoint=lambda: states.append(stored(whole.state())), checkpoint_seconds=0.0)
    resumed = trainer(f=Remembering(1))
    resumed.resume(states[5])
    resumed.run()
    assert_same(resumed.state(), whole.state())
    assert whole.f.passes == 12


def test_buffers_beside_the_weights_are_those_that_their_file_leaves_out():
    f = nn.BatchNorm1d(2)
    f.register_buffer("passes", 3 * f.weight, persistent=False)
    assert list(found := unsaved_buffers(f)) == ["passes"]
    assert found["passes"].tolist() == [3, 3]
    assert not found["passes"].requires_grad, "as the weights in that file"


def test_seeds_decide_the_run():
    def weights(seed: int) -> list[Tensor]:
        run = trainer(seed=seed, steps=3)
        run.run()
        return [weight.detach() for weight in run.f.parameters()]

    assert_same(weights(1), weights(1))
    assert not torch.equal(weights(1)[0], weights(2)[0])


def test_every_step_of_every_seed_draws_numbers_of_its_own():
    drawn: list[float] = []

    def objective(f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        drawn.extend((torch.rand((), generator=rng).item(), torch.rand(()).item()))
        return Standard()(f, batch, rng)

    for seed in range(3):
        trainer(objective=objective, seed=seed, steps=3).run()
    ours, the_global_ones = drawn[::2], drawn[1::2]
    assert len(set(ours)) == len(set(the_global_ones)) == 9


def test_a_run_leaves_the_random_numbers_of_its_caller_as_they_were():
    torch.manual_seed(123)
    before = torch.get_rng_state()
    trainer(f=network(dropout=0.5)).run()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_does_not_depend_on_the_random_numbers_of_its_caller():
    finals = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        run = trainer(f=network(dropout=0.5), steps=3)
        run.run()
        finals.append(run.state())
    assert_same(*finals)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda state: state.pop("optimizer"), "'optimizer'"),
        (
            lambda state: state.update(
                model=trainer(f=nn.Sequential(nn.Flatten(), nn.Linear(64, 10))).state()["model"]
            ),
            "",
        ),
        (lambda state: state["model"].update({"1.weight": torch.zeros(3, 64)}), "size mismatch for 1.weight"),
        (lambda state: state.update(model="weights"), "dict"),
        (lambda state: state.update(optimizer=[]), ""),
        (lambda state: state.update(since_log=None), ""),
    ],
    ids=["field missing", "another network", "another size", "no weights", "no optimizer", "no terms"],
)
def test_a_state_of_something_else_is_refused_in_a_sentence(spoil, words):
    run = trainer(steps=2)
    run.run()
    state = stored(run.state())
    spoil(state)
    with pytest.raises(ValueError, match="the checkpoint does not fit this recipe") as caught:
        trainer().resume(state)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# The log


def test_a_line_of_the_log_has_these_fields_and_the_means_since_the_last_line():
    objective = Scripted(standard=[1, 2, 3, 4, 5], robust=[10, 20, 30, 40, 60])
    rate, ramp = Cyclic(peak=0.1, top=0.5), Ramp(over=0.5)
    run = trainer(objective=objective, steps=5, log_every=2, optimizer=SGD(rate=rate), ramp=ramp)
    records: list[Record] = []
    run.run(write_log=records.append)
    assert [list(record) for record in records] == [
        [
            "step",
            "rate",
            "standard",
            "robust",
            "robust_weight",
            "labeled_accuracy",
            "largest_class_share",
            "images_per_second",
            "seconds",
        ]
    ] * 3
    assert [record["step"] for record in records] == [2, 4, 5]
    assert [record["standard"] for record in records] == [1.5, 3.5, 5.0]
    assert [record["robust"] for record in records] == [15.0, 35.0, 60.0]
    # A step is taken at the middle of its share of the run.
    assert [record["rate"] for record in records] == pytest.approx([rate(0.3), rate(0.7), rate(0.9)])
    assert [record["robust_weight"] for record in records] == pytest.approx([0.6, 1.0, 1.0])
    assert all(record["seconds"] >= 0 and record["images_per_second"] > 0 for record in records)


def test_the_log_says_how_the_classifier_fares_on_labeled_images_and_on_all():
    class ThreeIfBright(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(10))

        def forward(self, x: Tensor) -> Tensor:
            answer = torch.where(x.mean((1, 2, 3)) > 0.5, 3, 4)
            return 10 * nn.functional.one_hot(answer, 10) + self.bias

    bright, dark = torch.full((30, 1, 4, 4), 0.9), torch.full((10, 1, 4, 4), 0.1)
    images = Images(
        labeled=torch.cat([bright, dark]),
        labels=torch.arange(40) % 10,
        unlabeled=bright.repeat(2, 1, 1, 1),
        validation=bright[:0],
        validation_labels=torch.arange(0),
    )
    records: list[Record] = []
    objective = Scripted(standard=[1.0], robust=[0.0])
    trainer(f=ThreeIfBright(), images=images, objective=objective, steps=1, batch=50).run(write_log=records.append)
    # Of the bright ones three are labeled 3, of the dark ones one is labeled 4.
    assert records[0]["labeled_accuracy"] == 4 / 40
    assert records[0]["largest_class_share"] == pytest.approx(90 / 100)


def test_the_speed_of_a_resumed_run_counts_only_its_own_steps(monkeypatch):
    first = trainer(steps=10, log_every=10)
    states = {}
    first.run(write_checkpoint=lambda: states.update({first.step: stored(first.state())}), checkpoint_seconds=0.0)
    second, records = trainer(steps=10, log_every=10), []
    second.resume(states[8])
    monkeypatch.setattr("unperturbed.trainer.time.perf_counter", iter(range(100)).__next__)
    second.run(write_log=records.append)
    assert records[0]["images_per_second"] * records[0]["seconds"] == pytest.approx(2 * second.recipe.batch)


def test_the_speed_in_a_line_of_the_log_is_that_of_the_steps_since_the_last(monkeypatch):
    records = []
    monkeypatch.setattr("unperturbed.trainer.time.perf_counter", iter(range(100)).__next__)
    run = trainer(steps=15)
    run.run(write_log=records.append)
    images = [record["images_per_second"] * record["seconds"] for record in records]
    assert images == pytest.approx([5 * run.recipe.batch] * 3)


def test_a_watcher_sees_every_step_and_every_line():
    diary, records = Diary(), []
    trainer().run(watcher=diary, write_log=records.append)
    assert diary.steps == [(step, 12) for step in range(1, 13)]
    assert diary.records == records


def test_the_objective_sees_the_model_in_training_mode_and_the_caller_gets_it_in_evaluation_mode():
    modes = []

    def objective(f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        modes.append(f.training)
        return Standard()(f, batch, rng)

    settings = {"log_every": 1, "images": digits(validation=20), "validation": Validation(every=1)}
    run = trainer(f=network().eval(), objective=objective, **settings)
    run.run()
    assert modes == [True] * 12
    assert not any(module.training for module in run.f.modules())


def test_the_ramp_scales_the_robust_term_and_nothing_else():
    class Slopes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slopes = nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, :10] + self.slopes.sum()

    def objective(f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        return Terms(standard=-f.slopes[0], robust=-f.slopes[1])

    run = trainer(
        f=Slopes(),
        objective=objective,
        steps=4,
        ramp=Ramp(over=1.0),
        optimizer=SGD(rate=Piecewise(rate=1.0, milestones=()), momentum=0.0, weight_decay=0.0),
    )
    run.run()
    assert run.f.slopes.tolist() == [4.0, (0.5 + 1.5 + 2.5 + 3.5) / 4]


def test_weights_take_the_steps_of_torch_with_every_setting_of_the_optimizer():
    def sum_of_weights(f: nn.Module, *_: object) -> Terms:
        total = torch.stack([weight.sum() for weight in f.parameters()]).sum()
        return Terms(total, 0 * total)

    settings = {"momentum": 0.8, "weight_decay": 0.3, "nesterov": True}
    run = trainer(objective=sum_of_weights, steps=3, optimizer=SGD(rate=Piecewise(milestones=()), **settings))
    run.run()
    twin = network()
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, **settings)
    for _ in range(3):
        theirs.zero_grad()
        sum_of_weights(twin).total.backward()
        theirs.step()
    for ours, its in zip(run.f.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, its)


# Batches


@pytest.mark.parametrize("unlabeled", [0, 200])
def test_batches_have_the_same_size_with_and_without_unlabeled_images(unlabeled):
    objective = Scripted(standard=[1.0] * 12, robust=[1.0] * 12)
    trainer(objective=objective, images=digits(unlabeled=unlabeled)).run()
    for batch in objective.batches:
        assert len(batch.x) + len(batch.u) == 60
        assert len(batch.x) == len(batch.y)
    assert sum(len(batch.u) for batch in objective.batches) == (0 if unlabeled == 0 else 12 * 40)


def test_batches_hold_floats_in_the_unit_interval_and_labels_that_belong_to_their_images():
    objective = Scripted(standard=[1.0] * 12, robust=[1.0] * 12)
    trainer(objective=objective, data=Data(crop=1, flip=True)).run()
    assert len(objective.batches) == 12
    assert all(
        batch.x.dtype == torch.float32 and 0 <= batch.x.min() < batch.x.max() <= 1 for batch in objective.batches
    )
    plain = Scripted(standard=[1.0] * 12, robust=[1.0] * 12)
    trainer(objective=plain).run()
    labels_of = {
        image.tobytes(): int(label) for image, label in zip(digits().labeled.numpy(), digits().labels, strict=True)
    }
    for batch in plain.batches:
        for image, label in zip((255 * batch.x).round().byte().numpy(), batch.y, strict=True):
            assert labels_of[image.tobytes()] == int(label)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"batch": 20},
            "1 of a batch of 20 are labeled: raise the batch, or set least_labeled (--least-labeled) to 2",
        ),
        (
            {"batch": 60, "microbatch": 20},
            "3 parts: raise --microbatch, or set least_labeled (--least-labeled) to 6",
        ),
    ],
)
def test_a_single_labeled_image_that_batchnorm_refuses_is_told_in_a_sentence(changes, words):
    few = {"images": digits(labeled=10, unlabeled=190), "objective": SRT(solver=FGSM(around=Linf(eps=0.1)))}
    with pytest.raises(ValueError, match="a pass has a single image") as refused:
        trainer(**few | changes).run()
    assert words in str(refused.value)
    trainer(**few | changes, least_labeled=2 if "microbatch" not in changes else 6).run()


# Numbers that are none


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint_from_before(bad):
    objective = Scripted(standard=[1.0] * 7 + [bad] * 5, robust=[0.0] * 12)
    run, states = trainer(objective=objective, optimizer=SGD(rate=Cyclic(peak=0.3))), {}
    with pytest.raises(DivergedError, match=r"not finite from step 7 on.*optimizer\.rate\.peak = 0\.3"):
        run.run(write_checkpoint=lambda: states.update({run.step: stored(run.state())}), checkpoint_seconds=0.0)
    assert sorted(states) == list(range(1, 8))
    assert all(weight.isfinite().all() for state in states.values() for weight in state["model"].values())
    resumed = trainer()
    resumed.resume(states[7])
    resumed.run()
    assert resumed.step == 12


def test_a_robust_term_that_alone_is_no_number_puts_the_blame_on_its_weight_and_solver():
    objective = Scripted(standard=[1.0] * 12, robust=[0.0] * 3 + [float("nan")] * 9)
    with pytest.raises(DivergedError, match=r"from step 3 on.*objective\.weight or objective\.solver"):
        trainer(objective=objective).run()


def test_without_checkpoints_divergence_is_noticed_at_the_next_line_of_the_log():
    objective, records = Scripted(standard=[1.0] * 6 + [float("nan")] * 6, robust=[0.0] * 12), []
    with pytest.raises(DivergedError, match="from step 6 on"):
        trainer(objective=objective).run(write_log=records.append)
    assert [record["step"] for record in records] == [5]


@pytest.mark.parametrize("at", [4, 11])
def test_weights_that_are_no_numbers_are_never_kept_though_the_loss_is_finite(at):
    run, kept = trainer(objective=GradientOverflow(at=at)), []
    with pytest.raises(DivergedError, match=rf"the weights are not finite from step {at + 1} on.*optimizer\.rate"):
        run.run(write_checkpoint=lambda: kept.append(run.step), checkpoint_seconds=0.0)
    assert kept == list(range(1, at + 1))


# The alarm


def dense(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def robustly(**changes: object) -> Diary:
    diary = Diary()
    settings = {
        "f": dense(),
        "images": digits(unlabeled=400),
        "objective": SRT(solver=PGD(around=Linf(eps=0.15), steps=2, step_size=0.1)),
        "batch": 100,
        "steps": 60,
        "log_every": 10,
    }
    trainer(**settings | changes).run(watcher=diary)
    return diary


def test_a_classifier_that_really_collapses_sets_off_the_alarm_once():
    diary = robustly(optimizer=SGD(rate=Cyclic(peak=1.0)))
    assert diary.records[-1]["largest_class_share"] > 0.9
    assert len(diary.warnings) == 1
    assert "one class takes" in diary.warnings[0]


@pytest.mark.parametrize(
    ("forward", "remedy"),
    [("separate", "set objective.forward to together"), ("together", "lower the learning rate")],
)
def test_a_collapse_where_batchnorm_sees_each_pass_by_itself_names_one_pass_as_a_remedy(forward, remedy):
    objective = SRT(solver=FGSM(around=Linf(eps=0.3)), weight=5.0, forward=forward)
    f = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), dense()[1:])
    diary = robustly(f=f, objective=objective, optimizer=SGD(rate=Cyclic(peak=0.3)))
    assert diary.warnings[0].endswith(remedy)


def test_a_collapse_without_a_robust_term_is_put_down_to_the_learning_rate():
    diary = robustly(objective=Standard(), optimizer=SGD(rate=Piecewise(rate=30.0)), images=digits(unlabeled=0))
    (warning,) = diary.warnings
    assert warning.endswith(": lower the learning rate")


def test_a_run_that_goes_well_sets_off_no_alarm():
    gentle = SRT(solver=PGD(around=Linf(eps=0.05), steps=2, step_size=0.04), weight=0.3)
    diary = robustly(objective=gentle, optimizer=SGD(rate=Cyclic(peak=0.2)), ramp=Ramp(over=0.5), steps=100)
    assert diary.records[-1]["labeled_accuracy"] > 0.9
    assert diary.warnings == []


def test_the_alarm_knows_the_labels_and_how_far_the_run_has_got(monkeypatch):
    heard = []
    monkeypatch.setattr(
        CollapseAlarm, "sentence", lambda alarm, record, progress: heard.append((record["step"], progress))
    )
    images = digits(unlabeled=0)
    rows = [(images.labels == number).nonzero().flatten() for number in range(10)]
    kept = torch.cat([rows[0], *(few[:1] for few in rows[1:])])
    run = trainer(
        images=replace(images, labeled=images.labeled[kept], labels=images.labels[kept]), batch=10, steps=10
    )
    run.run()
    assert run.alarm.largest_label_share == pytest.approx((len(kept) - 9) / len(kept))
    assert heard == [(5, 0.5), (10, 1.0)]


def test_a_resumed_run_does_not_repeat_the_alarm():
    first = trainer(f=dense(), steps=60, batch=100)
    first.alarm.raised, first.alarm.best_accuracy = True, 0.9
    second = trainer(f=dense())
    second.resume(stored(first.state()))
    assert (second.alarm.raised, second.alarm.best_accuracy) == (True, 0.9)


def test_labels_in_order_are_no_collapse():
    bright, dark = torch.full((600, 1, 2, 2), 0.9), torch.full((600, 1, 2, 2), 0.1)
    images = Images(
        labeled=torch.cat([dark, bright]),
        labels=torch.arange(2).repeat_interleave(600),
        unlabeled=dark[:0],
        validation=dark[:0],
        validation_labels=torch.arange(0),
    )
    separating = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    diary = Diary()
    trainer(f=separating, images=images, steps=60, optimizer=SGD(rate=Cyclic(peak=0.5))).run(watcher=diary)
    assert diary.records[-1]["labeled_accuracy"] == 1.0
    assert 0.4 < diary.records[-1]["largest_class_share"] < 0.6
    assert diary.warnings == []


# Validation


class Counter(nn.Module):
    """Right about so many images as its one weight says, of those labeled 0; each step takes it one further."""

    def __init__(self, plan: list[int]) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(()))
        self.plan = plan

    def forward(self, x: Tensor) -> Tensor:
        right = self.plan[min(round(self.position.item()), len(self.plan) - 1)]
        wrong = (torch.arange(len(x)) >= right).long()
        return 10 * nn.functional.one_hot(wrong, 2) + self.position


def counted(plan: list[int], **changes: object) -> Trainer:
    """A trainer whose model gets plan[t] of ten validation images right after t steps."""

    def one_further(f: nn.Module, batch: Batch, rng: Generator) -> Terms:
        return Terms(standard=-f.position, robust=0 * f.position)

    images = Images(
        labeled=torch.rand(20, 1, 2, 2),
        labels=torch.arange(20) % 2,
        unlabeled=torch.rand(0, 1, 2, 2),
        validation=torch.rand(10, 1, 2, 2),
        validation_labels=torch.zeros(10, dtype=torch.long),
    )
    settings = {
        "f": Counter(plan),
        "images": images,
        "objective": one_further,
        "optimizer": SGD(rate=Piecewise(rate=1.0, milestones=()), momentum=0.0, weight_decay=0.0),
        "batch": 20,
        "steps": len(plan) - 1,
        "validation": Validation(every=1),
    }
    return trainer(**settings | changes)


def test_the_weights_that_are_kept_are_the_best_and_not_the_last():
    run = counted([0, 3, 9, 4, 5])
    run.run()
    assert run.selection.best["accuracy"] == 0.9
    assert run.selection.best["step"] == 2
    assert run.state()["step"] == 4
    assert run.f.position.item() == 2.0


def test_validation_measures_the_average_where_one_is_kept(monkeypatch):
    measured = []
    monkeypatch.setattr(Selection, "measure", lambda selection, f, step: measured.append(f))
    run = trainer(images=digits(validation=20), averaging=Average(decay=0.9), steps=2)
    run.run()
    assert measured == [run.average.module]


@pytest.mark.parametrize("batchnorm", ["copied", "averaged", "estimated", "own"])
def test_validation_measures_the_very_model_that_a_run_ends_with(batchnorm):
    averaging = Average(decay=0.9, batchnorm=batchnorm)
    settings = {
        "objective": SRT(solver=FGSM(around=Linf(eps=0.1))),
        "labeler": "average",
        "validation": Validation(every=1),
    }
    run = trainer(images=digits(validation=20), averaging=averaging, steps=6, **settings)
    run.run()
    kept = run.selection.best["weights"]
    assert all(torch.equal(tensor, kept[name]) for name, tensor in run.f.state_dict().items())
    assert run.selection.accuracy(run.f) == run.selection.best["accuracy"]


def test_the_last_weights_are_kept_where_they_are_wanted():
    run = counted([0, 3, 9, 4, 5], validation=Validation(every=1, keep="last"))
    run.run()
    assert run.f.position.item() == 4.0


def test_a_sudden_fall_ends_the_run_with_the_best_weights_and_a_word():
    plan, guard = [0, 3, 9, 8, 2, 9, 9], Validation(every=1, keep="last", drop=0.5)
    run, diary = counted(plan, validation=guard), Diary()
    run.run(watcher=diary)
    assert run.step == 4
    assert run.f.position.item() == 2.0
    assert "fell from 90.0% (step 2) to 20.0% (step 4)" in diary.warnings[-1]
    resumed = counted(plan, validation=guard)
    resumed.resume(run.state())
    resumed.run()
    assert resumed.step == 4


def test_a_fall_by_no_more_than_is_let_pass_is_none():
    run = counted([0, 10, 5, 10], validation=Validation(every=1, drop=0.5))
    run.run()
    assert run.step == 3


def test_a_run_ends_when_patience_does_with_the_weights_it_wants_and_without_a_warning():
    plan = [0, 3, 9, 8, 9, 8, 7, 9, 9]
    for patience, last, best in ((2, 6, 4), (3, 8, 8), (None, 8, 8)):
        for keep in ("best", "last"):
            run, diary = counted(plan, validation=Validation(every=1, keep=keep, patience=patience)), Diary()
            run.run(watcher=diary)
            assert (run.step, run.selection.best["step"]) == (last, best), "of equally good ones the later counts"
            assert run.f.position.item() == (best if keep == "best" else last)
            assert not diary.warnings and diary.records[-1]["step"] == last


def test_patience_goes_on_in_another_process_where_it_was():
    plan, patient = [0, 3, 9, 8, 7, 6, 5, 4, 3], Validation(every=1, patience=3)
    whole, states = counted(plan, validation=patient), {}
    whole.run(write_checkpoint=lambda: states.update({whole.step: stored(whole.state())}), checkpoint_seconds=0.0)
    assert whole.step == 5
    for step, state in states.items():
        resumed = counted(plan, validation=patient)
        resumed.resume(state)
        assert resumed.ended == (step == 5)
        resumed.run()
        assert resumed.step == 5
    before = {name: value for name, value in states[4].items() if name != "measured"}
    resumed = counted(plan, validation=patient)
    resumed.resume(before)
    resumed.run()
    assert resumed.step == 7, "an old checkpoint does not tell how long ago the best was"


def test_the_log_tells_of_held_out_images_where_they_were_looked_at():
    run, diary = counted([0, 3, 9, 8, 2, 6], validation=Validation(every=2), log_every=3), Diary()
    run.run(watcher=diary)
    told = [(record["step"], record.get("held_out_accuracy")) for record in diary.records]
    assert told == [(2, 0.9), (3, None), (4, 0.2), (5, 0.6)]


def test_of_equally_good_weights_the_later_are_kept():
    run = counted([0, 3, 9, 9, 9, 2])
    run.run()
    assert run.selection.best["step"] == 4


def test_validation_comes_at_its_steps_and_at_the_end(monkeypatch):
    run, seen = counted([0, 9, 3, 8, 4, 7], validation=Validation(every=2)), []
    measure = Selection.measure

    def noted(selection: Selection, f: nn.Module, step: int) -> None:
        seen.append(step)
        measure(selection, f, step)

    monkeypatch.setattr(Selection, "measure", noted)
    run.run()
    assert seen == [2, 4, 5]
    assert run.selection.best["step"] == 5


def test_validation_may_attack_by_the_search_of_the_objective():
    search, other = FGSM(around=Linf(eps=0.1)), WorstOfK(around=Spatial(rotation=10.0, translation=0.0), k=2)
    both = Mixture(objectives=(AT(solver=search), AT(solver=other), Standard()))
    for objective, solver, adversary in (
        (SRT(solver=search), None, search),
        (SRT(solver=search), other, other),
        (both, None, Strongest(solvers=(search, other))),
    ):
        chosen = Validation(solver=solver, robust=True)
        assert trainer(objective=objective, validation=chosen).selection.validation.solver == adversary
        without = replace(chosen, robust=False)
        assert trainer(objective=objective, validation=without).selection.validation.solver == solver


def test_validation_under_attack_counts_images_that_are_right_before_and_after():
    class Bright(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            brightness = self.scale * (x.mean((1, 2, 3)) - 0.5)
            return torch.stack([-brightness, brightness], 1)

    brightness = torch.tensor([0.1, 0.45, 0.55, 0.9])
    images = replace(
        counted([0, 1]).images,
        validation=brightness.view(4, 1, 1, 1).expand(4, 1, 2, 2),
        validation_labels=torch.tensor([0, 0, 0, 1]),
    )

    def accuracy(solver: Solver | None) -> float:
        run = counted([0, 1], f=Bright(), images=images, validation=Validation(solver=solver))
        run.selection.measure(run.f, run.step)
        return run.selection.best["accuracy"]

    assert accuracy(None) == 0.75
    assert accuracy(FGSM(around=Linf(eps=0.1))) == 0.5
    # A negative makes the image right that was wrong, which is no robustness.
    assert accuracy(lambda loss, x, rng: 1 - x) == 0.0


def test_validation_counts_every_image_alike_and_its_solver_climbs_the_margin():
    asked = []

    def solver(loss: Against, x: Tensor, rng: Generator) -> Tensor:
        asked.append(loss.loss)
        return x

    f = nn.Sequential(nn.Flatten(), nn.Identity())
    images = torch.eye(4).view(4, 1, 2, 2)
    labels = torch.tensor([0, 1, 2, 0])
    selection = Selection(images=images, labels=labels, validation=Validation(solver=solver), seed=0, at_once=3)
    assert selection.accuracy(f) == 3 / 4
    assert asked == [margin, margin]


@pytest.mark.parametrize("solver", [None, lambda loss, x, rng: x * torch.nan])
def test_held_out_images_that_are_answered_with_nan_are_not_right(solver):
    f = nn.Sequential(nn.Flatten(), nn.Identity())
    images = torch.eye(4).view(4, 1, 2, 2) * (torch.nan if solver is None else 1.0)
    labels = torch.tensor([0, 1, 2, 0])
    selection = Selection(images=images, labels=labels, validation=Validation(solver=solver), seed=0)
    assert selection.accuracy(f) == 0


def test_without_validation_the_last_weights_are_kept():
    run = trainer()
    run.run()
    assert run.selection.best == {}
    assert not run.selection.keeps_best


# Inputs


def test_a_run_without_steps_is_refused():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        trainer(steps=0)


@pytest.mark.parametrize("crop", [8, 10**9])
def test_a_crop_that_could_leave_nothing_of_an_image_is_refused(crop):
    with pytest.raises(ValueError, match=f"smaller than the images, which have 8 x 8 pixels, got {crop}"):
        trainer(data=Data(crop=crop))


def test_a_run_without_labeled_images_is_refused():
    none = replace(digits(), labeled=digits().labeled[:0], labels=digits().labels[:0])
    with pytest.raises(ValueError, match="no labeled image was given, expected at least one of each class"):
        trainer(images=none)


class Watched(nn.Flatten):
    """A layer that remembers whether GPUs were free to add numbers up in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.free: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.free.append(not torch.backends.cudnn.deterministic)
        return super().forward(x)


def test_what_is_measured_between_steps_is_computed_as_the_steps_are():
    f = network()
    f[0] = watched = Watched()
    averaging, validation = Average(batchnorm="estimated"), Validation(every=4, solver=FGSM(around=Linf(eps=0.1)))
    run = trainer(f=f, images=digits(validation=30), averaging=averaging, validation=validation)
    watched.free.clear()
    run.run()
    assert watched.free
    assert not any(watched.free)
