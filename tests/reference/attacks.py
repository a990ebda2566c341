"""Attacks for one image (C, H, W) at a time; f maps (1, C, H, W) to logits."""

from functools import cache
from itertools import product
from math import cos, inf, pi

import torch

from .solvers import cross_entropy, gradient, logits_of, margin


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


def carlini_wagner(f, image, target, *, searches, steps, step_size, first_c):
    """The closest image met that fools f, else the image: Carlini and Wagner (2017), by Adam.

    A descent ends where a tenth of its steps has not brought the loss down by 1e-4 of it.
    """
    closest, closest_norm, cheapest, dearest, c = image, inf, 0.0, inf, first_c
    start, patience = torch.atanh((2 * image - 1) * (1 - 1e-6)), -(-steps // 10)
    for _ in range(searches):
        change, fell, losses = torch.zeros_like(image), False, []
        mean = squares = torch.zeros_like(image)
        for step in range(1, steps + 1):
            change = change.detach().requires_grad_()
            tried = (1 + torch.tanh(start + change)) / 2
            logits, size = logits_of(f, tried), (tried - image).norm()
            loss = size**2 + c * max(0, -margin(logits, target))
            if logits.argmax() != target:
                fell = True
                if size < closest_norm:
                    closest, closest_norm = tried.detach(), size
            (slope,) = torch.autograd.grad(loss, change)
            mean, squares = 0.9 * mean + 0.1 * slope, 0.999 * squares + 0.001 * slope**2
            pace = (squares / (1 - 0.999**step)).sqrt() + 1e-8
            change = change - step_size * mean / (1 - 0.9**step) / pace
            losses.append(loss.item())
            if step > patience and step % patience == 0 and losses[-1] > (1 - 1e-4) * losses[-1 - patience]:
                break
        cheapest, dearest = (cheapest, c) if fell else (c, dearest)
        c = 10 * c if dearest == inf else (cheapest + dearest) / 2
    return closest


def nearest_in_ball(ball, image, point):
    """A point scaled back or clipped into the ball, "Linf" or "L2" with its radius, and then into [0, 1]."""
    (kind, eps), change = ball, point - image
    inside = change.clamp(-eps, eps) if kind == "Linf" else change * min(1, eps / max(change.norm(), 1e-12))
    return (image + inside).clamp(0, 1)


def to_the_border(ball, image, change):
    """The change made as large as the ball allows."""
    kind, eps = ball
    longest = eps * change.sign() if kind == "Linf" else eps * change / change.norm()
    return nearest_in_ball(ball, image, image + longest)


def apgd(f, image, target, *, start, ball, steps, looks):
    """Algorithm 1 of Croce and Hein (2020) on cross-entropy, which looks back at the given steps.

    Returns the point of the largest loss, that loss, the length of the last step, and the first point that fools f.
    """
    kind, eps = ball
    fooled = []

    def judge(point):
        logits = logits_of(f, point)
        if logits.argmax() != target:
            fooled.append(point)
        return cross_entropy(logits, target)

    here = before = best = start
    losses, size = [judge(start)], 2 * eps
    sizes, largest = [size], [losses[0]]
    for step in range(1, steps + 1):
        slope = gradient(f, here, target)
        ahead = slope.sign() if kind == "Linf" else slope / slope.norm()
        climbed = nearest_in_ball(ball, image, here + size * ahead)
        share = 1 if step == 1 else 0.75
        moved = nearest_in_ball(ball, image, here + share * (climbed - here) + (1 - share) * (here - before))
        before, here = here, moved
        losses.append(judge(here))
        if losses[-1] > max(losses[:-1]):
            best = here
        if step in looks:
            last = max((look for look in looks if look < step), default=0)
            gains = sum(losses[i + 1] > losses[i] for i in range(last, step))
            unchanged = size == sizes[-1] and max(losses) == largest[-1] and last > 0
            sizes.append(size)
            largest.append(max(losses))
            if gains <= 0.75 * (step - last) or unchanged:
                size, here = size / 2, best
    return best, max(losses), size, fooled[0] if fooled else image


def way_to_hyperplane(kind, image, slope, ahead):
    """The smallest change within [0, 1] that brings a linear function from this value to 0: its length by halving."""
    room = torch.where((slope > 0) == (ahead > 0), image, 1 - image)
    pace = torch.ones_like(slope) if kind == "Linf" else slope.abs()
    short, long = 0.0, 1 / pace.min().item()
    for _ in range(100):
        length = (short + long) / 2
        gained = (slope.abs() * torch.minimum(length * pace, room)).sum()
        short, long = (length, long) if gained < ahead.abs() else (short, length)
    return -(slope * ahead).sign() * torch.minimum(long * pace, room)


def fab(f, image, target, *, kind, steps, aim=None):
    """The closest point met that fools f, else the image, and how close; towards one class, or the nearest boundary.

    Croce and Hein (2020), with their constants: 0.1 for the way from the image, 1.05 beyond a boundary, 0.9 back.
    """

    def length(change):
        return change.abs().max() if kind == "Linf" else change.norm()

    def boundary(here, other):
        leaf = here.clone().requires_grad_()
        logits = logits_of(f, leaf)
        ahead = logits[other] - logits[target]
        return ahead.detach(), torch.autograd.grad(ahead, leaf)[0]

    def apart(ahead, slope):
        return ahead.abs() / (slope.abs().sum() if kind == "Linf" else slope.norm())

    here, closest, closest_length = image, image, inf
    others = [other for other in range(len(logits_of(f, image))) if other != target] if aim is None else [aim]
    for _ in range(steps):
        ahead, slope = min((boundary(here, other) for other in others), key=lambda each: apart(*each))
        on = way_to_hyperplane(kind, here, slope, ahead)
        from_image = way_to_hyperplane(kind, image, slope, ahead + (slope * (image - here)).sum())
        share = min(length(on) / (length(on) + length(from_image)), 0.1)
        here = ((1 - share) * (here + 1.05 * on) + share * (image + 1.05 * from_image)).clamp(0, 1)
        if logits_of(f, here).argmax() != target:
            if length(here - image) < closest_length:
                closest, closest_length = here, length(here - image)
            here = image + 0.9 * (here - image)
    return closest, closest_length


@cache
def pyramids(side):
    """A square of length 1: its upper half above 0, its lower one below, each higher the farther from its rim."""
    half, shape = side // 2, torch.zeros(side, side, dtype=torch.float64)
    for sign, rows in ((1, range(half)), (-1, range(half, side))):
        one, middle = torch.zeros_like(shape), rows[len(rows) // 2]
        for row, column in product(rows, range(side)):
            apart = max(abs(row - middle), abs(column - half))
            one[row, column] = sum(1 / k**2 for k in range(apart + 1, half + 2))
        shape += sign * one / one.norm()
    return shape / shape.norm()


def square(f, image, target, *, ball, sides, rng):
    """Andriushchenko et al. (2020): the last point that was kept, and its margin; a square has the next of the sides.

    Random numbers are drawn in the order of ours: a place, in L2 another one, a turn, and a sign for each channel.
    """
    (kind, eps), (channels, height, width) = ball, image.shape

    def drawn(*shape):
        return torch.rand(shape, generator=rng, dtype=torch.float64)

    def corner(side):
        down, along = drawn(2).tolist()
        return int(down * (height - side + 1)), int(along * (width - side + 1))

    def signs(*shape):
        return 1 - 2 * (drawn(channels, *shape) >= 0.5).double()

    change = torch.zeros_like(image)
    if kind == "Linf":
        change += signs(1, width)
    else:
        side = max(min(height, width) // 5, 3)
        side += 1 - side % 2
        up = signs(-(-height // side), -(-width // side))
        for channel, row, column in product(range(channels), range(height), range(width)):
            sign = up[channel, row // side, column // side]
            change[channel, row, column] = sign * pyramids(side)[row % side, column % side]
    here = to_the_border(ball, image, change)
    ahead = margin(logits_of(f, here), target)
    for side in sides:
        top, left = corner(side)
        place = (slice(None), slice(top, top + side), slice(left, left + side))
        if kind == "Linf":
            change = here - image
            change[place] += 2 * eps * signs(1, 1)
            tried = nearest_in_ball(ball, image, image + change)
        else:
            above, beside = corner(side)
            both = torch.zeros(height, width, dtype=torch.bool)
            both[above : above + side, beside : beside + side] = both[place[1:]] = True
            turned = torch.rand(1, generator=rng) < 0.5
            shape = pyramids(side).T if turned else pyramids(side)
            sign, change = signs(1, 1), here - image
            unspent = (eps**2 - change.square().sum()) / channels
            fresh = torch.zeros_like(change)
            for channel in range(channels):
                old = change[channel, both]
                before = change[place][channel]
                mixed = sign[channel] * shape + before / max(before.norm(), 1e-12)
                fresh[place][channel] = mixed / mixed.norm() * (unspent + old.square().sum()).sqrt()
            tried = to_the_border(ball, image, change.masked_fill(both, 0.0) + fresh)
        value = margin(logits_of(f, tried), target)
        if ahead <= 0 and value > ahead:
            here, ahead = tried, value
    return here, ahead
