"""Speed: the same mathematics in the arithmetic, the memory layout and the order of launches that suit a device.

Nothing here knows an equation. A network is run by `Accelerated`, a whole training step is recorded by `Recorded`,
and an `Engine` says which of it a device gets.
"""

from .arithmetic import Engine, Precision, engine_for
from .fusion import fused
from .layouts import lay_out, layout_kept
from .network import Accelerated, Hastener
from .numbers import Numbers, arrays_kept_by, kept_by
from .recording import Recorded, stateless

__all__ = [
    "Accelerated",
    "Engine",
    "Hastener",
    "Numbers",
    "Precision",
    "Recorded",
    "arrays_kept_by",
    "engine_for",
    "fused",
    "kept_by",
    "lay_out",
    "layout_kept",
    "stateless",
]
