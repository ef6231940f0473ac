"""The tested operators of torch_npu's own, and their cases."""

from __future__ import annotations

from pytest_ascend.operators import Operator, cases_of

from .families import attention, linear, movement, normalization, routing, training

_FAMILIES = (normalization, attention, linear, routing, training, movement)

OPERATORS: tuple[Operator, ...] = tuple(operator for family in _FAMILIES for operator in family.OPERATORS)

CASES = cases_of(*OPERATORS, suite="fused")
