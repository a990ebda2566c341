"""Recipes as users make them: parts of their own, of which a name, fields and source are all that is known."""

import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .inputs import check_model, output_classes, require
from .printing import quoted
from .recipe import PARTS, Recipe, dumps, loads

PACKAGE = __name__.split(".")[0]
TO_GO_ON = "restore recipe.json as it was, name another --out, or delete the checkpoint to start anew"
OURS = frozenset(part.__name__ for choices in PARTS.values() for part in choices)
"""names by which a file of a recipe means one of our parts"""


def require_recipe(recipe: object) -> None:
    """Refuse what is no recipe, as the name of one, and one with a part that its file would take for one of ours."""
    named = repr(recipe) if isinstance(recipe, str) and len(recipe) < 100 else '"digits-pixel-srt"'
    advice = f"pass unperturbed.recipes.named({named}), or an unperturbed.Recipe of your own"
    require(isinstance(recipe, Recipe), f"a recipe must be an unperturbed.Recipe, got {quoted(recipe)}: {advice}")
    for part in own_parts(recipe):
        sentence = (
            f"a part of your own has the name of one of ours, {part.__name__}, which its recipe.json would mean"
        )
        require(part.__name__ not in OURS, f"{sentence}: rename it")


def own_parts(part: object) -> Iterator[type]:
    """The types of all parts of a recipe that are not this package's."""
    if isinstance(part, tuple):
        for item in cast(tuple[object, ...], part):
            yield from own_parts(item)
    elif is_dataclass(part) and not isinstance(part, type):
        if type(part).__module__.split(".")[0] != PACKAGE:
            yield type(part)
        for slot in fields(cast(Any, part)):
            yield from own_parts(getattr(part, slot.name))


def source_of_own_parts(recipe: Recipe) -> str:
    """How they are written, as far as that is known: two that differ have the same name and fields otherwise."""
    return "".join(map(source_of, own_parts(recipe)))


def source_of(part: type) -> str:
    """The source of a class; nothing where it has none, as in a session."""
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        return ""


def made_by(recipe: Recipe, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """The recipe's network, with weights in lazy layers too, which would draw theirs after the seed was gone.

    One with a state that the file of its weights cannot hold is refused before it is trained.
    """
    f = recipe.model(shape, classes)
    check_model(f)
    if any(map(is_lazy, (*f.parameters(), *f.buffers()))):
        output_classes(f, torch.zeros(2, *shape))
    other = ", ".join(name for name, value in f.state_dict().items() if not is_dense(value))
    refusal = f"the network keeps {other} besides dense tensors, which the file of its weights cannot hold"
    require(not other, f"{refusal}: keep it in a buffer, dense or with persistent=False, or leave it to __init__")
    return f


def is_dense(value: object) -> bool:
    """Whether that is a tensor, and not a sparse one."""
    return isinstance(value, Tensor) and value.layout is torch.strided


def is_by(recipe: Recipe, text: str | None) -> bool:
    """Whether what was left with the recipe of this text is by this one; checkpoints of old versions name none."""
    if text is None or text == dumps(recipe):
        return True
    try:
        return loads(text) == recipe
    except ValueError:  # It has parts of somebody's own, or such as this version does not know.
        return False
