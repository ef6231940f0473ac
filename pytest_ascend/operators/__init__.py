"""Operators that are judged by their definition: torch_npu's own, and those of users and vendors."""

from pytest_ascend.operators.draw import Call, Draw, call
from pytest_ascend.operators.operator import Operator, cases_of
from pytest_ascend.operators.testing import conformance_tests

__all__ = ["Call", "Draw", "Operator", "call", "cases_of", "conformance_tests"]
