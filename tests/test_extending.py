"""The examples of docs/extending.md, executed."""

import re
from pathlib import Path

import torch
from torch import nn

import unperturbed as up
from unperturbed.datasets import load
from unperturbed.inputs import as_float

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
DIGITS = load("digits")
X, Y = as_float(DIGITS.train_images[:60]), DIGITS.train_labels[:60]
U = as_float(DIGITS.train_images[60:120])


def shown():
    """All that the page defines."""
    names: dict[str, object] = {}
    exec("\n".join(BLOCKS), names)
    return names


def network():
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def test_each_example_is_short():
    assert len(BLOCKS) == 5
    for block in BLOCKS:
        assert sum(bool(line.strip()) for line in block.splitlines()) <= 32


def test_the_neighborhood_works_in_solvers_objectives_and_attacks(rng):
    around = shown()["Brightness"](most=0.2)
    assert isinstance(around, up.Neighborhood)
    for solver in (
        up.WorstOfK(around=around, k=3),
        up.PGD(around=around, steps=3, step_size=0.5),
        up.FGSM(around=around),
    ):
        up.fit(network(), labeled=(X, Y), unlabeled=U, objective=up.SRT(solver=solver), steps=2, batch=30)
    report = up.evaluate(network(), X, Y, {"brightness": up.attacks.random(around)})
    assert report["brightness"].rejected == 0


def test_the_solver_and_the_loss_train_and_attack(rng):
    names = shown()
    solver, loss = names["Corners"](around=up.Linf(eps=0.1)), names["below_average"]
    assert isinstance(solver, up.Solver)
    up.fit(network(), labeled=(X, Y), objective=up.TRADES(solver=solver), steps=2)
    f, about = network(), {"loss": loss, "within": up.Linf(eps=0.1), "budget": "5 corners"}
    attacks = {"both": up.attacks.Searched(solver=solver, **about), "pgd": up.attacks.pgd(loss=loss)}
    assert [result.rejected for result in up.evaluate(f, X, Y, attacks).attacks] == [0, 0]
    against = up.Against(loss, f, f(X).argmax(1))
    assert (against(solver(against, X, rng)) >= against(X)).all()


def test_the_loop_trains_with_every_objective(rng):
    trained = shown()["trained"]
    batches = [(X[:30], Y[:30], U[:30]), (X[30:], Y[30:], U[30:]), (X, Y, X[:0]), (X, Y, U)]
    for objective in (up.SRT(), up.TRADES(), up.UAT(), up.AT(), up.KLR(), up.Standard()):
        f = trained(network(), batches, objective, rng)
        assert not f.training
        assert all((ours != its).any() for ours, its in zip(f.parameters(), network().parameters(), strict=True))


def test_the_objective_adds_its_entropy(rng):
    objective = shown()["ConfidentSRT"](srt=up.SRT(weight=0.0), weight=1.0)
    f = network()
    terms = objective(f, up.Batch(X, Y, U), rng)
    p = f(U).softmax(1)
    torch.testing.assert_close(terms.robust, -(p * p.log()).sum(1).mean())
    up.fit(network(), labeled=(X, Y), unlabeled=U, objective=objective, steps=2, batch=30)


def test_the_attack_is_reported_and_checked():
    attack = shown()["OneRow"]
    report = up.evaluate(
        network(), X, Y, {"row": attack(within=up.L0(pixels=8)), "strict": attack(within=up.L0(pixels=1))}
    )
    assert report["row"].rejected == 0
    assert report["row"].budget == "one black row"
    assert report["strict"].rejected > 0
