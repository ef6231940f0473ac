"""Figures and foreign text in the form in which people read them."""

import math
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ascend.system import figures

ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@given(ANY_TEXT)
def test_visible_text_can_be_written_and_holds_nothing_unseen(text):
    shown = figures.visible(text)
    shown.encode("utf-8")
    assert not set(shown) & set("\x00\x07\x1b\r\x7f\x85\u202e\u2028\u200b")


@given(ANY_TEXT)
def test_one_line_is_one_line(text):
    assert len(figures.one_line(text).splitlines()) <= 1


def test_what_is_unseen_is_written_as_python_does():
    assert figures.one_line("a\x1b[31m\nb\u202e\ud800") == r"a\x1b[31m\nb\u202e\ud800"


@pytest.mark.parametrize(
    ("value", "text"),
    [(4096.0, "4,096"), (0.00012345, "0.0001234"), (math.nan, "nan"), (-math.inf, "-inf"), (1e300, "1e+300"), (0, "0")],
)
def test_numbers_have_four_significant_digits(value, text):
    assert figures.number(value) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latency_us", 1234.5, "1,234 µs"),
        ("latency_us", math.nan, "nan µs"),
        ("peak_memory_bytes", 4.2e9, "3.91 GiB"),
        ("peak_memory_bytes", 512, "512 B"),
        ("peak_memory_bytes", math.inf, "inf B"),
        ("throughput_per_s", 92.75, "92.75/s"),
        ("duration_s", 0.5, "0.5 s"),
        ("cosine", 0.999, "0.999"),
        ("limit in plain words", 3.0, "3"),
    ],
)
def test_quantities_carry_the_unit_of_their_name(name, value, text):
    assert figures.quantity(name, value) == text


def test_words_leave_the_unit_out():
    assert figures.words("peak_memory_bytes") == "peak memory"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (1, 100_000, "< 0.1 %"),
        (99_999, 100_000, "> 99.9 %"),
        (1, 3, "33.3 %"),
        (0, 0, "0 %"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(part, whole, text):
    assert figures.share(part, whole) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "0 %"),
        (1e-5, "< 0.1 %"),
        (0.0123, "1.2 %"),
        (0.5, "50 %"),
        (2.5, "250 %"),
        (25.0, "2,500 %"),
        (math.inf, "beyond measure"),
        (math.nan, "nan"),
    ],
)
def test_the_used_part_of_a_limit(fraction, text):
    assert figures.used(fraction) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0012, "1.2 ms"), (0.0456, "46 ms"), (2.34, "2.3 s"), (83.4, "1 min 23 s"), (7380, "2 h 3 min")],
)
def test_durations_are_written_in_the_unit_that_fits(seconds, text):
    assert figures.duration(seconds) == text


def test_moments_are_given_in_utc():
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=8)))
    assert figures.moment(when) == "2026-01-01 19:04:05 UTC"


@pytest.mark.parametrize(
    ("value", "shown"), [(1.23456e-7, 1.235e-7), (4096.0, 4096), (math.inf, "inf"), (math.nan, "nan")]
)
def test_figures_for_a_script_are_short_and_never_bare_nan(value, shown):
    assert figures.rounded(value) == shown


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("traffic_gb_per_s", 6.2714, "6.271 GB/s"),
        ("compute_gflop_per_s", 1234.5, "1,234 GFLOP/s"),
        ("throughput_items_per_s", 92.75, "92.75/s"),
    ],
)
def test_a_rate_has_its_unit(name, value, written):
    assert figures.quantity(name, value) == written


@pytest.mark.parametrize(
    ("value", "written"), [(12.5, "12.5 µs"), (400_000.0, "400 ms"), (2.5e6, "2.5 s"), (0.0, "0 µs")]
)
def test_beside_an_axis_times_are_brief(value, written):
    assert figures.brief("latency_us", value) == written


@pytest.mark.parametrize(
    ("part", "said"),
    [(0, "0 %"), (9, "< 0.1 %"), (11, "0.1 %"), (18, "0.2 %"), (9989, "99.9 %"), (9991, "> 99.9 %"), (10000, "100 %")],
)
def test_a_share_is_all_or_nothing_only_where_it_is(part: int, said: str) -> None:
    assert figures.share(part, 10000) == said


def test_whole_numbers_are_written_out_up_to_what_a_script_holds_exactly():
    below, from_there = 999_999_999_999_999.0, 1e15
    assert (figures.number(below), figures.number(from_there)) == ("999,999,999,999,999", "1e+15")
    assert (repr(figures.rounded(below)), repr(figures.rounded(from_there))) == (
        "999999999999999",
        "1000000000000000.0",
    )
