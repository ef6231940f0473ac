"""Inputs are the same bits everywhere, and of the spread that they promise."""

import hashlib

import numpy as np
import pytest
import torch

from pytest_ascend.run import inputs

PINNED = {
    "uniform": [-1138853760, -1084643466, -1082461572, 1052936420],
    "range": [1069002328, 1040668712, -1114757840, 1073905081],
    "normal": [-1134331239, -1122292710, -1136217803, 1017194654],
    "bfloat16": [-16590, -16398, -16613, 16252],
    "signs": [-1, -1, 1, -1, 1, -1, -1],
    "long uniform": "239d1f6474835ea1",
    "long normal": "2c1d48c9643b28a1",
    "table uniform": "d3b0bb2536d22b49",
    "table normal": "f0e77ec5aa1ab8bd",
    "table integers": "b457b869b0494f1b",
}


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def test_the_hash_is_splitmix64() -> None:
    # The outputs that the published reference code gives for the seed 1234567.
    state = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * inputs.STEP
    assert inputs.mix(state).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_bit_patterns_stay_as_they_are() -> None:
    assert inputs.words("golden", 2).tolist() == [9134162031912217003, 1381555834965607079]
    assert inputs.uniform("golden", (4,)).view(torch.int32).tolist() == PINNED["uniform"]
    assert inputs.uniform("golden", (4,), low=-0.1, high=3.0).view(torch.int32).tolist() == PINNED["range"]
    assert inputs.normal("golden", (4,), std=0.02).view(torch.int32).tolist() == PINNED["normal"]
    assert inputs.normal("golden", (4,), dtype=torch.bfloat16).view(torch.int16).tolist() == PINNED["bfloat16"]
    assert inputs.integers("golden", (6,), low=-3, high=4).tolist() == [0, -3, -3, 1, -1, 2]
    # The lowest bits of the first word, and the lowest of the second.
    assert inputs.signs("golden", 65)[[0, 1, 2, 3, 4, 5, 64]].tolist() == PINNED["signs"]
    values = torch.arange(65, dtype=torch.float64)
    expected = values[1:] * inputs.signs("golden", 64, start=64)
    inputs.change_signs(values[1:], "golden", start=64)
    assert values[1:].equal(expected)


@pytest.mark.parametrize("size", [1, inputs.CHUNK - 1, inputs.CHUNK, inputs.CHUNK + 1, 3 * inputs.CHUNK + 5])
def test_a_value_does_not_depend_on_how_many_follow(size: int) -> None:
    long = inputs.normal("stream", (4 * inputs.CHUNK,))
    assert inputs.normal("stream", (size,)).equal(long[:size])


def test_every_element_of_many_chunks_stays_as_it_is() -> None:
    assert digest(inputs.uniform("long", (5, 20001))) == PINNED["long uniform"]
    assert digest(inputs.normal("long", (5, 20001))) == PINNED["long normal"]


def test_streams_of_generated_calls_come_from_a_table_and_stay_as_they_are() -> None:
    key, shape = f"{inputs.FROM_TABLE}add/call 3", (5, 2001)
    assert digest(inputs.uniform(key, shape)) == PINNED["table uniform"]
    assert digest(inputs.normal(key, shape, std=0.5)) == PINNED["table normal"]
    assert digest(inputs.integers(key, shape, low=-5, high=1000)) == PINNED["table integers"]
    assert not inputs.normal(key, shape).equal(inputs.normal(f"{key}4", shape))
    inputs.normal(key, shape).zero_()  # a copy: the table stays
    assert digest(inputs.normal(key, shape, std=0.5)) == PINNED["table normal"]


def test_a_stream_too_long_for_the_table_is_hashed() -> None:
    long = inputs.normal(f"{inputs.FROM_TABLE}long", (inputs.TABLE,))
    assert len(long.unique()) > inputs.TABLE // 8
    assert abs(long.mean()) < 0.01


def test_streams_differ_by_key() -> None:
    assert not inputs.uniform("a", (8,)).equal(inputs.uniform("b", (8,)))


def test_the_default_range_is_exact_and_excludes_one() -> None:
    values = inputs.uniform("range", (100_000,)).double()
    assert (values * 2**23).frac().eq(0).all()
    assert -1.0 <= values.min() < -0.9999
    assert 0.9999 < values.max() < 1.0


def test_spreads_are_as_promised() -> None:
    even, bell = inputs.uniform("spread", (200_000,)).double(), inputs.normal("spread", (200_000,), std=0.5).double()
    assert even.mean().abs() < 0.01
    assert (even.std() - 3**-0.5).abs() < 0.01
    assert bell.mean().abs() < 0.01
    assert (bell.std() - 0.5).abs() < 0.01
    assert (bell.abs() < 0.5).double().mean().sub(0.6827).abs() < 0.02
    assert bell.abs().max() < 0.5 * 3.4642


def test_neighbours_are_not_correlated() -> None:
    values = inputs.normal("neighbours", (200_000,)).double()
    assert (values[1:] * values[:-1]).mean().abs() < 0.01


def test_integers_reach_both_ends_and_nothing_beyond() -> None:
    values = inputs.integers("ends", (10_000,), low=-3, high=4)
    assert sorted(set(values.tolist())) == [-3, -2, -1, 0, 1, 2, 3]


def test_no_integer_can_be_drawn_from_an_empty_range() -> None:
    with pytest.raises(ValueError, match="no integers"):
        inputs.integers("none", (1,), low=2, high=2)


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_shapes_give_empty_tensors(shape: tuple[int, ...]) -> None:
    assert inputs.uniform("empty", shape).shape == shape


def test_a_scalar_shape_gives_a_scalar() -> None:
    assert inputs.uniform("scalar", ()).shape == ()
