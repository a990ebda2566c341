from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from reference import objectives as slow
from reference import solvers as slow_solvers
from tiny import seeded
from unperturbed.answers import frozen
from unperturbed.attacks import pgd
from unperturbed.losses import cross_entropy
from unperturbed.neighborhoods import L2, Linf
from unperturbed.objectives import AT, KLR, SRT, TRADES, UAT, Batch, Mixture, Objective, Standard, Terms
from unperturbed.solvers import FGSM, NFGSM, PGD, PowerIteration, Strongest, WorstOfK

SOLVER = PGD(around=Linf(eps=0.1), steps=4, step_size=0.04, noise=0.01)
OBJECTIVES = {
    "Standard": Standard(),
    "AT": AT(solver=SOLVER),
    "SRT": SRT(solver=SOLVER, weight=0.7),
    "SRT together": SRT(solver=SOLVER, forward="together"),
    "SRT by images": SRT(solver=SOLVER, mean="images"),
    "SRT with WorstOfK": SRT(solver=WorstOfK(k=3)),
}
every_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


@dataclass
class OwnSolver:
    """A stranger's, which can be made of three values as well as called with them."""

    one: object = None
    two: object = None
    three: object = None

    def __call__(self, loss, x, rng):
        return x


class Witness(nn.Module):
    """Passes images on, and remembers in which mode and how many at once."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x):
        self.calls.append((self.training, len(x)))
        return x


COMPILED = {
    "AT": AT(solver=SOLVER),
    "SRT": SRT(solver=SOLVER, targets="soft"),
    "SRT with WorstOfK": SRT(solver=WorstOfK(k=2), forward="together", mean="images"),
    "TRADES": TRADES(solver=SOLVER),
    "KLR": KLR(solver=WorstOfK(k=2)),
    "UAT++": UAT(solver=SOLVER, form="++"),
    "VAT": UAT(solver=PowerIteration()),
    "Mixture": Mixture(objectives=(AT(solver=SOLVER), Standard())),
}


@pytest.fixture
def f():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            Witness(),
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.Tanh(),
            nn.Dropout(0),
            nn.Flatten(),
            nn.Linear(80, 3),
        )
    return network.double()


@pytest.fixture
def batch(rng):
    x, u = (torch.rand(n, 1, 5, 4, generator=rng, dtype=torch.float64) for n in (4, 6))
    return Batch(x=x, y=torch.tensor([2, 0, 1, 1]), u=u)


def maximizer(f, images):
    """The twin of SOLVER with the random numbers of seed 0."""
    noise = 0.01 * torch.empty_like(images).normal_(generator=seeded())
    solve = partial(slow_solvers.pgd, f, eps=0.1, alpha=0.04, steps=4)
    return lambda index, image, target: solve(image, target, noise=noise[index])


def assert_same_terms_and_gradients(f, terms, outer, standard, robust):
    torch.testing.assert_close(terms.standard, standard, rtol=0, atol=1e-6)
    torch.testing.assert_close(terms.robust, torch.as_tensor(robust).to(standard), rtol=0, atol=1e-6)
    terms.total.backward()
    (standard + robust).backward()
    for ours, theirs in zip(f.parameters(), outer.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-6)


@pytest.mark.parametrize("objective", [SRT(solver=SOLVER), UAT(solver=SOLVER), AT(solver=SOLVER)])
def test_bytes_among_floats_are_refused_in_a_sentence(objective, f, batch):
    opinion = torch.zeros(10, 3) if isinstance(objective, AT) else None
    mixed = batch._replace(u=(255 * batch.u).byte(), opinion=opinion)
    with pytest.raises(
        ValueError, match=r"got torch.float64 and torch.uint8: convert them, bytes by .float\(\) / 255"
    ):
        objective(f, mixed, seeded())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # The compiler looks at it.
@pytest.mark.parametrize("objective", COMPILED.values(), ids=COMPILED)
def test_a_step_that_is_compiled_as_a_whole_has_the_terms_and_gradients_of_a_plain_one(f, batch, objective):
    def step(f: nn.Module) -> Tensor:
        return objective(f, batch, rng).total

    f = nn.Sequential(*f[1:])  # A network that keeps a list of calls is compiled anew at each.
    found = []
    for compiled in (False, True):
        rng, model = seeded(), deepcopy(f)
        torch.compiler.reset()
        total = (torch.compile(step, backend="eager") if compiled else step)(model)
        total.backward()
        found.append([total, *(parameter.grad for parameter in model.parameters()), *model.buffers()])
    torch.testing.assert_close(*found, rtol=0, atol=1e-9)


@pytest.mark.parametrize("unlabeled", [0, 6])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_srt_is_equation_9(unlabeled, together, weight, f, batch):
    batch = batch._replace(u=batch.u[:unlabeled])
    inner, outer = deepcopy(f).eval(), deepcopy(f)
    terms = SRT(solver=SOLVER, weight=weight, forward="together" if together else "separate")(f, batch, seeded())
    maximize = maximizer(inner, torch.cat([batch.x, batch.u]))
    twin = slow.semi_supervised_robust_training(
        inner, outer, batch.x, batch.y, batch.u, maximize, weight, together=together
    )
    assert_same_terms_and_gradients(f, terms, outer, *twin)


def test_srt_without_u_is_equation_6(f, batch):
    batch = batch._replace(u=batch.u[:0])
    inner, outer = deepcopy(f).eval(), deepcopy(f)
    terms = SRT(solver=SOLVER, weight=0.4)(f, batch, seeded())
    twin = slow.robust_training(inner, outer, batch.x, batch.y, maximizer(inner, batch.x), 0.4)
    assert_same_terms_and_gradients(f, terms, outer, *twin)


def test_at_is_its_slow_twin(f, batch):
    inner, outer = deepcopy(f).eval(), deepcopy(f)
    terms = AT(solver=SOLVER)(f, batch, seeded())
    twin = slow.adversarial(outer, batch.x, batch.y, maximizer(inner, batch.x))
    assert_same_terms_and_gradients(f, terms, outer, twin, 0.0)


def test_standard_is_its_slow_twin(f, batch):
    outer = deepcopy(f)
    assert_same_terms_and_gradients(
        f, Standard()(f, batch, seeded()), outer, slow.standard(outer, batch.x, batch.y), 0.0
    )


def test_the_mean_over_images_weighs_every_image_alike(f, batch):
    f.eval()
    terms = SRT(solver=SOLVER, weight=0.7)(f, batch, seeded())
    by_images = SRT(solver=SOLVER, weight=0.7, mean="images")(f, batch, seeded())
    torch.testing.assert_close(by_images.standard, terms.standard * 4 / 14)
    torch.testing.assert_close(by_images.robust, terms.robust * 10 / 14)


def test_the_weight_multiplies_the_robust_term_alone(f, batch):
    f.eval()
    one, three = (SRT(solver=SOLVER, weight=weight)(f, batch, seeded()) for weight in (1.0, 3.0))
    torch.testing.assert_close(three.robust, 3 * one.robust)
    torch.testing.assert_close(three.standard, one.standard)
    torch.testing.assert_close(three.total, one.standard + 3 * one.robust)


def test_labels_are_never_used_for_the_robust_term(f, batch):
    objective = SRT(solver=SOLVER)
    terms = objective(f, batch, seeded())
    relabeled = objective(f, batch._replace(y=(batch.y + 1) % 3), seeded())
    assert torch.equal(relabeled.robust, terms.robust)
    assert not torch.equal(relabeled.standard, terms.standard)


@every_objective
def test_an_objective_yields_two_scalars_that_train_every_parameter(objective, f, batch, rng):
    assert isinstance(objective, Objective)
    terms = objective(f, batch, rng)
    assert isinstance(terms, Terms)
    assert terms.standard.shape == terms.robust.shape == ()
    terms.total.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in (f[1].weight, f[-1].weight, f[-1].bias))


@every_objective
def test_an_objective_repeats_itself_from_the_same_seed(objective, f, batch):
    assert torch.equal(objective(f, batch, seeded()).total, objective(f, batch, seeded()).total)


@every_objective
def test_a_batch_without_unlabeled_images_is_no_trouble(objective, f, batch, rng):
    assert objective(f, batch._replace(u=batch.u[:0]), rng).total.isfinite()


def test_the_robust_term_sees_labeled_and_unlabeled_images(f, batch):
    seen = []

    def solver(loss, x, rng):
        seen.append(x)
        return x

    terms = SRT(solver=solver)(f.eval(), batch, seeded())
    pool = torch.cat([batch.x, batch.u])
    assert torch.equal(seen[0], pool)
    logits = f(pool)
    torch.testing.assert_close(terms.robust, cross_entropy(logits, logits.argmax(1)).mean())


def test_a_solver_of_the_user_is_a_plain_function(f, batch):
    def darker(loss, x, rng):
        return 0.5 * x

    terms = SRT(solver=darker)(f.eval(), batch, seeded())
    pool = torch.cat([batch.x, batch.u])
    torch.testing.assert_close(terms.robust, cross_entropy(f(0.5 * pool), f(pool).argmax(1)).mean())
    adversarial = AT(solver=darker)(f, batch, seeded())
    torch.testing.assert_close(adversarial.total, cross_entropy(f(0.5 * batch.x), batch.y).mean())


@pytest.mark.parametrize(
    ("objective", "outer_calls"),
    [
        (SRT(solver=SOLVER), [(True, 4), (True, 10)]),
        (SRT(solver=SOLVER, forward="together"), [(True, 14)]),
        (SRT(solver=SOLVER, forward="clean-again"), [(True, 4), (True, 10), (True, 4)]),
        (UAT(solver=SOLVER), [(True, 10), (True, 4)]),
        (UAT(solver=SOLVER, forward="together"), [(True, 14)]),
    ],
    ids=["SRT", "SRT together", "SRT with clean images again", "UAT", "UAT together"],
)
def test_the_adversary_sees_evaluation_mode_and_the_outer_passes_see_training(objective, outer_calls, f, batch, rng):
    objective(f, batch, rng)
    assert f[0].calls == [(False, 10)] * (1 + SOLVER.steps) + outer_calls


def test_adversarial_training_sees_the_same_modes(f, batch, rng):
    AT(solver=SOLVER)(f, batch, rng)
    assert f[0].calls == [(False, 4)] * SOLVER.steps + [(True, 4)]


def test_a_classifier_in_evaluation_mode_stays_in_it(f, batch, rng):
    SRT(solver=SOLVER)(f.eval(), batch, rng)
    assert {training for training, _ in f[0].calls} == {False}
    assert not any(module.training for module in f.modules())


@pytest.mark.parametrize(
    ("objective", "passes"),
    [
        (SRT(solver=SOLVER), 2),
        (SRT(solver=SOLVER, forward="together"), 1),
        (SRT(solver=SOLVER, forward="clean-again"), 3),
        (AT(solver=SOLVER), 1),
        (Standard(), 1),
    ],
    ids=["separate", "together", "clean again", "AT", "Standard"],
)
def test_batch_norm_takes_its_statistics_from_the_outer_passes_alone(objective, passes, f, batch, rng):
    objective(f, batch, rng)
    assert f[2].num_batches_tracked == passes


def test_clean_images_once_more_change_running_statistics_alone(f, batch):
    other = deepcopy(f)
    again, once = (
        SRT(solver=SOLVER, forward=forward)(network, batch, seeded())
        for forward, network in (("clean-again", f), ("separate", other))
    )
    torch.testing.assert_close(again, once, rtol=0, atol=0)
    other(batch.x)
    for one, two in zip(f.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_batch_norm_statistics_stand_still_while_a_solver_works(f, batch, rng):
    before = {name: buffer.clone() for name, buffer in f.named_buffers()}

    def solver(loss, x, rng):
        found = SOLVER(loss, x, rng)
        assert all(torch.equal(buffer, before[name]) for name, buffer in f.named_buffers())
        return found

    SRT(solver=solver)(f, batch, rng)
    assert not torch.equal(f[2].running_mean, before["2.running_mean"])


@every_objective
def test_a_solver_leaves_no_gradient_on_the_parameters(objective, f, batch, rng):
    def solver(loss, x, rng):
        assert not any(parameter.requires_grad for parameter in f.parameters())
        found = SOLVER(loss, x, rng)
        assert all(parameter.grad is None for parameter in f.parameters())
        return found

    (objective if isinstance(objective, Standard) else replace(objective, solver=solver))(f, batch, rng)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in f.parameters())


def test_gradients_that_were_there_before_stay(f, batch, rng):
    Standard()(f, batch, rng).total.backward()
    before = [parameter.grad.clone() for parameter in f.parameters()]
    SRT(solver=SOLVER)(f, batch, rng)
    assert all(torch.equal(p.grad, grad) for p, grad in zip(f.parameters(), before, strict=True))


@pytest.mark.parametrize("raises", [False, True])
def test_frozen_restores_every_mode_and_every_flag(raises, f):
    f[2].eval()
    f[1].requires_grad_(False)
    f[-1].bias.requires_grad_(False)
    modes = [module.training for module in f.modules()]
    flags = [parameter.requires_grad for parameter in f.parameters()]
    assert len(set(modes)) == len(set(flags)) == 2
    try:
        with frozen(f), frozen(f):
            assert not any(module.training for module in f.modules())
            assert not any(parameter.requires_grad for parameter in f.parameters())
            if raises:
                raise KeyError("the adversary stumbled")
    except KeyError:
        assert raises
    assert [module.training for module in f.modules()] == modes
    assert [parameter.requires_grad for parameter in f.parameters()] == flags


def test_an_error_in_a_solver_is_passed_on_and_leaves_the_classifier_trainable(f, batch, rng):
    def solver(loss, x, rng):
        raise KeyError("the adversary stumbled")

    with pytest.raises(KeyError, match="stumbled"):
        SRT(solver=solver)(f, batch, rng)
    assert all(module.training for module in f.modules())
    assert all(parameter.requires_grad for parameter in f.parameters())


@pytest.mark.parametrize("weight", [-1.0, nan, inf])
def test_a_weight_must_be_finite_and_not_negative(weight):
    with pytest.raises(ValueError, match=rf"SRT\.weight must be a finite number of at least 0, got {weight}"):
        SRT(weight=weight)


@pytest.mark.parametrize("solver", [PGD, OwnSolver, Linf(), None], ids=["class", "own class", "neighborhood", "none"])
@pytest.mark.parametrize("objective", [AT, SRT, TRADES, KLR, UAT])
def test_what_is_no_solver_is_refused_in_a_sentence(objective, solver):
    sentence = rf"^{objective.__name__}\.solver must be a solver, as PGD\(around=Linf\(eps=8 / 255\)\), got "
    with pytest.raises(ValueError, match=sentence) as error:
        objective(solver=solver)
    assert str(error.value).endswith(repr(solver))


def test_what_is_no_solver_is_shown_in_one_line_that_is_not_too_long():
    with pytest.raises(ValueError, match=r"got tensor\(.{,100} …$") as error:
        SRT(solver=torch.zeros(9, 9))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("given", [SRT, OwnSolver, Linf(), None], ids=["class", "own class", "neighborhood", "none"])
def test_a_mixture_refuses_what_is_no_objective(given):
    with pytest.raises(ValueError, match=r"^each of Mixture\.objectives must be one that \(f, batch, rng\) can be "):
        Mixture(objectives=(AT(), given))


def test_a_mixture_of_one_objective_needs_a_tuple_too():
    with pytest.raises(ValueError, match=r"^Mixture\.objectives must be a tuple of at least one objective, got AT\("):
        Mixture(objectives=AT())


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2.0, nan, inf])
def test_labels_are_smoothed_by_a_share_of_their_weight(smoothing):
    with pytest.raises(ValueError, match=rf"SRT\.smoothing must be at least 0 and below 1, got {smoothing}"):
        SRT(smoothing=smoothing)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(SRT, "forward"), (SRT, "mean"), (SRT, "targets"), (KLR, "labels_on"), (UAT, "form"), (UAT, "forward")],
)
def test_an_objective_refuses_a_word_that_it_does_not_know(kind, name):
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.{name} must be .* or .*, got 'togther'"):
        kind(**{name: "togther"})


@pytest.mark.parametrize(
    "objective",
    [
        *OBJECTIVES.values(),
        TRADES(solver=SOLVER),
        KLR(solver=SOLVER),
        UAT(solver=SOLVER),
        UAT(solver=SOLVER, form="++"),
    ],
    ids=str,
)
@pytest.mark.parametrize("unlabeled", [3, 0])
def test_a_term_over_no_images_is_zero_with_a_gradient(objective, f, unlabeled):
    x, y, u = (
        torch.rand(0, 1, 4, 5).double(),
        torch.zeros(0, dtype=torch.int64),
        torch.rand(unlabeled, 1, 4, 5).double(),
    )
    terms = objective(f, Batch(x, y, u), seeded())
    assert terms.standard == 0
    assert terms.robust.isfinite()
    terms.total.backward()
    assert all(weight.grad.isfinite().all() for weight in f.parameters())


@every_objective
@pytest.mark.parametrize("kind", [torch.int32, torch.uint8])
def test_labels_of_any_integer_type_give_the_same_terms(objective, f, kind):
    x, y, u = torch.rand(4, 1, 4, 5).double(), torch.tensor([0, 1, 2, 1]), torch.rand(3, 1, 4, 5).double()
    one, other = (objective(deepcopy(f), Batch(x, labels, u), seeded()) for labels in (y, y.to(kind)))
    assert one == other


@pytest.mark.parametrize("targets", ["hard", "soft"])
def test_the_opinion_of_another_labeler_is_a_constant(targets, f, batch):
    teacher, other = nn.Linear(20, 3).double(), deepcopy(f)
    opinion = teacher(torch.cat([batch.x, batch.u]).flatten(1))
    for network, given in ((f, opinion), (other, opinion.detach())):
        SRT(solver=SOLVER, targets=targets)(network, batch._replace(opinion=given), seeded()).total.backward()
    assert teacher.weight.grad is None
    assert all(torch.equal(one.grad, two.grad) for one, two in zip(f.parameters(), other.parameters(), strict=True))


def test_an_opinion_of_the_model_itself_is_one_too(f, batch):
    other = deepcopy(f.eval())
    for network, kept in ((f, lambda logits: logits), (other, torch.Tensor.detach)):
        opinion = kept(network(torch.cat([batch.x, batch.u])))
        SRT(solver=SOLVER, targets="soft")(network, batch._replace(opinion=opinion), seeded()).total.backward()
    assert all(torch.equal(one.grad, two.grad) for one, two in zip(f.parameters(), other.parameters(), strict=True))


@every_objective
def test_weights_that_parametrizations_keep_from_a_search_have_their_gradients(objective, f, batch):
    parametrizations.weight_norm(f[-1])
    other = deepcopy(f)
    objective(other, batch, seeded()).total.backward()
    with parametrize.cached():
        objective(f, batch, seeded()).total.backward()
    for one, two in zip(f.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-12)


every_kind = pytest.mark.parametrize(
    "objective",
    [
        Standard(),
        *(kind(solver=SOLVER) for kind in (AT, SRT, TRADES, KLR, UAT)),
        SRT(solver=WorstOfK(k=3)),
        UAT(solver=SOLVER, form="++"),
        Mixture(objectives=(Standard(), AT(solver=SOLVER))),
    ],
)
searching = pytest.mark.parametrize(
    "objective",
    [*(kind(solver=SOLVER) for kind in (AT, SRT, TRADES, KLR, UAT)), Mixture(objectives=(AT(solver=SOLVER), SRT()))],
    ids=lambda objective: type(objective).__name__,
)


@every_kind
def test_steps_within_one_autocast_are_taken_at_the_present_weights(objective, f, batch):
    batch, found = Batch(batch.x.float(), batch.y, batch.u.float()), []
    for lasting in (False, True):
        model = deepcopy(f).float()
        sgd, rng, autocast = torch.optim.SGD(model.parameters(), lr=0.5), seeded(), partial(torch.autocast, "cpu")
        with autocast(torch.bfloat16) if lasting else nullcontext():
            for _ in range(3):
                with autocast(torch.bfloat16):
                    total = objective(model, batch, rng).total
                sgd.zero_grad()
                total.backward()
                sgd.step()
        found.append(parameters_to_vector(model.parameters()))
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "objective",
    [
        *OBJECTIVES.values(),
        *(kind(solver=SOLVER) for kind in (TRADES, KLR, UAT)),
        AT(solver=Strongest(solvers=(SOLVER, SOLVER))),
        SRT(solver=SOLVER, forward="clean-again"),
        Mixture(objectives=(SRT(solver=SOLVER), TRADES(solver=SOLVER), Standard())),
    ],
)
def test_a_network_that_shifts_its_images_in_place_is_trained_as_one_that_does_not(objective, f, batch):
    other = deepcopy(f)
    f.register_forward_pre_hook(lambda module, given: (given[0].sub_(0.3),))
    other.register_forward_pre_hook(lambda module, given: (given[0] - 0.3,))
    for network in (f, other):
        given = batch._replace(x=batch.x.clone(), u=batch.u.clone())
        objective(network, given, seeded()).total.backward()
    for one, two in zip((*f.parameters(), *f.buffers()), (*other.parameters(), *other.buffers()), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
    assert all(torch.equal(one.grad, two.grad) for one, two in zip(f.parameters(), other.parameters(), strict=True))


class Answering(nn.Module):
    """Another answer than logits."""

    def __init__(self, f: nn.Module, answer: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.f, self.answer = f, answer

    def forward(self, x: Tensor) -> object:
        return self.answer(self.f(x))


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (lambda logits: (logits, logits), "a tuple"),
        (lambda logits: {"logits": logits}, "a dict"),
        (lambda logits: logits[:, :1], r"the shape \(\d+, 1\)"),
        (lambda logits: logits[:, :, None, None], r"the shape \(\d+, 3, 1, 1\)"),
    ],
    ids=["several", "by name", "one class", "a map"],
)
@pytest.mark.parametrize("objective", [*OBJECTIVES.values(), *(kind(solver=SOLVER) for kind in (TRADES, KLR, UAT))])
def test_what_is_no_logits_is_refused_in_a_sentence(objective, answer, got, f, batch):
    with pytest.raises(ValueError, match=rf"must return logits of shape .*, got {got}: return them alone"):
        objective(Answering(f, answer), batch, seeded())


@pytest.mark.parametrize(
    "objective", [KLR(solver=SOLVER), *(kind(solver=SOLVER, forward="together") for kind in (SRT, UAT))]
)
def test_several_answers_in_training_alone_are_refused_where_images_of_both_terms_go_together(objective, f, batch):
    aside = Answering(f, lambda logits: (logits, logits) if f.training else logits)
    with pytest.raises(ValueError, match=r"must return logits of shape .*, got a tuple: return them alone"):
        objective(aside, batch, seeded())


LABELS = {
    "a column": lambda y: y[:, None],
    "floats": lambda y: y.double(),
    "one-hot": lambda y: torch.eye(3)[y].long(),
    "too few": lambda y: y[:3],
    "a list": lambda y: y.tolist(),
}


@pytest.mark.parametrize("given", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("labeled", [False, True], ids=["by itself", "by another"])
@every_kind
def test_labels_that_are_not_a_class_for_each_image_are_refused_in_a_sentence(objective, labeled, given, f, batch):
    wrong = batch._replace(y=given(batch.y), opinion=torch.zeros(10, 3) if labeled else None)
    with pytest.raises(
        ValueError, match=r"^labels must be a class for each of the 4 images, .* of shape \(4,\), got "
    ):
        objective(f, wrong, seeded())
    if not labeled:
        with pytest.raises(ValueError, match=r"^labels must be a class .* or, of one-hot ones, \.argmax\(1\)$"):
            pgd()(f, wrong.x, wrong.y, seeded())


@every_kind
def test_what_is_no_batch_is_refused_in_a_sentence(objective, f, batch):
    with pytest.raises(
        ValueError, match=r"^a batch must be an unperturbed\.Batch, got a tuple: write Batch\(x, y, u\)"
    ):
        objective(f, (batch.x, batch.y, batch.u), seeded())
    for kind in (torch.uint8, torch.int64):
        whole = batch._replace(x=(255 * batch.x).to(kind), u=(255 * batch.u).to(kind))
        with pytest.raises(
            ValueError, match=rf"floats in \[0, 1\], got {kind}: convert them, bytes by \.float\(\) / 255"
        ):
            objective(f, whole, seeded())
    for opinion in (torch.zeros(6, 3), torch.zeros(10)):
        with pytest.raises(
            ValueError, match=r"for x and u together, 4 \+ 6 rows, got the shape \(.*\): ask the labeler"
        ):
            objective(f, batch._replace(opinion=opinion), seeded())


def test_labels_that_are_distributions_are_learned_but_not_beside_classes_of_a_labeler(f, batch):
    soft = batch._replace(y=torch.nn.functional.one_hot(batch.y, 3).double())
    found = [AT(solver=SOLVER)(deepcopy(f), given, seeded()).total for given in (batch, soft)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    with pytest.raises(
        ValueError, match=r"^labels that are distributions cannot stand beside the classes of another"
    ):
        AT(solver=SOLVER)(f, soft._replace(opinion=torch.zeros(10, 3)), seeded())


@searching
def test_a_seed_in_place_of_a_generator_is_refused_in_a_sentence(objective, f, batch):
    with pytest.raises(
        ValueError, match=r"^rng must be a torch\.Generator, got 0: make one on the device of the images"
    ):
        objective(f, batch, 0)
    with pytest.raises(ValueError, match=r"^rng must be a torch\.Generator, got 0"):
        pgd()(f, batch.x, batch.y, 0)


SCALES = {"bytes": lambda images: 255 * images, "normalized": lambda images: (images - 0.5) / 0.25}


@pytest.mark.parametrize("scaled", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize(
    "objective",
    [
        *(kind(solver=SOLVER) for kind in (AT, SRT, TRADES, KLR, UAT)),
        SRT(solver=FGSM(around=L2())),
        SRT(solver=WorstOfK(around=Linf(), k=3)),
        Mixture(objectives=(Standard(), AT(solver=NFGSM()))),
    ],
)
def test_images_that_a_search_would_clamp_are_refused_in_a_sentence(objective, scaled, f, batch):
    outside = batch._replace(x=scaled(batch.x), u=scaled(batch.u))
    with pytest.raises(
        ValueError, match=r"^images must lie in \[0, 1\], in which this search keeps them, got values"
    ):
        objective(f, outside, seeded())
    with pytest.raises(ValueError, match=r"from -?[\d.]+ to [\d.]+: divide bytes by 255, and leave normalization to"):
        pgd()(f, outside.x, outside.y, seeded())


def test_images_outside_the_unit_cube_are_searched_around_by_what_does_not_clamp_them(f, batch):
    def shifted(loss, x, rng):
        return x + 0.1

    outside = batch._replace(x=4 * batch.x - 2, u=4 * batch.u - 2)
    assert AT(solver=shifted)(f, outside, seeded()).total.isfinite()


@searching
def test_what_is_no_model_and_no_unlabeled_images_is_refused_in_a_sentence(objective, f, batch):
    with pytest.raises(ValueError, match=r"a torch\.nn\.Module, which can be frozen, got a function: call it in the"):
        objective(lambda x: f(x), batch, seeded())
    if not isinstance(objective, AT | TRADES | KLR):
        with pytest.raises(ValueError, match=r"must be a tensor, got a NoneType: without any give x\[:0\]"):
            objective(f, batch._replace(u=None), seeded())


@searching
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_activations_that_are_computed_again_change_nothing_and_are_refused_where_no_gradient_passes(
    objective, f, batch
):
    class Checkpointed(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.f, self.reentrant = deepcopy(f[1:2]), reentrant

        def forward(self, x):
            return checkpoint(self.f, x, use_reentrant=self.reentrant).flatten(1)

    plain, again = nn.Sequential(deepcopy(f[1:2]), nn.Flatten()), Checkpointed(reentrant=False)
    for network in (plain, again):
        objective(network, batch, seeded()).total.backward()
    assert all(
        torch.equal(one.grad, two.grad) for one, two in zip(plain.parameters(), again.parameters(), strict=True)
    )
    with pytest.raises(ValueError, match=r"use_reentrant=True, .*: set use_reentrant=False$"):
        objective(Checkpointed(reentrant=True), batch, seeded())


@searching
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_a_search_within_a_transform_of_functions_is_refused_in_a_sentence(transform, objective, f, batch):
    modes = [module.training for module in f.modules()]

    def loss(images):
        return objective(f, batch._replace(x=images), seeded()).total

    given = batch.x if transform is torch.func.grad else batch.x[None]
    with pytest.raises(ValueError, match=r"^within torch\.func\.grad, vmap .* by backward or torch\.autograd\.grad$"):
        transform(loss)(given)
    assert [module.training for module in f.modules()] == modes
    assert all(weight.requires_grad for weight in f.parameters())


@every_objective
def test_weights_that_are_results_of_operations_have_their_gradients(objective, f, batch):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = f

        def forward(self):
            return objective(self.f, batch, seeded()).total

    given = {name: weight.detach().requires_grad_() for name, weight in f.named_parameters()}
    computed = {f"f.{name}": 1.0 * weight for name, weight in given.items()}
    before = deepcopy(f.state_dict())
    torch.func.functional_call(Whole(), computed, ()).backward()
    f.load_state_dict(before)
    objective(f, batch, seeded()).total.backward()
    assert all(torch.equal(given[name].grad, weight.grad) for name, weight in f.named_parameters())
