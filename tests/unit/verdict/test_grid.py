"""The grid: every case in exactly one cell, with letters that tell properties apart."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.records.case import Case
from pytest_ascend.verdict import grid
from tests.unit.runlog import synthetic


def results(cases, outcome="passed"):
    random = synthetic.Random(1)
    return [synthetic.record(case, outcome, random) for case in cases]


def test_every_case_stands_in_exactly_one_cell():
    cases = synthetic.op_cases(300)
    found = grid.grid_of(results(cases))
    links = [mark.href for family in found.families for row in family.rows for cell in row.cells for mark in cell]
    assert Counter(links) == Counter(grid.link(case.id) for case in cases)


def test_each_row_has_a_cell_for_each_dtype():
    found = grid.grid_of(results(synthetic.op_cases(100)))
    assert {len(row.cells) for family in found.families for row in family.rows} == {len(found.dtypes)}


def test_training_dtypes_come_first_and_unknown_ones_last():
    cases = [
        Case(suite="ops", subject="a", property="f", dtype=dtype) for dtype in ("uint4", "bool", "float16", "float32")
    ]
    assert grid.grid_of(results(cases)).dtypes == ("float32", "float16", "bool", "uint4")


def test_marks_stand_in_the_order_of_the_key():
    cases = [Case(suite="ops", subject="a", property=name) for name in ("forward", "backward")]
    found = grid.grid_of(
        results([*cases, *reversed([Case(suite="ops", subject="b", property=c.property) for c in cases])])
    )
    assert [[mark.letters for mark in row.cells[0]] for row in found.families[0].rows] == [["F", "B"], ["F", "B"]]


def test_a_mark_says_in_words_what_it_shows():
    case = Case(suite="ops", subject="relu", property="forward", dtype="float32")
    mark = grid.grid_of(results([case], "failed")).families[0].rows[0].cells[0][0]
    assert (mark.label, mark.outcome) == ("relu forward float32: failed", "failed")


def test_a_link_holds_nothing_but_harmless_characters():
    assert grid.link("a/<b>'\"\n\ud800") == "#case=a/%3Cb%3E%27%22%5Cn%5Cud800"


def test_in_a_large_grid_only_families_with_something_to_see_are_open():
    cases = [Case(suite="ops", subject=f"op{index}", property="f", family="well") for index in range(grid.OPEN_ROWS)]
    odd = Case(suite="ops", subject="odd", property="f", family="odd")
    found = grid.grid_of([*results(cases), *results([odd], "failed")])
    assert {family.name: family.is_open for family in found.families} == {"well": False, "odd": True}


@given(st.lists(st.text(), unique=True, max_size=30))
def test_abbreviations_tell_all_names_apart(names):
    found = grid.abbreviations(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(short and len(short) < 6 for short in found.values())


def test_abbreviations_are_initials_where_they_can_be():
    assert grid.abbreviations(["forward", "backward", "non_contiguous", "fused"]) == {
        "forward": "F",
        "backward": "B",
        "non_contiguous": "NC",
        "fused": "Fu",
    }
