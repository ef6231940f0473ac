"""JSON that holds every float and nothing ambiguous."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ascend.runlog import codec

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**19), 10**19) | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text().filter(lambda key: key != "$float"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(TREES)
@example([10**19, -(10**19), 2**64 - 1, -(2**63)])
def test_what_was_written_is_read_back(tree):
    assert repr(codec.loads(codec.dumps(tree))) == repr(tree)


@given(TREES)
def test_a_line_is_ascii_without_a_line_end(tree):
    line = codec.dumps(tree)
    assert line.isascii()
    assert "\n" not in line


def test_a_strict_reader_accepts_non_finite_floats():
    line = codec.dumps([math.nan, math.inf, -math.inf])
    assert json.loads(line) == [{"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}]


def test_the_reserved_key_is_refused_when_writing():
    with pytest.raises(ValueError, match="reserved"):
        codec.dumps({"$float": "nan"})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("NaN", "no JSON"),
        ("[-Infinity]", "no JSON"),
        ('{"a":1,"a":2}', "same key twice"),
        ('{"$float":"nan","a":1}', "stand alone"),
        ('{"$float":"1.5"}', "stand alone"),
        ('{"$float":[]}', "stand alone"),
        ("[" * 40 + "]" * 40, "nested deeper"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper"),
        ("{", "Expecting"),
        ("9" * 5000, "digits"),
        ("1e999", "beyond what a number can be"),
    ],
)
def test_anything_else_is_refused(line, problem):
    with pytest.raises(ValueError, match=problem):
        codec.loads(line)


def test_what_is_no_builtin_is_refused_when_writing():
    with pytest.raises(TypeError):
        codec.dumps({"tensor": object()})


@given(TREES.filter(lambda tree: "nan" not in repr(tree) and "inf" not in repr(tree)))
def test_what_a_script_reads_is_what_was_meant_and_cannot_end_its_element(tree):
    text = codec.for_script(tree)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == tree


def test_a_script_never_gets_bare_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.for_script([math.nan])
