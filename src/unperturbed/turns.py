"""Runs side by side in one process: a step of each in turn."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import torch

from .runtime import random_numbers_kept


def run_together(runs: Sequence[Iterator[int]], device: torch.device, stop: Callable[[], bool] = bool) -> bool:
    """Take the steps of several runs in turn, until all end (then true) or are to stop; on a GPU in streams."""
    on_gpu = device.type == "cuda"
    streams = [torch.cuda.stream(torch.cuda.Stream(device)) if on_gpu else nullcontext() for _ in runs]
    if on_gpu:
        torch.cuda.synchronize(device)
    going = dict(enumerate(runs))
    with random_numbers_kept(device), torch.enable_grad():  # Whoever asks may have turned gradients off.
        while going and not stop():
            for number, run in list(going.items()):
                with streams[number]:
                    if next(run, None) is None:
                        del going[number]
    if on_gpu:
        torch.cuda.synchronize(device)
    return not going
