"""The machine: which device is used, where things are kept, how random numbers are seeded, what a report says."""

import hashlib
import os
import platform
from collections import abc
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import torch
from torch import Generator

from .version import __version__

SOFTWARE = ("torch", "numpy")
FULL = "CUDA error: out of memory"
"""words of a GPU's driver, as where other processes hold all of its memory"""
TOO_LARGE = ("can't allocate memory", "Storage size calculation overflowed", FULL)
"""words about memory that is not there, on the host too; these errors have no type of their own"""


def pick_device(name: str = "auto") -> torch.device:
    """The device of that name; auto is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        if isinstance(error, RuntimeError) and out_of_memory(error):
            raise
        found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ValueError(f"there is no device {name!r} on this machine, which has {', '.join(found)}") from error
    return device


def cache() -> Path:
    """Where downloads and teachers are kept: UNPERTURBED_CACHE, or the user's cache directory."""
    import pooch

    return Path(os.environ.get("UNPERTURBED_CACHE") or pooch.os_cache("unperturbed"))


def derived_seed(seed: int, *words: str | int) -> int:
    """A seed of its own for each purpose, so that adding one draw of random numbers changes no other."""
    text = repr((seed, *words)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:7], "big")


def generator(device: torch.device, seed: int, *words: str | int) -> Generator:
    """A generator on that device, seeded for that purpose."""
    return Generator(device).manual_seed(derived_seed(seed, *words))


class RandomNumbers:
    """Random numbers of a run: its own, those common to all its processes, and those of layers such as Dropout.

    A recording refers to the state of the sources it drew from. On a GPU both are this run's alone, so that runs side
    by side do not disturb each other.
    """

    def __init__(self, device: torch.device, rank: int = 0, processes: int = 1) -> None:
        self.device, self.rank = device, rank
        self.own, self.layers = Generator(device), Generator(device)
        # What is drawn of a whole batch must not depend on who works on which part of it.
        self.common = self.own if processes == 1 else Generator(device)

    def seed(self, seed: int) -> None:
        """Begin anew, all sources and that of the host."""
        self.common.manual_seed(seed)
        if self.own is not self.common:
            seed = derived_seed(seed, "process", self.rank)
            self.own.manual_seed(seed)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            default = default_generator(self.device)
            default.graphsafe_set_state(self.layers.graphsafe_get_state())
            default.manual_seed(seed)

    def renew(self) -> None:
        """Leave the states that a recording which broke off still holds."""
        self.layers = Generator(self.device)
        for source in {self.own, self.common}:
            source.graphsafe_set_state(Generator(self.device).graphsafe_get_state())


def default_generator(device: torch.device) -> Generator:
    """The generator from which layers draw on that GPU."""
    return torch.cuda.default_generators[torch.empty(0, device=device).get_device()]


@contextmanager
def random_numbers_kept(device: torch.device) -> abc.Generator[None]:
    """Whatever happens in here, the caller's random numbers go on as if nothing had been drawn."""
    if device.type != "cuda":
        with torch.random.fork_rng([]):
            yield
        return
    default = default_generator(device)
    with torch.random.fork_rng([device]):
        state = default.graphsafe_get_state()
        try:
            yield
        finally:
            default.graphsafe_set_state(state)


@contextmanager
def threads(count: int) -> abc.Generator[None]:
    """That many threads on the CPU; small networks lose more to waiting for a second one than they gain from it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the host, or that no memory can be so large."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in TOO_LARGE)


def provenance(device: torch.device) -> dict[str, str | int]:
    """What is needed to make a number again: versions, device, threads."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    versions = {package: version_of(package) for package in SOFTWARE}
    return {
        "unperturbed": __version__,
        **versions,
        "python": platform.python_version(),
        "device": f"{device.type}: {name}",
        "threads": torch.get_num_threads(),
    }


def provenance_of_both(made: abc.Mapping[str, str | int], other: abc.Mapping[str, str | int]) -> dict[str, str | int]:
    """The provenance of numbers of which some were made in one way and some in another: what differs is listed."""
    pairs = {name: (value, other.get(name, value)) for name, value in made.items()}
    return {
        name: one if one == another else ", ".join(sorted({*str(one).split(", "), *str(another).split(", ")}))
        for name, (one, another) in pairs.items()
    }


def version_of(package: str) -> str:
    """The installed version, or a word for a package that runs from its sources."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from source"
