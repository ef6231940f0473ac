"""What it takes to move a model to an NPU: its operators and how each is supported, its memory and a chip's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from pytest_ascend.environment.chips import Chip
from pytest_ascend.migration.sources import BLOCKER, Finding
from pytest_ascend.records.census import FALLBACK, MISSING, NATIVE, OTHER_LAYOUT

SCHEMA = 1

COMPOSITE = "composite"
UNKNOWN = "unknown"

#: How an operator is supported, from best to worst.
STANDINGS = {
    NATIVE: "torch_npu has a kernel for it",
    COMPOSITE: "made of others that run on the NPU, or a view",
    OTHER_LAYOUT: "kernel for sparse or quantized tensors only",
    UNKNOWN: "not in the census",
    FALLBACK: "computed on the CPU: tensors cross to the host and back, and the NPU waits",
    MISSING: "no kernel anywhere: raises",
}

#: Returns the kind of an operator by its name ("aten::add.Tensor"); "" if unknown.
Kind = Callable[[str], str]

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
PHASES = (FORWARD, BACKWARD, OPTIMIZER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The memory of one step at a batch size, in bytes. ``activations`` is what the backward pass needs of the forward.

    Peaks count everything live at once except CANN's workspaces, the allocator's fragmentation and the driver's memory.
    """

    batch: int
    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    activations: int
    training_peak: int
    inference_peak: int

    @property
    def peak(self) -> int:
        """Return the peak of training, or of inference if training is left out."""
        return self.training_peak or self.inference_peak


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One operator with its standing, and its calls in one step, by phase."""

    name: str
    standing: str
    calls: Mapping[str, int]
    flops: int
    moved_bytes: int
    signatures: tuple[tuple[str, int], ...]
    places: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def all_calls(self) -> int:
        """Return the calls in one step."""
        return sum(self.calls.values())


_READS = "reads a value on the host: keep it on the device (torch.where, index_copy_), or read it outside of the graph"
_SIZES = "has a result whose size depends on data: give it a fixed size (torch.where, topk, a mask that multiplies)"
_OUTSIDE = "compute it outside of the graph"
_OLDER = "is computed by an operator of before aclnn, which torch_npu refuses in a capture: " + _OUTSIDE
_BY_CPU = "is computed on the CPU: replace it by an operator that has a kernel, or compute it before the graph"
#: Operations that a capture rejects (107027 and 107030), by operator or as recorded: the effect, and a replacement.
_REFUSED = {
    **dict.fromkeys(("_local_scalar_dense", "equal", "is_nonzero", "item"), _READS),
    **dict.fromkeys(("nonzero", "masked_select", "bincount", "repeat_interleave"), _SIZES),
    **dict.fromkeys(("unique_dim", "_unique2", "unique_consecutive"), _SIZES),
    **dict.fromkeys(("_ctc_loss", "logcumsumexp"), "is computed by torch_npu in part on the host: " + _OUTSIDE),
    "randperm": "draws numbers that torch_npu cannot draw in a capture: " + _OUTSIDE,
}
_RECORDED = {
    "mask": _SIZES,
    "copy": "copies between host and device: create it on the device (torch.full, torch.arange), or before the graph",
    "literal": "copies numbers of Python to the device (torch.tensor, x[[0, 1]]): do so before the graph",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """Everything known before a model is moved. ``largest_batch`` is the largest that should fit; None if unknown.

    ``older`` names the modules for which torch_npu uses an operator that a capture rejects, each with that operator.
    ``standings_of`` names the source of the standings, ``mode`` the kind of stand-in tensors, ``source`` the folder;
    ``graph_breaks`` is None if they were not requested.
    """

    chip: Chip
    model: str = ""
    mode: str = ""
    standings_of: str = ""
    optimizer: str = ""
    operators: tuple[Operator, ...] = ()
    older: tuple[str, ...] = ()
    graph_breaks: tuple[str, ...] | None = None
    memory: tuple[Memory, ...] = ()
    largest_batch: int | None = None
    source: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Count operators by standing, in the order of STANDINGS."""
        found = Counter(each.standing for each in self.operators)
        return {standing: found[standing] for standing in STANDINGS if found[standing]}

    @property
    def blocking(self) -> tuple[Operator, ...]:
        """Return operators that raise, then those that fall back, costliest first."""
        bad = [each for each in self.operators if each.standing in (FALLBACK, MISSING)]
        return tuple(sorted(bad, key=lambda each: (each.standing == FALLBACK, -each.moved_bytes, -each.all_calls)))

    @property
    def uncapturable(self) -> tuple[str, ...]:
        """Return what keeps a step out of a captured graph: modules, operators with their lines, and what to do."""
        found = [f"{each} {_OLDER}" for each in self.older]
        for operator in (each for each in self.operators if {*each.calls} - {OPTIMIZER}):
            places_by_remedy: dict[str, list[str]] = {}
            name = operator.name.removeprefix("aten::").partition(".")[0]
            if name in _REFUSED or operator.standing == FALLBACK:
                places_by_remedy[_REFUSED.get(name, _BY_CPU)] = [*operator.places]
            for what, place in operator.refused:
                places_by_remedy.setdefault(_RECORDED[what], []).append(place)
            for remedy, places in places_by_remedy.items():
                lines = ", ".join(list(filter(None, places))[:5])
                found.append(f"{operator.name} ({lines}) {remedy}" if lines else f"{operator.name} {remedy}")
        return tuple(found)

    @property
    def is_blocked(self) -> bool:
        """Return whether anything keeps the model from running unchanged."""
        missing = any(each.standing == MISSING for each in self.operators)
        return missing or any(each.severity == BLOCKER for each in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        found: dict[str, Any] = to_builtins(self)
        found["traced_with"] = found.pop("mode")
        found["chip"] = {name: found["chip"][name] for name in ("name", "memory_bytes", "source")}
        del found["older"]  # included in what a captured graph rejects
        if self.graph_breaks is None:
            del found["graph_breaks"]
        return {"schema": SCHEMA, "type": "analysis", "counts": self.counts, "uncapturable": self.uncapturable, **found}
