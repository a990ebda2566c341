"""How a batch is cut into parts: for several processes, and for a memory that does not hold all of it at once."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from .batches import ProportionalBatches
from .objectives import AT, KLR, SRT, TRADES, UAT, Batch, Mixture, Objective, Terms, checked_terms
from .processes import Processes

Ask = Callable[[Objective], Terms]


def cut(batch: Batch, count: int) -> list[Batch]:
    """So many parts of the batch, of nearly one composition."""
    pieces = list(
        zip(batch.x.tensor_split(count), batch.y.tensor_split(count), cut_unlabeled(batch.u, count), strict=True)
    )
    if batch.opinion is None:
        return [Batch(x, y, u) for x, y, u in pieces]
    of_x, of_u = batch.opinion.split((len(batch.x), len(batch.u)))
    opinions = zip(of_x.tensor_split(count), cut_unlabeled(of_u, count), strict=True)
    return [Batch(x, y, u, torch.cat(opinion)) for (x, y, u), opinion in zip(pieces, opinions, strict=True)]


def cut_unlabeled(u: Tensor, count: int) -> list[Tensor]:
    """The unlabeled images of so many parts; the first pieces are the larger ones, and no part gets those of both."""
    return list(reversed(u.tensor_split(count)))


def weighed(objective: Objective, made_of: Objective, part: Batch, counts: tuple[int, int], ask: Ask) -> Terms:
    """The terms on a part, each with what it weighs in those on a batch of so many labeled and unlabeled images.

    In a mixture, also one of somebody else that adds up in a way of its own, the terms of each objective weigh by
    themselves. What is asked is made of the objective: it may search faster, or remember.
    """
    of_standard, of_robust = shares(objective, part, *counts)
    if isinstance(objective, Mixture) and isinstance(made_of, Mixture):

        def beside_others(one: Objective, its: Objective) -> Objective:
            def on_part(f: nn.Module, given: Batch, rng: Generator, /) -> Terms:
                terms = weighed(one, its, part, counts, lambda asked: checked_terms(asked(f, given, rng)))
                return Terms(terms.standard / of_standard, terms.robust / of_robust)

            return on_part

        pairs = zip(objective.objectives, made_of.objectives, strict=True)
        made_of = replace(made_of, objectives=tuple(beside_others(*pair) for pair in pairs))
    terms = ask(made_of)
    return Terms(of_standard * terms.standard, of_robust * terms.robust)


def shares(objective: Objective, part: Batch, labeled: int, unlabeled: int) -> tuple[float, float]:
    """What the terms on a part weigh in those on a batch of so many images: as the images that each is a mean of.

    An objective of somebody else that takes other means than Eq. (9) is met as closely as all parts have one
    composition.
    """
    of_labeled = len(part.x) / labeled
    of_all = (len(part.x) + len(part.u)) / (labeled + unlabeled)
    match objective:
        case SRT(mean="images"):
            share = (2 * len(part.x) + len(part.u)) / (2 * labeled + unlabeled)
            return share, share
        case AT() | TRADES() | UAT(form="++") if part.opinion is not None:
            return of_all, of_all
        case TRADES() | KLR():
            return of_labeled, of_labeled
        case _:
            return of_labeled, of_all


def part_count(batches: ProportionalBatches, microbatch: int | None, processes: Processes) -> int:
    """The number of parts into which a batch is cut, the same for each process."""
    own = -(-batches.batch // processes.count)
    return processes.count * (1 if microbatch is None else -(-own // min(own, microbatch)))


def fewest_labeled(batches: ProportionalBatches) -> int:
    """The number of labeled images that every batch has."""
    return min(batches.counts(position)[0] for position in range(batches.steps_per_epoch))


def require_parts(batches: ProportionalBatches, microbatch: int | None, processes: Processes) -> None:
    """Refuse parts so small that some would have no labeled image."""
    labeled = fewest_labeled(batches)
    if (parts := part_count(batches, microbatch, processes)) > labeled and processes.count > 1:
        raise ValueError(
            f"{processes.count} processes cut a batch of {batches.batch} into {parts} parts, each of which needs a "
            f"labeled image, but a batch has only {labeled}: raise --least-labeled, --batch or --microbatch, or "
            "start fewer processes"
        )
    if parts > labeled:
        raise ValueError(
            f"--microbatch {microbatch} cuts a batch of {batches.batch} into {parts} parts, each of which needs a "
            f"labeled image, but a batch has only {labeled}: use at least {-(-batches.batch // labeled)}"
        )
