"""Frozen dataclasses as the trees of JSON, and back, each value checked at its place."""

import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from .printing import nearest, printable, quoted

Parts = Mapping[type, tuple[type, ...]]
"""the dataclasses that may stand where a part of some kind is expected"""
IN_JSON = {
    bool: "true or false",
    int: "a whole number without a point or quotes",
    float: "a number without quotes",
    str: "a text in quotes",
}
"""how values of these types are written"""


class UnknownPartError(ValueError):
    """A tree names a part that is none of those that may stand there nor nearly one, as a part of a user's own."""


def plain(value: object) -> object:
    """Frozen dataclasses as dictionaries that name their type, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__} | {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in cast(tuple[object, ...], value)]
    return value


def typed(tree: object, expected: Any, place: str, parts: Parts) -> object:
    """The value that `plain` turned into this tree, checked against the type that is expected there."""
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        if tree is None and types.NoneType in get_args(expected):
            return None
        (expected,) = [choice for choice in get_args(expected) if choice is not types.NoneType]
        return typed(tree, expected, place, parts)
    if origin is Literal:
        choices = get_args(expected)
        return tree if tree in choices else refuse(place, f"{quoted(tree)} is none of {', '.join(map(str, choices))}")
    if origin is tuple:
        if not isinstance(tree, list):
            return refuse(place, f"expected a list, got {quoted(tree)}")
        return typed_tuple(cast(list[object], tree), get_args(expected), place, parts)
    if expected is float and type(tree) in (int, float):
        return typed_float(cast(float, tree), place)
    if expected in (bool, int, float, str):
        return tree if type(tree) is expected else refuse(place, f"expected {IN_JSON[expected]}, got {quoted(tree)}")
    return typed_part(tree, expected, place, parts)


def typed_float(number: float, place: str) -> float:
    """A finite number; JSON may hold larger ones than a float."""
    if abs(number) > sys.float_info.max:
        refuse(place, "the number is too large")
    return float(number)


def typed_tuple(items: Sequence[object], arguments: tuple[Any, ...], place: str, parts: Parts) -> tuple[object, ...]:
    """A tuple of one type repeated, or of a type for each place."""
    repeated = len(arguments) == 2 and arguments[1] is Ellipsis
    expected = (arguments[0],) * len(items) if repeated else arguments
    if len(items) != len(expected):
        refuse(place, f"expected {len(expected)} items, got {len(items)}")
    return tuple(
        typed(item, kind, f"{place}[{i}]", parts) for i, (item, kind) in enumerate(zip(items, expected, strict=True))
    )


def typed_part(tree: object, expected: Any, place: str, parts: Parts) -> object:
    """One of the dataclasses that may stand there, with all of its fields checked."""
    names = {choice.__name__: choice for choice in parts.get(expected, (expected,))}
    if not isinstance(tree, dict):
        return refuse(place, f"expected an object with a type ({', '.join(names)}), got {quoted(tree)}")
    values = cast(dict[str, object], tree).copy()
    name = values.pop("type", next(iter(names)) if len(names) == 1 else None)
    if not isinstance(name, str) or name not in names:
        meant = nearest(str(name), names)
        reason = f"{quoted(name)} is none of {', '.join(names)}{meant}"
        return refuse(place, reason, ValueError if meant else UnknownPartError)
    part = names[name]
    hints = get_type_hints(part)
    for key in values:
        if key not in hints:
            known = nearest(key, hints) or f" (there are {', '.join(hints)})"
            refuse(place, f"{name} has no field {quoted(key)}{known}")
    arguments = {key: typed(value, hints[key], f"{place}: {key}", parts) for key, value in values.items()}
    try:
        return part(**arguments)
    except TypeError as error:
        return refuse(place, f"{name} is not complete ({error})")


def refuse(place: str, reason: str, kind: type[ValueError] = ValueError) -> Any:
    """Raise: a value of a recipe does not fit."""
    raise kind(f"{printable(place)}: {printable(reason)}")
