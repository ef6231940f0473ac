"""Operators and the ten properties each is tested for: bundled ones, torch_npu's own, those of users and vendors."""

from pytest_ascend.operators.draw import Draw
from pytest_ascend.operators.operator import Operator
from pytest_ascend.operators.properties import cases_of
from pytest_ascend.operators.samples import Sample, call
from pytest_ascend.operators.testing import conformance_tests

#: The name that a sample had.
Call = Sample

__all__ = ["Call", "Draw", "Operator", "Sample", "call", "cases_of", "conformance_tests"]
