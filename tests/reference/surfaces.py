"""Decision and loss surfaces, point by point, in Python numbers; f maps (1, C, H, W) to logits."""

from math import exp, log

from .solvers import between, logits_of, warp


def decision(logits, y):
    """p_y minus the largest other probability."""
    exponentials = [exp(z) for z in logits]
    p = [e / sum(exponentials) for e in exponentials]
    return p[y] - max(p[i] for i in range(len(p)) if i != y)


def loss(logits, y):
    """Minus the logarithm of p_y."""
    return log(sum(exp(z) for z in logits)) - logits[y]


def axis(reach, points):
    return [-reach + 2 * reach * i / (points - 1) for i in range(points)]


def stepped(image, first, second, s, t):
    """One pixel after the other: x + s a + t r, not below 0 and not above 1."""
    moved = image.clone()
    for place in range(image.numel()):
        step = s * float(first.flatten()[place]) + t * float(second.flatten()[place])
        moved.view(-1)[place] = between(float(image.flatten()[place]) + step, 0.0, 1.0)
    return moved


def pixel_surface(f, image, y, first, second, *, value, reach, points):
    return [
        [value(logits_of(f, stepped(image, first, second, s, t)).tolist(), y) for t in axis(reach[1], points)]
        for s in axis(reach[0], points)
    ]


def spatial_surface(f, image, y, *, value, reach, points):
    return [
        [value(logits_of(f, warp(image, degrees, right, 0.0)).tolist(), y) for right in axis(reach[1], points)]
        for degrees in axis(reach[0], points)
    ]
