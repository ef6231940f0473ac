"""The CPU's results of a function: in float64, and as reference runs in the inputs' own dtype."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from pytest_ascend.precision.choices import (
    BRANCHINGS,
    DRAWN_ON_CPU,
    RANDOM,
    OpenCall,
    OpenCalls,
    OperatorNames,
    moved_decisions,
)
from pytest_ascend.precision.kernel_fallbacks import (
    autocast_elsewhere,
    autocast_of,
    kernel_fallbacks,
    products_in_float32,
    without_float64,
    writes,
)
from pytest_ascend.precision.nested import Change, mapped, tensors_in, widened
from pytest_ascend.precision.orders import EARLY, other_order
from pytest_ascend.system.dispatching import HALF, no_dispatch
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.programs import for_now


class Mode(NamedTuple):
    """How the CPU computes: under autocast to a dtype, with weights and inputs in a dtype, or unchanged.

    ``moved``: in float64, on the other sides of jumps that a result of this dtype may be close to.
    """

    autocast: torch.dtype | None = None
    dtype: torch.dtype | None = None
    moved: torch.dtype | None = None


#: Returns reference runs of a part in one mode; none if the CPU cannot compute them.
Runs: TypeAlias = Callable[[Mode, int], tuple[Tensor, ...]]

#: Numbers of reference runs: first, and before a result is rejected.
COUNTS = (2, 8)
#: The same for one of hundreds of results, such as layers, with a third number if the rejection is narrow: among so
#: many, some exceed what eight results suggest.
COUNTS_OF_MANY = (2, 8, 32)
USUAL = COUNTS[0]
#: The note on a result whose shapes float64 does not reproduce.
BY_RUNS = "its shape depends on the numbers, and float64 has another: judged by the CPU's runs that have this one"


class Reference(Tensor):
    """A float64 result with reference runs: the CPU's results for the same inputs in their own dtype.

    It behaves like any other tensor. Tensors computed from it (a row, a sum, another shape) are References too, with
    reference runs that went through the same step.
    """

    source: Source
    runs: Runs

    @staticmethod
    def of(value: Tensor, source: Source, runs: Runs) -> Reference:
        """Return the same tensor with reference runs."""
        made: Reference = _of_class(value, Reference)
        made.source, made.runs = source, runs
        return made

    def reference_runs(self, dtype: torch.dtype, count: int = USUAL) -> tuple[Tensor, ...]:
        """Return the reference runs for a result of ``dtype``; none if there cannot be any."""
        mode = self.source.mode(dtype)
        found = self.runs(mode, count)
        if mode.autocast is not None and not found:  # float32's limits alone would reject what autocast rounds
            found = self.runs(Mode(dtype=mode.autocast), count)
        if mode == Mode() and found and found[0].dtype is not dtype and dtype in HALF:
            # No call was seen, with or without autocast: the dtype tells which it was.
            lowered = self.runs(Mode(autocast=dtype), count)
            found = lowered if lowered and lowered[0].dtype is dtype else self.runs(Mode(dtype=dtype), count) or found
        if mode.autocast is not None:
            found = tuple(each.to(dtype) if each.is_floating_point() else each for each in found)
        return found

    def moved(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Return float64 results on the other sides of jumps; none if reference runs of ``dtype`` met no jump."""
        return self.runs(Mode(moved=dtype), BRANCHINGS) if self.source.decided_by else ()

    def __deepcopy__(self, memo: Any) -> Reference:
        """Copy the values, and share the reference runs."""
        return Reference.of(_of_class(self, Tensor).clone(), self.source, self.runs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle it as a plain tensor."""
        return _of_class(self, Tensor).__reduce_ex__(protocol)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Compute with the tensor, and attach reference runs to the results."""
        kwargs = kwargs or {}
        plain_args, plain_kwargs = tree_map(plain, (args, dict(kwargs)))
        made = func(*plain_args, **plain_kwargs)
        references = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Reference)]
        name = str(getattr(func, "__name__", ""))
        if not references or writes(name):
            return made
        source = references[0].source
        leaves, spec = tree_flatten(made)
        for place, each in enumerate(leaves):
            if isinstance(each, Tensor) and each.is_floating_point():
                leaves[place] = Reference.of(each, source, partial(_applied, func, (args, kwargs), place))
        return tree_unflatten(leaves, spec)


def _of_class(value: Tensor, kind: type[Tensor]) -> Any:
    """Return the tensor as a subclass: under a mode, torch before 2.5 cannot change the class."""
    with no_dispatch():
        return value.as_subclass(kind)


def _applied(func: Any, arguments: tuple[Any, Any], place: int, mode: Mode, count: int) -> tuple[Tensor, ...]:
    """Return the results of a step, one for each reference run."""
    leaves, spec = tree_flatten(arguments)
    runs = [each.runs(mode, count) if isinstance(each, Reference) else itertools.repeat(each) for each in leaves]
    made = []
    for own in zip(*runs, strict=False):  # limited by the reference with the fewest
        given, named = tree_unflatten(list(own), spec)
        made.append(tree_flatten(func(*given, **named))[0][place])
    return tuple(made)


def _part(runs: Callable[[Mode, int], list[list[Tensor]]], place: int, mode: Mode, count: int) -> tuple[Tensor, ...]:
    """Return one part of each reference run that has it."""
    return tuple(each[place] for each in runs(mode, count) if len(each) > place)


def in_shapes_of(actual: Any, expected: Any) -> Any:
    """Return references for an entire result, as :meth:`Source.in_shapes_of` does; anything else unchanged."""
    first = next((each for each in tensors_in(expected) if isinstance(each, Reference)), None)
    if first is None or getattr(first.runs, "func", None) is _applied:  # no reference, or one computed from a result
        return expected
    return first.source.in_shapes_of(actual, expected)


def plain(value: Any) -> Any:
    """Return a reference as a plain float64 tensor, and anything else unchanged."""
    return _of_class(value, Tensor) if isinstance(value, Reference) else value


@dataclass(eq=False)
class Source:
    """A function with copies of its arguments on the CPU. ``notes`` names what was computed in another way."""

    subject: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    autocast: torch.dtype | None = None
    #: Calls the subject with arguments; its forward pass runs within the given context.
    call: Callable[..., Any] | None = None
    #: Why there are no reference runs.
    lacking: str = ""
    #: Numbers of reference runs, by step.
    counts: tuple[int, ...] = COUNTS
    #: Whether the parts of the result were computed one after another.
    is_ordered: bool = False

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self.random = torch.random.get_rng_state()
        self._called: list[torch.dtype | None] = []
        self._known: dict[Mode, list[list[Tensor]]] = {}
        self._requested: dict[Mode, int] = {}
        self._shapes: list[torch.Size] = []
        self._draws = False
        #: The numbers by which operators such as floor decided in a reference run.
        self.decided_by: list[Tensor] = []
        self._made_by: OpenCall | None = None
        owner = _owner(self.subject)
        if owner is not None:
            if owner is self.subject:
                initialise(owner, self.args, self.kwargs)
            self.subject = _copied(self.subject, owner)

            def see(called_module: nn.Module, args: Any, kwargs: Any) -> None:
                handle.remove()
                if not self._called:
                    tensors = [*tensors_in((args, kwargs)), *called_module.parameters()]
                    self._called.append(autocast_of(next((each.device.type for each in tensors), "cpu")))

            # Record the dtype of autocast, if any, at the next call.
            handle = owner.register_forward_pre_hook(see, with_kwargs=True)
        self.args, self.kwargs = mapped((self.args, dict(self.kwargs)), lambda x: _own(_strided(x), x.detach().cpu()))

    def exact(self) -> Any:
        """Compute in float64, and return references. Raises :class:`UsageError` if random numbers affect the result."""
        with OpenCalls() as calls:
            found = self._compute(_widen, None, ())
        self._made_by = calls.that_made(found) if _owner(self.subject) is None else None
        if self._draws and self.call is None:  # random numbers that a device would draw itself
            with OperatorNames() as seen:
                depends = self.depends_on_seed(found)
            if (drawn := sorted(seen.names & RANDOM - DRAWN_ON_CPU)) and depends:
                name = getattr(self.subject, "__name__", type(self.subject).__name__)
                hint = "give the numbers as an argument, or switch dropout off: model.eval()"
                raise UsageError(f"{name} draws random numbers ({', '.join(drawn)}): a device draws others", hint=hint)
        self._shapes = [_strided(each).shape for each in tensors_in(found)]
        if _owner(self.subject) is None:  # call it now: a function may capture values that change later
            self._leaves(Mode(self.autocast), USUAL)
        return self.known(mapped(found, lambda each: each.detach()))

    def depends_on_seed(self, found: Any, *, own: bool = False) -> bool:
        """Return whether another seed changes the float64 result; with ``own``, other seeds set by the model itself."""
        usual: Any = torch.manual_seed
        others = for_now(partial(setattr, torch, "manual_seed"), lambda seed: usual(seed ^ 1), usual)
        with others if own else contextlib.nullcontext():
            again = self._compute(_widen, None, (), seed=2**31 - 1)
        return not all(map(_is_same, tensors_in(found), tensors_in(again)))

    def operand(self, result: Tensor) -> Tensor | None:
        """Return the only tensor among the arguments if it is real and has the shape of ``result``; else None."""
        given = tensors_in((self.args, self.kwargs))
        is_one = len(given) == 1 and given[0].is_floating_point() and given[0].shape == result.shape
        return given[0] if is_one and _owner(self.subject) is None else None

    def known(self, exact: Any) -> Any:
        """Return references for a float64 result that is already known."""
        self._shapes, places = _shapes(tensors_in(exact)), itertools.count()
        return mapped(exact, lambda each: Reference.of(each, self, partial(_part, self._leaves, next(places))))

    def in_shapes_of(self, actual: Any, expected: Any) -> Any:
        """Return references for an entire result, from CPU runs with its shapes if float64 has other ones.

        The number of points, or the length of speech, may depend on rounded numbers.
        """
        ours, theirs = tensors_in(actual), tensors_in(expected)
        shapes = _shapes(ours)
        if shapes == self._shapes or len(ours) != len(theirs) or _shapes(theirs) != self._shapes:
            return expected
        found = lru_cache(lambda mode: list(self._reference_runs(mode, range(COUNTS[-1]), shapes)))
        every = (each for mode in dict.fromkeys(self.mode(one.dtype) for one in ours) for each in found(mode))
        if (run := next((each for each in every if len(each) == len(ours)), None)) is None:
            return expected
        other = copy.copy(self)
        other.notes = [*self.notes, BY_RUNS]
        kept = _alike(shapes, self._shapes) if self.is_ordered else 0
        made = (
            Reference.of(widened(each), other, partial(_part, lambda mode, _: found(mode), place))
            for place, each in enumerate(run)
        )
        values = itertools.chain(theirs[:kept], itertools.islice(made, kept, None))
        return mapped(expected, lambda _: next(values))

    def mode(self, dtype: torch.dtype) -> Mode:
        """Return how a device computed a result of ``dtype``, as far as known."""
        if (autocast := self.autocast or next(iter(self._called), None)) is not None:
            return Mode(autocast=autocast)
        own = self._known.get(Mode()) or ([] if dtype not in HALF else self._leaves(Mode(), USUAL))
        if self._called and own and dtype in HALF and all(dtype is not each.dtype for each in own[0]):
            return Mode(dtype=dtype)
        return Mode()

    def described(self, dtype: torch.dtype, count: int) -> str:
        """Describe the reference runs of a result of ``dtype``."""
        name = str(dtype).removeprefix("torch.")
        if not count:
            return f"judged by the float64 value alone: the CPU gives no {name} to hold it against ({self.lacking})"
        mode = self.mode(dtype)
        how = f", under autocast to {str(mode.autocast).removeprefix('torch.')}" if mode.autocast else ""
        if mode.autocast and not self._known.get(mode):
            name = str(mode.autocast).removeprefix("torch.")
            how = f" throughout, as it gives none under autocast ({self.lacking})"
        return f"compared with {count} CPU results in {name}{how}, in different orders of summation"

    def _leaves(self, mode: Mode, count: int) -> list[list[Tensor]]:
        """Return the tensors of the output for each reference run; every run is computed once."""
        known = self._known.setdefault(mode, [])
        if mode not in self._requested:
            known += self._reference_runs(mode, range(USUAL))
            self._requested[mode] = USUAL
        if (before := self._requested[mode]) < count and known:
            # Captured values may have changed: the function has to reproduce the first result.
            if all(map(_is_same, known[0], next(self._reference_runs(mode, [0]), []))):
                known += self._reference_runs(mode, range(before, count))
            self._requested[mode] = count
        return known

    def _reference_runs(self, mode: Mode, runs: Iterable[int], shapes: Any = None) -> Iterator[list[Tensor]]:
        convert = _widen if mode.moved else partial(_to, mode.dtype)
        given = tensors_in((self.args, self.kwargs))
        for run in runs:
            order = other_order(run - 1)
            contexts: list[Any] = [order] if run else []
            if mode.moved:
                contexts = [moved_decisions(run, mode.moved, self.decided_by)]
            if run % 2 and mode.autocast is not None:
                contexts.append(autocast_elsewhere())
            if run % 2 and run > EARLY and not mode.moved and all(each.dtype is not torch.float64 for each in given):
                contexts.append(without_float64())
            try:
                found = self._compute(convert, mode.autocast, contexts)
            except Exception as error:  # noqa: BLE001 - runs that the CPU cannot compute are left out
                self.lacking = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
                return
            leaves = [each.detach() for each in tensors_in(found)]
            if (own := _shapes(leaves)) != (wanted := shapes or self._shapes):
                self.lacking = "it gives other shapes than in float64"
                leaves = leaves[: _alike(own, wanted)] if self.is_ordered else []  # a length affects no earlier part
                if not leaves:
                    continue  # a length, as of predicted speech, may depend on rounding; the next run may have it
            self.decided_by = order.decided_by or self.decided_by
            yield leaves

    def choice(self, expected: Any) -> tuple[Callable[[Any], dict[str, Tensor]], dict[str, Tensor], str] | None:
        """Return how to judge the result of a function that leaves something open; None for any other.

        The tuple holds a function that extracts the determined parts, their expected values, and what is left open.
        """
        made_by = self._made_by
        if made_by is None or _shapes(tensors_in(expected)) != self._shapes:
            return None

        def of_call(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
            with OpenCalls() as calls:
                result = self.subject(*args, **kwargs)
            call = calls.that_made(result)
            return {} if call is None else call.determined(result)

        source = Source(of_call, self.args, self.kwargs, self.autocast, counts=self.counts)
        return made_by.determined, source.exact(), made_by.free

    def _compute(self, convert: Change, autocast: Any, contexts: Iterable[Any], seed: int | None = None) -> Any:
        owner = _owner(self.subject)
        subject = self.subject if owner is None else _copied(self.subject, owner, convert)
        args, kwargs = mapped((self.args, self.kwargs), convert)
        # transformers caches position embeddings, which would make all runs equal.
        for kind in {type(each) for each in owner.modules()} if owner else ():
            for clear in _caches(kind):  # type: ignore[arg-type]  # a class is hashable
                clear()
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices=[]))
            torch.random.set_rng_state(self.random)
            if seed is not None:
                torch.manual_seed(seed)
            before = torch.random.get_rng_state()
            stack.callback(lambda: setattr(self, "_draws", not torch.equal(before, torch.random.get_rng_state())))
            stack.enter_context(products_in_float32())
            stack.enter_context(kernel_fallbacks(self.notes, wide=convert is _widen))
            for each in contexts:
                stack.enter_context(each)
            casting = torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None)
            if self.call is not None:
                return self.call(subject, args, kwargs, casting)
            with casting:
                return subject(*args, **kwargs)


def _owner(subject: Any) -> nn.Module | None:
    """Return the module that is called, or whose method is called."""
    owner = getattr(subject, "__self__", None) if inspect.ismethod(subject) else subject
    return owner if isinstance(owner, nn.Module) else None


@lru_cache(maxsize=256)
def _caches(kind: type) -> tuple[Callable[[], object], ...]:
    """Return functions that clear the caches of a class's own methods, also inside decorators."""
    found: list[Any] = []
    for method in vars(kind).values():
        function = getattr(method, "__func__", method)  # for static methods
        found.append(function)
        for cell in getattr(function, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # a variable without a value yet
                found.append(cell.cell_contents)
    return tuple(each.cache_clear for each in found if callable(getattr(each, "cache_clear", None)))


def _copied(subject: Any, owner: nn.Module, convert: Change | None = None) -> Any:
    """Return a subject on a CPU copy of its module, converted by ``convert`` if given."""
    module = copy.deepcopy(owner).cpu()
    if convert is not None:
        for part in module.modules():
            with torch.no_grad():
                for parameter in part.parameters(recurse=False):
                    parameter.data = convert(parameter.data)
                    parameter.grad = None
                for name, buffer in part.named_buffers(recurse=False):
                    part._buffers[name] = convert(buffer)  # noqa: SLF001 - as Module.to does
    return module if subject is owner else getattr(module, subject.__name__)


def _shapes(tensors: Iterable[Tensor]) -> list[torch.Size]:
    return [each.shape for each in tensors]


def _alike(ours: Iterable[torch.Size], theirs: Iterable[torch.Size]) -> int:
    """Return the number of equal shapes before the first that differs."""
    return len(list(itertools.takewhile(bool, map(operator.eq, ours, theirs))))


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two results are equal; NaN equals NaN."""
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def initialise(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Initialise lazy modules by a first call, so that every copy has the same parameters."""
    if any(nn.parameter.is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            module(*args, **kwargs)


def _strided(value: Tensor) -> Tensor:
    if value.layout is not torch.strided:
        raise UsageError(f"no reference for a tensor of layout {value.layout}", hint="take and return its x.to_dense()")
    return value


def _widen(value: Tensor) -> Tensor:
    return _own(value, widened(value.detach()))


def _to(dtype: torch.dtype | None, value: Tensor) -> Tensor:
    """Return a floating-point tensor in a dtype; unchanged if the dtype is None, as are other tensors."""
    return _own(value, value.detach().to(dtype if dtype is not None and value.is_floating_point() else value.dtype))


def _own(original: Tensor, made: Tensor) -> Tensor:
    """Return a leaf with its own memory; it requires a gradient if the original does."""
    own = made.clone() if made.data_ptr() == original.data_ptr() else made
    return own.requires_grad_(original.requires_grad)
