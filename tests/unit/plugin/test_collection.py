from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_ascend.coverage import manifest
from pytest_ascend.plugin.collection import take_cases
from pytest_ascend.plugin.keys import SETUP
from pytest_ascend.records.case import Case

CASES = tuple(
    Case(suite="ops", subject=name, property=property_, dtype="float32", level=level)
    for name in ("relu", "leaky_relu", "add")
    for property_, level in (("forward", "smoke"), ("out", "standard"), ("layout", "full"))
)
TESTS = """
    import pytest

    @pytest.mark.ascend_cases("ops", "forward", "layout")
    def test_forward(case): ...

    @pytest.mark.ascend_cases("ops", "out")
    def test_out(case): ...

    def test_ordinary(): ...
"""


class Bring:
    """A plugin that brings what a run with ``--ascend`` has; with ``says``, one that could rename tests."""

    def __init__(self, path):
        self.path = path

    def pytest_configure(self, config):
        config.stash[SETUP] = SimpleNamespace(suites=self.path, concerns=lambda case: case.is_in("standard"))


class Renames:
    def pytest_itemcollected(self, item): ...


def collected(pytester, *args, plugins):
    result = pytester.inline_run("--collect-only", "-p", "no:cacheprovider", *args, plugins=plugins)
    chosen = {
        each.nodeid.partition("::")[2]
        for call in result.getcalls("pytest_collection_finish")
        for each in call.session.items
    }
    built = {call.item.nodeid.partition("::")[2] for call in result.getcalls("pytest_itemcollected")}
    return chosen, built


@pytest.fixture
def suite(pytester, monkeypatch):
    monkeypatch.setattr(manifest, "of_suite", lambda _, suite: [case for case in CASES if case.suite == suite])
    pytester.makepyfile(test_it=TESTS)
    return pytester


@pytest.mark.parametrize(
    "expression",
    ["relu", "not relu", "relu and not leaky", "out or add", "test_it", "ordinary", "nothing", "ascend_cases"],
)
def test_what_is_not_built_is_what_pytest_would_deselect(suite, expression):
    chosen, built = collected(suite, "-k", expression, plugins=[Bring(suite.path)])
    usual, all_ = collected(suite, "-k", expression, plugins=[Bring(suite.path), Renames()])
    assert chosen == usual
    assert built <= all_
    assert len(all_) == 7


def test_only_the_tests_that_are_named_are_built(suite):
    chosen, built = collected(suite, "test_it.py::test_out[ops/add/out/float32]", plugins=[Bring(suite.path)])
    assert chosen == built == {"test_out[ops/add/out/float32]"}


def test_a_case_of_a_higher_level_can_be_named(suite):
    chosen, _ = collected(suite, "test_it.py::test_forward[ops/add/layout/float32]", plugins=[Bring(suite.path)])
    assert chosen == {"test_forward[ops/add/layout/float32]"}


@pytest.mark.parametrize("marked", [True, False])
def test_a_case_that_is_no_parameter_is_chosen_by_its_id_too(marked):
    marker = pytest.mark.ascend_case(CASES[0]).mark if marked else None
    item = SimpleNamespace(nodeid="test_it.py::test_one", stash={}, extra_keyword_matches=set())
    item.get_closest_marker = lambda name: marker if name == "ascend_case" else None
    take_cases([item])
    assert item.extra_keyword_matches == ({CASES[0].id} if marked else set())
