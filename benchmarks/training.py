"""Training steps on a GPU: ours beside the authors' loss and the same algorithm run plainly, in one run.

    python benchmarks/training.py --authors FOLDER_WITH_SRTD_PY --out results/training-speed.json

Every row is a step of SRT with a fifth of the batch labeled: C(x), the search, the outer passes, the update. Ours
also draws and augments its batch in that time; the peers get one that lies ready on the device. The peers run as
PyTorch comes: TF32 convolutions, channels first, cudnn choosing by trial. FOLDER holds SRTD.py of the authors.

The file has four parts, each with its own provenance; `--only` names those to measure, and the others stay as they
are. `growth`, how cost grows with batch, K and width, is measured only if it is named.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
import tyro
from card import GPU, require_gpu
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from unperturbed.data import Data
from unperturbed.images import Images
from unperturbed.models import Architecture, ResNet, ResNet18, SmallCNN, WideResNet
from unperturbed.neighborhoods import Linf, Spatial
from unperturbed.objectives import SRT, Batch
from unperturbed.recipe import SGD, Recipe
from unperturbed.runtime import provenance
from unperturbed.schedules import Piecewise
from unperturbed.solvers import PGD, WorstOfK
from unperturbed.trainer import Trainer
from unperturbed.turns import run_together

RATE = 0.01
PRODUCTS = ("xmma", "cutlass", "gemm", "nvjet", "convolve", "conv2d", "correlate")
"""words in the names of kernels that do convolutions and matrix products"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network, and what it minimizes."""

    model: Architecture
    objective: SRT
    passes: float
    """forward passes' worth of arithmetic in the search, of an image of the batch"""
    shape: tuple[int, int, int] = (3, 32, 32)
    crop: int = 4
    batch: int = 128


def pixel(model: Architecture, steps: int, **changes: Any) -> Case:
    """SRT with PGD: C(x), then a forward pass and a gradient with respect to the image in each step."""
    mnist = isinstance(model, SmallCNN)
    ball, size = (Linf(eps=0.3), 0.01) if mnist else (Linf(eps=0.031), 0.007)
    objective = SRT(solver=PGD(around=ball, steps=steps, step_size=size))
    place: dict[str, Any] = {"shape": (1, 28, 28), "crop": 0} if mnist else {}
    return Case(model=model, objective=objective, passes=1 + 2 * steps, **place, **changes)


CASES = {
    "SmallCNN, K = 40": pixel(SmallCNN(), 40),
    "ResNet [16, 16, 32, 64] x 5, worst of 10": Case(
        model=ResNet(), objective=SRT(solver=WorstOfK(around=Spatial())), passes=1 + 11
    ),
    "ResNet-18, K = 10": pixel(ResNet18(), 10),
    "WRN-34-10, K = 10": pixel(WideResNet(), 10),
}
GROWTH = {
    **{f"SmallCNN, K = {steps}": pixel(SmallCNN(), steps) for steps in (1, 10)},
    **{f"SmallCNN, K = 40, batch {batch}": pixel(SmallCNN(), 40, batch=batch) for batch in (512, 2048)},
    **{f"WRN-10-{width}, K = 10": pixel(WideResNet(depth=10, width=width), 10) for width in (1, 4)},
    **CASES,
}
Part = Literal["speed", "growth", "four_small_runs", "start_up"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

    authors: Path | None = None
    """folder with the authors' SRTD.py"""
    out: Path = Path("results/training-speed.json")
    """file for the numbers"""
    only: tuple[Part, ...] = ("speed", "four_small_runs", "start_up")
    """parts to measure; others that the file holds are kept"""
    cases: tuple[str, ...] = ()
    """words in the names of cases; all if none are given; a part holds those of its latest run alone"""
    seconds: float = 2.0
    """of steps for each figure"""
    start: str | None = None
    """only start a run of that case, and print the seconds of importing PyTorch's compiler, and of a run from then on
    to its first step and to its first replayed one"""


@dataclass(kw_only=True)
class Row:
    """The figures of a case."""

    case: str
    images_per_second: dict[str, float] = field(default_factory=dict[str, float])
    ratio: dict[str, float] = field(default_factory=dict[str, float])
    gigaflop_per_image: float = 0.0
    share_of_matmul_peak: float = 0.0
    memory_gib: dict[str, float] = field(default_factory=dict[str, float])
    seconds_to_first_step: float = 0.0
    seconds_to_first_replay: float = 0.0
    kernels: int = 0
    milliseconds_in_products: float = 0.0
    milliseconds_in_other_kernels: float = 0.0
    milliseconds_a_step: float = 0.0


def images(case: Case, count: int = 6400) -> Images:
    """Images of noise: speed does not depend on what they show."""
    rng = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (max(count, 5 * case.batch), *case.shape), dtype=torch.uint8, generator=rng)
    labels = torch.arange(len(pictures)) % 10
    first = len(pictures) // 5
    return Images(
        labeled=pictures[:first],
        labels=labels[:first],
        unlabeled=pictures[first:],
        validation=pictures[:0],
        validation_labels=labels[:0],
    )


def trainer(case: Case, seed: int = 0) -> Trainer:
    """A run of ours on its usual engine."""
    torch.manual_seed(seed)
    return Trainer(
        f=case.model(case.shape, 10),
        images=images(case),
        recipe=Recipe(
            data=Data(crop=case.crop, flip=case.crop > 0),
            objective=case.objective,
            steps=1_000_000,
            batch=case.batch,
            optimizer=SGD(rate=Piecewise(rate=RATE, milestones=())),
            log_every=1_000_000,
            seed=seed,
        ),
        device=GPU,
    )


def peers(case: Case, authors: Path | None) -> dict[str, Callable[[], Callable[[], None]]]:
    """Ways of others to take the same step."""
    given = images(case)
    count = case.batch // 5
    x, u = (part.to(GPU).float() / 255 for part in (given.labeled[:count], given.unlabeled[: case.batch - count]))
    y = given.labels[:count].to(GPU)

    def plain() -> Callable[[], None]:
        f, sgd = fresh(case)
        rng = torch.Generator(GPU).manual_seed(0)

        def step() -> None:
            sgd.zero_grad()
            case.objective(f, Batch(x, y, u), rng).total.backward()
            sgd.step()

        return step

    def theirs() -> Callable[[], None]:
        sys.path.insert(0, str(authors))
        loss = import_module("SRTD").SRTD_loss
        solver: Any = case.objective.solver
        f, sgd = fresh(case)

        def step() -> None:
            settings = {"step_size": solver.step_size, "epsilon": solver.around.eps, "perturb_steps": solver.steps}
            loss(f, x, y, u, sgd, True, **settings).backward()
            sgd.step()

        return step

    found = {"the same algorithm, run plainly": plain}
    if authors is not None and isinstance(case.objective.solver, PGD):
        found["the authors' loss"] = theirs
    return found


def fresh(case: Case) -> tuple[nn.Module, torch.optim.SGD]:
    """A network in training mode and its optimizer."""
    f = case.model(case.shape, 10).to(GPU).train()
    return f, torch.optim.SGD(f.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)


def pace(step: Callable[[], object], seconds: float) -> float:
    """Seconds a step: the median of five blocks."""
    step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    count = max(1, round(seconds / 5 / (time.perf_counter() - started)))
    blocks: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        blocks.append((time.perf_counter() - started) / count)
    return median(blocks)


def matmul_peak() -> float:
    """TFLOP/s of a large product of random bfloat16 matrices: the best of several short bursts."""
    a, b = (torch.randn(8192, 8192, device=GPU, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    for _ in range(5):
        time.sleep(0.2)  # A card that is kept busy lowers its clock.
        best = min(best, pace(lambda: a @ b, 0.05))
    return 2 * 8192**3 / best / 1e12


def arithmetic(case: Case) -> float:
    """Operations of a step for each image of the batch; an outer pass is three forward passes' worth."""
    f, x = case.model(case.shape, 10).eval(), torch.rand(2, *case.shape)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        f(x)
    labeled = case.batch // 5
    return counter.get_total_flops() / 2 * (case.passes + 3 * (case.batch + labeled) / case.batch)


def started(case: Case) -> tuple[Trainer, float, float]:
    """A run, with the seconds to its first step and to its first replayed one."""
    begun = time.perf_counter()
    run = trainer(case)
    run.advance()
    torch.cuda.synchronize()
    first = time.perf_counter() - begun
    kinds = {run.batches.counts(step) for step in range(run.batches.steps_per_epoch)}
    while run.outer.recorded.enabled and len(run.outer.recorded.graphs) < len(kinds):
        run.advance()
    torch.cuda.synchronize()
    return run, first, time.perf_counter() - begun


def measured(name: str, case: Case, options: Options, peak: float) -> Row:
    """All figures of a case."""
    row = Row(case=name, gigaflop_per_image=arithmetic(case) / 1e9)
    torch.cuda.reset_peak_memory_stats()
    run, row.seconds_to_first_step, row.seconds_to_first_replay = started(case)
    if run.remarks:
        raise RuntimeError(f"{name}: {run.remarks}")
    seconds = pace(run.advance, options.seconds)
    row.memory_gib["ours"] = torch.cuda.max_memory_allocated() / 2**30
    row.images_per_second["ours"] = case.batch / seconds
    row.milliseconds_a_step = 1000 * seconds
    row.share_of_matmul_peak = row.gigaflop_per_image * case.batch / seconds / 1e3 / peak
    row.kernels, row.milliseconds_in_products, row.milliseconds_in_other_kernels = kernels(run.advance)
    del run
    torch.backends.cudnn.benchmark = True
    for peer, start in peers(case, options.authors).items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        its = pace(start(), options.seconds)
        row.memory_gib[peer] = torch.cuda.max_memory_allocated() / 2**30
        row.images_per_second[peer] = case.batch / its
        row.ratio[peer] = its / seconds
    torch.backends.cudnn.benchmark = False
    return row


def table(cases: dict[str, Case], options: Options, keep: Callable[[dict[str, Any]], None]) -> None:
    """Measure the cases that are asked for, and keep the rows after each: a run that is stopped loses none."""
    figures: dict[str, Any] = {"matmul_peak_tflops": matmul_peak(), "rows": []}
    for name, case in cases.items():
        if options.cases and not any(word in name for word in options.cases):
            continue
        row = measured(name, case, options, figures["matmul_peak_tflops"])
        figures["rows"].append(asdict(row))
        speeds = ", ".join(f"{who} {speed:,.0f}" for who, speed in row.images_per_second.items())
        ratios = ", ".join(f"{ratio:.1f}" for ratio in row.ratio.values())
        print(f"{name}: {speeds} images/s; ratios {ratios}; {row.share_of_matmul_peak:.0%} of peak", flush=True)
        keep(figures)


def kernels(step: Callable[[], object]) -> tuple[int, float, float]:
    """How many kernels a step launches, and milliseconds in convolutions and matrix products, and in all others."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    spent = {True: 0.0, False: 0.0}
    events = seen.key_averages()
    for event in events:
        spent[any(word in event.key.lower() for word in PRODUCTS)] += event.device_time_total / 1000
    return sum(event.count for event in events), spent[True], spent[False]


def four_together(seconds: float) -> dict[str, float]:
    """Four runs side by side against one, in seconds for the same number of steps each."""
    case = CASES["SmallCNN, K = 40"]
    found: dict[str, float] = {}
    weights: dict[str, Tensor] = {}
    for name, count in (("one", 1), ("four", 4)):
        runs = [trainer(case, seed) for seed in range(count)]
        for run in runs:
            for _ in range(12):
                run.advance()
            run.recipe = replace(run.recipe, steps=12 + round(seconds / 0.008))
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run_together([run.steps_to_take() for run in runs], GPU)
        found[name] = time.perf_counter() - begun
        weights[name] = torch.cat([weight.detach().flatten() for weight in runs[0].f.parameters()])
    same = float(torch.equal(weights["one"], weights["four"]))
    return {**found, "ratio": found["four"] / found["one"], "same_weights_as_alone": same}


def start_up(name: str) -> dict[str, float]:
    """Seconds to the first step and the first replayed one, in a fresh process, with nothing compiled and again."""
    found: dict[str, float] = {}
    with TemporaryDirectory() as cache:
        for state in ("cold", "warm"):
            command = [sys.executable, __file__, "--start", name]
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
            answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            imports, first, replay = json.loads(answer.stdout.splitlines()[-1])
            found |= {f"{state}, imports of the compiler": imports}
            found |= {f"{state}, first step": imports + first, f"{state}, first replay": imports + replay}
    return {**found, "warm share of cold": found["warm, first step"] / found["cold, first step"]}


def markdown(result: dict[str, Any]) -> str:
    """The tables of docs/performance.md: speeds, and what a step consists of."""
    plainly, authors = "the same algorithm, run plainly", "the authors' loss"

    def shown(values: dict[str, float], who: str, form: str) -> str:
        return format(values[who], form) if who in values else "–"

    speeds = [
        "| network and search | ours | plainly | authors | over plainly | over authors | share of peak | GiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    insides = [
        "| network and search | ms a step | ms in products | their share of peak | ms in other kernels | kernels |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["speed"]["rows"]:
        pace, ratio, case = row["images_per_second"], row["ratio"], row["case"]
        paces = " | ".join(shown(pace, who, ",.0f") for who in ("ours", plainly, authors))
        ratios = " | ".join(shown(ratio, who, ".1f") for who in (plainly, authors))
        share, step, products = (
            row[key] for key in ("share_of_matmul_peak", "milliseconds_a_step", "milliseconds_in_products")
        )
        speeds.append(f"| {case} | {paces} | {ratios} | {share:.0%} | {row['memory_gib']['ours']:.1f} |")
        others = f"{row['milliseconds_in_other_kernels']:.1f} | {row['kernels']:,}"
        insides.append(f"| {case} | {step:.1f} | {products:.1f} | {share * step / products:.0%} | {others} |")
    return "\n".join([*speeds, "", *insides])


def growth_markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md on how cost grows."""
    lines = [
        "| network and search | ms a step | ours, images a second | plainly | share of peak | GiB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["growth"]["rows"]:
        pace = row["images_per_second"]
        plainly = pace["the same algorithm, run plainly"]
        lines.append(
            f"| {row['case']} | {row['milliseconds_a_step']:.1f} | {pace['ours']:,.0f} | {plainly:,.0f} "
            f"| {row['share_of_matmul_peak']:.0%} | {row['memory_gib']['ours']:.1f} |"
        )
    return "\n".join(lines)


def main(options: Options) -> None:
    """Measure, print a table and write JSON."""
    require_gpu()
    if options.start is not None:
        begun = time.perf_counter()
        import_module("torch._inductor.compile_fx")  # A run imports it by itself; here it is timed.
        imports = time.perf_counter() - begun
        run, first, replay = started(GROWTH[options.start])
        if run.remarks:
            raise RuntimeError(f"{options.start}: {run.remarks}")
        print(json.dumps([imports, first, replay]))
        return
    result: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}

    def keep(part: Part, figures: dict[str, Any]) -> None:
        result[part] = {"provenance": provenance(GPU), **figures}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    if "speed" in options.only:
        table(CASES, options, lambda figures: keep("speed", figures))
    if "growth" in options.only:
        table(GROWTH, options, lambda figures: keep("growth", figures))
    if "four_small_runs" in options.only:
        keep("four_small_runs", four_together(options.seconds))
        print("four together:", result["four_small_runs"], flush=True)
    if "start_up" in options.only:
        keep("start_up", start_up("ResNet-18, K = 10"))
        print("start-up:", result["start_up"], flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options))
