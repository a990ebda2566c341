"""Training of a model and on tensors of one's own."""

from collections.abc import Sequence
from typing import TypeVar, cast

from torch import Tensor, nn

from .averaging import Average
from .data import Data
from .engine import Precision, layout_kept
from .guards import LOOKS, done_in_vain, require_kinds, require_use
from .images import Images
from .inputs import check_model, require, require_tensor
from .objectives import SRT, Objective, solver_of
from .printing import quoted
from .progress import Warnings, Watcher
from .recipe import SGD, Recipe, Validation
from .runtime import pick_device
from .schedules import Cyclic, Ramp
from .solvers import Solver, Strongest, require_count, whole_number
from .trainer import Trainer

Model = TypeVar("Model", bound=nn.Module)
BATCH = 128
"""images of a step where nobody says how many"""


def fit(
    model: Model,
    *,
    labeled: tuple[Tensor, Tensor],
    unlabeled: Tensor | None = None,
    held_out: tuple[Tensor, Tensor] | None = None,
    objective: Objective | None = None,
    steps: int = 2_000,
    batch: int | None = None,
    least_labeled: int = 1,
    optimizer: SGD | None = None,
    ramp: Ramp | None = None,
    crop: int = 0,
    flip: bool = False,
    averaging: Average | None = None,
    validation: Validation | None = None,
    precision: Precision = "auto",
    microbatch: int | None = None,
    seed: int = 0,
    device: str = "auto",
    watcher: Watcher | None = None,
) -> Model:
    """Train the model in place and return it in evaluation mode.

    Images are (N, C, H, W), uint8 or float in [0, 1], and the model returns logits for such floats. By default
    SRT with PGD on batches of 128, or of all images where there are fewer, a triangular rate with peak 0.05, and the
    robust term ramped over the first half of the run; of a batch, at least 1 image is labeled, or as many as
    `least_labeled` says. Steps are taken after `model.train()`, by which adapters that evaluation mode adds up with
    other weights are also to be taken apart before they are saved.
    Where more labeled images are held out, the model ends with the weights that were best on them in twenty looks,
    under the search of the objective if that is one of ours; `validation` may say otherwise.
    What looks wrong, as a C(x) that becomes constant, is a warning, unless a watcher is told.
    """
    check_model(model)
    steps, seed, least_labeled = map(whole_number, ("steps", "seed", "least_labeled"), (steps, seed, least_labeled))
    batch = None if batch is None else whole_number("batch", batch)
    microbatch = None if microbatch is None else whole_number("microbatch", microbatch)
    objective, optimizer = objective or SRT(), optimizer or SGD(rate=Cyclic(peak=0.05))
    ramp, averaging = Ramp(over=0.5) if ramp is None else ramp, Average() if averaging is None else averaging
    require_kinds(objective, optimizer, ramp, averaging)
    images = given_images(labeled, unlabeled, held_out)
    if validation is not None and held_out is None:
        raise ValueError("validation tells how held-out images are used, but there are none: give held_out=(x, y)")
    if not isinstance(validation, Validation | None):
        raise ValueError(
            f"validation must be unperturbed.Validation, as Validation(every=100), got {quoted(validation)}"
        )
    require_use(objective, len(images.unlabeled), "leave unlabeled out, or choose an objective that uses it, as SRT")
    with layout_kept(model):
        trainer = Trainer(
            f=model,
            images=images,
            recipe=Recipe(
                data=Data(crop=crop, flip=flip),
                objective=objective,
                steps=steps,
                batch=max(1, min(BATCH, len(images.labeled) + len(images.unlabeled))) if batch is None else batch,
                least_labeled=least_labeled,
                optimizer=optimizer,
                ramp=ramp,
                averaging=averaging,
                validation=validation or (looks(steps, objective) if held_out else Validation()),
                precision=precision,
                microbatch=microbatch,
                seed=seed,
            ),
            device=pick_device(device),
        )
        watcher = watcher or Warnings()
        for sentence in done_in_vain(trainer.recipe, len(images.validation)):
            watcher.warned(sentence)
        trainer.run(watcher=watcher)
    return model


def given_images(
    labeled: tuple[Tensor, Tensor], unlabeled: Tensor | None, held_out: tuple[Tensor, Tensor] | None
) -> Images:
    """What was given to learn from, each a tensor with rows; of what was not given there are none."""
    x, y = tensors_of("labeled", labeled, "labeled images", "labels")
    if unlabeled is not None:
        require_rows("unlabeled images", unlabeled)
    seen, answers = x[:0], y[:0]
    if held_out is not None:
        seen, answers = tensors_of("held_out", held_out, "held-out images", "labels of held-out images")
        require(len(seen) > 0, "held_out has no image: give some, or leave it out")
    return Images(
        labeled=x.detach(),
        labels=y,
        unlabeled=(x[:0] if unlabeled is None else unlabeled).detach(),
        validation=seen.detach(),
        validation_labels=answers,
    )


def tensors_of(name: str, pair: object, *what: str) -> tuple[Tensor, Tensor]:
    """Images and their labels, each a tensor with rows."""
    if not isinstance(pair, tuple | list) or len(cast(Sequence[object], pair)) != 2:
        raise ValueError(f"{name} must be images and their labels, got a {type(pair).__name__}: write {name}=(x, y)")
    images, labels = cast(tuple[Tensor, Tensor], pair)
    for each, words in zip((images, labels), what, strict=True):
        require_rows(words, each)
    return images, labels


def require_rows(what: str, part: Tensor) -> None:
    """Refuse anything but a tensor with a row for each."""
    require_tensor(part, what)
    require(part.ndim > 0, f"{what} must be a tensor of them all, got a single number: give it a row for each")


def looks(steps: int, objective: Objective) -> Validation:
    """Twenty looks in so many steps, under the search of the objective where it has one of ours.

    What a stranger calls a solver may take other things than ours do.
    """
    require_count("steps", steps)
    return Validation(every=max(1, steps // LOOKS), robust=is_ours(solver_of(objective)))


def is_ours(solver: Solver | None) -> bool:
    """Whether that is a solver of this package all through."""
    parts = solver.solvers if isinstance(solver, Strongest) else ()
    return type(solver).__module__.split(".")[0] == __name__.split(".")[0] and all(map(is_ours, parts))
