"""The cases of the suite of captured graphs: eager, captured and replayed computations give the same bits."""

from __future__ import annotations

from pytest_ascend.records.case import Case
from pytest_ascend.system.bundled import beside

from ..ops.table import OPERATORS

#: Operators of the catalogue that are captured at level standard, one or two of each kind of kernel; others at full.
EARLY = (
    *("add", "exp", "gelu", "softmax", "sum", "amax", "cumsum", "sort", "topk", "mm", "bmm", "conv2d", "max_pool2d"),
    *("layer_norm", "batch_norm", "embedding", "gather", "scatter_add", "where", "cat", "roll", "tril", "mse_loss"),
)
#: Operators that cannot be captured: their results' sizes depend on data, or torch_npu computes in part on the host.
UNCAPTURABLE = ("masked_select", "nonzero", "unique", "ctc_loss", "logcumsumexp")

#: Other captured workloads: subject -> property, level.
WORKLOADS: dict[str, tuple[str, str]] = beside(__file__, "workloads.json")


def _case(name: str) -> Case:
    dtype, level = "int32" if name.startswith("bitwise") else "float32", "standard" if name in EARLY else "full"
    return Case(suite="graphs", subject=name, property="operator", dtype=dtype, family="operators", level=level)


CASES = (
    *(Case(suite="graphs", subject=name, property=what, level=at) for name, (what, at) in WORKLOADS.items()),
    *(_case(name) for name in OPERATORS if name not in UNCAPTURABLE),
)
