"""Choosing the weights to keep, on labeled images held out of training; never on test images."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .answers import frozen
from .inputs import as_float
from .losses import Against, margin
from .recipe import Validation
from .risks import decided
from .runtime import generator

PART = 512
"""images measured at once"""


@dataclass(slots=True, kw_only=True)
class Selection:
    """The best weights so far, and the guard against catastrophic overfitting."""

    images: Tensor
    labels: Tensor
    validation: Validation
    seed: int
    agreed: Callable[[float], float] = float
    """what several processes, each with statistics of its own, take the accuracy to be"""
    best: dict[str, Any] = field(default_factory=dict[str, Any])
    """accuracy, step and weights"""
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
            weights = {name: tensor.detach().clone() for name, tensor in f.state_dict().items()}
            self.best = {"accuracy": accuracy, "step": step, "weights": weights}
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
    def kept(self) -> dict[str, Tensor] | None:
        """The weights to end with: the best, or none where the last are wanted and nothing fell."""
        wanted = self.validation.keep == "best" or self.fallen
        return self.best.get("weights") if wanted else None

    def accuracy(self, f: nn.Module) -> float:
        """The share of held-out images that are classified correctly, also after the validation solver's search.

        The solver maximizes the margin, which a model that overfits to cross-entropy does not mask.
        """
        correct: list[Tensor] = []
        rng = generator(self.images.device, self.seed, "validation")
        for images, labels in zip(self.images.split(PART), self.labels.split(PART), strict=True):
            x = as_float(images)
            with frozen(f):
                solver = self.validation.solver
                perturbed = x if solver is None else solver(Against(margin, f, labels), x, rng)
                with torch.no_grad():
                    correct.append((decided(f(x)) == labels) & (decided(f(perturbed)) == labels))
        return torch.cat(correct).double().mean().item()
