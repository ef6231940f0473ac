"""Quantization by itself: each number by plain arithmetic, in every form of its scales."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import quantization

from .kernel import T, by_name, called, close, floats

TEXTS = {torch.int8: "torch.qint8", torch.uint8: "torch.quint8", torch.int32: "torch.qint32"}
LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int32: (-(2**31), 2**31 - 1)}


def _rounded(number: float, dtype: torch.dtype) -> int:
    low, high = LIMITS[dtype]
    return int(min(max(round(number), low), high))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1, None], ids=lambda axis: f"axis {axis}")
@pytest.mark.parametrize("dtype", TEXTS, ids=str)
def test_numbers_are_divided_rounded_shifted_and_clamped(dtype: torch.dtype, axis: int | None, shifted: bool) -> None:
    x = floats(3, 4) * 60
    size = 1 if axis is None else x.shape[axis]
    scales, zeros = torch.linspace(0.25, 0.5, size), torch.arange(size, dtype=torch.int32) * 40 - 30
    place = axis or 0
    found = called("Quantize", x, scales, zeros if shifted else None, dtype, place)
    named = by_name("Quantize")(x, scales, zeros if shifted else None, axis=place, dtype=TEXTS[dtype])
    for row in range(3):
        for column in range(4):
            which = 0 if axis is None else (row if axis == 0 else column)
            whole = round((x[row, column] / scales[which]).item()) + (int(zeros[which]) if shifted else 0)
            assert int(found[row, column]) == _rounded(whole, dtype)
    assert found.dtype == dtype
    assert named.equal(found)


MODES = {"round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_numbers_are_multiplied_shifted_and_rounded_in_a_mode(mode: str, shifted: bool, squared: bool) -> None:
    x, scale, offset = floats(3, 4) * 9, torch.tensor([1.5, 2, 0.5, 40]), torch.tensor([0.5, -3, 7, 1])
    wanted = MODES[mode](x * (scale**2 if squared else scale) + (offset if shifted else 0)).clamp(-128, 127)
    given = (x, scale, offset if shifted else None, squared, mode, torch.int8)
    for found in (called("AscendQuantV3", *given, -1), called("AscendQuant", *given)):
        assert found.dtype == torch.int8
        assert found.float().equal(wanted)
    by_row = torch.tensor([1.5, 2, 0.5])
    found = called("AscendQuantV3", x, by_row, None, False, mode, torch.int8, 0)
    assert found.float().equal(MODES[mode](x * by_row[:, None]).clamp(-128, 127))
    halves = torch.tensor([0.5, 1.5, -2.5])
    assert called("AscendQuant", halves, torch.ones(1), None, False, "round", torch.int8).tolist() == [0, 2, -2]


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
def test_numbers_come_back(shifted: bool, squared: bool) -> None:
    x, scale, offset = torch.arange(-6, 6, dtype=torch.int8).view(3, 4), floats(4), floats(4, seed=1)
    wanted = (x.float() + (offset if shifted else 0)) * (scale**2 if squared else scale)
    close(called("AscendAntiQuant", x, scale, offset if shifted else None, torch.float16, squared), wanted)


def _dynamic(name: str, x: T, y: torch.dtype, scales: tuple[int, ...], **named: Any) -> tuple[T, T, T | None]:
    shape = (*x.shape[:-1], x.shape[-1] // 8) if y is torch.int32 else x.shape
    asked = named.pop("offset", False)
    out: tuple[Any, ...] = torch.empty(shape, dtype=y), torch.empty(scales), torch.empty(scales) if asked else None
    called(name, x, **named, out=out if name != "DynamicQuant" else out[:2])
    return out  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["DynamicQuant", "DynamicQuantV2", "DynamicQuantV3", "DynamicQuantV4"])
def test_rows_are_quantized_by_their_largest_number(name: str) -> None:
    x, smooth = floats(3, 8), floats(8, seed=1)
    x[1] = 0
    symmetric = {} if name in {"DynamicQuant", "DynamicQuantV2"} else {"isSymmetrical": True}
    for factors in (None, smooth):
        wide = x if factors is None else x * factors
        y, scale, _ = _dynamic(name, x, torch.int8, (3,), smoothScales=factors, **symmetric)
        unit = wide.abs().amax(1) / 127
        close(scale, unit)
        wanted = torch.where(unit[:, None] == 0, 0.0, wide / unit[:, None]).round()
        assert y.float().equal(wanted)
        assert int(y.abs().max()) == 127


@pytest.mark.parametrize(("mode", "axes", "scales"), [("pertoken", [1], (3,)), ("perchannel", [0], (8,)),
                                                      ("pertensor", [0, 1], (1,))])  # fmt: skip
@pytest.mark.parametrize("smoothed", [False, True])
def test_what_shares_a_scale(mode: str, axes: list[int], scales: tuple[int, ...], smoothed: bool) -> None:
    x = floats(3, 8)
    factors = floats(3 if mode == "perchannel" else 8, seed=1) if smoothed else None
    wide = x if factors is None else x * (factors[:, None] if mode == "perchannel" else factors)
    y, scale, _ = _dynamic(
        "DynamicQuantV3", x, torch.int8, scales, smoothScales=factors, isSymmetrical=True, quantMode=mode
    )
    unit = wide.abs().amax(axes, keepdim=True) / 127
    close(scale, unit.flatten())
    assert y.float().equal((wide / unit).round())


@pytest.mark.parametrize("told", ["by the flag", "by an offset"])
def test_asymmetric_rows_use_the_whole_range(told: str) -> None:
    x = floats(4, 8) + 3
    x[2] = 5.0
    asked = {"isSymmetrical": told == "by an offset", "offset": True}
    y, scale, offset = _dynamic("DynamicQuantV3", x, torch.int8, (4,), **asked)
    unit = (x.amax(1) - x.amin(1)) / 255
    close(scale, unit)
    assert offset is not None
    close(offset, torch.where(unit == 0, 127.0, 127 - x.amax(1) / unit))
    varied = [0, 1, 3]
    assert (y[varied].amin(1) == -128).all()
    assert (y[varied].amax(1) == 127).all()
    assert (y[2] == 127).all(), "equal numbers have no range"


@pytest.mark.parametrize("groups", [[2, 2, 5], [1, 3, 4]])
def test_groups_of_rows_have_factors_of_their_own(groups: list[int]) -> None:
    x, smooth = floats(5, 8), floats(3, 8, seed=1)
    y, scale, _ = _dynamic(
        "DynamicQuantV2", x, torch.int8, (5,), smoothScales=smooth, groupIndex=torch.tensor(groups, dtype=torch.int32)
    )
    for row in range(5):
        group = min(sum(end <= row for end in groups), 2)
        wide = x[row] * smooth[group]
        close(scale[row], wide.abs().max() / 127)
        assert y[row].float().equal((wide / (wide.abs().max() / 127)).round())


def test_numbers_of_four_bits_are_packed_by_eight() -> None:
    x = floats(2, 16)
    packed, scale, _ = _dynamic("DynamicQuantV3", x, torch.int32, (2,), isSymmetrical=True)
    unit = x.abs().amax(1) / 7
    close(scale, unit)
    codes = (x / unit[:, None]).round().clamp(-8, 7).int()
    for row in range(2):
        words = [sum((int(codes[row, 8 * word + i]) & 15) << 4 * i for i in range(8)) for word in range(2)]
        assert [int(each) & 0xFFFFFFFF for each in packed[row]] == words


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("largest", [0.0, 96.0])
def test_eight_bits_of_floating_point_reach_a_largest_number(dtype: torch.dtype, largest: float) -> None:
    x = floats(2, 8)
    y, scale, _ = _dynamic("DynamicQuantV4", x, dtype, (2,), isSymmetrical=True, dstTypeMax=largest)
    high = largest or torch.finfo(dtype).max
    close(scale, x.abs().amax(1) / high)
    close(y.float().abs().amax(1), torch.full((2,), torch.tensor(high).to(dtype).float().item()))
    assert y.float().equal((x / scale[:, None]).clamp(-torch.finfo(dtype).max, high).to(dtype).float())


def test_a_scale_of_nineteen_bits_is_cut_or_rounded() -> None:
    scale = torch.tensor([1.0 + 2.0**-10 + 2.0**-11 + 2.0**-14, 1.0 + 2.0**-11, 1 + 3 * 2.0**-11])
    bits = scale.view(torch.int32).long()
    cut, nearest = (called("TransQuantParamV3", scale, None, mode) & 0xFFFFFFFF for mode in (0, 1))
    assert cut.equal(bits & ~0x1FFF)
    step = 1 << 13
    one = bits[1] - (1 << 12)
    assert nearest.tolist() == [int(bits[0]) // step * step + step, int(one), int(one) + 2 * step], "half to even"
    assert called("TransQuantParamV2", scale, None).equal(cut | 1 << 46)
    for shift, kept in ((3.4, 3), (2.5, 2), (-300.0, -256), (300.0, 255), (-1.0, -1)):
        found = called("TransQuantParamV2", scale[:1], torch.tensor([shift]))
        assert (int(found) >> 37 & 0x1FF) == kept % 512
        assert int(found) & 0xFFFFFFFF == int(cut[0])
        assert int(found) >> 46 == 1


def test_normalized_rows_are_quantized() -> None:
    x, gamma, beta = floats(4, 6), floats(6, seed=1), floats(6, seed=2)
    normal = x * (x.square().mean(-1, keepdim=True) + 0.5).rsqrt() * gamma + beta
    found = called("RmsNormQuant", x, gamma, beta, torch.tensor([50.0]), torch.tensor([3.0]), 0.5)
    assert found.dtype == torch.int8
    assert found.float().equal((normal * 50 + 3).round().clamp(-128, 127))


def test_values_broadcast_along_an_axis() -> None:
    x, values = torch.zeros(2, 3, 4), torch.arange(3)
    assert quantization._along(x, values, 1).shape == (1, 3, 1)
    assert quantization._along(x, values, -2).shape == (1, 3, 1)
    assert quantization._along(x, values[:1], 1).shape == ()


def _packed(numbers: T) -> T:
    """Return eight numbers of four bits as one word, along the last dimension."""
    parts = (numbers.long() & 15) << (4 * torch.arange(8))
    words = parts.sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("by_row", [False, True])
def test_products_of_integers_are_scaled(by_row: bool, bits: int) -> None:
    limit = 2 ** (bits - 1)
    x1, x2 = (torch.randint(-limit, limit, (5, 16), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    columns, rows = floats(5), floats(5, seed=1) if by_row else None
    product = (x1 @ x2.T).double()
    wanted = product * columns * (1 if rows is None else rows.unsqueeze(-1))
    given = [_packed(each.view(5, 2, 8)) if bits == 4 else each.to(torch.int8) for each in (x1, x2)]
    for dtype, expected in ((torch.float32, wanted), (torch.int32, product)):
        out = torch.empty(5, 5, dtype=dtype)
        called("QuantMatmulV5", given[0], given[1].T, rows, columns, y=out)
        close(out.double(), expected)


def test_a_product_in_int8_has_an_offset_and_a_bias_before_or_after() -> None:
    x1, x2 = torch.tensor([[1, 2], [3, -4]], dtype=torch.int8), torch.tensor([[5, 6], [7, 8]], dtype=torch.int8)
    scale = torch.tensor([0.5, 2.0])
    packed = scale.view(torch.int32).long()  # as torch_npu passes it without a scale for rows
    out = torch.empty(2, 2, dtype=torch.int8)
    called("QuantMatmulV5", x1, x2, None, packed, x2Offset=torch.tensor([3.0]), y=out)
    assert out.tolist() == [[12, 47], [-4, -25]]
    wide = torch.empty(2, 2)
    called("QuantMatmulV5", x1, x2, None, scale, bias=torch.tensor([1, 1], dtype=torch.int32), y=wide)
    assert wide.tolist() == [[10.0, 46.0], [-6.0, -26.0]]
    called("QuantMatmulV5", x1, x2, None, scale, bias=torch.tensor([1.0, 1.0]), y=wide)
    assert wide.tolist() == [[10.5, 45.0], [-5.5, -27.0]]
    with pytest.raises(NotImplementedError, match="groups"):
        called("QuantMatmulV5", x1, x2, None, scale, groupSize=32, y=wide)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("form", ["V2", "V2, counts", "WeightNzV2", "WeightNZ", "WeightNZ, groups of k"])
def test_gated_products_of_groups_are_quantized_by_row(form: str, bits: int) -> None:
    drawn = torch.Generator().manual_seed(3)
    x = torch.randint(-128, 128, (6, 32), generator=drawn).to(torch.int8)
    weight = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1), (2, 32, 16), generator=drawn)
    scales, rows = torch.rand(2, 2 if "of k" in form else 1, 16, generator=drawn) / 99, torch.rand(6, generator=drawn)
    given = _packed(weight.view(2, 32, 2, 8)) if bits == 4 else weight.to(torch.int8)
    if "N" in form:  # in the order of the format NZ, here with 1 or 8 columns in a block
        given = given.view(2, 2, 16, 2, -1).permute(0, 3, 1, 2, 4).contiguous()
    shaped = scales if "of k" in form else scales[:, 0]
    groups = torch.tensor([2, 3] if "counts" in form else [2, 5])  # the last row is of no group
    name, first = f"GroupedMatmulSwigluQuant{form.partition(',')[0]}", "WeightNZ" in form
    listed = (given, None, None, shaped) if first else ([given], [shaped], None, None)
    more = {} if first else {"groupListType": int("counts" in form)}
    found, steps = called(name, x, *listed, xScale=rows, groupList=groups, **more)[:2]
    for row in range(5):
        each = weight[0 if row < 2 else 1].double()
        parts = [x[row, part].double() @ each[part] for part in (slice(0, 16), slice(16, 32))]
        factors = scales[0 if row < 2 else 1].double().expand(2, -1)
        made = (parts[0] * factors[0] + parts[1] * factors[1]) * rows[row]
        wanted = made[:8] * made[:8].sigmoid() * made[8:]
        step = wanted.abs().max().item() / 127
        assert steps[row].item() == pytest.approx(step, rel=1e-4)
        assert (found[row].double() * step - wanted).abs().max() <= step * 0.51
    assert not found[5].any()


def test_rows_of_groups_are_quantized_by_their_scales() -> None:
    x, scale, offset = floats(5, 4) * 30, floats(3, 4, seed=1), torch.tensor([2.0])
    found = called("GroupQuant", x, scale, torch.tensor([2, 2, 5], dtype=torch.int32), offset, torch.int8)
    for row in range(5):
        wanted = (x[row] * scale[0 if row < 2 else 2] + 2).round().clamp(-128, 127)
        assert found[row].tolist() == wanted.tolist()
