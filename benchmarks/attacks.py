"""Our attacks beside those of foolbox, torchattacks and pyautoattack: same models, same images, same budgets.

    python benchmarks/attacks.py --data FOLDER_WITH_MNIST --cache FOLDER --out attacks.json

Two small networks are attacked, one trained naturally and one by PGD adversarial training in the Linf ball of
radius 0.3; without --data they learn the digits of scikit-learn, enlarged to 28x28. A point counts if the network
misclassifies it and it keeps to the budget, whoever made it. Seconds are those of one CPU core.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import library
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor, nn

from unperturbed.attacks import DDN, JSMA, AutoAttack, CarliniWagnerL2, Pointwise, Searched, grid, mi_fgsm, pgd
from unperturbed.datasets import load
from unperturbed.losses import margin
from unperturbed.neighborhoods import L0, L2, Linf, Neighborhood, changed_pixels, norm
from unperturbed.objectives import AT, Batch, Objective, Standard
from unperturbed.runtime import version_of
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
    images: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a contestant did to a model."""

    model: str
    attack: str
    name: str
    images: int
    standing: tuple[bool, ...] = ()
    """which of its images are still classified as before"""
    size: float | None = None
    """median size of the changes that fooled the model, in the norm of the budget; a warp has none"""
    seconds: float | None = None
    """CPU seconds"""

    def accuracy(self, first: int) -> float | None:
        """The share of its first images that stood."""
        return sum(self.standing[:first]) / first if self.standing else None

    @property
    def pace(self) -> float | None:
        """Seconds for an image."""
        return None if self.seconds is None else self.seconds / self.images


def contestants(images: int, few: int, many: int, seed: int) -> Iterator[Contestant]:
    """Every attack, ours before those of the peers."""
    foolbox, ta, pyautoattack = map(installed, ("foolbox", "torchattacks", "pyautoattack"))
    fb = foolbox and foolbox.attacks

    def ours(attack: Any) -> Run:
        return lambda f, x, y: attack(f, x, y, Generator().manual_seed(seed))

    def theirs(attack: Any, **radius: float) -> Run:
        return lambda f, x, y: attack.run(foolbox.PyTorchModel(f, bounds=(0, 1), device="cpu"), x, y, **radius)

    def whole(f: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return pyautoattack.AutoAttack(f, eps=EPS, seed=seed).run_standard_evaluation(x, y)[0]

    def of(attack: str, within: Neighborhood, **runs: Run | None) -> Iterator[Contestant]:
        peers: dict[str, Run | None] = {"ours": None, "foolbox": None, "torchattacks": None}
        for name, run in (peers | runs).items():
            slow, fast = (attack, name) == ("JSMA, next target", "torchattacks"), attack.startswith("GridAdv")
            count = few if slow else many if fast else images
            yield Contestant(attack=attack, name=name, within=within, run=run, images=count)

    ball, sphere = Linf(eps=EPS), L2(eps=2.0)
    yield from of(
        f"PGD, {STEPS} steps",
        ball,
        ours=ours(pgd(eps=EPS, steps=STEPS, step_size=STEP_SIZE)),
        foolbox=fb and theirs(fb.LinfPGD(steps=STEPS, abs_stepsize=STEP_SIZE), epsilon=EPS),
        torchattacks=ta and (lambda f, x, y: ta.PGD(f, eps=EPS, alpha=STEP_SIZE, steps=STEPS)(x, y)),
    )
    yield from of(
        f"MI-FGSM, {STEPS} steps",
        ball,
        ours=ours(mi_fgsm(eps=EPS, steps=STEPS, step_size=STEP_SIZE)),
        foolbox=fb and theirs(fb.MIFGSM(steps=STEPS, abs_stepsize=STEP_SIZE), epsilon=EPS),
        torchattacks=ta and (lambda f, x, y: ta.MIFGSM(f, eps=EPS, alpha=STEP_SIZE, steps=STEPS)(x, y)),
    )
    yield from of("DDN, 100 steps", sphere, ours=ours(DDN()), foolbox=fb and theirs(fb.DDNAttack()))
    yield from of(
        "C&W in L2, 5 x 200 steps",
        sphere,
        ours=ours(CarliniWagnerL2(searches=5, steps=200, step_size=0.05, first_c=0.1)),
        foolbox=fb and theirs(fb.L2CarliniWagnerAttack(5, 200, 0.05, initial_const=0.1)),
    )
    yield from of(
        "JSMA, next target",
        L0(pixels=PIXELS),
        ours=ours(JSMA(pixels=PIXELS, target="next")),
        torchattacks=ta and (lambda f, x, y: ta.JSMA(f, theta=1.0, gamma=PIXELS / 28**2)(x, y)),
    )
    yield from of("JSMA, all targets", L0(pixels=PIXELS), ours=ours(JSMA(pixels=PIXELS)))
    yield from of(
        "Pointwise",
        L0(pixels=12),
        ours=ours(Pointwise(pixels=12)),
        foolbox=fb and theirs(fb.PointwiseAttack(l2_binary_search=False)),
    )
    exhaustive = Searched(solver=Grid(points=(31, 5, 5)), loss=margin, within=grid().within, budget="all 775 points")
    yield from of(
        "GridAdv, 775 points",
        grid().within,
        ours=ours(grid()),
        exhaustive=ours(exhaustive),
        foolbox=fb and theirs(fb.SpatialAttack(num_rotations=31)),
    )
    standard = AutoAttack(eps=EPS)
    yield from of("AutoAttack", ball, ours=ours(standard), pyautoattack=pyautoattack and whole)


def installed(name: str) -> Any:
    """The library of that name, or None."""
    try:
        return library(name)
    except ImportError:
        return None


def measured(contestant: Contestant, model: str, f: nn.Module, x: Tensor, y: Tensor, seed: int) -> Result:
    """Run one contestant, and look at what it returned."""
    x, y = x[: contestant.images], y[: contestant.images]
    result = Result(model=model, attack=contestant.attack, name=contestant.name, images=len(x))
    if contestant.run is None:
        return result
    torch.manual_seed(seed)
    np.random.seed(seed)
    started = time.process_time()
    perturbed = contestant.run(f, x, y).detach()
    seconds = time.process_time() - started
    with torch.no_grad():
        fooled = f(perturbed).argmax(1) != y
    standing = ~(fooled & contestant.within.contains(x, perturbed))
    sizes = sizes_of(contestant.within, perturbed - x)[fooled]
    size = sizes.median().item() if len(sizes) and not sizes.isnan().any() else None
    return replace(result, standing=tuple(standing.tolist()), size=size, seconds=round(seconds, 3))


def sizes_of(within: Neighborhood, change: Tensor) -> Tensor:
    """The size of each change in the norm of the budget."""
    if isinstance(within, L0):
        return changed_pixels(change).double()
    if isinstance(within, Linf):
        return change.abs().flatten(1).amax(1)
    return norm(change) if isinstance(within, L2) else torch.full((len(change),), torch.nan)


def rows_of(results: list[Result]) -> Iterator[dict[str, str | float | None]]:
    """Each result beside ours on the same images."""
    ours = {(result.model, result.attack): result for result in results if result.name == "ours"}
    for result in results:
        own = ours[result.model, result.attack]
        yield {
            "model": result.model,
            "attack": result.attack,
            "by": result.name,
            "images": result.images,
            "accuracy": result.accuracy(result.images),
            "ours": own.accuracy(result.images) if result.standing else None,
            "size": result.size,
            "seconds": result.seconds,
            "times ours": result.pace / own.pace if result.pace and own.pace else None,
        }


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="accuracy: share of the images that still get the answer they had; ours: that of our attack on the "
        "same images; size: median of the changes that fooled the model; seconds: of one core; times ours: by image"
    )
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading in ("model", "attack", "by") else "right")
    for row, following in zip_longest(rows, rows[1:], fillvalue=rows[-1]):
        cells = (f"{cell:.3f}" if isinstance(cell, float) else cell for cell in row.values())
        cells = ("-" if cell is None else str(cell) for cell in cells)
        table.add_row(*cells, end_section=following["attack"] != row["attack"])
    return table


def trained(images: Tensor, labels: Tensor, cache: Path | None, seed: int) -> dict[str, nn.Module]:
    """The networks, trained or from the cache; each goes on where the one before ended."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST; without it, digits of scikit-learn")
    parser.add_argument("--cache", type=Path, help="folder that keeps the trained networks")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    parser.add_argument("--images", type=int, default=200, help="test images to attack")
    parser.add_argument("--few", type=int, default=40, help="images for torchattacks' JSMA, which is slow")
    parser.add_argument("--many", type=int, default=1000, help="images for the grids, which are fast")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "torch.meshgrid", UserWarning)  # foolbox's grid
    console = Console(width=140)
    data = load("mnist", options.data) if options.data else load("digits")
    models = trained(enlarged(data.train_images), data.train_labels, options.cache, options.seed)
    x = enlarged(data.test_images[: max(options.images, options.many)])
    results: list[Result] = []
    for name, f in models.items():
        with torch.no_grad():
            y = f(x).argmax(1)
        for contestant in contestants(options.images, options.few, options.many, options.seed):
            console.log(f"{name}: {contestant.attack}, {contestant.name}")
            results.append(measured(contestant, name, f, x, y, options.seed))
    rows = list(rows_of(results))
    console.print(table_of(rows))
    if options.out:
        versions = {package: version_of(package) if find_spec(package) else None for package in PACKAGES}
        tree = {"seed": options.seed, "data": data.name, "threads": 1, "versions": versions, "results": rows}
        options.out.write_text(json.dumps(tree, indent=1) + "\n")


if __name__ == "__main__":
    main()
