"""A network on its engine."""

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..answers import in_evaluation_mode
from ..attacks.rounds import Search, State, step_by_step
from ..averaging import norms_in
from ..inputs import require
from ..losses import PerImageLoss, answer_of
from .arithmetic import Engine
from .constant import Constant, Taken, constant, hooked
from .layouts import Layout, layout_for
from .numbers import Numbers
from .passes import SeparateNorms, can_be_merged, shares_of
from .queries import Query
from .searches import Recordings

Say = Callable[[str], None]
EVEN = 8
"""passes of training are filled up to a multiple of so many images"""
ONE_ANSWER = "a model must return logits alone in training too, not several answers: return the first of them"
SHAPES = 64
"""shapes of images, modes and networks for which one function may be compiled"""


class Accelerated(nn.Module):
    """f, computed as the engine wants it: the same modes and parameters, the same logits up to rounding.

    Entering evaluation mode takes a copy of the weights, on which all queries are made, and so does a query after
    weights have changed; where gradients with respect to the weights can be asked for, f itself answers.
    """

    def __init__(
        self,
        f: nn.Module,
        engine: Engine,
        images: Tensor,
        *,
        say: Say,
        filled_up_to: tuple[int, ...] = (),
    ) -> None:
        """`images` are a few to try f on.

        Where sizes are given to fill queries up to, these are recorded for each of them, and not compiled.
        """
        super().__init__()
        self.f = f
        self.training = f.training
        self.engine, self.say = engine, say
        layout, low = layout_for(f, images, engine), engine.lowers(images)
        kind, launched = torch.bfloat16 if low else images.dtype, images.is_cuda and not engine.compiled
        copy = constant(f, images, kind, layout, launched=launched) if engine.folded else None
        # Hidden in a tuple, the copy is no module of this one: modes, gradients and weights are those of f alone.
        self.copies: tuple[Constant, ...] = () if copy is None else (copy,)
        self.layout = layout
        with in_evaluation_mode(f):  # As it was copied: an adapter that has added up its weights may note that.
            self.numbers, self.taken = Numbers(f), Taken(f)
        self.hasten = Hastener(engine, say=say)
        # Of many tensors that are only taken over, a compiler would make as many kernels.
        self.refreshing = tuple(part for each in self.copies for part in (self.hasten(each.fold), each.take_over))
        # Arithmetic is entered outside of what is compiled: a compiler keeps nothing that enters it for the next run.
        self.bare = through(copy.module if copy else f, layout)
        self.still = engine.computing(self.bare)
        self.moving = engine.computing(self.hasten(through(f, layout, trained=True)))
        self.merged = engine.compiled and not hooked(f) and can_be_merged(f)
        # Tuples of modules and weights are none of the modules and weights of this one, and quicker to go through.
        self.weights = tuple(f.parameters())
        self.norms = tuple(norms_in(f))
        self.judges: dict[PerImageLoss, Callable[[Tensor, Tensor], Tensor]] = {}
        # A copy is made of a graph, so no answer can have effects beside itself that a recording would miss.
        recorded = engine.recorded and copy is not None and answers_each_image_by_itself(f)
        self.queries = {size: Query(self.still, size, images[0]) for size in sorted(filled_up_to) if recorded}
        self.recordings = Recordings(filled_up_to if recorded else ())

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("f"), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        """A copy of f alone, as it is: one on an engine would go on answering by the weights of this one."""
        return deepcopy(self.f, memo)

    def train(self, mode: bool = True) -> "Accelerated":
        super().train(mode)
        if not mode:
            if self.copies and not self.numbers.hold():
                self.give_up_copy()
            self.take_over()
        return self

    def take_over(self) -> None:
        """Give the copy the weights that f has now."""
        for refresh in self.refreshing:
            refresh()
        self.taken.note()

    def keep_up(self) -> None:
        """Take over weights that somebody has changed meanwhile, as one does who looks for the worst nearby."""
        if self.copies and not self.taken.hold():
            self.take_over()

    @property
    def stands_still(self) -> bool:
        """Whether no gradient with respect to the weights can be asked for, and no statistics are gathered."""
        fixed = not torch.is_grad_enabled() or not any(weight.requires_grad for weight in self.weights)
        return fixed and not self.training and not any(norm.training for norm in self.norms)

    def forward(self, x: Tensor) -> Tensor:
        if not self.stands_still:
            return self.in_several_passes(x)[0] if self.merged and self.training and len(x) > 1 else self.moving(x)
        self.keep_up()
        query = next((query for size, query in self.queries.items() if len(x) <= size), None)
        if query is None or not query.fits(x):
            return self.still(x)
        try:
            return query(x)
        except RuntimeError as error:
            self.give_up_recording(error)
        return self.still(x)

    def repeated(self, search: Search, state: State, plan: Tensor, rng: Generator) -> State:
        """The state after a step of the search for each row of the plan, on recordings where that goes."""
        if self.stands_still:
            self.keep_up()
            queries, self.queries = self.queries, {}  # A recording cannot be replayed within another one.
            try:
                step = self.recordings.step_for(self, search, state, plan)
                self.queries = queries
                if step is not None:
                    return step(state, plan, rng)
            except RuntimeError as error:
                self.give_up_recording(error)
        return step_by_step(self, search, state, plan, rng)

    def give_up_recording(self, error: RuntimeError) -> None:
        """Ask every further question as it comes, and say so."""
        self.queries, self.recordings = {}, Recordings(())
        self.say(f"queries are not recorded and replayed, only asked, which is slower: {first_line(error)}")

    def give_up_copy(self) -> None:
        """Let f itself answer, and say so: the copy has taken its numbers for constants."""
        self.copies = self.refreshing = ()
        self.bare = through(self.f, self.layout)
        self.still = self.engine.computing(self.bare)
        self.judges, self.queries, self.recordings = {}, {}, Recordings(())
        self.say("a network that keeps a number which changes is not folded, but asked as it is, which is slower")

    def in_several_passes(self, *batches: Tensor) -> tuple[Tensor, ...]:
        """F's answers to each batch; passes of training go through f as one where that changes nothing."""
        sizes = tuple(map(len, batches))
        # One image may be one pixel, which has no variance.
        if not (self.merged and self.training) or min(sizes) < 2:
            return tuple(self(batch) for batch in batches)
        # Filled up, passes of a few images more or less are of one shape: what is compiled for one serves all.
        last, total = batches[-1][-1:], sum(sizes)
        x = torch.cat([*batches, last.expand(-total % EVEN, *last.shape[1:])])
        logits = self.moving(x, shares_of(sizes, x))
        counts = [norm.num_batches_tracked for norm in self.norms if norm.training]
        if found := [count for count in counts if count is not None]:
            add_to_all: Any = torch._foreach_add_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
            add_to_all(found, len(sizes))
        return logits[:total].split(sizes)

    def judging(self, loss: PerImageLoss) -> Callable[[Tensor, Tensor], Tensor]:
        """(x', target) -> L(f(x'), target), compiled in one piece, while the weights stand still."""
        self.keep_up()
        if loss not in self.judges:
            bare = self.bare

            def judge(x: Tensor, target: Tensor) -> Tensor:
                return loss(bare(x), target)

            self.judges[loss] = self.engine.computing(self.hasten(with_code_of_its_own(judge)))
        return self.judges[loss]


def answers_each_image_by_itself(f: nn.Module) -> bool:
    """Whether f in evaluation mode treats images apart: a BatchNorm without running statistics does not."""
    return all(norm.running_mean is not None for norm in norms_in(f))


def through(network: nn.Module, layout: Layout, *, trained: bool = False) -> Callable[..., Tensor]:
    """The logits of a network in the layout of the engine, in one pass or in several."""

    def answered(x: Tensor, shares: Tensor | None = None) -> Tensor:
        with nullcontext() if shares is None else SeparateNorms(shares):
            ask = partial(layout, network, trained=trained)
            answer = ask(x) if trained else answer_of(ask, x)
            require(isinstance(answer, Tensor), ONE_ANSWER)
            return answer.to(x.dtype)

    return answered


def with_code_of_its_own(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function to a compiler that counts by its code how often it was compiled, in all runs of a process.

    One that asks a copy is compiled anew in each run, for each copy is of a type of its own. What is shared by all of
    these would be run as it is from some run on.
    """
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__
    )


class Hastener:
    """Compiles functions for the shapes they meet; one that cannot be compiled is run as it is, and that is said."""

    def __init__(self, engine: Engine, *, say: Say) -> None:
        self.engine, self.say = engine, say
        self.failed = False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self.engine.compiled:
            return function
        dynamo: Any = torch._dynamo  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
        dynamo.config.recompile_limit = max(SHAPES, dynamo.config.recompile_limit)
        compiled = torch.compile(function, dynamic=False)

        def run(*arguments: Any) -> Any:
            if self.failed:
                return function(*arguments)
            try:
                return compiled(*arguments)
            except Exception as error:  # Compilers fail in all ways there are; a fault of the function comes again.
                result = function(*arguments)
                self.failed = True
                self.say(f"what cannot be compiled is run as it is, only slower: {first_line(error)}")
                return result

        return run


def first_line(error: Exception) -> str:
    """The name of an error and its first words."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
