"""The paper's data: files of the same names that hold other images are refused."""

import hashlib
from pathlib import Path

from ..datasets import load
from ..recipes.words import DATA_SETS

SHA256 = {
    "mnist": "1e35582d42a90940c55b956deb61875c020b567ed20e3c5b174f52bf7809ed9b",
    "cifar10": "9048fcbac9c08a64d57a7c5a5a66750a974ad4eab380914df129f7e223d823df",
}
"""of training and test images, each followed by their labels in eight bytes"""


def require_data(name: str, folder: Path | None) -> None:
    """Refuse files of another data set: Fashion-MNIST names its own as MNIST does."""
    dataset = load(name, folder)
    if name not in SHA256:
        return
    digest = hashlib.sha256()
    for part in (dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels):
        digest.update(part.contiguous().numpy().data)
    if digest.hexdigest() != SHA256[name]:
        raise ValueError(
            f"the files of {name} hold other images or labels than {DATA_SETS[name]}, which the paper's numbers are "
            "of: name the folder with those by --data, or none to have them downloaded"
        )
