"""Every bundled suite describes itself, in every language, and nothing else does it for it."""

import pytest

from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.coverage import manifest
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.suites import describe, suites
from pytest_ascend.verdict.phrase import LANGUAGES, say


def test_every_suite_describes_itself():
    assert set(suites()) == set(manifest.names(folder("suites")))


@pytest.mark.parametrize("name", suites())
def test_a_description_is_whole(name):
    suite = describe(name)
    assert set(suite.title) == set(LANGUAGES)
    assert suite.tier in TIERS
    assert all(say(f"suite.{name}").text(language) == title for language, title in suite.title.items())


def test_the_page_begins_with_operators():
    assert list(suites())[:2] == ["ops", "fused"]
    assert len({suite.order for suite in suites().values()}) == len(suites())


def test_a_suite_that_is_not_bundled_has_its_name_and_the_lowest_tier():
    mine = describe("mine")
    assert mine.title == {"en": "mine"}
    assert mine.compares, "a pass has to rest on a comparison"
    assert not mine.needs_npu, "it runs wherever its user has it run"
    assert not mine.computed_once
    assert TIERS["operators"].covers("mine")


@pytest.mark.parametrize(
    ("suite", "first"),
    [("ops", "operators"), ("models", "models"), ("benchmarks", "performance"), ("distributed", "distributed")],
)
def test_tiers_ask_for_a_suite_from_its_own_on(suite, first):
    order = list(TIERS)
    assert [name for name in order if TIERS[name].covers(suite)] == order[order.index(first) :]
