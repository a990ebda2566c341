"""A training loop of your own: the objective is one line of it, and everything around it is yours."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import unperturbed as up


def main() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    labeled, unlabeled, test = torch.arange(len(images)).split([100, 1297, 400])

    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    objective = up.SRT(solver=up.PGD(around=up.Linf(eps=0.1), steps=5, step_size=0.04), weight=1.0)
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    rng = torch.Generator().manual_seed(0)

    for step in range(1, 301):
        some = labeled[torch.randperm(len(labeled), generator=rng)[:32]]
        others = unlabeled[torch.randperm(len(unlabeled), generator=rng)[:64]]
        loss = objective(model, up.Batch(images[some], labels[some], images[others]), rng).total
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    report = up.evaluate(model, images[test], labels[test], {"pgd": up.attacks.pgd(eps=0.1)})
    print(f"accuracy {report.accuracy():.1%} clean, {report.accuracy('pgd'):.1%} under PGD")


if __name__ == "__main__":
    main()
