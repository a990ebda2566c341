"""`unperturbed surface`."""

from dataclasses import dataclass
from pathlib import Path

from ..comparison import compared
from ..datasets import Dataset, load
from ..figures import draw_surfaces, files_for, save
from ..files import require_writable
from ..printing import printable
from ..recipes import usual_budget
from ..runtime import pick_device
from ..solvers import require_positive
from ..surfaces import Directions, Scenario, Surface, Value, require_known
from ..surfaces import surface as surface_around
from .evaluate import warn_of_other_data
from .options import leading_words, parse


@dataclass(frozen=True, kw_only=True)
class Around:
    """Draw what models say around a test image: `unperturbed surface DIR [DIR …] --around INDEX`.

    D(x) = p_y - max p_i over the other classes, red where it is positive and the answer right, or the loss; in 3D and
    its contours side by side, a row for each run in the order in which they are named.
    """

    around: int = 0
    """number of the test image, from 0"""
    scenario: Scenario = "pixel"
    """pixel: one adversarial and one random direction, in eps; spatial: rotation against translation"""
    value: Value = "decision"
    """decision: D(x); loss: cross-entropy"""
    directions: Directions = "adversarial"
    """the first direction of the pixel scenario: each model's adversarial one, or random signs"""
    points: int = 101
    """points along each axis"""
    reach: tuple[float, ...] = ()
    """how far the two axes go: eps and eps, or degrees and pixels; else as far as attacks on that data set"""
    seed: int = 0
    """seed of the random direction"""
    out: Path | None = None
    """file for the figure, .png, .pdf or .svg; a name without ending is for PNG and PDF; surface-… if not given"""
    data: Path | None = None
    """folder with the data set's files"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1"""


def surface(arguments: list[str]) -> None:
    """Draw the decision or loss surface of runs around an image."""
    needed = "surface needs the directory of a run first: unperturbed surface DIR [DIR …] --around INDEX"
    words, rest = leading_words(arguments, needed)
    command = parse(Around, rest, usage="surface DIR [DIR …]")
    require_known(command.scenario, command.value, command.directions)
    files = files_for(command.out or Path(f"surface-{command.scenario}-{command.value}-{command.around}"))
    require_writable(files)
    runs = compared([Path(word) for word in words])
    reach = reach_of(command, runs[0].recipe.data.name)
    device = pick_device(command.device)
    dataset = load(runs[0].recipe.data.name, command.data)
    require_image(dataset, command.around)
    warn_of_other_data(runs, dataset)
    found: dict[str, Surface] = {}
    for run in runs:
        found[run.label] = surface_around(
            run.model(dataset).to(device),
            dataset.test_images[command.around],
            dataset.test_labels[command.around],
            scenario=command.scenario,
            value=command.value,
            points=command.points,
            reach=reach,
            directions=command.directions,
            seed=command.seed,
            index=command.around,
        )
    save(draw_surfaces(found), files)
    for label, shown in found.items():
        print(printable(f"{label}: {spoken(shown)}"))
    print(printable(f"written: {', '.join(map(str, files))}"))


def reach_of(command: Around, data: str) -> tuple[float, float]:
    """How far both axes go; as far as the attacks on that data set where nothing is said."""
    if not command.reach:
        return usual_budget(data).reach(command.scenario)
    if len(command.reach) != 2:
        example = "0.1 0.1" if command.scenario == "pixel" else "30 3"
        raise ValueError(
            f"--reach takes two numbers, one for each axis, got {len(command.reach)}: as --reach {example}"
        )
    for number in command.reach:
        require_positive("--reach", number)
    return command.reach[0], command.reach[1]


def require_image(dataset: Dataset, index: int) -> None:
    """Refuse a number that no test image has."""
    count = len(dataset.test_images)
    if not 0 <= index < count:
        raise ValueError(f"there is no test image {index}: --around takes 0 to {count - 1} on this data set")


def spoken(surface: Surface) -> str:
    """The gist of a surface in words."""
    low, high = surface.bounds
    verb = "has" if surface.gaps == 1 else "have"
    gaps = f"; {surface.gaps} of {surface.values.numel()} points {verb} no finite value" if surface.gaps else ""
    if surface.correct is None:
        return f"loss from {low:.3g} to {high:.3g}{gaps}"
    return f"D(x') from {low:.3f} to {high:.3f}, positive at {surface.correct:.1%} of the points{gaps}"
