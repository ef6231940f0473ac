"""``--ascend-explore``: generated calls for as long as is asked, and findings as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.forks import apart

Lines = Callable[..., list[dict[str, Any]]]

#: A kernel that loses the last element of a large sum: no call of the table is as large.
FAULT = """
def lossy(correct):
    def add(self, other, alpha):
        found = correct(self, other, alpha).contiguous().clone()
        if found.numel() > 3000:
            found.view(-1)[-1] += 1
        return found
    return add

LOSSY = {"aclnnAdd": lossy}
"""


def test_a_fault_of_large_tensors_is_found_shrunk_and_written_down(
    pytester: pytest.Pytester, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(faults=FAULT)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    result = apart(
        pytester,
        "--ascend",
        "--ascend-device=emulated",
        "--ascend-emulate=fault=faults:LOSSY",
        "--ascend-explore=1m",
        "-k",
        "ops/add/explore/float32",
    )
    assert result.ret == 1, result.stdout.str()
    (record,) = lines("record")
    assert record["outcome"] == "failed"
    assert "made smaller" in record["detail"]
    (path,) = (pytester.path / "ascend-report" / "findings").iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["operator"], found["dtype"]) == ("add", "float32")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ascend-explore=never"], "*--ascend-explore=never: invalid duration*"),
        (["--ascend-explore=seed=3"], "*--ascend-explore=seed=... has no effect without a time*"),
        (["--ascend-explore=1m", "--ascend-explore=seed=-1"], "*--ascend-explore=seed=-1: not a seed*"),
        (["--ascend-explore=1m", "--ascend-suite=ops"], "*--ascend-explore and --ascend-suite exclude each other*"),
    ],
)
def test_what_makes_no_sense_is_one_message(pytester: pytest.Pytester, options: list[str], says: str) -> None:
    result = apart(pytester, "--ascend", "--ascend-device=cpu", *options)
    assert result.ret == 4
    result.stderr.fnmatch_lines([says])
