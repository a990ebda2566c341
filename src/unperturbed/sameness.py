"""What tells one result from another: attacks in words, and all that their results depend on as a hash."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from .attacks import Attack
from .engine import arrays_kept_by, kept_by
from .report import Report

TOLD = ("torch", __name__.split(".")[0])
"""packages whose modules say in words what they are"""


def settings_of(attack: object) -> str:
    """An attack, or a model, in words that are the same in every process: addresses in memory are not."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(attack))


def holds_all(report: Report, attacks: Mapping[str, Attack]) -> bool:
    """Whether a report has all of these attacks, with these settings."""
    made = {(result.name, result.settings) for result in report.attacks}
    return all((name, settings_of(attack)) in made for name, attack in attacks.items())


def tells_itself_apart(attack: Attack) -> bool:
    """Whether other settings would be other words: objects without a repr and lambdas all have the same."""
    return not re.search(r" object at 0x|<lambda>|<locals>", repr(attack)) and not holds_more_than_words(attack)


def holds_more_than_words(part: Any) -> bool:
    """Whether there is something in it whose words leave most of it out.

    That is a network, a tensor, an array, or a function of a stranger: written anew, it has its old name.
    """
    if isinstance(part, partial):
        return holds_more_than_words((part.func, part.args, part.keywords))
    if isinstance(part, Mapping):
        return holds_more_than_words((*cast(Mapping[Any, Any], part).values(),))
    if isinstance(part, tuple | list):
        return any(map(holds_more_than_words, cast(list[Any], part)))
    if is_dataclass(part):
        return any(holds_more_than_words(getattr(part, slot.name, None)) for slot in fields(part))
    if isinstance(part, FunctionType | MethodType):
        return str(part.__module__).split(".")[0] not in TOLD  # What exec made has none.
    return isinstance(part, nn.Module | Tensor | np.ndarray)


def fingerprint(f: nn.Module, images: Tensor, labels: Tensor, seed: int, batch: int) -> str:
    """What an attack's answer depends on besides its settings, as a hash.

    That is the model in words and by its weights, the images, the labels, the seed and the batch. Modules of PyTorch
    and our own name the numbers that they keep and register their weights, those of strangers need not.
    """
    strange = [module for module in f.modules() if type(module).__module__.split(".")[0] not in TOLD]
    # PyTorch names the bias of a BatchNorm from 2.13 on: one that has it is no other model than before.
    described = re.sub(r"(BatchNorm\w*\([^()]*), bias=True", r"\1", settings_of(f))
    words = (seed, batch, described, *(["keeps", *kept] if (kept := kept_by(strange)) else []))
    digest = hashlib.sha256(repr(words).encode())
    stored = f.state_dict()
    unstored = [buffer for name, buffer in f.named_buffers() if name not in stored]
    for value in (*stored.values(), *unstored, *arrays_kept_by(strange), images, labels):
        if isinstance(value, Tensor):
            for part in numbers_of(value.detach()):
                digest.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


def numbers_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The numbers that a tensor consists of; of a sparse one, where they are and what."""
    if tensor.layout is torch.strided:
        return (tensor,)
    pairs = tensor.to_sparse().coalesce()
    return pairs.indices(), pairs.values()
