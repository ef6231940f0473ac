"""A case that ends in an error says of what kind, with CANN's code and a remedy; the raw message stays."""

from __future__ import annotations

import zlib
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest

from pytest_ascend.page.casedata import details_of
from pytest_ascend.runlog.writing import read
from pytest_ascend.verdict.summary import summarise
from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]


def test_an_error_is_diagnosed_in_the_record_and_on_the_terminal(
    pytester: pytest.Pytester, ascend: Run, lines: Lines
) -> None:
    pytester.makepyfile(
        """
        def test_core(npu_device, precision_compare):
            raise RuntimeError("aclrtSynchronizeStream, error code is 507015")
        """
    )
    output = ascend()
    output.stdout.fnmatch_lines(["*aicore-error: RuntimeError: aclrtSynchronizeStream, error code is 507015"])
    record = lines("record")[0]
    assert record["diagnosis"]["kind"] == "aicore-error"
    assert record["diagnosis"]["codes"][0]["says"] == "AICore exception"
    assert "ASCEND_LAUNCH_BLOCKING=1" in record["detail"]
    assert "raise RuntimeError" in record["detail"]
    summary = summarise(read(pytester.path / "ascend-report" / "run.jsonl"))
    assert "507015: AICore exception" in zlib.decompress(b64decode(details_of(summary))).decode()


def test_a_case_that_disagrees_is_no_error(pytester: pytest.Pytester, ascend: Run, lines: Lines) -> None:
    pytester.makepyfile(
        """
        def test_wrong(precision_compare):
            precision_compare(1, 2)
        """
    )
    ascend()
    assert "diagnosis" not in lines("record")[0]


def test_out_of_memory_says_where_it_went_and_what_would_fit(
    pytester: pytest.Pytester, ascend_apart: Run, lines: Lines
) -> None:
    pytester.makepyfile(
        """
        import torch
        from torch import nn

        def test_large(npu_device, precision_compare):
            model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(npu_device)
            model(torch.randn(20_000, 256).to(npu_device)).sum().backward()
        """
    )
    ascend_apart("--ascend-device=emulated", "--ascend-emulate=memory=64M")
    diagnosis = lines("record")[0]["diagnosis"]
    assert diagnosis["kind"] == "out-of-memory"
    ran, by_module, kept, largest, batch = diagnosis["findings"]
    assert ran == "it ran: 0 (Linear)"
    assert "1 78.1 MiB, 0 19.5 MiB" in kept
    assert "0 1 MiB, 2 1 MiB" in by_module
    assert "float32[20000, 256] 19.5 MiB" in largest
    fits = int(batch.split("up to ")[1].split()[0])
    # At its worst a row holds three tensors of 4 KiB (an activation, its gradient, the one before) and three of 1 KiB.
    assert 4_000 < fits < 4_300
