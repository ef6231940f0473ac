"""A rewritten model beside its original: where their layers' results part."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from pytest_ascend.errors import UsageError
from pytest_ascend.precision.capture import Call, run, widened
from pytest_ascend.precision.compare import compare
from pytest_ascend.precision.layer_report import Layer, LayerReport, relative_error
from pytest_ascend.precision.layers import check_module
from pytest_ascend.precision.nested import mapped


def models(
    model: nn.Module,
    original: nn.Module,
    *inputs: Any,
    names: Mapping[str, str] | None = None,
    device: str | torch.device = "cpu",
    standard: str | None = None,
    **kwargs: Any,
) -> LayerReport:
    """Compare a rewritten model with its original, by what the modules give that ``names`` maps to each other.

    ``names`` goes from the model's names to the original's; without it, modules of equal names are compared. The model
    runs on ``device``, its original on the CPU: in float64 (expected) and as it is (honest). Raises :class:`UsageError`
    for unknown names, and where nothing is there to compare.
    """
    check_module(model)
    check_module(original)
    if not isinstance(names, Mapping | None):
        raise UsageError(
            f"names is {names!r:.80}", hint="give a mapping: {'name in the model': 'name in the original'}"
        )
    pairs = dict(names) if names is not None else _shared(model, original)
    _check_names(pairs, model, original)
    theirs, wide = (copy.deepcopy(each).cpu() for each in (original, original))
    args, named = (mapped(each, lambda tensor: widened(tensor.cpu())) for each in (inputs, kwargs))
    expected = {(call.name, call.number): call for call in run(wide.double(), args, named, None, False)[1]}
    args, named = (mapped(each, torch.Tensor.cpu) for each in (inputs, kwargs))
    honest = {(call.name, call.number): call for call in run(theirs, args, named, None, False)[1]}
    args, named = (mapped(each, lambda tensor: tensor.to(device)) for each in (inputs, kwargs))
    calls = run(copy.deepcopy(model).to(device), args, named, None, False)[1]
    found = [(call, (pairs[call.name], call.number)) for call in calls if call.name in pairs]
    layers = tuple(_against(call, expected[key], honest[key], standard) for call, key in found if key in expected)
    if not layers:
        raise UsageError(
            "the models have no module in common that both call", hint="say with names={...} which modules correspond"
        )
    return LayerReport(layers=layers)


def _against(call: Call, expected: Call, honest: Call, standard: str | None) -> Layer:
    return Layer(
        label=call.label if call.label == expected.label else f"{call.label} = {expected.label}",
        kind=call.kind,
        input_error=relative_error(call.args, expected.args),
        output_error=relative_error(call.output, expected.output),
        forward=compare(call.output, expected.output, honest=honest.output, name=call.label, standard=standard),
    )


def _shared(model: nn.Module, original: nn.Module) -> dict[str, str]:
    known = {name for name, _ in original.named_modules()}
    return {name: name for name, _ in model.named_modules() if name in known}


def _check_names(pairs: Mapping[str, str], model: nn.Module, original: nn.Module) -> None:
    for names, owner, title in ((pairs, model, "model"), (pairs.values(), original, "original")):
        missing = _unknown(names, owner)
        if missing:
            raise UsageError(
                f"the {title} has no module {missing[0]!r}",
                hint="give names as named_modules() of the model lists them",
            )


def _unknown(names: Iterable[str], owner: nn.Module) -> list[str]:
    known = {name for name, _ in owner.named_modules()}
    return [name for name in names if name not in known]
