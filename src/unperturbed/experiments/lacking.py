"""What is still to be run: runs of which collected evidence does not hold all that experiments ask for."""

from collections.abc import Collection, Sequence
from pathlib import Path

from ..printing import printable
from .asked import as_asked
from .definition import SURFACES
from .evidence import Evidence, read_all
from .planning import PlannedRun
from .results import held
from .scales import SLOW_ATTACKS, images_attacked


def lacking(
    runs: Sequence[PlannedRun], folder: Path, without: Collection[str] = (), slow_images: int | None = None
) -> list[PlannedRun]:
    """Those runs of which the evidence in a folder lacks something, but for attacks that are left for later."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {printable(folder)} with evidence, by which --missing leaves runs out: name it by "
            "--results, or leave --missing out"
        )
    there = {(each.scale, each.file_name): each for each in read_all(folder)}
    return [run for run in runs if not shows(there.get((run.scale, f"{run.name}.json")), run, without, slow_images)]


def shows(evidence: Evidence | None, run: PlannedRun, without: Collection[str], slow_images: int | None) -> bool:
    """Whether evidence is by the recipe of a run and holds all of its attacks, surfaces and minutes."""
    asked = as_asked(evidence, run.trial) if evidence is not None and evidence.recipe == run.recipe else None
    if asked is None or (run.trial.timed and max(asked.together, asked.teacher_together) > 1):
        return False
    found, trial = held(asked), run.trial
    images = images_attacked(run.scale)
    few = min(slow_images or images, images)
    made = [(name, 1.0) for name in trial.attacks] + [
        (name, part) for name in trial.swept for part in trial.fractions
    ]
    least = {
        ("kept", name, part): few if name in SLOW_ATTACKS else images for name, part in made if name not in without
    }
    least |= {("kept", name, 1.0): 1 for name in SURFACES if trial.surfaces}
    return all(found.get(place, 0) >= count for place, count in least.items())
