"""Training objectives: what is minimized, as differentiable surrogates of the risks.

An objective is a frozen value that maps a classifier and a batch to two terms. It never touches an optimizer,
never logs and never waits for a device, so `objective(f, Batch(x, y, u), rng).total` fits any training loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from .answers import frozen, outer_logits, own_opinion, passes
from .given import Batch, images_of, labeled_images, with_pseudo_labels
from .losses import Against, at_least_float32, cross_entropy, kl, mean
from .neighborhoods import in_a_line, require_each, require_radius
from .solvers import PGD, Solver, Strongest, WorstOfK, found_by, require_choice, require_solver, takes


class Terms(NamedTuple):
    """The two summands of an objective, each already weighted; a trainer may ramp the second."""

    standard: Tensor
    robust: Tensor

    @property
    def total(self) -> Tensor:
        """What is minimized."""
        return self.standard + self.robust


@runtime_checkable
class Objective(Protocol):
    """What is minimized over the weights of f."""

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        """The terms of the objective on this batch; f is called in the mode it is in, adversaries see it frozen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """Standard training: the surrogate of R_stand(D_L), Eq. (2), alone."""

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        torch.clear_autocast_cache()  # Others do by freezing f: what a lasting autocast has cast before is old.
        standard = mean(cross_entropy(f(labeled_images(batch)), batch.y))
        return Terms(standard=standard, robust=torch.zeros_like(standard))


@dataclass(frozen=True, slots=True, kw_only=True)
class AT:
    """Adversarial training: the surrogate of R_adv(D_L), Eq. (3). With WorstOfK it is the Worst-of-k defense.

    Where a labeler has labeled u, those images count too: with a fixed teacher that is UAT-FT.
    """

    solver: Solver = field(default_factory=PGD)

    def __post_init__(self) -> None:
        require_solver("AT.solver", self.solver)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        x, y = with_pseudo_labels(batch)
        with frozen(f):
            perturbed = found_by(self.solver, Against(cross_entropy, f, y), x, rng)
        adversarial = mean(cross_entropy(f(perturbed), y))
        return Terms(standard=adversarial, robust=torch.zeros_like(adversarial))


@dataclass(frozen=True, slots=True, kw_only=True)
class SRT:
    """Semi-supervised robust training, Eq. (9), by (10) and (11); RT, Eq. (6), when the batch has no u."""

    solver: Solver = field(default_factory=PGD)
    weight: float = 1.0
    """lambda, the price of robust risk"""
    forward: Literal["separate", "together", "clean-again"] = "separate"
    """clean and perturbed images in two forward passes or in one: BatchNorm takes its statistics from a pass, and
    where perturbations change these, as warps do, one is better; or in two and then clean images again, as the
    authors' pixel-wise code does to count right answers: only running statistics notice, and C(x) by them"""
    mean: Literal["terms", "images"] = "terms"
    """a mean for each term, as in Eq. (9), or one over all images of both, as in the authors' spatial code"""
    targets: Literal["hard", "soft"] = "hard"
    """the labeler's class, C(x), or its probabilities"""
    smoothing: float = 0.0
    """share of the labels' weight that goes to all classes alike"""

    def __post_init__(self) -> None:
        require_solver("SRT.solver", self.solver)
        require_radius("SRT.weight", self.weight)
        require_choice("SRT.forward", self.forward, "separate", "together", "clean-again")
        require_choice("SRT.mean", self.mean, "terms", "images")
        require_choice("SRT.targets", self.targets, "hard", "soft")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"SRT.smoothing must be at least 0 and below 1, got {self.smoothing}")

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        pool = images_of(batch)
        with frozen(f):
            opinion = own_opinion(f, pool) if batch.opinion is None else batch.opinion.detach()
            predicted = opinion.argmax(1) if self.targets == "hard" else at_least_float32(opinion).softmax(1)
            perturbed = found_by(self.solver, Against(cross_entropy, f, predicted), pool, rng)
        again = [batch.x.clone()] if self.forward == "clean-again" else []
        on_clean, on_perturbed, *_ = outer_logits(f, batch.x, perturbed, *again, together=self.forward == "together")
        standard = cross_entropy(on_clean, batch.y, smoothing=self.smoothing)
        robust = cross_entropy(on_perturbed, predicted, smoothing=self.smoothing)
        if self.mean == "images":
            images = max(1, len(standard) + len(robust))
            return Terms(standard=standard.sum() / images, robust=self.weight * robust.sum() / images)
        return Terms(standard=mean(standard), robust=self.weight * mean(robust))


@dataclass(frozen=True, slots=True, kw_only=True)
class TRADES:
    """Cross-entropy plus weight KL(f(x) || f(x')), the adversary maximizing the KL (Zhang et al. 2019).

    Where a labeler has labeled u, those images count too: with a fixed teacher that is RST (Carmon et al. 2019).
    """

    solver: Solver = field(default_factory=PGD)
    weight: float = 6.0
    """beta, which the paper calls 1 / lambda"""

    def __post_init__(self) -> None:
        require_solver("TRADES.solver", self.solver)
        require_radius("TRADES.weight", self.weight)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        x, y = with_pseudo_labels(batch)
        with frozen(f):
            perturbed = found_by(self.solver, Against(kl, f, own_opinion(f, x)), x, rng)
        on_clean, on_perturbed = passes(f, x, perturbed)
        return Terms(standard=mean(cross_entropy(on_clean, y)), robust=self.weight * mean(kl(on_perturbed, on_clean)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KLR:
    """KL regularization: cross-entropy on x and x' plus weight KL(f(x) || f(x')) (Yang et al. 2019)."""

    solver: Solver = field(default_factory=WorstOfK)
    weight: float = 1.0
    """lambda of the regularizer"""
    labels_on: Literal["mixed", "clean"] = "mixed"
    """cross-entropy on clean and perturbed images, as its authors do, or on clean ones, as SRT's authors do"""

    def __post_init__(self) -> None:
        require_solver("KLR.solver", self.solver)
        require_radius("KLR.weight", self.weight)
        require_choice("KLR.labels_on", self.labels_on, "mixed", "clean")

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        x = labeled_images(batch)
        with frozen(f):
            perturbed = found_by(self.solver, Against(kl, f, own_opinion(f, x)), x, rng)
        on_clean, on_perturbed = outer_logits(f, x, perturbed, together=True)
        standard = mean(cross_entropy(on_clean, batch.y))
        if self.labels_on == "mixed":
            standard = (standard + mean(cross_entropy(on_perturbed, batch.y))) / 2
        return Terms(standard=standard, robust=self.weight * mean(kl(on_perturbed, on_clean)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UAT:
    """Unsupervised adversarial training (Uesato et al. 2019): KL consistency with the present answer to x.

    OT keeps the clean labels beside it; ++ replaces them by UAT-FT, adversarial training on the labels and a
    teacher's labels of u. With `PowerIteration` as the solver, OT is virtual adversarial training (Miyato et al.).
    """

    solver: Solver = field(default_factory=PGD)
    weight: float = 1.0
    """beta, the price of inconsistency; 6 in its paper, 1 on CIFAR-10 in the SRT paper"""
    form: Literal["OT", "++"] = "OT"
    """online targets alone, or with fixed targets too"""
    forward: Literal["separate", "together"] = "separate"
    """both terms in two forward passes or in one, as in SRT"""

    def __post_init__(self) -> None:
        require_solver("UAT.solver", self.solver)
        require_radius("UAT.weight", self.weight)
        require_choice("UAT.form", self.form, "OT", "++")
        require_choice("UAT.forward", self.forward, "separate", "together")

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        pool = images_of(batch)
        x, y = (batch.x, batch.y) if self.form == "OT" else with_pseudo_labels(batch)
        with frozen(f):
            present = own_opinion(f, pool)
            perturbed = found_by(self.solver, Against(kl, f, present), pool, rng)
            shown = x if self.form == "OT" else found_by(self.solver, Against(cross_entropy, f, y), x, rng)
        on_perturbed, on_shown = outer_logits(f, perturbed, shown, together=self.forward == "together")
        consistency = self.weight * mean(kl(on_perturbed, present))
        return Terms(standard=mean(cross_entropy(on_shown, y)), robust=consistency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The mean of several objectives: AT (average) is the mixture of AT over several neighborhoods."""

    objectives: tuple[Objective, ...]

    def __post_init__(self) -> None:
        require_each("Mixture.objectives", self.objectives, "objective", require_objective)

    def __call__(self, f: nn.Module, batch: Batch, rng: Generator, /) -> Terms:
        x = labeled_images(batch)
        each = (batch._replace(x=x.clone()) for _ in self.objectives)  # f may work on its images in place.
        every = [checked_terms(objective(f, own, rng)) for objective, own in zip(self.objectives, each, strict=True)]
        standard, robust = (torch.stack(terms).mean() for terms in zip(*every, strict=True))
        return Terms(standard=standard, robust=robust)


def checked_terms(terms: object) -> Terms:
    """What an objective has returned; refused where it is not two terms that are tensors."""
    if not isinstance(terms, Terms) or not all(isinstance(term, Tensor) for term in terms):
        raise ValueError(
            "an objective must return unperturbed.Terms(standard=..., robust=...), both tensors: where there is no "
            "robust term give torch.zeros_like(standard)"
        )
    return terms


def with_solvers(objective: Objective, change: Callable[[Solver], Solver]) -> Objective:
    """The same objective with each of its solvers changed, also those of the objectives in a mixture."""
    if not is_dataclass(objective) or isinstance(objective, type):
        return objective
    changes: dict[str, object] = {}
    for slot in fields(objective):
        part = getattr(objective, slot.name)
        if slot.name == "solver":
            changes[slot.name] = None if part is None else change(part)
        elif slot.name == "objectives":
            changes[slot.name] = tuple(with_solvers(one, change) for one in part)
    return replace(objective, **changes)


def solver_of(objective: object) -> Solver | None:
    """The search of an objective, of a mixture the strongest of all of them; none where there is no search."""
    parts = getattr(objective, "objectives", ())
    several = cast(Sequence[object], parts) if isinstance(parts, tuple | list) else ()
    found = [solver for part in several if (solver := solver_of(part)) is not None]
    own = getattr(objective, "solver", None)
    return Strongest(solvers=tuple(found)) if found else own if takes(own, 3) else None


def require_objective(name: str, objective: object) -> None:
    """Refuse what is no objective, as a class without its parentheses."""
    if isinstance(objective, type) or not takes(objective, 3):
        raise ValueError(
            f"{name} must be one that (f, batch, rng) can be given to, as SRT(), got {in_a_line(objective)}"
        )
