"""The defenses of each scenario, from what its data set decides: one table of methods for all data sets."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from ..averaging import Average
from ..neighborhoods import L2, Linf
from ..objectives import AT, KLR, SRT, TRADES, UAT, Mixture, Objective, Standard
from ..recipe import SGD, Labeler, Recipe, Teacher, Validation
from ..schedules import Cyclic, Ramp
from ..solvers import FGSM, NFGSM, PGD, PowerIteration, Sequential, Solver, Strongest, WorstOfK
from .budgets import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Fast:
    """How fast SRT is shortened on a data set."""

    steps: int
    peak: float
    weight: float
    """lambda"""
    held_out: int
    """labeled images on which the guard against catastrophic overfitting watches"""
    drop: float = 0.2
    """the fall of accuracy there that ends the run"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A data set and a kind of perturbation, with the settings that all of its defenses share."""

    setting: Recipe
    """its name is `<data>-<scenario>`; its steps are those of methods that use all images"""
    labeled_steps: int
    """steps of methods that use labels alone"""
    solver: Solver
    weight: float
    """lambda of SRT"""
    fast: Fast
    mean: Literal["terms", "images"] = "terms"
    """of the terms of RT and SRT, or of all images of both"""
    forward: Literal["separate", "together"] = "separate"
    """whether RT and SRT take a pass for each term, or one in which BatchNorm sees the images of both"""
    fresh_statistics: bool = True
    """whether the average of SRT++ has BatchNorm statistics of its own, or the model's, which are of perturbed images
    too: by those of clean images alone much of its robustness is lost (docs/defenses.md)"""

    def labels(self, method: str, objective: Objective, **changes: Any) -> Recipe:
        """A recipe that sees no unlabeled image."""
        data = replace(self.setting.data, unlabeled=0)
        return self.all(method, objective, **{"data": data, "steps": self.labeled_steps} | changes)

    def all(self, method: str, objective: Objective, **changes: Any) -> Recipe:
        """A recipe that sees all images."""
        return replace(self.setting, name=f"{self.setting.name}-{method}", objective=objective, **changes)

    def taught(self, method: str, objective: Objective) -> Recipe:
        """A recipe whose unlabeled images are labeled by a teacher."""
        return self.all(method, objective, labeler="teacher")

    def srt(self, weight: float, **changes: Any) -> SRT:
        """The objective of SRT, and of RT where there are no unlabeled images, at that lambda."""
        return replace(SRT(solver=self.solver, weight=weight, mean=self.mean, forward=self.forward), **changes)

    def basics(self, adversarial: str) -> Iterator[Recipe]:
        """Standard, adversarial training, RT and SRT."""
        yield self.labels("standard", Standard())
        yield self.labels(adversarial, AT(solver=self.solver))
        yield self.labels("rt", self.srt(self.weight))
        yield self.all("srt", self.srt(self.weight))

    def over_lambda(self, weights: tuple[float, ...]) -> Iterator[Recipe]:
        """RT and SRT at each lambda, as the paper's tables compare them."""
        for weight in weights:
            objective = self.srt(weight)
            yield self.labels(f"rt-lambda-{weight:g}", objective)
            yield self.all(f"srt-lambda-{weight:g}", objective)

    def shortened(self, method: str, solver: Solver, guard: Solver | None) -> Recipe:
        """Fast SRT: a cyclic rate, fewer steps, and a guard that ends the run where accuracy suddenly falls."""
        every = max(1, self.fast.steps // 20)
        return self.all(
            method,
            self.srt(self.fast.weight, solver=solver),
            steps=self.fast.steps,
            data=replace(self.setting.data, validation=self.fast.held_out),
            optimizer=replace(self.setting.optimizer, rate=Cyclic(peak=self.fast.peak)),
            validation=Validation(every=every, solver=guard, keep="last", drop=self.fast.drop),
        )


def pixel_defenses(scenario: Scenario, ball: Linf, *, trades: float, uat: float) -> Iterator[Recipe]:
    """Every pixel-wise row of the paper, and what goes past it."""
    solver = scenario.solver
    yield from scenario.basics("at")
    yield scenario.labels("trades", TRADES(solver=solver, weight=trades))
    yield scenario.all("uat", UAT(solver=solver, weight=uat))
    yield scenario.taught("uat-ft", AT(solver=solver))
    yield scenario.taught("uat-plusplus", UAT(solver=solver, weight=uat, form="++"))
    yield scenario.taught("rst", TRADES(solver=solver, weight=trades))
    yield scenario.all("vat", UAT(solver=PowerIteration(around=L2(eps=8 * ball.eps)), weight=1.0))
    guard = PGD(around=ball, steps=5, step_size=ball.eps / 3, start="uniform")
    yield scenario.shortened("srt-fast", FGSM(around=ball), guard)
    yield scenario.shortened("srt-fast-noise", NFGSM(around=ball), guard)


def spatial_defenses(scenario: Scenario, pixel_solver: Solver, **changes_of_at: Any) -> Iterator[Recipe]:
    """Every spatial row of the paper, and what goes past it; pixel-wise AT may have a schedule of its own."""
    yield from scenario.basics("worst-of-k")
    yield scenario.labels("at", AT(solver=pixel_solver), **changes_of_at)
    yield scenario.labels("klr", KLR(solver=scenario.solver, weight=1.0))
    yield scenario.shortened("srt-fast", scenario.solver, scenario.solver)
    authors = scenario.srt(0.2, forward="together", mean="images")
    yield scenario.all("srt-authors", authors, data=replace(scenario.setting.data, split="first", crop=0, flip=True))
    yield plusplus(scenario, "average")


LEARNED_FIRST = Ramp(over=0.5)
"""of SRT+, and wherever else a robust term at full strength would keep C(x) as constant as it is at first: lambda
grows while C(x) is learned from the labels (docs/fidelity.md)"""


def compound_defenses(scenario: Scenario, **changes_of_srt: Any) -> Iterator[Recipe]:
    """AT+ and SRT+, pixel-wise first and spatial on top, and AT over the average or the worst of both."""
    both = cast(Sequential, scenario.solver).stages
    yield scenario.labels("at", AT(solver=scenario.solver))
    yield scenario.all("srt", scenario.srt(scenario.weight), **changes_of_srt)
    yield scenario.labels("at-average", Mixture(objectives=tuple(AT(solver=solver) for solver in both)))
    yield scenario.labels("at-max", AT(solver=Strongest(solvers=both)))


def compound(scenario: Scenario, name: str, first: Solver, then: Solver, **changes: Any) -> Scenario:
    """The scenario in which one perturbation follows the other."""
    setting = replace(scenario.setting, name=name, **changes)
    return replace(scenario, setting=setting, solver=Sequential(stages=(first, then)))


def plusplus(scenario: Scenario, labeler: Labeler, *, times: float = 2.0, **changes: Any) -> Recipe:
    """SRT with the parts that paid in our own measurements: docs/defenses.md says which and how much."""
    fresh = "own" if labeler == "average" else "estimated"
    return scenario.all(
        "srt-plusplus",
        scenario.srt(times * scenario.weight, smoothing=0.1),
        averaging=Average(decay=0.99, batchnorm=fresh if scenario.fresh_statistics else "copied"),
        labeler=labeler,
        **changes,
    )


def worst_of_ten(budget: Budget) -> WorstOfK:
    """The spatial training solver of the paper."""
    return WorstOfK(around=budget.warps, k=10)


def standard_teacher(steps: int, rate: float) -> Teacher:
    """A teacher by standard training with a cyclic rate."""
    return Teacher(steps=steps, optimizer=SGD(rate=Cyclic(peak=rate)))


def epochs(count: float, *, images: int, batch: int = 128) -> int:
    """The steps that show so many images so many times."""
    return round(count * images / batch)
