"""Algorithms 1 and 2, worst-of-k and the grid, for one image (C, H, W) at a time; f maps (1, C, H, W) to logits."""

import cmath
from itertools import product
from math import floor, radians

import torch


def logits_of(f, image):
    return f(image.unsqueeze(0))[0]


def cross_entropy(logits, target):
    """-log of the softmax of the target class."""
    largest = max(logits.tolist())
    return torch.log(sum(torch.exp(z - largest) for z in logits)) + largest - logits[target]


def margin(logits, target):
    """The largest other logit minus the target's."""
    return max(z for i, z in enumerate(logits) if i != target) - logits[target]


def gradient(f, image, target):
    image = image.clone().requires_grad_()
    return torch.autograd.grad(cross_entropy(logits_of(f, image), target), image)[0]


def between(value, low, high):
    return max(min(value, high), low)


def stepped(perturbed, image, step, eps):
    """One step, clipped pixel by pixel to the eps ball around the image and then to [0, 1]."""
    moved = [
        between(between(start + change, pixel - eps, pixel + eps), 0.0, 1.0)
        for start, pixel, change in zip(*(t.flatten().tolist() for t in (perturbed, image, step)), strict=True)
    ]
    return torch.tensor(moved, dtype=torch.float64).view_as(image)


def pgd(f, image, target, *, noise, eps, alpha, steps):
    """Algorithm 1 as the authors ran it: sign steps, each clipped to the ball and to valid images."""
    perturbed = stepped(image, image, noise, eps)
    for _ in range(steps):
        perturbed = stepped(perturbed, image, alpha * gradient(f, perturbed, target).sign(), eps)
    return perturbed


def fgsm(f, image, target, *, noise, eps, alpha):
    """Algorithm 2 with a sign step; the start is a valid image too."""
    start = stepped(image, image, noise, eps)
    return stepped(start, image, alpha * gradient(f, start, target).sign(), eps)


def warp(image, degrees, right, down, *, pad=16):
    """Pad with zeros, rotate clockwise about the center, shift, crop back; bilinear, pixel by pixel."""
    channels, height, width = image.shape
    padded = torch.zeros(channels, height + 2 * pad, width + 2 * pad, dtype=torch.float64)
    padded[:, pad : pad + height, pad : pad + width] = image
    pixels = padded.tolist()
    center = complex((width + 2 * pad - 1) / 2, (height + 2 * pad - 1) / 2)
    # With y pointing down, multiplying by exp(i angle) turns clockwise on the screen.
    turn_back = cmath.exp(-1j * radians(degrees))

    def at(channel, row, column):
        inside = 0 <= row < height + 2 * pad and 0 <= column < width + 2 * pad
        return pixels[channel][row][column] if inside else 0.0

    warped = torch.zeros_like(image)
    for row, column in product(range(height), range(width)):
        source = (complex(column + pad, row + pad) - complex(right, down) - center) * turn_back + center
        left, top = floor(source.real), floor(source.imag)
        across, below = source.real - left, source.imag - top
        for channel in range(channels):
            warped[channel, row, column] = (
                (1 - below) * (1 - across) * at(channel, top, left)
                + (1 - below) * across * at(channel, top, left + 1)
                + below * (1 - across) * at(channel, top + 1, left)
                + below * across * at(channel, top + 1, left + 1)
            )
    return warped


def worst_of(f, image, target, thetas, loss=cross_entropy):
    """The warp of the greatest loss among x and the given (degrees, right, down)."""
    worst, greatest = image, loss(logits_of(f, image), target)
    for theta in thetas:
        candidate = warp(image, *(float(value) for value in theta))
        value = loss(logits_of(f, candidate), target)
        if value > greatest:
            worst, greatest = candidate, value
    return worst


def grid_points(rotation, translation, points):
    """All combinations of equally spaced rotations and shifts."""

    def spaced(bound, count):
        return [0.0] if count == 1 else [-bound + 2 * bound * i / (count - 1) for i in range(count)]

    bounds = (rotation, translation, translation)
    return list(product(*(spaced(bound, count) for bound, count in zip(bounds, points, strict=True))))
