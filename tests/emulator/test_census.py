"""The census of the torch_npu that is installed, against what the dispatcher itself says that it would call."""

from __future__ import annotations

import json
import re

import pytest
import torch
from click.testing import CliRunner

from pytest_ascend.migration.census import take
from pytest_ascend.migration.commands import census
from pytest_ascend.records.census import Census

#: Where the dispatcher's table says that a kernel comes from, and what it says of it; the kinds that this may be.
SOURCES = (
    (r"torch_npu/.*\[kernel\]", {"native"}),
    (r"\[math kernel\]", {"composite-implicit"}),
    (r"RegisterCompositeExplicitAutogradNonFunctional.*\[default", {"composite-nonfunctional", "fallback"}),
    (r"RegisterCompositeExplicitAutograd_.*\[default", {"composite-explicit"}),
    (r"VariableFallbackKernel.*\[backend fallback\]", {"fallback", "missing", "other-layout"}),
)
#: torch_npu 2.13.0 with torch 2.13.0.
COUNTS = {
    ("aten", "native"): 1496,
    ("aten", "composite-implicit"): 697,
    ("aten", "composite-explicit"): 784,
    ("aten", "composite-nonfunctional"): 78,
    ("aten", "other-layout"): 29,
    ("aten", "fallback"): 310,
    ("aten", "missing"): 135,
    ("npu", "native"): 420,
    ("npu", "composite-implicit"): 5,
}


@pytest.fixture(scope="module")
def taken() -> Census:
    return take()


def _from_the_table(name: str) -> set[str]:
    table = torch._C._dispatch_dump_table(name)
    line = next(line for line in table.splitlines() if line.startswith("PrivateUse1:"))
    return next(kinds for pattern, kinds in SOURCES if re.search(pattern, line))


def test_every_kind_is_that_of_the_kernel_that_the_dispatcher_would_call(taken: Census) -> None:
    wrong = {name: kind for name, kind in taken.operators.items() if kind not in _from_the_table(name)}
    assert not wrong


def test_torch_npu_2_13_has_the_known_numbers(taken: Census) -> None:
    if (taken.torch.partition("+")[0], taken.torch_npu) != ("2.13.0", "2.13.0"):
        pytest.skip("the numbers are of torch_npu 2.13.0")
    assert taken.counts() == COUNTS


def test_what_is_missing_raises_and_what_falls_back_computes(taken: Census) -> None:
    x = torch.ones(2, 2).npu()
    assert (taken.operators["aten::linear_backward"], taken.operators["aten::lgamma"]) == ("missing", "fallback")
    with pytest.raises(NotImplementedError, match="linear_backward"):
        torch.ops.aten.linear_backward(x, x, x, [True, True, True])
    assert torch.lgamma(x).cpu().tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_command_takes_the_census_of_this_process(taken: Census) -> None:
    done = CliRunner().invoke(census, ["--json"], catch_exceptions=False)
    assert Census.from_dict(json.loads(done.stdout)) == taken
