"""Record the inputs, outputs and gradients of every module of a model in one run."""

from __future__ import annotations

import contextlib
import copy
import functools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.system.dispatching import no_dispatch


def kept(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, unaffected by later in-place operations."""
    return tensor.detach().to("cpu", copy=True)


class Part(str):
    """Stands for one of the model's modules, by its name, among the arguments of a call."""

    __slots__ = ()


class Spot(NamedTuple):
    """A tensor of a module's call: the module's name, the number of the call, and the tensor's position."""

    name: str
    number: int
    is_input: bool
    place: int


@dataclass(slots=True)
class Leak:
    """A tensor of a call that code outside the module uses although it is not an output, with its gradient from there.

    ``spot`` is None if the tensor is neither an input nor an output of an inner module.
    """

    spot: Spot | None
    gradient: Tensor | None = None


@dataclass(slots=True)
class Call:
    """One call of one module. Tensors are copies on the CPU; a gradient is None if there was none.

    Among the arguments, devices are replaced by the CPU and modules of the model by :class:`Part`. ``number`` counts
    the calls of the same module from 0. ``grad_outputs`` and ``grad_inputs`` have the order of :func:`tensors_in`.
    ``grad_parameters`` maps names to this call's contributions to the gradients, for the module's own parameters and
    for those of parts that it uses without calling them.
    """

    name: str
    kind: str
    number: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any = None
    grad_outputs: list[Tensor | None] = field(default_factory=list)
    grad_inputs: list[Tensor | None] = field(default_factory=list)
    grad_parameters: dict[str, Tensor] = field(default_factory=dict)
    leaks: list[Leak] = field(default_factory=list)
    #: The enclosing call, and the numbers of the autograd nodes before this call's first and last one.
    parent: Call | None = None
    first: int = 0
    last: int = 0

    @property
    def label(self) -> str:
        """Return the name, with the number of the call if the module is called repeatedly."""
        return f"{self.name or '(model)'}" + (f" (call {self.number + 1})" if self.number else "")


#: The dtype that autocast uses; None without autocast.
Autocast: TypeAlias = torch.dtype | None


class Recorder:
    """Hooks on every module of a model, within a context. ``calls`` are in the order in which they ended."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: list[Call] = []
        self.is_backward = False
        self._model = model
        self._open: list[Call] = []
        self._names = {id(module): name for name, module in model.named_modules()}
        #: For each open call: the lists and dictionaries passed to it, their copies, and the contents of these.
        self._handed: list[list[tuple[Any, Any, Any]]] = []
        self._repeated: list[Call] = []
        #: Parameters replaced during each open call: the module, the name, and the original parameter.
        self._lent: list[list[tuple[nn.Module, str, Any]]] = []
        #: Numbers of autograd nodes, and for each the innermost call that creates the nodes after it.
        self._starts: list[int] = []
        self._within: list[Call | None] = []
        #: The tensors that autograd nodes stand for, and the nodes of copied outputs, the usual exits of tensors.
        self._spots: dict[tuple[Any, int], tuple[Call, bool, int]] = {}
        self._copies: dict[Any, Call] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Install the hooks, and remove them on exit."""
        with contextlib.ExitStack() as stack:
            # Autograd nodes hold the hooks, which hold this object: a cycle that Python's garbage collector cannot see.
            stack.callback(self._spots.clear)
            stack.callback(self._copies.clear)
            for name, module in self._model.named_modules():
                enter = functools.partial(self._enter, name)
                stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(self._leaving, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(self._returning, always_call=True).remove)
            yield self

    def _enter(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number = sum(call.name == name for call in self.calls)
        given = (mapped(each, kept, others=self._named) for each in (args, kwargs))
        call = Call(name, type(module).__name__, number, *given)
        call.parent = self._open[-1] if self._open else None
        self._open.append(call)
        call.first = self._mark(call)
        self._lent.append(self._lend(module, call))
        self._handed.append([])
        if getattr(module, "inplace", False):
            self._watch((args, kwargs), call.grad_inputs)
            return None
        original = (args, tuple(kwargs.values()))
        args, kwargs = (mapped(each, _own, into_objects=False) for each in (args, kwargs))
        pairs = zip(_containers(original), _containers((args, tuple(kwargs.values()))), strict=True)
        self._handed[-1] += [(ours, theirs, copy.copy(theirs)) for ours, theirs in pairs]
        self._watch((args, kwargs), call.grad_inputs)
        self._place((args, kwargs), call, is_input=True)
        return args, kwargs

    def _named(self, value: Any) -> Any:
        """Return the replacement for a device or module among arguments."""
        if isinstance(value, nn.Module):
            name = self._names.get(id(value))
            return value if name is None else Part(name)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def _leaving(self, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> Any:
        call = self._open.pop()
        for original, handed, before in self._handed.pop():
            _write_back(original, handed, before)
        call.output = mapped(output, kept)
        (self._repeated if self.is_backward else self.calls).append(call)
        self._place(output, call)
        call.last = self._mark(call.parent)
        output = mapped(output, _own, into_objects=False)  # separates it from uses of the same tensor within the module
        self._watch(output, call.grad_outputs)
        self._place(output, call)
        self._copies |= {each.grad_fn: call for each in tensors_in(output, into_objects=False) if each.grad_fn}
        return output

    def _mark(self, within: Call | None) -> int:
        """Note which call creates the autograd nodes from now on, and return the number of the last one before."""
        if self.is_backward or not torch.is_grad_enabled():
            return 0
        number = _number(torch.empty(0, requires_grad=True).view(0).grad_fn)
        self._starts.append(number)
        self._within.append(within)
        return number

    def _place(self, values: Any, call: Call, *, is_input: bool = False) -> None:
        if not self.is_backward:
            for place, each in enumerate(tensors_in(values)):
                if each.grad_fn is not None:
                    self._spots.setdefault((each.grad_fn, each.output_nr), (call, is_input, place))

    def watch_leaks(self, results: Sequence[Tensor]) -> None:
        """Make every call collect the gradients of tensors that leave it other than through its output.

        A module may keep a tensor as an attribute, and hooks may take hidden states out of a model.
        """
        pending, seen = [each.grad_fn for each in results], set()
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            for place, (inner, number) in enumerate(node.next_functions):
                pending.append(inner)
                for call in self._left(node, inner):
                    leak = Leak(self._spot((inner, number), call))
                    call.leaks.append(leak)
                    node.register_hook(functools.partial(_keep_of_edge, leak, place))

    def _left(self, user: Any, made: Any) -> Iterator[Call]:
        """Yield the calls that made one node if ``user``, outside, uses its result other than through the output."""
        at, by = _number(made), _number(user)
        call = self._within[bisect_right(self._starts, at - 1) - 1] if self._starts and self._starts[0] < at else None
        while call is not None and at <= call.last < by:
            if self._copies.get(user) is not call:
                yield call
            call = call.parent

    def _spot(self, key: tuple[Any, int], call: Call) -> Spot | None:
        inner, is_input, place = self._spots.get(key, (None, False, 0))
        if inner is None or not call.first <= inner.first <= call.last:
            return None
        earlier = sum(each.name == inner.name and call.first <= each.first < inner.first for each in self.calls)
        return Spot(inner.name[len(call.name) :].lstrip("."), earlier, is_input, place)

    def join_repeated(self) -> None:
        """Assign the gradients of recomputed (checkpointed) blocks to their first calls."""
        pending = list(self._repeated)
        for call in self.calls:
            for again in pending:  # the same module with the same result
                ours, theirs = tensors_in(call.output), tensors_in(again.output)
                if call.name != again.name or len(ours) != len(theirs) or not all(map(torch.equal, ours, theirs)):
                    continue
                pending.remove(again)
                for mine, its in ((call.grad_inputs, again.grad_inputs), (call.grad_outputs, again.grad_outputs)):
                    mine[:] = [b if a is None else a for a, b in zip(mine, its, strict=True)]
                call.grad_parameters = again.grad_parameters | call.grad_parameters
                break

    def take_left(self) -> None:
        """Assign gradients of parameters read past their names, as by LSTM, to modules that are called only once."""
        once = Counter(call.name for call in self.calls)
        seen = {f"{call.name}.{name}" for call in self.calls for name in call.grad_parameters}
        modules = dict(self._model.named_modules())
        for call in self.calls:
            for name, parameter in modules[call.name].named_parameters(recurse=False):
                if once[call.name] == 1 and parameter.grad is not None and f"{call.name}.{name}" not in seen:
                    call.grad_parameters[name] = kept(parameter.grad)

    def _lend(self, module: nn.Module, call: Call) -> list[tuple[nn.Module, str, Any]]:
        """Give the module an alias of each parameter, whose gradient is the contribution of this call alone."""
        lent: list[tuple[nn.Module, str, Any]] = []
        if not torch.is_grad_enabled():
            return lent
        for path, part in module.named_modules():
            for key, parameter in list(part.named_parameters(recurse=False)):
                before = part.__dict__.get(key)
                current = parameter if before is None else before
                if current is not None and current.requires_grad:
                    alias = current.view_as(current)
                    alias.register_hook(functools.partial(self._keep_of_parameter, call, path, key))
                    part.__dict__[key] = alias
                    lent.append((part, key, before))
        return lent

    def _keep_of_parameter(self, call: Call, path: str, key: str, gradient: Tensor) -> None:
        owner = ".".join(filter(None, (call.name, path)))
        if not path or not any(each.name == owner for each in self.calls):
            name = ".".join(filter(None, (path, key)))
            known = call.grad_parameters.get(name)
            call.grad_parameters[name] = kept(gradient) if known is None else known + kept(gradient)

    def _returning(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        """Restore a module's parameters, even if its forward exits early, as in a checkpointed block."""
        for part, key, before in reversed(self._lent.pop()):
            if before is None:
                del part.__dict__[key]
            else:
                part.__dict__[key] = before

    @staticmethod
    def _watch(values: Any, gradients: list[Tensor | None]) -> None:
        """Record the gradients of tensors, except those in caches and similar objects, which other modules use too."""
        tensors, handed = tensors_in(values), {id(each) for each in tensors_in(values, into_objects=False)}
        gradients.extend([None] * len(tensors))
        for place, tensor in enumerate(tensors):
            if tensor.requires_grad and torch.is_grad_enabled() and id(tensor) in handed:
                tensor.register_hook(functools.partial(_keep, gradients, place))  # type: ignore[no-untyped-call]


def _containers(value: Any) -> Iterator[list[Any] | dict[Any, Any]]:
    """Yield the lists and dictionaries among the arguments, which a module may modify."""
    if isinstance(value, list | dict):
        yield value
    if isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _containers(part)


def _write_back(original: Any, handed: Any, before: Any) -> None:
    """Apply a module's changes of a copied list or dictionary to the caller's original."""
    keys = (lambda each: each.keys()) if isinstance(handed, dict) else (lambda each: range(len(each)))
    if len(handed) == len(before) and all(key in keys(before) and handed[key] is before[key] for key in keys(handed)):
        return
    known = {id(before[key]): original[key] for key in keys(before)}
    parts = {key: known.get(id(handed[key]), handed[key]) for key in keys(handed)}
    if isinstance(original, dict):
        original.clear()
        original.update(parts)
    else:
        original[:] = parts.values()


def _keep(gradients: list[Tensor | None], place: int, gradient: Tensor) -> None:
    before = gradients[place]
    gradients[place] = kept(gradient) if before is None else before + kept(gradient)


def _keep_of_edge(leak: Leak, place: int, grad_inputs: Sequence[Tensor | None], _grad_outputs: Any) -> None:
    gradient = grad_inputs[place]
    leak.gradient = None if gradient is None else kept(gradient)


def _number(node: Any) -> int:
    """Return the number of an autograd node, in order of creation; -1 if it has none, such as a leaf."""
    number = getattr(node, "_sequence_nr", lambda: -1)()
    return number if number < 1 << 63 else -1


def call_again(
    module: nn.Module, call: Call, args: Any, kwargs: Any, within: contextlib.AbstractContextManager[Any]
) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
    """Call a module with other arguments; return its output, and pairs of tensors and their recorded gradients."""
    leaks = [(each.spot, each.gradient) for each in call.leaks if each.spot is not None]
    seen: dict[str, list[tuple[Any, Any]]] = {spot.name: [] for spot, _ in leaks}
    with contextlib.ExitStack() as stack:
        for name, calls in seen.items():
            handle = module.get_submodule(name).register_forward_hook(
                lambda _, args, kwargs, output, into=calls: into.append(((args, kwargs), output)), with_kwargs=True
            )
            stack.callback(handle.remove)
        stack.enter_context(within)
        output = module(*args, **kwargs)
    pairs = [*zip(tensors_in(output), call.grad_outputs, strict=False)]
    for spot, gradient in leaks:
        values = seen[spot.name][spot.number][0 if spot.is_input else 1]
        pairs.append((tensors_in(values)[spot.place], gradient))
    wanted = [(tensor, gradient) for tensor, gradient in pairs if gradient is not None and tensor.requires_grad]
    return output, [(tensor, gradient.to(tensor.device, tensor.dtype)) for tensor, gradient in wanted]


def _own(tensor: Tensor) -> Tensor:
    """Return a copy for one module, so that its gradient excludes other uses of the tensor."""
    return tensor.clone() if tensor.requires_grad and torch.is_grad_enabled() else tensor


def run(model: nn.Module, args: Any, kwargs: Any, autocast: Autocast, backward: bool) -> tuple[Any, list[Call]]:
    """Run a model and record every call; on request also backward, from fixed random gradients of its outputs."""
    recorder = Recorder(model)
    device = next((each.device.type for each in tensors_in((args, kwargs, list(model.parameters())))), "cpu")
    with recorder.recording():
        with casting(device, autocast), torch.set_grad_enabled(backward):
            output = model(*args, **kwargs)
        if backward:
            recorder.is_backward = True
            results = [each for each in tensors_in(output, into_objects=False) if each.requires_grad]
            recorder.watch_leaks(results)
            torch.autograd.backward(results, [seed_gradient(each) for each in results])
            recorder.join_repeated()
            recorder.take_left()
    return mapped(output, kept), recorder.calls


def seed_gradient(result: Tensor) -> Tensor:
    """Return the incoming gradient that a backward pass starts from: the same on every device and in every dtype."""
    with no_dispatch():
        values = torch.randn(result.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return values.to(dtype=result.dtype, device=result.device)


def casting(device: str, autocast: Autocast) -> contextlib.AbstractContextManager[Any]:
    """Return the autocast context, or an empty one."""
    return contextlib.nullcontext() if autocast is None else torch.autocast(device, dtype=autocast)
