"""A model and tensors of your own: robust training with 100 labels, then an evaluation."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import unperturbed as up


class Network(nn.Module):
    """Any classifier will do: images in [0, 1] go in, logits come out."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.classes = nn.Sequential(nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classes(self.features(x))


def main() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    x, y, u = images[:100], labels[:100], images[100:1397]

    torch.manual_seed(0)
    objective = up.SRT(solver=up.PGD(around=up.Linf(eps=0.1), steps=5, step_size=0.04), weight=1.0)
    model = up.fit(Network(), labeled=(x, y), unlabeled=u, objective=objective, steps=150, batch=100)

    attacks = {"pgd": up.attacks.pgd(eps=0.1), "shifts": up.attacks.random(up.Spatial(rotation=0, translation=1))}
    report = up.evaluate(model, images[1397:], labels[1397:], attacks)
    print(report.table())


if __name__ == "__main__":
    main()
