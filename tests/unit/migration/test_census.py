"""Files of a census, and what stands in the way of taking one."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend import emulator
from pytest_ascend.device import npu
from pytest_ascend.environment.chips import Chip, npu_of
from pytest_ascend.environment.signs import Sign
from pytest_ascend.errors import DeviceUnavailable, EmulatorUnavailable, UsageError
from pytest_ascend.migration import census
from pytest_ascend.records.census import Census
from pytest_ascend.system.files import write_file

SMALL = Census(
    torch="2.13.0",
    torch_npu="2.13.0",
    torch_npu_commit="",
    operators={"aten::sin": "native", "aten::add.Tensor": "fallback"},
)
ASCEND = (Sign("device file", "/dev/davinci0"),)


def test_a_census_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_file(tmp_path / "new" / "census.json", census.encode(SMALL))
    assert census.read(tmp_path / "new" / "census.json") == SMALL


def test_equal_censuses_are_equal_bytes() -> None:
    turned = Census(**{**SMALL.stack, "operators": dict(reversed(SMALL.operators.items()))})
    assert census.encode(SMALL) == census.encode(turned)
    assert list(json.loads(census.encode(SMALL))["operators"]) == ["aten::add.Tensor", "aten::sin"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"{}",
        b"[" * 100_000,
        census.encode(SMALL).encode()[:-30],
        census.encode(SMALL).encode().replace(b'"schema": 1', b'"schema": NaN'),
        census.encode(SMALL).encode().replace(b"aten::sin", b"aten::add.Tensor"),
    ],
    ids=lambda content: repr(content[-20:]),
)
def test_a_file_that_is_no_census_is_one_clear_message(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "census.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"cannot read the census .*census\.json: .+\n  hint: give a file"):
        census.read(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.json: No such file"):
        census.read(tmp_path / "nothing.json")


def test_what_might_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match=r"regular file|directory"):
            census.read(path)


def test_a_file_that_is_too_large_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "census.json", census.encode(SMALL))
    monkeypatch.setattr(census, "LIMIT_BYTES", 100)
    with pytest.raises(UsageError, match="at most 100 are read"):
        census.read(tmp_path / "census.json")


def test_where_nothing_can_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        write_file(tmp_path / "file" / "census.json", census.encode(SMALL))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what would be brought up, and bring up nothing."""
    noted: list[str] = []
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(emulator, "activate", lambda: noted.append("emulated"))
    monkeypatch.setattr(npu.Npu, "load", lambda _: noted.append("torch_npu"))
    return noted


def test_the_emulated_cann_is_for_machines_without_a_sign_of_ascend(calls: list[str]) -> None:
    census.bring_up(look=lambda: ())
    assert calls == ["emulated", "torch_npu"]


def test_with_a_sign_of_ascend_its_own_cann_is_used(calls: list[str]) -> None:
    census.bring_up(look=lambda: ASCEND)
    assert calls == ["torch_npu"]


def test_the_emulated_cann_can_be_asked_for(calls: list[str]) -> None:
    census.bring_up(emulated=True, look=lambda: ASCEND)
    assert calls == ["emulated", "torch_npu"]


def test_without_torch_npu_there_is_nothing_to_count(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceUnavailable, match="torch_npu is not installed here"):
        census.bring_up(look=lambda: ())
    assert not calls


def _raising(error: Exception) -> Any:
    def load(*_: object) -> None:
        raise error

    return load


def test_a_torch_npu_that_does_not_load_is_named_with_the_way_out(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npu.Npu, "load", _raising(ImportError("libhccl.so: cannot open shared object file")))
    with pytest.raises(DeviceUnavailable, match=r"ImportError: libhccl\.so[^\n]*\n  hint: .*--emulated"):
        census.bring_up(look=lambda: ASCEND)


def test_an_emulated_cann_that_does_not_come_up_speaks_for_itself(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "activate", _raising(EmulatorUnavailable("no C compiler", hint="get one")))
    with pytest.raises(EmulatorUnavailable, match="no C compiler"):
        census.bring_up(look=lambda: ())


def on(chip: str) -> dict[str, Any]:
    operators = {"aten::mm": "native", "aten::__lshift__.Tensor": "native", "npu::nobodys": "native"}
    taken = Census(
        torch="2.13.0", torch_npu="2.13.0", torch_npu_commit="", operators={**operators, "aten::sin": "fallback"}
    )
    return census.on_chip(taken, npu_of(chip))


def test_native_operators_are_looked_up_on_a_chip() -> None:
    found = on("310P3")
    assert found["documented"] == 2  # neither the one without a page, nor the one that the CPU computes
    assert not found["bfloat16"]
    assert list(found["objections"]) == ["aten::__lshift__.Tensor"]
    assert "is not documented for it" in found["objections"]["aten::__lshift__.Tensor"][0]


def test_what_is_said_of_a_chip_is_in_the_file_and_the_file_is_a_census(tmp_path: Path) -> None:
    write_file(tmp_path / "census.json", census.encode(SMALL, on("310P3")))
    assert census.read(tmp_path / "census.json") == SMALL
    on_chip = json.loads((tmp_path / "census.json").read_bytes())["on_chip"]
    assert on_chip["documented"] == 2
    assert on_chip["float32_products"] == {"matrix products": "float16", "convolutions": "float16"}


def test_a_chip_without_documentation_is_one_clear_message() -> None:
    with pytest.raises(UsageError, match=r"documentation has nothing on it\n  hint: choose one of Ascend910A"):
        census.on_chip(SMALL, Chip(name="Ascend999", memory_bytes=1, source=""))
