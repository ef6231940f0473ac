"""Each published standard against a second statement of it, written from its definition: near the line, at any size.

The numbers stand here once more, so that a change of the table is noticed, and ``torch`` is held to ``assert_close``.
"""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_ascend.precision import compare

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
#: The smallest is where the additions to denominators and limits count.
SCALES = (1e-6, 1e-4, 1.0, 1e4)

#: Relative errors of the CANN operator precision standard: of half precision 2**-10, and so on.
LIMIT = {HALF: 2**-10, BRAIN: 2**-7, SINGLE: 2**-13, E4M3: 2**-3, E5M2: 2**-2}
#: rtol, atol, floor of the mixed standard.
MIXED = {
    "2026-07": {
        HALF: (2**-9, 2**-9, 0.1),
        BRAIN: (2**-6, 2**-6, 1),
        SINGLE: (2**-10, 2**-16, 0.01),
        E4M3: (2**-2, 2**-4, 0.1),
        E5M2: (2**-1, 2**-3, 1),
    },
    "current": {
        HALF: (2**-10, 2**-10, 0.1),
        BRAIN: (2**-7, 2**-7, 0.1),
        SINGLE: (2**-13, 2**-13, 0.01),
        E4M3: (2**-3, 2**-3, 1),
        E5M2: (2**-2, 2**-2, 1),
    },
}
RATIOS = {"L0": (10, 2, 2, 2), "L1": (5, 1.5, 1.5, 2), "L2": (2, 1.2, 1.2, 2)}
FLOOR = {HALF: 2**-11, BRAIN: 2**-8, SINGLE: 2**-14}
SMALL = {HALF: (2**-10, 1e-16), BRAIN: (2**-10, 1e-16), SINGLE: (2**-20, 2**-30)}


def ulp(expected, dtype):
    info = torch.finfo(dtype)
    binade = 2.0 ** torch.floor(torch.log2(expected.abs().clamp(min=info.smallest_normal)))
    return binade * info.eps


def mere_mare(actual, expected, dtype):
    relative = (actual - expected).abs() / (expected.abs() + 1e-7)
    return bool(relative.mean() < LIMIT[dtype] and relative.max() < 10 * LIMIT[dtype])


def mixed(revision):
    def agrees(actual, expected, dtype):
        rtol, atol, floor = MIXED[revision][dtype]
        error = (actual - expected).abs()
        within = error <= atol + rtol * expected.abs()
        far = error > torch.clamp(32 * ulp(expected, dtype), min=floor)
        return bool(within.double().mean() >= 0.99 and not far.any())

    return agrees


def in_ulps(actual, expected, dtype):
    ulps = (actual - expected).abs() / ulp(expected, dtype)
    if dtype is SINGLE:
        return bool((ulps > 32).double().mean() < 0.05 or ulps.mean() <= 64)
    return bool((ulps > 1).double().mean() < 0.001)


def thousandth(actual, expected, _dtype):
    return bool(((actual - expected).abs() <= 0.001 * expected.abs()).double().mean() >= 0.999)


def close(actual, expected, dtype):
    try:
        torch.testing.assert_close(actual.to(dtype), expected, check_dtype=False)
    except AssertionError:
        return False
    return True


def bits(actual, expected, dtype):
    return actual.numpy().tobytes() == expected.to(dtype).double().numpy().tobytes()


#: Standard -> its second statement, its dtypes, and its limit (which errors are drawn around) at an expected value.
PUBLISHED = {
    "mere-mare": (mere_mare, (HALF, BRAIN, SINGLE, E4M3, E5M2), lambda e, d: LIMIT[d] * e.abs()),
    "mixed@2026-07": (mixed("2026-07"), tuple(LIMIT), lambda e, d: MIXED["2026-07"][d][0] * e.abs()),
    "mixed@current": (mixed("current"), tuple(LIMIT), lambda e, d: MIXED["current"][d][0] * e.abs()),
    "ulp": (in_ulps, (HALF, BRAIN, SINGLE), lambda e, d: ulp(e, d) * (32 if d is SINGLE else 1)),
    "thousandth": (thousandth, (HALF, BRAIN, SINGLE, DOUBLE), lambda e, _: 0.001 * e.abs()),
    "torch": (
        close,
        (HALF, BRAIN, SINGLE, DOUBLE),
        lambda e, d: {HALF: 1e-3, BRAIN: 1.6e-2, SINGLE: 1.3e-6, DOUBLE: 1e-7}[d] * e.abs(),
    ),
    "binary": (bits, (HALF, BRAIN, SINGLE, DOUBLE), ulp),
}
BOTH = [(name, dtype) for name, (_, dtypes, _) in PUBLISHED.items() for dtype in dtypes]


def values(draw, dtype):
    """Draw what is expected: many values of one size, the largest e**2 times the smallest, some of them negative."""
    scale = draw(st.sampled_from(SCALES)) if torch.finfo(dtype).max > 1e5 else draw(st.sampled_from((1e-2, 1.0, 50.0)))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    size = draw(st.sampled_from((1, 3, 150, 1000)))
    return scale * torch.empty(size, dtype=DOUBLE).uniform_(-1, 1, generator=seeded).exp(), seeded


def off(draw, expected, limit, seeded):
    """Draw errors: in some or all places, around a simple multiple of the limit."""
    share = draw(st.sampled_from((0.0005, 0.001, 0.0095, 0.0105, 0.015, 0.048, 0.055, 1.0)))
    times = draw(st.sampled_from((0.1, 1.0, 1.0, 2.0, 10.0, 100.0))) * draw(st.floats(0.5, 1.5))
    count = max(1, math.ceil(share * expected.numel()))
    error = torch.zeros_like(expected)
    places = torch.randperm(expected.numel(), generator=seeded)[:count]
    error[places] = (times * limit)[places]
    return error * (1 if draw(st.booleans()) else -1)


@pytest.mark.drawn(9)
@pytest.mark.parametrize(("name", "dtype"), BOTH, ids=lambda each: str(each).removeprefix("torch."))
def test_a_published_standard_decides_as_its_definition_does(name, dtype):
    agrees, _, limit = PUBLISHED[name]
    decided = set()

    @given(st.data())
    @settings(max_examples=80, derandomize=True, database=None)
    def decides(data):
        expected, seeded = values(data.draw, dtype)
        if name == "binary":
            expected = expected.to(dtype).double()
        actual = (expected + off(data.draw, expected, limit(expected, dtype), seeded)).to(dtype)
        wanted = agrees(actual.double(), expected, dtype)
        decided.add(wanted)
        given_ = expected.to(dtype) if name == "binary" else expected
        assert compare(actual, given_, standard=name).agrees is wanted

    decides()
    assert decided == {True, False}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", FLOOR, ids=str)
@pytest.mark.parametrize("level", RATIOS)
def test_the_ratio_to_a_second_device_decides_as_its_definition_does(level, dtype):
    decided = set()

    def figures(result, expected):
        error, small = (result - expected).abs(), expected.abs() < SMALL[dtype][0]
        relative = (error / expected.abs())[~small]
        largest, mean = (relative.max(), relative.mean()) if relative.numel() else (0.0, 0.0)
        return float(largest), float(mean), float((error**2).mean().sqrt()), int((error[small] > SMALL[dtype][1]).sum())

    def within(actual, second, expected, slack):
        (*ours, our_small), (*theirs, their_small) = figures(actual, expected), figures(second, expected)
        limits = RATIOS[level]
        pairs = zip(ours, theirs, limits, strict=False)
        few = our_small <= limits[3] * their_small if their_small else not our_small
        return few and all(mine <= slack * most * max(other, FLOOR[dtype]) for mine, other, most in pairs)

    @given(st.data())
    @settings(max_examples=100, derandomize=True, database=None)
    def decides(data):
        expected, seeded = values(data.draw, dtype)
        if data.draw(st.booleans()):
            expected[: expected.numel() // 2] *= 1e-6
        limit = 4 * FLOOR[dtype] * expected.abs()
        second = (expected + off(data.draw, expected, limit, seeded)).to(dtype)
        actual = (expected + off(data.draw, expected, limit, seeded)).to(dtype)
        if data.draw(st.booleans()):
            actual = (expected + (second.double() - expected) * data.draw(st.floats(0.9, 2.5))).to(dtype)
        wanted, narrowly = (within(actual.double(), second.double(), expected, 1 + each) for each in (-1e-9, 1e-9))
        assume(wanted is narrowly)  # on the line itself the order of additions decides
        decided.add(wanted)
        found = compare(actual, expected, reference_runs=second, standard=f"benchmark-ratio-{level}")
        assert found.agrees is wanted, found.message

    decides()
    assert decided == {True, False}
