"""The hook of ``--ascend-shard``: leave to the other shards what is theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from zlib import crc32

import pytest

from pytest_ascend.coverage import shards
from pytest_ascend.coverage.selection import CollectedCases
from pytest_ascend.coverage.shards import Shard
from pytest_ascend.plugin.session import Setup, whole
from pytest_ascend.records.case import Case


class Sharding:
    """Keeps the cases of one shard. ``collected`` says what a list of tests comes to, ``case_of`` what one decides."""

    def __init__(
        self,
        setup: Setup,
        shard: Shard,
        collected: Callable[[list[pytest.Item]], CollectedCases],
        case_of: Callable[[pytest.Item], Case | None],
    ) -> None:
        self._setup, self._shard = setup, shard
        self._collected, self._case_of = collected, case_of
        self._elsewhere: dict[str, Case] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Divide what is left when all others have chosen."""
        planned = whole(self._setup, self._collected(items))
        mine = shards.part(planned.cases, shards.load(self._setup.suites), self._shard)
        cases = {item: self._case_of(item) for item in items}
        self._elsewhere = {item.nodeid: case for item, case in cases.items() if case and case.id not in mine}
        items[:] = [item for item, case in cases.items() if self._is_here(item, case)]

    def _is_here(self, item: pytest.Item, case: Case | None) -> bool:
        """Tests that are no cases are divided too, by their names."""
        if case is not None:
            return item.nodeid not in self._elsewhere
        return crc32(item.nodeid.encode()) % self._shard.count == self._shard.index - 1

    def completed(self, collected: CollectedCases) -> CollectedCases:
        """Return what was collected, with what the other shards have of it."""
        return replace(collected, elsewhere=self._elsewhere)
