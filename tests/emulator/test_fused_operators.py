"""Operators that only torch_npu has agree with their definitions in suites/fused, to a few roundings."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
import torch_npu
from torch.utils._pytree import tree_map

from pytest_ascend.operators import Operator
from suites.fused import OPERATORS
from suites.fused.entry import ON_950

#: What torch_npu itself does otherwise than the definition says: a shape, the precision of numbers that it passes on.
_OF_TORCH_NPU = {"npu_apply_adam", "npu_apply_adam_w", "npu_cross_entropy_loss", "npu_giou", "npu_iou", "npu_ptiou"}
_TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
#: What CANN keeps in half precision between two products, though it gives the result in float32: half a unit of it.
_ROUNDED_BETWEEN = {"npu_kronecker_quant": 2**-11, "npu_weight_quant_batchmatmul": 2**-6}

#: What an Ascend 950 alone has; the emulated chip is another.
_NOT_HERE = {*ON_950, "npu_dtype_cast.to", "npu_dtype_cast.from", "npu_quant_matmul.mx"}


def _placed(value: Any) -> Any:
    return value.detach().npu() if isinstance(value, torch.Tensor) else value


def _wide(value: Any) -> Any:
    is_floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().double() if is_floating else value


def _tensors(result: Any) -> list[torch.Tensor]:
    values = result if isinstance(result, (tuple, list)) else [result]
    return [each for each in values if isinstance(each, torch.Tensor) and each.numel()]


@pytest.mark.parametrize(
    "operator", [each for each in OPERATORS if each.name not in _OF_TORCH_NPU], ids=lambda o: o.name
)
def test_results_are_those_of_the_definition(operator: Operator) -> None:
    dtype = getattr(torch, operator.dtypes[0])
    assert operator.definition
    for sample in operator.samples(operator.dtypes[0]):
        args, kwargs = sample.arguments(operator.name, dtype)
        if operator.name in _NOT_HERE:
            with pytest.raises(NotImplementedError, match="for an Ascend 950 alone"):
                operator.function(*tree_map(_placed, args), **tree_map(_placed, kwargs))
            continue
        actual = _tensors(operator.function(*tree_map(_placed, args), **tree_map(_placed, kwargs)))
        expected = _tensors(operator.definition(*tree_map(_wide, args), **tree_map(_wide, kwargs)))
        for mine, reference in zip(actual, expected, strict=False):
            limit = 0.0 if operator.exact else _TOLERANCE.get(mine.dtype, 0.0)
            limit = max(limit, _ROUNDED_BETWEEN.get(operator.name, 0.0)) if limit else limit
            torch.testing.assert_close(mine.cpu().double(), reference.double(), rtol=limit, atol=limit, equal_nan=True)


def _codes(packed: torch.Tensor) -> list[list[int]]:
    """Return the numbers of four bits in int32, lowest first, by plain arithmetic."""
    rows = [[(word >> shift) & 0xF for word in row for shift in range(0, 32, 4)] for row in packed.tolist()]
    return [[each - 16 if each > 7 else each for each in row] for row in rows]


@pytest.mark.parametrize("narrow", [False, True], ids=["int8", "int4"])
def test_rows_are_quantized_by_groups_with_factors_of_their_own(narrow: bool) -> None:
    x = torch.randn(12, 16, generator=torch.Generator().manual_seed(1)).half()
    smooth, ends = torch.rand(3, 16, generator=torch.Generator().manual_seed(2)).half() + 0.5, [4, 4, 12]
    options = {"dst_type": torch.quint4x2} if narrow else {}
    y, scale = torch_npu.npu_dynamic_quant(
        x.npu(), smooth_scales=smooth.npu(), group_index=torch.tensor(ends, dtype=torch.int32).npu(), **options
    )
    largest, codes = (7, _codes(y.cpu())) if narrow else (127, y.cpu().tolist())
    for row in range(12):
        group = next(index for index, end in enumerate(ends) if row < end)
        numbers = (x[row].double() * smooth[group].double()).tolist()
        unit = max(map(abs, numbers)) / largest
        assert scale[row].item() == pytest.approx(unit, rel=1e-6)
        assert all(abs(code - number / unit) <= 0.5001 for code, number in zip(codes[row], numbers, strict=True))


def test_quantization_with_an_offset_uses_the_whole_range() -> None:
    x = (torch.randn(6, 32, generator=torch.Generator().manual_seed(3)) + 4).half()
    y, scale, offset = (each.cpu().double() for each in torch_npu.npu_dynamic_quant_asymmetric(x.npu()))
    assert (y.amin(1) == -128).all()
    assert (y.amax(1) == 127).all()
    back = (y - offset.unsqueeze(1)) * scale.unsqueeze(1)
    assert ((back - x.double()).abs() <= 0.501 * scale.unsqueeze(1)).all()


def test_a_scale_is_packed_for_the_matrix_unit() -> None:
    scale, offset = torch.tensor([2.5, -0.3]), torch.tensor([3.4, -300.0])
    plain = torch_npu.npu_trans_quant_param(scale.npu()).cpu().tolist()
    whole = torch_npu.npu_trans_quant_param(scale.npu(), offset.npu()).cpu().tolist()
    for number, shift, one, other in zip(scale.tolist(), (3, -256), plain, whole, strict=True):
        bits = int.from_bytes(struct.pack("<f", number), "little")
        assert one == (bits >> 13 << 13) + 2**46
        assert other == one + (shift % 512) * 2**37


@pytest.mark.parametrize("layout", ["SBH", "TND"])
def test_two_parts_of_attention_make_the_whole(layout: str) -> None:
    heads, length, depth = 2, 5, 8
    q, k, v = (torch.randn(heads, n, depth, generator=torch.Generator().manual_seed(n)) for n in (length, 12, 13))
    v = v[:, :12]
    parts = []
    for keys in (slice(0, 7), slice(7, 12)):
        scores = q @ k[:, keys].mT
        most = scores.amax(-1)
        weights = (scores - most.unsqueeze(-1)).exp()
        out = weights @ v[:, keys] / weights.sum(-1, keepdim=True)  # heads, length, depth
        stats = [each.unsqueeze(-1).repeat(1, 1, 8) for each in (most, weights.sum(-1))]
        if layout == "SBH":
            parts += [out.transpose(0, 1).reshape(length, 1, -1), *(each.unsqueeze(0) for each in stats)]
        else:
            parts += [out.transpose(0, 1), *(each.transpose(0, 1).contiguous() for each in stats)]
    options = {"input_layout": layout} | ({"input_softmax_layout": "TND"} if layout == "TND" else {})
    if layout == "TND":
        options["actual_seq_qlen"] = torch.tensor([2, length]).npu()
    made, most, _ = torch_npu.npu_ring_attention_update(*(each.npu() for each in parts), **options)
    whole = torch.softmax(q @ k.mT, -1) @ v
    torch.testing.assert_close(made.cpu().view(length, heads, depth), whole.transpose(0, 1), rtol=1e-5, atol=1e-5)
    largest = (q @ k.mT).amax(-1)
    torch.testing.assert_close(most.cpu()[..., 0].squeeze(), largest if layout == "SBH" else largest.T)


def test_the_best_boxes_of_all_classes_are_merged() -> None:
    boxes = torch.tensor([[[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]]]).float().unsqueeze(2)
    scores = torch.tensor([[[0.9, 0.1], [0.8, 0.7], [0.6, 0.95]]])
    found = torch_npu.npu_batch_nms(boxes.npu(), scores.npu(), 0.3, 0.5, 4, 4)
    best, marks, classes, count = (each.cpu() for each in found)
    assert best[0, :, 0].tolist() == [20, 0, 1, 20]
    assert marks[0].tolist() == pytest.approx([0.95, 0.9, 0.7, 0.6])
    assert (classes[0].tolist(), count.tolist()) == ([1, 0, 1, 0], [4])


def test_dropout_by_a_mask_of_bytes_keeps_what_it_should() -> None:
    made = torch_npu.dropout_with_byte_mask(torch.ones(200, 200).npu(), p=0.2, train=True).cpu()
    assert set(made.unique().tolist()) == {0.0, 1.25}
    assert 0.78 < (made > 0).double().mean() < 0.82
