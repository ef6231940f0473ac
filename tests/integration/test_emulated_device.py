"""On the emulated device: torch_npu itself runs, and what it lacks is neither passed nor failed nor skipped."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.run.case_context import MORE_THAN_HALVES
from tests.integration.conftest import Run

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("torch_npu"), reason="needs torch_npu")

Lines = Callable[..., list[dict[str, Any]]]

CASES = """
import torch

def test_right(npu_device, cpu_reference, precision_compare):
    assert npu_device.type == "npu"
    x = torch.linspace(-2, 2, 9)
    precision_compare(torch.relu(x.to(npu_device)).cpu(), cpu_reference(torch.relu, x))

def test_absent(npu_device, ascend_measure):
    torch.ops.npu.npu_anchor_response_flags(torch.rand(2, 4).to(npu_device), [8, 8], [2, 2], 9)

def test_on_the_cpu(npu_device, cpu_reference, precision_compare):
    x = torch.linspace(1, 2, 9)
    actual = torch.special.bessel_j0(x.to(npu_device)).cpu()
    precision_compare(actual, cpu_reference(torch.special.bessel_j0, x))

def test_too_large(npu_device):
    torch.empty(2**27, device=npu_device)
"""


@pytest.fixture
def cases(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    return pytester.makepyfile(test_cases=CASES)


def test_each_case_has_its_outcome_and_the_device_is_named_loudly(
    ascend_started: Run, cases: Path, lines: Lines
) -> None:
    result = ascend_started("--ascend-emulate=memory=256MiB", "-v")
    result.stdout.fnmatch_lines(
        [
            "ascend: emulated npu:0*",
            "*This machine shows no sign of Ascend. Emulated device: says nothing about any NPU.*",
            "*test_right PASSED*",
            "*test_absent NOT-EMULATED*",
            "*test_on_the_cpu FALLBACK*",
            "EMULATED DEVICE: SAYS NOTHING ABOUT ANY NPU.",
        ]
    )
    records = {line["node_id"].split("::")[1]: line for line in lines("record")}
    outcomes = {name: record["outcome"] for name, record in records.items()}
    assert outcomes == {
        "test_right": "passed",
        "test_absent": "not-emulated",
        "test_on_the_cpu": "fallback",
        "test_too_large": "errored",
    }
    assert records["test_on_the_cpu"]["fallbacks"] == ["aten::special_bessel_j0"]
    assert "out of memory" in records["test_too_large"]["reason"]
    stack = lines("header")[0]["stack"]
    assert "emulated" in [each["id"] for each in lines("header")[0]["doctor"]["findings"]]
    assert (stack["device"], stack["emulated"]) == ("npu", True)
    assert stack["torch_npu_commit"]


def test_what_is_not_emulated_ends_with_zero(ascend_apart: Run, cases: Path) -> None:
    assert ascend_apart("-k", "right or absent").ret == 0


def test_workers_of_xdist_have_it_too(ascend_apart: Run, cases: Path, lines: Lines) -> None:
    pytest.importorskip("xdist")
    assert ascend_apart("-n1", "-k", "right or absent").ret == 0
    assert {line["outcome"] for line in lines("record")} == {"passed", "not-emulated"}


def test_a_planted_fault_is_caught_and_said_at_the_top(
    ascend_apart: Run, cases: Path, pytester: pytest.Pytester, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(wrong='LEAKY = {"aclnnRelu": lambda correct: lambda self: correct(self) + 0.01}\n')
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    result = ascend_apart("--ascend-emulate=fault=wrong:LEAKY", "-k", "right")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["ascend: FAULTS ARE PLANTED: wrong:LEAKY", "failed *user/test_cases.py::test_right*"])
    assert lines("record")[0]["outcome"] == "failed"
    assert lines("header")[0]["options"]["faults"] == ["wrong:LEAKY"]


ON_A_310P = """
import pytest
import torch

def test_exp(npu_device, precision_compare):
    x = torch.linspace(-4, 4, 999)
    precision_compare(x.to(npu_device).exp(), x.double().exp(), reference_runs=x.exp())

@pytest.mark.parametrize("by", [1, 1.004])
def test_product(npu_device, precision_compare, by):
    x = torch.linspace(-1, 1, 64 * 64).sin().view(64, 64)
    y = x.to(npu_device)
    precision_compare(y @ y * by, x.double() @ x.double(), reference_runs=x @ x, accumulation=64)

X = torch.linspace(-1, 1, 64 * 64).sin().view(64, 64)
BETWEEN = sum(float(x[7] @ x[9]) for x in (X.double(), X.half().double())) / 2

def decided(x):  # half precision decides otherwise for one pair
    return (x @ x.T > BETWEEN).float()

@pytest.mark.parametrize("by", [1, 1.5])
def test_decided(npu_device, precision_compare, by):
    precision_compare(decided(X.to(npu_device)) * by, decided(X.double()), reference_runs=decided(X))

def test_overflow(npu_device, ascend_measure):
    torch.full((3,), 12.0, dtype=torch.float16, device=npu_device).exp()
    ascend_measure("largest", 1)

def test_step(npu_device, precision_compare):
    weight = torch.nn.Parameter(torch.ones(2, device=npu_device))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.5), torch.amp.GradScaler("npu")
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    precision_compare(weight.detach(), torch.full((2,), 0.5), standard="binary")
"""


def test_an_old_chip_is_excused_for_products_alone_and_for_no_overflow_of_an_earlier_case(
    ascend_apart: Run, pytester: pytest.Pytester, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_cases=ON_A_310P)
    pytester.makepyfile(coarse='EXP = {"aclnnExp": lambda correct: lambda x: correct(x).half().float()}\n')
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    for options, exp in (((), "passed"), (("--ascend-emulate=fault=coarse:EXP",), "failed")):
        ascend_apart("--ascend-emulate=chip=310P", *options)
        outcomes = {line["node_id"].split("::")[1]: line["outcome"] for line in lines("record")}
        expected = {"test_exp": exp, "test_product[1]": "waived", "test_overflow": "passed", "test_step": "passed"}
        # What a small error becomes is seen by reference runs in half precision alone.
        expected |= {"test_decided[1]": "waived", "test_decided[1.5]": "failed", "test_product[1.004]": "failed"}
        assert outcomes == expected
        (scaled,) = (line for line in lines("record") if line["node_id"].endswith("test_product[1.004]"))
        assert MORE_THAN_HALVES in scaled["detail"]
        assert MORE_THAN_HALVES in scaled["verdicts"][0]["message"]


def test_numerics_of_a_chip_are_said_and_written_down(ascend_apart: Run, cases: Path, lines: Lines) -> None:
    result = ascend_apart("--ascend-emulate=numerics=chip:2", "-k", "right")
    result.stdout.fnmatch_lines(["ascend: emulated npu:0*numerics chip:2*"])
    assert lines("header")[0]["options"]["emulated_numerics"] == "chip:2"


def test_numerics_that_do_not_exist_are_one_message(ascend_apart: Run, cases: Path) -> None:
    result = ascend_apart("--ascend-emulate=numerics=gpu")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: there are no numerics 'gpu'*"])


def test_a_fault_that_does_not_exist_is_one_message(ascend_apart: Run, cases: Path) -> None:
    result = ascend_apart("--ascend-emulate=fault=nonsense")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: there is no fault 'nonsense'*"])
    assert "Traceback" not in str(result.stderr)


def test_a_fault_is_not_planted_in_another_device(ascend_apart: Run, cases: Path) -> None:
    result = ascend_apart("--ascend-device=cpu", "--ascend-emulate=fault=nonsense")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --ascend-emulate=fault=nonsense is for the emulated device*"])
