"""What grids share: the order of dtypes, links, letters that tell properties apart."""

from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.system import figures
from pytest_ascend.verdict import columns
from pytest_ascend.verdict.phrase import LANGUAGES
from tests.unit.runlog import synthetic


def test_a_case_that_ran_has_a_time_and_one_that_did_not_has_none():
    (shown,) = (each.shown for each in columns.COLUMNS if each.name == "duration_s")
    (case,) = synthetic.op_cases(1)
    record = synthetic.replace(synthetic.passed(case), duration_s=2.5)
    assert shown(record, "") == figures.duration(2.5) != ""
    assert shown(synthetic.replace(record, node_id=""), "") == ""


def test_every_column_has_a_heading_of_its_own_and_one_that_is_not_translated_the_english_one():
    english = columns.headings("en")
    assert english["column.limit_used"] == "Limit used"
    assert columns.headings("xx") == english == {f"column.{each.name}": each.title["en"] for each in columns.COLUMNS}
    for language in LANGUAGES:
        assert len(set(columns.headings(language).values())) == len(columns.COLUMNS)


def test_training_dtypes_come_first_and_unknown_ones_last():
    dtypes = ("uint4", "bool", "float16", "float32")
    assert sorted(dtypes, key=columns.dtype_key) == ["float32", "float16", "bool", "uint4"]


def test_a_link_holds_nothing_but_harmless_characters():
    assert columns.link("a/<b>'\"\n\ud800") == "#case=a/%3Cb%3E%27%22%5Cn%5Cud800"


@given(st.lists(st.text(), unique=True, max_size=30))
def test_abbreviations_tell_all_names_apart(names):
    found = columns.abbreviations(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(short and len(short) < 6 for short in found.values())


def test_abbreviations_are_initials_where_they_can_be():
    assert columns.abbreviations(["forward", "backward", "non_contiguous", "fused"]) == {
        "forward": "F",
        "backward": "B",
        "non_contiguous": "NC",
        "fused": "Fu",
    }
