"""Rotations of positions by themselves, both ways to pair elements, and their gradients."""

from __future__ import annotations

import math

import pytest
import torch

from .kernel import T, by_name, called, close, floats, gradients

HALF, INTERLEAVED = 0, 1
COS, SIN = floats(1, 3, 1, 6, seed=8), floats(1, 3, 1, 6, seed=9)


def _rotated(x: T, cos: T, sin: T, mode: int) -> T:
    """Each pair (a, b) becomes (a cos - b sin, b cos + a sin)."""
    size = x.shape[-1]
    first = list(range(size // 2)) if mode == HALF else list(range(0, size, 2))
    second = [each + size // 2 for each in first] if mode == HALF else [each + 1 for each in first]
    made = x * cos
    partner = torch.empty_like(x)
    partner[..., first], partner[..., second] = -x[..., second], x[..., first]
    return made + partner * sin


@pytest.mark.parametrize("mode", [HALF, INTERLEAVED])
def test_rotations_and_their_gradients(mode: int) -> None:
    x, dy = floats(2, 3, 4, 6), floats(2, 3, 4, 6, seed=1)
    wanted = _rotated(x, COS, SIN, mode)
    close(called("RotaryPositionEmbedding", x, COS, SIN, mode), wanted)
    close(called("RotaryPositionEmbeddingV2", x, COS, SIN, mode, None), wanted)
    dx, dcos, dsin = gradients(lambda *given: _rotated(*given, mode), dy, x, COS, SIN)
    close(called("RotaryPositionEmbeddingGrad", dy, COS, SIN, x, mode), (dx, dcos, dsin))
    close(called("RotaryPositionEmbeddingGrad", dy, COS, SIN, None, mode), (dx, None, None))
    if mode == HALF:
        close(by_name("RotaryMul")(x, COS, SIN), wanted)
        close(by_name("RotaryMulGrad")(x, COS, SIN, dy, need_backward=True), (dx, dcos, dsin))
    with pytest.raises(NotImplementedError, match="rotary mode 2"):
        called("RotaryPositionEmbedding", x, COS, SIN, 2)


def test_a_quarter_turn_and_back() -> None:
    x, right_angle = torch.arange(6.0).view(1, 1, 1, 6), torch.full((1, 1, 1, 6), math.pi / 2)
    found = called("RotaryPositionEmbedding", x, right_angle.cos(), right_angle.sin(), HALF)
    close(found.flatten(), torch.tensor([-3.0, -4, -5, 0, 1, 2]))
    found = called("RotaryPositionEmbedding", x, right_angle.cos(), right_angle.sin(), INTERLEAVED)
    close(found.flatten(), torch.tensor([-1.0, 0, -3, 2, -5, 4]))


@pytest.mark.parametrize(("mode", "pairs"), [("half", HALF), ("interleave", INTERLEAVED), (None, HALF)])
def test_queries_and_keys_are_rotated_where_they_are(mode: str | None, pairs: int) -> None:
    query, key = floats(2, 3, 4, 6), floats(2, 3, 1, 6, seed=1)
    wanted = [_rotated(each, COS, SIN, pairs) for each in (query, key)]
    if mode:
        called("ApplyRotaryPosEmbV2", query, key, COS, SIN, 1, mode)
    else:
        called("ApplyRotaryPosEmb", query, key, COS, SIN, 1)
    close([query, key], wanted)


@pytest.mark.parametrize("is_neox", [False, True])
@pytest.mark.parametrize("head", [6, 8])
def test_rotations_from_a_cache_by_position(head: int, is_neox: bool) -> None:
    positions, cache = torch.tensor([3, 0, 4]), floats(5, 6)
    query, key = floats(3, 2 * head, seed=1), floats(3, head, seed=2)
    found = called("RopeWithSinCosCache", positions, query, key, cache, None, head, is_neox)
    spread = [0, 1, 2, 0, 1, 2] if is_neox else [0, 0, 1, 1, 2, 2]
    for made, x in zip(found, (query, key), strict=True):
        for token, row in enumerate(positions.tolist()):
            for number, one in enumerate(x[token].split(head)):
                cos, sin = cache[row, :3][spread], cache[row, 3:][spread]
                turned = _rotated(one[:6], cos, sin, HALF if is_neox else INTERLEAVED)
                close(made[token].split(head)[number], torch.cat((turned, one[6:])))


@pytest.mark.parametrize("interleaved", [False, True])
def test_each_frequency_has_a_position_of_time_height_or_width(interleaved: bool) -> None:
    positions, cache, query = torch.tensor([[0, 1], [2, 3], [4, 0]]), floats(5, 12), floats(2, 12, seed=1)
    found = called(
        "RopeWithSinCosCacheV2", positions, query, query, cache, [2, 2, 2], 12, True, 1 if interleaved else 0
    )
    axes = [0, 1, 2, 0, 1, 2] if interleaved else [0, 0, 1, 1, 2, 2]
    for token in range(2):
        rows = [positions[axis, token] for axis in axes] * 2
        cos = torch.stack([cache[row, place % 6] for place, row in enumerate(rows)])
        sin = torch.stack([cache[row, 6 + place % 6] for place, row in enumerate(rows)])
        close(found[0][token], _rotated(query[token], cos, sin, HALF))
