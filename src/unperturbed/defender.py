"""A classifier under attack: the network that attacks see in its place, and the checks of what they find on it."""

import warnings
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .attacks import Attack, AutoAttack, MinimumNorm
from .engine import Accelerated, Engine, Precision, engine_for
from .inputs import require_tensor
from .losses import margin
from .objectives import frozen

NUMBERS_ON_A_GPU = 8192 * 3 * 32 * 32
"""of all points of a search that a GPU tries at once"""
SMALLEST = 32
"""images up to which questions are filled up that are smaller still"""
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

    A defender of f beside it, of another precision, searches images in doubt on the same network.
    """
    engine = searching_engine(images.device, precision)
    searched = f if engine.plain else on_engine(f, engine, images, batch)
    exact = engine_in_doubt(images.device)
    if beside is not None:
        again = beside.again
    else:
        again = f if exact.plain or engine.plain else on_engine(f, exact, images, batch)
    return Defender(f=f, searched=searched, again=again, engine=engine, exact=exact, device=images.device)


def engine_in_doubt(device: torch.device) -> Engine:
    """How images in doubt are searched again: in float32, on a GPU with recorded questions.

    They are few, and the longest attacks ask about them ten thousand times: hundreds of launches for each question of
    a deep network would take longer than the attack on all others.
    """
    return replace(engine_for(device, "float32"), compiled=False) if device.type == "cuda" else Engine()


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
    return answers(f, points).argmax(1)


def in_doubt(exact: Tensor, rounded: Tensor, y: Tensor) -> Tensor:
    """Which images stand by so little that rounding while they were searched may be all that saved them.

    Those are among them that fool the network with rounded logits, and not the one with exact ones.
    """
    return (exact.argmax(1) == y) & (-margin(exact, y) <= DOUBT * (exact - rounded).abs().amax(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Defender:
    """A classifier, and the networks that attacks see in its place: f on engines, equal to it up to rounding."""

    f: nn.Module
    searched: nn.Module
    again: nn.Module
    """what images in doubt are searched on, in float32"""
    engine: Engine
    exact: Engine
    """the engine of that"""
    device: torch.device

    def attacked(
        self, attack: Attack, x: Tensor, y: Tensor, rng: Generator, again: Generator
    ) -> tuple[Tensor, Tensor]:
        """What the attack found and what f says of it; images that stand by a hair are searched again in float32."""
        found = self.searching(self.searched, attack, x, y, rng, self.engine)
        logits = answers(self.f, found.to(x))
        predicted = logits.argmax(1)
        if self.searched is self.f:
            return found, predicted
        with self.engine.arithmetic():
            rounded = answers(self.searched, found.to(x))
        doubtful = in_doubt(logits, rounded, y).nonzero().squeeze(1)
        if len(doubtful) == 0:
            return found, predicted
        better = self.searching(self.again, attack, x[doubtful], y[doubtful], again, self.exact)
        said = predicted_classes(self.f, better.to(x))
        fooling = said != y[doubtful]
        found = found.clone()
        found[doubtful[fooling]], predicted[doubtful[fooling]] = better[fooling].to(found), said[fooling]
        return found, predicted

    def searching(self, f: nn.Module, attack: Attack, x: Tensor, y: Tensor, rng: Generator, engine: Engine) -> Tensor:
        """The attack on f, which gets copies and a mode of its own: it must not move what it is measured against."""
        with frozen(f), engine.arithmetic():
            found = roomy(attack, x)(f, x.clone(), y.clone(), rng)
        require_tensor(found, "what an attack returns")
        if found.shape != x.shape:
            raise ValueError(f"an attack must return images of shape {tuple(x.shape)}, got {tuple(found.shape)}")
        return found
