"""The operators that a model calls, from torch's own dispatch: all below autograd, forward and backward.

Tensors are fake NPU tensors with torch_npu (which shows how it decomposes operators), else meta tensors: nothing is
computed. If a model reads values (``.item()``, ``nonzero``), it runs once on the CPU first, and the trace without
values takes them from there, so that the operators are still those of the NPU.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import flop_counter
from torch.utils._pytree import tree_map

from pytest_ascend.system.dispatching import EagerDispatchMode, tensors_in

#: torch's formulas for multiplications and additions, by operator. torch 2.1 does not export its own.
_FLOPS: Mapping[Any, Any] = getattr(flop_counter, "flop_registry", {})

#: torch's tags of operators that read values of their inputs.
_BY_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


@dataclass(kw_only=True, slots=True)
class OperatorUse:
    """How often an operator was called in one phase, with which tensors, and its cost.

    ``moved_bytes`` is the size of all input and output tensors, which cross to the host and back on a fallback.
    ``flops`` counts multiplications and additions if torch has a formula, else 0. ``places`` are the lines of the model
    that call it ("model.py:12"), in the backward pass those of the forward operator. ``refused`` says why calls are
    rejected in a captured graph, beyond the operator's name ("mask", "literal", "copy"), and the line. ``signatures``
    are shapes and dtypes of the tensors that one call takes, as text.
    """

    calls: int = 0
    flops: int = 0
    moved_bytes: int = 0
    signatures: Counter[str] = field(default_factory=Counter)
    places: dict[str, None] = field(default_factory=dict)
    refused: dict[tuple[str, str], None] = field(default_factory=dict)


class Values:
    """The results of operators that depend on values, in call order: recorded on the CPU, replayed without values."""

    def __init__(self) -> None:
        self.replays = False
        self._results: deque[tuple[str, Any]] = deque()

    def result(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the operator and record its scalar or the shape of its tensors; or return the recorded result.

        Raises RuntimeError if the trace without values calls other such operators than the run on the CPU.
        """
        name = str(func.name())  # type: ignore[no-untyped-call]
        if not self.replays:
            result = func(*args, **kwargs)
            self._results.append((name, tree_map(lambda each: _without_values(each, "meta"), result)))
            return result
        expected, recorded = self._results.popleft() if self._results else ("nothing", None)
        if name != expected:
            raise RuntimeError(f"{name} is called where the CPU called {expected}")
        device = next(iter(tensors_in((args, kwargs)))).device
        return tree_map(lambda each: _without_values(each, device), recorded)


def _without_values(result: Any, device: torch.device | str) -> Any:
    return torch.empty(result.shape, dtype=result.dtype, device=device) if isinstance(result, Tensor) else result


class Recorder(EagerDispatchMode):
    """Records every operator by phase and name, which the caller sets, and the memory of its results.

    ``bytes`` and ``peak_bytes`` count tensors that were created and are still referenced, without ``existing`` ones.
    """

    def __init__(self, values: Values | None, existing: Iterable[Tensor]) -> None:
        super().__init__()
        self.phase = "forward"
        self.values = values
        self.uses: dict[tuple[str, str], OperatorUse] = {}
        self.bytes = self.peak_bytes = 0
        # The address identifies the storage across wrappers.
        self._known = {each.untyped_storage()._cdata for each in existing}  # noqa: SLF001
        self._lines: dict[int, str] = {}

    def handle(self, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the operator, and record it."""
        # An optimizer reads its own step count, which stays on the CPU in every trace.
        if self.values is not None and self.phase != "optimizer" and _BY_VALUES.intersection(func.tags):
            result = self.values.result(func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        name = str(func.name())  # type: ignore[no-untyped-call]
        if not name.startswith(("prim::", "profiler::")):  # queries of a tensor that compute nothing
            use = self.uses.setdefault((self.phase, name), OperatorUse())
            given, out = tensors_in((args, kwargs)), tensors_in(result)
            use.places[place := self._place()] = None
            if what := _refused(name, args, given, out):
                use.refused[what, place] = None
            use.calls += 1
            use.moved_bytes += sum(size_bytes(each) for each in (*given, *out))
            use.signatures[", ".join(f"{str(each.dtype)[6:]}{list(each.shape)}" for each in given)] += 1
            if formula := _FLOPS.get(func.overloadpacket):
                with contextlib.suppress(TypeError, ValueError, AssertionError, IndexError):  # fails on some arguments
                    use.flops += int(formula(*args, **kwargs, out_val=result))
            for storage in (each.untyped_storage() for each in out):
                key, size = storage._cdata, storage.nbytes()  # noqa: SLF001
                if key not in self._known:
                    self._known.add(key)
                    self.bytes += size
                    self.peak_bytes = max(self.peak_bytes, self.bytes)
                    weakref.finalize(storage, self._freed, key, size).atexit = False
        return result

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size

    def _place(self) -> str:
        """Return the innermost line of this call that is in neither torch nor this package, "" without one.

        In the backward pass it is that of the forward operator.
        """
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - quicker than a traceback
        while (
            frame and (file := frame.f_code.co_filename) != _CALLER and (file.startswith(_NOT_THE_MODEL) or "<" in file)
        ):
            frame = frame.f_back
        is_found = frame is not None and frame.f_code.co_filename != _CALLER
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame and is_found else ""
        if self.phase == "forward":
            self._lines.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)  # noqa: SLF001 - its only name
        elif not place and (node := torch._C._current_autograd_node()):  # noqa: SLF001 - its only name
            place = self._lines.get(node._sequence_nr(), "")  # noqa: SLF001 - its only name
        return place


def _refused(name: str, args: Sequence[Any], given: Sequence[Tensor], out: Sequence[Tensor]) -> str:
    """Return what a capture rejects: "mask" in an index, "literal" or "copy" that crosses to the device; else ""."""
    operator = name.removeprefix("aten::").partition(".")[0]
    if operator in ("index", "index_put", "index_put_"):
        return "mask" if any(each.dtype in (torch.bool, torch.uint8) for each in tensors_in(args[1])) else ""
    if operator == "lift_fresh":
        return "literal" if out[0].device.type != "cpu" else ""
    devices = {each.device.type for each in (*given, *out)} if operator in ("_to_copy", "copy_") else ()
    return "copy" if len(devices) > 1 else ""


#: Files whose lines are not the model's, and the one that calls the model.
_CALLER = str(Path(__file__).with_name("running.py"))
_NOT_THE_MODEL = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


def size_bytes(tensor: Tensor) -> int:
    """Return the size of a tensor's elements in bytes."""
    return tensor.numel() * tensor.element_size()
