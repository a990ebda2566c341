"""Attacks on a GPU: ours beside those of other libraries, and fast searches beside those in float32, in one run.

    python benchmarks/attack_speed.py --data FOLDER --models FOLDER --out results/attack-speed.json

Networks are trained here, each in a minute or two, unless they lie in the folder MODELS, where they are kept. A point
counts if the network misclassifies it in float32, whoever made it. Peers get images that the network classifies
correctly, since they leave others alone, and ours the same ones.

Each part of the file, and each network of the agreement, has its own provenance.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro
from card import GPU, require_gpu
from peers import library
from quality import RECIPE
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from unperturbed.attacks import Attack, AutoAttack, cw_linf, grid, pgd
from unperturbed.datasets import Dataset, load
from unperturbed.engine import Engine, Precision
from unperturbed.evaluation import at_once, evaluate
from unperturbed.images import parts
from unperturbed.recipe import Recipe
from unperturbed.recipes import named
from unperturbed.runtime import provenance
from unperturbed.schedules import Cyclic
from unperturbed.training import fresh_model, trainer_by

EPS, STEPS = 0.031, 3000


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network under attack."""

    file: str
    """of its weights"""
    recipe: Recipe
    eps: float = EPS
    """radius of pixel-wise attacks"""


def shortened(name: str, peak: float) -> Recipe:
    """A recipe of the paper in fewer steps, by a cyclic rate."""
    recipe = named(name)
    return replace(recipe, optimizer=replace(recipe.optimizer, rate=Cyclic(peak=peak)), steps=STEPS, log_every=1000)


PIXEL, SPATIAL, DIGITS = "fast SRT, ResNet-18", "spatial SRT, small ResNet", "AT, SmallCNN on MNIST"
SUBJECTS = {
    PIXEL: Subject(file="engine", recipe=RECIPE),
    SPATIAL: Subject(file="spatial", recipe=shortened("cifar10-spatial-srt", 0.1)),
    DIGITS: Subject(file="digits", recipe=shortened("mnist-pixel-at", 0.05), eps=0.3),
}
ROUNDS = 5
"""times as many images as of others that attacks by a few gradients see in comparisons of precision"""
SLOWEST = 8
"""kernels of a profile that are named"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    data: Path | None = None
    """folder with CIFAR-10 and MNIST"""
    models: Path = Path("runs/quality")
    """folder with the trained networks, or for them"""
    out: Path = Path("results/attack-speed.json")
    """file for the numbers"""
    images: int = 1000
    """that peers, ours beside them, and the comparisons of precision see"""
    only: tuple[str, ...] = ()
    """some of pgd, grid, autoattack, agreement; all if none are given; figures that the file has of others stay"""


def trained(subject: Subject, dataset: Dataset, models: Path) -> nn.Module:
    """The network, trained if it does not lie there."""
    file, recipe = models / f"{subject.file}.safetensors", subject.recipe
    if not file.exists():
        run = trainer_by(recipe, dataset, parts(dataset, recipe.data), GPU)
        run.run(write_log=print)
        models.mkdir(parents=True, exist_ok=True)
        save_file({key: value.cpu().contiguous() for key, value in run.f.state_dict().items()}, file)
    f = fresh_model(recipe, dataset)
    f.load_state_dict(load_file(file))
    return f.to(GPU).eval().requires_grad_(False)


def ours(f: nn.Module, x: Tensor, y: Tensor, attack: Attack, precision: Precision = "auto") -> dict[str, Any]:
    """What an attack of ours leaves standing, and its seconds, compiling included."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    report = evaluate(f, x, y, {"attack": attack}, device="cuda", precision=precision)
    return {"seconds": time.perf_counter() - started, "accuracy": 100 * report.accuracy("attack"), "images": len(x)}


@torch.no_grad()
def theirs(f: nn.Module, x: Tensor, y: Tensor, run: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Any]:
    """The same of a peer, run as it comes."""
    x, y = x.to(GPU).float() / 255, y.to(GPU)
    torch.cuda.synchronize()
    started = time.perf_counter()
    found = run(x, y)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    with Engine().arithmetic():
        standing = (f(found).argmax(1) == y).sum().item()
    return {"seconds": seconds, "accuracy": 100 * standing / len(x), "images": len(x)}


@torch.no_grad()
def known(f: nn.Module, dataset: Dataset, images: int) -> tuple[Tensor, Tensor]:
    """The first test images that f classifies correctly."""
    x, y = dataset.test_images, dataset.test_labels
    with Engine().arithmetic():
        right = torch.cat([f(part.to(GPU).float() / 255).argmax(1).cpu() for part in x.split(1000)]) == y
    return x[right][:images], y[right][:images]


def gradient_steps(f: nn.Module, dataset: Dataset, images: int) -> dict[str, Any]:
    """PGD-20, the same steps by everybody; ours comes first, and once more in the same process."""
    foolbox, torchattacks = library("foolbox"), library("torchattacks")
    x, y = known(f, dataset, ROUNDS * images)
    size = at_once(x[0].numel())
    wrapped = foolbox.PyTorchModel(f, bounds=(0, 1), device=GPU)
    linf = foolbox.attacks.LinfPGD(rel_stepsize=0.1, steps=20)
    signs = torchattacks.PGD(f, eps=EPS, alpha=EPS / 10, steps=20)

    def in_parts(run: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        def whole(x: Tensor, y: Tensor) -> Tensor:
            with torch.enable_grad():
                return torch.cat([run(*part) for part in zip(x.split(size), y.split(size), strict=True)])

        return whole

    own, again = (ours(f, x, y, pgd(eps=EPS, steps=20, step_size=EPS / 10)) for _ in range(2))
    rows = {
        "ours": own,
        "ours, once more": again,
        "foolbox": theirs(f, x, y, in_parts(lambda x, y: linf.run(wrapped, x, y, epsilon=EPS))),
        "torchattacks": theirs(f, x, y, in_parts(signs)),
    }
    faster = {name: row["seconds"] / own["seconds"] for name, row in rows.items() if "ours" not in name}
    return {"rows": rows, "times faster": faster}


def grid_search(f: nn.Module, dataset: Dataset, images: int) -> dict[str, Any]:
    """GridAdv with 775 transforms: ours on all test images, foolbox's on some, and ours on those."""
    foolbox = library("foolbox")
    attack = foolbox.attacks.SpatialAttack(num_rotations=31)
    wrapped = foolbox.PyTorchModel(f, bounds=(0, 1), device=GPU)
    x, y = known(f, dataset, images)
    peer = theirs(f, x, y, lambda x, y: attack.run(wrapped, x, y))
    whole, part = ours(f, dataset.test_images, dataset.test_labels, grid()), ours(f, x, y, grid())
    pace = peer["seconds"] / peer["images"] / (whole["seconds"] / whole["images"])
    rows = {"ours, all test images": whole, "ours": part, "foolbox": peer}
    return {"rows": rows, "times faster an image": pace, "profile": profiled(lambda: ours(f, x, y, grid()))}


def profiled(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Where the time of one more run goes: its seconds, those in kernels, and which kernels take longest."""
    seconds = run()["seconds"]
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda event: -event.device_time_total)
    slowest = [
        {"kernel": event.key[:100], "times": event.count, "milliseconds": event.device_time_total / 1000}
        for event in events[:SLOWEST]
    ]
    in_kernels = sum(event.device_time_total for event in events) / 1e6
    return {
        "seconds": seconds,
        "kernels": sum(event.count for event in events),
        "seconds in kernels": in_kernels,
        "slowest": slowest,
    }


def auto_attack(f: nn.Module, dataset: Dataset, images: int) -> dict[str, Any]:
    """AutoAttack's standard parts."""
    x, y = known(f, dataset, images)
    pyautoattack = library("pyautoattack")

    def run(x: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            attack = pyautoattack.AutoAttack(f, eps=EPS, seed=0, device=GPU)
            return attack.run_standard_evaluation(x, y)[0]

    peer, own = theirs(f, x, y, run), ours(f, x, y, AutoAttack(eps=EPS))
    rows = {"ours": own, "pyautoattack": peer}
    return {"rows": rows, "times faster": peer["seconds"] / own["seconds"]}


def agreement(f: nn.Module, dataset: Dataset, images: int, eps: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each attack in the precision it gets by itself and in float32."""
    attacks = {
        "PGD-20": (pgd(eps=eps, steps=20, step_size=eps / 10), ROUNDS * images),
        "margin PGD-30": (cw_linf(eps=eps), ROUNDS * images),
        "GridAdv": (grid(), images),
        "AutoAttack": (AutoAttack(eps=eps), images),
    }
    images_known, labels = known(f, dataset, ROUNDS * images)
    for name, (attack, count) in attacks.items():
        x, y = images_known[:count], labels[:count]
        yield name, {"by itself": ours(f, x, y, attack), "float32": ours(f, x, y, attack, "float32")}


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md."""
    lines = ["| attack | by | images | standing, % | seconds |", "|---|---|---:|---:|---:|"]
    for attack, key in (("PGD-20", "pgd"), ("GridAdv, 775 points", "grid"), ("AutoAttack", "autoattack")):
        for who, row in result[key]["rows"].items():
            lines.append(f"| {attack} | {who} | {row['images']:,} | {row['accuracy']:.2f} | {row['seconds']:.1f} |")
    return "\n".join(lines)


def agreement_markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md on what precision costs an attack."""
    head = "| network | attack | images | standing, % | in float32 | difference |"
    lines = [head, "|---|---|---:|---:|---:|---:|"]
    for network, part in result["agreement"].items():
        for attack, found in part["rows"].items():
            fast, slow = found["by itself"]["accuracy"], found["float32"]["accuracy"]
            count = found["by itself"]["images"]
            lines.append(f"| {network} | {attack} | {count:,} | {fast:.2f} | {slow:.2f} | {fast - slow:+.2f} |")
    return "\n".join(lines)


def main(options: Options) -> None:
    """Measure, print and write JSON."""
    require_gpu()
    cifar10 = load("cifar10", options.data)
    result: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    wanted = options.only or ("pgd", "grid", "autoattack", "agreement")

    def keep(parts: dict[str, Any], name: str, figures: dict[str, Any]) -> None:
        parts[name] = {"provenance": provenance(GPU), **figures}
        print(name, json.dumps(figures), flush=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    if "pgd" in wanted:
        f = trained(SUBJECTS[PIXEL], cifar10, options.models)
        keep(result, "pgd", gradient_steps(f, cifar10, options.images))
    if "grid" in wanted:
        f = trained(SUBJECTS[SPATIAL], cifar10, options.models)
        keep(result, "grid", grid_search(f, cifar10, options.images))
    if "autoattack" in wanted:
        f = trained(SUBJECTS[PIXEL], cifar10, options.models)
        keep(result, "autoattack", auto_attack(f, cifar10, options.images))
    for name, subject in SUBJECTS.items() if "agreement" in wanted else ():
        dataset = load("mnist", options.data) if name == DIGITS else cifar10
        f, rows = trained(subject, dataset, options.models), {}
        for attack, precisions in agreement(f, dataset, options.images, subject.eps):
            rows[attack] = precisions
            keep(result.setdefault("agreement", {}), name, {"rows": rows})


if __name__ == "__main__":
    main(tyro.cli(Options))
