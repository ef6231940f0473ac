"""Products of quantized numbers and collectives in one operator, by plain arithmetic on all ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import mc2
from pytest_ascend.emulator.kernels.linear import scaled_product
from pytest_ascend.emulator.kernels.quantization import by_row, to_int8

from .both import floats, integers
from .ranks import RANKS, Threads, called, drawn, on_all, put_in_place

T = torch.Tensor


@pytest.fixture(autouse=True)
def _ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch)


def _small(*shape: int, of: int = 0) -> list[T]:
    return [integers(*shape, low=-9, high=10, dtype=torch.int8, seed=100 * of + rank) for rank in range(RANKS)]


@pytest.mark.parametrize("version", ["", "V2", "V3", "V4", "V5"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_quantized_products_are_scaled_rounded_and_summed(version: str, dtype: torch.dtype) -> None:
    a, b, bias = _small(3, 4), _small(4, 5, of=1), [each.int() for each in _small(5, of=2)]
    scale, rows, more = floats(5, seed=1).to(dtype), floats(3, seed=2).abs(), floats(3, 5, seed=3).to(dtype)
    by_row = {"token_scale": rows} if version else {}
    found = on_all(
        lambda rank: called(
            f"QuantMatmulAllReduce{version}", x1=a[rank], x2=b[rank], bias=bias[rank], scale=scale, x3=more, **by_row
        )
    )
    sums = [(a[rank].float() @ b[rank].float() + bias[rank]) * scale.float() for rank in range(RANKS)]
    made = [((each * rows[:, None]) if version else each).to(dtype) + more for each in sums]
    for each in found:
        assert each.dtype == dtype
        assert each.equal(made[0] + made[1])


def test_a_scale_may_be_the_lower_half_of_64_bits_and_a_bias_of_floating_point_is_not_scaled() -> None:
    a, b, scale, bias = *(each[0] for each in (_small(3, 4), _small(4, 5, of=1))), floats(5, seed=1), floats(5, seed=2)
    packed = scale.view(torch.int32).long() & 0xFFFFFFFF | 7 << 40
    exact = a.float() @ b.float()
    assert scaled_product(a, b, None, packed, bias).equal(exact * scale + bias)
    assert scaled_product(a, b, None, scale).equal(exact * scale)
    assert scaled_product(a, b, None, scale.half()).equal(exact * scale.half().float())


@pytest.mark.parametrize("count", [3, 4])
def test_sums_in_int8_are_quantized_on_the_way_there_and_back(count: int) -> None:
    a, b = _small(count, 4), _small(4, 5, of=1)
    scale, there, back = torch.full((5,), 0.01), torch.linspace(0.01, 0.02, 5), torch.linspace(0.03, 0.02, 5)
    found = on_all(
        lambda rank: called("QuantMatmulAllReduceV3", x1=a[rank], x2=b[rank], scale=scale, there=there, back=back)
    )
    sent = []
    for rank in range(RANKS):
        made = ((a[rank].float() @ b[rank].float()) * scale).half().float()
        sent.append((made / there).round().clamp(-128, 127) * there)
    wanted = ((sent[0] + sent[1]) / back).round().clamp(-128, 127) * back
    for each in found:
        assert each.shape == (count, 5)
        assert each.equal(wanted.half())
    on_all(lambda rank: called("QuantMatmulAllReduceV3", x1=a[rank], x2=b[rank], scale=scale, there=there))
    assert Threads.called[-RANKS:] == ["all_reduce"] * RANKS, "with one of the scales alone"
    assert to_int8(torch.tensor([[1.5, 2.5, -400.0, 300.0]])).tolist() == [[2, 2, -128, 127]]


@pytest.mark.parametrize("group_size", [0, 2, 3])
@pytest.mark.parametrize("version", ["", "V2"])
@pytest.mark.parametrize("shifted", [False, True])
def test_weights_in_int8_are_shifted_and_scaled(version: str, group_size: int, shifted: bool) -> None:
    a, b, bias, more = drawn(3, 4), _small(4, 5, of=1), drawn(5, of=2), drawn(3, 5, of=3)
    groups = -(-4 // group_size) if group_size else 1
    scale, offset = floats(groups, 5, seed=1), floats(groups, 5, seed=2)
    found = on_all(
        lambda rank: called(
            f"WeightQuantMatmulAllReduce{version}",
            x1=a[rank],
            x2=b[rank],
            bias=bias[rank],
            scale=scale,
            offset=offset if shifted else None,
            x3=more[rank],
            group_size=group_size,
        )
    )
    row_of = [row // group_size if group_size else 0 for row in range(4)]
    weights = [(each + (offset[row_of] if shifted else 0)) * scale[row_of] for each in b]
    wanted = sum(a[rank] @ weights[rank] + bias[rank] + more[rank] for rank in range(RANKS))
    for each in found:
        torch.testing.assert_close(each, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["", "V2"])
def test_rows_that_become_columns_are_quantized_by_row(version: str, turned: bool) -> None:
    a, b = [each.half() for each in drawn(4, 3)], _small(3 * RANKS, 5, of=1)
    scale2, bias = floats(5, seed=1), floats(5, seed=2)
    a[1][0] = 0
    a[0][0] = 0

    def one(rank: int) -> Any:
        return called(
            f"AlltoAllQuantMatmul{version}",
            x1=a[rank], x2=b[rank].T if turned else b[rank], bias=bias, scale2=scale2, mode1=7, mode2=2, to=2,
            turned2=turned,
        )  # fmt: skip

    for rank, (made, received) in enumerate(on_all(one)):
        side_by_side = torch.cat([each.chunk(RANKS)[rank] for each in a], 1)
        assert received.equal(side_by_side)
        largest = side_by_side.float().abs().amax(1, keepdim=True)
        unit = torch.where(largest == 0, torch.ones(()), largest / 127)
        codes = (side_by_side.float() / unit).round()
        torch.testing.assert_close(made, (codes @ b[rank].float()) * scale2 * unit + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("to", [35, 36])
def test_rows_in_eight_bits_of_floating_point_fill_the_range(to: int) -> None:
    dtype = mc2._QUANTIZED[to]
    assert dtype == {35: torch.float8_e5m2, 36: torch.float8_e4m3fn}[to]
    x = floats(3, 8)
    codes, scale = by_row(x, dtype)
    assert codes.dtype == dtype
    assert (codes.float().abs().amax(1) == torch.finfo(dtype).max).all()
    torch.testing.assert_close(codes.float() * scale[:, None], x, rtol=0.13, atol=1e-3)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["", "V2"])
def test_quantized_products_with_given_scales(version: str, turned: bool) -> None:
    a, b, scale1, scale2 = _small(4, 3), _small(3, 6, of=1), drawn(4, of=2), drawn(6, of=3)
    bias = floats(6, seed=9)

    def given(rank: int) -> dict[str, Any]:
        return {
            "x1": a[rank], "x2": b[rank].T if turned else b[rank], "scale1": scale1[rank], "scale2": scale2[rank],
            "mode1": 3, "mode2": 2, "turned2": turned, "bias": bias,
        }  # fmt: skip

    made = [(a[rank].float() @ b[rank].float()) * scale2[rank] * scale1[rank][:, None] + bias for rank in range(RANKS)]
    for rank, each in enumerate(on_all(lambda rank: called(f"QuantMatmulAlltoAll{version}", **given(rank)))):
        torch.testing.assert_close(each, torch.cat([its.chunk(RANKS, 1)[rank] for its in made]))
    wide = _small(6, 6, of=4)

    def rows_first(rank: int) -> Any:
        named = given(rank) | {"x2": wide[rank].T if turned else wide[rank], "scale1": scale1[rank][:2]}
        return called(f"AlltoAllQuantMatmul{version}", **named)

    for rank, (product, received) in enumerate(on_all(rows_first)):
        assert received.equal(torch.cat([each.chunk(RANKS)[rank] for each in a], 1))
        exact = received.float() @ wide[rank].float() * scale2[rank] * scale1[rank][:2, None] + bias
        torch.testing.assert_close(product, exact)


def test_ways_of_quantization_that_are_not_emulated_are_refused() -> None:
    x = torch.ones(2, 2, dtype=torch.int8)
    for mode1, mode2, group_size in ((1, 2, 0), (3, 3, 0), (3, 2, 32)):
        how = {"x1": x, "x2": x, "scale2": torch.ones(2), "mode1": mode1, "mode2": mode2, "group_size": group_size}
        for name in ("AlltoAllQuantMatmul", "QuantMatmulAlltoAll"):
            with pytest.raises(NotImplementedError, match=f"mode {mode1}, of x2 by mode {mode2}"):
                called(name, **how)
    with pytest.raises(NotImplementedError, match="mode 7"):
        called("QuantMatmulAlltoAll", x1=x, x2=x, scale2=torch.ones(2), mode1=7, mode2=2)
    with pytest.raises(NotImplementedError, match="blocks"):
        called("QuantMatmulAllReduceV4", x1=x, x2=x, scale=torch.ones(2), group_size=32)
