import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def rng() -> torch.Generator:
    """A seeded source of random numbers, the same in every test."""
    return torch.Generator().manual_seed(0)
