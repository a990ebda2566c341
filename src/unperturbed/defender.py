"""A classifier under attack: the network that attacks see in its place, and the checks of what they find on it."""

import warnings
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from .answers import frozen
from .attacks import Attack, AutoAttack, MinimumNorm
from .engine import Accelerated, Engine, Precision, engine_for, lay_out
from .inputs import require_tensor
from .losses import margin
from .risks import decided

NUMBERS_ON_A_GPU = 8192 * 3 * 32 * 32
"""of all points of a search that a GPU tries at once"""
SMALLEST = 8
"""images up to which questions are filled up that are smaller still: in doubt is often a handful of a batch, and in
float32 each image that fills them up costs a large network ten times what it costs the search of all others"""
PRECISIONS: tuple[Literal["bfloat16", "tf32", "float32"], ...] = ("bfloat16", "tf32", "float32")
"""from the fastest to the most exact"""
DOUBT = 4.0
"""times that rounding moved a logit by which an image has to stand; from 2 on, it covers all that rounding turned"""


def precision_for(attack: Attack, precision: Precision, device: torch.device) -> Precision:
    """Where nothing else is asked for, TF32 for attacks that stop where f gives way, on a GPU.

    Close to that boundary bfloat16 takes one side for the other; it is for attacks that go as far as they may.
    """
    stops = isinstance(attack, MinimumNorm | AutoAttack)
    return "tf32" if precision == "auto" and device.type == "cuda" and stops else precision


def defended(
    f: nn.Module, precision: Precision, images: Tensor, batch: int, *, beside: "Defender | None" = None
) -> "Defender":
    """A classifier and the networks that attacks see in its place, for images like these.

    Networks that a defender of f beside it has already are taken from there.
    """
    known = {} if beside is None else {rung.engine: rung for rung in beside.rungs}
    wanted = engines(images.device, precision)
    # What all images are searched on is made last: it leaves f in memory as it likes it.
    for engine in reversed(wanted):
        if engine not in known:
            known[engine] = Rung(f if engine.plain else on_engine(f, engine, images, batch), engine)
    networks = [rung.network for rung in known.values()]
    if images.is_cuda and all(isinstance(network, Accelerated) and network.copies for network in networks):
        # Where copies are searched, f only judges, in float32, which on a GPU likes channels first.
        lay_out(f, torch.contiguous_format)
    return Defender(f=f, rungs=tuple(known[engine] for engine in wanted), device=images.device)


def engines(device: torch.device, precision: Precision) -> tuple[Engine, ...]:
    """How images are searched: first all of them, then with each more exact engine those that are in doubt.

    On a GPU questions are recorded with every one. Those in doubt are few, and the longest attacks ask about them ten
    thousand times: hundreds of launches for each question would take longer than the attack on all others.
    """
    first = searching_engine(device, precision)
    if first.plain:
        return (first,)
    finer: tuple[Engine, ...] = tuple(
        replace(first, precision=each) for each in PRECISIONS[PRECISIONS.index(first.precision) + 1 :]
    )
    return (first, *finer) if finer else (first, Engine())


def searching_engine(device: torch.device, precision: Precision) -> Engine:
    """How attacks compute: as it pays, with float32 asked for by name just as the network is written.

    Nothing is compiled: that takes longer than what it saves in most evaluations, once queries are recorded.
    """
    return Engine() if precision == "float32" else replace(engine_for(device, precision, warn), compiled=False)


def on_engine(f: nn.Module, engine: Engine, images: Tensor, batch: int) -> nn.Module:
    """The network that attacks see: they ask for whole batches, for the rest of one, or as many points as fit."""
    halves = {-(-batch // 2**power) for power in range((batch // SMALLEST).bit_length())}
    sizes = (*{SMALLEST, *halves, room_for(images)},) if engine.recorded else ()
    return Accelerated(f, engine, images, say=warn, filled_up_to=sizes)


def room_for(images: Tensor) -> int:
    """How many images of this shape fill a GPU."""
    return max(1, NUMBERS_ON_A_GPU // images[0].numel())


def roomy(part: Any, images: Tensor) -> Any:
    """The same attack, trying as many points of a search at once as a GPU is filled by, if the images are on one."""
    if not images.is_cuda or not is_dataclass(part) or isinstance(part, type):
        return part
    changes: dict[str, Any] = {}
    for slot in fields(part):
        value = getattr(part, slot.name)
        if slot.name == "at_once":
            changes[slot.name] = max(value, room_for(images))
        elif slot.name == "solver":
            changes[slot.name] = roomy(value, images)
        elif slot.name in ("stages", "solvers"):
            changes[slot.name] = tuple(roomy(one, images) for one in value)
    return replace(part, **changes)


def warn(sentence: str) -> None:
    """Say what differs from what was asked for."""
    warnings.warn(sentence, stacklevel=2)


@torch.no_grad()
def answers(f: nn.Module, points: Tensor) -> Tensor:
    """What f says of what an attack returned, which may hold anything."""
    return f(points.nan_to_num())


def predicted_classes(f: nn.Module, points: Tensor) -> Tensor:
    """The classes that f takes it for."""
    return decided(answers(f, points))


def in_doubt(exact: Tensor, rounded: Tensor, y: Tensor) -> Tensor:
    """Which images stand by so little that rounding while they were searched may be all that saved them.

    Those are among them that fool the network with rounded logits, and not the one with exact ones.
    """
    surely = -margin(exact, y) > DOUBT * (exact - rounded).abs().amax(1)  # Never where the rounded ones are NaN.
    return (decided(exact) == y) & ~surely


@dataclass(frozen=True, slots=True)
class Rung:
    """A network that attacks see in the place of f, equal to it up to the rounding of an engine."""

    network: nn.Module
    engine: Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Defender:
    """A classifier, and the networks that attacks see in its place."""

    f: nn.Module
    rungs: tuple[Rung, ...]
    """what all images are searched on, and then those in doubt, each more exact than the one before"""
    device: torch.device

    @property
    def engine(self) -> Engine:
        """What all images are searched with."""
        return self.rungs[0].engine

    def attacked(
        self, attack: Attack, x: Tensor, y: Tensor, rng: Generator, again: Generator
    ) -> tuple[Tensor, Tensor]:
        """What the attack found, and what f says of it; images that stand by a hair are searched more exactly."""
        points = self.searching(self.rungs[0], attack, x, y, rng)
        logits = answers(self.f, points.to(x))
        found, predicted, rows = points.clone(), decided(logits), torch.arange(len(x), device=x.device)
        for rung, finer in pairwise(self.rungs):
            with rung.engine.arithmetic():
                rounded = answers(rung.network, points.to(x))
            rows = rows[in_doubt(logits, rounded, y[rows])]
            if len(rows) == 0:
                break
            points = self.searching(finer, attack, x[rows], y[rows], again)
            logits = answers(self.f, points.to(x))
            said = decided(logits)
            fooling = said != y[rows]
            found[rows[fooling]], predicted[rows[fooling]] = points[fooling].to(found), said[fooling]
        return found, predicted

    def searching(self, rung: Rung, attack: Attack, x: Tensor, y: Tensor, rng: Generator) -> Tensor:
        """The attack, which gets copies and a mode of its own: it must not move what it is measured against."""
        with frozen(rung.network), rung.engine.arithmetic():
            found = roomy(attack, x)(rung.network, x.clone(), y.clone(), rng)
        require_tensor(found, "what an attack returns")
        if found.shape != x.shape:
            raise ValueError(f"an attack must return images of shape {tuple(x.shape)}, got {tuple(found.shape)}")
        return found
