"""Numbers of an experiment, from evidence, with errors over images and seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt

import torch
from torch import Tensor

from ..report import Report
from .definition import Cell, Difference, Figure
from .evidence import Evidence

NEARLY_ALL = 0.9
"""the share of C(x) that one class takes where a network has collapsed"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What finished runs say, of one scale and one network."""

    evidence: Sequence[Evidence]
    of_other: bool = False
    """whether the weights that were not kept are meant, where there are any"""

    def samples(self, cell: Cell) -> dict[int, Tensor]:
        """What was measured on each image, by seed."""
        found = {
            each.seed: samples
            for each in self.evidence
            if each.name == cell.trial and (samples := each.samples(cell, of_other=self.of_other)) is not None
        }
        return dict(sorted(found.items()))

    def figure(self, cell: Cell, /) -> Figure | None:
        """The mean over seeds: of the first images alone where an attack was not made on all."""
        samples = self.samples(cell).values()
        if not samples:
            return None
        means, fewest, among = [each.mean().item() for each in samples], None, None
        if self.on_few(cell):
            fewest, among = min(map(len, samples)), len(self.reports_of(cell.trial)[0].labels)
            means = [each[:fewest].mean().item() for each in samples]
        return Figure(sum(means) / len(means), standard_error(means), len(means), fewest, among)

    def reports_of(self, trial: str) -> list[Report]:
        """The reports of a trial, one for each seed, on all images."""
        return [each.report for each in self.evidence if each.name == trial]

    def on_few(self, cell: Cell) -> bool:
        """Whether the attack was not made on all images."""
        if self.of_other or cell.fraction != 1:
            return False
        return any(each.name == cell.trial and each.of_fewer(cell.column) is not None for each in self.evidence)

    def difference(self, cell: Cell, other: Cell, /) -> Difference | None:
        """The difference on the same images, over the seeds that both have; its error is of images and of seeds."""
        return self.contrast((1, cell), (-1, other))

    def gain(self, lead: tuple[Cell, Cell], other: tuple[Cell, Cell], /) -> Difference | None:
        """The difference of two differences, on the same images too."""
        (higher, lower), (others_higher, others_lower) = lead, other
        return self.contrast((1, higher), (1, others_lower), (-1, lower), (-1, others_higher))

    def spared(self, cell: Cell, other: Cell, times: float, /) -> Difference | None:
        """By how many points fewer images are wrong in the one than so many times those in the other."""
        contrast = self.contrast((1, cell), (-times, other))
        return None if contrast is None else contrast._replace(points=contrast.points + 100 * (times - 1))

    def contrast(self, *terms: tuple[float, Cell]) -> Difference | None:
        """Cells, each times its weight, together, over the seeds that all of them have.

        It is of the first images alone where an attack on one of them was not made on all: images are not alike.
        """
        samples = [(weight, self.samples(cell)) for weight, cell in terms]
        on_few = any(self.on_few(cell) for _, cell in terms)
        pairs: list[Tensor] = []
        for seed in sorted(set.intersection(*(set(each) for _, each in samples))):
            counts = {len(each[seed]) for _, each in samples}
            if on_few or len(counts) == 1:
                pairs.append(torch.stack([weight * each[seed][: min(counts)] for weight, each in samples]).sum(0))
        if not pairs:
            return None
        fewest = min(map(len, pairs))
        by_image = torch.stack([pair[:fewest] for pair in pairs]).mean(0)
        over_images = by_image.std(correction=1).item() / sqrt(len(by_image)) if len(by_image) > 1 else 0.0
        means = [pair[:fewest].mean().item() for pair in pairs]
        over_seeds = standard_error(means) or 0.0
        points = sum(means) / len(means)
        return Difference(points, hypot(over_images, over_seeds), len(means), fewest if on_few else None)

    def collapsed(self, trial: str, /) -> bool:
        """Whether one class takes nearly all answers to clean images, but not their labels, whatever the seed."""
        reports = self.reports_of(trial)
        return bool(reports) and all(
            largest_share(report.clean) >= NEARLY_ALL > largest_share(report.labels) for report in reports
        )

    def minutes(self, trial: str, /) -> tuple[float, str] | None:
        """The mean over seeds, of runs that had a device for themselves, as their teachers had, and that device."""
        mine = [each for each in self.evidence if each.name == trial]
        alone = [each for each in mine if each.together == each.teacher_together == 1]
        devices = {device for each in alone for device in each.device.split(", ")}
        if len(devices) != 1:
            return None
        return sum(each.seconds for each in alone) / len(alone) / 60, devices.pop()


def largest_share(classes: Tensor) -> float:
    """The share of the most frequent class."""
    return (classes == classes.mode().values).double().mean().item()


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of several values; none of a single one."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
