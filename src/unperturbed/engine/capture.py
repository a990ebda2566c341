"""Work on a GPU, recorded as it is launched."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def captured(graph: torch.cuda.CUDAGraph, memory: Any = None) -> Generator[None]:
    """Record what is launched inside, in memory of its own or in one that several recordings share.

    A recording that is thrown away meanwhile would spoil this one, so Python collects no garbage.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=memory, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()
