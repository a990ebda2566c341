"""Small runs for the tests of the page: trained for a moment, attacked on a few images, as the commands do it."""

import json
from dataclasses import replace

import numpy as np

from unperturbed.datasets import load
from unperturbed.evaluation import evaluate
from unperturbed.files import numbers_in
from unperturbed.models import DigitsCNN
from unperturbed.recipe import plain
from unperturbed.recipes import named, usual_budget
from unperturbed.recipes.budgets import chosen
from unperturbed.runs import RunDirectory
from unperturbed.training import train
from unperturbed.trust.card import Card, Finding

HOSTILE = (
    "<img src=x onerror=\"document.title='broken'\">",
    '</script><script>document.title="broken"</script>',
    '"><b>bold</b>',
    "${title} & &lt;tags&gt;",
    "{{ 7 * 7 }}",
    "<!-- comment",
    "' onclick='",
    "\u2028 line",
    "<svg/onload=alert(1)>",
    "nine",
)
"""class names that would break a page that took them for markup"""


def small(name, **changes):
    """The recipe of that name, with a few steps of a tiny network."""
    return replace(named(name), steps=20, batch=50, model=DigitsCNN(channels=(4, 4, 4), hidden=8), **changes)


def make_run(path, recipe, attacks="fgsm,randadv", images=60, **budget):
    """Train by the recipe in that directory and attack the result on the first test images; the report."""
    model = train(recipe, path, device="cpu")
    dataset = load(recipe.data.name)
    report = evaluate(
        model,
        dataset.test_images[:images],
        dataset.test_labels[:images],
        chosen(replace(usual_budget(recipe.data.name), **budget).attacks(), attacks),
        device="cpu",
        recipe=plain(RunDirectory(path).read_recipe()),
        weights=numbers_in(RunDirectory(path).weights),
    )
    (path / "report.json").write_text(report.dumps())
    return report


def write_card(path, **changes):
    """A trust card with a flag, whose words hold markup; as made by an earlier version unless changes say more."""
    findings = (
        Finding(
            check="steps", verdict="flag", figure="<b>12.5 %</b> more fall", why="Why.", remedy="Take more steps."
        ),
        Finding(check="gradients", verdict="pass", figure="none vanish", why="", remedy=""),
        Finding(check="square", verdict="skipped", figure="no time", why="", remedy=""),
    )
    card = Card(findings=findings, seed=0, seconds=3.0, images=50, provenance={"torch": "2"})
    (path / "trust.json").write_text(json.dumps(replace(card, **changes).plain()))


def write_hostile_data(path):
    """Digits in an .npz file, under hostile names, in color."""
    digits = load("digits")
    arrays = {
        part: getattr(digits, part).expand(-1, 3, -1, -1).numpy()
        if "images" in part
        else getattr(digits, part).numpy()
        for part in ("train_images", "train_labels", "test_images", "test_labels")
    }
    np.savez(path, **{name: array[:200] for name, array in arrays.items()}, classes=np.array(HOSTILE))
    return path
