"""A finished run, made small: weights that it did not keep lie beside those it kept, and no checkpoint is left."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ..files import write_whole
from ..recipe import Recipe
from ..runs import RunDirectory
from .evidence import note

OTHER_WEIGHTS = "model-other.safetensors"
"""the weights that a run did not keep, in its directory"""


def settle(path: Path) -> None:
    """Take from the last checkpoint of a finished run what is still needed, and remove its checkpoints.

    These hold several times what the weights do, and nothing is left to go on with. A run may be settled again where
    it was interrupted.
    """
    run = RunDirectory(path)
    state = run.read_checkpoint(torch.device("cpu"))
    if state is not None:
        keep_other_weights(path, run.read_recipe(), state)
    for file in (run.checkpoint_before, run.checkpoint):
        file.unlink(missing_ok=True)


def keep_other_weights(path: Path, recipe: Recipe, state: Mapping[str, Any]) -> None:
    """Write the weights that were not kept, where there are any, and when and how good the best ones were."""
    other = weights_not_kept(recipe, state)
    if other is not None:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in other.items()}
        write_whole(path / OTHER_WEIGHTS, safetensors.torch.save(tensors))
    if best := state["best"]:
        note(path, selected={"step": best["step"], "accuracy": best["accuracy"]})


def other_weights(path: Path) -> dict[str, Tensor] | None:
    """The weights that the run in this directory did not keep; none where there are no others."""
    file = path / OTHER_WEIGHTS
    return safetensors.torch.load_file(file) if file.is_file() else None


def has_other_weights(path: Path) -> bool:
    """Whether a run that is settled has weights that it did not keep."""
    return (path / OTHER_WEIGHTS).is_file()


def weights_not_kept(recipe: Recipe, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The last weights where the best on validation were kept, else the best; none where both are the same."""
    best = state["best"]
    # An average whose BatchNorms are estimated anew at the end of a run is not in its checkpoint.
    if not best or best["step"] == state["step"] or recipe.averaging.estimates:
        return None
    kept_best = recipe.validation.keep == "best" or state["fallen"]
    return (state["average"] or state["model"]) if kept_best else best["weights"]
