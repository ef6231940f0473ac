"""Products of matrices in every form of their arguments, and what the cube unit reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_ascend.emulator.kernels import linear

from .both import integers
from .kernel import T, by_name, called, close, floats

# --- products ---


@pytest.mark.parametrize(("cube", "half"), [(0, False), (1, False), (2, True), (3, False)])
def test_a_cube_unit_reads_rounded_numbers(cube: int, half: bool) -> None:
    x = torch.tensor([1 + 2.0**-11 + 2.0**-12, 1 + 2.0**-12, -(1 + 3 * 2.0**-12), 0.1, math.nan, math.inf])
    (found,) = linear.narrowed(cube, x)
    assert found.dtype == x.dtype
    if half:
        wanted = x.half().float()
    elif cube == 3:
        unit = 2.0**-11
        wanted = x.clone()
        wanted[:3] = torch.tensor([1 + 2 * unit, 1.0, -(1 + 2 * unit)])  # ties go to even
        wanted[3] = round(0.1 / 2.0**-15) * 2.0**-15
    else:
        wanted = x
    assert found.nan_to_num(7.0).equal(wanted.nan_to_num(7.0))
    assert linear.narrowed(cube, torch.arange(3))[0].dtype == torch.int64
    double = torch.tensor([0.1], dtype=torch.float64)
    assert linear.narrowed(cube, double)[0].equal(double)  # the cube unit does not take it


@pytest.mark.parametrize("chip", [None, SimpleNamespace(halves=False), SimpleNamespace(halves=True)])
def test_a_chip_of_halves_rounds_where_it_may(chip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "emulated_family", lambda: chip)
    x = torch.tensor([0.1])
    takes_halves = chip is not None and chip.halves
    assert linear.narrowed(0, x)[0].equal(x)
    assert linear.narrowed(1, x)[0].equal(x.half().float() if takes_halves else x)


A, B = floats(3, 4), floats(4, 5, seed=1)
X = {"": floats(3, 5, seed=2), "wide": floats(3, 5, seed=2).double()}


@pytest.mark.parametrize("name", ["", "16cast32", "add", "mul", "relu", "gelu_erf", "gelu_tanh"])
@pytest.mark.parametrize("biased", [False, True])
def test_products_with_what_follows_them(biased: bool, name: str) -> None:
    bias, x3 = floats(5, seed=3) if biased else None, floats(3, 5, seed=2)
    then: dict[str, Callable[[T], T]] = {
        "add": lambda y: y + x3, "mul": lambda y: y * x3, "relu": F.relu, "gelu_erf": F.gelu,
        "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    }  # fmt: skip
    made = A @ B + (0 if bias is None else bias)
    third = x3 if name in {"add", "mul"} else None
    close(called("FusedMatmul", A, B, bias, third, name), then.get(name, lambda y: y)(made))
    with pytest.raises(NotImplementedError, match="'sub'"):
        called("FusedMatmul", A, B, bias, None, "sub")


def test_products_by_name_take_operands_as_they_lie() -> None:
    batch, other = floats(2, 3, 4), floats(2, 4, 5, seed=1)
    for turned in ((False, False), (True, False), (False, True), (True, True)):
        given = [each.mT if is_turned else each for each, is_turned in zip((batch, other), turned, strict=True)]
        close(by_name("BatchMatMul")(*given, adj_x1=turned[0], adj_x2=turned[1]), batch @ other)
        flat = [each[0] for each in given]
        how = {"transpose_x1": turned[0], "transpose_x2": turned[1]}
        close(by_name("MatMul")(*flat, **how), batch[0] @ other[0])
        close(by_name("MatMul")(*flat, floats(5), **how), batch[0] @ other[0] + floats(5))


def test_products_of_permuted_batches() -> None:
    x1, x2 = floats(3, 2, 4), floats(4, 2, 5, seed=1)
    found = called("TransposeBatchMatMul", x1, x2, None, None, [1, 0, 2], [1, 0, 2], [1, 0, 2])
    close(found, torch.einsum("mbk,kbn->mbn", x1, x2))
    for given in ({"bias": x1}, {"scale": x1}):
        with pytest.raises(NotImplementedError, match="bias and scale"):
            called("TransposeBatchMatMul", x1, x2, permX1=[0, 1, 2], permX2=[0, 1, 2], permY=[0, 1, 2], **given)


@pytest.mark.parametrize("together", [0, 2, 3])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize("version", ["", "V4", "V5"])
def test_products_of_groups(version: str, counted: int, biased: bool, together: int) -> None:
    x, weight = floats(6, 4), floats(3, 4, 5, seed=1)
    bias = floats(3, 5, seed=2) if biased else None
    ends = [1, 1, 6]
    parts = [x[0:1], x[1:1], x[1:6]]
    wanted = [part @ weight[i] + (0 if bias is None else bias[i]) for i, part in enumerate(parts)]
    given = {"x": [x], "weight": [weight], "bias": None if bias is None else [bias], "split": together}
    if version:
        groups = torch.tensor([1, 0, 5] if counted else ends)
        found = called(f"GroupedMatmul{version}", **given, groups=groups, kind=0, counted=counted)
    else:
        found = called("GroupedMatmul", **given, ends=ends)
    close(found, [torch.cat(wanted)] if together else wanted)
    lists = given | {"x": parts, "weight": list(weight), "bias": None if bias is None else list(bias)}
    again = called(f"GroupedMatmul{version}", **lists, **({"kind": -1} if version else {"ends": []}))
    close(again, [torch.cat(wanted)] if together else wanted)


def test_groups_that_are_not_emulated_are_refused() -> None:
    x, some, none = [floats(2, 4)], [torch.ones(1)], [torch.empty(0)]
    given = {"x": x, "weight": [floats(4, 5)]}
    for name in ("scaleOptional", "offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional"):
        for version in ("", "V4"):
            if version and name in ("scaleOptional", "antiquantScaleOptional"):  # those it multiplies with
                found = called(f"GroupedMatmul{version}", **given, kind=-1, **{name: [torch.full((5,), 2.0)]})
                close(found, [2 * given["x"][0] @ given["weight"][0]])
                continue
            with pytest.raises(NotImplementedError, match="quantized"):
                called(f"GroupedMatmul{version}", **given, **{name: some})
        called("GroupedMatmulV4", **given, kind=-1, **{name: none})
    with pytest.raises(NotImplementedError, match="quantized"):
        called("GroupedMatmulV4", **given, perTokenScaleOptional=some)
    for odd in ({"kind": 2}, {"kind": 0, "actType": 1}):
        with pytest.raises(NotImplementedError, match="only groups of rows"):
            called("GroupedMatmulV4", **given, **odd)


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "fastgelu": lambda x: x * torch.sigmoid(1.702 * x)}


@pytest.mark.parametrize("biases", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_feed_forward_network(name: str, biases: tuple[bool, bool]) -> None:
    x, weight1, weight2 = floats(3, 4), floats(4, 6, seed=1), floats(6, 5, seed=2)
    bias1, bias2 = (floats(size, seed=size) if asked else None for size, asked in zip((6, 5), biases, strict=True))
    inner = ACTIVATIONS[name](x @ weight1 + (0 if bias1 is None else bias1))
    wanted = inner @ weight2 + (0 if bias2 is None else bias2)
    close(called("FFNV2", x=x, weight1=weight1, weight2=weight2, bias1=bias1, bias2=bias2, activation=name), wanted)


@pytest.mark.parametrize("are_ends", [False, True])
def test_each_expert_feeds_its_rows_forward(are_ends: bool) -> None:
    x, weight1, weight2 = floats(7, 4), floats(3, 4, 6, seed=1), floats(3, 6, 5, seed=2)
    bias1, bias2 = floats(3, 6, seed=3), floats(3, 5, seed=4)
    wanted = torch.zeros(7, 5)  # the last row is of no expert
    for expert, (start, end) in enumerate(((0, 2), (2, 2), (2, 6))):
        inner = F.relu(x[start:end] @ weight1[expert] + bias1[expert])
        wanted[start:end] = inner @ weight2[expert] + bias2[expert]
    found = called(
        "FFNV2", x=x, weight1=weight1, weight2=weight2, expertTokens=[2, 2, 6] if are_ends else [2, 0, 4],
        bias1=bias1, bias2=bias2, activation="relu", tokensIndexFlag=are_ends,
    )  # fmt: skip
    close(found, wanted)


@pytest.mark.parametrize("packed", [False, True])
def test_a_feed_forward_network_in_int8(packed: bool) -> None:
    x, weight1, weight2 = (integers(*shape, low=-9, dtype=torch.int8) for shape in ((3, 4), (4, 6), (6, 5)))
    deq1, deq2, scale, offset = floats(6).abs() / 50, floats(5, seed=1), torch.tensor([3.0]), torch.tensor([1.0])
    inner = (F.relu((x.double() @ weight1.double()) * deq1) * 3 + 1).round().clamp(-128, 127)
    wanted = (inner @ weight2.double()) * deq2

    def bits(scales: T) -> T:
        return scales.view(torch.int32).long() if packed else scales

    found = called(
        "FFNV2", x=x, weight1=weight1, weight2=weight2, scale=scale, offset=offset, deqScale1=bits(deq1),
        deqScale2=bits(deq2), activation="relu",
    )  # fmt: skip
    close(found, wanted.float())


@pytest.mark.parametrize(("packed", "wanted"), [(True, 64), (False, 65)])
def test_scales_of_the_matrix_unit_make_the_layer_between_float16(packed: bool, wanted: int) -> None:
    x, weight1 = torch.tensor([[127, 33]], dtype=torch.int8), torch.tensor([[16], [1]], dtype=torch.int8)
    one = torch.ones(1).view(torch.int32).long() if packed else torch.ones(1)
    found = called(  # 127 * 16 + 33 = 2065 is 2064 in float16, of which a 32nd is 64.5, and rounds to even
        "FFNV2", x=x, weight1=weight1, weight2=torch.ones(1, 1, dtype=torch.int8), scale=torch.tensor([1 / 32]),
        deqScale1=one, deqScale2=one, activation="relu",
    )  # fmt: skip
    assert found.item() == wanted


def test_a_feed_forward_network_with_weights_in_int8() -> None:
    x, weight1, weight2 = floats(3, 4), integers(4, 6, dtype=torch.int8), integers(6, 5, dtype=torch.int8)
    scales, shifts = (floats(6), floats(5, seed=1)), (floats(6, seed=2), floats(5, seed=3))
    inner = F.relu(x @ ((weight1 + shifts[0]) * scales[0]))
    found = called(
        "FFNV2", x=x, weight1=weight1, weight2=weight2, antiquantScale1=scales[0], antiquantScale2=scales[1],
        antiquantOffset1=shifts[0], antiquantOffset2=shifts[1], activation="relu",
    )  # fmt: skip
    close(found, inner @ ((weight2 + shifts[1]) * scales[1]))


@pytest.mark.parametrize(("beta", "alpha"), [(None, None), (2, None), (None, 3), (0.5, 0.25)])
def test_outer_products_are_added(beta: float | None, alpha: float | None) -> None:
    x, a, b = floats(3, 4), floats(3, seed=1), floats(4, seed=2)
    wanted = (1 if beta is None else beta) * x + (1 if alpha is None else alpha) * torch.outer(a, b)
    out = torch.empty(3, 4)
    called("Addr", x, a, b, beta, alpha, out=out)
    close(out, wanted)
    called("InplaceAddr", x, a, b, beta, alpha)
    close(x, wanted)


def test_products_are_added_in_place_and_vectors_with_their_factors() -> None:
    x = floats(3, 5)
    wanted = 0.5 * x + 2 * (A @ B)
    called("InplaceAddmm", x, A, B, 0.5, 2)
    close(x, wanted)
    out, v = torch.empty(3), floats(4, seed=5)
    called("Addmv", floats(3), A, v, 2, 0.5, out=out)
    close(out, 0.5 * floats(3) + 2 * (A @ v))
    rounded = floats(3, 5)
    called("InplaceAddmm", rounded, A, B, 1, 1, 2)
    close(rounded, floats(3, 5) + A.half().float() @ B.half().float())
