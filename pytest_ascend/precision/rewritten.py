"""Whether a rewritten model computes what its original does, module by module."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_ascend.precision.capture import Call, run
from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.diagnosis import without_hf32
from pytest_ascend.precision.layer_report import Layer, LayerReport, relative_error
from pytest_ascend.precision.layers import ModuleCopies, check_module
from pytest_ascend.precision.nested import mapped, tensors_in
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


def models(
    model: nn.Module,
    original: nn.Module,
    *inputs: Any,
    names: Mapping[str, str] | None = None,
    device: str | torch.device = "cpu",
    standard: str | None = None,
    **kwargs: Any,
) -> LayerReport:
    """Compare a rewritten model with its original, by the outputs of the modules that ``names`` pairs.

    ``names`` goes from the model's names to the original's; without it, modules of equal names are compared. The model
    runs on ``device``, its original on the CPU: in float64 (expected), and as it is in several orders (reference runs).
    A module whose input agrees is also compared by itself: see :class:`Alone`. Raises :class:`UsageError` for unknown
    names, and if there is nothing to compare.
    """
    check_module(model)
    check_module(original)
    if not isinstance(names, Mapping | None):
        raise UsageError(
            f"names is {names!r:.80}", hint="give a mapping: {'name in the model': 'name in the original'}"
        )
    pairs = dict(names) if names is not None else _shared(model, original)
    _check_names(pairs, model, original)
    outputs = partial(_calls_and_outputs, frozenset(pairs.values()))
    expected = Source(copy.deepcopy(original), inputs, kwargs, call=outputs, counts=COUNTS_OF_MANY).exact()
    args, named = (mapped(each, lambda tensor: tensor.to(device)) for each in (inputs, kwargs))
    with without_hf32(device) as note:
        calls = run(copy.deepcopy(model).to(device), args, named, None, False)[1]
    found = [(call, (pairs[call.name], call.number)) for call in calls if call.name in pairs]
    alone = Alone.of(model, original, inputs, kwargs, standard)
    layers = tuple(_against(call, key, expected[key], alone) for call, key in found if key in expected)
    if not layers:
        raise UsageError(
            "the models have no module in common that both call", hint="say with names={...} which modules correspond"
        )
    return LayerReport(layers=layers, note=note)


def _calls_and_outputs(
    names: frozenset[str], model: nn.Module, args: Any, kwargs: Any, within: AbstractContextManager[Any]
) -> dict[tuple[str, int], tuple[list[Tensor], Any]]:
    """Return the tensors that each call of the named modules got, and its output."""
    with within:
        calls = run(model, args, kwargs, None, False)[1]
    each_of = (call for call in calls if call.name in names)
    return {(call.name, call.number): (tensors_in((call.args, call.kwargs)), call.output) for call in each_of}


def _against(call: Call, key: tuple[str, int], theirs: tuple[list[Tensor], Any], alone: Alone) -> Layer:
    (given, output), other = theirs, replace(call, name=key[0])
    ours, standard = tensors_in((call.args, call.kwargs)), alone.theirs.standard
    pairs = [(a, b) for a, b in zip(ours, given, strict=False) if a.shape == b.shape]
    layer = Layer(
        label=call.label if call.label == other.label else f"{call.label} = {other.label}",
        kind=call.kind,
        input_error=relative_error((call.args, call.kwargs), mapped(given, plain)),
        input_agrees=all(compare(a, b, standard=standard).agrees for a, b in pairs),
        output_error=relative_error(call.output, mapped(output, plain)),
        forward=compare(call.output, output, name=call.label, standard=standard),
    )
    if layer.input_agrees and len(pairs) == len(ours) == len(given):
        return alone.judge(layer, call, other, output)
    return layer


@dataclass(frozen=True, slots=True)
class Alone:
    """The modules of a rewritten model and of its original, to compare one with the other by itself.

    Both compute in float64 what the rewritten one got. Their difference has no noise, neither of earlier layers nor
    their own; the original's own noise is that of reference runs. Only results of 16 bits are compared this way: in
    float32, comparing both models sees as much.
    """

    ours: ModuleCopies
    theirs: ModuleCopies
    #: The calls of the original as it is.
    calls: Callable[[], Mapping[tuple[str, int], Call]]

    @classmethod
    def of(cls, model: nn.Module, original: nn.Module, inputs: Any, kwargs: Any, standard: str | None) -> Alone:
        """Copy the modules."""
        ours, theirs = (
            ModuleCopies(dict(copy.deepcopy(each).cpu().named_modules()), None, standard) for each in (model, original)
        )

        @functools.cache
        def calls() -> Mapping[tuple[str, int], Call]:
            args, named = (mapped(each, lambda tensor: tensor.detach().cpu()) for each in (inputs, kwargs))
            found = run(copy.deepcopy(original).cpu(), args, named, None, False)[1]
            return {(call.name, call.number): call for call in found}

        return cls(ours, theirs, calls)

    def judge(self, layer: Layer, call: Call, other: Call, expected: Any) -> Layer:
        """Return a layer with what is found of its call by itself; ``other`` names the original's call.

        Nothing is, where the results of either module depend on more than what it gets.
        """
        if (found := self.difference(call, other)) is None or (found <= TWICE) is layer.agrees:
            return layer
        if layer.forward is None or layer.forward.limit is None:  # another shape or structure
            return layer
        original = self.calls()[other.name, other.number]
        if not all(each.forward and each.agrees for each in (self.ours.judge(call), self.theirs.judge(original))):
            return layer
        if found > TWICE:
            said = ANOTHER.format(times=found)
            verdict = Verdict(path=call.label, agrees=False, standard=layer.forward.standard, headline=said)
            return replace(layer, forward=replace(verdict, message=f"{call.label}: {said}"))
        usual = relative_error(original.output, mapped(expected, plain))
        verdict = Verdict(path=call.label, agrees=True, standard=layer.forward.standard, headline=f"agrees: {ROUNDS}")
        return replace(layer, forward=verdict if layer.output_error <= TWICE * usual else layer.forward, note=ROUNDS)

    def difference(self, call: Call, other: Call) -> float | None:
        """Return how far the functions are apart, as a multiple of the original's noise; None if that is unknown."""
        dtypes = {each.dtype for each in tensors_in(call.output)}
        if len(dtypes) != 1 or not dtypes <= set(SHORT):
            return None
        try:
            ours, theirs = (
                tensors_in(copies.source(each).exact()[0]) for copies, each in ((self.ours, call), (self.theirs, other))
            )
        except Exception:  # noqa: BLE001 - only an NPU may have it, or the modules take other arguments
            return None
        (dtype,), found = dtypes, []
        for mine, exact in zip(ours, theirs, strict=False):
            if mine.shape == exact.shape and isinstance(exact, Reference):
                noises = [relative_error(each, plain(exact)) for each in exact.reference_runs(dtype)]
                found.append(relative_error(plain(mine), plain(exact)) / max([torch.finfo(dtype).eps / 4, *noises]))
        return max(filter(math.isfinite, found), default=None)


def _shared(model: nn.Module, original: nn.Module) -> dict[str, str]:
    known = {name for name, _ in original.named_modules()}
    return {name: name for name, _ in model.named_modules() if name in known}


def _check_names(pairs: Mapping[str, str], model: nn.Module, original: nn.Module) -> None:
    for names, owner, title in ((pairs, model, "model"), (pairs.values(), original, "original")):
        known = {name for name, _ in owner.named_modules()}
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(
                f"the {title} has no module {missing[0]!r}",
                hint="give names as named_modules() of the model lists them",
            )
