"""The GPU that some benchmarks are about."""

import sys

import torch

GPU = torch.device("cuda")


def require_gpu() -> None:
    """End with a sentence where there is none."""
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU, and this machine has none that PyTorch sees: run it on one that has")
