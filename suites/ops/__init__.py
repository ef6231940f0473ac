"""The cases of the suite, frozen in the manifest: from the table of operators, and from recordings."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from functools import cache

import torch

from pytest_ascend.operators.exploring import cases_of as cases_of_findings
from pytest_ascend.operators.operator import BOOL, FLOATS, HALVES, INTS, Operator
from pytest_ascend.operators.properties import cases_of
from pytest_ascend.operators.recorded import NOT_REPEATED, Entry
from pytest_ascend.operators.sweep_reference import CALLS
from pytest_ascend.records.case import REPEAT, Case

from .kernel_reach import RARE
from .table import FINDINGS, OPERATORS, RECORDED, is_recorded

#: Less usual integers: tested for their values, and for the rest at level full.
NARROW = INTS[2:]
#: Other dtypes than their first in which recorded operators have generated calls: their kernels differ.
OTHERS = ("int32", "int64", *HALVES)
#: Recorded operators without generated calls in those dtypes: the CPU supports almost none of the first three, and
#: returns the product of an empty matrix, added to a broadcast tensor, in the wrong shape; results of the next two are
#: in float64, which the device lacks; a gradient is computed from a result after that is rounded; integers at the edges
#: differ too little from each other for a correlation; products overflow, so that gradients are infinite or NaN.
#: The next is a mean of few, each of which is rounded several times; then sums whose terms CANN rounds; in half
#: precision most elements are near a border of bins; and products of three that are rounded in between.
_NOT_IN_OTHERS = (
    *("_foreach_mm", "sum_to_size", "conv_transpose1d", "addmv", "double", "float_power", "_safe_softmax", "corrcoef"),
    *("masked.prod", "masked.cumprod", "multilabel_soft_margin_loss", "_foreach_addcdiv"),
    *("_foreach_addcmul", "histc", "bilinear"),
)
#: Recorded operators without generated calls in integers: the device has none, or the CPU.
_NOT_IN_INTEGERS = ("_foreach_norm",)
#: Dtypes beside float32 in which operators of the catalogue have generated calls at level smoke, one each: integers and
#: half precision have kernels of their own. All dtypes would take three times as long.
_TURNS = (HALVES[0], *INTS[:2], HALVES[1])
#: Recorded operators with generated calls at level smoke: they have kernels that no operator of the catalogue calls.
AT_SMOKE = (
    *("__rmod__", "_chunk_cat", "adaptive_avg_pool3d", "adaptive_max_pool3d", "addbmm", "addr", "angle"),
    *("avg_pool3d", "cdist", "channel_shuffle", "cosine_similarity", "cov", "cross", "dist", "embedding_bag"),
    *("grid_sampler_2d", "isin", "isposinf", "linear_cross_entropy", "logaddexp2", "logit", "masked.median"),
    *("max_pool3d", "ormqr", "pdist", "polar", "qr", "rms_norm", "sinc", "std_mean", "stft", "svd", "trace"),
    *("unique_consecutive", "xlogy", "_foreach_abs", "_foreach_acos", "_foreach_add", "_foreach_addcdiv"),
    *("_foreach_addcmul", "_foreach_asin", "_foreach_atan", "_foreach_ceil", "_foreach_clamp_max"),
    *("_foreach_clamp_min", "_foreach_cos", "_foreach_cosh", "_foreach_div", "_foreach_erf", "_foreach_erfc"),
    *("_foreach_exp", "_foreach_expm1", "_foreach_lerp", "_foreach_log", "_foreach_log10", "_foreach_log1p"),
    *("_foreach_log2", "_foreach_max", "_foreach_mul", "_foreach_neg", "_foreach_pow", "_foreach_reciprocal"),
    *("_foreach_sigmoid", "_foreach_sign", "_foreach_sin", "_foreach_sinh", "_foreach_sqrt", "_foreach_sub"),
    "_foreach_tan",
)
#: Families of recorded operators without generated calls: those that torch_npu leaves to the CPU, or without tensors.
_NOT_SWEPT_FAMILIES = ("linalg", "fft", "special", "creation")
#: Their operators that torch_npu computes.
_SWEPT_ALL_THE_SAME = (
    *("linalg.diagonal", "linalg.matrix_norm", "linalg.multi_dot", "linalg.norm", "linalg.vander", "linalg.vecdot"),
    *("linalg.vector_norm", "linalg.matrix_power", "fft.fftshift", "fft.ifftshift"),
)
#: Recorded operators without generated calls, with the reason.
NOT_SWEPT: Mapping[str, str] = {
    **dict.fromkeys(
        ("full", "ones", "zeros", "scalar_tensor", "tril_indices", "triu_indices", "arange", "linspace", "logspace"),
        "takes no tensor",
    ),
    **dict.fromkeys(
        (
            *("split_with_sizes", "split_with_sizes_copy", "istft", "native_group_norm"),
            *("_unsafe_masked_index", "view_copy"),
        ),
        "its sizes go with numbers among its arguments",
    ),
    **dict.fromkeys(
        ("put", "index_copy", "_unsafe_masked_index_put_accumulate"),
        "several elements may come to one place, in any order",
    ),
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"),
        "changes statistics that it is given, and takes some of them in sizes that do not fit",
    ),
    "histogramdd": "torch_npu leaves it to the CPU, where all bins of many dimensions fill the memory",
    "triangular_solve": "of matrices at random the last bits decide on the first ones",
}


def _level(operator: Operator, property_: str, dtype: str) -> str:
    """Return the lowest level that runs the property: forward in float32 and generated calls in some dtypes first."""
    first = {"forward": ("float32",), "sweep": ("float32", _second_at_smoke(operator))}
    if dtype in first.get(property_, ()):
        return "smoke"
    if property_.startswith("sweep"):
        return "standard" if property_ == "sweep" else "full"
    return "full" if dtype in (*NARROW, *BOOL) and property_ not in ("forward", "promotion") else "standard"


def _second_at_smoke(operator: Operator) -> str:
    """Return the other dtype with generated calls at level smoke: by the name, so that no operator moves another."""
    start = zlib.crc32(operator.name.encode()) % len(_TURNS)
    return next((dtype for dtype in (*_TURNS[start:], *_TURNS) if dtype in operator.dtypes), "")


def _level_of_recorded(name: str, property_: str, dtype: str, *, first: bool) -> str:
    """Return the lowest level of a recorded operator's property; ``first``: this is its first dtype."""
    if property_ == "sweep" and first and name in AT_SMOKE:
        return "smoke"
    if property_ in CALLS:
        return "standard" if property_ == "sweep" else "full"
    usual = property_ in ("forward", "backward") and dtype in FLOATS[:2]
    in_float32 = property_ in ("special", "layout") and dtype == "float32"
    return "standard" if usual or in_float32 or (property_ == REPEAT and first) else "full"


def _recorded() -> Iterator[Case]:
    for entry in RECORDED.values():
        family = OPERATORS[entry.name].family if entry.name in OPERATORS else entry.family
        for dtype in (each for each in entry.properties if is_recorded(entry.name, each)):
            first = entry.name not in OPERATORS and dtype == entry.first_dtype
            for property_ in (*_properties(entry, dtype), *_swept(entry, dtype, first=first)):
                yield Case(
                    suite="ops",
                    subject=entry.name,
                    property=property_,
                    dtype=dtype,
                    family=family,
                    level=_level_of_recorded(entry.name, property_, dtype, first=first),
                )


def _swept(entry: Entry, dtype: str, *, first: bool) -> tuple[str, ...]:
    """Return the properties of generated calls of a recorded operator: in its first dtype, in integers, and in halves.

    At level full it has more in its first dtype, and in all where few calls reach a kernel; exploring covers the rest.
    Layers have the most options, and more in half precision, too.
    """
    is_other = dtype in OTHERS and entry.name not in _NOT_IN_OTHERS
    is_other &= entry.name not in _NOT_IN_INTEGERS or dtype in HALVES
    if not (first or is_other) or not _is_swept(entry, dtype):
        return ()
    has_more = first or entry.name in RARE or (dtype in HALVES and entry.family == "network")
    return tuple(CALLS) if has_more else ("sweep",)


def _is_swept(entry: Entry, dtype: str) -> bool:
    """Whether calls are generated for a recorded operator: its inputs may have any order and size."""
    is_free = entry.family not in _NOT_SWEPT_FAMILIES or entry.name in _SWEPT_ALL_THE_SAME
    is_free &= entry.name not in NOT_SWEPT
    is_free &= entry.name not in OPERATORS or bool(OPERATORS[entry.name].sweep)
    return is_free and "forward" in entry.properties[dtype] and not getattr(torch, dtype).is_complex


def _properties(entry: Entry, dtype: str) -> tuple[str, ...]:
    """Return the properties of a recorded operator; "repeat" only if its results are recorded."""
    recorded = entry.properties[dtype]
    repeats = "forward" in recorded and entry.name not in NOT_REPEATED
    return (*recorded, REPEAT) if repeats else recorded


@cache
def _cases() -> tuple[Case, ...]:
    return (
        *cases_of(*OPERATORS.values(), suite="ops", level=_level),
        *_recorded(),
        *cases_of_findings(
            FINDINGS,
            {name: each.family for name, each in RECORDED.items()}
            | {name: each.family for name, each in OPERATORS.items()},
        ),
    )


def __getattr__(name: str) -> tuple[Case, ...]:
    """Compute ``CASES`` on first use: a run takes its cases from the manifest, and making them takes seconds."""
    if name == "CASES":
        return _cases()
    raise AttributeError(name)
