"""The examination: all checks in the order of their cost, as far as the time allows."""

import time
from collections import abc
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..answers import frozen
from ..engine import Engine
from ..evaluation import AttackWatcher
from ..inputs import as_float, check_images, check_labels, check_model, output_classes, require_tensor
from ..neighborhoods import L2, Linf, Neighborhood, Spatial, TurnThenShift, require_around
from ..printing import counted
from ..runtime import derived_seed, pick_device, provenance, random_numbers_kept
from ..solvers import require_positive
from .attacking import ATTACK_CHECKS
from .binarization import BINARIZATION
from .card import Card, Finding, noted
from .check import Check, Outcome
from .outputs import MODEL_CHECKS
from .reported import REPORTED, require_verdicts
from .searching import COARSE, SEARCH_CHECKS
from .subject import Connected, Speed, Subject, spread

CHECKS = (*MODEL_CHECKS, *ATTACK_CHECKS, *SEARCH_CHECKS, BINARIZATION, REPORTED)
USUAL = Linf(eps=8 / 255)
MOST_IMAGES = 500
SHARE = 0.5
"""of the time that is left, for a single check"""


def trust(
    f: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    around: Neighborhood = USUAL,
    spatial: Spatial | TurnThenShift | None = None,
    seconds: float = 600.0,
    seed: int = 0,
    device: str = "auto",
    watcher: AttackWatcher | None = None,
    sibling: nn.Module | None = None,
    stood: Tensor | None = None,
) -> Card:
    """Look for reasons not to believe an evaluation of f: in f itself, and in the attacks against it.

    At most 500 test images, uint8 or float in [0, 1], evenly spaced over those given, are examined in the pixel-wise
    neighborhood `around` and, where one is given, in a spatial one. A sibling is another model of the same task.
    `stood` says of each image whether it stands under your own attacks in `around`, as `report.survivors("pgd")`.
    The same seed gives the same card, as long as the seconds suffice for the same checks on the same images.
    """
    started = time.perf_counter()
    require_positive("seconds", seconds)
    if not isinstance(around, Linf | L2) or around.eps == 0:
        raise ValueError(
            f"around must be Linf or L2 with a positive eps, got {around}: give warps as spatial, and search what "
            "else has a few parameters, as blur, by attacks.grid"
        )
    if spatial is not None:
        require_around("spatial", spatial, "Spatial(rotation=30.0)")
    check_model(f)
    require_tensor(images, "images")
    if stood is not None:
        require_verdicts(stood, len(images))
    where = pick_device(device)
    rows = spread(min(MOST_IMAGES, len(images)), len(images))
    x = as_float(images[rows]).to(where)
    if spatial is not None and spatial.identity(x[:1]).shape[1:] != (len(COARSE),):
        raise ValueError(
            f"spatial must have a rotation and two shifts as its parameters, as Spatial(rotation=30.0), got {spatial}"
        )
    f.to(where)
    # Points are searched in float32: judged in TF32, some of those that fool f would be taken for right.
    with frozen(f), restored(f), random_numbers_kept(where), Engine().arithmetic():
        torch.manual_seed(derived_seed(seed, "clean"))
        classes = check_inputs(f, x, images, labels)
        subject = Subject(
            f=Connected(f),
            x=x,
            y=labels[rows].to(where).long(),
            classes=classes,
            around=around,
            spatial=spatial,
            sibling=None if sibling is None else sibling.to(where),
            seed=seed,
            watcher=watcher,
            stood=None if stood is None else stood[rows].to(where),
        )
        findings = tuple(examine(subject, started, seconds))
    pixels, warps = noted(around, spatial)
    return Card(
        findings=findings,
        seed=seed,
        seconds=time.perf_counter() - started,
        images=len(x),
        provenance={
            **provenance(where),
            "around": str(around),
            "spatial": str(spatial),
            "examined": f"{len(x)} of {len(images)} images, evenly spaced",
        },
        around=pixels,
        spatial=warps,
    )


def examine(subject: Subject, started: float, seconds: float) -> abc.Iterator[Finding]:
    """What each check finds; those for which the time is too short are skipped."""
    speed = subject.speed()
    can_attack = is_ready(subject.x)
    if can_attack:
        subject.panel = affordable_panel(subject, speed, started, seconds)
    for check in CHECKS:
        verdict, figure = (
            conduct(check, subject, speed, started + seconds - time.perf_counter())
            if can_attack or not check.attacks
            else ("skipped", "images outside [0, 1] cannot be attacked")
        )
        yield Finding(check=check.name, verdict=verdict, figure=figure, why=check.why, remedy=check.remedy)


def affordable_panel(subject: Subject, speed: Speed, started: float, seconds: float) -> Tensor:
    """The rows that the first attack, and all after it, can work on; refuses a time too short for any."""
    first, spent = ATTACK_CHECKS[0], time.perf_counter() - started
    if len(subject.panel) < first.fewest:
        return subject.panel
    count = affordable(first, len(subject.panel), seconds - spent, speed)
    if not count:
        needed = spent + first.fewest * speed.seconds(first.queries) / SHARE
        raise ValueError(
            f"{seconds:g} seconds are too few to examine this model: give at least {needed:.2g}, "
            f"which one attack on {first.fewest} images needs"
        )
    return subject.panel[spread(count, len(subject.panel))]


def conduct(check: Check, subject: Subject, speed: Speed, left: float) -> Outcome:
    """The outcome of a check on as many images as half of the time that is left allows."""
    pool = subject.panel if check.attacks else torch.arange(len(subject.x), device=subject.device)
    if len(pool) < check.fewest:
        return (
            "skipped",
            f"{counted(len(pool), 'correctly classified image')}, and at least {check.fewest} are needed",
        )
    count = affordable(check, len(pool), left, speed)
    if not count:
        needed = speed.seconds(check.queries) * check.fewest
        return (
            "skipped",
            f"{check.fewest} images would take about {counted(round(needed), 'second')}, and a check gets half of "
            f"the {max(0, left):.0f} that are left",
        )
    torch.manual_seed(derived_seed(subject.seed, check.name))
    try:
        return check.measure(subject, pool[spread(count, len(pool))])
    except Exception as error:  # A stranger's code may object in all ways there are.
        return "skipped", f"it failed: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def affordable(check: Check, available: int, left: float, speed: Speed) -> int:
    """How many images a check gets: as many as there are, halved until the time suffices; 0 where it never does."""
    count = min(check.most, available)
    while count * speed.seconds(check.queries) > max(0.0, SHARE * left):  # What asks nothing needs no time.
        if count <= check.fewest:
            return 0
        count = max(check.fewest, count // 2)
    return count


def check_inputs(f: nn.Module, x: Tensor, images: Tensor, labels: Tensor) -> int:
    """The number of classes; refuses what no check could work on."""
    if len(images) == 0:
        raise ValueError("no image was given, expected at least one to examine")
    if x.ndim != 4 or not x.isfinite().all():
        check_images(x)

    def doubled(x: Tensor) -> Tensor:
        # Probabilities are the business of a check, so they are to pass here; their doubles do.
        answer = f(x)
        return 2 * answer if isinstance(answer, Tensor) and answer.is_floating_point() else answer

    classes = output_classes(doubled, x[:2])
    check_labels(labels, len(images), classes)
    return classes


def is_ready(x: Tensor) -> bool:
    """Whether these are images that an attack can work on."""
    try:
        check_images(x)
    except ValueError:
        return False
    return True


@contextmanager
def restored(f: nn.Module) -> abc.Generator[None]:
    """A forward pass that changes buffers, as BatchNorm in training mode does, leaves no trace."""
    modules = dict(f.named_modules())
    before = [(*name.rpartition(".")[::2], buffer, buffer.clone()) for name, buffer in f.named_buffers()]
    try:
        yield
    finally:
        for owner, name, buffer, value in before:
            setattr(modules[owner], name, buffer.copy_(value))
