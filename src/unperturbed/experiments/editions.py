"""The evidence of one schedule and one network in place of WRN-34-10, and which of it an experiment shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..models import WideResNet
from .definition import Cell, Experiment, Table
from .evidence import Evidence
from .scales import NETWORKS, SCALES, Network, Scale


@dataclass(frozen=True, slots=True)
class Edition:
    """All evidence of one scale, with one network in place of WRN-34-10 or with that itself."""

    scale: Scale
    network: Network
    evidence: Sequence[Evidence]

    @property
    def title(self) -> str:
        """What it is called."""
        words = SCALES[self.scale]
        return words if self.scale == "smoke" else f"{words}, {NETWORKS[self.network]}"

    @property
    def own(self) -> list[Evidence]:
        """What is in no other edition of its scale: rows without WRN-34-10 belong to that of the paper's networks."""
        return [each for each in self.evidence if self.network == "own" or concerned(each)]


def concerned(evidence: Evidence) -> bool:
    """Whether a run has WRN-34-10, or another network in its place."""
    return evidence.network != "own" or isinstance(evidence.recipe.model, WideResNet)


def editions(evidence: Sequence[Evidence]) -> list[Edition]:
    """Every scale and network of which there is evidence, the paper's schedule first.

    Runs of recipes that never had WRN-34-10 are in all editions of their scale.
    """
    scales: tuple[Scale, ...] = ("paper", "short", "smoke")
    networks: tuple[Network, ...] = ("own", "resnet-18")
    found: list[Edition] = []
    for scale in scales:
        runs = [each for each in evidence if each.scale == scale]
        found += [
            Edition(scale, network, [each for each in runs if each.network == network or not concerned(each)])
            for network in networks
            if any(each.network == network for each in runs)
        ]
    return found


def runs_in(tables: Sequence[Table], edition: Edition) -> list[Evidence]:
    """The evidence of an edition that these tables show."""
    return [each for each in edition.evidence if any(fills(each, table) for table in tables)]


def fills(evidence: Evidence, table: Table) -> bool:
    """Whether a run has a row in a table, and anything to show in it."""
    cells = (Cell(evidence.name, column, fraction) for column, fraction in table.columns)
    return any(trial.name == evidence.name for trial in table.rows) and any(
        evidence.samples(cell) is not None for cell in cells
    )


def shown_in(table: Table, edition: Edition, longer: Sequence[Evidence] = ()) -> bool:
    """Whether a table has a row that is this edition's own, of runs that none of these longer ones are of too."""
    known = {(each.name, each.network) for each in longer if fills(each, table)}
    return any(fills(each, table) and (each.name, each.network) not in known for each in edition.own)


def tables_told(experiment: Experiment, edition: Edition, evidence: Sequence[Evidence]) -> list[Table]:
    """The tables that an edition has something to show in: of a shorter schedule what the paper's does not show."""
    longer = () if edition.scale == "paper" else [each for each in evidence if each.scale == "paper"]
    return [table for table in experiment.tables if shown_in(table, edition, longer)]


def told_of(experiment: Experiment, evidence: Sequence[Evidence]) -> list[Edition]:
    """The editions of an experiment that have a table to show."""
    return [edition for edition in editions(evidence) if tables_told(experiment, edition, evidence)]
