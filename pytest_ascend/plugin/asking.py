"""The hook by which cases of operators that torch_npu leaves to the CPU are not asked, but for one of each operator."""

from __future__ import annotations

import pytest

from pytest_ascend.coverage.asking import left_out
from pytest_ascend.coverage.expectations import Expectations
from pytest_ascend.plugin.collection import case_known
from pytest_ascend.records.left import Left


class Asking:
    """Leaves out what another case of the same run stands for, and keeps account of it in ``left``."""

    def __init__(self, expectations: Expectations) -> None:
        self.left: tuple[Left, ...] = ()
        self._expectations = expectations

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Choose when others have: where the case that stands for others was not selected, these are asked."""
        cases = {item: case_known(item) for item in items}
        self.left = left_out(self._expectations, (case for case in cases.values() if case))
        gone = {case.id for each in self.left for case in each.cases}
        items[:] = [item for item, case in cases.items() if case is None or case.id not in gone]

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say how many of the cases are not asked: nobody else does where tests are only listed."""
        count = sum(len(each.cases) for each in self.left)
        return [f"ascend: {count:,} more are not asked, as torch_npu has no kernel for them"] if count else []
