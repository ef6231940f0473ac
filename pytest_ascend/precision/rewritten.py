"""Whether a rewritten model computes what its original does, module by module."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.precision.canaries import Canaries
from pytest_ascend.precision.capture import Call, run
from pytest_ascend.precision.compare import compare, joined
from pytest_ascend.precision.diagnosis import without_hf32
from pytest_ascend.precision.layers import Layer, LayerReport, ModuleCopies, check_module, noted, relative_error
from pytest_ascend.precision.nested import Leaf, leaves, mapped, tensors_in
from pytest_ascend.precision.orders import SHORT
from pytest_ascend.precision.reference import COUNTS_OF_MANY, Reference, Source, plain
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.system.errors import UsageError

#: How many times the noise of the original another function differs from it; the error of the same function, too, in a
#: module that rounds more often. Weights that were merged and rounded again differ by up to 1.4 times as much.
TWICE = 2.0
#: What is said of such a module, and of another function.
ROUNDS = "in float64 the same as the original: it rounds more often, or elsewhere"
ANOTHER = "by itself, in float64, another function than the original: {times:.2g} times the original's noise apart"
#: What is said of a module that gets other values, in one whose result is that of the original.
INNER = "not judged: it gets other values than in the original, within a module that agrees"
#: What is said of parts that one of the models leaves out, such as weights of attention; so many are named.
LACKING, NAMED = "not compared, as one of the models has None there: {}", 4


def models(
    model: nn.Module,
    original: nn.Module,
    *inputs: Any,
    names: Mapping[str, str] | None = None,
    device: str | torch.device = "cpu",
    standard: str | None = None,
    canaries: Canaries | None = None,
    **kwargs: Any,
) -> LayerReport:
    """Compare a rewritten model with its original, by the outputs of the modules that ``names`` pairs.

    ``names`` goes from the model's names to the original's; without it, modules of equal names are compared. The model
    runs on ``device``, its original on the CPU: in float64 (expected), and as it is in several orders (reference runs).
    In 16 bits, a module whose input agrees is also compared by itself. A part of an output that one model has and the
    other leaves out (None) is not compared, and named. ``canaries`` are planted in one innermost module. Raises
    :class:`UsageError` for unknown names, and if there is nothing to compare.
    """
    check_module(model)
    check_module(original)
    if not isinstance(names, Mapping | None):
        hint = "give a mapping: {'name in the model': 'name in the original'}"
        raise UsageError(f"names is {names!r:.80}", hint=hint)
    ours, theirs = ({name for name, _ in each.named_modules()} for each in (model, original))
    pairs = dict(names) if names is not None else {name: name for name, _ in model.named_modules() if name in theirs}
    for wanted, known, title in ((pairs, ours, "model"), (pairs.values(), theirs, "original")):
        if missing := [name for name in wanted if name not in known]:
            hint = "give names as named_modules() of the model lists them"
            raise UsageError(f"the {title} has no module {missing[0]!r}", hint=hint)
    outputs = partial(_calls_and_outputs, frozenset(pairs.values()))
    expected = Source(copy.deepcopy(original), inputs, kwargs, call=outputs, counts=COUNTS_OF_MANY).exact()
    args, named = (mapped(each, lambda tensor: tensor.to(device)) for each in (inputs, kwargs))
    with without_hf32(device) as note:
        calls = run(copy.deepcopy(model).to(device), args, named, None, False)[1]
    found = [(call, (pairs[call.name], call.number)) for call in calls if call.name in pairs]
    modules = [dict(copy.deepcopy(each).cpu().named_modules()) for each in (model, original)]
    copies = [ModuleCopies(each, None, standard) for each in modules]
    found = [each for each in found if each[1] in expected]
    judged = [_against(call, key, expected[key], copies) for call, key in found]
    layers = _without_inner_values([call for call, _ in found], judged)
    if not layers:
        hint = "say with names={...} which modules correspond"
        raise UsageError("the models have no module in common that both call", hint=hint)
    report = LayerReport(layers=layers, note=note)
    innermost = [each for each in found if not copies[0].has_parts(each[0])]
    if canaries and innermost and report.agrees:
        call, key = canaries.one_of(innermost)

        def accepts(wrong: Any) -> bool:
            return _against(replace(call, output=wrong), key, expected[key], copies).agrees

        canaries.plant(call.output, accepts, (call.args, call.kwargs))
    lacking = [path for call, key in found for path in _lacking(call.label, call.output, expected[key][1])]
    rest = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
    return noted(report, LACKING.format(", ".join(lacking[:NAMED]) + rest)) if lacking else report


def _without_inner_values(calls: Sequence[Call], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Take back what is said of a module that gets other values than in the original, within one that agrees.

    A mixture of experts may sort its tokens in another order: its experts get other rows, and its result is the same.
    """
    by_call = dict(zip(map(id, calls), layers, strict=True))
    found = []
    for call, layer in zip(calls, layers, strict=True):
        outer = call.parent
        while outer is not None and id(outer) not in by_call:
            outer = outer.parent
        around = by_call.get(id(outer))
        is_inner = around is not None and around.input_agrees and around.agrees
        is_accused = layer.input_agrees is False and not layer.agrees
        found.append(replace(layer, forward=None, note=INNER) if is_inner and is_accused else layer)
    return tuple(found)


def _calls_and_outputs(
    names: frozenset[str], model: nn.Module, args: Any, kwargs: Any, within: AbstractContextManager[Any]
) -> dict[tuple[str, int], tuple[list[Tensor], Any]]:
    """Return the tensors that each call of the named modules got, and its output."""
    with within:
        calls = run(model, args, kwargs, None, False)[1]
    each_of = (call for call in calls if call.name in names)
    return {(call.name, call.number): (tensors_in((call.args, call.kwargs)), call.output) for call in each_of}


def _pairs(actual: Any, expected: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors of two outputs that stand at equal places."""
    parts = [(each.actual, each.expected) for each in leaves(Leaf("", actual, expected)) if isinstance(each, Leaf)]
    both = [each for each in parts if all(isinstance(one, Tensor) for one in each)]
    return [one for one, _ in both], [other for _, other in both]


def _lacking(path: str, actual: Any, expected: Any) -> list[str]:
    """Return the paths of the parts of an output that one of both leaves out; none if nothing would be left."""
    parts = list(leaves(Leaf(path, actual, expected)))
    both = [each for each in parts if isinstance(each, Leaf)]
    lacking = [each.path for each in both if (each.actual is None) is not (each.expected is None)]
    return lacking if len(lacking) < len(parts) else []


def _against(
    call: Call, key: tuple[str, int], theirs: tuple[list[Tensor], Any], copies: Sequence[ModuleCopies]
) -> Layer:
    (given, output), other = theirs, replace(call, name=key[0])
    tensors, standard = tensors_in((call.args, call.kwargs)), copies[0].standard
    pairs = [(a, b) for a, b in zip(tensors, given, strict=False) if a.shape == b.shape]
    forward = compare(call.output, output, name=call.label, standard=standard)
    if lacking := _lacking(call.label, call.output, output):  # it is judged by the parts that both models have
        forward = joined([each for each in forward.leaves if each.path not in lacking], call.label)
    layer = Layer(
        label=call.label if call.label == other.label else f"{call.label} = {other.label}",
        kind=call.kind,
        input_error=relative_error((call.args, call.kwargs), mapped(given, plain)),
        input_agrees=all(compare(a, b, standard=standard).agrees for a, b in pairs),
        output_error=relative_error(*_pairs(call.output, mapped(output, plain))),
        forward=forward.in_full(),  # as of layers: verdicts would keep all tensors
    )
    dtypes = {each.dtype for each in tensors_in(call.output)}
    is_alike = layer.input_agrees and len(pairs) == len(tensors) == len(given)
    if not is_alike or len(dtypes) != 1 or not dtypes <= set(SHORT):
        return layer
    try:
        ours, theirs = (each.source(one).exact()[0] for each, one in zip(copies, (call, other), strict=True))
    except Exception:  # noqa: BLE001 - only an NPU may have it, or the modules take other arguments
        return layer
    found = _by_itself(layer, output, ours, theirs, *dtypes)
    if found is layer:
        return layer
    # What is found counts if the results of both modules depend on nothing but what they get.
    rounded = mapped(theirs, lambda each: plain(each).to(*dtypes))
    return found if compare(call.output, ours).agrees and compare(rounded, output).agrees else layer


def _by_itself(layer: Layer, expected: Any, ours: Any, theirs: Any, dtype: torch.dtype) -> Layer:
    """Return a layer with what is found of it by itself: ``ours`` and ``theirs`` are float64 results for its own input.

    Their difference has no noise, neither of earlier layers nor their own; the original's noise is that of its
    reference runs. In float32, comparing both models sees as much.
    """
    apart = 0.0
    for mine, exact in zip(*_pairs(ours, theirs), strict=True):
        if mine.shape == exact.shape:
            noise = max(torch.finfo(dtype).eps / 4, _noise(exact, dtype))
            apart = max(apart, relative_error(plain(mine), plain(exact)) / noise)
    verdict, is_same = layer.forward, apart <= TWICE
    if verdict is None or is_same is verdict.agrees or (is_same and verdict.limit is None):  # None: another structure
        return layer
    usual = max((_noise(each, dtype) for each in tensors_in(expected)), default=0.0)
    if is_same and layer.output_error > TWICE * usual:
        return replace(layer, note=ROUNDS)
    said = ROUNDS if is_same else ANOTHER.format(times=apart)
    verdict = Verdict(path=verdict.path, agrees=is_same, standard=verdict.standard, headline=said)
    message, note = ("", ROUNDS) if is_same else (f"{verdict.path}: {said}", "")
    return replace(layer, forward=replace(verdict, message=message), note=note)


def _noise(exact: Tensor, dtype: torch.dtype) -> float:
    """Return the largest relative error of reference runs."""
    runs = exact.reference_runs(dtype) if isinstance(exact, Reference) else ()
    return max((relative_error(each, plain(exact)) for each in runs), default=0.0)
