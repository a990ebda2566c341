"""Evaluation: every attack against every image, each answer checked again before it counts."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from .attacks import Attack, Bounded, MinimumNorm
from .inputs import as_float, check_images, check_labels, output_classes
from .objectives import frozen
from .report import AttackResult, Report
from .runtime import generator, pick_device, provenance
from .solvers import require_count

ROUNDING = 1e-6
"""how far outside [0, 1] a pixel may lie through rounding alone"""


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
    watcher: AttackWatcher | None = None,
    recipe: object = None,
    previous: Report | None = None,
    save: Callable[[Report], None] | None = None,
) -> Report:
    """Attack f on these images, uint8 or float in [0, 1], and report the predictions before and after.

    An attack sees each image with C(x) as its label. For a correctly classified image that is y; for any other
    nothing is left to win for R_adv, but R_rob, Eq. (4), is defined on it too. The report is saved after each
    attack; what a previous report holds for the same model, images and settings is not computed again.
    """
    require_count("batch", batch)
    where = pick_device(device)
    f.to(where)
    if len(images) == 0:
        raise ValueError("no image was given, expected at least one to evaluate on")
    check_images(as_float(images))
    classes = output_classes(f, as_float(images[:2]).to(where))
    check_labels(labels, len(images), classes)
    with frozen(f):
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
            if any((done.name, done.settings) == (name, repr(attack)) for done in report.attacks):
                continue
            result = run_attack(
                f, images, report.clean, name, attack, batch=batch, seed=seed, device=where, watcher=watcher
            )
            others = tuple(done for done in report.attacks if done.name != name)
            report = replace(report, attacks=(*others, result))
            if save is not None:
                save(report)
    return report


def fingerprint(f: nn.Module, images: Tensor, labels: Tensor, seed: int, batch: int) -> str:
    """What an attack's answer depends on besides its settings: weights, images, labels, seed and batch, as a hash."""
    digest = hashlib.sha256(repr((seed, batch)).encode())
    for tensor in (*f.state_dict().values(), images, labels):
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@torch.no_grad()
def predictions(f: nn.Module, images: Tensor, batch: int, device: torch.device) -> Tensor:
    """C(x) of every image."""
    return torch.cat([f(as_float(part.to(device))).argmax(1).cpu() for part in images.split(batch)])


def run_attack(
    f: nn.Module,
    images: Tensor,
    clean: Tensor,
    name: str,
    attack: Attack,
    *,
    batch: int,
    seed: int,
    device: torch.device,
    watcher: AttackWatcher | None,
) -> AttackResult:
    """What the attack made of f's predictions; its random numbers depend on seed, name and place alone."""
    started = time.perf_counter()
    after = clean.clone()
    rejected, sizes = 0, list[Tensor]()
    for start in range(0, len(images), batch):
        part = slice(start, start + batch)
        x, y = as_float(images[part].to(device)), clean[part].to(device)
        # Copies and a mode of its own: an attack must not move what it is measured against.
        with frozen(f):
            perturbed = attack(f, x.clone(), y.clone(), generator(device, seed, name, start))
        valid = checked(attack, x, perturbed)
        with torch.no_grad():
            predicted = f(perturbed.nan_to_num().to(x)).argmax(1)
        after[part] = torch.where(valid, predicted, y).cpu()
        if isinstance(attack, MinimumNorm):
            sizes.append(torch.where(predicted != y, attack.size(x, perturbed).to(x), torch.inf).cpu())
        else:
            rejected += int((~valid).sum().item())
        if watcher is not None:
            done = min(start + batch, len(images))
            watcher.attacked(name, done, len(images), (after[:done] == clean[:done]).double().mean().item())
    bounded = isinstance(attack, Bounded)
    return AttackResult(
        name=name,
        budget=attack.budget if bounded else "not stated",
        settings=repr(attack),
        predicted=after,
        rejected=rejected,
        median_size=torch.cat(sizes).median().item() if sizes else None,
        seconds=time.perf_counter() - started,
    )


def checked(attack: Attack, x: Tensor, perturbed: Tensor) -> Tensor:
    """Which returned points are images in [0, 1], made of numbers, and inside the budget the attack states."""
    if perturbed.shape != x.shape:
        raise ValueError(f"an attack must return images of shape {tuple(x.shape)}, got {tuple(perturbed.shape)}")
    values = perturbed.flatten(1)
    valid = values.isfinite().all(1) & (values.amin(1) >= -ROUNDING) & (values.amax(1) <= 1 + ROUNDING)
    return valid & attack.within.contains(x, perturbed) if isinstance(attack, Bounded) else valid
