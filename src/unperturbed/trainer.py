"""The training loop: one stateful class, stopped and resumed at any step without a trace."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .answers import frozen
from .averaging import estimate_batchnorm, freshly_estimated, require_average, require_statistics
from .batches import ProportionalBatches
from .cutting import require_parts
from .engine import Engine, engine_for
from .guards import CollapseAlarm, DivergedError, has_robust_term, normalizes_apart, to_lower
from .images import Images, for_statistics
from .inputs import as_float
from .objectives import Terms
from .processes import present, shared
from .progress import HELD_OUT, Record, Watcher
from .recipe import Recipe
from .runtime import generator
from .schedules import value_at
from .selection import PART, Selection, put_back, unsaved_buffers
from .step import Step
from .turns import Steps, mark, run_together

PROBE = 256
"""images of each part on which C(x) is watched"""


@dataclass(kw_only=True)
class Trainer:
    """Outer minimization, Eq. (11), of any objective by SGD.

    Step t draws all of its random numbers from (seed, t), so weights, optimizer and t are the whole state of a run.
    """

    f: nn.Module
    """the network, whatever the recipe says of one"""
    images: Images
    recipe: Recipe
    device: torch.device
    engine: Engine | None = None
    """how networks and steps are run; none: as it pays on that device"""

    def __post_init__(self) -> None:
        recipe = self.recipe
        require_average(recipe.averaging, labels=recipe.labeler == "average")
        require_statistics(self.f, recipe.averaging)
        self.remarks, self.said = list[str](), set[str]()
        self.processes = present()
        engine = self.engine or engine_for(self.device, recipe.precision, self.remark)
        self.f = shared(self.f.to(self.device), self.processes, recipe.batchnorm)
        self.images = self.images.to(self.device)
        self.processes.require_same(lambda: f"{self.images.checksum()} {recipe.seed} {recipe.batch}")
        self.images.check(self.f, recipe.data.crop)
        labels, held_out = self.images.labels.long(), self.images.validation_labels.long()
        self.images = replace(self.images, labels=labels, validation_labels=held_out)
        self.batches = ProportionalBatches(
            labeled=len(self.images.labeled),
            unlabeled=len(self.images.unlabeled),
            batch=recipe.batch,
            least_labeled=recipe.least_labeled,
            seed=recipe.seed,
            nearby=not isinstance(self.images.unlabeled, Tensor),
        )
        require_parts(self.batches, recipe.microbatch, self.processes)
        self.outer = Step(
            f=self.f,
            images=self.images,
            recipe=recipe,
            batches=self.batches,
            engine=engine,
            processes=self.processes,
            device=self.device,
            say=self.remark,
        )
        self.step = 0
        self.selection = Selection(
            images=self.images.validation,
            labels=self.images.validation_labels,
            validation=replace(recipe.validation, solver=recipe.validation.adversary(recipe.objective)),
            seed=recipe.seed,
            at_once=min(PART, recipe.microbatch or PART),
            agreed=self.processes.of_first,
        )
        self.average = self.outer.average
        rng = generator(torch.device("cpu"), recipe.seed, "probe")
        labeled, self.probe_labels, unlabeled = self.images.some_of_each(PROBE, rng)
        self.probe = torch.cat([labeled, unlabeled])
        counts = self.images.labels.bincount()
        self.alarm = CollapseAlarm(
            largest_label_share=(counts.max() / counts.sum()).item(),
            robust_term=has_robust_term(recipe.objective),
            normalized_apart=normalizes_apart(self.f, recipe.objective),
        )

    def remark(self, sentence: str) -> None:
        """Keep a sentence of the engine for whoever watches; nothing is said twice."""
        if sentence not in self.said:
            self.said.add(sentence)
            self.remarks.append(sentence)

    def advance(self) -> Terms:
        """Take one step and return the terms it minimized."""
        terms = self.outer(self.step)
        self.step += 1
        return terms

    def require_finite(self) -> None:
        """Raise once a term or a weight, equal in all processes, has stopped being a number."""
        standard, robust = self.outer.first_bad_step.tolist()
        weights_are_finite = torch.stack([weight.detach().isfinite().all() for weight in self.f.parameters()]).all()
        if min(standard, robust) >= self.recipe.steps and weights_are_finite:
            return
        found = "loss is" if min(standard, robust) < self.recipe.steps else "weights are"
        raise DivergedError(
            f"the {found} not finite from step {min(standard, robust, self.step)} on: lower "
            f"{to_lower(self.recipe.optimizer, self.recipe.objective, robust_alone=standard > robust)}"
        )

    @torch.no_grad()
    def record(self, taken: int, seconds: float) -> Record:
        """A line of the log: the terms since the last line, and how C(x) fares on a fixed sample of both parts.

        At a step at which held-out images were looked at it tells of them too. The speed is that of this process.
        """
        standard, robust, steps = self.outer.since_log.tolist()
        self.outer.since_log.zero_()
        with frozen(self.f), self.outer.engine.arithmetic():
            predicted = self.f(as_float(self.probe)).argmax(1)
        progress, labels = (self.step - 0.5) / self.recipe.steps, self.probe_labels
        held_out = dict(self.selection.measured).get(self.step)
        record: Record = {
            "step": self.step,
            "rate": value_at(self.recipe.optimizer.rate, progress, "rate"),
            "standard": standard / steps,
            "robust": robust / steps,
            "robust_weight": value_at(self.recipe.ramp, progress, "share of the robust term"),
            "labeled_accuracy": (predicted[: len(labels)] == labels).double().mean().item(),
            "largest_class_share": (predicted.bincount().max() / len(predicted)).item(),
            "images_per_second": round(taken * self.recipe.batch / seconds, 1),
            "seconds": round(seconds, 3),
        }
        return record if held_out is None else record | {HELD_OUT: held_out}

    def run(
        self,
        *,
        watcher: Watcher | None = None,
        write_log: Callable[[Record], None] | None = None,
        write_checkpoint: Callable[[], None] | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> None:
        """Take the steps that remain; random numbers of the caller are left as they were."""
        run_together([self.steps_to_take(watcher, write_log, write_checkpoint, checkpoint_seconds)], self.device)

    @property
    def ended(self) -> bool:
        """Whether there is no step left to take."""
        return self.step >= self.recipe.steps or self.selection.over

    def steps_to_take(
        self,
        watcher: Watcher | None = None,
        write_log: Callable[[Record], None] | None = None,
        write_checkpoint: Callable[[], None] | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> Steps:
        """Take a step whenever the next one is asked for, with all that a run does between its steps."""
        logged = saved = time.perf_counter()
        logged_step = self.step
        while not self.ended:
            self.advance()
            done = self.step == self.recipe.steps
            if watcher is not None:
                watcher.stepped(self.step, self.recipe.steps)
                while self.remarks:
                    watcher.warned(self.remarks.pop(0))
            measures = len(self.images.validation) and (done or self.step % self.recipe.validation.every == 0)
            logs = done or measures or self.step % self.recipe.log_every == 0
            if logs:
                yield from self.caught_up()
            if measures:
                with self.outer.engine.arithmetic():
                    self.selection.measure(self.result_so_far(), self.step)
                done = done or self.selection.over
            if logs:
                self.require_finite()
                record = self.record(self.step - logged_step, time.perf_counter() - logged)
                logged, logged_step = time.perf_counter(), self.step
                self.publish(record, watcher, write_log)
            if write_checkpoint is not None and (done or time.perf_counter() - saved >= checkpoint_seconds):
                self.require_finite()
                write_checkpoint()
                saved = time.perf_counter()
            yield self.step
        if watcher is not None and self.selection.fallen:
            watcher.warned(self.selection.fallen)
        self.finish()

    def caught_up(self) -> Steps:
        """Let other runs of this process go on until the device has done what this one has asked for."""
        if self.device.type == "cuda" and self.processes.count == 1:  # Several processes have to stop at one step.
            yield mark()

    @property
    def result(self) -> nn.Module:
        """The model that the run is for: the average of f where one is kept, else f."""
        return self.f if self.average is None else self.average.module

    def result_so_far(self) -> nn.Module:
        """The model that the run would end with now."""
        if not self.recipe.averaging.estimates:
            return self.result
        return freshly_estimated(self.result, for_statistics(self.images, self.recipe.seed))

    def finish(self) -> None:
        """Give f the weights to keep: the best on the validation part where there is one, else the last."""
        if self.selection.keeps_best:
            self.selection.restore(self.f)
        else:
            self.f.load_state_dict(self.result.state_dict())
        if self.recipe.averaging.estimates:
            with self.outer.engine.arithmetic():
                estimate_batchnorm(self.f, for_statistics(self.images, self.recipe.seed))
        self.f.eval()
        self.outer.recorded.forget()
        self.outer.sgd.zero_grad(set_to_none=True)

    def publish(self, record: Record, watcher: Watcher | None, write_log: Callable[[Record], None] | None) -> None:
        """Hand a line of the log to whoever wants it, with a warning where it calls for one."""
        if write_log is not None:
            write_log(record)
        warning = self.alarm.sentence(record, self.step / self.recipe.steps)
        if watcher is not None:
            watcher.logged(record)
            if warning:
                watcher.warned(warning)

    def state(self) -> dict[str, Any]:
        """All that a later process needs to go on from here."""
        return {
            "step": self.step,
            "model": self.f.state_dict(),
            "buffers": unsaved_buffers(self.f),
            "optimizer": self.outer.sgd.state_dict(),
            "since_log": self.outer.since_log,
            "average": self.average.module.state_dict() if self.average else {},
            "average_buffers": unsaved_buffers(self.average.module) if self.average else {},
            "best": self.selection.best,
            "measured": self.selection.measured,
            "fallen": self.selection.fallen,
            "best_labeled_accuracy": self.alarm.best_accuracy,
            "warned": self.alarm.raised,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state` returned."""
        self.f.train()
        try:
            self.f.load_state_dict(state["model"])
            put_back(self.f, state.get("buffers", {}))  # Old checkpoints hold none.
            self.outer.resume(state["optimizer"])
            self.step = state["step"]
            self.selection.best, self.selection.fallen = state["best"], state["fallen"]
            self.selection.measured = [*state.get("measured", ())]  # Old checkpoints hold none.
            if self.average is not None:
                self.average.module.load_state_dict(state["average"])
                put_back(self.average.module, state.get("average_buffers", {}))
            self.outer.since_log.copy_(state["since_log"])
            self.alarm.best_accuracy, self.alarm.raised = state["best_labeled_accuracy"], state["warned"]
        except (KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"the checkpoint does not fit this recipe ({reason}): delete it to start anew") from None
