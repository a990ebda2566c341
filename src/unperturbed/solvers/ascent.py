"""Solvers that follow the gradient of the loss: Algorithms 1 and 2."""

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from ..losses import Loss, finite, of_each, slope_of
from ..neighborhoods import L2, Climber, Linf, Neighborhood, long_step, require_around, require_radius, to_be_drawn
from .definition import greater, require_choice, require_count, require_positive

Start = Literal["identity", "normal", "uniform"]
NOISE = 0.001
"""standard deviation of the noise of a normal start, where nobody says otherwise, in the units of theta"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PGD:
    """Algorithm 1: K ascent steps, each projected back into the neighborhood."""

    around: Neighborhood = field(default_factory=Linf)
    steps: int = 10
    """K, the number of steps"""
    step_size: float = 2 / 255
    """alpha: in pixel values for Linf, L2, L1 and L0, in units of the radius for Spatial, its kin and Composed"""
    start: Start = "normal"
    """at x, at x plus Gaussian noise, or uniformly in the neighborhood"""
    noise: float = NOISE
    """standard deviation of that Gaussian noise, in the units of theta"""
    keep: Literal["last", "best"] = "last"
    """which iterate is returned; the best costs one more forward pass"""

    def __post_init__(self) -> None:
        require_around("PGD.around", self.around)
        require_count("PGD.steps", self.steps)
        require_positive("PGD.step_size", self.step_size)
        require_radius("PGD.noise", self.noise)
        require_choice("PGD.start", self.start, *get_args(Start))
        require_choice("PGD.keep", self.keep, "last", "best")

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        theta = start_of(self.around, x, self.start, self.noise, rng)
        best, best_loss = theta, x.new_full((len(x),), -torch.inf)
        for _ in range(self.steps):
            value, gradient = ascent(loss, self.around, x, theta)
            if self.keep == "best":
                best, best_loss = greater(value, theta, best_loss, best)
            theta = climbed(self.around, x, theta, gradient, self.step_size)
        if self.keep == "best":
            with torch.no_grad():
                theta, _ = greater(loss(self.around.transform(x, theta)), theta, best_loss, best)
        return self.around.transform(x, theta).detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentumPGD:
    """PGD along the decayed sum of all gradients so far, each of L1 norm 1: MI-FGSM (Dong et al. 2018)."""

    around: Neighborhood = field(default_factory=Linf)
    steps: int = 10
    """number of steps"""
    step_size: float = 2 / 255
    """in pixel values for Linf and L2, in units of the radius for Spatial"""
    decay: float = 1.0
    """mu, the share of the momentum that the next step inherits"""
    start: Start = "identity"
    """at x, at x plus Gaussian noise, or uniformly in the neighborhood"""

    def __post_init__(self) -> None:
        require_around("MomentumPGD.around", self.around)
        require_count("MomentumPGD.steps", self.steps)
        require_positive("MomentumPGD.step_size", self.step_size)
        require_radius("MomentumPGD.decay", self.decay)
        require_choice("MomentumPGD.start", self.start, *get_args(Start))

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        theta = start_of(self.around, x, self.start, NOISE, rng)
        momentum = torch.zeros_like(theta)
        for _ in range(self.steps):
            gradient = finite(ascent(loss, self.around, x, theta)[1])
            size = gradient.flatten(1).abs().sum(1).view(-1, *[1] * (theta.dim() - 1))
            # Where the gradient vanishes, 0 / 0 would poison the momentum for good; it only decays instead.
            momentum = self.decay * momentum + gradient / size.masked_fill(size == 0, 1)
            theta = climbed(self.around, x, theta, momentum, self.step_size)
        return self.around.transform(x, theta).detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class FGSM:
    """Algorithm 2: one long step from a uniform start, as fast SRT takes it."""

    around: Neighborhood = field(default_factory=Linf)
    step: float = 1.25
    """length of the step in units of the radius"""
    start: Start = "uniform"
    """at x, at x plus Gaussian noise, or uniformly in the neighborhood"""

    def __post_init__(self) -> None:
        require_around("FGSM.around", self.around)
        require_positive("FGSM.step", self.step)
        require_choice("FGSM.start", self.start, *get_args(Start))

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        theta = start_of(self.around, x, self.start, NOISE, rng)
        _, gradient = ascent(loss, self.around, x, theta)
        theta = self.around.project(x, theta + long_step(self.around, x, theta, gradient, self.step))
        return self.around.transform(x, theta).detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class NFGSM:
    """One step from strong noise, not projected back: N-FGSM (de Jorge et al. 2022), for training alone.

    Its points lie up to (noise + step) radii from x. It costs what FGSM costs and does not overfit to single steps.
    """

    around: Neighborhood = field(default_factory=Linf)
    noise: float = 2.0
    """radius of the uniform noise, in units of the neighborhood's"""
    step: float = 1.0
    """length of the step in units of the radius"""

    def __post_init__(self) -> None:
        require_around("NFGSM.around", self.around)
        require_positive("NFGSM.noise", self.noise)
        require_positive("NFGSM.step", self.step)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        theta = self.around.scaled(self.noise).sample(x, rng)
        _, gradient = ascent(loss, self.around, x, theta)
        wider = self.around.scaled(self.noise + self.step)
        theta = wider.project(x, theta + long_step(self.around, x, theta, gradient, self.step))
        return self.around.transform(x, theta).detach()


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerIteration:
    """The direction in which a loss that is flat at x curves most, to the boundary: virtual adversarial training."""

    around: Neighborhood = field(default_factory=L2)
    iterations: int = 1
    """gradients taken at a small distance from x"""
    probe: float = 0.1
    """that distance, in units of the radius"""

    def __post_init__(self) -> None:
        require_around("PowerIteration.around", self.around)
        require_count("PowerIteration.iterations", self.iterations)
        require_positive("PowerIteration.probe", self.probe)

    def __call__(self, loss: Loss, x: Tensor, rng: Generator, /) -> Tensor:
        still = self.around.identity(x)
        slope = to_be_drawn(still).normal_(generator=rng)
        for _ in range(self.iterations):
            theta = self.around.project(x, long_step(self.around, x, still, slope, self.probe))
            _, slope = ascent(loss, self.around, x, theta)
        return self.around.transform(x, self.around.project(x, long_step(self.around, x, still, slope, 1.0))).detach()


def climbed(around: Neighborhood, x: Tensor, theta: Tensor, gradient: Tensor, length: float) -> Tensor:
    """Where a step of that length up the gradient leads, back in the neighborhood."""
    if isinstance(around, Climber):
        return around.climbed(x, theta, gradient, length)
    return around.project(x, theta + length * around.direction(gradient))


def start_of(around: Neighborhood, x: Tensor, start: Start, noise: float, rng: Generator) -> Tensor:
    """The theta an ascent starts from."""
    if start == "uniform":
        return around.sample(x, rng)
    theta = around.identity(x)
    if start == "normal":
        return around.project(x, theta + noise * to_be_drawn(theta).normal_(generator=rng))
    return theta


def ascent(loss: Loss, around: Neighborhood, x: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """The loss at T(x; theta) and its gradient with respect to theta, of which Linf takes the signs alone."""
    with torch.enable_grad():
        theta = theta.detach().requires_grad_()
        value = of_each(loss(around.transform(x, theta)), x)
        gradient = slope_of(value, theta, signs=isinstance(around, Linf))
    return value.detach(), gradient
