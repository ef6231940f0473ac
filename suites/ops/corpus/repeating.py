"""Which recorded operators are to give the same bits when they are called again: all of which PyTorch promises it."""

from __future__ import annotations

from collections.abc import Mapping

#: The property. It has no results of its own: the samples are those of "forward".
REPEAT = "repeat"

_ADDED = "several elements may come to one place, in any order: see torch.use_deterministic_algorithms"
_EQUAL = "gives any of several equal places: see torch.median and torch.kthvalue"
_UPDATES = "updates running statistics, which are among its inputs"
_LAPACK = "torch_npu has LAPACK compute it, whose last bits depend on where in memory its inputs lie"

#: What is not asked, and why.
NOT_REPEATED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("index_add", "index_copy", "index_put", "index_reduce", "put", "scatter", "scatter_add"),
            *("scatter_reduce", "histc", "bincount", "_unsafe_masked_index_put_accumulate"),
        ),
        _ADDED,
    ),
    **dict.fromkeys(("kthvalue", "median", "nanmedian"), _EQUAL),
    **dict.fromkeys(
        (
            *("batch_norm", "instance_norm", "native_batch_norm", "_native_batch_norm_legit"),
            "_batch_norm_with_update",
        ),
        _UPDATES,
    ),
    "linalg.lstsq": _LAPACK,
}
