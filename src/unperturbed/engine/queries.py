"""Questions to a network that stands still, recorded once for a number of images: one launch in place of hundreds."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from .capture import captured

Replay = Callable[[], None]
"""has recorded work done again"""
Record = Callable[[Callable[[], Tensor]], tuple[Replay, Tensor]]
"""work -> its replay, and where the result is then found"""
WARM_UP = 3
"""times that work is done before it is recorded: libraries settle in them"""


class Query:
    """The answers of a network to so many images at a time, and their slopes."""

    def __init__(
        self, answer: Callable[[Tensor], Tensor], size: int, image: Tensor, record: Record | None = None
    ) -> None:
        """`image` has the shape, type and device of the images to come."""
        self.answer, self.size, self.image = answer, size, image
        self.record = record or recorded_on_a_gpu
        self.asked = 0
        """questions so far whose slopes may be asked for: each leaves its intermediate results where the last did"""
        self.in_place = 0
        """the number of the one whose images and results are there; 0: none is, another question is"""

    @cached_property
    def images(self) -> Tensor:
        """Where questions are put."""
        return self.image.new_zeros(self.size, *self.image.shape)

    @cached_property
    def plain(self) -> tuple[Replay, Tensor]:
        """Answers alone."""
        with torch.no_grad():
            return self.record(lambda: self.answer(self.images))

    @cached_property
    def sloped(self) -> tuple[Replay, Tensor, Tensor, Replay, Tensor]:
        """Answers, whose slopes come in, and the slopes of the images, which then come out."""
        images = self.images.requires_grad_()
        with torch.enable_grad():
            forward, logits = self.record(lambda: self.answer(images))
            slopes = torch.zeros_like(logits)
            backward, of_images = self.record(
                lambda: torch.autograd.grad(logits, images, slopes, retain_graph=True)[0]
            )
        return forward, logits, slopes, backward, of_images

    def fits(self, x: Tensor) -> bool:
        """Whether these are images of the shape, type and device that it was made for."""
        return (x.shape[1:], x.dtype, x.device) == (self.image.shape, self.image.dtype, self.image.device)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            answer: Any = Asked.apply
            return answer(x, self)
        replay, logits = self.plain
        return self.filled(x, replay, logits)

    @torch.no_grad()
    def filled(self, x: Tensor, replay: Replay, logits: Tensor) -> Tensor:
        """The answers to x; other images in their company change nothing for a network that treats each by itself."""
        self.in_place = 0
        self.images[: len(x)].copy_(x)
        replay()
        return logits[: len(x)].clone()

    def ask(self, x: Tensor) -> tuple[Tensor, int]:
        """The answers to x, and the number of the question."""
        forward, logits, *_ = self.sloped
        answer = self.filled(x, forward, logits)
        self.asked = self.in_place = self.asked + 1
        return answer, self.asked

    @torch.no_grad()
    def slopes(self, x: Tensor, number: int, incoming: Tensor) -> Tensor:
        """The slopes of x for those of its answers; a question that others have followed is asked again."""
        if number != self.in_place:
            self.ask(x)
        _, _, slopes, backward, of_images = self.sloped
        slopes.zero_()
        slopes[: len(x)].copy_(incoming)
        backward()
        return of_images[: len(x)].clone()


class Asked(torch.autograd.Function):
    """A question to a network whose slopes may be asked for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, query: Query) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        answer, ctx.number = query.ask(x)
        ctx.query = query
        ctx.save_for_backward(x)
        return answer

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.query.slopes(*ctx.saved_tensors, ctx.number, incoming), None


def recorded_on_a_gpu(
    work: Callable[[], Tensor], *sources: Generator, memory: list[Any] | None = None
) -> tuple[Replay, Tensor]:
    """Work as one launch, which draws from these sources; the memory that it uses is its own, or that of a few."""
    here = torch.cuda.current_stream()
    apart: Any = torch.cuda.Stream()
    apart.wait_stream(here)
    with torch.cuda.stream(apart):
        for _ in range(WARM_UP):
            work()
    here.wait_stream(apart)
    graph = torch.cuda.CUDAGraph()
    for source in sources:
        graph.register_generator_state(source)
    if memory is not None and not memory:
        memory.append(torch.cuda.graph_pool_handle())
    with captured(graph, memory[0] if memory else None):
        result = work()
    return graph.replay, result
