"""A framework's library under ``--ascend-library``: correct operators pass, and wrong ones are found."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_ascend.errors import UsageError
from pytest_ascend.operators import Operator, cases_of, libraries
from pytest_ascend.operators.checks import check
from pytest_ascend.operators.failing import program
from pytest_ascend.operators.reference import Definition
from pytest_ascend.operators.target import Target
from pytest_ascend.run.comparing import Disagreement, PrecisionCompare
from tests.emulator import framework_library

NAME, DEVICE = "vllm_ascend._C", torch.device("npu:0")
#: Operators in each namespace of the table that the library of this test lacks.
ABSENT = "_C_ascend.weak_ref_tensor"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Operator]]:
    package, utils = ModuleType("vllm_ascend"), ModuleType("vllm_ascend.utils")
    package.__path__ = []
    utils.enable_custom_op = lambda: True  # type: ignore[attr-defined]
    for module in (package, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "vllm_ascend.vllm_ascend_C", framework_library)
    monkeypatch.setattr(libraries, "_LOADED", {})
    libraries.load(NAME)
    yield {each.name.partition(".")[2]: each for each in libraries.operators()}
    framework_library.WRONG.clear()


def judge(operator: Operator, *properties: str) -> None:
    for case in cases_of(operator):
        if case.property in properties and case.dtype in (operator.dtypes[0], "bfloat16"):
            target = Target(case, operator, Definition(operator), DEVICE, libraries.origin(operator.name))
            check(target, PrecisionCompare(lambda _: None))


def test_correct_operators_pass_and_those_that_are_absent_are_left_out(library: dict[str, Operator]) -> None:
    assert library.keys() == framework_library.CORRECT.keys() - {"store_kv_block_metadata"}
    assert ABSENT not in library
    for operator in library.values():
        judge(operator, "forward", "repeat")
    assert libraries.header()[0].startswith(f"library: {NAME}: {len(library)} operators are judged; ")


def of_next(name: str, place: int) -> Callable[..., Any]:
    """Return an operator that takes the next row of one of its tensors."""
    return lambda *given: framework_library.CORRECT[name](
        *(each.roll(1, 0) if number == place else each for number, each in enumerate(given))
    )


def neighbours(places: Tensor, q: Tensor, k: Tensor, size: int, cache: Tensor, neox: bool) -> tuple[Tensor, Tensor]:
    def turned(x: Tensor, back: bool) -> Tensor:
        heads = x.view(len(x), -1, size)
        made = heads.unflatten(-1, (2, -1) if back else (-1, 2)).transpose(-1, -2)  # type: ignore[no-untyped-call]
        return made.reshape(x.shape)

    made = framework_library.CORRECT["rotary_embedding"](places, turned(q, False), turned(k, False), size, cache, neox)
    return turned(made[0], True), turned(made[1], True)


def half_away(x: Tensor, gamma: Tensor, *rest: Any) -> Any:
    numbers, scale = framework_library.CORRECT["npu_rms_norm_dynamic_quant"](x, gamma, *rest)
    return numbers + (numbers > 0), scale


#: Operator -> a wrong one.
FAULTS: dict[str, Callable[..., Any]] = {
    "bgmv_shrink": of_next("bgmv_shrink", 2),
    "bgmv_expand": lambda x, w, i, y, start, n: framework_library.CORRECT["bgmv_expand"](x, w, i, y, 0, n),
    "sgmv_shrink": of_next("sgmv_shrink", 3),
    "sgmv_expand": of_next("sgmv_expand", 1),
    "batch_matmul_transpose": of_next("batch_matmul_transpose", 1),
    "swap_blocks": lambda x, y, z: y.index_copy_(0, z[:, 0].clamp(max=4), x[z[:, 1]]),
    "transpose_kv_cache_by_block": lambda *_: None,
    "store_kv_block": of_next("store_kv_block", 2),
    "get_masked_input_and_mask": lambda *x: framework_library.CORRECT["get_masked_input_and_mask"](*x[:3], 0, *x[4:]),
    "rotary_embedding": neighbours,
    "npu_add_rms_norm_bias": lambda a, b, g, c, e=1e-6: framework_library.CORRECT["npu_add_rms_norm_bias"](
        a, b, g, 0 * c
    ),
    "npu_gemma_rms_norm": lambda x, g, e=1e-6: framework_library.CORRECT["npu_gemma_rms_norm"](x, g - 1),
    "moe_gating_top_k": lambda *x: framework_library.CORRECT["moe_gating_top_k"](*x[:4], 0, *x[5:]),
    "npu_rms_norm_dynamic_quant": half_away,
}


def test_wrong_operators_are_found(library: dict[str, Operator], tmp_path: Path) -> None:
    for name, wrong in FAULTS.items():
        framework_library.WRONG[name] = wrong
        with pytest.raises(Disagreement, match=name):
            judge(library[name], "forward")
    operator = library["bgmv_shrink"]
    case = cases_of(operator)[0]
    target = Target(case, operator, Definition(operator), DEVICE, libraries.origin(operator.name))
    text = program(target, tmp_path, None)
    assert "libraries.operator('vllm_ascend._C', '_C_ascend.bgmv_shrink').function" in text
    ast.parse(text)


def test_other_arguments_than_those_of_the_definition_are_named(
    library: dict[str, Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = torch.ops._C_ascend.unknown
    monkeypatch.setattr(torch.ops._C_ascend, "bgmv_shrink", apply, raising=False)
    with pytest.raises(NotImplementedError, match=r"bgmv_shrink takes \(x\); its definition is of \(x, weight"):
        library["bgmv_shrink"].function()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vllm_ascend.C", "no such library is known\n.*did you mean vllm_ascend._C"),
        ("sgl_kernel_npu", "sgl_kernel_npu cannot be imported: ModuleNotFoundError"),
    ],
)
def test_unknown_and_absent_libraries_are_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        libraries.load(name)
