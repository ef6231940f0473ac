"""Every operator of torch_npu's own, against its definition in float64."""

from __future__ import annotations

from pytest_ascend.operators import conformance_tests

from . import OPERATORS

test_fused = conformance_tests(*OPERATORS, suite="fused")
