"""Which tests are cases, and which case each decides."""

from __future__ import annotations

import pytest

from pytest_ascend.errors import UsageError
from pytest_ascend.plugin.keys import CASE
from pytest_ascend.records.case import Case

#: A test that uses one of these is a case, even if nobody marked it as one.
CASE_FIXTURES = {"npu_device", "precision_compare", "ascend_measure", "ascend_benchmark", "model_parity"}


def case_of(item: pytest.Item) -> Case | None:
    """Return the case a test decides: by its marker or parameter, or the test itself where it uses the fixtures."""
    marker = item.get_closest_marker("ascend_case")
    if marker is not None:
        return _marked(marker, item)
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    given = [value for value in parameters if isinstance(value, Case)]
    if given:
        return given[0]
    uses = CASE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    return Case(suite="user", subject=item.nodeid, property="test") if uses else None


def _marked(marker: pytest.Mark, item: pytest.Item) -> Case:
    if len(marker.args) != 1 or not isinstance(marker.args[0], Case):
        raise UsageError(
            f"{item.nodeid}: the marker ascend_case has {marker.args!r}",
            hint="give it one Case: @pytest.mark.ascend_case(Case(suite=..., subject=..., property=...))",
        )
    return marker.args[0]


def case_known(item: pytest.Item) -> Case | None:
    """Return the case that a test was found to decide, None for an ordinary test."""
    return item.stash.get(CASE, None)


def take_cases(items: list[pytest.Item]) -> None:
    """Attach each test's case to it. Raises UsageError where two tests claim the same one."""
    owners: dict[str, str] = {}
    for item in items:
        case = case_of(item)
        if case is None:
            continue
        other = owners.setdefault(case.id, item.nodeid)
        if other != item.nodeid:
            raise UsageError(f"two tests decide the case {case.id}: {other} and {item.nodeid}", hint="rename one case")
        item.stash[CASE] = case
