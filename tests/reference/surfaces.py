"""Decision and loss surfaces, point by point, in Python numbers; f maps (1, C, H, W) to logits."""

from itertools import pairwise
from math import exp, log, sqrt

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


def points_inside(size, scenario):
    """The places (i, j) in the neighborhood: pixel-wise those no farther than eps, |s| + |t|, else all."""
    far = (size - 1) / 2
    places = [(i, j) for i in range(size) for j in range(size)]
    return {(i, j) for i, j in places if scenario == "spatial" or abs(i - far) + abs(j - far) <= far}


def slope(values, scenario):
    """The mean length of the gradient, from each point to the next ones; the axes go from -1 to 1."""
    size = len(values)
    apart, inside = 2 / (size - 1), points_inside(size, scenario)
    lengths = []
    for i, j in inside:
        if {(i + 1, j), (i, j + 1)} <= inside:
            down = (values[i + 1][j] - values[i][j]) / apart
            across = (values[i][j + 1] - values[i][j]) / apart
            lengths.append(sqrt(down**2 + across**2))
    return sum(lengths) / len(lengths)


def ruggedness(values, scenario):
    """Walking along each row and each column: what one climbs or descends in vain, over the way one has gone."""
    size = len(values)
    apart, inside = 2 / (size - 1), points_inside(size, scenario)
    in_vain = gone = 0.0
    for turned in (False, True):
        for i in range(size):
            way = [(j, i) if turned else (i, j) for j in range(size)]
            seen = [values[a][b] for a, b in way if (a, b) in inside]
            ups = downs = 0.0
            for before, after in pairwise(seen):
                ups += max(after - before, 0.0)
                downs += max(before - after, 0.0)
                gone += apart
            in_vain += min(ups, downs)
    return in_vain / gone
