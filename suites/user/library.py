"""The operators of the library that ``--ascend-library`` names. Without that option this file is not collected."""

from __future__ import annotations

from pytest_ascend.operators import conformance_tests
from pytest_ascend.operators.libraries import operators, origin

test_library = conformance_tests(*operators(), origin=origin)
