"""The training loop: one stateful class, stopped and resumed at any step without a trace."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import nn

from .averaging import Average, AveragedModel, estimate_batchnorm
from .awp import perturbed_weights, remembering
from .data import Data, ProportionalBatches, augment
from .guards import CollapseAlarm, DivergedError, Record, blame
from .images import Images
from .inputs import as_float
from .objectives import SRT, Batch, Objective, Terms, frozen, own_opinion
from .recipe import SGD, Validation
from .runtime import derived_seed, generator
from .schedules import Ramp
from .selection import Selection
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
    averaging: Average = field(default_factory=Average)
    labeler: Literal["current", "average"] | nn.Module = "current"
    """whose predictions are C(x): those of f, of its average, or of a teacher"""
    weight_perturbation: float = 0.0
    """radius of AWP as a share of each weight tensor's norm; 0: none"""
    seed: int = 0
    log_every: int = 50
    device: torch.device

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        if self.labeler == "average" and not self.averaging.decay:
            raise ValueError("the average labels, but none is kept: set --averaging.decay, to 0.99 for example")
        self.f.to(self.device)
        self.images = self.images.to(self.device)
        self.images.check(self.f)
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
        self.selection = Selection(
            images=self.images.validation,
            labels=self.images.validation_labels,
            validation=self.validation,
            seed=self.seed,
        )
        self.average = AveragedModel(self.f, self.averaging.decay) if self.averaging.decay else None
        rng = generator(torch.device("cpu"), self.seed, "probe")
        self.probe = [
            torch.randperm(len(part), generator=rng)[:PROBE].to(self.device)
            for part in (self.images.labeled, self.images.unlabeled)
        ]
        counts = self.images.labels.bincount()
        self.alarm = CollapseAlarm(largest_label_share=(counts.max() / counts.sum()).item())

    def advance(self) -> Terms:
        """Take one step and return the terms it minimized."""
        progress = (self.step + 0.5) / self.steps
        seed = derived_seed(self.seed, "step", self.step)
        self.rng.manual_seed(seed)
        torch.manual_seed(seed)  # Dropout knows no generator but the global one.
        for group in self.sgd.param_groups:
            group["lr"] = self.optimizer.rate(progress)
        self.f.train()
        batch = self.draw(self.step)
        gradient = self.gradient_at_worse_weights if self.weight_perturbation else self.gradient
        terms = gradient(self.objective, batch, self.ramp(progress))
        self.sgd.step()
        if self.average is not None:
            self.average.update(self.f, self.step)
        self.note(terms)
        self.step += 1
        return terms

    def gradient(self, objective: Objective, batch: Batch, ramp: float) -> Terms:
        """The terms of the objective; their gradient is left at the parameters."""
        terms = objective(self.f, batch, self.rng)
        self.sgd.zero_grad(set_to_none=True)
        (terms.standard + ramp * terms.robust).backward()
        return terms

    def gradient_at_worse_weights(self, objective: Objective, batch: Batch, ramp: float) -> Terms:
        """The same at the worst weights nearby, for the same C(x) and the same perturbed images."""
        if isinstance(objective, SRT) and batch.opinion is None:
            with frozen(self.f):
                batch = batch._replace(opinion=own_opinion(self.f, torch.cat([batch.x, batch.u])))
        remembering_objective, memories = remembering(objective)
        self.gradient(remembering_objective, batch, ramp)
        for memory in memories:
            memory.asked = 0
        with perturbed_weights(self.f, self.weight_perturbation):
            return self.gradient(remembering_objective, batch, ramp)

    def draw(self, step: int) -> Batch:
        """The batch of that step, augmented, with the opinion of a labeler other than f."""
        labeled, unlabeled = (rows.to(self.device) for rows in self.batches.rows(step))
        pool = torch.cat([self.images.labeled[labeled], self.images.unlabeled[unlabeled]])
        crop, flip = self.augmentation.crop, self.augmentation.flip
        pool = as_float(augment(pool, self.rng, crop=crop, flip=flip))
        x, u = pool.split([len(labeled), len(unlabeled)])
        labeler = self.average.module if self.average and self.labeler == "average" else self.labeler
        opinion = own_opinion(labeler, pool) if isinstance(labeler, nn.Module) else None
        return Batch(x, self.images.labels[labeled].long(), u, opinion)

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
            while self.step < self.steps and not self.selection.fallen:
                self.advance()
                done = self.step == self.steps
                if watcher is not None:
                    watcher.stepped(self.step, self.steps)
                if len(self.images.validation) and (done or self.step % self.validation.every == 0):
                    self.selection.measure(self.result, self.step)
                    done = done or bool(self.selection.fallen)
                if done or self.step % self.log_every == 0:
                    self.require_finite()
                    record = self.record(self.step - logged_step, time.perf_counter() - logged)
                    logged, logged_step = time.perf_counter(), self.step
                    self.publish(record, watcher, write_log)
                if write_checkpoint is not None and (done or time.perf_counter() - saved >= checkpoint_seconds):
                    self.require_finite()
                    write_checkpoint()
                    saved = time.perf_counter()
        if watcher is not None and self.selection.fallen:
            watcher.warned(self.selection.fallen)
        self.finish()

    @property
    def result(self) -> nn.Module:
        """The model that the run is for: the average of f where one is kept, else f."""
        return self.f if self.average is None else self.average.module

    def finish(self) -> None:
        """Give f the weights to keep: the best on the validation part where there is one, else the last."""
        self.f.load_state_dict(self.selection.kept or self.result.state_dict())
        if self.averaging.decay and self.averaging.batchnorm == "estimated":
            pool = torch.cat([self.images.labeled, self.images.unlabeled])
            rng = generator(torch.device("cpu"), self.seed, "batchnorm")
            rows = torch.randperm(len(pool), generator=rng)[: 16 * PROBE].to(self.device)
            estimate_batchnorm(self.f, [as_float(pool[part]) for part in rows.split(PROBE)])
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
            "average": self.average.module.state_dict() if self.average else {},
            "best": self.selection.best,
            "fallen": self.selection.fallen,
            "best_labeled_accuracy": self.alarm.best_accuracy,
            "warned": self.alarm.raised,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` returned."""
        try:
            self.f.load_state_dict(state["model"])
            self.sgd.load_state_dict(state["optimizer"])
            self.step = state["step"]
            self.selection.best, self.selection.fallen = state["best"], state["fallen"]
            if self.average is not None:
                self.average.module.load_state_dict(state["average"])
            self.since_log.copy_(state["since_log"])
            self.alarm.best_accuracy, self.alarm.raised = state["best_labeled_accuracy"], state["warned"]
        except (KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"the checkpoint does not fit this recipe ({reason}): delete it to start anew") from None
