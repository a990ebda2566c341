"""Our attacks beside those of foolbox, torchattacks and pyautoattack: same models, same images, same budgets.

    python benchmarks/attacks.py --data FOLDER_WITH_MNIST --cache FOLDER --out attacks.json

Two small networks are attacked, one trained naturally and one by PGD adversarial training in the Linf ball of
radius 0.3; without --data they learn the digits of scikit-learn, enlarged to 28x28. A point counts if the network
misclassifies it and it keeps to the budget, whoever made it. Seconds are those of one CPU core.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor, nn

from unperturbed.attacks import DDN, JSMA, AutoAttack, CarliniWagnerL2, Pointwise, Searched, grid, mi_fgsm, pgd
from unperturbed.attacks.libraries import library
from unperturbed.datasets import load
from unperturbed.losses import margin
from unperturbed.neighborhoods import L0, L2, Linf, Neighborhood, changed_pixels, norm
from unperturbed.objectives import AT, Batch, Objective, Standard
from unperturbed.solvers import PGD, Grid

EPS, STEPS, STEP_SIZE = 0.3, 40, 0.01
PIXELS = 118
"""15 % of 28 x 28, the cap of JSMA"""
TRAINING: dict[str, tuple[Objective, int]] = {
    "natural": (Standard(), 500),
    "robust": (AT(solver=PGD(around=Linf(eps=EPS), steps=4, step_size=0.1, start="uniform")), 2000),
}
"""what each network minimizes, and for how many steps"""
PACKAGES = ("unperturbed", "torch", "numpy", "foolbox", "torchattacks", "pyautoattack")

Run = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One implementation of an attack."""

    attack: str
    name: str
    within: Neighborhood
    run: Run | None
    """None: this library has no such attack that is right, or is not installed"""
    share: float = 1.0
    """share of the images that a slow one is given"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a contestant did to a model."""

    model: str
    attack: str
    name: str
    images: int
    accuracy: float | None = None
    """share of its images that are still classified as before"""
    ours: float | None = None
    """the same of our attack on the same images"""
    median: float | None = None
    """median size of the changes that fooled the model, in the norm of the budget"""
    seconds: float | None = None
    """CPU seconds for all images, extrapolated where it was given a share"""


def contestants(few: float, seed: int) -> Iterator[Contestant]:
    """Every attack, ours before those of the peers."""
    foolbox, torchattacks, pyautoattack = map(installed, ("foolbox", "torchattacks", "pyautoattack"))
    fb, ta = foolbox and foolbox.attacks, torchattacks

    def ours(attack: Any) -> Run:
        return lambda f, x, y: attack(f, x, y, Generator().manual_seed(seed))

    def theirs(attack: Any) -> Run:
        return lambda f, x, y: attack.run(foolbox.PyTorchModel(f, bounds=(0, 1), device="cpu"), x, y)

    def in_ball(attack: Any) -> Run:
        return lambda f, x, y: attack.run(foolbox.PyTorchModel(f, bounds=(0, 1), device="cpu"), x, y, epsilon=EPS)

    def torched(make: Callable[[nn.Module], Any]) -> Run:
        return lambda f, x, y: make(f)(x, y)

    def of(attack: str, within: Neighborhood, **runs: Run | None) -> Iterator[Contestant]:
        for name, run in runs.items():
            share = few if (attack, name) == ("JSMA, next target", "torchattacks") else 1.0
            yield Contestant(attack=attack, name=name.replace("_", " "), within=within, run=run, share=share)

    ball, sphere = Linf(eps=EPS), L2(eps=2.0)
    yield from of(
        f"PGD, {STEPS} steps",
        ball,
        ours=ours(pgd(eps=EPS, steps=STEPS, step_size=STEP_SIZE)),
        foolbox=fb and in_ball(fb.LinfPGD(steps=STEPS, abs_stepsize=STEP_SIZE)),
        torchattacks=ta and torched(lambda f: ta.PGD(f, eps=EPS, alpha=STEP_SIZE, steps=STEPS)),
    )
    yield from of(
        f"MI-FGSM, {STEPS} steps",
        ball,
        ours=ours(mi_fgsm(eps=EPS, steps=STEPS, step_size=STEP_SIZE)),
        foolbox=fb and in_ball(fb.MIFGSM(steps=STEPS, abs_stepsize=STEP_SIZE)),
        torchattacks=ta and torched(lambda f: ta.MIFGSM(f, eps=EPS, alpha=STEP_SIZE, steps=STEPS)),
    )
    yield from of(
        "DDN, 100 steps", sphere, ours=ours(DDN()), foolbox=fb and theirs(fb.DDNAttack()), torchattacks=None
    )
    yield from of(
        "C&W in L2, 5 x 200 steps",
        sphere,
        ours=fb and ours(CarliniWagnerL2(searches=5, steps=200, step_size=0.05, first_c=0.1)),
        foolbox=fb and theirs(fb.L2CarliniWagnerAttack(5, 200, 0.05, initial_const=0.1)),
        torchattacks=None,
    )
    yield from of(
        "JSMA, next target",
        L0(pixels=PIXELS),
        ours=ours(JSMA(pixels=PIXELS, target="next")),
        foolbox=None,
        torchattacks=ta and torched(lambda f: ta.JSMA(f, theta=1.0, gamma=PIXELS / 28**2)),
    )
    yield from of("JSMA, all targets", L0(pixels=PIXELS), ours=ours(JSMA(pixels=PIXELS)))
    yield from of(
        "Pointwise",
        L0(pixels=12),
        ours=fb and ours(Pointwise(pixels=12)),
        foolbox=fb and theirs(fb.PointwiseAttack(l2_binary_search=False)),
        torchattacks=None,
    )
    exhaustive = Searched(solver=Grid(points=(31, 5, 5)), loss=margin, within=grid().within, budget="all 775 points")
    yield from of(
        "GridAdv, 775 points",
        grid().within,
        ours=ours(grid()),
        exhaustive=ours(exhaustive),
        foolbox=fb and theirs(fb.SpatialAttack(num_rotations=31)),
    )
    yield from of(
        "AutoAttack, standard",
        ball,
        ours=pyautoattack and ours(AutoAttack(eps=EPS)),
        pyautoattack=pyautoattack
        and (lambda f, x, y: pyautoattack.AutoAttack(f, eps=EPS, seed=seed).run_standard_evaluation(x, y)[0]),
        torchattacks=None,
    )


def installed(name: str) -> Any:
    """The library of that name, or None."""
    try:
        return library(name, "the benchmark") if name != "torchattacks" else import_module(name)
    except ImportError:
        return None


def measured(
    contestant: Contestant, model: str, f: nn.Module, x: Tensor, y: Tensor, seed: int
) -> tuple[Result, Tensor]:
    """Run one contestant; which images stood, empty where it did not run."""
    count = max(1, round(contestant.share * len(x)))
    result = Result(model=model, attack=contestant.attack, name=contestant.name, images=count)
    if contestant.run is None:
        return result, torch.empty(0, dtype=torch.bool)
    x, y = x[:count], y[:count]
    torch.manual_seed(seed)
    np.random.seed(seed)
    started = time.process_time()
    perturbed = contestant.run(f, x, y).detach()
    seconds = (time.process_time() - started) / contestant.share
    with torch.no_grad():
        fooled = f(perturbed).argmax(1) != y
    size = size_of(contestant.within, x, perturbed)[fooled]
    standing = ~(fooled & contestant.within.contains(x, perturbed))
    median = size.median().item() if len(size) else None
    found = {"accuracy": standing.double().mean().item(), "median": median, "seconds": round(seconds, 3)}
    return Result(**(asdict(result) | found)), standing


def size_of(within: Neighborhood, x: Tensor, perturbed: Tensor) -> Tensor:
    """The size of each change in the norm of the budget; a warp has none."""
    change = perturbed - x
    if isinstance(within, L0):
        return changed_pixels(change).double()
    if isinstance(within, Linf):
        return change.abs().flatten(1).amax(1)
    return norm(change) if isinstance(within, L2) else torch.full((len(x),), torch.nan)


def compete(models: dict[str, nn.Module], x: Tensor, few: float, seed: int, console: Console) -> Iterator[Result]:
    """All contestants against all models; labels are what a model says of x."""
    for name, f in models.items():
        with torch.no_grad():
            y = f(x).argmax(1)
        reference = torch.empty(0, dtype=torch.bool)
        for contestant in contestants(few, seed):
            console.log(f"{name}: {contestant.attack}, {contestant.name}")
            result, standing = measured(contestant, name, f, x, y, seed)
            reference = standing if contestant.name == "ours" else reference
            same = reference[: result.images].double().mean().item() if len(reference) else None
            yield Result(**(asdict(result) | {"ours": same}))


def table_of(results: list[Result], images: int) -> Table:
    table = Table(title=f"{images} images, one CPU core; accuracy is the share that still gets the answer it had")
    for heading in (
        "model",
        "attack",
        "by",
        "accuracy %",
        "ours on the same",
        "median size",
        "seconds",
        "times ours",
    ):
        table.add_column(heading, justify="left" if heading in ("model", "attack", "by") else "right")
    seconds = {(r.model, r.attack): r.seconds for r in results if r.name == "ours"}
    previous = results[0]
    for r in results:
        if (r.model, r.attack) != (previous.model, previous.attack):
            table.add_section()
        previous, own = r, seconds.get((r.model, r.attack))
        times = r.seconds / own if r.seconds is not None and own else None
        by = r.name if r.images == images or r.accuracy is None else f"{r.name} ({r.images} images, extrapolated)"
        shares = [
            None if share is None else 100 * share
            for share in (r.accuracy, r.ours if r.accuracy is not None else None)
        ]
        cells = [*(shown(share, 1) for share in shares), shown(r.median, 3), shown(r.seconds, 2), shown(times, 1)]
        table.add_row(r.model, r.attack, by, *cells)
    return table


def shown(value: float | None, digits: int) -> str:
    return "-" if value is None or value != value else f"{value:.{digits}f}"


def trained(images: Tensor, labels: Tensor, cache: Path | None, seed: int) -> dict[str, nn.Module]:
    """The networks, from the cache where they were trained before; each goes on from the weights of the one before."""
    torch.manual_seed(seed)
    f = nn.Sequential(
        *(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(32 * 7 * 7, 100), nn.ReLU(), nn.Linear(100, 10)),
    )
    networks: dict[str, nn.Module] = {}
    for name, (objective, steps) in TRAINING.items():
        path = cache / f"{name}-{len(images)}-{seed}.pt" if cache else None
        if path and path.exists():
            f.load_state_dict(torch.load(path, weights_only=True))
        else:
            train(f, objective, steps, images, labels, Generator().manual_seed(seed))
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(f.state_dict(), path)
        networks[name] = deepcopy(f).eval()
    return networks


def train(f: nn.Module, objective: Objective, steps: int, images: Tensor, labels: Tensor, rng: Generator) -> None:
    adam = torch.optim.Adam(f.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 0.003, total_steps=steps)
    for _ in range(steps):
        rows = torch.randint(len(images), (100,), generator=rng)
        adam.zero_grad()
        objective(f, Batch(images[rows], labels[rows], images[:0]), rng).total.backward()
        adam.step()
        schedule.step()


def enlarged(images: Tensor) -> Tensor:
    """Bytes as 28x28 images in [0, 1]."""
    return nn.functional.interpolate(images.float() / 255, (28, 28), mode="bilinear").clamp(0, 1)


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST; without it, digits of scikit-learn")
    parser.add_argument("--cache", type=Path, help="folder that keeps the trained networks")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    parser.add_argument("--images", type=int, default=200, help="test images to attack")
    parser.add_argument("--few", type=float, default=0.1, help="share of them for torchattacks' JSMA, which is slow")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=140)
    data = load("mnist", options.data) if options.data else load("digits")
    images = enlarged(data.train_images)
    models = trained(images, data.train_labels, options.cache, options.seed)
    x = enlarged(data.test_images[: options.images])
    results = list(compete(models, x, options.few, options.seed, console))
    console.print(table_of(results, len(x)))
    if options.out:
        settings = {"seed": options.seed, "data": data.name, "images": len(x), "threads": torch.get_num_threads()}
        versions = {package: version_of(package) for package in PACKAGES}
        tree = {**settings, "versions": versions, "results": [asdict(result) for result in results]}
        options.out.write_text(json.dumps(tree, indent=1) + "\n")


if __name__ == "__main__":
    main()
