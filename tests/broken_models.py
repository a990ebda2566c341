"""A zoo of classifiers whose robustness is an illusion: each wraps a sound one and deceives its evaluation."""

import torch
import torch.nn.functional as F
from torch import nn


class Wrapped(nn.Module):
    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f


class LoudLogits(Wrapped):
    """Logits times 1,000: cross-entropy saturates and has no gradient."""

    def forward(self, x):
        return 1_000 * self.f(x)


class QuantizedInput(Wrapped):
    """Pixels rounded to a few levels: the gradient is 0 almost everywhere."""

    def forward(self, x):
        return self.f((x * 7).round() / 7)


class CutGradient(Wrapped):
    """The input is detached: autograd knows no path back to it."""

    def forward(self, x):
        return self.f(x.detach())


class LostGradient(torch.autograd.Function):
    """x, with a gradient that is no number."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.nan


class Lost(Wrapped):
    """Every gradient is NaN."""

    def forward(self, x):
        return self.f(LostGradient.apply(x))


class EndlessGradient(torch.autograd.Function):
    """x, with a gradient of infinite length."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.inf


class Endless(Wrapped):
    """Every gradient is infinite: it has signs, which Linf follows, but no direction in L2."""

    def forward(self, x):
        return self.f(EndlessGradient.apply(x))


class GarbledGradient(torch.autograd.Function):
    """x, with a gradient of the right size whose signs are scrambled."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        signs = torch.randint(0, 2, gradient.shape[1:], generator=torch.Generator().manual_seed(0)) * 2 - 1
        return gradient * signs


class Garbled(Wrapped):
    """Gradients are there, and lead nowhere."""

    def forward(self, x):
        return self.f(GarbledGradient.apply(x))


class Probabilities(Wrapped):
    """The softmax is part of the model."""

    def forward(self, x):
        return self.f(x).softmax(1)


class Noisy(Wrapped):
    """Noise on the input, in evaluation mode too, as F.dropout without its flag would make."""

    def forward(self, x):
        return self.f(x + 0.1 * torch.randn_like(x))


class BatchStatistics(Wrapped):
    """BatchNorm that cannot be put into evaluation mode."""

    def forward(self, x):
        return self.f(x)

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.training = True
        return self


class Moody(Wrapped):
    """Every seventh query gets a wrong answer: an attack passes it and returns a point that is answered well."""

    queries = 0

    def forward(self, x):
        self.queries += 1
        answer = self.f(x)
        return -answer if self.queries % 7 == 0 else answer


class Purified(Wrapped):
    """Before it answers, the input is optimized: a loop of gradient steps within the forward pass."""

    def forward(self, x):
        with torch.enable_grad():
            clean = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(-self.f(clean).logsumexp(1).sum(), clean)
        return self.f(x - 0.02 * gradient.sign())


class Detector(Wrapped):
    """Where the background looks dirty, the answer comes from stored images, and attacks on f seem to fail.

    Perturbations that stay below the threshold fool f as ever: a small radius breaks more than a large one.
    """

    def __init__(self, f, images, labels, threshold):
        super().__init__(f)
        self.threshold = threshold
        self.register_buffer("stored", images.flatten(1))
        self.register_buffer("answers", 10 * F.one_hot(labels, 10).float())

    def forward(self, x):
        dark = x < 0.3
        dirt = (x * dark).sum((1, 2, 3)) / dark.sum((1, 2, 3)).clamp_min(1)
        nearest = torch.cdist(x.flatten(1), self.stored).argmin(1)
        answer = self.f(x)
        return torch.where((dirt > self.threshold).unsqueeze(1), self.answers[nearest] + 0.01 * answer, answer)


class BlindSpot(nn.Module):
    """Tells two colors apart, except for images shifted by a quarter of a pixel: no point of the usual grid is."""

    def forward(self, x):
        mass = x.sum((1, 2, 3))
        place = (x.sum((1, 2)) * torch.arange(x.shape[3], dtype=x.dtype)).sum(1) / mass.clamp_min(1e-6)
        offset = place - (x.shape[3] - 1) / 2
        blind = (offset - 0.25).abs() < 0.1
        bright = x.amax((1, 2, 3)) - 0.5
        answer = torch.where(blind, -bright, bright)
        return torch.stack([-answer, answer], 1)
