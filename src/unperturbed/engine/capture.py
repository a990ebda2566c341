"""Work on a GPU, recorded as it is launched."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def captured(graph: torch.cuda.CUDAGraph, memory: Any = None, stream: Any = None) -> Generator[None]:
    """Record what is launched inside, in memory of its own or in one that several recordings share.

    Matrix products of all that is recorded on one stream share their scratch memory: what may be replayed while
    another recording is, or outlive it, needs a stream of its own. A recording that is thrown away meanwhile would
    spoil this one, so Python collects no garbage.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=memory, stream=stream, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()
