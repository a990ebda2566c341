"""What can go wrong in a run, noticed early and said with its remedy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from torch import nn

from .averaging import Average, norms_in
from .neighborhoods import L1, L2, TOLERANCE, Affine, Blur, Color, Composed, Linf, Spatial, TurnThenShift
from .objectives import AT, KLR, SRT, TRADES, UAT, Mixture, Objective, Standard, require_objective, solver_of
from .printing import counted, quoted
from .progress import Record
from .recipe import SGD, Recipe, require_schedule
from .schedules import Cyclic, Piecewise
from .solvers import FGSM, PGD, MomentumPGD, Sequential, Strongest

LOOKS = 20
"""times that held-out images are looked at where nobody says how often"""
MEASURED_IN_RADII = Spatial | TurnThenShift | Affine | Blur | Color | Composed
"""neighborhoods whose steps are in units of the radius"""
LEARNING, FEWEST_STEPS = 0.2, 50
"""the fraction of a run, and its first steps, in which a C(x) that is still being learned is no alarm"""
MOST_STEPS = 1000
"""from which on a constant C(x) is one, however long the run"""
FALL = 0.20
"""loss of labeled accuracy, against its best so far, that is an alarm; at the peak of a cyclic rate sound runs lose
more than ten points for a while"""


class DivergedError(ArithmeticError):
    """The loss is no number any more."""


@dataclass(slots=True, kw_only=True)
class CollapseAlarm:
    """Notices that C(x) degenerates: a constant C(x) is the trivial minimizer of the robust term.

    It is silent in the first fifth of a run and in its first 50 steps: an untrained C(x) is often constant. One that
    still is, or is again, after 1,000 steps will hardly change in a fifth of a long run.
    """

    largest_label_share: float
    """share of the most frequent class among the labels"""
    robust_term: bool = True
    """whether the objective has one"""
    normalized_apart: bool = False
    """whether BatchNorm takes statistics of clean and of perturbed images each by themselves"""
    best_accuracy: float = field(default=0.0, init=False)
    raised: bool = field(default=False, init=False)

    @property
    def suspicious_share(self) -> float:
        """Half of C(x), or well above the share the most frequent label has; a constant C(x) always exceeds it."""
        return max(0.5, min(1.5 * self.largest_label_share, (1 + self.largest_label_share) / 2))

    def sentence(self, record: Record, progress: float) -> str | None:
        """The warning this record calls for; at most one in a run."""
        share, accuracy = record["largest_class_share"], record["labeled_accuracy"]
        self.best_accuracy = max(self.best_accuracy, accuracy)
        one_class = share > self.suspicious_share
        falling = accuracy < self.best_accuracy - FALL
        too_early = progress < LEARNING or record["step"] < FEWEST_STEPS
        constant_for_long = share == 1 and record["step"] >= MOST_STEPS
        if self.raised or not (constant_for_long or (not too_early and (one_class or falling))):
            return None
        self.raised = True
        seen = (
            f"one class takes {share:.0%} of C(x)"
            if one_class
            else f"the accuracy of C(x) on labeled images fell from {self.best_accuracy:.0%} to {accuracy:.0%}"
        )
        if not self.robust_term:
            return f"step {record['step']}: {seen}: lower the learning rate"
        return (
            f"step {record['step']}: {seen}, as happens when the robust term outweighs the labels: "
            "lengthen ramp.over, lower objective.weight or lower the learning rate"
            + (", and where images are warped set objective.forward to together" if self.normalized_apart else "")
        )


def steps_taken(log: Sequence[Mapping[str, float]], steps: int) -> str:
    """The steps of a finished run in words: all that its recipe has, or as many as guard and patience let it take."""
    last = log[-1]["step"] if log else steps
    return f"{steps}" if last == steps else f"{last} of {steps}"


def require_kinds(objective: object, optimizer: object, ramp: object, averaging: object) -> None:
    """Refuse what is not of the kind that training needs, as a class without its parentheses."""
    require_objective("objective", objective)
    if not isinstance(optimizer, SGD):
        raise ValueError(
            f"optimizer must be unperturbed.SGD, as SGD(rate=Cyclic(peak=0.05)), got {quoted(optimizer)}: with any "
            "other write the loop, around objective(model, Batch(x, y, u), rng).total"
        )
    require_schedule("ramp", ramp, "Ramp(over=0.3)")
    if not isinstance(averaging, Average):
        raise ValueError(f"averaging must be unperturbed.Average, as Average(decay=0.99), got {quoted(averaging)}")


def sees_unlabeled(objective: Objective, *, labeled_by_another: bool = False) -> bool:
    """Whether unlabeled images count in an objective, also where another model labels them; a stranger's may."""
    if type(objective) is Mixture:
        return any(sees_unlabeled(one, labeled_by_another=labeled_by_another) for one in objective.objectives)
    if type(objective) in (AT, TRADES):
        return labeled_by_another
    return type(objective) not in (Standard, KLR)


def asks_labeler(objective: Objective, unlabeled: int) -> bool:
    """Whether an objective asks another model for labels of so many unlabeled images; a stranger's may."""
    match objective:
        case Mixture(objectives=several):
            return any(asks_labeler(one, unlabeled) for one in several)
        case AT() | TRADES() | UAT(form="++"):
            return unlabeled > 0
        case _:
            return not isinstance(objective, Standard | KLR | UAT)


def normalizes_apart(f: nn.Module, objective: Objective) -> bool:
    """Whether images of both terms go through BatchNorms in passes of their own."""
    return isinstance(objective, SRT | UAT) and objective.forward != "together" and bool(norms_in(f))


def has_robust_term(objective: Objective) -> bool:
    """Whether an objective has a second term, which may outweigh the labels; a stranger's may have."""
    if type(objective) is Mixture:
        return any(map(has_robust_term, objective.objectives))
    return type(objective) not in (Standard, AT)


def require_use(objective: Objective, unlabeled: int, advice: str, *, labeled_by_another: bool = False) -> None:
    """Refuse unlabeled images that an objective does not look at: they would fill most of each batch for nothing."""
    if unlabeled and not sees_unlabeled(objective, labeled_by_another=labeled_by_another):
        raise ValueError(
            f"{type(objective).__name__} sees labeled images alone, and {unlabeled} unlabeled ones would take their "
            f"place in each batch: {advice}"
        )


def require_use_by(recipe: Recipe, unlabeled: int) -> None:
    """Refuse unlabeled images that the objective of a recipe or of its teacher ignores, and an idle labeler."""
    labeled = (
        "set --labeler teacher or average, " if sees_unlabeled(recipe.objective, labeled_by_another=True) else ""
    )
    advice = f"set --data.unlabeled 0 and name no files of them, {labeled}or choose a recipe that uses them, as SRT's"
    require_use(recipe.objective, unlabeled, advice, labeled_by_another=recipe.labeler != "current")
    if recipe.labeler != "current" and not asks_labeler(recipe.objective, unlabeled):
        others = ", set --data.unlabeled None" if asks_labeler(recipe.objective, 1) else ""
        raise ValueError(
            f"--labeler {recipe.labeler} would do nothing, for {type(recipe.objective).__name__} asks nobody about "
            f"{unlabeled} unlabeled images: omit it{others}, or choose a recipe that asks, as SRT's"
        )
    if recipe.labeler == "teacher" and recipe.teacher.unlabeled:
        averaged = recipe.teacher.labeler == "average"
        advice = "leave --teacher.unlabeled out"
        require_use(recipe.teacher.objective, unlabeled, advice, labeled_by_another=averaged)


def require_teachable(recipe: Recipe, labeled: int) -> None:
    """Refuse fewer labeled images than the batch of a teacher that sees no others."""
    batch = recipe.teacher.batch or recipe.batch
    if recipe.labeler == "teacher" and not recipe.teacher.unlabeled and batch > labeled:
        raise ValueError(
            f"the teacher sees the {labeled} labeled images alone, fewer than its batch of {batch}: lower "
            "--teacher.batch, label more images, or set --teacher.unlabeled and an objective that uses the others"
        )


def with_checksum(recipe: Recipe, found: str) -> Recipe:
    """The recipe with the checksum of the images it is followed on; one that was made for others is refused."""
    wanted = recipe.data.sha256
    if wanted not in (None, found):
        raise ValueError(
            f"the recipe is for other images or labels of {recipe.data.sources} (SHA-256 {wanted}, these have "
            f"{found}): restore the data, or, where others are meant, as with --data.labeled, add --data.sha256 None"
        )
    return replace(recipe, data=replace(recipe.data, sha256=found))


def to_lower(optimizer: SGD, objective: Objective, *, robust_alone: bool) -> str:
    """The fields of a recipe to lower where a loss is not finite, with their values: nobody knows which it was."""
    if robust_alone:
        return "objective.weight or objective.solver (only the robust term is not finite)"
    match optimizer.rate:
        case Piecewise(rate=rate):
            field_of_rate = f"optimizer.rate.rate = {rate}"
        case Cyclic(peak=peak):
            field_of_rate = f"optimizer.rate.peak = {peak}"
        case _:
            field_of_rate = "optimizer.rate"
    weighted = isinstance(objective, SRT | TRADES | KLR | UAT)
    return f"{field_of_rate} or objective.weight = {objective.weight}" if weighted else field_of_rate


def done_in_vain(recipe: Recipe, held_out: int) -> list[str]:
    """Where so many images are held out and choose nothing, and where a search stays at x or short of its radius."""
    return list(dict.fromkeys((*held_out_in_vain(recipe, held_out), *searched_in_vain(recipe))))


def held_out_in_vain(recipe: Recipe, held_out: int) -> Iterator[str]:
    """Where so many images are held out and looked at in the end alone, when they choose nothing."""
    every, steps = recipe.validation.every, recipe.steps
    if held_out and every >= steps:
        yield (
            f"{counted(held_out, 'image')} held out to choose the weights by, but looked at every {every} of {steps} "
            f"steps alone: lower --validation.every, to {max(1, steps // LOOKS)} for instance"
        )


def searched_in_vain(recipe: Recipe) -> Iterator[str]:
    """Where a search goes less far than its radius, and where it starts where there is nothing to climb."""
    for ascent in ascents_of(recipe.objective):
        reach, around = ascent.steps * ascent.step_size, ascent.around
        taken = f"in {counted(ascent.steps, 'step')} of {ascent.step_size:g}"
        if isinstance(around, Linf | L2 | L1) and reach < around.eps * (1 - TOLERANCE):
            yield f"the search goes {reach:g} {taken}, less than eps {around.eps:g}: take longer steps, or more"
        if isinstance(around, MEASURED_IN_RADII) and reach < 1 - TOLERANCE and around != around.scaled(0.0):
            yield (
                f"the search goes {reach:g} radii {taken}, less than the radius of ({around}), in units of which "
                f"steps are: take longer ones, as of {2.5 / ascent.steps:.2g}, or more"
            )
    for objective in parts_of(recipe.objective):
        if flat_at_x(objective, labeled_by_itself=recipe.labeler == "current") and starts_at_x(solver_of(objective)):
            yield (
                f"the search starts at x, where what {type(objective).__name__} maximizes has no slope but that of "
                "rounding, for f says of x what it says of x: set the start of the solver to normal or uniform"
            )


def ascents_of(part: object) -> list[PGD | MomentumPGD]:
    """The searches by steps up a gradient among the solvers of an objective, also where others follow them."""
    if isinstance(part, PGD | MomentumPGD):
        return [part]
    if isinstance(part, tuple):
        return [found for each in cast(tuple[object, ...], part) for found in ascents_of(each)]
    inside = (getattr(part, name, None) for name in ("solver", "solvers", "stages", "objectives"))
    return [found for each in inside if each is not None for found in ascents_of(each)]


def parts_of(objective: Objective) -> list[Objective]:
    """The objectives that a mixture is made of, mixtures in it taken apart too; any other alone."""
    if isinstance(objective, Mixture):
        return [part for one in objective.objectives for part in parts_of(one)]
    return [objective]


def flat_at_x(objective: Objective, *, labeled_by_itself: bool) -> bool:
    """Whether a search maximizes how far an answer to x' is from that to x, which is least at x itself."""
    soft = isinstance(objective, SRT) and objective.targets == "soft"
    return (soft and labeled_by_itself) or isinstance(objective, TRADES | KLR | UAT)


def starts_at_x(solver: object) -> bool:
    """Whether a search, the first of several in sequence, or every one among several, follows gradients from x on."""
    match solver:
        case Sequential(stages=(first, *_)):
            return starts_at_x(first)
        case Strongest(solvers=several):
            return all(map(starts_at_x, several))
        case PGD(start="normal", noise=0):
            return True
        case _:
            return isinstance(solver, PGD | MomentumPGD | FGSM) and solver.start == "identity"
