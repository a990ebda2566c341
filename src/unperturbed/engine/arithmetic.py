"""Which arithmetic a device computes with, and what else it can do."""

from collections import abc
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

Precision = Literal["auto", "bfloat16", "tf32", "float32"]
"""auto: bfloat16 where the device computes with it, else float32"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How networks and training steps are run."""

    precision: Literal["bfloat16", "tf32", "float32"] = "float32"
    """of convolutions and matrix products; weights, losses and their sums are float32 always"""
    folded: bool = False
    """while a network stands still, whether its BatchNorms are folded into its convolutions"""
    compiled: bool = False
    """whether chains of small operations become one kernel each"""
    recorded: bool = False
    """whether a training step is recorded once and replayed"""

    @property
    def plain(self) -> bool:
        """Whether networks are run just as they are."""
        return self == Engine()

    def lowers(self, images: Tensor) -> bool:
        """Whether images of this type are computed with a lower precision than their own."""
        return self.precision == "bfloat16" and images.dtype == torch.float32

    def cast(self, device: torch.device) -> torch.autocast | nullcontext[None]:
        """While this lasts, convolutions and matrix products compute with this precision."""
        return torch.autocast(device.type, torch.bfloat16) if self.precision == "bfloat16" else nullcontext()

    def computing(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """A function of images, computed with this precision."""

        def run(x: Tensor, *rest: Any) -> Tensor:
            with self.cast(x.device):
                return function(x, *rest)

        return run

    @contextmanager
    def arithmetic(self) -> abc.Generator[None]:
        """While this lasts, float32 means float32, or TF32 where that is wanted; only GPUs know a difference.

        An autocast of the caller counts no more: until it ends, it would answer by weights as they were at first.
        """
        tf32 = self.precision != "float32"
        before = torch.get_float32_matmul_precision()
        # A race between algorithms may end differently in another run, and some add numbers up in any order.
        with (
            autocast_left(),
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32),
        ):
            torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
            try:
                yield
            finally:
                torch.set_float32_matmul_precision(before)


@contextmanager
def autocast_left() -> abc.Generator[None]:
    """Whatever happens in here, happens outside of every autocast; what these remember of weights is forgotten."""
    entered = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    with ExitStack() as left:
        for kind in entered:
            left.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        try:
            yield
        finally:
            if entered:
                torch.clear_autocast_cache()


def engine_for(
    device: torch.device, precision: Precision = "auto", say: Callable[[str], None] | None = None
) -> Engine:
    """All that pays on this device; what was asked for and cannot be had is said."""
    if precision not in get_args(Precision):
        raise ValueError(f"--precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
    if device.type != "cuda":
        if precision in ("bfloat16", "tf32") and say is not None:
            say(f"{precision} is for GPUs that compute with it: on the {device.type}, float32 is used instead")
        return Engine(folded=True)
    if precision in ("auto", "bfloat16"):
        if torch.cuda.is_bf16_supported(including_emulation=False):
            precision = "bfloat16"
        else:
            if precision == "bfloat16" and say is not None:
                say(f"{torch.cuda.get_device_name(device)} does not compute with bfloat16: float32 is used instead")
            precision = "float32"
    return Engine(precision=precision, folded=True, compiled=True, recorded=True)
