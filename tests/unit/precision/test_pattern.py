import numpy as np
import pytest
import torch

from pytest_ascend.precision import compare
from pytest_ascend.precision.pattern import Sample, map_of, worst_elements

torch.manual_seed(0)
EXPECTED = torch.randn(64, 512, dtype=torch.float64)
REFERENCE_RUN = EXPECTED.float()


def changed(how):
    actual = REFERENCE_RUN.clone()
    how(actual)
    return actual


def rounded(bits):
    drop = 23 - bits
    return ((REFERENCE_RUN.view(torch.int32) + (1 << drop - 1)) >> drop << drop).view(torch.float32)


@pytest.mark.parametrize(
    ("actual", "texts"),
    [
        (changed(lambda a: a[3].zero_()), ("one block of 512 elements from element 1536", "zeros instead of values")),
        (changed(lambda a: a[:, 5].add_(1)), ("index 5 of dimension 1", "off by one amount")),
        (changed(lambda a: a.view(-1)[::256].mul_(1.1)), ("every 256th element", "off by one factor")),
        (changed(lambda a: a.view(-1)[-77:].zero_()), ("the last 77 elements",)),
        (changed(lambda a: a[10:20, 100:200].mul_(1.5)), ("the block [10:20, 100:200]",)),
        (changed(lambda a: a[2, 3].fill_(torch.nan)), ("a single element", "NaN where there is none")),
        (-REFERENCE_RUN, ("all elements", "the sign is wrong")),
        (REFERENCE_RUN.roll(1, 1), ("neighbours",)),
        (REFERENCE_RUN.reshape(512, 64).t().reshape(64, 512), ("right values in the wrong places",)),
        (REFERENCE_RUN.half().float(), ("only 11 significant bits",)),
        (rounded(7), ("bfloat16",)),
        (rounded(11), ("11-bit mantissa",)),
        (torch.ones_like(REFERENCE_RUN), ("one value for all",)),
        (torch.nextafter(REFERENCE_RUN, torch.tensor(torch.inf)), ("rounding mode",)),
    ],
)
def test_the_pattern_and_what_it_usually_means(actual, texts):
    verdict = compare(actual, EXPECTED, reference_runs=REFERENCE_RUN)
    assert not verdict.agrees
    for text in texts:
        assert text in verdict.pattern
        assert text in verdict.message


def test_a_message_says_where_what_and_by_which_rule():
    actual = changed(lambda a: a[1, 2].add_(1))
    verdict = compare(actual, EXPECTED, reference_runs=REFERENCE_RUN, name="ops/add")
    lines = verdict.message.splitlines()
    assert lines[0].startswith("ops/add: 1 of 32768 elements differ; error of one element: 1")
    assert "[1, 2]" in lines[1]
    assert "error-model@1" in verdict.message


def test_a_picture_shows_where_the_wrong_elements_are_and_which_are_worst():
    sample = Sample.of(torch.zeros(4, 3, 200))
    places = np.array([0, 1, 2, 3, 2 * 200 + 199, 11 * 200 + 100])
    sample.add(places, np.array([1.0, 2.0, np.nan, 4.0, 50.0, 6.0]), np.zeros(6))
    rows = map_of(sample.of_total(6))
    assert (len(rows), {len(row) for row in rows}) == (12, {48})
    wrong = [(down, across) for down, row in enumerate(rows) for across, cell in enumerate(row) if cell != "0"]
    assert wrong == [(0, 0), (2, 47), (11, 24)]
    assert rows[0][0] > rows[2][47]
    assert map_of(sample.of_total(7)) == ()
    assert [(each.index, each.actual) for each in worst_elements(sample)[:2]] == [
        ((0, 0, 2), "nan"),
        ((0, 2, 199), "50"),
    ]


def test_a_picture_of_all_elements_is_full():
    sample = Sample.of(torch.zeros(5, 7))
    sample.add(np.arange(35), np.ones(35), np.zeros(35))
    assert map_of(sample.of_total(35)) == ("9999999",) * 5
