"""Traces of a model at each batch size, compared with torch_npu's operators, and the graph breaks of torch.compile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pytest_ascend.environment import chips, measured
from pytest_ascend.environment.chips import CONVOLUTIONS, IN_HALVES, IN_HF32, MATRIX_PRODUCTS, REFUSED
from pytest_ascend.migration.analysis import COMPOSITE, OPTIMIZER, PHASES, STANDINGS, UNKNOWN, Analysis, Kind, Operator
from pytest_ascend.migration.running import Step, as_meta, fitting_batch, obstacle, quiet, trace
from pytest_ascend.migration.target import TargetModel, target_model
from pytest_ascend.migration.tracing import OperatorUse
from pytest_ascend.records.census import KINDS
from pytest_ascend.system.errors import as_error

_DTYPE = re.compile(r"\b(?:b?float\d+|u?int\d+|complex\d+|bool)\b")


def analyse(
    empty: Analysis,
    kind: Kind,
    modes: tuple[str, ...],
    *,
    inputs: str,
    batches: tuple[int, ...],
    dtype: str | None,
    autocast: str | None,
    optimizer: str,
    training: bool,
    compiled: bool,
) -> Analysis:
    """Fill in operators and memory of a model. Without ``batches``, use the given inputs, and twice as many.

    Raises UsageError if the model cannot be built or does not run.
    """
    step = Step(optimizer=optimizer, autocast=getattr(torch, autocast) if autocast else None, training=training)
    hint = "see that the factory and the function of inputs run by themselves"
    with as_error(f"{empty.model} cannot be made", hint, Exception, why=obstacle):
        first = target_model(empty.model, inputs, batches[0] if batches else None)
        others = [target_model(empty.model, inputs, each) for each in batches[1:] or (2 * first.batch,)]
    targets = [first, *(replace(each, model=first.model) for each in others)]
    if to := getattr(torch, dtype) if dtype else None:
        first.model.to(to)
        for at, each in enumerate(targets):
            args, kwargs = each.mapped(lambda x: x.to(to) if x.is_floating_point() else x)
            targets[at] = replace(each, args=args, kwargs=kwargs)
    traces = [trace(each, step, modes) for each in targets]
    given, traced = targets[0], traces[0]
    operators = [_operator(name, traced.uses, kind) for name in dict.fromkeys(name for _, name in traced.uses)]
    order = list(STANDINGS)
    operators.sort(key=lambda each: (-order.index(each.standing), -each.all_calls, each.name))
    notes = [*(note for each in traces for note in each.notes), *_of_the_chip(operators, empty.chip)]
    is_batch = len({sum(use.calls for use in each.uses.values()) for each in traces}) == 1
    if not is_batch:
        notes.append("the number of operators grows with the first dimension, as steps of a sequence: is it the batch?")
    # Search with meta tensors, which cost nothing at any size; but not if the model reads values, nor along steps.
    searches = is_batch and not traced.reads_values and traced.mode != "cpu"
    return replace(
        empty,
        mode=traced.mode,
        optimizer=optimizer if training else "none",
        operators=tuple(operators),
        older=tuple(
            f"{name or 'the model'} ({own})"
            for name, module in given.model.named_modules()
            for kind, own in _OLDER.items()
            if isinstance(module, kind)
        ),
        graph_breaks=graph_breaks(given, reads_values=traced.reads_values) if compiled else None,
        memory=tuple(each.memory for each in traces),
        largest_batch=fitting_batch(given, step, empty.chip.memory_bytes) if searches else None,
        notes=tuple(dict.fromkeys(notes)),
    )


#: Modules that torch_npu computes by an operator older than aclnn; nn.RNN and nn.GRUCell consist of other operators.
#:  Source: op_plugin/ops/aclops in Ascend/op-plugin (LstmKernelNpu, GruKernelNpu, LstmCellKernelNpu).
_OLDER = {torch.nn.LSTM: "DynamicRNN", torch.nn.GRU: "DynamicGRUV2", torch.nn.LSTMCell: "DynamicRNNV2"}


#: The format of float32 operands in a product, and what to do about it.
_BECOMES = {
    IN_HF32: "round their factors to HF32 by default; torch.npu.conv.allow_hf32 = False keeps float32",
    IN_HALVES: "round their factors to float16; the chip has no other mode",
    REFUSED: "are refused by default; ACL_PRECISION_MODE=allow_fp32_to_fp16 has them computed in float16",
}


def _of_the_chip(operators: Iterable[Operator], chip: chips.Chip) -> Iterator[str]:
    """Yield the formats of float32 operands in a model's products on a chip, and the objections to its operators there.

    Observations on such a chip take precedence over CANN's documentation.
    """
    if (its := chips.family(chip.name)) is None:
        return
    wide = [each.name for each in operators if any("float32" in _DTYPE.findall(text) for text, _ in each.signatures)]
    products = [name for each in wide if chips.multiplies(name := each.removeprefix("aten::"))]
    kinds = {CONVOLUTIONS if "conv" in name else MATRIX_PRODUCTS for name in products}
    for kind, how in chips.product_formats(its).items():
        if kind in kinds and how in _BECOMES:
            yield f"float32 {kind} on {chip.name} {_BECOMES[how]}"
    for each in operators:
        name = each.name.removeprefix("aten::")
        dtypes = sorted({name for text, _ in each.signatures for name in _DTYPE.findall(text)})
        seen, source = measured.objections(name, dtypes, chip.name), ""
        if seen is None:
            seen, source = chips.objections(name, dtypes, its.name), " (CANN's documentation of the operator)"
        yield from (f"{each.name} on {chip.name}: {objection}{source}" for objection in seen)


def _operator(name: str, uses: Mapping[tuple[str, str], OperatorUse], kind: Kind) -> Operator:
    own = {phase: uses[phase, name] for phase in PHASES if (phase, name) in uses}
    signatures = sum((use.signatures for use in own.values()), Counter[str]())
    in_census = kind(name)
    return Operator(
        name=name,
        standing=in_census if in_census in STANDINGS else COMPOSITE if in_census in KINDS else UNKNOWN,
        calls={phase: use.calls for phase, use in own.items()},
        flops=sum(use.flops for use in own.values()),
        moved_bytes=sum(use.moved_bytes for use in own.values()),
        signatures=tuple(signatures.most_common(5)),
        places=tuple(dict.fromkeys(place for use in own.values() for place in use.places if place)),
        refused=tuple(dict.fromkeys(each for phase, use in own.items() if phase != OPTIMIZER for each in use.refused)),
    )


_VALUE = "decides by a tensor's value: compute both and choose by torch.where, or decide outside of the graph"
#: The beginning of torch's reason -> what to do, if torch's own hint is missing or does not help on an NPU.
_REMEDIES = {
    "generic_jump": _VALUE,
    "Data-dependent": _VALUE,
    "Unsupported Tensor.item": "reads a value on the host: keep it on the device, or read it outside of the graph",
    "Failed to trace builtin operator": "calls what torch.compile cannot trace: move it out of the model's forward",
}


def graph_breaks(target: TargetModel, *, reads_values: bool) -> tuple[str, ...]:
    """Return the graph breaks of a model's forward, with line, torch's reason and what to do.

    Nothing is computed, unless the model reads values: it then runs once on the CPU.
    """
    found: list[str] = []

    def backend(module: torch.fx.GraphModule, _: Any) -> Any:
        reason = getattr(module, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break:
            own = [each for each in reason.user_stack if "site-packages" not in each.filename] or reason.user_stack
            where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "an unknown line"
            text = reason.reason.strip()
            hint = re.search(r"Hint: (.+)", text)
            otherwise = hint[1] if hint else "move it out of the model's forward"
            remedy = next((remedy for begin, remedy in _REMEDIES.items() if text.startswith(begin)), otherwise)
            found.append(f"{where} breaks the graph ({text.splitlines()[0]}): {remedy}")
        return module.forward

    model, args, kwargs = target.model, target.args, dict(target.kwargs)
    if not reads_values:
        model, (args, kwargs) = as_meta(model), target.mapped(as_meta)
    with quiet(), torch.no_grad():
        torch._dynamo.reset()  # noqa: SLF001 - its only name
        try:
            compiled: Any = torch.compile(model, backend=backend, dynamic=False)
            compiled(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - dynamo raises anything; the breaks until then are known
            found.append(f"torch.compile ends here: {obstacle(error)}")
    return tuple(dict.fromkeys(found))
