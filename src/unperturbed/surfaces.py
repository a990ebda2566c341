"""Decision and loss surfaces: what f says of the images around one, over two directions (paper, Decision Surface)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Literal, get_args

import torch
from torch import Generator, Tensor, nn

from .answers import frozen
from .engine import Engine
from .inputs import as_float, check_images, check_labels, output_classes, require
from .losses import cross_entropy, margin, slope_of
from .neighborhoods import Linf, Spatial, require_radius
from .runtime import generator
from .solvers import require_choice, require_count

Value = Literal["decision", "loss"]
Scenario = Literal["pixel", "spatial"]
Directions = Literal["adversarial", "random"]
REACH: Mapping[Scenario, tuple[float, float]] = {"pixel": (8 / 255, 8 / 255), "spatial": (30.0, 3.0)}
"""how far a surface extends where nothing else is said: eps both ways, or degrees and pixels"""
AT_ONCE = {"cpu": 128, "cuda": 4096}
"""points in one query: what stays in the caches of a CPU, and what fills a GPU"""
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surface:
    """A number for each point of a grid around one image, the image itself in the middle."""

    values: Tensor
    """(rows, columns), float32 on the CPU: D(x') = p_y - max_{i != y} p_i, or the loss -log p_y; NaN, a gap
    in a figure, where f answers with no finite number, which is never right"""
    down: Tensor
    """coordinates of the rows; pixel: steps along the first direction, in pixel values; spatial: degrees clockwise"""
    across: Tensor
    """coordinates of the columns; pixel: along the second direction; spatial: pixels to the right"""
    value: Value
    scenario: Scenario
    index: int
    """number of the image among the test images"""
    label: int
    """y"""
    axes: tuple[str, str]
    """names of the two coordinates, with their units, for the axes of a figure"""

    @property
    def correct(self) -> float | None:
        """The share of points that are classified correctly, D(x') > 0; a loss does not tell."""
        return (self.values > 0).double().mean().item() if self.value == "decision" else None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest of the values, but for gaps."""
        low, high = self.values[self.values.isfinite()].aminmax()
        return low.item(), high.item()

    @property
    def gaps(self) -> int:
        """At how many points f answers with no finite number."""
        return int(self.values.isnan().sum())


@Engine().arithmetic()  # Differences of neighbors are small: the rounding of TF32 would pass for ruggedness.
def surface(
    f: nn.Module,
    x: Tensor,
    y: Tensor | int,
    *,
    scenario: Scenario,
    value: Value = "decision",
    points: int = 101,
    reach: tuple[float, float] | None = None,
    directions: Directions = "adversarial",
    seed: int = 0,
    index: int = 0,
    at_once: int | None = None,
) -> Surface:
    """The surface of f around the image x, (C, H, W), whose class is y; f stays where it is and as it is.

    Pixel: x' = x + s a + t r, kept in [0, 1]. a is the sign of the gradient of the margin at x, or random signs; r
    are random signs orthogonal to it. Linf(x', x) is |s| + |t|, so that the ball of radius eps is a diamond.
    Spatial: x is turned by s degrees and moved to the right by t pixels. `reach` bounds |s| and |t|.
    """
    require_known(scenario, value, directions)
    low, high = reach or REACH[scenario]
    require_radius("the reach of a surface", low)
    require_radius("the reach of a surface", high)
    if points < 2:
        raise ValueError(f"a surface needs at least 2 points along each axis, got {points}")
    place = next((weight.device for weight in f.parameters()), x.device)
    image = as_float(x if x.dim() == 4 else x.unsqueeze(0)).to(place)
    check_images(image, "the image of a surface")
    if len(image) != 1:
        raise ValueError(f"a surface surrounds one image, got {len(image)}: choose one")
    label = torch.as_tensor(y, device=place).reshape(-1)
    check_labels(label, 1, output_classes(f, image), "the label of a surface")
    batch = AT_ONCE.get(place.type, 512) if at_once is None else at_once
    require_count("at_once", batch)
    down, across = coordinates(low, points), coordinates(high, points)
    with frozen(f):
        if scenario == "pixel":
            rng = generator(CPU, seed, "surface", index)
            displaced = partial(steps_along, image, *two_directions(f, image, label, directions, rng))
        else:
            displaced = partial(moved, image)
        steps = torch.cartesian_prod(down, across).to(image).split(batch)
        found = torch.cat([values_of(f, displaced(part), label.expand(len(part)), value) for part in steps])
    if not found.isfinite().any():
        raise ValueError("the model answers every point of this surface with NaN or infinity: check its weights")
    first = "adversarial direction" if directions == "adversarial" else "random signs"
    return Surface(
        values=found.where(found.isfinite(), nan).view(points, points).float().cpu(),
        down=down.float(),
        across=across.float(),
        value=value,
        scenario=scenario,
        index=index,
        label=int(label),
        axes=(
            (f"{first} (eps)", "random orthogonal direction (eps)")
            if scenario == "pixel"
            else ("rotation (degrees)", "translation (pixels)")
        ),
    )


def require_known(scenario: str, value: str, directions: str) -> None:
    """Refuse words for a surface that mean nothing, alone or together."""
    require_choice("scenario", scenario, *get_args(Scenario))
    require_choice("value", value, *get_args(Value))
    require_choice("directions", directions, *get_args(Directions))
    if scenario == "spatial" and directions == "random":
        raise ValueError("a spatial surface goes along rotation and translation, not along directions: omit them")


def coordinates(reach: float, points: int) -> Tensor:
    """Equally spaced numbers from -reach to reach; with an odd number of points the middle one is exactly 0."""
    steps = torch.arange(points, dtype=torch.float64) - (points - 1) / 2
    return steps * (2 * reach / (points - 1))


def two_directions(
    f: nn.Module, x: Tensor, y: Tensor, directions: Directions, rng: Generator
) -> tuple[Tensor, Tensor]:
    """The sign of the gradient of the margin at x, or random signs, and random signs orthogonal to these.

    The margin of the logits, unlike the loss, has a gradient where f is so sure that the softmax is flat. Pixels
    without a gradient get a random sign.
    """
    first = random_signs(x, rng)
    if directions == "adversarial":
        point = x.detach().requires_grad_()
        with torch.enable_grad():
            answer = f(point.clone())  # It may work in place on what it is given.
            require(
                answer.requires_grad or torch.is_inference_mode_enabled(),
                "the model passes no gradient from its answer to the image, which an adversarial direction follows: "
                "set directions to random",
            )
            slope = slope_of(margin(answer, y).sum(), point)
        uphill = Linf().direction(slope)
        first = torch.where(uphill == 0, first, uphill)
    return first, first * half_flipped(x, rng)


def random_signs(x: Tensor, rng: Generator) -> Tensor:
    """1 or -1 for each pixel, drawn on the CPU so that they are the same on every device."""
    return (2 * torch.randint(2, x.shape, generator=rng) - 1).to(x)


def half_flipped(x: Tensor, rng: Generator) -> Tensor:
    """1 for a random half of the pixels and -1 for the other; 0 for the one that is left over of an odd number."""
    order = torch.randperm(x.numel(), generator=rng)
    signs = torch.zeros(x.numel())
    signs[order[: x.numel() // 2]] = 1
    signs[order[x.numel() - x.numel() // 2 :]] = -1
    return signs.view(x.shape).to(x)


def steps_along(x: Tensor, first: Tensor, second: Tensor, steps: Tensor) -> Tensor:
    """The points x + s a + t r for each row (s, t), kept in [0, 1]."""
    s, t = steps.view(-1, 2, 1, 1, 1).unbind(1)
    return (x + s * first + t * second).clamp(0, 1)


def moved(x: Tensor, steps: Tensor) -> Tensor:
    """The image turned by s degrees and moved to the right by t pixels, for each row (s, t)."""
    theta = torch.cat([steps, torch.zeros_like(steps[:, :1])], dim=1)
    return Spatial().transform(x.expand(len(theta), -1, -1, -1), theta)


@torch.no_grad()
def values_of(f: nn.Module, images: Tensor, labels: Tensor, value: Value) -> Tensor:
    """D or the loss of each image."""
    logits = f(images)
    return cross_entropy(logits, labels) if value == "loss" else -margin(logits.softmax(1), labels)
