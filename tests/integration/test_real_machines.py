"""What real machines do that a laptop does not: cards by other numbers, forks, cards that are busy, slow or old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_ascend.isolation.cards import Locks
from tests.forks import apart
from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]

WELL = """
import ctypes, os, torch

def test_sees_its_card_alone(npu_device, precision_compare):
    assert os.environ["ASCEND_RT_VISIBLE_DEVICES"] == "1"
    assert (torch.npu.device_count(), npu_device.index) == (1, 0)
    precision_compare(torch.ones(3, device=npu_device), torch.ones(3, dtype=torch.float64))

def test_a_fork_of_what_uses_a_card_cannot_use_it(npu_device, precision_compare):
    precision_compare(torch.ones(3, device=npu_device), torch.ones(3, dtype=torch.float64))
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, str(ctypes.CDLL("libascendcl.so").aclrtSetDevice(0)).encode())
        os._exit(0)
    os.wait()
    assert os.read(reading, 99) == b"107002"
    os.abort()
"""


def test_a_container_with_two_cards_of_eight_that_are_busy_after_a_crash(
    pytester: pytest.Pytester, ascend_apart: Run, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(WELL)
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED_PHYSICAL", "4,6")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("PYTEST_ASCEND_CARD_LOCKS", str(pytester.path / "locks"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # the C compiler, and no debugger of this environment
    ascend_apart("--ascend-device=emulated", "--ascend-emulate=fault=recovering:seconds=2")
    events = lines("event")
    (first, *_, last) = [each for each in events if each["kind"] == "cards"]
    assert (first["when"], last["when"]) == ("before", "after")
    identity = {"index": 0, "logical": 1, "physical": 6, "npu": -1, "chip": -1, "bus": "0000:86:00.0"}
    assert first["cards"] == [identity]
    assert sorted(each.name for each in (pytester.path / "locks").iterdir()) == [
        "bus-0000-86-00.0.lock",
        "davinci6.lock",
    ]
    assert [each["outcome"] for each in lines("record")] == ["passed", "errored"]
    assert not [each for each in events if each["kind"] == "quarantined"]


def test_another_user_of_the_cards_is_one_message_and_code_6(
    pytester: pytest.Pytester, ascend_apart: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile("def test_case(npu_device, precision_compare): pass")
    monkeypatch.setenv("PYTEST_ASCEND_CARD_LOCKS", str(pytester.path / "locks"))
    others = Locks(pytester.path / "locks")
    assert len(others.take([["davinci0"], ["davinci1"]], 2)) == 2
    done = ascend_apart("--ascend-device=emulated")
    others.close()
    said = str(done.stdout) + str(done.stderr)
    assert done.ret == 6
    assert "other runs on this machine hold npu:0" in said
    assert "INTERNALERROR" not in said


def test_a_file_that_uses_the_device_while_it_is_imported_is_refused_by_name(
    pytester: pytest.Pytester, ascend_apart: Run
) -> None:
    pytester.makepyfile(test_at_once="import torch\nones = torch.ones(2).npu()\ndef test(npu_device): pass\n")
    result = ascend_apart("--ascend-device=emulated")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*test_at_once.py uses the NPU while it is imported*107002*"])


DIES = """
import torch

def test_dies(npu_device, precision_compare):
    precision_compare(torch.ones(7, device=npu_device).erfinv(), torch.ones(7, dtype=torch.float64).erfinv())
"""


def test_what_cann_logged_of_a_process_that_died_is_kept_with_the_case(
    pytester: pytest.Pytester, ascend_apart: Run, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(DIES)
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(pytester.path / "logs"))
    ascend_apart("--ascend-device=emulated", "--ascend-emulate=fault=crash:operator=Erfinv")
    (record,) = lines("record")
    assert record["outcome"] == "errored"
    assert record["detail"].count("[ERROR] RUNTIME(") == 2, "one line for each of the two attempts"
    assert str(pytester.path / "logs" / "debug" / "plog" / "plog-") in record["detail"]


def test_equal_bits_are_asked_where_determinism_was_asked_first(pytester: pytest.Pytester, lines: Lines) -> None:
    """On a chip whose products differ from call to call unless that is asked for before a thread's first one."""
    cases = [f"ops/{name}/repeat/float32" for name in ("mm", "layer_norm", "einsum", "sin")]
    measured = [f"stability/{name}/determinism/float32" for name in ("layer_norm", "conv2d.backward", "flip")]
    chosen = ["ops/mm/forward/float32", *cases, *measured]
    apart(
        pytester,
        *("--ascend", "--ascend-device=emulated", "--ascend-emulate=fault=noisy", "--ascend-level=full"),
        *("--ascend-suite=ops", "--ascend-suite=stability", "-k", " or ".join(chosen)),
    )
    records = {each["case"]["id"]: each for each in lines("record")}
    assert {name: each["outcome"] for name, each in records.items()} == dict.fromkeys(chosen, "passed")
    shares = [records[name]["measurements"]["differing_elements_share"] for name in measured]
    assert shares[0] > 0, "what is not promised is measured"
    assert shares[2] == 0
