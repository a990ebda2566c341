"""docs/results.md, generated from the evidence in results/: `unperturbed reproduce --write docs/results.md`."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..files import write_whole
from ..printing import printable
from ..recipe import Recipe, plain
from ..runs import flat
from .account import experiment_text
from .asked import as_asked, is_whole
from .begun import with_begun
from .catalog import experiments
from .coherent import require_coherent
from .definition import Experiment
from .evidence import Evidence, loads, read_all, write
from .gathered import of_run
from .headline import headline
from .planning import PlannedRun, matches, planned
from .scales import NETWORKS, Scale
from .united import united
from .verdicts import at_a_glance

FOLDER = Path("results") / "reproduce"
ORIGIN = "`results/reproduce` by `unperturbed reproduce --write docs/results.md`; a test\ncompares."
"""in the introduction of the page that lies in docs"""
FIDELITY = "[fidelity.md](fidelity.md)"
"""the link of that page"""
INTRODUCTION = """# Results

The paper's tables and figures with our numbers beside them, its statements with their verdicts, and what differs.
Generated from the JSON files in `results/reproduce` by `unperturbed reproduce --write docs/results.md`; a test
compares.
"""
GLANCE = """
How many statements hold: those of the paper's text, those that hold our numbers against the paper's and, under
better, our own goals. Where a statement was measured in several ways, the first that decides it counts: the paper's
schedule before a shorter one, the paper's network before another.
"""
READING = """
**Words.** C(x) is the class that a network predicts for an image x, and D the probability of the right class less
the largest of the others. Lambda is the weight of the robust term. RT is SRT without unlabeled images; SRT+ is
trained against noise with rotations and shifts on top, SRT++ goes beyond the paper. `unperturbed list defenses` says
what every name stands for, and `unperturbed list attacks` what every attack does.

**Numbers.** Accuracies are in percent: the paper's / ours; `–` where there is no number, in the paper or yet. ± is
the standard error over seeds where several were run. Under an attack an image counts as right, or stands, if its
answer is right both before the attack and after it. One that is wrong from the start is attacked too, away from its
wrong answer, as the robust risk asks for, and stays wrong even where that brings it to its label. A number in
brackets says on how many of the first test images an attack was made, where it was not all of them. These may be
easier or harder than the rest, so such a number is compared with others on these images alone, and decides a goal
only where it does so whatever becomes of the rest.

**Verdicts.** A statement that compares our numbers is decided where differences are more than two standard errors,
of the same test images and of seeds, away from what it claims; else it is not decided, or not yet measured. Where a
single seed was run, which the line below a table's statements tells, the error is that of the images alone: how
differently another seed would train is not in it, and the verdict is one on these runs. So do not rest much on
differences of a few tenths of a point: Standard with ResNet-18 on CIFAR-10, trained twice by the same recipe and
seed while 0.2.0 was made, came to 86.67 and 86.00 clean (`results/standard-once-more.json`), 0.67 ± 0.29 apart.
SRT++ with WRN-34-10 came to 56.41 and 56.78 under PGD (`results/srt-plusplus-once-more.json`), 0.37 ± 0.26 apart.
Where a statement holds ours against the paper's, a goal or a time, the mean over seeds decides alone. A network
that answers nine tenths of the clean test images or more by one class has collapsed, and is called so: to be above
it decides nothing. Where two are said to be alike, points say little if nearly all images are right: at most 1.2
times as many may be wrong, too.

**Weights** are the last ones of a run, which the authors' code evaluates, unless a row says otherwise. Where
weights are selected, that is done on held-out labeled images, never on test images, and the last ones are shown
beside the best where both were attacked. Settings of SRT++ that were chosen by a look at test images stand in
[defenses.md](defenses.md).

**Settings.** Unless a row or a remark says otherwise: 10,000 labels, class-balanced and seeded, the rest unlabeled.
PGD and C&W keep their best iterate. On a GPU attacks search in bfloat16, AutoAttack and those for the smallest
change (DDN, JSMA, Pointwise) in TF32, and what they find is judged in float32. Where we differ from the paper and
its authors' code stands in [fidelity.md](fidelity.md).

**Schedules.** Runs are by the paper's schedule, to the step. A shorter one, a cyclic rate and as many images for
every defense of a scenario, stands here only where it shows something that the paper's does not yet. In it a defense
on labels alone sees each label five times as often as SRT does, whose batches are mostly unlabeled (six times on
MNIST). So it is in the paper's spatial schedule, but not in its pixel-wise one. In the shorter schedule lambda of
self-labeled terms grows over the first four fifths of a run.

**Evidence.** Each file holds a run's recipe, its log, its seconds and device, and what every attack made of every
test image: labels and answers, under `samples`, are class numbers, 16 bits each with the low byte first, by zlib
and in base64. The runs and their expected minutes: `unperturbed reproduce all --plan`.

**A fault, mended since.** Gradients of compiled steps behind a BatchNorm were off, the more its running mean still
moved. Trained before were, on CIFAR-10, the short runs whose evidence names no version, the shortest trainings of
fast SRT but for the longest of them and, at the paper's schedule, spatially, Standard, Worst-of-k, KLR, RT and SRT
at lambda 0.2, and SRT by the authors' code; RT at 0.3 and SRT++ were but for their last steps. Accuracies of such
runs beside those of a plain loop showed no difference ([performance.md](performance.md), what speed costs in
accuracy). From version 0.2.0 on, evidence names the version that trained a run.
"""


def page(evidence: Sequence[Evidence]) -> str:
    """The whole page; smoke runs are no results."""
    real = results_among(evidence)
    every = list(experiments().values())
    parts = [
        INTRODUCTION.strip(),
        "## Headline",
        headline(real),
        "## At a glance",
        GLANCE.strip(),
        at_a_glance(every, real),
        "## How to read this page",
        READING.strip(),
        *(experiment_text(each, real) for each in every),
    ]
    return "\n\n".join(parts) + "\n"


def results_among(evidence: Sequence[Evidence]) -> list[Evidence]:
    """All but the smoke runs."""
    return [each for each in evidence if each.scale != "smoke"]


def write_page(folder: Path, path: Path) -> int:
    """Write the page from the evidence in that folder; how many runs it rests on."""
    evidence = read_all(folder)
    real = results_among(evidence)
    if not real:
        found = "no evidence" if not evidence else "smoke runs alone, which are no results"
        raise ValueError(
            f"{folder} holds {found}: name the folder of the evidence by --results, or put some there with --collect"
        )
    require_present(real, folder)
    text = page(real)
    if folder.resolve() != FOLDER.resolve():
        text = text.replace(ORIGIN, f"`{folder}` by `unperturbed reproduce --write {path} --results {folder}`.", 1)
    write_whole(path, text.replace(FIDELITY, link_from(path), 1).encode())
    return len(real)


def require_present(evidence: Sequence[Evidence], folder: Path) -> None:
    """Refuse evidence by other recipes or attacks than experiments have now: it would be shown as if by these."""
    every, seeds = list(experiments().values()), sorted({each.seed for each in evidence})
    scales: set[Scale] = {each.scale for each in evidence}
    runs = {
        (scale, f"{run.name}.json"): run
        for scale in scales
        for network in NETWORKS
        for run in planned(every, scale, network, seeds)
    }
    again = "make it again and collect it, or move it elsewhere"
    for each in evidence:
        file, run = printable(folder / each.scale / each.file_name), runs.get((each.scale, each.file_name))
        if run is None:
            raise ValueError(f"{file} is evidence of a run that no experiment has: move it elsewhere")
        if each.recipe != run.recipe:
            raise ValueError(f"{file} is evidence by another recipe ({unlike(each.recipe, run.recipe)}): {again}")
        asked = as_asked(each, run.trial)
        if asked is None or not is_whole(asked, each):
            raise ValueError(f"{file} holds attacks by other settings, images or weights than are asked for: {again}")
    require_coherent(evidence, folder)


def unlike(there: Recipe, now: Recipe) -> str:
    """The first field in which two recipes differ, whatever the checksum of their images, in words."""
    old, new = (flat(plain(replace(each, data=replace(each.data, sha256=None)))) for each in (there, now))
    key = next(key for key in [*new, *old] if old.get(key) != new.get(key))
    return f"{key} is {old.get(key)} there and {new.get(key)} now"


def link_from(path: Path) -> str:
    """The link to docs/fidelity.md of a page in the same repository; of one elsewhere the words alone."""
    place = path.resolve()
    for folder in place.parents:
        if (target := folder / "docs" / "fidelity.md").is_file():
            return f"[fidelity.md]({Path(os.path.relpath(target, place.parent)).as_posix()})"
    return "docs/fidelity.md"


def found_in(runs: Sequence[PlannedRun], out: Path) -> list[Evidence]:
    """The evidence of those runs that are trained and attacked."""
    made = (as_asked(evidence, run.trial) for run, evidence in lying_in(runs, out))
    return [evidence for evidence in made if evidence is not None]


def lying_in(runs: Sequence[PlannedRun], out: Path) -> Iterator[tuple[PlannedRun, Evidence]]:
    """Those runs that are trained, with whatever attacks were made on them."""
    for run in runs:
        evidence = of_run(out / run.name, run.trial.name, run.seed, run.scale, run.network)
        if evidence is not None:
            yield run, with_begun(evidence, out / run.name, run.trial)


def present(chosen: Sequence[Experiment], scale: Scale, out: Path, only: str = "*") -> list[PlannedRun]:
    """All runs of these experiments that lie there, whatever their seeds and networks, and each once."""
    names = {path.parent.name for path in out.glob("*/recipe.json")}
    seeds = sorted({int(found[1]) for name in names if (found := re.search(r"-seed-(\d+)$", name))})
    runs = [run for network in NETWORKS for run in planned(chosen, scale, network, seeds)]
    return list({run.name: run for run in runs if run.name in names and matches(run, only)}.values())


def collect(runs: Sequence[PlannedRun], out: Path, folder: Path) -> tuple[list[Path], list[str]]:
    """Write the evidence of finished runs to a folder: the paths, and the runs of which some attacks do not count.

    What evidence there holds of the same weights is kept. Where it holds more of others it is not replaced: that is
    refused before anything is written.
    """
    made = [(run, evidence, as_asked(evidence, run.trial)) for run, evidence in lying_in(runs, out)]
    written = [with_what_is_there(run, asked, folder) for run, _, asked in made if asked is not None]
    otherwise = [run.name for run, found, asked in made if asked is None or not is_whole(asked, found)]
    return [write(asked, folder) for asked in written], otherwise


def with_what_is_there(run: PlannedRun, fresh: Evidence, folder: Path) -> Evidence:
    """The evidence with what a folder holds of the same weights.

    It is not to replace evidence by the same recipe that holds attacks, images, minutes or a log of its own alone.
    """
    file = folder / fresh.scale / fresh.file_name
    try:
        there = loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # None, or one that cannot be read, which is to be collected again.
        return fresh
    before = as_asked(there, run.trial)
    if there.recipe != run.recipe or before is None:
        return fresh
    fresh = united(fresh, before)
    now = held(fresh)
    lost = sorted(
        {name for (weights, name, part), count in held(before).items() if now.get((weights, name, part), 0) < count}
    )
    if lost:
        raise ValueError(
            f"{printable(file)} holds more of that run ({', '.join(lost)}): make the same here first, move it "
            "elsewhere, or leave the run out by --only"
        )
    return fresh


def held(evidence: Evidence) -> dict[tuple[str, str, float], int]:
    """What evidence holds, on which weights and at which fraction, and of how many images; of a log, the columns.

    Minutes are held by runs that had their device for themselves.
    """
    swept = {} if evidence.sweep is None else evidence.sweep.reports
    fewest_first = sorted(evidence.on_fewer, key=lambda few: len(few.labels))
    places = [("kept", 1.0, report) for report in (*fewest_first, evidence.report)]
    places += [("kept", fraction, report) for fraction, report in swept.items() if fraction != 1]
    places += [] if evidence.other is None else [("other", 1.0, evidence.other)]
    attacks = {
        (weights, result.name, fraction): len(report.labels)
        for weights, fraction, report in places
        for result in report.attacks
    }
    surfaces = {("kept", name, 1.0): len(values) for name, values in evidence.surfaces.items()}
    alone = int(evidence.together == evidence.teacher_together == 1)
    return attacks | surfaces | {("kept", "its log", 1.0): len(evidence.log), ("kept", "its minutes", 1.0): alone}
