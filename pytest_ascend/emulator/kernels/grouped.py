"""Products of many matrices in one operator, and feed-forward layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  as everybody calls it

from pytest_ascend.emulator.registry import Family

family = Family("grouped")
T = torch.Tensor
Lists = list[T]

#: groupType: what of the first operand is divided among the matrices.
_NOTHING, _ROWS = -1, 0

#: splitItem: these give one result for all rows.
_ONE_RESULT = (2, 3)

_SCALES = (
    "TensorList scaleOptional, TensorList offsetOptional, TensorList antiquantScaleOptional,"
    " TensorList antiquantOffsetOptional"
)
_OPERANDS = f"TensorList x, TensorList weight, TensorList bias, {_SCALES}"
_OF_V4 = (
    f"{_OPERANDS}, TensorList perTokenScaleOptional, Tensor groups, TensorList activationInputOptional,"
    " TensorList activationQuantScaleOptional, TensorList activationQuantOffsetOptional, int64 split, int64 kind,"
    " int64 counted, int64 actType"
)
_OUTPUTS = "out TensorList y, out TensorList activationFeatureOut, out TensorList dynQuantScaleOut"


def _matrices(weight: Lists) -> Lists:
    return list(weight[0]) if len(weight) == 1 and weight[0].dim() == 3 else weight


def _row_groups(x: Lists, ends: list[int] | None) -> Iterator[T]:
    """Yield the rows of each group: the tensors as they are, or the rows up to each end."""
    if ends is None or len(x) > 1:
        yield from x
        return
    for start, end in zip([0, *ends], ends, strict=False):
        yield x[0][start:end]


def _multiply(x: Lists, weight: Lists, bias: Lists | None, ends: list[int] | None, *, together: bool) -> Lists:
    biases = _matrices(bias) if bias and bias[0].dim() > 1 else bias
    made = [rows.float() @ matrix.float() for rows, matrix in zip(_row_groups(x, ends), _matrices(weight), strict=True)]
    if biases:
        made = [rows + added.float().view(1, -1) for rows, added in zip(made, biases, strict=True)]
    return [torch.cat(made)] if together else made


def _given(lists: Lists | None) -> Lists | None:
    """Return a list that has tensors: torch_npu passes a tensor without elements where there is none."""
    return lists if lists and lists[0] is not None and lists[0].numel() else None


@family.kernel_of_some(f"aclnnGroupedMatmul({_OPERANDS}, IntArray ends, int64 split, out TensorList y)")
def grouped_matmul(
    x: Lists, weight: Lists, bias: Lists | None, ends: list[int] | None, split: int,
    scaleOptional: Lists | None, offsetOptional: Lists | None, antiquantScaleOptional: Lists | None,  # noqa: N803
    antiquantOffsetOptional: Lists | None,  # noqa: N803
) -> Lists:  # fmt: skip
    _refuse(scaleOptional, offsetOptional, antiquantScaleOptional, antiquantOffsetOptional)
    return _multiply(x, weight, _given(bias), ends or None, together=split in _ONE_RESULT)


def _refuse(*quantized: Lists | None) -> None:
    if any(_given(each) for each in quantized):
        raise NotImplementedError("quantized operands are not implemented")


def _grouped_v4(*given: Any) -> tuple[Lists, None, None]:
    x, weight, bias, *quantized = given[:8]
    groups, split, kind, counted, activation = given[8], *given[12:16]
    _refuse(*quantized)
    if kind not in (_NOTHING, _ROWS) or activation:
        raise NotImplementedError("only groups of rows, without an activation, are implemented")
    ends = None if groups is None else groups.cumsum(0) if counted else groups
    made = _multiply(
        x,
        weight,
        _given(bias),
        None if ends is None else ends.tolist(),
        together=split in _ONE_RESULT,
    )
    return made, None, None


family.op(f"aclnnGroupedMatmulV4({_OF_V4}, {_OUTPUTS})", _grouped_v4)
family.op(f"aclnnGroupedMatmulV5({_OF_V4}, IntArray tuningConfig, {_OUTPUTS})", _grouped_v4)


_ACTIVATIONS: Mapping[str, Callable[[T], T]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
}


@family.kernel_of_some(
    "aclnnFFNV2(Tensor x, Tensor weight1, Tensor weight2, IntArray expertTokens, Tensor bias1, Tensor bias2,"
    " Tensor scale, Tensor offset, Tensor deqScale1, Tensor deqScale2, Tensor antiquantScale1, Tensor antiquantScale2,"
    " Tensor antiquantOffset1, Tensor antiquantOffset2, text activation, int64 innerPrecise, bool tokensIndexFlag,"
    " out Tensor y)"
)
def ffn(x: T, weight1: T, weight2: T, bias1: T | None, bias2: T | None, activation: str) -> T:
    inner = F.linear(x.float(), weight1.float().t(), None if bias1 is None else bias1.float())
    inner = _ACTIVATIONS[activation](inner)
    return F.linear(inner, weight2.float().t(), None if bias2 is None else bias2.float())
