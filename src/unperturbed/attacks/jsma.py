"""The fewest pixels whose change fools a classifier, chosen by saliency."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..answers import frozen
from ..losses import slope_of
from ..neighborhoods import L0, changed_pixels
from ..risks import decided
from ..solvers import require_choice, require_count
from .rounds import followed

ROOM = 0.01
"""how far from its bound a feature must lie to be worth moving"""


class Walks(NamedTuple):
    """Images on their way to a target class, several for one image where several targets are tried."""

    owner: Tensor
    """number of the image each walk started from"""
    target: Tensor
    """the class each walk leads to"""
    point: Tensor
    """where each walk has come to, (walks, C, H, W)"""

    def where(self, keep: Tensor) -> "Walks":
        """The walks that a mask keeps."""
        return Walks(self.owner[keep], self.target[keep], self.point[keep])


@dataclass(frozen=True, slots=True, kw_only=True)
class JSMA:
    """Jacobian-based saliency maps (Papernot et al. 2016): the most salient pair of features moves, step after step.

    A feature is one channel of a pixel. A pair is salient for a target class if moving it raises that logit and
    lowers the sum of all others: the product of the two is maximized over all pairs. Where no pair does both, the
    pair that raises the difference most moves. An image is done as soon as f misclassifies it; one in which as many
    pixels as may be are changed goes on in their other channels.
    """

    pixels: int = 20
    """largest number of changed pixels, two a step at most"""
    theta: float = 1.0
    """how far a feature moves in a step, on the scale of [0, 1]; darker where it is negative"""
    target: Literal["all", "next", "random"] = "all"
    """every other class, of which the smallest change wins; (y + 1) mod classes; or any other class"""

    def __post_init__(self) -> None:
        if self.pixels < 2:
            raise ValueError(f"JSMA.pixels must be at least 2, since pixels change in pairs, got {self.pixels}")
        require_count("JSMA.pixels", self.pixels)
        if not ROOM <= abs(self.theta) <= 1:
            raise ValueError(f"JSMA.theta must lie between {ROOM} and 1 or between -1 and -{ROOM}, got {self.theta}")
        require_choice("JSMA.target", self.target, "all", "next", "random")

    @property
    def within(self) -> L0:
        """The number of pixels up to which a point counts."""
        return L0(pixels=self.pixels)

    @property
    def budget(self) -> str:
        """The budget in words."""
        aim = "all targets" if self.target == "all" else f"{self.target} target"
        return f"{self.within}, moved by {self.theta:g}, {aim}"

    def size(self, x: Tensor, perturbed: Tensor) -> Tensor:
        """The number of changed pixels of each image."""
        return changed_pixels(perturbed - x)

    def __call__(self, f: nn.Module, x: Tensor, y: Tensor, rng: Generator, /) -> Tensor:
        x = x.detach()
        if len(x) == 0:
            return x
        found, found_size = x.clone(), torch.full_like(y, x[0].numel() + 1, dtype=torch.long)
        with frozen(f):
            with torch.no_grad():
                classes = f(x[:1]).shape[1]
            targets = self.targets(y, classes, rng)
            # About as many walks at a time as there are images, however many classes there are.
            for rows in torch.arange(len(x), device=x.device).split(max(1, len(x) // targets.shape[1])):
                owner = rows.repeat_interleave(targets.shape[1])
                walks = Walks(owner, targets[rows].flatten(), x[owner])
                for _ in range(self.pixels * x.shape[1] // 2 + 1):
                    if len(walks.owner) == 0:
                        break
                    predicted, rise, fall = slopes(f, walks, at_once=len(x))
                    sizes = changed_pixels(walks.point - x[walks.owner])
                    allowed, fooled = sizes <= self.pixels, predicted != y[walks.owner]
                    keep_smallest(found, found_size, walks, sizes, fooled & allowed)
                    going = ~fooled & allowed & (sizes < found_size[walks.owner])
                    full = (sizes >= self.pixels)[going]
                    walks = self.advanced(walks.where(going), x, full, rise[going], fall[going])
        return found

    def targets(self, y: Tensor, classes: int, rng: Generator) -> Tensor:
        """The classes that walks lead to, shape (images, walks of each)."""
        if self.target == "random":
            ahead = torch.randint(1, classes, (len(y), 1), generator=rng, device=y.device)
        else:
            ahead = torch.arange(1, classes if self.target == "all" else 2, device=y.device).expand(len(y), -1)
        return (y.unsqueeze(1) + ahead) % classes

    def advanced(self, walks: Walks, x: Tensor, full: Tensor, rise: Tensor, fall: Tensor) -> Walks:
        """Every walk one step on, a full one in pixels it has changed; those end that have no pair left to move."""
        room = (1 - walks.point if self.theta > 0 else walks.point) > ROOM
        changed = (walks.point != x[walks.owner]).any(1, keepdim=True)
        room = (room & (changed | ~full.view(-1, 1, 1, 1))).flatten(1)
        going = room.sum(1) >= 2
        walks, room = walks.where(going), room[going]
        up, down = rise[going], fall[going]
        if self.theta < 0:
            up, down = -up, -down
        if len(up) == 0:
            return walks
        pair = most_salient_pair(up.masked_fill(~room, -torch.inf), down.masked_fill(~room, -torch.inf))
        moved = walks.point.flatten(1).scatter_add(1, pair, torch.full_like(pair, self.theta, dtype=up.dtype))
        return walks._replace(point=moved.clamp(0, 1).view_as(walks.point))


def slopes(f: nn.Module, walks: Walks, *, at_once: int) -> list[Tensor]:
    """C(point), the gradient of the target's logit and the negated one of the sum of all others, by feature."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for point, target in zip(walks.point.split(at_once), walks.target.split(at_once), strict=True):
        with torch.enable_grad():
            point, logits = followed(f, point)
            rise = slope_of(logits.gather(1, target.unsqueeze(1)).sum(), point, again=True)
            total = slope_of(logits.sum(), point)
        parts.append((decided(logits), rise.flatten(1), (rise - total).flatten(1)))
    return [torch.cat(column) for column in zip(*parts, strict=True)]


def keep_smallest(found: Tensor, found_size: Tensor, walks: Walks, sizes: Tensor, fooled: Tensor) -> None:
    """Write the smallest change that fooled f into `found`, where it is smaller than what stands there."""
    rows = fooled.nonzero().squeeze(1)
    if len(rows) == 0:
        return
    # One number holds the size and, below it, the row: the least of each image names the row to copy.
    rank = sizes[rows] * len(rows) + torch.arange(len(rows), device=rows.device)
    least = (found_size * len(rows)).scatter_reduce(0, walks.owner[rows], rank, "amin")
    better = least < found_size * len(rows)
    found[better] = walks.point[rows[least[better] % len(rows)]]
    found_size[better] = least[better] // len(rows)


def most_salient_pair(rise: Tensor, fall: Tensor) -> Tensor:
    """The two features of each row, shape (N, 2), with the largest (rise_p + rise_q) (fall_p + fall_q).

    Both sums must be positive; where no pair has that, the two of the largest rise + fall. Features that may not be
    chosen hold -inf in both. All pairs are searched, but only those of contenders are looked at.
    """
    rows, features = rise.shape
    contender, up, down = contenders(rise, fall)
    count = contender.shape[1]
    numbers = torch.arange(count, device=rise.device)
    pair, best = (rise + fall).topk(2).indices, rise.new_full((rows, 1), -torch.inf)
    for first in numbers.split(max(1, features // count)):
        rises, falls = (slope[:, first, None] + slope[:, None, :] for slope in (up, down))
        valid = (rises > 0) & (falls > 0) & (first[:, None] != numbers)
        score, place = (rises * falls).masked_fill(~valid, -torch.inf).flatten(1).max(1, keepdim=True)
        chosen = contender.gather(1, torch.cat([first[place // count], place % count], dim=1))
        pair, best = torch.where(score > best, chosen, pair), torch.maximum(score, best)
    return pair


def contenders(rise: Tensor, fall: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The features that at most one other beats in both slopes, (N, K), with these slopes; -inf fills up a row.

    A feature that two others beat is in no best pair, or in one that is as good without it: whichever of the two
    is not its partner can take its place.
    """
    order = torch.sort(rise, dim=1, descending=True, stable=True).indices
    falls = fall.gather(1, order)
    largest_before = before(falls.cummax(1).values)
    second_before = before(torch.minimum(falls, largest_before).cummax(1).values)
    keep = falls > second_before
    row, slot = keep.nonzero(as_tuple=True)[0], (keep.cumsum(1) - 1)[keep]
    shape = (len(rise), int(slot.max()) + 1 if len(slot) else 1)
    kept = order[keep]
    contender = order.new_zeros(shape).index_put((row, slot), kept)
    up, down = (rise.new_full(shape, -torch.inf).index_put((row, slot), slope[row, kept]) for slope in (rise, fall))
    return contender, up, down


def before(running: Tensor) -> Tensor:
    """A running maximum without the present element: everything moves one place on."""
    return torch.nn.functional.pad(running[:, :-1], (1, 0), value=-torch.inf)
