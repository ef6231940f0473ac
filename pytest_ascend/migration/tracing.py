"""The operators that a model calls, from torch's own dispatch: all below autograd, forward and backward.

Nothing is computed. Tensors are fake NPU tensors if torch_npu is there (which shows what it dispatches to), else meta
tensors, and real ones on the CPU only if a model reads their values.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import flop_counter
from torch.utils._pytree import tree_flatten

from pytest_ascend.dispatching import EagerDispatchMode

#: Queries of a tensor that compute nothing.
NO_OPERATORS = ("prim::", "profiler::")

#: torch's formulas for multiplications and additions, by operator. torch 2.1 does not export its own.
_FLOPS: Mapping[Any, Any] = getattr(flop_counter, "flop_registry", {})

#: Shapes and dtypes of the tensors that one call takes, as text.
Signature = str


@dataclass(kw_only=True, slots=True)
class OperatorUse:
    """How often an operator was called in one phase, with which tensors, and its cost.

    ``moved_bytes`` is the size of all input and output tensors: what crosses to the host and back on a fallback.
    ``flops`` counts multiplications and additions if torch has a formula, else 0.
    """

    calls: int = 0
    flops: int = 0
    moved_bytes: int = 0
    signatures: Counter[Signature] = field(default_factory=Counter)


class LiveMemory:
    """Memory of the tensors created and still referenced, and its peak, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.peak_bytes = 0
        self._known: set[int] = set()

    def add(self, tensor: Tensor) -> None:
        """Count the storage of a tensor once, until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - the address that identifies the storage of two wrappers
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.bytes += size
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        weakref.finalize(storage, self._drop, key, size).atexit = False

    def know(self, tensors: Iterable[Tensor]) -> None:
        """Exclude tensors that existed before."""
        self._known.update(each.untyped_storage()._cdata for each in tensors)  # noqa: SLF001

    def _drop(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


class Recorder(EagerDispatchMode):
    """Records every operator by phase and name. The caller sets ``phase``."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "forward"
        self.uses: dict[tuple[str, str], OperatorUse] = {}
        self.live = LiveMemory()

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operator, and record it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = str(func.name())  # type: ignore[no-untyped-call]
        if not name.startswith(NO_OPERATORS):
            self._note(name, func, args, kwargs, result)
        return result

    def _note(
        self, name: str, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        use = self.uses.setdefault((self.phase, name), OperatorUse())
        given, out = list(tensors_in((args, kwargs))), list(tensors_in(result))
        use.calls += 1
        use.moved_bytes += sum(size_bytes(each) for each in (*given, *out))
        use.signatures[", ".join(map(described, given))] += 1
        use.flops += _flops(func, args, kwargs, result)
        for each in out:
            self.live.add(each)


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor anywhere in arguments."""
    leaves, _ = tree_flatten(tree)
    return (leaf for leaf in leaves if isinstance(leaf, Tensor))


def size_bytes(tensor: Tensor) -> int:
    """Return the size of a tensor's elements in bytes."""
    return tensor.numel() * tensor.element_size()


def described(tensor: Tensor) -> str:
    """Return dtype and shape, as in "float32[8, 3, 224, 224]"."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _flops(func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    formula = _FLOPS.get(func.overloadpacket)
    if formula is None:
        return 0
    try:
        return int(formula(*args, **kwargs, out_val=result))
    except (TypeError, ValueError, AssertionError, IndexError):  # torch's formulas fail on some arguments
        return 0
