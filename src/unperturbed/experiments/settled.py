"""A finished run, made small: weights that it did not keep lie beside those it kept, and no checkpoint is left."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from ..averaging import estimate_batchnorm
from ..datasets import Dataset
from ..files import write_whole
from ..images import for_statistics, parts
from ..recipe import Recipe
from ..runs import RunDirectory
from .notes import note

OTHER_WEIGHTS = "model-other.safetensors"
"""the weights that a run did not keep, in its directory"""


def settle(path: Path, model: nn.Module, dataset: Dataset, device: torch.device) -> None:
    """Take from the last checkpoint of a finished run what is still needed, and remove its checkpoints.

    These hold several times what the weights do, and nothing is left to go on with. A run may be settled again where
    it was interrupted. The model is the run's network, whose weights are lost.
    """
    run = RunDirectory(path)
    state = run.read_checkpoint(torch.device("cpu"))
    if state is not None:
        keep_other_weights(path, run.read_recipe(), state, model.to(device), dataset)
    for file in (run.checkpoint_before, run.checkpoint):
        file.unlink(missing_ok=True)


def keep_other_weights(
    path: Path, recipe: Recipe, state: Mapping[str, Any], model: nn.Module, dataset: Dataset
) -> None:
    """Write the weights that were not kept, where there are any, and when and how good the best ones were."""
    best, other = state["best"], weights_not_kept(recipe, state)
    if other is not None:
        model.load_state_dict(other)
        if recipe.averaging.estimates and other is not best["weights"]:
            device = next(model.parameters()).device
            estimate_batchnorm(model, for_statistics(parts(dataset, recipe.data).to(device), recipe.seed))
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        write_whole(path / OTHER_WEIGHTS, safetensors.torch.save(tensors))
    if best:
        early = "fallen" if state["fallen"] else "ended" if state["step"] < recipe.steps else ""
        ending = {early: state["step"]} if early else {}
        note(path, selected={"step": best["step"], "accuracy": best["accuracy"], **ending})


def other_weights(path: Path) -> dict[str, Tensor] | None:
    """The weights that the run in this directory did not keep; none where there are no others."""
    file = path / OTHER_WEIGHTS
    return safetensors.torch.load_file(file) if file.is_file() else None


def weights_not_kept(recipe: Recipe, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The last weights where the best on validation were kept, else the best; none where both are the same.

    Statistics of the last ones are those of training, also where the run ends with others.
    """
    best = state["best"]
    if not best or best["step"] == state["step"]:
        return None
    kept_best = recipe.validation.keep == "best" or state["fallen"]
    return (state["average"] or state["model"]) if kept_best else best["weights"]
