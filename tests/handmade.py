"""Evidence made by hand, of models that get as many images right as a test wants, and the evidence that is kept."""

from functools import cache
from pathlib import Path

import torch

from unperturbed.experiments.evidence import Evidence, read_all
from unperturbed.recipes import named
from unperturbed.report import AttackResult, Report
from unperturbed.sweeps import Sweep

IMAGES = 1000


@cache
def committed_evidence():
    """All that lies in results/reproduce, read once for all tests."""
    return read_all(Path(__file__).parent.parent / "results" / "reproduce")


def report(clean, attacks, images=IMAGES, device="cpu"):
    """A report in which so many percent are right: clean, and under each attack."""
    places = torch.arange(images)

    def wrong_from(percent):
        return (places >= percent * images / 100).long()

    results = tuple(
        AttackResult(name=name, budget="", settings="", predicted=wrong_from(percent), rejected=0, seconds=36.0)
        for name, percent in attacks.items()
    )
    return Report(
        labels=torch.zeros(images).long(),
        clean=wrong_from(clean),
        attacks=results,
        seed=0,
        provenance={"device": device},
    )


def evidence(name, clean=90.0, *, seed=0, seconds=60.0, together=1, device="cpu", recipe=None, **changes):
    """A finished run; attacks by name with `_` for `-`, so that pgd=50 is 50 % under PGD."""
    known = {"scale", "network", "other", "on_fewer", "sweep", "surfaces", "selected", "trained_on"}
    known |= {"teacher_seconds", "teacher_together"}
    fields = {key: changes.pop(key) for key in list(changes) if key in {*known, "images", "steps"}}
    images = fields.pop("images", IMAGES)
    steps = fields.pop("steps", None)
    recipe = recipe or named("mnist-pixel-srt")
    attacks = {key.replace("plus", "+"): value for key, value in changes.items()}
    return Evidence(
        **{"scale": "paper", "network": "own", "surfaces": {}, "selected": {}} | fields,
        name=name,
        seed=seed,
        recipe=recipe,
        report=report(clean, attacks, images, device),
        seconds=seconds,
        together=together,
        log={"step": [1, steps or recipe.steps], "standard": [1.0, 0.5]},
    )


def sweep(**by_fraction):
    """A sweep: half=40 is 40 % under PGD at fraction 0.5."""
    fractions = {"quarter": 0.25, "half": 0.5, "whole": 1.0}
    return Sweep(eps=0.3, reports={fractions[key]: report(90, {"pgd": value}) for key, value in by_fraction.items()})
