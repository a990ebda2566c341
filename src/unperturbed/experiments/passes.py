"""Forward and backward passes of a step, counted on a small network: what a method costs, whatever the network."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor, nn

from ..answers import frozen
from ..attacks import AutoAttack, Pointwise
from ..objectives import Batch
from ..recipe import Recipe
from ..recipes.budgets import Stated

CLASSES, SIDE = 10, 8
BATCH = 60
"""images of the step that is counted: divisible in the proportions of both data sets"""
TRAINING_IMAGES = {"mnist": 60_000, "cifar10": 50_000, "digits": 1_397}
POINTWISE = 0.25
"""tries to take a pixel back, for each pixel of an image: 0.27 and 0.15 for two small networks trained on MNIST,
standard and adversarially; most of an image need not change before noise fools a network"""
AUTOATTACK = 15_000.0
"""passes of an image that stands: 30 seconds for 1,000 images, of which 47 % stood, make 14,000 on a ResNet-18, by
the passes a second of its training (docs/performance.md)"""


@dataclass(slots=True)
class Passes:
    """Images that went through a network and gradients that came back."""

    forward: float = 0.0
    backward_to_images: float = 0.0
    """through the network to its input, with weights that stand still"""
    backward_to_weights: float = 0.0

    @property
    def all(self) -> float:
        """Forward and backward passes together."""
        return self.forward + self.backward_to_images + self.backward_to_weights

    @property
    def worth(self) -> float:
        """The same in forward passes: a gradient of the images costs about one more, those of the weights two."""
        return self.forward + self.backward_to_images + 2 * self.backward_to_weights

    def divided(self, by: float) -> "Passes":
        """The passes for each of so many images."""
        return Passes(self.forward / by, self.backward_to_images / by, self.backward_to_weights / by)


@contextmanager
def counting(f: nn.Module) -> Generator[Passes]:
    """Within this, every image that passes f is counted, and every gradient that comes back from its answer."""
    passes = Passes()

    def answered(module: nn.Module, _: tuple[Tensor, ...], answer: Tensor) -> None:
        passes.forward += len(answer)
        if not answer.requires_grad:
            return
        to_weights = any(weight.requires_grad for weight in module.parameters())

        def came_back(gradient: Tensor) -> None:
            if to_weights:
                passes.backward_to_weights += len(gradient)
            else:
                passes.backward_to_images += len(gradient)

        answer.register_hook(came_back)

    handle = f.register_forward_hook(answered)
    try:
        yield passes
    finally:
        handle.remove()


@lru_cache(maxsize=256)
def passes_of_step(recipe: Recipe, labeled: int, unlabeled: int) -> Passes:
    """The passes of one step by that recipe on so many labeled and unlabeled images, a teacher's among them."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(labeled + unlabeled, 1, SIDE, SIDE, generator=rng)
    y = torch.randint(CLASSES, (labeled,), generator=rng)
    f = nn.Sequential(nn.Flatten(), dense_layer(SIDE * SIDE))
    with counting(f) as passes:
        opinion = None
        if recipe.labeler != "current":
            with frozen(f), torch.no_grad():
                opinion = f(x)
        batch = Batch(x[:labeled], y, x[labeled:], opinion)
        recipe.objective(f, batch, rng).total.backward()
    return passes


def passes_of_image(recipe: Recipe) -> Passes:
    """The passes of a step for each of its images, in the proportions that its data have."""
    images = TRAINING_IMAGES[recipe.data.name]
    whole = images if recipe.data.labeled is None else recipe.data.labeled
    rest = images - whole if recipe.data.unlabeled is None else recipe.data.unlabeled
    labeled = max(1, round(BATCH * whole / (whole + rest)))
    return passes_of_step(unsized(recipe), labeled, BATCH - labeled).divided(BATCH)


def unsized(recipe: Recipe) -> Recipe:
    """The recipe in so far as the passes of a step depend on it, so that what is counted once is known."""
    return Recipe(objective=recipe.objective, labeler=recipe.labeler)


def passes_of_attack(attack: Stated, shape: tuple[int, int, int]) -> float:
    """What an attack on one image costs in forward passes, where it has to go on to its end."""
    if isinstance(attack, AutoAttack):
        return AUTOATTACK
    if isinstance(attack, Pointwise):
        return attack.restarts * (attack.noises + POINTWISE * prod(shape[1:]))
    return counted_attack(attack, shape)


@lru_cache(maxsize=256)
def counted_attack(attack: Stated, shape: tuple[int, int, int]) -> float:
    """Counted on two images against a network that no perturbation changes the mind of."""
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(2, *shape, generator=rng)
    dense = dense_layer(x[0].numel())
    f = nn.Sequential(nn.Flatten(), dense)
    nn.init.normal_(dense.weight, std=1e-6, generator=rng)
    with torch.no_grad():
        dense.bias.copy_(100.0 * (torch.arange(CLASSES) == 0))
    f.eval()
    y = f(x).argmax(1)
    with counting(f) as passes:
        attack(f, x, y, rng)
    return passes.divided(len(x)).worth


def dense_layer(features: int) -> nn.Linear:
    """A layer with the same weights each time; random numbers of the caller are left as they were."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(0)
        return nn.Linear(features, CLASSES)
