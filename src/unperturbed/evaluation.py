"""Evaluation: every attack against every image, each answer checked again before it counts."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from .answers import frozen
from .attacks import Attack, Bounded, MinimumNorm
from .defender import Defender, defended, precision_for
from .engine import Engine, Precision, layout_kept
from .inputs import as_float, check_labels, check_model, check_pixels, output_classes, require, require_tensor
from .packing import MOST_CLASSES
from .printing import quoted
from .processes import Processes, own_device, present
from .report import AttackResult, Report
from .risks import NO_CLASS, decided
from .runtime import derived_seed, generator, pick_device, provenance, random_numbers_kept
from .sameness import fingerprint, settings_of, tells_itself_apart
from .solvers import require_count, takes, whole_number
from .unfinished import Part, Unfinished

ROUNDING = 1e-6
"""how far outside [0, 1] a pixel may lie through rounding alone"""
BATCH = 500
"""images attacked at once where nobody says how many"""
NUMBERS_AT_ONCE, FEWEST_AT_ONCE, MOST_AT_ONCE = 1000 * 3 * 32 * 32, 32, 5000
"""the same on a GPU, which small images leave idle: numbers in all of these images, and bounds for their count"""


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
    batch: int | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: Precision = "auto",
    watcher: AttackWatcher | None = None,
    recipe: object = None,
    weights: str = "",
    previous: Report | None = None,
    save: Callable[[Report], None] | None = None,
    unfinished: Unfinished | None = None,
    defenders: dict[Precision, Defender] | None = None,
) -> Report:
    """Attack f on these images, uint8 or float in [0, 1], and report the predictions before and after.

    An attack sees each image with C(x) as its label. For a correctly classified image that is y; for any other
    nothing is left to win for R_adv, but R_rob, Eq. (4), is defined on it too. Attacks search with the precision
    asked for; predictions, before and after, are float32. The report is saved after each attack; what a previous
    report holds for the same model, images and settings is not computed again, nor what `unfinished` holds of an
    attack that was interrupted. The recipe, and the hash of the weights in their file, are noted in the report.
    What f is searched on may be kept in `defenders` for more evaluations of f on these images, by whoever restores
    the layout of f after them.
    """
    where = pick_device(own_device(device))
    require_evaluable(f, images, labels, attacks, where)
    batch = usual_batch(images, where) if batch is None else whole_number("batch", batch)
    require_count("batch", batch)
    seed = whole_number("seed", seed)
    if attacks:
        present().require_same(lambda: fingerprint(nn.Identity(), images, labels, seed, batch))
    kept = layout_kept(f) if defenders is None else nullcontext()
    defenders = {} if defenders is None else defenders
    with frozen(f), kept, random_numbers_kept(where), Engine().arithmetic():
        torch.manual_seed(derived_seed(seed, "clean"))  # A classifier may answer by random numbers.
        report = Report(
            labels=labels.cpu().long(),
            clean=predictions(f, images, batch, where),
            attacks=(),
            seed=seed,
            provenance=provenance(where),
            recipe=recipe,
            subject=fingerprint(f, images, labels, seed, batch),
            weights=weights,
        )
        present_way = report.provenance
        if previous is not None:
            report = report.with_attacks_of(previous)
        taken_over = report.attacks
        for name, attack in attacks.items():
            wanted = precision_for(attack, precision, where)
            if wanted not in defenders:
                beside = next(iter(defenders.values()), None)
                defenders[wanted] = defended(f, wanted, as_float(images[:2]).to(where), batch, beside=beside)
            means = (name, settings_of(attack), defenders[wanted].engine.precision)
            key, known = (report.subject, *means), tells_itself_apart(attack)
            if known and any((done.name, done.settings, done.precision) == means for done in report.attacks):
                if unfinished is not None and present().first:  # A process may have ended right after it was done.
                    unfinished.forget(key)
                continue
            result = run_attack(
                defenders[wanted],
                images,
                report.clean,
                name,
                attack,
                batch=batch,
                seed=seed,
                watcher=watcher,
                unfinished=unfinished if known and present().count == 1 else None,
                key=key,
            )
            others = tuple(done for done in report.attacks if done.name != name)
            report = replace(report, attacks=(*others, result))
            if not any(done is old for done in others for old in taken_over):
                report = replace(report, provenance=present_way)  # Of what was made in another way nothing is left.
            if save is not None and present().first:
                save(report)
            if unfinished is not None and present().first:
                unfinished.forget(key)
    return report


def require_evaluable(
    f: nn.Module, images: Tensor, labels: Tensor, attacks: Mapping[str, Attack], device: torch.device
) -> None:
    """Refuse a model, images, labels or attacks that do not go together, each in a sentence; f is then there."""
    if not isinstance(attacks, Mapping) or not all(takes(attack, 4) for attack in attacks.values()):
        raise ValueError(
            f"attacks must be a dict of attacks by name, {{'pgd': attacks.pgd()}}, got {quoted(attacks)}: write "
            "attacks.pgd with its parentheses, and a solver as attacks.Searched(solver=…, loss=…, within=…, budget=…)"
        )
    require_tensor(images, "images")
    require(len(images) > 0, "no image was given, expected at least one to evaluate on")
    check_model(f)
    f.to(device)
    check_pixels(images)
    with random_numbers_kept(device):
        classes = output_classes(f, as_float(images[:2]).to(device))
    require(
        classes <= MOST_CLASSES,
        f"the model tells {classes:,} classes apart, a report holds up to {MOST_CLASSES:,}: give it one with fewer",
    )
    check_labels(labels, len(images), classes)


def usual_batch(images: Tensor, device: torch.device) -> int:
    """How many of these images are attacked at once on that device where nobody says how many."""
    return at_once(images[0].numel()) if device.type == "cuda" else BATCH


def at_once(numbers: int) -> int:
    """How many images of so many numbers each a GPU attacks at once where nobody says how many."""
    return min(MOST_AT_ONCE, max(FEWEST_AT_ONCE, NUMBERS_AT_ONCE // max(1, numbers)))


@torch.no_grad()
def predictions(f: nn.Module, images: Tensor, batch: int, device: torch.device) -> Tensor:
    """C(x) of every image; refuses an f that has none, for no attack could change it."""
    found: list[Tensor] = []
    for part in images.split(batch):
        said = decided(f(as_float(part.to(device)))).cpu()
        answered = bool((said != NO_CLASS).all())
        require(answered, "the model answers some of these images with NaN: look for what makes it")
        found.append(said)
    return torch.cat(found)


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
    unfinished: Unfinished | None = None,
    key: tuple[str, ...] = (),
    processes: Processes | None = None,
) -> AttackResult:
    """What the attack made of f's predictions; its random numbers, and f's, depend on seed, name and place alone.

    Batches that an earlier process attacked may be kept, under that key. All processes take part that have joined,
    or those that are named.
    """
    started = time.perf_counter()
    after, processes = clean.clone(), processes or present()
    parts = {} if unfinished is None else unfinished.read(key)
    earlier = sum(part.seconds for part in parts.values())
    for start in processes.own_part(list(range(0, len(images), batch))):
        part = slice(start, start + batch)
        if start not in parts or parts[start].predicted.shape != after[part].shape:
            parts[start] = attacked_part(defender, images[part], clean[part], name, attack, seed=seed, start=start)
            if unfinished is not None:
                unfinished.write(key, parts)
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


def attacked_part(
    defender: Defender, images: Tensor, clean: Tensor, name: str, attack: Attack, *, seed: int, start: int
) -> Part:
    """What the attack made of the images that stand together from that place on."""
    began, device = time.perf_counter(), defender.device
    x, y = as_float(images.to(device)), clean.to(device)
    generators = generator(device, seed, name, start), generator(device, seed, name, start, "again")
    torch.manual_seed(derived_seed(seed, name, start, "classifier"))
    perturbed, predicted = defender.attacked(attack, x, y, *generators)
    valid = checked(attack, x, perturbed)
    least = isinstance(attack, MinimumNorm)
    return Part(
        torch.where(valid, predicted, y).cpu(),
        0 if least else int((~valid).sum().item()),
        torch.where(predicted != y, attack.size(x, perturbed).to(x), torch.inf).cpu() if least else None,
        time.perf_counter() - began,
    )


def checked(attack: Attack, x: Tensor, perturbed: Tensor) -> Tensor:
    """Which returned points are images in [0, 1], made of numbers, and inside the budget the attack states."""
    values = perturbed.flatten(1)
    valid = values.isfinite().all(1) & (values.amin(1) >= -ROUNDING) & (values.amax(1) <= 1 + ROUNDING)
    return valid & attack.within.contains(x, perturbed) if isinstance(attack, Bounded) else valid
