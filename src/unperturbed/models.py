"""Networks: images in [0, 1], float of shape (B, C, H, W), go in; logits of shape (B, classes) come out.

In a recipe a network is an architecture: a frozen value that, applied to the shape of an image and the number
of classes, gives a network with fresh weights.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from .inputs import require

Shape = tuple[int, int, int]
"""(channels, height, width) of one image"""


@runtime_checkable
class Architecture(Protocol):
    """A network without its weights."""

    def __call__(self, shape: Shape, classes: int, /) -> nn.Module:
        """A network with fresh weights for images of this shape."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsCNN:
    """A small network for 8x8 digits, fast on a CPU: three convolutions with BatchNorm, two dense layers."""

    channels: tuple[int, int, int] = (16, 32, 32)
    """filters of each convolution; the second and the third halve the image"""
    hidden: int = 64
    """units of the first dense layer"""

    def __post_init__(self) -> None:
        valid = len(self.channels) == 3 and min(*self.channels, self.hidden) >= 1
        require(valid, f"DigitsCNN takes three channels and hidden units, all at least 1, got {self}")

    def __call__(self, shape: Shape, classes: int, /) -> nn.Module:
        require_task("DigitsCNN", shape, classes, smallest=4)
        first, second, third = self.channels
        height, width = ((side + 3) // 4 for side in shape[1:])
        return nn.Sequential(
            *(convolution(shape[0], first), normalized(first)),
            *(convolution(first, second, 2), normalized(second)),
            *(convolution(second, third, 2), normalized(third), nn.Flatten()),
            *(nn.Linear(third * height * width, self.hidden), nn.ReLU()),
            nn.Linear(self.hidden, classes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallCNN:
    """TRADES' network for MNIST: four convolutions without padding and three dense layers."""

    dropout: float = 0.5
    """share of the first dense layer's outputs that training drops"""

    def __post_init__(self) -> None:
        require(0 <= self.dropout < 1, f"SmallCNN.dropout must be at least 0 and below 1, got {self.dropout}")

    def __call__(self, shape: Shape, classes: int, /) -> nn.Module:
        require_task("SmallCNN", shape, classes, smallest=16)
        height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
        network = nn.Sequential(
            *(nn.Conv2d(shape[0], 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(64 * height * width, 200), nn.ReLU(), nn.Dropout(self.dropout)),
            *(nn.Linear(200, 200), nn.ReLU()),
            nn.Linear(200, classes),
        )
        for layer in network:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
                nn.init.zeros_(layer.get_parameter("bias"))
        # TRADES starts undecided: every logit of every image is 0.
        for parameter in network[-1].parameters():
            nn.init.zeros_(parameter)
        return network


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet:
    """The network of the spatial experiments: pre-activation units, and shortcuts that have no parameters."""

    filters: tuple[int, ...] = (16, 16, 32, 64)
    """of the first convolution, then of each group of units; every group but the first halves the image"""
    units: int = 5
    """residual units in each group"""
    standardize: bool = True
    """whether each image is first brought to mean 0 and variance 1"""

    def __post_init__(self) -> None:
        valid = len(self.filters) >= 2 and list(self.filters) == sorted(self.filters) and self.filters[0] >= 1
        require(valid, f"ResNet.filters must be two or more positive numbers that never fall, got {self.filters}")
        require(self.units >= 1, f"ResNet.units must be at least 1, got {self.units}")

    def __call__(self, shape: Shape, classes: int, /) -> nn.Module:
        require_task("ResNet", shape, classes, smallest=2 ** (len(self.filters) - 2))
        first, *_, last = self.filters
        stem = nn.Sequential(Standardize() if self.standardize else nn.Identity(), convolution(shape[0], first))
        # The authors' first shortcut starts behind its unit's activation, all others start before it.
        units = (
            preactivation_unit(step, pool_and_pad(step), shared=index == 0, slope=0.1)
            for index, step in enumerate(steps(self.filters, self.units))
        )
        return residual_network(stem, units, normalized(last, slope=0.1), nn.Linear(last, classes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet18:
    """ResNet-18 with the stem for small images: one 3x3 convolution and no pooling."""

    def __call__(self, shape: Shape, classes: int, /) -> nn.Module:
        require_task("ResNet18", shape, classes, smallest=8)
        stem = nn.Sequential(convolution(shape[0], 64), normalized(64))
        units = map(postactivation_unit, steps((64, 64, 128, 256, 512), units=2))
        return residual_network(stem, units, nn.Identity(), nn.Linear(512, classes))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreActResNet18:
    """ResNet-18 with BatchNorm and ReLU before each convolution, and once more before the pooling."""

    def __call__(self, shape: Shape, classes: int, /) -> nn.Module:
        require_task("PreActResNet18", shape, classes, smallest=8)
        units = map(projecting_unit, steps((64, 64, 128, 256, 512), units=2))
        return residual_network(convolution(shape[0], 64), units, normalized(512), nn.Linear(512, classes))


@dataclass(frozen=True, slots=True, kw_only=True)
class WideResNet:
    """WRN-depth-width as TRADES trains it: the paper's network for the pixel-wise experiments on CIFAR-10."""

    depth: int = 34
    """number of layers, 6n + 4 for n residual units in each of three groups"""
    width: int = 10
    """factor on the 16, 32 and 64 filters of the groups"""
    dropout: float = 0.0
    """share of the features between the two convolutions of a unit that training drops"""

    def __post_init__(self) -> None:
        valid = self.depth >= 10 and self.depth % 6 == 4
        require(valid, f"WideResNet.depth must be 6n + 4 with n at least 1, such as 28 or 34, got {self.depth}")
        require(self.width >= 1, f"WideResNet.width must be at least 1, got {self.width}")
        require(0 <= self.dropout < 1, f"WideResNet.dropout must be at least 0 and below 1, got {self.dropout}")

    def __call__(self, shape: Shape, classes: int, /) -> nn.Module:
        require_task("WideResNet", shape, classes, smallest=4)
        last = 64 * self.width
        groups = steps((16, last // 4, last // 2, last), units=(self.depth - 4) // 6)
        units = (projecting_unit(step, self.dropout) for step in groups)
        return residual_network(convolution(shape[0], 16), units, normalized(last), nn.Linear(last, classes))


class Normalize(nn.Module):
    """(x - mean) / std for each channel: as the first layer it leaves attacks on the scale of [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        valid = len(mean) == len(std) and all(deviation > 0 for deviation in std)
        require(valid, f"Normalize takes a mean and a positive std for each channel, got {mean} and {std}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Standardize(nn.Module):
    """Each image less its mean, over max(its standard deviation, 1 / sqrt(its number of elements))."""

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, dim=(1, 2, 3), correction=0, keepdim=True)
        # The bound precedes the root, whose gradient is infinite at the variance of a uniform image.
        return (x - mean) / variance.clamp_min(1 / x.shape[1:].numel()).sqrt()


class Sum(nn.Module):
    """residual(x) + shortcut(x)."""

    def __init__(self, residual: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.residual, self.shortcut = residual, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x) + self.shortcut(x)


class Step(NamedTuple):
    """The channels that enter a residual unit and leave it, and its stride."""

    entering: int
    leaving: int
    stride: int = 1

    @property
    def keeps_shape(self) -> bool:
        return self.stride == 1 and self.entering == self.leaving


def steps(filters: tuple[int, ...], units: int) -> Iterator[Step]:
    """A group of units for each number of filters after the first; all groups but the first halve the image."""
    for group, (entering, leaving) in enumerate(pairwise(filters)):
        yield Step(entering, leaving, stride=2 if group else 1)
        yield from [Step(leaving, leaving)] * (units - 1)


def preactivation_unit(
    step: Step, shortcut: nn.Module, *, shared: bool, slope: float = 0.0, dropout: float = 0.0
) -> nn.Module:
    """BatchNorm and activation before each of two convolutions; the shortcut may share the first activation."""
    active = normalized(step.entering, slope)
    between = (normalized(step.leaving, slope), nn.Dropout(dropout))
    residual = (convolution(*step), *between, convolution(step.leaving, step.leaving))
    if shared:
        return nn.Sequential(active, Sum(nn.Sequential(*residual), shortcut))
    return Sum(nn.Sequential(active, *residual), shortcut)


def projecting_unit(step: Step, dropout: float = 0.0) -> nn.Module:
    """A pre-activation unit that projects the shared activation where the shape changes."""
    shortcut = nn.Identity() if step.keeps_shape else convolution(*step, size=1)
    return preactivation_unit(step, shortcut, shared=not step.keeps_shape, dropout=dropout)


def postactivation_unit(step: Step) -> nn.Module:
    """BatchNorm after each of two convolutions, ReLU between them and after the sum."""
    second = (convolution(step.leaving, step.leaving), nn.BatchNorm2d(step.leaving))
    residual = nn.Sequential(convolution(*step), normalized(step.leaving), *second)
    projection = () if step.keeps_shape else (convolution(*step, size=1), nn.BatchNorm2d(step.leaving))
    return nn.Sequential(Sum(residual, nn.Sequential(*projection)), nn.ReLU())


def pool_and_pad(step: Step) -> nn.Module:
    """A shortcut without parameters: average pooling, then channels of zeros on either side."""
    if step.keeps_shape:
        return nn.Identity()
    added = step.leaving - step.entering
    zeros = nn.ZeroPad3d((0, 0, 0, 0, added // 2, added - added // 2))
    return nn.Sequential(nn.AvgPool2d(step.stride, ceil_mode=True), zeros)


def residual_network(stem: nn.Module, units: Iterable[nn.Module], last: nn.Module, dense: nn.Linear) -> nn.Module:
    """Stem, units, the last activation, global pooling and the dense layer, with the weights they start from."""
    head = {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "dense": dense}
    network = nn.Sequential(OrderedDict(stem=stem, units=nn.Sequential(*units), last=last, **head))
    nn.init.zeros_(dense.bias)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return network


def convolution(entering: int, leaving: int, stride: int = 1, *, size: int = 3) -> nn.Conv2d:
    """A convolution without bias that keeps the size of an image, up to its stride."""
    return nn.Conv2d(entering, leaving, size, stride, padding=size // 2, bias=False)


def normalized(channels: int, slope: float = 0.0) -> nn.Sequential:
    """BatchNorm, then ReLU, which leaks where it is given a slope."""
    return nn.Sequential(nn.BatchNorm2d(channels), nn.LeakyReLU(slope) if slope else nn.ReLU())


def require_task(name: str, shape: Shape, classes: int, *, smallest: int) -> None:
    """Refuse images that vanish on their way through the network, and tasks with nothing to tell apart."""
    least = (1, smallest, smallest)
    valid = len(shape) == 3 and all(size >= bound for size, bound in zip(shape, least, strict=True))
    require(
        valid, f"{name} needs images of shape {least} or larger, got {shape}: choose another recipe, or enlarge them"
    )
    require(classes >= 2, f"{name} needs at least 2 classes, got {classes}: label images of two or more")
