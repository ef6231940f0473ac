"""Reports at the start of a run, rather than hours later, which cases cannot run here."""

from __future__ import annotations

import pytest

from .export import lacking


def pytest_report_collectionfinish(items: list[pytest.Item]) -> list[str]:
    """Report how many cases need a package that is not installed."""
    needing = [item for item in items if item.name.startswith("test_onnx[")]
    missing = lacking() if needing else ""
    return [f"ascend: {len(needing)} cases will not run: {missing}"] if missing else []
