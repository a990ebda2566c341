"""How f is asked: frozen while an adversary asks, for an opinion as a constant, in one outer pass or in several."""

from collections import abc
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


def own_opinion(f: nn.Module, x: Tensor) -> Tensor:
    """The logits f gives x, as constants; their argmax is C(x)."""
    with torch.no_grad():
        answer = f(x.clone())  # Where f works on it in place, a search would begin elsewhere.
    require_logits(answer)
    return answer


def require_logits(answer: object) -> None:
    """Refuse what is no row of logits for each image, as a tuple; of a single class any loss would be 0."""
    if isinstance(answer, Tensor) and answer.ndim == 2 and answer.shape[1] > 1:
        return
    given = f"the shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
    raise ValueError(
        f"a model must return logits of shape (batch, classes), of at least 2 classes, got {given}: return them "
        "alone, as by a module around the model"
    )


def outer_logits(f: nn.Module, *batches: Tensor, together: bool) -> tuple[Tensor, ...]:
    """The answers of f to each, in one outer pass, of which BatchNorm takes its statistics, or in one for each."""
    if not together:
        return passes(f, *batches)
    answer = f(torch.cat(batches))
    require_logits(answer)
    return answer.split([*map(len, batches)])


@runtime_checkable
class SeveralPasses(Protocol):
    """A classifier that takes several passes at a time."""

    def in_several_passes(self, *batches: Tensor) -> tuple[Tensor, ...]:
        """The answers to each batch, as if one had come after the other."""
        ...


def passes(f: nn.Module, *batches: Tensor) -> tuple[Tensor, ...]:
    """The answers of f to several batches, each a pass of its own."""
    if isinstance(f, SeveralPasses):
        return f.in_several_passes(*batches)
    return tuple(f(batch) for batch in batches)


def in_evaluation_mode(f: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode for a while, as `in_mode` has it."""
    return in_mode(f, training=False)


@contextmanager
def in_mode(f: nn.Module, *, training: bool) -> abc.Generator[None]:
    """Training or evaluation mode for a while; then each module is in the mode that it was in.

    It is put there by its `train`, which may do more than note the mode: adapters of low rank add up weights in it.
    So weights that are kept or averaged are those of training mode, in which they were learned.
    """
    modes = [(module, module.training) for module in f.modules()]
    try:
        f.train() if training else f.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                if module.training != mode:
                    module.train(mode)
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def frozen(f: nn.Module) -> abc.Generator[None]:
    """Evaluation mode and no parameter gradients while an adversary queries f; both are restored, come what may."""
    if not isinstance(f, nn.Module):
        raise ValueError(
            f"a model must be a torch.nn.Module, which can be frozen, got a {type(f).__name__}: call it in the "
            "forward of one"
        )
    # Weights that torch.func.functional_call was given may be results of operations, which have no flag to change.
    flags = [(parameter, parameter.requires_grad) for parameter in f.parameters() if parameter.is_leaf]
    if not torch.is_inference_mode_enabled() and any(parameter.is_inference() for parameter, _ in flags):
        raise ValueError(
            "weights made within torch.inference_mode have no gradients: make or load the model outside, or "
            "copy.deepcopy it there"
        )
    if isinstance(f, nn.parallel.DistributedDataParallel) and f.static_graph:
        raise ValueError(
            "DistributedDataParallel(static_graph=True) takes the slopes of a search for those of a step, and "
            "exchanges no others: leave static_graph out"
        )
    try:
        with in_evaluation_mode(f):
            stop_gradients(parameter for parameter, _ in flags)
            yield
    finally:
        for parameter, flag in flags:
            if parameter.requires_grad != flag:
                parameter.requires_grad_(flag)
        parametrize._cache.clear()  # pyright: ignore[reportPrivateUsage]  What was computed meanwhile has no gradient.
        torch.clear_autocast_cache()  # What an autocast that still lasts has cast in an earlier step is old.


def stop_gradients(weights: abc.Iterable[Tensor]) -> None:
    """Let no gradient come to these weights; where PyTorch does not let anybody say so, that is told."""
    try:
        for weight in weights:  # TorchScript refuses to do that for a whole module.
            weight.requires_grad_(False)
    except RuntimeError as error:
        raise ValueError(
            "within torch.func.grad, vmap and the like an adversary cannot take gradients of its own: call "
            "objectives and attacks outside of them, and take gradients by backward or torch.autograd.grad"
        ) from error
