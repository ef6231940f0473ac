"""The cases of the suite of captured graphs: eager, captured and replayed computations give the same bits."""

from __future__ import annotations

from pytest_ascend.records.case import Case

from ..ops.table import OPERATORS

#: Operators of the catalogue that are captured at level standard, one or two of each kind of kernel; others at full.
EARLY = (
    *("add", "exp", "gelu", "softmax", "sum", "amax", "cumsum", "sort", "topk", "mm", "bmm", "conv2d", "max_pool2d"),
    *("layer_norm", "batch_norm", "embedding", "gather", "scatter_add", "where", "cat", "roll", "tril", "mse_loss"),
)
#: Those that no graph can have: their results' sizes depend on data, or torch_npu computes in part on the host.
UNCAPTURABLE = ("masked_select", "nonzero", "unique", "ctc_loss", "logcumsumexp")

#: What is captured beside them: subject -> property, level.
WORKLOADS = {
    "counter": ("replay", "smoke"),
    "perceptron": ("replay", "smoke"),
    "streams": ("replay", "smoke"),
    "task-group": ("update", "smoke"),
    "server": ("update", "smoke"),
    "copies": ("replay", "standard"),
    "resnet50": ("replay", "standard"),
    "vit-encoder": ("replay", "standard"),
    "growing-cache": ("replay", "standard"),
    "training-step": ("replay", "standard"),
    "grad-scaler": ("replay", "standard"),
    "changed-weights": ("replay", "standard"),
    "dropout": ("random", "standard"),
    "pools": ("memory", "standard"),
    "thousand-replays": ("memory", "standard"),
    "many-graphs": ("memory", "standard"),
    "thread": ("capture", "standard"),
    "host-read": ("capture", "standard"),
    "host-function": ("replay", "standard"),
    "beside-eager-work": ("replay", "standard"),
    "autograd-graph": ("compile", "full"),
    "views": ("compile", "full"),
    "in-place": ("compile", "full"),
    "aliases": ("compile", "full"),
    "fusions": ("compile", "full"),
    "exported": ("compile", "full"),
}

CASES = (
    *(Case(suite="graphs", subject=name, property=what, level=at) for name, (what, at) in WORKLOADS.items()),
    *(
        Case(
            suite="graphs",
            subject=name,
            property="operator",
            dtype="int32" if name.startswith("bitwise") else "float32",
            family="operators",
            level="standard" if name in EARLY else "full",
        )
        for name in OPERATORS
        if name not in UNCAPTURABLE
    ),
)
