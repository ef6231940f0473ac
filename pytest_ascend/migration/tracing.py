"""What a model calls, from torch's own dispatch: every operator below autograd, in the forward and backward pass.

Nothing is computed: tensors are fake ones of an NPU where torch_npu is there (so that what it dispatches to is seen),
meta tensors elsewhere, and real ones on the CPU only where a model looks at its values.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import flop_counter
from torch.utils._pytree import tree_flatten, tree_map

from pytest_ascend.dispatching import EagerDispatchMode
from pytest_ascend.migration.analysis import PHASES, STANDINGS, Analysis, Kind, Operator, standing
from pytest_ascend.migration.running import Step, Traced, fitting_batch, trace
from pytest_ascend.migration.target import Subject, subject

#: Signatures that are kept of an operator, the most frequent ones.
SIGNATURES_KEPT = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for, as written; ``batches`` is empty for the inputs as they are and twice as many."""

    model: str
    inputs: str = ""
    batches: tuple[int, ...] = ()
    dtype: str | None = None
    autocast: str | None = None
    optimizer: str = "adamw"
    training: bool = True


def analyse(empty: Analysis, wanted: Wanted, kind: Kind, asked: str, ways: tuple[str, ...]) -> Analysis:
    """Fill in operators and memory. Raises UsageError where the model cannot be made or does not run."""
    autocast = getattr(torch, wanted.autocast) if wanted.autocast else None
    step = Step(optimizer=wanted.optimizer, autocast=autocast, training=wanted.training)
    subjects = _subjects(wanted)
    traces = [trace(each, step, ways) for each in subjects]
    memory = tuple(each.memory for each in traces)
    return replace(
        empty,
        model=wanted.model,
        way=traces[0].way,
        asked=asked,
        optimizer=wanted.optimizer if wanted.training else "none",
        operators=_operators(traces[0], kind),
        memory=memory,
        largest_batch=_largest_batch(subjects[0], step, traces[0].way, empty.chip.memory_bytes),
        notes=tuple(dict.fromkeys(note for each in traces for note in each.notes)),
    )


def _largest_batch(given: Subject, step: Step, way: str, capacity_bytes: int) -> int | None:
    """Search with meta tensors, which cost nothing at any size; None for a model that needs values."""
    return None if way == "cpu" else fitting_batch(given, step, capacity_bytes)


def _subjects(wanted: Wanted) -> list[Subject]:
    first = subject(wanted.model, wanted.inputs, wanted.batches[0] if wanted.batches else None)
    others = wanted.batches[1:] or (2 * first.batch,)
    found = [first, *(replace(subject(wanted.model, wanted.inputs, each), model=first.model) for each in others)]
    return [_converted(each, wanted.dtype) for each in found]


def _converted(given: Subject, dtype: str | None) -> Subject:
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


def _operator(name: str, uses: Mapping[tuple[str, str], Use], kind: Kind) -> Operator:
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
    )


#: What is asked of tensors, but computes nothing.
NO_OPERATORS = ("prim::", "profiler::")

#: torch's formulas for multiplications and additions, by operator. torch 2.1 keeps its own to itself.
_FLOPS: Mapping[Any, Any] = getattr(flop_counter, "flop_registry", {})

#: Shapes and dtypes of the tensors that one call takes, as text.
Signature = str


@dataclass(kw_only=True, slots=True)
class Use:
    """How often an operator was called in one phase, on what, and what that costs.

    ``moved_bytes`` is the size of all tensors that went in and came out: what crosses to the host where it falls back.
    ``flops`` counts multiplications and additions where torch knows a formula, else 0.
    """

    calls: int = 0
    flops: int = 0
    moved_bytes: int = 0
    signatures: Counter[Signature] = field(default_factory=Counter)


class Live:
    """Memory of the tensors that were made and are still referenced, and its peak, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.peak_bytes = 0
        self._known: set[int] = set()

    def add(self, tensor: Tensor) -> None:
        """Count the storage of a tensor once, until nothing refers to it."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - the address by which two wrappers are known as one
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.bytes += size
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        weakref.finalize(storage, self._drop, key, size).atexit = False

    def know(self, tensors: Iterable[Tensor]) -> None:
        """Leave out what was there before."""
        self._known.update(each.untyped_storage()._cdata for each in tensors)  # noqa: SLF001

    def _drop(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


class Recorder(EagerDispatchMode):
    """Notes every operator by phase and name. ``phase`` is set by whoever runs the model."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "forward"
        self.uses: dict[tuple[str, str], Use] = {}
        self.live = Live()

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operator, and note it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = str(func.name())  # type: ignore[no-untyped-call]
        if not name.startswith(NO_OPERATORS):
            self._note(name, func, args, kwargs, result)
        return result

    def _note(
        self, name: str, func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        use = self.uses.setdefault((self.phase, name), Use())
        given, out = list(tensors_in((args, kwargs))), list(tensors_in(result))
        use.calls += 1
        use.moved_bytes += sum(size_bytes(each) for each in (*given, *out))
        use.signatures[", ".join(map(described, given))] += 1
        use.flops += _flops(func, args, kwargs, result)
        for each in out:
            self.live.add(each)


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Return every tensor anywhere in arguments."""
    leaves, _ = tree_flatten(tree)
    return (leaf for leaf in leaves if isinstance(leaf, Tensor))


def size_bytes(tensor: Tensor) -> int:
    """Return the bytes that the elements of a tensor take."""
    return tensor.numel() * tensor.element_size()


def described(tensor: Tensor) -> str:
    """Return dtype and shape as in "float32[8, 3, 224, 224]"."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _flops(func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    formula = _FLOPS.get(func.overloadpacket)
    if formula is None:
        return 0
    try:
        return int(formula(*args, **kwargs, out_val=result))
    except (TypeError, ValueError, AssertionError, IndexError):  # formulas are torch's, and of arguments of its own
        return 0
