"""The words of the interface: every language has them all, and nothing foreign acts in them."""

import re
from pathlib import Path
from string import Formatter

import pytest

import pytest_ascend.page
from pytest_ascend.environment import codes
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.system.translation import translated
from pytest_ascend.verdict.diff import KINDS
from pytest_ascend.verdict.phrase import LANGUAGES, commas, counted, say, table

ROOM = Path(pytest_ascend.page.__file__).parent


def places(form):
    return {name for _, name, _, _ in Formatter().parse(form) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_keys_and_values(language):
    english, other = table("en"), table(language)
    assert other.keys() == english.keys()
    # Of a sentence of the doctor, each language has a value of its own.
    differing = [key for key in english if places(english[key]) != places(other[key]) and key != "foreign.text"]
    assert differing == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_is_left_untranslated_but_the_empty_phrase(language):
    assert [key for key, words in table(language).items() if not words.strip() and key] == []


def test_every_key_that_the_package_names_is_known():
    named = set()
    for path in [*ROOM.glob("*.py"), *ROOM.glob("templates/*.html"), *ROOM.glob("templates/*.js")]:
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r'(?:say|said|counted)\("([a-z][\w.-]*)"[,)]', text))
        named |= set(re.findall(r'(?:attr\("[\w-]+", |data-say=|m\.title\("\w+", )"([a-z][\w.-]+)"', text))
    assert len(named) > 100
    assert sorted(named - table("en").keys()) == []


def test_every_outcome_and_kind_of_change_has_words():
    wanted = {f"{start}.{name}" for name in OUTCOMES for start in ("outcome", "meaning")}
    wanted |= {f"diff.{kind}" for kind in KINDS} | {f"diff.n.{kind}{end}" for kind in KINDS for end in ("", ".one")}
    assert wanted <= table("en").keys()


def test_a_phrase_is_written_with_its_values_lists_and_inner_phrases():
    found = (say("outcome.failed"), say("outcome.waived"), "x")
    phrase = say("verdict.bad", found=found, cases=counted("cases", 1200))
    assert str(phrase) == "failed, waived and x of 1,200 cases"
    assert phrase.text("zh") == "1,200 个用例中有 失败、豁免和x"


def test_the_script_of_a_page_gets_all_that_a_phrase_is_made_of():
    assert say("nav.cases").to_data() == "nav.cases"
    phrase = say("verdict.bad", found=(say("outcome.failed"), "x"), cases="2")
    assert phrase.to_data() == ["verdict.bad", {"found": {"list": [{"say": "outcome.failed"}, "x"]}, "cases": "2"}]


def test_one_is_not_said_as_many():
    assert (str(counted("cases", 1)), str(counted("cases", 2))) == ("1 case", "2 cases")


def test_commas_claim_no_end():
    assert (
        str(commas([say("outcome.failed"), say("outcome.passed"), say("outcome.waived")])) == "failed, passed, waived"
    )
    assert not commas([])


def test_braces_in_foreign_text_are_text():
    assert str(say("run.subset-by", reason="{n} {0.__class__}")) == "selected: {n} {0.__class__}"


def test_controls_in_foreign_text_are_shown():
    assert str(say("run.subset-by", reason="a\x1b[31m\u202e")) == "selected: a\\x1b[31m\\u202e"


@pytest.mark.parametrize("kind", codes.KINDS, ids=lambda kind: kind.name)
def test_what_an_error_is_and_its_remedy_are_said_in_chinese(kind):
    for text in (f"{kind.name}: {kind.says}", f"remedy: {kind.remedy}"):
        assert not re.search(r"\b(the|for|this) ", translated(text, "zh", "findings"))
