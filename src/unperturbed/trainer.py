"""The training loop: one stateful class, stopped and resumed at any step without a trace."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .data import Data, ProportionalBatches, augment
from .guards import CollapseAlarm, DivergedError, Record, blame
from .inputs import as_float, check_images, check_labels, output_classes
from .losses import Against, cross_entropy
from .objectives import Batch, Objective, Terms, frozen
from .recipe import SGD, Validation
from .runtime import derived_seed, generator
from .schedules import Ramp
from .solvers import require_count

PROBE = 256
"""images of each part on which C(x) is watched"""


class Watcher(Protocol):
    """Whoever looks at a run while it is going."""

    def stepped(self, step: int, steps: int, /) -> None:
        """A step was taken."""
        ...

    def logged(self, record: Record, /) -> None:
        """A line was added to the log."""
        ...

    def warned(self, sentence: str, /) -> None:
        """Something looks wrong."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """D_L with its labels, D_U and the validation part, as uint8 or float tensors on the device of the run."""

    labeled: Tensor
    labels: Tensor
    unlabeled: Tensor
    validation: Tensor
    validation_labels: Tensor

    def to(self, device: torch.device) -> "Images":
        """The same images on that device."""
        return Images(**{name: getattr(self, name).to(device) for name in self.__slots__})


@dataclass(kw_only=True)
class Trainer:
    """Outer minimization, Eq. (11), of any objective by SGD.

    Step t draws all of its random numbers from (seed, t), so weights, optimizer and t are the whole state of a run.
    """

    f: nn.Module
    images: Images
    objective: Objective
    steps: int
    batch: int = 128
    optimizer: SGD = field(default_factory=SGD)
    ramp: Ramp = field(default_factory=Ramp)
    augmentation: Data = field(default_factory=Data)
    validation: Validation = field(default_factory=Validation)
    seed: int = 0
    log_every: int = 50
    device: torch.device

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        self.f.to(self.device)
        self.images = self.images.to(self.device)
        self.check_inputs()
        self.batches = ProportionalBatches(
            labeled=len(self.images.labeled),
            unlabeled=len(self.images.unlabeled),
            batch=self.batch,
            seed=self.seed,
        )
        self.sgd = torch.optim.SGD(
            self.f.parameters(),
            lr=self.optimizer.rate(0.0),
            momentum=self.optimizer.momentum,
            weight_decay=self.optimizer.weight_decay,
            nesterov=self.optimizer.nesterov,
        )
        self.rng = generator(self.device, self.seed)
        self.step = 0
        self.since_log = torch.zeros(3, device=self.device, dtype=torch.float64)
        self.first_bad_step = torch.full((2,), self.steps, device=self.device)
        self.best: dict[str, Any] = {}
        rng = generator(torch.device("cpu"), self.seed, "probe")
        self.probe = [
            torch.randperm(len(part), generator=rng)[:PROBE].to(self.device)
            for part in (self.images.labeled, self.images.unlabeled)
        ]
        counts = self.images.labels.bincount()
        self.alarm = CollapseAlarm(largest_label_share=(counts.max() / counts.sum()).item())

    def check_inputs(self) -> None:
        """Refuse images, labels or a model that training cannot use, each in a sentence."""
        labeled, unlabeled = self.images.labeled, self.images.unlabeled
        if len(labeled) == 0:
            raise ValueError("no labeled image was given, expected at least one of each class")
        given, expected = ((part.dtype, *part.shape[1:]) for part in (unlabeled, labeled))
        if given != expected:
            raise ValueError(f"unlabeled images are {given} and labeled ones {expected}: bring them to one form")
        for images, what in ((labeled, "labeled images"), (unlabeled, "unlabeled images")):
            check_images(as_float(images), what)
        classes = output_classes(self.f, as_float(labeled[:2]))
        check_labels(self.images.labels, len(labeled), classes)
        absent = (self.images.labels.bincount(minlength=classes) == 0).nonzero().flatten().tolist()
        if absent:
            raise ValueError(
                f"no labeled image of class {absent[0]} was given, though the model has {classes} outputs: "
                "label at least one image of each class"
            )

    def advance(self) -> Terms:
        """Take one step and return the terms it minimized."""
        progress = (self.step + 0.5) / self.steps
        seed = derived_seed(self.seed, "step", self.step)
        self.rng.manual_seed(seed)
        torch.manual_seed(seed)  # Dropout knows no generator but the global one.
        for group in self.sgd.param_groups:
            group["lr"] = self.optimizer.rate(progress)
        self.f.train()
        terms = self.objective(self.f, self.draw(self.step), self.rng)
        self.sgd.zero_grad(set_to_none=True)
        (terms.standard + self.ramp(progress) * terms.robust).backward()
        self.sgd.step()
        self.note(terms)
        self.step += 1
        return terms

    def draw(self, step: int) -> Batch:
        """The batch of that step, augmented."""
        labeled, unlabeled = (rows.to(self.device) for rows in self.batches.rows(step))
        pool = torch.cat([self.images.labeled[labeled], self.images.unlabeled[unlabeled]])
        crop, flip = self.augmentation.crop, self.augmentation.flip
        x, u = as_float(augment(pool, self.rng, crop=crop, flip=flip)).split([len(labeled), len(unlabeled)])
        return Batch(x, self.images.labels[labeled].long(), u)

    def note(self, terms: Terms) -> None:
        """Keep account of the terms on the device, without waiting for it."""
        pair = torch.stack([terms.standard.detach(), terms.robust.detach()])
        self.since_log += torch.cat([pair, pair.new_ones(1)])
        self.first_bad_step = torch.where(
            pair.isfinite(), self.first_bad_step, self.first_bad_step.clamp_max(self.step)
        )

    def require_finite(self) -> None:
        """Raise once a term or a weight has stopped being a number."""
        standard, robust = self.first_bad_step.tolist()
        weights_are_finite = torch.stack([weight.detach().isfinite().all() for weight in self.f.parameters()]).all()
        if min(standard, robust) == self.steps and weights_are_finite:
            return
        found = "loss is" if min(standard, robust) < self.steps else "weights are"
        raise DivergedError(
            f"the {found} not finite from step {min(standard, robust, self.step)} on; most likely to blame is "
            f"{blame(standard > robust, self.optimizer)}: lower it; a checkpoint from before that is kept"
        )

    @torch.no_grad()
    def record(self, taken: int, seconds: float) -> Record:
        """A line of the log: the terms since the last line, and how C(x) fares on a fixed sample of both parts.

        The speed is that of the steps this process took.
        """
        standard, robust, steps = self.since_log.tolist()
        self.since_log.zero_()
        labeled, unlabeled = self.probe
        pool = torch.cat([self.images.labeled[labeled], self.images.unlabeled[unlabeled]])
        with frozen(self.f):
            predicted = self.f(as_float(pool)).argmax(1)
        progress = (self.step - 0.5) / self.steps
        return {
            "step": self.step,
            "rate": self.optimizer.rate(progress),
            "standard": standard / steps,
            "robust": robust / steps,
            "robust_weight": self.ramp(progress),
            "labeled_accuracy": (predicted[: len(labeled)] == self.images.labels[labeled]).double().mean().item(),
            "largest_class_share": (predicted.bincount().max() / len(predicted)).item(),
            "images_per_second": round(taken * self.batch / seconds, 1),
            "seconds": round(seconds, 3),
        }

    def validate(self) -> None:
        """Measure the held-out labeled images and remember the weights if they are the best so far."""
        correct: list[Tensor] = []
        rng = generator(self.device, self.seed, "validation")
        for images, labels in zip(
            self.images.validation.split(512), self.images.validation_labels.split(512), strict=True
        ):
            x = as_float(images)
            with frozen(self.f):
                solver = self.validation.solver
                perturbed = x if solver is None else solver(Against(cross_entropy, self.f, labels), x, rng)
                with torch.no_grad():
                    clean, attacked = self.f(x).argmax(1), self.f(perturbed).argmax(1)
            correct.append((clean == labels) & (attacked == labels))
        accuracy = torch.cat(correct).double().mean().item()
        if accuracy > self.best.get("accuracy", -1.0):
            weights = {name: tensor.detach().clone() for name, tensor in self.f.state_dict().items()}
            self.best = {"accuracy": accuracy, "step": self.step, "weights": weights}

    def run(
        self,
        *,
        watcher: Watcher | None = None,
        write_log: Callable[[Record], None] | None = None,
        write_checkpoint: Callable[[], None] | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> None:
        """Take the steps that remain; random numbers of the caller are left as they were."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            logged = saved = time.perf_counter()
            logged_step = self.step
            while self.step < self.steps:
                self.advance()
                done = self.step == self.steps
                if watcher is not None:
                    watcher.stepped(self.step, self.steps)
                if len(self.images.validation) and (done or self.step % self.validation.every == 0):
                    self.validate()
                if done or self.step % self.log_every == 0:
                    self.require_finite()
                    record = self.record(self.step - logged_step, time.perf_counter() - logged)
                    logged, logged_step = time.perf_counter(), self.step
                    self.publish(record, watcher, write_log)
                if write_checkpoint is not None and (done or time.perf_counter() - saved >= checkpoint_seconds):
                    self.require_finite()
                    write_checkpoint()
                    saved = time.perf_counter()
        self.f.eval()

    def publish(self, record: Record, watcher: Watcher | None, write_log: Callable[[Record], None] | None) -> None:
        """Hand a line of the log to whoever wants it, with a warning where it calls for one."""
        if write_log is not None:
            write_log(record)
        warning = self.alarm.sentence(record, self.step / self.steps)
        if watcher is not None:
            watcher.logged(record)
            if warning:
                watcher.warned(warning)

    def state(self) -> dict[str, Any]:
        """All that a later process needs to go on from here."""
        return {
            "step": self.step,
            "model": self.f.state_dict(),
            "optimizer": self.sgd.state_dict(),
            "since_log": self.since_log,
            "best": self.best,
            "best_labeled_accuracy": self.alarm.best_accuracy,
            "warned": self.alarm.raised,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` returned."""
        try:
            self.f.load_state_dict(state["model"])
            self.sgd.load_state_dict(state["optimizer"])
            self.step, self.best = state["step"], state["best"]
            self.since_log.copy_(state["since_log"])
            self.alarm.best_accuracy, self.alarm.raised = state["best_labeled_accuracy"], state["warned"]
        except (KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"the checkpoint does not fit this recipe ({reason}): delete it to start anew") from None

    def selected_weights(self) -> dict[str, Tensor]:
        """The weights to keep: the best on the validation part where there is one, else the last."""
        return self.best.get("weights") or self.f.state_dict()
