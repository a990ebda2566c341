"""Lemma 1 and Theorem 1 on measured numbers, and how the objectives of the paper contain each other."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from reference import risks as slow
from reference import solvers as slow_solvers
from tiny import seeded
from unperturbed.losses import Against, cross_entropy, margin
from unperturbed.neighborhoods import Linf, Spatial
from unperturbed.objectives import SRT, Batch, Standard
from unperturbed.risks import adversarial_risk, robust_risk, standard_risk
from unperturbed.solvers import PGD, Grid, Sequential

WARPS = Grid(around=Spatial(rotation=20, translation=1), points=(5, 3, 3))
PIXELS = PGD(around=Linf(eps=0.1), steps=5, step_size=0.05)
SOLVERS = {"PGD": PIXELS, "Grid": WARPS, "PGD+": Sequential(stages=(PIXELS, WARPS))}
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16).view(-1, 1, 8, 8), torch.tensor(labels)


def classifier(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )
    return network.double()


@pytest.fixture(scope="module")
def trained(digits):
    images, labels = digits
    f = classifier(seed=0)
    optimizer = torch.optim.Adam(f.parameters(), lr=0.01)
    for step in range(40):
        rows = torch.arange(100 * step, 100 * step + 100) % 1000
        optimizer.zero_grad()
        cross_entropy(f(images[rows]), labels[rows]).mean().backward()
        optimizer.step()
    return f.eval()


@pytest.fixture(params=["trained", "random 1", "random 2", "random 3"])
def f(request, trained):
    if request.param == "trained":
        return trained
    return classifier(seed=int(request.param[-1])).eval()


@pytest.fixture
def test_images(digits):
    images, labels = digits
    return images[1000:1200], labels[1000:1200]


def perturbed_by(solver, f, x, target):
    return solver(Against(margin, f, target), x, seeded())


@torch.no_grad()
def predictions(f, x):
    return f(x).argmax(1)


def test_the_trained_classifier_is_neither_perfect_nor_robust(trained, test_images):
    x, y = test_images
    clean = predictions(trained, x)
    perturbed = predictions(trained, perturbed_by(PIXELS, trained, x, y))
    assert 0.02 < standard_risk(clean, y).double().mean() < 0.3
    assert 0.2 < robust_risk(clean, perturbed).double().mean() < 1


@every_solver
def test_lemma_1_holds_exactly_on_every_image(solver, f, test_images):
    x, y = test_images
    clean, perturbed = predictions(f, x), predictions(f, perturbed_by(solver, f, x, y))
    r_stand, r_rob = standard_risk(clean, y).int(), robust_risk(clean, perturbed).int()
    assert torch.equal(adversarial_risk(clean, perturbed, y).int(), r_stand + (1 - r_stand) * r_rob)


@every_solver
def test_the_adversarial_risk_is_at_most_the_standard_plus_the_robust_risk(solver, f, test_images):
    x, y = test_images
    clean, perturbed = predictions(f, x), predictions(f, perturbed_by(solver, f, x, y))
    r_stand, r_rob = standard_risk(clean, y).double().mean(), robust_risk(clean, perturbed).double().mean()
    r_adv = adversarial_risk(clean, perturbed, y).double().mean()
    assert max(r_stand, r_adv - r_stand) - 1e-12 <= r_adv <= r_stand + r_rob + 1e-12


def test_theorem_1_holds_where_each_risk_has_an_adversary_of_its_own(f, test_images):
    """An exhaustive grid finds the exact maximum, so the adversaries of R_adv and R_rob may differ."""
    x, y = test_images
    clean = predictions(f, x)
    against_label = predictions(f, perturbed_by(WARPS, f, x, y))
    against_prediction = predictions(f, perturbed_by(WARPS, f, x, clean))
    r_stand, r_rob = standard_risk(clean, y).int(), robust_risk(clean, against_prediction).int()
    r_adv = adversarial_risk(clean, against_label, y).int()
    assert torch.equal(r_adv, r_stand + (1 - r_stand) * r_rob)
    assert r_adv.sum() <= r_stand.sum() + r_rob.sum()


def test_measured_risks_are_the_maxima_of_definition_2_over_a_finite_neighborhood(f, test_images):
    x, y = (part[:8] for part in test_images)
    clean = predictions(f, x)
    r_adv = adversarial_risk(clean, predictions(f, perturbed_by(WARPS, f, x, y)), y)
    r_rob = robust_risk(clean, predictions(f, perturbed_by(WARPS, f, x, clean)))
    thetas = slow_solvers.grid_points(20, 1, (5, 3, 3))
    for i, label in enumerate(y.tolist()):
        neighbors = [x[i], *(slow_solvers.warp(x[i], *theta) for theta in thetas)]
        classes = predictions(f, torch.stack(neighbors)).tolist()
        assert r_adv[i] == slow.adversarial_risk(classes.__getitem__, range(len(classes)), label)
        assert r_rob[i] == slow.robust_risk(classes.__getitem__, 0, range(len(classes)))


@every_solver
def test_srt_without_unlabeled_images_is_robust_training(solver, f, test_images):
    """Eq. (6) written out: L(f(x), y) + lambda L(f(x'), C(x)), averaged over D_L."""
    x, y = (part[:20] for part in test_images)
    terms = SRT(solver=solver, weight=0.5)(f, Batch(x, y, x[:0]), seeded())
    c = predictions(f, x)
    perturbed = solver(Against(cross_entropy, f, c), x, seeded())
    rows = torch.arange(len(x))
    torch.testing.assert_close(terms.standard, -f(x).log_softmax(1)[rows, y].mean())
    torch.testing.assert_close(terms.robust, -0.5 * f(perturbed).log_softmax(1)[rows, c].mean())


@pytest.mark.parametrize("training", [True, False])
def test_srt_with_weight_0_has_the_gradient_of_standard_training(training, digits):
    images, labels = digits
    batch = Batch(images[:20], labels[:20], images[20:50])
    gradients = []
    for objective in (SRT(solver=PIXELS, weight=0.0), Standard()):
        f = classifier(seed=0).train(training)
        objective(f, batch, seeded()).total.backward()
        gradients.append([parameter.grad for parameter in f.parameters()])
    for ours, standard in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, standard, rtol=0, atol=1e-12)
