"""Which CANN the emulated device answers as."""

from __future__ import annotations

import pytest

from pytest_ascend.emulator.choices import checked_cann, checked_chip, fitting_cann
from pytest_ascend.emulator.settings import EmulatorSettings
from pytest_ascend.errors import UsageError


@pytest.mark.parametrize(
    ("torch_npu", "cann"),
    [
        ("2.1.0.post13", "8.2.RC1"),
        ("2.5.1.post1", "8.2.RC1"),
        ("2.7.1", "8.3.RC1"),
        ("2.7.1.post11", "9.1.0"),  # not in the data: the newest of those for torch 2.7.1
        ("2.12.0", "9.1.0"),
        ("99.0.0", "9.1.0"),
    ],
)
def test_a_torch_npu_gets_the_cann_that_it_is_paired_with(torch_npu: str, cann: str) -> None:
    assert fitting_cann(torch_npu) == cann


@pytest.mark.parametrize("text", ["8.1.RC1", "8.5.0", "9.0.0.beta2"])
def test_a_release_is_taken_as_it_is(text: str) -> None:
    assert checked_cann(text) == text


@pytest.mark.parametrize("text", ["8", "8.1", "newest", "8.1.RC1; rm", "-8.1.0"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a release of CANN"):
        checked_cann(text)


@pytest.mark.parametrize("text", ["H100", "950:devices=8", "Ascend910B1 ", "950,devices"])
def test_what_is_no_chip_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there is no chip"):
        checked_chip(text)


def test_the_environment_decides_where_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED_DEVICES", "5")
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED_MEMORY", "2G")
    found = EmulatorSettings().resolved()
    assert (found.devices, found.memory_bytes) == (5, 2 << 30)
    assert EmulatorSettings(devices=3, memory_bytes=1 << 20).resolved().devices == 3


def test_memory_without_a_unit_is_bytes_and_so_few_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="16 bytes of memory") as found:
        EmulatorSettings(memory_bytes=16).resolved()
    assert "8GiB" in found.value.hint
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED_MEMORY", "16")
    with pytest.raises(UsageError, match="16 bytes of memory"):
        EmulatorSettings().resolved()


@pytest.mark.parametrize("text", ["0", "17", "-1", "many", "2.5"])
def test_a_number_of_devices_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED_DEVICES", text)
    with pytest.raises(UsageError, match="invalid number of devices"):
        EmulatorSettings().resolved()
