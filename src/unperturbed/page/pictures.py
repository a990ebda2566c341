"""Test images, and what each attack of the reports made of them against each model, as pictures for a page."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from ..attacks import Attack
from ..defender import defended, precision_for, predicted_classes
from ..engine import Engine
from ..evaluation import AttackWatcher, checked
from ..inputs import as_float
from ..printing import counted, in_shell, printable
from ..report import AttackResult
from ..runtime import generator
from .again import attack_of
from .content import columns_of
from .evaluated import EvaluatedRun, Group

MOST_BYTES = 8_500_000
"""of all pictures on a page; with the rest of it that stays below 15 MB"""
IN_A_ROW = 20
"""images beside each other in a sheet"""
DOUBTFUL = 0.02
"""share of clean predictions that may differ from the report's through rounding; more is another model"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """The chosen images after one attack on one model."""

    run: int
    """place of the run in its group"""
    attack: str
    """as its column is called, so that what went further under the same name stands apart"""
    after: list[int]
    """C(x') of each image"""
    sheet: str
    """all of them in one picture, as a data URI"""
    relative: bool
    """whether the sheet holds what is added to the images, modulo 256, which is smaller where few pixels differ"""
    largest: float
    """the largest change of a pixel"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The gallery of a group in plain values."""

    places: list[int]
    """of the images among the test images"""
    labels: list[int]
    size: tuple[int, int]
    """width and height of an image in pixels"""
    sheet: str
    """the images as they are"""
    before: list[list[int]]
    """for each run, C(x) of each image"""
    attacked: list[Attacked]
    missing: list[str]
    """sentences on what is not shown, and why"""


@Engine().arithmetic()  # As in the evaluation, whose answers are beside these.
def draw_pictures(
    group: Group,
    *,
    images: int,
    attacks: Sequence[str] | None,
    seed: int,
    device: torch.device,
    room: int = MOST_BYTES,
    watcher: AttackWatcher | None = None,
) -> Pictures:
    """Attack a balanced choice of the test images once more, keeping the pictures."""
    missing: list[str] = []
    tasks = [
        (place, result, attack)
        for place, run in enumerate(group.runs)
        for result in run.report.attacks
        if attacks is None or result.name in attacks
        if (attack := wanted(run, result, missing)) is not None
    ]
    places = balanced(group.dataset.test_labels[: group.shared_images], images, seed)
    x = as_float(group.dataset.test_images[places].to(device))
    before = [clean_predictions(run, x, places) for run in group.runs]
    copies: list[tuple[Tensor, Tensor]] = []
    for place, result, attack in tasks:
        copies.append(attacked_images(group.runs[place], result, attack, x, before[place], device))
        if watcher is not None:
            standing = (copies[-1][1] == before[place]).double().mean().item()
            watcher.attacked(
                f"{result.name} on {group.runs[place].title} for {group.title}", len(x), len(x), standing
            )
    kept, sheets = within_room(x, copies, group.dataset.test_labels[places], room, seed)
    if len(kept) < len(places):
        missing.append(
            f"The gallery holds {counted(len(kept), 'image')}: {images} would make the page too large to send."
        )
    clean, *others = sheets
    labels = {(column.name, column.settings): column.label for column in columns_of(group)}
    chosen = [places[each] for each in kept]
    return Pictures(
        places=chosen,
        labels=group.dataset.test_labels[chosen].tolist(),
        size=(x.shape[3], x.shape[2]),
        sheet=clean[0],
        before=[said[kept].tolist() for said in before],
        attacked=[
            Attacked(
                run=place,
                attack=labels[result.name, result.settings],
                after=after[kept].tolist(),
                sheet=sheet,
                relative=relative,
                largest=(found[kept] - x[kept]).abs().max().item(),
            )
            for (place, result, _), (found, after), (sheet, relative) in zip(tasks, copies, others, strict=True)
        ],
        missing=missing,
    )


def within_room(
    x: Tensor, copies: Sequence[tuple[Tensor, Tensor]], labels: Tensor, room: int, seed: int
) -> tuple[list[int], list[tuple[str, bool]]]:
    """The sheets of as many images as so many bytes hold, a balanced choice of them, and which these are."""
    kept = list(range(len(x)))
    sheets = all_sheets(x, copies, kept)
    while (size := sum(len(sheet) for sheet, _ in sheets)) > room and len(kept) > 1:
        kept = balanced(labels, max(1, min(len(kept) - 1, int(len(kept) * room / size))), seed)
        sheets = all_sheets(x, copies, kept)
    return kept, sheets


def all_sheets(x: Tensor, copies: Sequence[tuple[Tensor, Tensor]], kept: list[int]) -> list[tuple[str, bool]]:
    """The sheet of the images that are kept, then those of their attacked copies, as themselves or as changes."""
    clean = as_bytes(x[kept])
    sheets = [(sheet_of(clean), False)]
    for found, _ in copies:
        attacked = as_bytes(found[kept])
        sheets.append(
            min(((sheet_of(attacked), False), (sheet_of(attacked - clean), True)), key=lambda pair: len(pair[0]))
        )
    return sheets


def wanted(run: EvaluatedRun, result: AttackResult, missing: list[str]) -> Attack | None:
    """The attack of a result, or a sentence on why there are no pictures of it."""
    attack = attack_of(result, run.recipe.data.name)
    if attack is None:
        missing.append(
            f"No pictures of {printable(result.name)} on {run.title}: its settings are none that this version knows."
        )
    return attack


def balanced(labels: Tensor, count: int, seed: int) -> list[int]:
    """Places of so many images, the same number of each class as nearly as there are any, in their order."""
    order = torch.randperm(len(labels), generator=generator(torch.device("cpu"), seed, "gallery")).tolist()
    seen: dict[int, int] = {}
    rounds: list[tuple[int, int]] = []
    for place in order:
        label = int(labels[place])
        seen[label] = seen.get(label, 0) + 1
        rounds.append((seen[label], place))
    return sorted(place for _, place in sorted(rounds, key=lambda pair: pair[0])[:count])


def clean_predictions(run: EvaluatedRun, x: Tensor, places: list[int]) -> Tensor:
    """C(x) of the chosen images; a model that is not the one of its report is refused."""
    said = predicted_classes(run.model.to(x.device), x).cpu()
    different = int((said != run.report.clean[places]).sum())
    if different > max(1, DOUBTFUL * len(places)):
        raise ValueError(
            f"the weights in {printable(run.directory)} are not those of its report.json ({different} of "
            f"{len(places)} clean predictions differ): run `unperturbed evaluate {in_shell(run.directory)}`"
        )
    return said


def attacked_images(
    run: EvaluatedRun, result: AttackResult, attack: Attack, x: Tensor, before: Tensor, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What an attack makes of the images, and what the model then says; points that do not count are left out."""
    defender = defended(run.model, precision_for(attack, "auto", device), x[:2], len(x))
    y = before.to(device)
    rng, again = (generator(device, run.report.seed, result.name, "gallery", word) for word in ("first", "again"))
    found, after = defender.attacked(attack, x, y, rng, again)
    valid = checked(attack, x, found)
    return torch.where(valid.view(-1, 1, 1, 1), found.to(x), x), torch.where(valid, after, y).cpu()


def as_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] as a screen shows them."""
    return (images.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8)


def sheet_of(images: Tensor) -> str:
    """Images of bytes beside and below each other, as the data URI of one PNG."""
    count, channels, height, width = images.shape
    rows = -(-count // IN_A_ROW)
    blank = torch.zeros(rows * IN_A_ROW - count, channels, height, width, dtype=torch.uint8)
    grid = torch.cat([images, blank]).view(rows, IN_A_ROW, channels, height, width)
    picture = grid.permute(0, 3, 1, 4, 2).reshape(rows * height, IN_A_ROW * width, channels)
    content = io.BytesIO()
    Image.fromarray(picture.squeeze(2).numpy()).save(content, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
