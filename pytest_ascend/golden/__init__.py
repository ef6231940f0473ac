"""Stored results to compare with: tests read them, and only ``pytest-ascend baseline build`` creates them.

Importing this package does not load torch; reading a golden does.
"""

from pytest_ascend.golden.files import Golden, GoldenRecipe, Provenance
from pytest_ascend.golden.store import Changes, GoldenStore

__all__ = ["Changes", "Golden", "GoldenRecipe", "GoldenStore", "Provenance"]
