"""Operators and the eleven properties tested for each: bundled ones, torch_npu's own, and users' and vendors'."""

from pytest_ascend.operators.checks import conformance_tests
from pytest_ascend.operators.operator import InputFactory, Operator, cases_of
from pytest_ascend.operators.samples import Sample, call

#: The former name of Sample.
Call = Sample

__all__ = ["Call", "InputFactory", "Operator", "Sample", "call", "cases_of", "conformance_tests"]
