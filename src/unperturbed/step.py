"""One step of the outer minimization, Eq. (11).

All that differs from step to step lies in tensors on the device, which the host only writes: the rows of the batch,
the rate, the ramp. So the work of a step can be recorded, and a run never waits for the device.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from .answers import own_opinion
from .averaging import AveragedModel, gathering, require_apart
from .awp import perturbed_weights, remembering
from .batches import ProportionalBatches
from .cutting import cut, cut_unlabeled, fewest_labeled, part_count, weighed
from .data import augment
from .engine import Accelerated, Engine, Hastener, Numbers, Recorded, fused, stateless
from .images import Images
from .inputs import as_float
from .objectives import Batch, Objective, Terms, checked_terms
from .processes import Processes
from .recipe import Recipe
from .reservoir import Ahead, Reservoir
from .runtime import RandomNumbers, derived_seed, out_of_memory
from .schedules import value_at


@dataclass(kw_only=True)
class Step:
    """What a step needs, and what it leaves: the weights of f, their average, and the sums for the log."""

    f: nn.Module
    images: Images
    recipe: Recipe
    batches: ProportionalBatches
    engine: Engine
    processes: Processes
    device: torch.device
    say: Callable[[str], None]
    teacher: nn.Module | None = field(default=None, init=False)
    """whose predictions are C(x), where they are neither those of f nor of its average"""
    counts: tuple[int, int] = field(default=(0, 0), init=False)
    """labeled and unlabeled images of the present batch"""

    def __post_init__(self) -> None:
        on_gpu = self.device.type == "cuda"
        self.fast = self.accelerated(self.f)
        recipe, self.microbatch = self.recipe, self.recipe.microbatch
        self.hastened = fused(recipe.objective, Hastener(self.engine, say=self.say))
        self.gathers = recipe.averaging.batchnorm == "own"
        decay = recipe.averaging.decay
        if decay:
            require_apart(self.f, as_float(self.images.labeled[:2]))
        self.average = AveragedModel(self.f, decay, batchnorm=recipe.averaging.batchnorm) if decay else None
        self.rows = torch.zeros(self.batches.batch, dtype=torch.int64, device=self.device)
        from_files = isinstance(self.images.unlabeled, Reservoir)
        if self.gathers and from_files and self.processes.count > 1:
            raise ValueError(
                "a process reads only its own part of images in files, by which an average cannot gather statistics: "
                "set --averaging.batchnorm estimated, or train in one process"
            )
        self.ahead = Ahead(self.read, recipe.steps) if from_files else None
        room = (self.batches.batch if from_files else 0, *self.images.labeled.shape[1:])
        self.arrived = self.images.labeled.new_zeros(room)
        """the unlabeled images of the present batch, where they come from files"""
        self.dials = torch.zeros(4, dtype=torch.float64, device=self.device)
        """rate, ramp, share of the new weights in the average, number of the step"""
        self.rate = torch.zeros((), device=self.device)
        self.sgd = torch.optim.SGD(
            self.f.parameters(),
            lr=self.rate if on_gpu else 0.0,  # Each step sets its own.
            momentum=recipe.optimizer.momentum,
            weight_decay=recipe.optimizer.weight_decay,
            nesterov=recipe.optimizer.nesterov,
            fused=on_gpu,
        )
        self.random = RandomNumbers(self.device, self.processes.rank, self.processes.count)
        self.rng = self.random.own
        self.since_log = torch.zeros(3, device=self.device, dtype=torch.float64)
        self.first_bad_step = torch.full((2,), recipe.steps, device=self.device)
        self.recorded = Recorded(
            self.work,
            state=self.state,
            random=self.random,
            say=self.say,
            numbers=lambda: Numbers(self.f),
            enabled=self.engine.recorded and self.recordable(),
        )

    def recordable(self) -> bool:
        """Whether nothing in the objective can have a memory of its own."""
        if not stateless(self.recipe.objective):
            self.say("steps are taken one by one, which is slower: the objective is no frozen dataclass all through")
            return False
        return True

    def accelerated(self, network: nn.Module) -> nn.Module:
        """A network on the engine of the run."""
        if self.engine.plain:
            return network
        return Accelerated(network, self.engine, as_float(self.images.labeled[:2]), say=self.say)

    @cached_property
    def labeling(self) -> nn.Module | None:
        """The network that labels for f, on the engine; none: f is its own labeler."""
        labeler = self.average.module if self.average and self.recipe.labeler == "average" else self.teacher
        return None if labeler is None else self.accelerated(labeler)

    def __call__(self, step: int) -> Terms:
        """Take that step and return the terms it minimized."""
        progress = (step + 0.5) / self.recipe.steps
        rate = value_at(self.recipe.optimizer.rate, progress, "rate")
        ramp = value_at(self.recipe.ramp, progress, "share of the robust term")
        share = 0.0 if self.average is None else self.average.share(step)
        self.counts = self.batches.counts(step)
        if self.ahead is None:
            self.write(self.rows, torch.cat(self.batches.rows(step)))
        else:
            self.write(self.rows[: self.counts[0]], self.batches.labeled_rows(step))
            self.write(self.arrived[: self.counts[1]], self.ahead(step))
        self.write(self.dials, torch.tensor([rate, ramp, share, step], dtype=torch.float64))
        if self.device.type != "cuda":
            for group in self.sgd.param_groups:
                group["lr"] = rate
        seed = derived_seed(self.recipe.seed, "step", step)
        with self.engine.arithmetic():
            try:
                # A replay leaves its terms where the last one left its own.
                standard, robust = self.recorded(self.counts, seed)
                return Terms(standard.clone(), robust.clone())
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                self.recorded.forget()
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                raise ValueError(self.too_few()) from error
        raise MemoryError(self.too_large())

    def too_few(self) -> str:
        """What to do about a pass of a single image through a BatchNorm that sees but one pixel of it."""
        parts = part_count(self.batches, self.microbatch, self.processes)
        cut_up, larger = (f", in {parts} parts", "--microbatch") if parts > 1 else ("", "the batch")
        return (
            f"a pass has a single image, of which BatchNorm can make no statistics: {self.counts[0]} of a batch of "
            f"{self.batches.batch} are labeled{cut_up}: raise {larger}, "
            f"or set least_labeled (--least-labeled) to {2 * parts}"
        )

    def too_large(self) -> str:
        """What to do about a batch that does not fit into memory, with the largest of its halves that does."""
        tried = min(self.batches.batch, self.microbatch or self.batches.batch)
        refused = f"{tried} images at a time do not fit into the memory of {self.device}"
        if self.processes.count > 1:  # Others may have room and would not take part in a trial.
            return f"{refused}: lower --microbatch or --batch, or start more processes"
        while (tried := tried // 2) and part_count(self.batches, tried, self.processes) <= fewest_labeled(
            self.batches
        ):
            if self.fits(tried):
                return f"{refused}, {tried} do: add --microbatch {tried}, which adds up to the same batch"
        return f"{refused}, nor do fewer: lower --batch, or take a smaller network"

    def fits(self, microbatch: int) -> bool:
        """Whether so many images go through a step; their gradients are thrown away."""
        self.microbatch = microbatch
        try:
            self.gradient(self.hastened, self.parts(self.draw())[:1])
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            return False
        finally:
            self.sgd.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return True

    def write(self, tensor: Tensor, values: Tensor) -> None:
        """Put values from the host into a tensor on the device, without waiting for it."""
        tensor.copy_(values.pin_memory() if tensor.is_cuda else values, non_blocking=True)

    def work(self) -> Terms:
        """All that the device does in a step."""
        self.rate.copy_(self.dials[0])
        self.fast.train()
        parts = self.parts(self.draw())
        gradient = self.gradient_at_worse_weights if self.recipe.weight_perturbation else self.gradient
        terms = gradient(self.hastened, parts)
        self.sgd.step()
        if self.average is not None:
            self.average.update(self.f, self.dials[2])
        self.note(terms)
        return terms

    def draw(self) -> Batch:
        """The batch, augmented, with the opinion of a labeler other than f."""
        labeled, unlabeled = self.rows.split(self.counts)
        everywhere = self.images.unlabeled
        drawn = everywhere[unlabeled] if isinstance(everywhere, Tensor) else self.arrived[: len(unlabeled)]
        pool = torch.cat([self.images.labeled[labeled], drawn])
        data = self.recipe.data
        pool = as_float(augment(pool, self.random.common, crop=data.crop, flip=data.flip))
        x, u = pool.split(self.counts)
        opinion = None
        if self.labeling is not None:
            opinion = own_opinion(gathering(self.labeling) if self.gathers else self.labeling.eval(), pool)
        return Batch(x, self.images.labels[labeled], u, opinion)

    def parts(self, batch: Batch) -> list[Batch]:
        """The parts of the batch that this process works on, of nearly one composition and within --microbatch."""
        count = part_count(self.batches, self.microbatch, self.processes)
        return [batch] if count == 1 else self.processes.own_part(cut(batch, count))

    def read(self, step: int, fresh: bool) -> Tensor:
        """The unlabeled images of a step out of files: those of this process's parts, the others black."""
        everywhere, rows = self.images.unlabeled, self.batches.unlabeled_rows(step)
        assert isinstance(everywhere, Reservoir)
        everywhere.announce(self.batches.soon(step, fresh=fresh))
        count = part_count(self.batches, self.microbatch, self.processes)
        own = torch.cat(self.processes.own_part(cut_unlabeled(torch.arange(len(rows)), count)))
        images = torch.zeros((len(rows), *everywhere.shape[1:]), dtype=torch.uint8)
        images[own] = everywhere[rows[own]]
        return images

    def gradient(self, objective: Objective, parts: list[Batch]) -> Terms:
        """The terms of the objective on all parts, in all processes; their gradient is left at the parameters."""
        self.sgd.zero_grad(set_to_none=True)
        ramp, found = self.dials[1].float(), list[Terms]()
        for part in parts:
            ask = partial(self.terms, part=part)
            if len(part.x) + len(part.u) < self.batches.batch:
                terms = weighed(self.recipe.objective, objective, part, self.counts, ask)
            else:
                terms = ask(objective)
            (terms.standard + ramp * terms.robust).backward()
            found.append(Terms(terms.standard.detach(), terms.robust.detach()))
        mine = found[0] if len(found) == 1 else (torch.stack(values).sum() for values in zip(*found, strict=True))
        return Terms(*self.processes.sum_gradients(self.f, *mine))

    def terms(self, objective: Objective, part: Batch) -> Terms:
        """The terms of an objective on a part by itself."""
        return checked_terms(objective(self.fast, part, self.rng))

    def gradient_at_worse_weights(self, objective: Objective, parts: list[Batch]) -> Terms:
        """The same at the worst weights nearby, for the same perturbed images, and in SRT for the same C(x)."""
        remembering_objective, memories = remembering(objective)
        self.gradient(remembering_objective, parts)
        for memory in memories:
            memory.asked = 0
        with perturbed_weights(self.f, self.recipe.weight_perturbation):
            return self.gradient(remembering_objective, parts)

    def note(self, terms: Terms) -> None:
        """Keep account of the terms on the device, without waiting for it."""
        pair = torch.stack([terms.standard, terms.robust])
        self.since_log += torch.cat([pair, pair.new_ones(1)])
        bad_now = torch.where(pair.isfinite(), self.recipe.steps, self.dials[3].long())
        self.first_bad_step.copy_(torch.minimum(self.first_bad_step, bad_now))

    def resume(self, optimizer: dict[str, Any]) -> None:
        """Go on with the momenta of another process, also of one on another kind of device."""
        self.recorded.forget()
        self.sgd.load_state_dict(optimizer)
        for weight, kept in self.sgd.state.items():  # Kernels of a GPU want momenta to lie in memory as weights do.
            kept.update({name: torch.empty_like(weight).copy_(its) for name, its in kept.items() if its is not None})
        for group in self.sgd.param_groups:
            group["fused"] = self.device.type == "cuda"
            group["lr"] = self.rate if group["fused"] else float(group["lr"])

    def state(self) -> list[Tensor]:
        """Every tensor that a step changes."""
        models = [self.f] if self.average is None else [self.f, self.average.module]
        momenta = [tensor for values in self.sgd.state.values() for tensor in values.values() if tensor is not None]
        weights = [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]
        return [*weights, *momenta, self.since_log, self.first_bad_step]
