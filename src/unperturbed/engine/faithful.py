"""Whether a copy of a network that was traced is one: tracing follows what a network computes, and nothing else."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from ..runtime import random_numbers_kept
from .numbers import entries, places_of

AGREEMENT, SLOPES_AGREEMENT = 1e-4, 0.1
"""by how much of its largest logit, and of the length of its slopes, the copy may differ from the network, in float32

Where the input of a ReLU is 0 but for rounding, a copy may let through what the network holds back.
"""


def draws_numbers(f: nn.Module, images: Tensor) -> bool:
    """Whether f answers by random numbers: tracing would make constants of those that it draws meanwhile."""
    with random_numbers_kept(images.device), torch.no_grad():
        before = random_state(f, images.device)
        f(images)
        return random_state(f, images.device) != before


def makes_slopes(f: nn.Module, images: Tensor) -> bool:
    """Whether f has a backward pass of its own, as networks that round have: tracing follows the other alone."""
    with random_numbers_kept(images.device), torch.enable_grad():
        waiting = [f(images.detach().clone().requires_grad_()).grad_fn]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [behind for behind, _ in node.next_functions]
    return False


def leaves_tensors(f: nn.Module, images: Tensor) -> bool:
    """Whether a pass leaves tensors in f, as features for an attack to look up: questions to a copy leave none."""
    with random_numbers_kept(images.device), torch.no_grad():
        before = tensors_beside_weights(f)
        versions = [tensor._version for tensor in before]
        f(images)
        after = tensors_beside_weights(f)
    same = len(before) == len(after) and all(new is old for new, old in zip(after, before, strict=True))
    return not same or versions != [tensor._version for tensor in after]


def tensors_beside_weights(f: nn.Module) -> list[Tensor]:
    """Buffers, and what else f keeps; what modules of PyTorch keep otherwise, the next pass makes anew."""
    strange = [module for module in f.modules() if not type(module).__module__.startswith("torch.")]
    values = [value for place in places_of(strange) for _, value in entries(place)]
    return [*f.buffers(), *(value for value in values if isinstance(value, Tensor))]


def random_state(f: nn.Module, device: torch.device) -> object:
    """Where the random numbers stand that a network may draw, those of sources that it keeps itself too."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    own = [state_of(value) for place in places_of(f.modules()) for _, value in entries(place)]
    return [*(state.tolist() for state in states), random.getstate(), repr(np.random.get_state()), *own]


def state_of(source: object) -> object:
    """Where a source of random numbers stands; none where that is none."""
    match source:
        case random.Random():
            return source.getstate()
        case np.random.Generator():
            return repr(source.bit_generator.state)
        case np.random.RandomState():
            return repr(source.get_state())
        case Generator():
            return source.get_state().tolist()
        case _:
            return None


def agree(ours: Callable[[Tensor], Tensor], f: nn.Module, images: Tensor) -> bool:
    """Whether the copy answers these images as f does, and rises and falls around them alike.

    Tracing does not see that a network holds gradients back or changes them: an attack on the copy would go astray.
    """
    with torch.no_grad():
        answers = ours(images), f(images)
    if answers[0].shape != answers[1].shape or not near(*answers, AGREEMENT, of=torch.inf, least=1e-3):
        return False
    return near(slopes_around(ours, images), slopes_around(f, images), SLOPES_AGREEMENT, of=2)


def near(ours: Tensor, its: Tensor, share: float, *, of: float, least: float = 0.0) -> bool:
    """Whether two tensors lie apart by at most that share of the second, or of `least`, measured by that norm."""
    apart, length = (torch.linalg.vector_norm(tensor, of) for tensor in (ours - its, its))
    return bool((apart <= share * length.clamp_min(least)).item())


def slopes_around(f: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The gradient of some sum of logits near these images; zeros where f has none.

    Near, since in images of one color many maxima are tied, and rounding breaks the ties.
    """
    rng = Generator().manual_seed(0)
    with torch.enable_grad():
        noise = torch.rand(images.shape, generator=rng, dtype=images.dtype).to(images.device)
        x = (0.8 * images.detach() + 0.2 * noise).requires_grad_()
        logits = f(x)
        if not logits.requires_grad:
            return torch.zeros_like(x)
        weights = torch.rand(logits.shape, generator=rng, dtype=logits.dtype).to(logits.device)
        # A product is first on the way back: where a matrix product is, on a GPU, cuBLAS warns of a missing context.
        (slopes,) = torch.autograd.grad((weights * logits).sum(), x, materialize_grads=True)
    return slopes
