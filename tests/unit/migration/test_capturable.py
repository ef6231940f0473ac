"""What of a model a captured graph refuses, with its lines."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from pytest_ascend.environment.chips import DEFAULT, npu_of
from pytest_ascend.migration.analysis import Analysis, Operator
from pytest_ascend.migration.running import Step, trace
from pytest_ascend.migration.target import TargetModel
from pytest_ascend.migration.traced import analyse, graph_breaks
from pytest_ascend.records.census import FALLBACK, NATIVE


def operator(name: str, standing: str = NATIVE, phase: str = "forward", what: str = "") -> Operator:
    return Operator(
        name=f"aten::{name}", standing=standing, calls={phase: 1}, flops=0, moved_bytes=0,
        signatures=(), places=("model.py:7",), refused=((what, "model.py:7"),) if what else (),
    )  # fmt: skip


def test_reads_masks_and_fallbacks_are_listed_with_their_lines_and_nothing_else() -> None:
    found = Analysis(
        chip=npu_of(DEFAULT),
        operators=(
            operator("_local_scalar_dense"),
            operator("index.Tensor", what="mask"),
            operator("index.Tensor"),
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


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        several = (nn.LSTM(4, 4), nn.RNN(4, 4), nn.GRU(4, 4), nn.GRUCell(4, 4), nn.LSTMCell(4, 4))
        for place, each in enumerate(several):
            self.add_module(str(place), each)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_recurrent_modules_that_torch_npu_refuses_in_a_capture_are_listed_by_name() -> None:
    empty = Analysis(chip=npu_of(DEFAULT), model=f"{__name__}:Recurrent")
    how = {"batches": (), "dtype": None, "autocast": None, "optimizer": "none", "training": False, "compiled": False}
    found = analyse(empty, lambda _: NATIVE, ("cpu",), inputs="2x4", **how).uncapturable
    assert [each.partition(" is ")[0] for each in found] == ["0 (DynamicRNN)", "2 (DynamicGRUV2)", "4 (DynamicRNNV2)"]


class Breaking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        if y.sum() > 0:
            y = y + 1
        return y * y.mean().item()


@pytest.mark.parametrize("reads_values", [True, False])
def test_graph_breaks_have_their_line_and_what_to_do(*, reads_values: bool) -> None:
    first = Breaking.forward.__code__.co_firstlineno
    found = graph_breaks(TargetModel(name="x", model=Breaking(), args=(torch.ones(4),)), reads_values=reads_values)
    assert re.match(rf"test_capturable.py:{first + 2} breaks the graph .*: decides by a tensor's value", found[0])
    if reads_values:
        assert re.match(rf"test_capturable.py:{first + 4} breaks the graph .*: reads a value on the host", found[1])
    assert graph_breaks(TargetModel(name="x", model=nn.Linear(4, 4), args=(torch.ones(4),)), reads_values=False) == ()


class Copying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.tensor([2.0], device=x.device)
        y = y[[0, 1]] + torch.ones(4, device=x.device) * torch.tensor(2.0)
        kept = (y > 0)[torch.zeros(2, dtype=torch.long, device=x.device)]
        y = y @ self.weight + torch.arange(4).to(x.device)
        return y.double().float() * kept


def test_copies_from_the_host_have_their_lines_and_the_backward_pass_those_of_the_forward() -> None:
    first = Copying.forward.__code__.co_firstlineno
    target = TargetModel(name="x", model=Copying(), args=(torch.ones(4, 4),))
    uses = trace(target, Step(optimizer="none"), ("meta",)).uses
    refused = [each for use in uses.values() for each in use.refused]
    assert refused == [("copy", f"test_capturable.py:{first + 4}")]
    assert [*uses["backward", "aten::mm"].places] == [f"test_capturable.py:{first + 4}"]
