"""A program that reproduces a failing case: with the sample, its layout, and the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import torch

from pytest_ascend.operators import calling
from pytest_ascend.operators.calling import (
    LAYOUTS,
    Layout,
    double,
    forward,
    on_tensors,
    poisoned,
    steps,
    surrounded,
    tensors,
    upstream,
    with_grad,
)
from pytest_ascend.operators.kinds import range_of
from pytest_ascend.operators.reference import CPU
from pytest_ascend.operators.samples import Sample
from pytest_ascend.operators.snippet import Reproduction, snippet
from pytest_ascend.operators.sources import Unwritable
from pytest_ascend.operators.target import Target
from pytest_ascend.operators.values import StoredTensor, Values, Variant, sprinkling
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.program import worst_leaf

#: Returns the Python expression of a tensor that is too large to write out, "" if unknown.
Large: TypeAlias = Callable[[torch.Tensor], str]

#: Properties whose gradients are compared.
_BACKWARD = ("backward", "backward-layout")


def program(target: Target, verdict: Verdict | None) -> str:
    """Return the program of a case: for the worst sample of a disagreement, else for the last one called.

    Raises Unwritable if there can be none.
    """
    leaf = worst_leaf(verdict) if verdict else None
    path = leaf.path if leaf else ""
    found = next((each for each in _named(target) if f"[{each[0]!r}]" in path), None)
    name, sample, layout = found or _latest(target)
    worst = leaf.worst if leaf and found else None
    # Paths that begin differently are of strides or signs, with other indices.
    element = (place_of(path), worst.index) if worst and path.startswith(f"{target.operator.name}[") else None
    limit = leaf.limit if leaf and found else None
    call = replace(
        _reproduction(target, name, sample, layout, element), rule=(limit.name, float(limit.value)) if limit else None
    )
    return snippet(call, target.device)


def place_of(path: str) -> int:
    """Return the output's number at the end of a path: 1 for "sort['3x5'][1]"."""
    last = path.rpartition("[")[2].rstrip("]")
    return int(last) if last.isdigit() else 0


def _named(target: Target) -> Iterator[tuple[str, Sample, Layout]]:
    """Yield the names of samples in a verdict, with the sample and its layout."""
    for sample in target.samples:
        yield sample.name, sample, calling.as_it_is
        for way in ("backward", "in place"):
            yield f"{sample.name}, {way}", sample, calling.as_it_is
        for label, layout in LAYOUTS.items():
            yield f"{sample.name}, {label}", sample, layout
            for way in ("backward", "in place"):
                yield f"{sample.name}, {label}, {way}", sample, layout
        for kind in ("ready", "to be resized"):
            yield f"{sample.name}, {kind}", sample, calling.as_it_is


def _latest(target: Target) -> tuple[str, Sample, Layout]:
    sample, layout = target.latest or (target.samples[0], calling.as_it_is)
    return sample.name, sample, layout


def _reproduction(
    target: Target, name: str, sample: Sample, layout: Layout, element: tuple[int, tuple[int, ...]] | None
) -> Reproduction:
    """Return the call that the test made; in place and with ``out=``, a layout is that of the target."""
    property_, operator = target.case.property, target.operator
    inside = property_ in ("out", "in-place")
    args, kwargs = target.arguments(sample, calling.as_it_is if inside else layout, CPU)
    function, definition = operator.function, operator.definition
    made = tensors((args, kwargs))
    if property_ == "in-place" or name.endswith(", in place"):
        function, definition = target.operator.changes_first, None
    if property_ == "in-place" and layout is calling.stepped:
        args = (_within(args[0]), *args[1:])
    if property_ == "out":
        kwargs = {**kwargs, "out": _target(target, sample, name, layout)}
    leaves: tuple[int, ...] = ()
    grad_outputs: tuple[torch.Tensor, ...] = ()
    if property_ in _BACKWARD or name.endswith(", backward"):
        leaves = tuple(place for place, each in enumerate(sample.values()) if each.wants_grad(target.dtype))
        grad_outputs = tuple(layout(each, CPU) for each in _grad_outputs(target, sample))
    return Reproduction(
        title=f"{target.case.id}: {name}",
        function=function,
        args=tuple(args),
        kwargs=kwargs,
        definition=definition,
        leaves=leaves,
        grad_outputs=grad_outputs,
        element=element,
        repeats=property_ == "repeat",
        large=_large(target, sample, made, grad_outputs),
    )


def _within(first: torch.Tensor) -> torch.Tensor:
    """Return the view that is changed in place, with its surroundings."""
    return steps(surrounded(first))


def _target(target: Target, sample: Sample, name: str, layout: Layout) -> torch.Tensor:
    """Return the tensor for ``out=``."""
    like = target.expected(sample).first
    if name.endswith("to be resized"):
        return torch.empty(0, dtype=like.dtype)
    ready = poisoned(tuple(like.shape), like.dtype)
    return _within(ready) if layout is calling.stepped else ready


def _grad_outputs(target: Target, sample: Sample) -> list[torch.Tensor]:
    """Return the gradients of the outputs, on the CPU. Raises Unwritable if the CPU has none in the dtype."""
    operator = target.operator
    args, kwargs = target.arguments(sample, calling.as_it_is, CPU)
    if operator.definition:
        args, kwargs = on_tensors(double, (args, kwargs))
    with_grad(sample, (args, kwargs), target.dtype)
    try:
        outputs = forward(operator, operator.definition or operator.function, args, kwargs)
    except RuntimeError as error:
        raise Unwritable(f"the CPU does not compute it in {target.case.dtype}: {error}") from error
    return upstream(target.operator, sample, outputs, target.dtype)


def _large(target: Target, sample: Sample, made: list[torch.Tensor], grad_outputs: tuple[torch.Tensor, ...]) -> Large:
    """Return a lookup of expressions for tensors among the arguments, "" for one that has to be written out."""
    known = {id(each): place for place, each in enumerate(made)}
    place_of = {id(each): place for place, each in enumerate(grad_outputs)}
    key = sample.stream(target.operator.name)

    def expression(tensor: torch.Tensor) -> str:
        if id(tensor) in place_of:
            return _normal_grad_output(target, sample, f"{key}/up/{place_of[id(tensor)]}", tensor)
        if id(tensor) not in known:
            return ""
        place = known[id(tensor)]
        source = sample.values()[place]
        if isinstance(source, Variant) and isinstance(source.origin, StoredTensor):
            return ""
        if isinstance(source, Variant):
            return f"values.{source!r}.make({f'{key}/{place}'!r}, {target.dtype})".replace("values=", "values=values.")
        return _sampled(source, f"{key}/{place}", target.dtype) if isinstance(source, Values) else _kept(target, source)

    return expression


def _kept(target: Target, source: StoredTensor) -> str:
    return target.reference.expression(source, target.dtype)


def _normal_grad_output(target: Target, sample: Sample, key: str, tensor: torch.Tensor) -> str:
    """Return the expression of an output's gradient, as :func:`upstream` makes it."""
    shape = tuple(tensor.shape)
    if not target.operator.one_set_of_inputs:
        return f"inputs.normal({key!r}, {shape}, dtype={target.dtype})"
    if tensor.is_complex():
        return ""
    held_by = f"{calling.real(target.dtype)})" if sample.all_bits else "torch.bfloat16).to(torch.float16)"
    return f"inputs.normal({key!r}, {shape}, dtype={held_by}.to({tensor.dtype})"


def _sampled(values: Values, key: str, case_dtype: torch.dtype) -> str:
    """Return the expression of values, as Values.make makes them; "" for the kinds that are small."""
    dtype = getattr(torch, values.dtype) if values.dtype else case_dtype
    shape = values.shape
    if values.kind not in ("uniform", "normal", "few"):
        return ""
    if values.sprinkled:
        return sprinkling(_sampled(replace(values, sprinkled=False), key, case_dtype), shape)
    if values.repeated and values.can_repeat:
        return f"{_sampled(replace(values, repeated=False), key, case_dtype)}[:1].expand({shape})"
    if values.kind == "few" or not dtype.is_floating_point:
        first, step, count = range_of(values, torch.uint8 if values.kind == "few" else dtype)
        return f"(inputs.integers({key!r}, {shape}, low=0, high={count}) * {step} + {first}).to({dtype})"
    if values.kind == "normal":
        return f"inputs.normal({key!r}, {shape}, std={values.high}, dtype={dtype})"
    return f"inputs.uniform({key!r}, {shape}, low={values.low}, high={values.high}, dtype={dtype})"
