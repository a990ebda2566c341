"""Evaluation: every attack against every image, each answer checked again before it counts."""

import hashlib
import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn

from .attacks import Attack, Bounded, MinimumNorm
from .engine import Accelerated, Engine, Precision, engine_for
from .inputs import as_float, check_images, check_labels, output_classes
from .objectives import frozen
from .processes import own_device, present
from .report import AttackResult, Report
from .runtime import generator, pick_device, provenance
from .solvers import require_count
from .unfinished import Part, Unfinished

ROUNDING = 1e-6
"""how far outside [0, 1] a pixel may lie through rounding alone"""
AT_ONCE_ON_A_GPU = 8192
"""points of a search that a GPU tries at once"""
WORTH_COMPILING = 2000
"""images to attack from which on compiling the network, which takes some tens of seconds, pays"""


class AttackWatcher(Protocol):
    """Whoever looks at an evaluation while it is going."""

    def attacked(self, name: str, done: int, images: int, standing: float, /) -> None:
        """So many images have been attacked; this share of them stood."""
        ...


def evaluate(
    f: nn.Module,
    images: Tensor,
    labels: Tensor,
    attacks: Mapping[str, Attack],
    *,
    batch: int = 500,
    seed: int = 0,
    device: str = "auto",
    precision: Precision = "auto",
    watcher: AttackWatcher | None = None,
    recipe: object = None,
    previous: Report | None = None,
    save: Callable[[Report], None] | None = None,
    unfinished: Unfinished | None = None,
) -> Report:
    """Attack f on these images, uint8 or float in [0, 1], and report the predictions before and after.

    An attack sees each image with C(x) as its label. For a correctly classified image that is y; for any other
    nothing is left to win for R_adv, but R_rob, Eq. (4), is defined on it too. Attacks search with the precision
    asked for; predictions, before and after, are float32. The report is saved after each attack; what a previous
    report holds for the same model, images and settings is not computed again, nor what `unfinished` holds of an
    attack that was interrupted.
    """
    require_count("batch", batch)
    where = pick_device(own_device(device))
    f.to(where)
    if len(images) == 0:
        raise ValueError("no image was given, expected at least one to evaluate on")
    check_images(as_float(images))
    classes = output_classes(f, as_float(images[:2]).to(where))
    check_labels(labels, len(images), classes)
    engine = searching_engine(where, precision, len(images))
    searched = f if engine.plain else on_engine(f, engine, as_float(images[:2]).to(where), batch)
    with frozen(f), Engine().arithmetic():
        report = Report(
            labels=labels.cpu().long(),
            clean=predictions(f, images, batch, where),
            attacks=(),
            seed=seed,
            provenance=provenance(where),
            recipe=recipe,
            subject=fingerprint(f, images, labels, seed, batch),
        )
        if previous is not None and previous.subject == report.subject:
            report = replace(report, attacks=previous.attacks)
        for name, attack in attacks.items():
            key = (name, settings_of(attack), engine.precision)
            if any((done.name, done.settings, done.precision) == key for done in report.attacks):
                continue
            result = run_attack(
                Defender(f=f, searched=searched, engine=engine, device=where),
                images,
                report.clean,
                name,
                attack,
                batch=batch,
                seed=seed,
                watcher=watcher,
                kept=Kept(unfinished, (report.subject, *key)),
            )
            others = tuple(done for done in report.attacks if done.name != name)
            report = replace(report, attacks=(*others, result))
            if save is not None and present().first:
                save(report)
            if unfinished is not None and present().first:
                unfinished.forget()
    return report


def searching_engine(device: torch.device, precision: Precision, images: int) -> Engine:
    """How attacks compute: as it pays, with float32 asked for by name just as the network is written."""
    if precision == "float32":
        return Engine()
    engine = engine_for(device, precision, warn)
    return replace(engine, compiled=engine.compiled and images >= WORTH_COMPILING)


def on_engine(f: nn.Module, engine: Engine, images: Tensor, batch: int) -> nn.Module:
    """The network that attacks see: they ask for whole batches, a good share of one, or as many points as fit."""
    sizes = (batch, AT_ONCE_ON_A_GPU) if engine.compiled else ()
    return Accelerated(f, engine, images, say=warn, filled_up_to=sizes)


def roomy(part: Any, device: torch.device) -> Any:
    """The same attack, trying as many points of a search at once as a GPU is filled by."""
    if device.type != "cuda" or not is_dataclass(part) or isinstance(part, type):
        return part
    changes: dict[str, Any] = {}
    for slot in fields(part):
        value = getattr(part, slot.name)
        if slot.name == "at_once":
            changes[slot.name] = max(value, AT_ONCE_ON_A_GPU)
        elif slot.name == "solver":
            changes[slot.name] = roomy(value, device)
        elif slot.name in ("stages", "solvers"):
            changes[slot.name] = tuple(roomy(one, device) for one in value)
    return replace(part, **changes)


def warn(sentence: str) -> None:
    """Say what differs from what was asked for."""
    warnings.warn(sentence, stacklevel=2)


def settings_of(attack: Attack) -> str:
    """An attack in words that are the same in every process: addresses of functions in memory are not."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(attack))


def fingerprint(f: nn.Module, images: Tensor, labels: Tensor, seed: int, batch: int) -> str:
    """What an attack's answer depends on besides its settings: weights, images, labels, seed and batch, as a hash."""
    digest = hashlib.sha256(repr((seed, batch)).encode())
    for tensor in (*f.state_dict().values(), images, labels):
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def predictions(f: nn.Module, images: Tensor, batch: int, device: torch.device) -> Tensor:
    """C(x) of every image."""
    return torch.cat([predicted_classes(f, as_float(part.to(device))).cpu() for part in images.split(batch)])


@torch.no_grad()
def predicted_classes(f: nn.Module, points: Tensor) -> Tensor:
    """What f says of what an attack returned, which may hold anything."""
    return f(points.nan_to_num()).argmax(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defender:
    """A classifier, and the network that attacks see in its place: f on an engine, equal to it up to rounding."""

    f: nn.Module
    searched: nn.Module
    engine: Engine
    device: torch.device

    def attacked(
        self, attack: Attack, x: Tensor, y: Tensor, rng: Generator, again: Generator
    ) -> tuple[Tensor, Tensor]:
        """What the attack found and what f says of it; where it wrongly believes in it, it searches f in float32."""
        found = self.searching(self.searched, attack, x, y, rng, self.engine)
        predicted = predicted_classes(self.f, found.to(x))
        if self.searched is self.f:
            return found, predicted
        with self.engine.arithmetic():
            believed = predicted_classes(self.searched, found.to(x)) != y
        doubtful = (believed & (predicted == y)).nonzero().squeeze(1)
        if len(doubtful) == 0:
            return found, predicted
        better = self.searching(self.f, attack, x[doubtful], y[doubtful], again, Engine())
        said = predicted_classes(self.f, better.to(x))
        fooling = said != y[doubtful]
        found = found.clone()
        found[doubtful[fooling]], predicted[doubtful[fooling]] = better[fooling].to(found), said[fooling]
        return found, predicted

    def searching(self, f: nn.Module, attack: Attack, x: Tensor, y: Tensor, rng: Generator, engine: Engine) -> Tensor:
        """The attack on f, which gets copies and a mode of its own: it must not move what it is measured against."""
        with frozen(f), engine.arithmetic():
            found = roomy(attack, self.device)(f, x.clone(), y.clone(), rng)
        if found.shape != x.shape:
            raise ValueError(f"an attack must return images of shape {tuple(x.shape)}, got {tuple(found.shape)}")
        return found


@dataclass(frozen=True, slots=True)
class Kept:
    """The batches of an attack that an earlier process attacked, where they are kept; several processes keep none."""

    unfinished: Unfinished | None
    key: tuple[str, ...]

    def parts(self) -> dict[int, Part]:
        """What is known, by where batches begin."""
        return self.unfinished.read(self.key) if self.unfinished is not None and present().count == 1 else {}

    def keep(self, parts: dict[int, Part]) -> None:
        """Keep what is known."""
        if self.unfinished is not None and present().count == 1:
            self.unfinished.write(self.key, parts)


def run_attack(
    defender: Defender,
    images: Tensor,
    clean: Tensor,
    name: str,
    attack: Attack,
    *,
    batch: int,
    seed: int,
    watcher: AttackWatcher | None,
    kept: Kept | None = None,
) -> AttackResult:
    """What the attack made of f's predictions; its random numbers depend on seed, name and place alone."""
    started, device = time.perf_counter(), defender.device
    after = clean.clone()
    processes, parts = present(), {} if kept is None else kept.parts()
    earlier = sum(part.seconds for part in parts.values())
    for start in processes.own_part(list(range(0, len(images), batch))):
        part = slice(start, start + batch)
        if start not in parts or parts[start].predicted.shape != after[part].shape:
            began = time.perf_counter()
            x, y = as_float(images[part].to(device)), clean[part].to(device)
            generators = generator(device, seed, name, start), generator(device, seed, name, start, "again")
            perturbed, predicted = defender.attacked(attack, x, y, *generators)
            valid = checked(attack, x, perturbed)
            least = isinstance(attack, MinimumNorm)
            parts[start] = Part(
                torch.where(valid, predicted, y).cpu(),
                0 if least else int((~valid).sum().item()),
                torch.where(predicted != y, attack.size(x, perturbed).to(x), torch.inf).cpu() if least else None,
                time.perf_counter() - began,
            )
            if kept is not None:
                kept.keep(parts)
        after[part] = parts[start].predicted
        if watcher is not None:
            done = min(start + batch, len(images))
            watcher.attacked(name, done, len(images), (after[:done] == clean[:done]).double().mean().item())
    sizes = [part.sizes for part in parts.values() if part.sizes is not None]
    found = processes.collected((after, sum(part.rejected for part in parts.values()), sizes))
    for rank, (its, _, _) in enumerate(found):
        for start in range(rank * batch, len(images), len(found) * batch):
            after[start : start + batch] = its[start : start + batch]
    sizes = [size for _, _, its in found for size in its]
    bounded = isinstance(attack, Bounded)
    return AttackResult(
        name=name,
        budget=attack.budget if bounded else "not stated",
        settings=settings_of(attack),
        predicted=after,
        rejected=sum(its for _, its, _ in found),
        precision=defender.engine.precision,
        median_size=torch.cat(sizes).median().item() if sizes else None,
        seconds=earlier + time.perf_counter() - started,
    )


def checked(attack: Attack, x: Tensor, perturbed: Tensor) -> Tensor:
    """Which returned points are images in [0, 1], made of numbers, and inside the budget the attack states."""
    values = perturbed.flatten(1)
    valid = values.isfinite().all(1) & (values.amin(1) >= -ROUNDING) & (values.amax(1) <= 1 + ROUNDING)
    return valid & attack.within.contains(x, perturbed) if isinstance(attack, Bounded) else valid
