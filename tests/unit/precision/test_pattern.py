import numpy as np
import pytest
import torch

from pytest_ascend.precision import compare
from pytest_ascend.precision.diagnosis import Sample, causes, map_of, pattern_of, worst_elements
from pytest_ascend.run.reference import cpu_reference

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
    places = np.array([0, 1, 2, 3, 2 * 200 + 199, 11 * 200 + 100])
    parts = [(places, np.array([1.0, 2.0, np.nan, 4.0, 50.0, 6.0]), np.zeros(6))]
    sample = Sample.of(torch.zeros(4, 3, 200), parts, 6)
    rows = map_of(sample)
    assert (len(rows), {len(row) for row in rows}) == (12, {48})
    wrong = [(down, across) for down, row in enumerate(rows) for across, cell in enumerate(row) if cell != "0"]
    assert wrong == [(0, 0), (2, 47), (11, 24)]
    assert rows[0][0] > rows[2][47]
    assert map_of(Sample.of(torch.zeros(4, 3, 200), parts, 7)) == ()
    assert [(each.index, each.actual) for each in worst_elements(sample)[:2]] == [
        ((0, 0, 2), "nan"),
        ((0, 2, 199), "50"),
    ]


def test_a_picture_of_all_elements_is_full():
    sample = Sample.of(torch.zeros(5, 7), [(np.arange(35), np.ones(35), np.zeros(35))], 35)
    assert map_of(sample) == ("9999999",) * 5


def cause(actual, expected, dtype="float32"):
    return "; ".join(causes(np.array(actual, np.float64), np.array(expected, np.float64), dtype))


WAVE = np.array([1.0, -2.0, 3.0, -5.0, 8.0, -13.0, 21.0, -34.0] * 4)
SMALL = np.array([1.0, 3.0, 2.0, 5.0])
#: The numbers 1, 2, 4, 8 have all products with other signs apart.
ACROSS = np.tile([1.0, 1.0, -1.0, -1.0], 8), np.tile([1.0, -1.0, 1.0, -1.0], 8)


@pytest.mark.parametrize(
    ("actual", "expected", "text"),
    [
        (0 * SMALL, SMALL, "zeros instead of values"),
        ([0, 0, 0, 1e-9], [1, 2, 4, 1e-9], ""),
        ([7, 7, 7, 7], [1, 3, 2, 5], "one value for all"),
        ([7, 7, 7], [1, 3, 2], ""),
        (-1.009 * SMALL, SMALL, "the sign is wrong"),
        (-1.02 * SMALL, SMALL, "off by one factor"),
        (1.011 * SMALL, SMALL, "off by one factor"),
        (0.5 * SMALL, SMALL, "off by one factor"),
        (0.5 * SMALL[:3], SMALL[:3], ""),
        (1.009 * SMALL, SMALL, ""),
        (SMALL * [1.5, 1.5, 1.513, 1.5], SMALL, "off by one factor"),
        (SMALL * [1.5, 1.5, 1.517, 1.5], SMALL, ""),
        (SMALL + 1, SMALL, "off by one amount"),
        (SMALL[:3] + 1, SMALL[:3], ""),
        (SMALL + np.array([1, 1, 1.04, 1]), SMALL, "off by one amount"),
        (SMALL + np.array([1, 1, 1.06, 1]), SMALL, ""),
        (np.roll(WAVE, 1), WAVE, "values of the neighbours"),
        (np.roll(WAVE, -1), WAVE, "values of the neighbours"),
        (np.where(np.arange(32) % 16 == 9, 99.0, np.roll(WAVE, 1)), WAVE, "values of the neighbours"),
        (np.where(np.arange(32) % 8 == 5, 99.0, np.roll(WAVE, 1)), WAVE, ""),
        (np.roll(WAVE, 3) * 1.009, WAVE, "right values in the wrong places"),
        (np.sort(SMALL[:3]), SMALL[:3], ""),
        (ACROSS[0] + 0.5 * ACROSS[1], ACROSS[1], "hardly related"),
        (ACROSS[0] + 0.62 * ACROSS[1], ACROSS[1], ""),
        ((ACROSS[0] + 0.5 * ACROSS[1])[:15], ACROSS[1][:15], ""),
    ],
)
def test_a_cause_is_told_up_to_its_limit_and_not_beyond(actual, expected, text):
    found = cause(actual, expected)
    assert (text in found) if text else (found == ""), found


@pytest.mark.parametrize(
    ("actual", "expected", "text"),
    [
        ([1.0, 2.0], [np.nan, 2.0], "NaN was dropped"),
        ([np.nan, 2.0], [1.0, 2.0], "NaN where there is none"),
        ([1.0, 2.0], [np.inf, 2.0], "a finite number for Inf"),
        ([np.inf, 2.0], [1.0, 2.0], "Inf where there is none"),
        ([np.nan, 1.0], [1.0, np.nan], "NaN was dropped"),
        ([-np.inf, 2.0], [np.inf, 2.0], "Inf where there is none"),
    ],
)
def test_nan_and_infinity_are_told_alone(actual, expected, text):
    assert cause(actual, expected).startswith(text)
    assert ";" not in cause(actual, expected)


def uneven(count, relative, dtype=np.float32):
    """Return values with errors of about this relative size to both sides, of all digits that the dtype has."""
    expected = np.random.default_rng(1).uniform(1, 2, count).astype(dtype).astype(np.float64)
    off = relative * np.where(np.arange(count) % 2, 1, -1) * np.random.default_rng(2).uniform(0.9, 1.1, count)
    return (expected * (1 + off)).astype(dtype), expected


@pytest.mark.parametrize(
    ("count", "relative", "dtype", "text"),
    [
        (16, 2.0**-12, "float32", "as large as those of a 16-bit format"),
        (15, 2.0**-12, "float32", ""),
        (64, 2.0**-15.5, "float32", "as large as those of a 16-bit format"),
        (64, 2.0**-16.5, "float32", ""),
        (64, 2.0**-8.4, "float32", "as large as those of a 16-bit format"),
        (64, 2.0**-7.5, "float32", ""),
        (16, 0.2, "bfloat16", "errors of many ulp"),
        (15, 0.2, "bfloat16", ""),
        (64, 0.27, "bfloat16", ""),
        (64, 2.0**-5.5, "bfloat16", "errors of many ulp"),
        (64, 2.0**-6.5, "bfloat16", ""),
        (64, 2.0**-8.5, "float16", "errors of many ulp"),
        (64, 2.0**-9.5, "float16", ""),
    ],
)
def test_the_size_of_errors_tells_the_format_that_was_computed_in(count, relative, dtype, text):
    found = cause(*uneven(count, relative), dtype)
    assert (text in found) if text else (found == ""), found


@pytest.mark.parametrize(("count", "ulps", "opposite", "told_"), [
    (32, 1, 0, True), (31, 1, 0, False), (64, 3.5, 0, True), (64, 5, 0, False), (64, 1, 3, True), (64, 1, 4, False),
])  # fmt: skip
@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("sign", [1, -1])
def test_roundings_to_one_side_are_another_rounding_mode(count, ulps, opposite, told_, side, sign):
    _, expected = uneven(count, 0)
    sides = np.where(np.arange(count) >= count - opposite, -side, side)
    found = cause(sign * expected * (1 + 2.0**-23 * ulps * sides), sign * expected)
    assert found.startswith("all away from zero" if side > 0 else "all towards zero") is told_, found


@pytest.mark.parametrize(("count", "kept"), [(16, True), (15, False)])
@pytest.mark.parametrize(("bits", "name"), [(8, "bfloat16"), (11, "float16 or a 10-bit"), (12, "an 11-bit")])
def test_low_bits_that_are_never_used_tell_a_rounding(count, kept, bits, name):
    _, expected = uneven(count, 0)
    short = np.round(expected * 2.0 ** (bits - 1)) / 2.0 ** (bits - 1)
    short[0] += 2.0 ** (1 - bits) if not round(short[0] * 2.0 ** (bits - 1)) % 2 else 0  # the last bit is used
    found = cause(short, expected)
    assert (f"only {bits} significant bits: rounded to {name}" in found) is kept
    assert "significant bits" not in cause(short, expected, {8: "bfloat16", 11: "float16", 12: "float16"}[bits])


def where(shape, places, total=None):
    wrong = np.flatnonzero(places) if np.asarray(places).dtype == bool else np.array(places)
    parts = [(wrong, np.full(wrong.size, np.nan), np.zeros(wrong.size))]
    sample = Sample.of(torch.zeros(shape), parts, wrong.size if total is None else total)
    return pattern_of(sample).partition(";")[0]


def of_cells(shape, *cells):
    """Return a picture of a tensor in which these slices are wrong."""
    picture = np.zeros(shape, bool)
    for each in cells:
        picture[each] = True
    return picture.reshape(-1)


@pytest.mark.parametrize(
    ("shape", "places", "text"),
    [
        ((10,), range(10), "all elements"),
        ((1000,), range(5, 1000), "nearly all elements (995 of 1000)"),
        ((1000,), [each for each in range(1000) if each % 100], "scattered over the tensor"),
        ((10,), [4], "a single element"),
        ((10,), range(3), "the first 3 elements"),
        ((10,), range(7, 10), "the last 3 elements: a tail that was not computed or not written"),
        ((10,), range(4, 7), "one block of 3 elements from element 4"),
        ((10,), [1, 4, 7], "every 3th element from element 1"),
        ((30,), [4, 10, 16], "every 6th element from element 4"),
        ((30,), [4, 10], "scattered over the tensor"),
        ((30,), [4, 10, 17], "scattered over the tensor"),
        ((8, 10), of_cells((8, 10), np.s_[:, 3]), "everything at index 3 of dimension 1"),
        ((8, 10), of_cells((8, 10), np.s_[:, 3:5]), "everything at index 3 to 4 of dimension 1"),
        ((8, 10), of_cells((8, 10), np.s_[:, 3:6]), "the block [0:8, 3:6]"),
        ((20, 10), of_cells((20, 10), np.s_[:18, 3]), "everything at index 3 of dimension 1"),
        ((20, 10), of_cells((20, 10), np.s_[1:18, 3]), "the block [1:18, 3:4]"),
        ((20, 10), of_cells((20, 10), np.s_[1:6, 3:5]), "the block [1:6, 3:5]"),
        ((20, 10), [13, 14, 23, 24, 33, 34, 43, 44, 53], "the block [1:6, 3:5]"),
        ((20, 10), [13, 14, 23, 24, 33, 44, 53, 54], "scattered over the tensor"),
        ((20, 10), [33, 35, 36, 39], "only at index 3 of dimension 0"),
        ((20, 10), [33, 35, 36], "scattered over the tensor"),
        ((3, 1), [0, 2], "scattered over the tensor"),
    ],
)
def test_where_wrong_elements_are_is_told_up_to_its_limit(shape, places, text):
    assert where(shape, places if isinstance(places, np.ndarray) else list(places)) == text


def test_of_some_of_the_wrong_elements_no_shape_is_told():
    assert where((10,), [3, 4, 5], total=4) == "scattered over the tensor"
    assert where((8, 10), of_cells((8, 10), np.s_[:, 3]), total=9) == "every 10th element from element 3"
    assert where((8, 10), [], total=0) == ""


def test_an_error_that_is_a_smooth_function_of_the_input_is_another_formula() -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    gelu, sin = torch.nn.functional.gelu, torch.sin
    for actual, expected in (
        (gelu(x, approximate="tanh"), cpu_reference(gelu, x)),
        (x - x**3 / 6, cpu_reference(sin, x)),
        ((x - x**3 / 6).reshape(10, 100), cpu_reference(sin, x.reshape(10, 100))),
    ):
        assert "another formula?" in compare(actual, expected).message
    noise = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    for actual, expected in (
        (gelu(x).half().float(), cpu_reference(gelu, x)),
        (gelu(x) + 1e-4 * noise, cpu_reference(gelu, x)),
        (x.roll(1).exp(), cpu_reference(torch.exp, x)),
        ((x * 1.001).reshape(10, 100).softmax(-1), cpu_reference(lambda x: x.softmax(-1), x.reshape(10, 100))),
        (torch.zeros_like(x), cpu_reference(torch.exp, x)),
    ):
        assert "another formula?" not in compare(actual, expected).message
