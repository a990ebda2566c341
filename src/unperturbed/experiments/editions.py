"""The evidence of one schedule and one network in place of WRN-34-10, and which of it an experiment shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from .definition import Cell, Experiment, Table
from .evidence import Evidence
from .measured import concerned, of_edition
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


def editions(evidence: Sequence[Evidence]) -> list[Edition]:
    """Every scale and network of which there is evidence, the paper's schedule first."""
    scales: tuple[Scale, ...] = ("paper", "short", "smoke")
    networks: tuple[Network, ...] = ("own", "resnet-18")
    return [
        Edition(scale, network, of_edition(evidence, scale, network))
        for scale in scales
        for network in networks
        if any(each.scale == scale and each.network == network for each in evidence)
    ]


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
    """Whether a table has a row that is this edition's own, of runs that none of these longer ones are of too.

    Rows without WRN-34-10 belong to the edition of the paper's networks.
    """
    known = {(each.name, each.network) for each in longer if fills(each, table)}
    mine = [each for each in edition.evidence if edition.network == "own" or concerned(each)]
    return any(fills(each, table) and (each.name, each.network) not in known for each in mine)


def tables_told(experiment: Experiment, edition: Edition, evidence: Sequence[Evidence]) -> list[Table]:
    """The tables that an edition has something to show in: of a shorter schedule what the paper's does not show."""
    longer = () if edition.scale == "paper" else [each for each in evidence if each.scale == "paper"]
    return [table for table in experiment.tables if shown_in(table, edition, longer)]


def told_of(experiment: Experiment, evidence: Sequence[Evidence]) -> list[Edition]:
    """The editions of an experiment that have a table to show."""
    return [edition for edition in editions(evidence) if tables_told(experiment, edition, evidence)]
