"""The cases of the environment suite: whether there is a device, and whether it can multiply."""

from __future__ import annotations

from pytest_ascend.records.case import Case

#: Dtypes copied to the device and back. Complex and float64, which not every NPU supports, are left out.
ROUND_TRIP_DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")

FOUND = Case(suite="environment", subject="device", property="found", family="device")
_ROUND_TRIP = Case(suite="environment", subject="tensors", property="round-trip", family="tensors")

CASES: tuple[Case, ...] = (
    FOUND,
    *(_ROUND_TRIP.but(dtype=dtype) for dtype in ROUND_TRIP_DTYPES),
    *(
        Case(suite="environment", subject="matmul-1000x1000", property="forward", dtype=dtype, family="compute")
        for dtype in ("float32", "float16", "bfloat16")
    ),
)
