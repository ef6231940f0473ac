"""Stored results to compare with: tests read them, and only ``pytest-ascend baseline build`` makes them.

Importing this package loads no torch; reading a golden does.
"""

from pytest_ascend.golden.files import Golden, GoldenRecipe, Provenance
from pytest_ascend.golden.store import Changes, GoldenStore

__all__ = ["Changes", "Golden", "GoldenRecipe", "GoldenStore", "Provenance"]
