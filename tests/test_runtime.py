"""Devices, seeds and provenance."""

import platform
from itertools import combinations

import pytest
import torch

from unperturbed.runtime import SOFTWARE, derived_seed, generator, pick_device, provenance, threads, version_of
from unperturbed.version import __version__

CPU = torch.device("cpu")


def test_seeds_differ_by_any_argument():
    purposes = [
        (0,),
        (1,),
        (-1,),
        (0, "step"),
        (0, "step", 1),
        (0, "step", 2),
        (0, "step", "1"),
        (0, "weights", 1),
        (0, 1, "step"),
        (1, "step", 1),
        (0, "step1"),
        (0, "st", "ep"),
    ]
    for one, other in combinations(purposes, 2):
        assert derived_seed(*one) != derived_seed(*other), (one, other)


def test_seeds_are_the_same_on_every_machine_and_fit_a_generator():
    assert derived_seed(0, "step", 1) == 28_679_623_850_856_145
    assert 0 <= derived_seed(10**30, "a" * 1000) < 2**56


def test_a_generator_repeats_itself_and_differs_from_that_of_another_purpose():
    draws = [torch.rand(5, generator=generator(CPU, 3, purpose)) for purpose in ("attack", "attack", "split")]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_generator_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    torch.rand(5, generator=generator(CPU, 0))
    assert torch.equal(torch.get_rng_state(), before)


def test_auto_picks_a_device_that_works():
    assert pick_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == CPU


@pytest.mark.parametrize("name", ["banana", "", "cpu:-1", "hpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name):
    with pytest.raises(ValueError, match=f"there is no device {name!r} on this machine, which has cpu"):
        pick_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with CUDA has that device")
def test_cuda_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match=r"there is no device 'cuda' on this machine, which has cpu$"):
        pick_device("cuda")


def test_provenance_names_software_device_and_threads():
    found = provenance(CPU)
    assert set(found) == {"unperturbed", *SOFTWARE, "python", "device", "threads"}
    assert found["unperturbed"] == __version__
    assert found["torch"] == version_of("torch") != "from source"
    assert found["python"] == platform.python_version()
    assert found["device"] == f"cpu: {platform.machine()}"
    assert found["threads"] == torch.get_num_threads()


def test_a_package_that_is_not_installed_runs_from_source():
    assert version_of("a-package-nobody-installed") == "from source"


def test_threads_are_given_back_also_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_a_gpu_whose_memory_others_hold_is_no_gpu_that_is_not_there(monkeypatch):
    def full(*size, device):
        raise RuntimeError("CUDA error: out of memory\nSearch for …")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(RuntimeError, match="CUDA error: out of memory"):
        pick_device("cuda")
