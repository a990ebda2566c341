"""Choosing the weights to keep, on labeled images held out of training; never on test images."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .answers import frozen, in_mode
from .inputs import as_float
from .losses import Against, margin
from .recipe import Validation
from .risks import decided
from .runtime import generator, out_of_memory

PART = 512
"""images measured at once, unless fewer go through the network in training"""


@dataclass(slots=True, kw_only=True)
class Selection:
    """The best weights so far, and the guard against catastrophic overfitting."""

    images: Tensor
    labels: Tensor
    validation: Validation
    seed: int
    at_once: int = PART
    """images that go through the network at once"""
    agreed: Callable[[float], float] = float
    """what several processes, each with statistics of its own, take the accuracy to be"""
    best: dict[str, Any] = field(default_factory=dict[str, Any])
    """accuracy, step, weights, and buffers that are none of them"""
    measured: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """the steps at which accuracy was measured, and what it was"""
    fallen: str = ""
    """what the guard saw when it stopped the run, in words"""

    def measure(self, f: nn.Module, step: int) -> None:
        """Remember f's weights if none before were better; notice a sudden fall.

        Of equally good ones the later have learned longer: of few images a model soon gets all.
        """
        accuracy = self.agreed(self.accuracy(f))
        self.measured.append((step, accuracy))
        best = self.best.get("accuracy", -1.0)
        if accuracy >= best:
            with in_mode(f, training=True):
                weights, buffers = map(as_of_now, (f.state_dict(), unsaved_buffers(f)))
            self.best = {"accuracy": accuracy, "step": step, "weights": weights, "buffers": buffers}
        elif accuracy < best - self.validation.drop:
            self.fallen = (
                f"accuracy on held-out images fell from {best:.1%} (step {self.best['step']}) to {accuracy:.1%} "
                f"(step {step}), as in catastrophic overfitting to a single step of search, or under too large a "
                f"lambda: training stops and the weights of step {self.best['step']} are kept; try NFGSM or PGD in "
                "the place of FGSM, or lower objective.weight or the learning rate"
            )

    @property
    def over(self) -> bool:
        """Whether the run ends before its last step: it has fallen, or patience is at an end."""
        patience = self.validation.patience
        if patience is None or len(self.measured) < patience:
            return bool(self.fallen)
        return bool(self.fallen) or self.measured[-patience][0] > self.best["step"]

    @property
    def keeps_best(self) -> bool:
        """Whether the run ends with the best weights: they are wanted, or the last have fallen."""
        return bool(self.best) and (self.validation.keep == "best" or bool(self.fallen))

    def restore(self, f: nn.Module) -> None:
        """Give f the best weights."""
        f.load_state_dict(self.best["weights"])
        put_back(f, self.best.get("buffers", {}))  # Old checkpoints hold none.

    def accuracy(self, f: nn.Module) -> float:
        """The share of held-out images that are classified correctly, also after the validation solver's search.

        The solver maximizes the margin, which a model that overfits to cross-entropy does not mask.
        """
        correct: list[Tensor] = []
        rng = generator(self.images.device, self.seed, "validation")
        for images, labels in zip(self.images.split(self.at_once), self.labels.split(self.at_once), strict=True):
            try:
                correct.append(self.stand(f, as_float(images), labels, rng))
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                raise MemoryError(
                    f"{len(images)} held-out images at a time do not fit into the memory of {images.device}: set "
                    f"--microbatch to {max(1, len(images) // 2)} or less"
                ) from None
        return torch.cat(correct).double().mean().item()

    def stand(self, f: nn.Module, x: Tensor, labels: Tensor, rng: Generator) -> Tensor:
        """Which of these images are classified correctly, before the search and after it."""
        solver = self.validation.solver
        with frozen(f):
            perturbed = x if solver is None else solver(Against(margin, f, labels), x, rng)
            with torch.no_grad():
                return (decided(f(x)) == labels) & (decided(f(perturbed)) == labels)


def unsaved_buffers(f: nn.Module) -> dict[str, Tensor]:
    """What f remembers and does not want in the file of its weights."""
    weights = f.state_dict()
    return {name: buffer.detach() for name, buffer in f.named_buffers() if name not in weights}


def put_back(f: nn.Module, buffers: dict[str, Tensor]) -> None:
    """Give f buffers that its weights leave out."""
    for name, buffer in buffers.items():
        f.get_buffer(name).copy_(buffer)


def as_of_now(state: dict[str, Any]) -> dict[str, Any]:
    """Copies of tensors, and of what else a model may want among its weights."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else deepcopy(value)
        for name, value in state.items()
    }
