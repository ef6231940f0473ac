"""Traces of a model at each batch size, set against what torch_npu has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from pytest_ascend.environment import measured
from pytest_ascend.environment.chips import (
    CONVOLUTIONS,
    IN_HALVES,
    IN_HF32,
    MATRIX_PRODUCTS,
    REFUSED,
    Chip,
    family,
    multiplies,
    objections,
    product_formats,
)
from pytest_ascend.migration.analysis import OPTIMIZER, PHASES, STANDINGS, Analysis, Kind, Operator, standing
from pytest_ascend.migration.running import Step, Traced, fitting_batch, trace
from pytest_ascend.migration.target import TargetModel, target_model
from pytest_ascend.migration.tracing import OperatorUse

#: Signatures that are kept of an operator, the most frequent ones.
SIGNATURES_KEPT = 5

_DTYPE = re.compile(r"\b(?:b?float\d+|u?int\d+|complex\d+|bool)\b")


@dataclass(frozen=True, slots=True)
class Request:
    """The user's request, as written; empty ``batches``: the inputs as they are, and twice as many."""

    model: str
    inputs: str = ""
    batches: tuple[int, ...] = ()
    dtype: str | None = None
    autocast: str | None = None
    optimizer: str = "adamw"
    training: bool = True
    compiled: bool = False


def analyse(empty: Analysis, request: Request, kind: Kind, standings_of: str, ways: tuple[str, ...]) -> Analysis:
    """Fill in operators and memory. Raises UsageError where the model cannot be made or does not run."""
    autocast = getattr(torch, request.autocast) if request.autocast else None
    step = Step(optimizer=request.optimizer, autocast=autocast, training=request.training)
    first = target_model(request.model, request.inputs, request.batches[0] if request.batches else None)
    others = request.batches[1:] or (2 * first.batch,)
    found = [first, *(replace(target_model(request.model, request.inputs, each), model=first.model) for each in others)]
    targets = [_converted(each, request.dtype) for each in found]
    traces = [trace(each, step, ways) for each in targets]
    memory = tuple(each.memory for each in traces)
    operators = _operators(traces[0], kind)
    breaks: tuple[str, ...] = ()
    if request.compiled:
        from pytest_ascend.migration.breaks import graph_breaks  # noqa: PLC0415 - loads torch's compiler

        breaks = graph_breaks(targets[0], reads_values=traces[0].reads_values)
    notes = [
        *(note for each in traces for note in each.notes),
        *_roundings(operators, empty.chip),
        *_objections(operators, empty.chip),
    ]
    # Search with meta tensors, which cost nothing at any size; not for a model that reads values, nor along steps.
    given = targets[0]
    traced = traces[0]
    capacity_bytes = empty.chip.memory_bytes
    is_batch = len({sum(use.calls for use in each.uses.values()) for each in traces}) == 1
    if not is_batch:
        notes.append("the number of operators grows with the first dimension, as steps of a sequence: is it the batch?")
    return replace(
        empty,
        model=request.model,
        way=traces[0].way,
        standings_of=standings_of,
        optimizer=request.optimizer if request.training else "none",
        operators=operators,
        older=tuple(_older(given.model)),
        graph_breaks=breaks if request.compiled else None,
        memory=memory,
        largest_batch=(
            fitting_batch(given, step, capacity_bytes)
            if is_batch and not traced.reads_values and traced.way != "cpu"
            else None
        ),
        notes=tuple(dict.fromkeys(notes)),
    )


#: Modules that torch_npu computes by an operator of before aclnn; nn.RNN and nn.GRUCell are made of others.
#: Source: op_plugin/ops/aclops in Ascend/op-plugin (LstmKernelNpu, GruKernelNpu, LstmCellKernelNpu).
_OLDER = {torch.nn.LSTM: "DynamicRNN", torch.nn.GRU: "DynamicGRUV2", torch.nn.LSTMCell: "DynamicRNNV2"}


def _older(model: torch.nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        yield from (f"{name or 'the model'} ({own})" for kind, own in _OLDER.items() if isinstance(module, kind))


#: What becomes of float32 in a product, and what to do about it.
_BECOMES = {
    IN_HF32: "round their factors to HF32 by default; torch.npu.conv.allow_hf32 = False keeps float32",
    IN_HALVES: "round their factors to float16; the chip has no other mode",
    REFUSED: "are refused by default; ACL_PRECISION_MODE=allow_fp32_to_fp16 has them computed in float16",
}


def _roundings(operators: Iterable[Operator], chip: Chip) -> Iterator[str]:
    """Yield what becomes of float32 in a model's products on a chip, unless they keep it."""
    its = family(chip.name)
    wide = [each.name for each in operators if any("float32" in _DTYPE.findall(text) for text, _ in each.signatures)]
    products = [name for each in wide if multiplies(name := each.removeprefix("aten::"))]
    kinds = {CONVOLUTIONS if "conv" in name else MATRIX_PRODUCTS for name in products}
    for kind, how in product_formats(its).items() if its else ():
        if kind in kinds and how in _BECOMES:
            yield f"float32 {kind} on {chip.name} {_BECOMES[how]}"


def _objections(operators: Iterable[Operator], chip: Chip) -> Iterator[str]:
    """Yield the objections to a model's operators, in the dtypes that they get, on a chip.

    Observations on such a chip count before CANN's documentation.
    """
    its = family(chip.name)
    for each in operators if its else ():
        name = each.name.removeprefix("aten::")
        dtypes = sorted({name for text, _ in each.signatures for name in _DTYPE.findall(text)})
        seen = measured.objections(name, dtypes, chip.name)
        written = objections(name, dtypes, its.name if its else "") if seen is None else ()
        yield from (f"{each.name} on {chip.name}: {objection}" for objection in seen or ())
        yield from (
            f"{each.name} on {chip.name}: {objection} (CANN's documentation of the operator)" for objection in written
        )


def _converted(given: TargetModel, dtype: str | None) -> TargetModel:
    if dtype is None:
        return given
    to = getattr(torch, dtype)

    def convert(value: object) -> object:
        return value.to(to) if isinstance(value, Tensor) and value.is_floating_point() else value

    args, kwargs = tree_map(convert, (given.args, dict(given.kwargs)))
    return replace(given, model=given.model.to(to), args=args, kwargs=kwargs)


def _operators(traced: Traced, kind: Kind) -> tuple[Operator, ...]:
    names = dict.fromkeys(name for _, name in traced.uses)
    found = [_operator(name, traced.uses, kind) for name in names]
    order = list(STANDINGS)
    return tuple(sorted(found, key=lambda each: (-order.index(each.standing), -each.all_calls, each.name)))


def _operator(name: str, uses: Mapping[tuple[str, str], OperatorUse], kind: Kind) -> Operator:
    own = {phase: uses[phase, name] for phase in PHASES if (phase, name) in uses}
    signatures: Counter[str] = Counter()
    for use in own.values():
        signatures.update(use.signatures)
    return Operator(
        name=name,
        standing=standing(kind(name)),
        calls={phase: use.calls for phase, use in own.items()},
        flops=sum(use.flops for use in own.values()),
        moved_bytes=sum(use.moved_bytes for use in own.values()),
        signatures=tuple(signatures.most_common(SIGNATURES_KEPT)),
        places=tuple(dict.fromkeys(place for use in own.values() for place in use.places if place)),
        refused=tuple(dict.fromkeys(each for phase, use in own.items() if phase != OPTIMIZER for each in use.refused)),
    )
