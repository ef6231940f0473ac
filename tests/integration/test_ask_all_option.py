"""Operators that torch_npu has no kernel for are asked once, or with ``--ascend-ask-all`` in all their cases."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict.merge import merge
from tests.integration.conftest import Run

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("torch_npu"), reason="needs torch_npu")

Lines = Callable[..., list[dict[str, Any]]]

#: heaviside has no kernel; relu has one, and an expectation that is told otherwise is outlived.
CASES = """
import pytest
import torch
from pytest_ascend.records.case import Case

OPERATORS = {"heaviside": lambda x: torch.heaviside(x, x), "relu": torch.relu}
CASES = [
    Case(suite="mine", subject=name, property="forward", dtype=dtype)
    for name in OPERATORS for dtype in ("float32", "float16", "int32")
]

@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.subject}-{case.dtype}")
def test_mine(case, npu_device, precision_compare):
    x = torch.tensor([-2, 0, 2]).to(getattr(torch, case.dtype))
    call = OPERATORS[case.subject]
    precision_compare(call(x.to(npu_device)).cpu(), call(x))
"""
ENTRY = {
    "cases": "mine/heaviside/*",
    "outcome": "fallback",
    "operators": ["aten::heaviside", "aten::heaviside.out"],
    "asked": "mine/heaviside/forward/float32",
    "reason": "no kernel for heaviside",
    "source": "census",
    "expires": "2999-01-01",
}
RELU = {**ENTRY, "cases": "mine/relu/*", "operators": ["aten::relu"], "asked": "mine/relu/forward/float32"}
ASKED, NOT_ASKED = "mine/heaviside/forward/float32", {f"mine/heaviside/forward/{each}" for each in ("float16", "int32")}


@pytest.fixture
def cases(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    return pytester.makepyfile(test_cases=CASES)


@pytest.fixture
def known(pytester: pytest.Pytester) -> Callable[..., str]:
    """Write known deviations and give the option that names them."""

    def write(*entries: dict[str, Any]) -> str:
        Path(pytester.path, "known.json").write_text(json.dumps({"schema": 1, "expectations": entries or [ENTRY]}))
        return "--ascend-expectations=known.json"

    return write


@pytest.fixture
def found(lines: Lines) -> Callable[..., dict[str, str]]:
    """Return the outcome of each case that was asked."""
    return lambda *folder: {line["case"]["id"]: line["outcome"] for line in lines("record", *folder)}


def left(lines: Lines, *folder: str) -> set[str]:
    [header] = lines("header", *folder)
    return {case["id"] for each in header.get("left_to_cpu", ()) for case in each["cases"]}


def test_one_case_is_asked_and_the_others_are_counted_and_said(
    ascend_apart: Run, cases: Path, known: Any, lines: Lines, found: Any, pytester: pytest.Pytester
) -> None:
    result = ascend_apart(known())
    assert result.ret == 0
    assert found()[ASKED] == "waived"
    assert (set(found()) & NOT_ASKED, left(lines)) == (set(), NOT_ASKED)
    assert len(lines("header")[0]["manifest"]) == lines("footer")[0]["records"] == 4
    result.stdout.fnmatch_lines(
        [
            "ascend: 2 more are not asked, as torch_npu has no kernel for them",
            "1 waived, 2 left to the CPU, 3 passed",
            "not asked: 2 cases without a kernel, as shown by 1 case (--ascend-ask-all)",
            "*3 of 4 cases passed, 1 is waived and 2 more are left to the CPU and not asked*",
        ]
    )
    page = Path(pytester.path, "ascend-report", "conformance.html").read_text()
    assert f"no kernel for heaviside; asked once: {ASKED}" in page


def test_all_of_them_are_asked_on_demand(ascend_apart: Run, cases: Path, known: Any, lines: Lines, found: Any) -> None:
    assert ascend_apart(known(), "--ascend-ask-all").ret == 0
    assert {found()[each] for each in NOT_ASKED} == {"waived"}
    assert left(lines) == set()


def test_a_case_that_is_named_is_asked(pytester: pytest.Pytester, cases: Path, known: Any, found: Any) -> None:
    named = [f"test_cases.py::test_mine[heaviside-{dtype}]" for dtype in ("int32", "float32")]
    assert pytester.runpytest_subprocess("--ascend", known(), *named).ret == 0
    assert found()["mine/heaviside/forward/int32"] == "waived"


def test_a_keyword_that_leaves_the_one_case_out_has_the_others_asked(
    ascend_apart: Run, cases: Path, known: Any, lines: Lines, found: Any
) -> None:
    assert ascend_apart(known(), "-k", "float16").ret == 0
    assert found() == {"mine/heaviside/forward/float16": "waived", "mine/relu/forward/float16": "passed"}
    assert left(lines) == set()


def test_an_operator_that_has_a_kernel_is_asked_in_all_cases_and_its_entry_refused(
    ascend_apart: Run, cases: Path, known: Any, lines: Lines, found: Any
) -> None:
    result = ascend_apart(known(ENTRY, RELU))
    assert result.ret == 1
    said = "outlived is the entry mine/relu/?* in *known.json: torch_npu has a kernel for aten::relu"
    result.stdout.fnmatch_lines([f"ascend: {said}; remove it", f"failed *remove the expectation; {said}"])
    assert [name for name, outcome in found().items() if outcome == "failed"] == [
        f"mine/relu/forward/{dtype}" for dtype in ("float32", "float16", "int32")
    ]
    assert left(lines) == NOT_ASKED


def test_a_wrong_result_of_the_cpu_fails_in_the_one_case_that_is_asked(
    ascend_apart: Run, cases: Path, known: Any, found: Any
) -> None:
    cases.write_text(CASES.replace(".cpu(), call(x))", ".cpu(), call(x) + (case.subject == 'heaviside'))"))
    assert ascend_apart(known()).ret == 1
    assert found()[ASKED] == "failed"


def test_shards_divide_what_is_asked_and_make_the_run(
    ascend_apart: Run, cases: Path, known: Any, lines: Lines, pytester: pytest.Pytester
) -> None:
    for index in (1, 2):
        ascend_apart(known(), f"--ascend-shard={index}/2", f"--ascend-report=part-{index}")
    parts = [left(lines, f"part-{index}") for index in (1, 2)]
    assert sorted(map(len, parts)) == [0, 2]
    whole = merge([read(pytester.path / f"part-{index}" / "run.jsonl") for index in (1, 2)], pytester.path / "whole")
    assert (whole.left, whole.total, whole.missing) == (2, 4, 0)


def test_workers_of_xdist_ask_the_same(ascend_apart: Run, cases: Path, known: Any, lines: Lines) -> None:
    pytest.importorskip("xdist")
    assert ascend_apart(known(), "--ascend-isolation=off", "-n2").ret == 0
    assert (left(lines), len(lines("record"))) == (NOT_ASKED, 4)


def test_a_run_is_resumed_and_asks_no_more(ascend_apart: Run, cases: Path, known: Any, lines: Lines) -> None:
    ascend_apart(known())
    log = Path("ascend-report", "run.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    assert ascend_apart(known(), "--ascend-resume").ret == 0
    assert (left(lines), len(lines("record"))) == (NOT_ASKED, 4)


def test_another_device_is_asked_everything(ascend: Run, cases: Path, known: Any, lines: Lines) -> None:
    ascend(known())
    assert (left(lines), len(lines("record"))) == (set(), 6)
