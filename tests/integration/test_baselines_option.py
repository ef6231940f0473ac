"""``--ascend-baselines`` and ``--ascend-baselines=update=yes``: goldens of one's own, written only when told to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def test_with_golden(pytester: pytest.Pytester) -> Path:
    return pytester.makepyfile(
        """
        import torch

        def test_block(npu_device, cpu_reference, precision_compare):
            x = torch.arange(6.0)
            expected = cpu_reference(torch.sin, x, golden="mine/block")
            precision_compare(torch.sin(x.to(npu_device)).cpu(), expected)
        """
    )


@pytest.fixture
def stored(ascend: Run, test_with_golden: Path, pytester: pytest.Pytester) -> Path:
    """Store the golden, and give its file."""
    assert ascend("--ascend-baselines=update=yes", "--ascend-baselines=goldens").ret == 0
    return pytester.path / "goldens/golden/mine/block.safetensors"


def test_a_stored_golden_is_read(ascend: Run, stored: Path) -> None:
    assert ascend("--ascend-baselines=goldens").ret == 0


def test_a_golden_that_is_not_there_is_an_error_that_names_it(
    ascend: Run, test_with_golden: Path, pytester: pytest.Pytester, lines: Lines
) -> None:
    pytester.mkdir("goldens")
    assert ascend("--ascend-baselines=goldens").ret == 1
    record = lines("record")[0]
    assert record["outcome"] == "errored"
    assert "goldens/golden" in record["reason"]


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:-1] + bytes([data[-1] ^ 1])])
def test_a_damaged_golden_is_an_error_that_names_the_file(
    ascend: Run, stored: Path, lines: Lines, damage: Callable[[bytes], bytes]
) -> None:
    stored.write_bytes(damage(stored.read_bytes()))
    assert ascend("--ascend-baselines=goldens").ret == 1
    record = lines("record")[0]
    assert record["outcome"] == "errored"
    assert str(stored) in record["reason"]


def test_testing_writes_no_goldens(ascend: Run, stored: Path) -> None:
    before = stored.stat().st_mtime_ns, stored.read_bytes()
    ascend("--ascend-baselines=goldens")
    assert (stored.stat().st_mtime_ns, stored.read_bytes()) == before


def test_a_folder_that_does_not_exist_is_one_message(ascend: Run, test_with_golden: Path) -> None:
    result = ascend("--ascend-baselines=nowhere")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --ascend-baselines=nowhere: there is no folder*"])
