"""What of a model a captured graph refuses, with its lines."""

from __future__ import annotations

from pytest_ascend.environment.chips import DEFAULT, npu_of
from pytest_ascend.migration.analysis import Analysis, Operator
from pytest_ascend.records.census import FALLBACK, NATIVE


def operator(name: str, standing: str = NATIVE, phase: str = "forward", shapes: str = "float32[4]") -> Operator:
    return Operator(
        name=f"aten::{name}", standing=standing, calls={phase: 1}, flops=0, moved_bytes=0,
        signatures=((shapes, 1),), places=("model.py:7",),
    )  # fmt: skip


def test_reads_masks_and_fallbacks_are_listed_with_their_lines_and_nothing_else() -> None:
    found = Analysis(
        chip=npu_of(DEFAULT),
        operators=(
            operator("_local_scalar_dense"),
            operator("index.Tensor", shapes="float32[4], bool[4]"),
            operator("index.Tensor", shapes="float32[4], int64[4]"),
            operator("linalg_eig", FALLBACK),
            operator("_local_scalar_dense", phase="optimizer"),
            operator("add.Tensor"),
        ),
    ).uncapturable
    assert [each.split(" ")[0] for each in found] == [
        "aten::_local_scalar_dense",
        "aten::index.Tensor",
        "aten::linalg_eig",
    ]
    assert all("(model.py:7)" in each for each in found)
