"""Several processes that train or attack together, as torchrun starts them; for one alone this does nothing."""

import os
import time
from collections import abc
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from .meeting import Meeting, name_of_start

Value = TypeVar("Value")
group: Any = torch.distributed
MEETINGS = count()
"""how often processes have met"""
PRESENT_MEETING: list[Meeting] = []
"""where this process has met those it has joined; none in a group that somebody else has formed"""
LETTING_GO = 0.2
"""seconds for the threads of a group to let go of the last tensors; destroyed before, it may wait for ever"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """One process among those that work together."""

    rank: int = 0
    """number of this one"""
    count: int = 1
    """number of all"""

    @property
    def first(self) -> bool:
        """Whether this is the one that speaks and writes for all."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is nobody to exchange anything with; a group of one exchanges with itself.

        One of several that works by itself for a while is `Processes()`.
        """
        return self.count == 1 and not (joined_any() and group.get_world_size() == 1)

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if not self.alone:
            group.all_reduce(tensor)
        return tensor

    def least_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its smallest values over all processes."""
        if not self.alone:
            group.all_reduce(tensor, op=group.ReduceOp.MIN)
        return tensor

    def sum_gradients(self, f: nn.Module, *others: Tensor) -> tuple[Tensor, ...]:
        """Leave at the parameters the sum of what each process left there, in one exchange with others to sum up.

        A weight that f used in some processes alone, as one of an expert for few images, has a gradient in all then;
        one that it used in none has none, as in a single process, and no decay either.
        """
        if self.alone:
            return others
        weights = [weight for weight in f.parameters() if weight.requires_grad]
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        unused = [place for place, weight in enumerate(weights) if weight.grad is None]
        users = torch.ones(len(weights), device=others[0].device)
        for place in unused:
            users[place] = 0
        mine = [*gradients, users, *others]
        whole = self.sum_(torch.cat([tensor.flatten() for tensor in mine]))
        sums = [
            values.view_as(tensor)
            for tensor, values in zip(mine, whole.split([tensor.numel() for tensor in mine]), strict=True)
        ]
        for gradient, values in zip(gradients, sums, strict=False):
            gradient.copy_(values)
        # What is recorded is the same in all processes and at every step: what one leaves out, all of them do.
        if unused and not (users.is_cuda and torch.cuda.is_current_stream_capturing()):
            elsewhere = sums[len(weights)].tolist()
            for place in unused:
                weights[place].grad = gradients[place] if elsewhere[place] else None
        return tuple(sums[len(weights) + 1 :])

    @torch.no_grad()
    def share_first(self, f: nn.Module) -> None:
        """Give every process the weights and buffers of the first, also those that it saves nowhere.

        They go as bytes: an exchange does not know all types, as int16. Sparse ones go as objects.
        """
        if self.alone:
            return
        self.wait_for_all()
        for tensor in (*f.parameters(), *f.buffers()):
            if tensor.layout is not torch.strided:
                tensor.copy_(self.of_first(tensor.detach().cpu()))
            elif tensor.numel():
                once = unrepeated(tensor.detach())
                numbers = torch.empty(once.shape, dtype=once.dtype, device=once.device).copy_(once).view(-1)
                group.broadcast(numbers.view(torch.uint8), src=0)
                once.copy_(numbers.view_as(once))

    def wait_for_all(self) -> None:
        """Go on once all processes have got here, however long the first takes; where one has ended, end too."""
        if PRESENT_MEETING:
            PRESENT_MEETING[-1].wait_for_all()
        else:
            self.collected(None)

    def of_first(self, value: Value) -> Value:
        """The value that the first process has."""
        return self.collected(value)[0]

    def collected(self, value: Value) -> list[Value]:
        """The values of all processes, in their order."""
        if self.alone:
            return [value]
        values: list[Value | None] = [None] * self.count
        group.all_gather_object(values, value)
        return cast(list[Value], values)

    def require_same(self, digest: abc.Callable[[], str]) -> None:
        """Refuse images that are not the same in all processes: each works on a part of one batch."""
        if not self.alone and len({*self.collected(digest())}) > 1:
            raise ValueError(
                f"{self.count} processes that have joined share their work among them, and were given different "
                "images, labels, seeds or batches: give each of them all images, and the same settings"
            )

    def own_part(self, items: list[Value]) -> list[Value]:
        """Every item belongs to one process; these belong to this one."""
        return items[self.rank :: self.count]


def unrepeated(tensor: Tensor) -> Tensor:
    """The part of a tensor of which the rest are repetitions in the same memory, as `expand` makes them."""
    for dimension, stride in enumerate(tensor.stride()):
        tensor = tensor.narrow(dimension, 0, 1) if stride == 0 else tensor
    return tensor


def shared(f: nn.Module, processes: Processes, batchnorm: Literal["local", "synchronized"]) -> nn.Module:
    """F for training by several processes: the weights of the first, and statistics of each or of all."""
    if processes.alone:
        return f
    if batchnorm == "synchronized":
        if not next(f.parameters()).is_cuda:
            raise ValueError("--batchnorm synchronized needs GPUs: train with local statistics, or on GPUs")
        f = cast(nn.Module, nn.SyncBatchNorm.convert_sync_batchnorm(f))
    processes.share_first(f)
    return f


def joined_any() -> bool:
    """Whether this process has joined others."""
    return group.is_available() and group.is_initialized()


def present() -> Processes:
    """The processes that have been joined, or this one alone."""
    if joined_any():
        return Processes(rank=group.get_rank(), count=group.get_world_size())
    return Processes()


def own_device(name: str) -> str:
    """The device of this process: of several on a machine with GPUs, each has its own."""
    place = os.environ.get("LOCAL_RANK")
    if place is None or name not in ("auto", "cuda") or not torch.cuda.is_available():
        return name
    if int(place) >= torch.cuda.device_count():
        raise ValueError(
            f"process {place} of this machine has no GPU of its own, there are {torch.cuda.device_count()}: "
            "lower --nproc-per-node, or add --device cpu"
        )
    return f"cuda:{place}"


def speaks_for_all() -> bool:
    """Whether this process is the first of those that torchrun started, also before they have joined, or alone."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1 or int(os.environ.get("RANK", "0")) == 0


@contextmanager
def telling_of_connections() -> abc.Generator[None]:
    """Within this, that processes cannot reach each other is told in a sentence; one may be killed just then."""
    try:
        yield
    except RuntimeError as error:
        if "connectFullMesh failed" not in str(error):
            raise
        raise ConnectionError(
            "the processes could not connect to each other, as where one of them is killed meanwhile, or where the "
            "name of a machine leads to none: look for what they say, and start all of them again"
        ) from error


@contextmanager
def joined(device: str) -> abc.Generator[Processes]:
    """Work with the processes that torchrun started together with this one, over NCCL on GPUs and gloo elsewhere."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes()
        return
    # What torch imports later keeps the group that it finds, whose threads outlive it then and may abort a process.
    import_module("torch._dynamo")
    store, rank, size = next(group.rendezvous("env://"))
    # Processes that were started again, or meet again, must not find the addresses of those that died or left.
    life = name_of_start(group.PrefixStore(f"meeting {next(MEETINGS)}", store), rank, size)
    meeting = Meeting(store=group.PrefixStore(f"{life}, words", store), rank=rank, size=size)
    with meeting.one_for_all(), in_group(meeting, group.PrefixStore(life, store), device):
        yield present()


@contextmanager
def in_group(meeting: Meeting, store: object, device: str) -> abc.Generator[None]:
    """Within this, those who have met can exchange tensors; what ends one of them the others are told."""
    try:
        on_gpu = own_device(device).startswith("cuda")
        if on_gpu:
            torch.cuda.set_device(own_device(device))
        meeting.wait_for_all()
        backend = "nccl" if on_gpu else "gloo"
        with telling_of_connections():
            group.init_process_group(backend, store=store, rank=meeting.rank, world_size=meeting.size)
        PRESENT_MEETING.append(meeting)
        yield
    except BaseException as error:
        meeting.leave(error)
        raise
    finally:
        PRESENT_MEETING.clear()
        if joined_any():
            time.sleep(LETTING_GO)
            group.destroy_process_group()
