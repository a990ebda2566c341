"""Attacks for one image (C, H, W) at a time; f maps (1, C, H, W) to logits."""

from math import cos, inf, pi

import torch

from .solvers import gradient, logits_of


def ddn(f, image, target, *, steps, gamma, init_norm):
    """The closest image met that fools f, else the image itself, without rounding to levels (Rony et al. 2019)."""
    farthest = torch.maximum(image, 1 - image).norm()
    tried, radius, closest, closest_norm = image, init_norm, image, inf
    for step in range(steps + 1):
        size, fooled = (tried - image).norm(), logits_of(f, tried).argmax() != target
        if fooled and size < closest_norm:
            closest, closest_norm = tried, size
        radius = min(radius * (1 - gamma if fooled else 1 + gamma), farthest)
        slope = gradient(f, tried, target)
        length = 0.01 + 0.99 * (1 + cos(pi * step / steps)) / 2
        moved = tried - image + length * slope / slope.norm()
        tried = (image + radius * moved / moved.norm()).clamp(0, 1)
    return closest
