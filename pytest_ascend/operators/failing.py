"""A failing call: saved as data beside the log, and a program that loads and repeats it.

The file holds tensors and plain values only. The function is named in the program, where a reader can see it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch

from pytest_ascend.golden.files import Golden, decode, encode
from pytest_ascend.operators import calling
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.reference import CPU, Tensors
from pytest_ascend.operators.replay import Unwritable, operator_of, read, write
from pytest_ascend.operators.samples import StoredTensor, laid_out
from pytest_ascend.operators.target import BACKWARD, IN_PLACE, Call, Target, placed
from pytest_ascend.precision.nested import widened
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.program import difference, passes, pinning, worst_leaf
from pytest_ascend.system import bundled
from pytest_ascend.system.errors import UsageError, as_error
from pytest_ascend.system.files import read_regular, write_file
from pytest_ascend.system.text import one_line

#: Most bytes of one call's tensors, and of all files in a folder: on a broken device every case fails.
LARGEST_BYTES, FOLDER_BYTES = 64 << 20, 1 << 30
#: Modules searched for a function by identity, in this order.
_PUBLIC = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.Tensor")
#: A tensor in a file: its number, whether it is complex, and its strides and offset unless it is contiguous.
_Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedCall:
    """One call with its tensors on the CPU, in the device's strides, and the expected outcome.

    ``leaves`` are the indices of the tensors to differentiate by, and ``grad_outputs`` the incoming gradients; without
    leaves, the results are compared: the first ``outputs`` of them, or all if that is 0. ``expected`` is in float64,
    ``reference`` is the CPU's result in the dtype. ``element`` is the output and index reported by the judge, ``rule``
    the deciding rule and its limit. ``repeats`` compares two runs on the device with each other.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    leaves: tuple[int, ...] = ()
    grad_outputs: tuple[torch.Tensor, ...] = ()
    outputs: int = 0
    expected: Tensors = field(default_factory=list)
    reference: Tensors = field(default_factory=list)
    element: tuple[int, tuple[int, ...]] | None = None
    rule: tuple[str, float] = ("", 0.0)
    repeats: bool = False

    def save(self, path: Path, case: str) -> None:
        """Write the file. Raises Unwritable for a value that is not plain data, or if the file would be too large."""
        kept: dict[str, torch.Tensor] = {}

        def keep(source: StoredTensor) -> _Row:
            tensor, number = source.tensor.detach(), str(len(kept))
            plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
            kept[number] = plain.resolve_neg()
            is_plain = tensor.is_contiguous() and not tensor.storage_offset()
            laid = {} if is_plain else {"stride": tensor.stride(), "offset": tensor.storage_offset()}
            return {"number": number, "complex": tensor.is_complex(), **laid}

        names = ("args", "kwargs", "grad_outputs", "expected", "reference")
        values = calling.on_tensors(lambda each: StoredTensor(tensor=each), [getattr(self, name) for name in names])
        meta = {name: write(value, keep) for name, value in zip(names, values, strict=True)}
        size = sum(each.untyped_storage().nbytes() for each in kept.values())
        if size > LARGEST_BYTES:
            raise Unwritable(f"its tensors have {size >> 20} MB, more than {LARGEST_BYTES >> 20}")
        for name in ("leaves", "outputs", "element", "repeats"):
            meta[name] = getattr(self, name)
        meta["rule"] = write([*self.rule], keep)
        write_file(path, encode(Golden(case, kept, meta)))

    @classmethod
    def load(cls, path: Path) -> SavedCall:
        """Read a file. Raises UsageError if it is not a saved call, or damaged."""
        hint = "start the program in the folder of the run, or give the path of the file in ascend-report/calls"
        kinds = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError)
        with as_error(f"{path} is no saved call", hint, *kinds, why=lambda error: one_line(str(error))[:200]):
            golden = decode(read_regular(path, 2 * LARGEST_BYTES))
            meta = dict(golden.meta)
            named = {name: read(value, functools.partial(_kept, golden.tensors)) for name, value in meta.items()}
            place, index = named.pop("element") or (None, ())
            named |= {name: tuple(named[name]) for name in ("args", "leaves", "grad_outputs", "rule")}
            return cls(**named, element=None if place is None else (int(place), tuple(map(int, index))))

    def run(self, function: Callable[..., Any], device: torch.device) -> Tensors:
        """Call the function with the saved arguments on a device, and copy the results or gradients to the CPU."""
        args, kwargs = placed((self.args, dict(self.kwargs)), _in_memory, device)
        leaves = [calling.tensors((args, kwargs))[place].requires_grad_() for place in self.leaves]
        found = function(*args, **kwargs)
        found = calling.tensors(args[0] if found is None else found)  # a list changed in place: nothing is returned
        if not leaves:
            return [each.detach().cpu() for each in found[: self.outputs or None]]
        attached = [each for each in found if each.requires_grad][: len(self.grad_outputs)]
        incoming = [_in_memory(up, device).to(out.dtype) for up, out in zip(self.grad_outputs, attached, strict=True)]
        gradients = torch.autograd.grad(attached, leaves, incoming, allow_unused=True)
        return [each if each is None else each.cpu() for each in gradients]


def rerun(path: str | Path, function: Callable[..., Any], device: str | torch.device) -> None:
    """Load a saved call, run it on a device, and print the worst element of each result beside the expected one.

    Exits with 1 if the difference exceeds the limit, with 0 otherwise; with a message if the file cannot be read.
    """
    try:
        call, device = SavedCall.load(Path(path)), torch.device(device)
    except UsageError as error:
        raise SystemExit(f"{error}\n{error.hint}") from None
    actual = call.run(function, device)
    expected = call.run(function, device) if call.repeats else call.expected
    for place, (one, other) in enumerate(zip(actual, expected, strict=False)):
        if one is None or other is None:
            continue
        line = f"output {place}: {tuple(one.shape)} {one.dtype} on {device}, {tuple(other.shape)} expected"
        if one.shape == other.shape and one.numel():
            distance = difference(one, other)
            worst = tuple((distance == distance.max()).nonzero()[0].tolist())
            at = call.element[1] if call.element and call.element[0] == place else worst
            values = f"{one[at].item()} on {device}, {other[at].item()} expected"
            line = f"output {place}, element {at}: {values}; largest difference {distance.max().item():.6g}"
        print(line)  # noqa: T201
    place, index = call.element or (0, None)
    one, other = (found[place] if place < len(found) else None for found in (actual, expected))
    if one is None or other is None:
        raise SystemExit(one is not other)
    reference = call.reference[place] if place < len(call.reference) else None
    rule = ("elements that are not equal", 0.0) if call.repeats else call.rule
    raise SystemExit(not passes(one, other, rule, index, lambda: reference))


def _kept(held: Mapping[str, torch.Tensor], row: _Row) -> torch.Tensor:
    """Return a tensor of a file in its strides; the gaps between its elements are filled with NaN or 77."""
    plain = held[str(row["number"])]
    tensor = torch.view_as_complex(plain) if row["complex"] else plain
    if "stride" not in row or not tensor.numel():
        return tensor
    stride, offset = tuple(int(each) for each in row["stride"]), int(row["offset"])
    size = offset + 1 + sum((count - 1) * step for count, step in zip(tensor.shape, stride, strict=True))
    if min([*stride, offset]) < 0 or size * tensor.element_size() > LARGEST_BYTES:
        raise ValueError(f"strides {[*stride]} from {offset} on reach beyond any memory")
    return laid_out(tensor, stride, calling.poisoned((size,), tensor.dtype), offset)


def _in_memory(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    there = tensor.as_strided((count,), (1,), 0).to(device, copy=True)
    return there.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


# --- the call made by a test ---


def program(target: Target, folder: Path, verdict: Verdict | None) -> str:
    """Save the call of a case in a folder, and return the program that repeats it.

    After a disagreement it is the call of the worst sample, else the last one. Raises Unwritable if it cannot be saved.
    """
    leaf = worst_leaf(verdict) if verdict else None
    path = leaf.path if leaf else ""
    found = next((call for name, call in target.calls.items() if f"[{name!r}]" in path), None)
    call, (worst, limit) = found or target.latest, (leaf.worst, leaf.limit) if leaf and found else (None, None)
    # Paths that begin otherwise belong to strides or signs; their indices do not apply.
    element = (place_of(path), worst.index) if worst and path.startswith(f"{target.operator.name}[") else None
    operator, changes = target.operator, call.direction == IN_PLACE
    imports: Sequence[str] = ()
    if not (function := _public_name(operator.changes_first if changes else operator.function)):
        imports, row = target.origin or ((), f"bundled_operator({f'{target.case.suite}/{target.case.subject}'!r})")
        if not target.origin and target.case.suite not in ("ops", "fused"):
            raise Unwritable(f"the function of {operator.name} has no name of its own")
        function = f"{row}.{'changes_first' if changes else 'function'}"
    saved = _saved(target, call, element, (limit.name, float(limit.value)) if limit else ("", 0.0))
    file = folder / f"{re.sub(r'[^A-Za-z0-9_.+-]', '_', target.case.id.replace('/', '.'))[:180]}.safetensors"
    if folder.is_dir() and sum(each.stat().st_size for each in folder.iterdir()) > FOLDER_BYTES:
        raise Unwritable(f"{folder} has {FOLDER_BYTES >> 20} MB of saved calls, which is enough")
    saved.save(file, target.case.id)
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    helpers = (*(["bundled_operator"] if function.startswith("bundled_operator(") else []), "rerun")
    lines = (
        f"# {one_line(f'{target.case.id}: {call.name}')}",
        "# Needs pytest-ascend. The saved call is data: tensors and plain values.",
        "import torch",
        *(["import torch_npu"] if target.device.type == "npu" else []),
        f"from pytest_ascend.operators.failing import {', '.join(helpers)}",
        *imports,
        "",
        *pinning(target.device),
        f"rerun({str(shown)!r}, {function}, {str(target.device)!r})",
    )
    return "\n".join(lines) + "\n"


def bundled_operator(name: str) -> Operator:
    """Return a bundled operator, such as "ops/argmax". Raises UsageError for others."""
    suite, _, subject = name.partition("/")
    try:
        if suite != "ops":
            fused: Mapping[str, Operator] = {each.name: each for each in bundled.module("suites.fused").OPERATORS}
            return fused[subject if suite == "fused" else name]
        table = bundled.module("suites.ops.table")
        return table.OPERATORS.get(subject) or operator_of(table.RECORDED[subject])
    except KeyError:
        raise UsageError(f"{name} is no bundled operator", hint="use the release that wrote the program") from None


def _public_name(function: Any) -> str:
    """Return the public name of a torch function, "" for any other."""
    if isinstance(function, torch._ops.OpOverloadPacket | torch._ops.OpOverload):  # noqa: SLF001
        return f"torch.ops.{function}"
    for where in _PUBLIC:
        holder = functools.reduce(getattr, where.split(".")[1:], torch)
        for name, each in vars(holder).items():
            if each is function and callable(each) and not isinstance(each, type):
                return f"{where}.{name}"
    # Methods inherited by Tensor are not in its own dictionary.
    name = str(getattr(function, "__name__", ""))
    return f"torch.Tensor.{name}" if name and getattr(torch.Tensor, name, None) is function else ""


def place_of(path: str) -> int:
    """Return the output's number at the end of a path: 1 for "sort['3x5'][1]"."""
    last = path.rpartition("[")[2].rstrip("]")
    return int(last) if last.isdigit() else 0


def _saved(
    target: Target, call: Call, element: tuple[int, tuple[int, ...]] | None, rule: tuple[str, float]
) -> SavedCall:
    """Return the call made by the test. Raises Unwritable if the CPU cannot compute it."""
    args, kwargs = target.arguments(call, CPU)
    is_back = call.direction == BACKWARD
    try:
        results = target.expect(call)
        grad_outputs: list[torch.Tensor] = []
        if is_back:
            operator, compute = target.operator, target.operator.definition or target.operator.function
            plain = target.arguments(replace(call, layout=calling.preserve_layout), CPU)
            plain = calling.on_tensors(widened, plain) if operator.definition else plain
            calling.with_grad(call.sample, plain, target.dtype)
            outputs = calling.forward(operator, compute, *plain)
            drawn = calling.upstream(operator, call.sample, outputs, target.dtype)
            grad_outputs = [call.layout(each, CPU) for each in drawn]
    except RuntimeError as error:
        raise Unwritable(f"the CPU does not compute it in {target.case.dtype}: {error}") from error
    if target.case.property == "in-place" and call.label == "stepped":
        args = (calling.steps(calling.surrounded(args[0])), *args[1:])
    if target.case.property == "out":
        whole = calling.out_targets(results.first, CPU)[call.label]
        kwargs = {**kwargs, "out": calling.steps(whole) if call.label == "stepped" else whole}
    wanted = (place for place, each in enumerate(call.sample.values()) if each.wants_grad(target.dtype))
    return SavedCall(
        args=tuple(args),
        kwargs=kwargs,
        leaves=tuple(wanted) if is_back else (),
        grad_outputs=tuple(grad_outputs),
        outputs=0 if is_back else len(target.operator.outputs),
        expected=results.expected,
        reference=results.reference_runs[0],
        element=element,
        rule=rule,
        repeats=target.case.property == "repeat",
    )
