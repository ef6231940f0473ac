"""Choosing a device: the NPU where there is any sign of one, never the emulated device by itself beside a sign."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.device.npu import Npu
from pytest_ascend.device.probe import Answer
from pytest_ascend.emulator import EmulatorSettings
from pytest_ascend.environment.identity import Identity
from pytest_ascend.environment.signs import Sign
from pytest_ascend.errors import DeviceUnavailable, UsageError
from pytest_ascend.plugin import preparation
from pytest_ascend.plugin.preparation import Prepared

SIGN = Sign("environment variable", "ASCEND_HOME_PATH=/opt/cann")


@pytest.fixture(autouse=True)
def no_emulated_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests in this process may have switched on."""
    monkeypatch.delenv("PYTEST_ASCEND_EMULATED", raising=False)


def prepare(
    text: str,
    *,
    look: Callable[[], Sequence[Sign]] = preparation.signs,
    probe: Callable[[int], Answer] = preparation.ask,
    settings: EmulatorSettings = EmulatorSettings(),  # noqa: B008 - it is frozen
    isolation: str = "off",
) -> Prepared:
    """Prepare a device on a machine with these signs, whose NPUs answer so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "signs", look)
        patch.setattr(preparation, "ask", probe)
        return preparation.prepare(text, settings=settings, isolation=isolation)


def well(_: int) -> Answer:
    return Answer(chip="Ascend910B3", count=8)


def ill(_: int) -> Answer:
    return Answer(failure="ImportError: libhccl.so: cannot open shared object file: No such file or directory")


def never(_: int) -> Answer:
    raise AssertionError("nobody is to be asked")


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Note what the emulated device is asked for, in its place."""
    asked: list[object] = []

    def stand_in(*arguments: object, **settings: object) -> Prepared:
        asked.append(arguments)
        return prepare("cpu")

    monkeypatch.setattr(preparation, "_emulated", stand_in)
    return asked


def test_auto_takes_the_npu_where_there_is_a_sign_and_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Npu, "pin_numerics", lambda self: {"conv.allow_hf32": False})
    prepared = prepare("auto", look=lambda: (SIGN,), probe=well)
    assert prepared.device.label == "npu:0"
    assert not prepared.device.emulated
    assert prepared.chip == "Ascend910B3"
    assert prepared.numerics == {"conv.allow_hf32": False}


def test_an_npu_that_answers_another_process_only_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Npu) -> dict[str, bool]:
        raise RuntimeError("507033")

    monkeypatch.setattr(Npu, "pin_numerics", broken)
    with pytest.raises(DeviceUnavailable, match="does not come up in this process: RuntimeError: 507033"):
        prepare("npu", look=tuple, probe=well)


def test_what_is_behind_an_error_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Npu) -> dict[str, bool]:
        raise RuntimeError("failed to load the backend") from ModuleNotFoundError("No module named 'yaml'")

    monkeypatch.setattr(Npu, "pin_numerics", broken)
    with pytest.raises(DeviceUnavailable, match="backend, because of ModuleNotFoundError: No module named 'yaml'"):
        prepare("npu", look=tuple, probe=well)


def test_what_a_stack_warns_of_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch_npu 2.5.1 has an invalid escape sequence, which a project that has warnings raised cannot compile."""

    def warns(self: Npu) -> dict[str, bool]:
        warnings.warn("invalid escape sequence", SyntaxWarning, stacklevel=1)
        return {}

    monkeypatch.setattr(Npu, "pin_numerics", warns)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("error")
        assert prepare("npu", look=tuple, probe=well).device.label == "npu:0"
    assert [str(each.message) for each in said] == ["invalid escape sequence"]


def test_auto_stops_where_there_is_a_sign_and_no_npu_answers() -> None:
    with pytest.raises(DeviceUnavailable) as raised:
        prepare("auto", look=lambda: (SIGN,), probe=ill)
    message = str(raised.value)
    assert raised.value.exit_code == 6
    assert "ASCEND_HOME_PATH=/opt/cann" in message
    assert "libhccl.so" in message
    assert "set_env.sh" in message
    assert "--ascend-device=emulated" in message


def test_auto_takes_the_emulated_device_where_there_is_no_sign(emulated: list[object]) -> None:
    prepare("auto", look=tuple, probe=never)
    assert len(emulated) == 1


def test_the_emulated_device_can_be_asked_for_beside_signs(emulated: list[object]) -> None:
    prepare("emulated:1", look=lambda: (SIGN,), probe=never, settings=EmulatorSettings(faults=("x",)))
    assert len(emulated) == 1


def test_what_runs_on_the_emulated_cann_is_never_called_an_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED", "1")
    with pytest.raises(DeviceUnavailable, match="runs on the emulated CANN"):
        prepare("npu", look=lambda: (SIGN,), probe=well)


def test_auto_on_the_emulated_cann_is_the_emulated_device(
    monkeypatch: pytest.MonkeyPatch, emulated: list[object]
) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_EMULATED", "1")
    prepare("auto", look=lambda: (SIGN,), probe=never)
    assert len(emulated) == 1


def test_an_npu_that_is_asked_for_is_never_replaced() -> None:
    with pytest.raises(DeviceUnavailable, match="npu:2 was asked for") as raised:
        prepare("npu:2", look=tuple, probe=ill)
    assert "no sign of Ascend on this machine" in str(raised.value)


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        ("it gave no answer within 180 s", "npu-smi"),
        ("ImportError: libascend_hal.so: cannot open shared object file", "driver"),
        ("undefined symbol: aclrtFoo", "belong together"),
        ("torch_npu sees 0 NPUs", "ASCEND_RT_VISIBLE_DEVICES"),
        ("ModuleNotFoundError: No module named 'torch_npu'", "install the torch-npu"),
        ("something new", "python -c"),
    ],
)
def test_the_hint_fits_the_failure(failure: str, remedy: str) -> None:
    with pytest.raises(DeviceUnavailable) as raised:
        prepare("npu", look=tuple, probe=lambda _: Answer(failure=failure))
    assert remedy in raised.value.hint


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_faults_are_for_the_emulated_device_only(device: str) -> None:
    with pytest.raises(UsageError, match="--ascend-emulate=fault=stale-add is for the emulated device"):
        prepare(device, settings=EmulatorSettings(faults=("stale-add",)), look=tuple, probe=well)


def test_there_are_not_as_many_emulated_devices_as_one_likes() -> None:
    with pytest.raises(UsageError, match="at most 16"):
        prepare("emulated:16")


def test_emulated_memory_is_for_the_emulated_device_only() -> None:
    with pytest.raises(UsageError, match="--ascend-emulate=memory"):
        prepare("cpu", settings=EmulatorSettings(memory_bytes=2**30))


def test_emulated_numerics_are_for_the_emulated_device_only() -> None:
    with pytest.raises(UsageError, match="--ascend-emulate=numerics"):
        prepare("cpu", settings=EmulatorSettings(numerics="chip:1"))


def test_on_the_cpu_torch_does_not_load_torch_npu_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "torch_npu")
    assert prepare("cpu").device.label == "cpu"
    assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"


@pytest.mark.parametrize("has_cann", [True, False])
def test_libraries_that_look_for_torch_npu_find_none_where_it_cannot_be_loaded(
    has_cann: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> None:
        assert name == "libhccl.so"
        if not has_cann:
            raise OSError(name)

    monkeypatch.setattr(preparation.ctypes, "CDLL", load)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "torch_npu")
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.delitem(sys.modules, "torch_npu")
    prepare("cpu")
    assert ("torch_npu" in sys.modules) is not has_cann
    assert sys.modules.pop("torch_npu", None) is None


def test_emulated_devices_are_known_by_all_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[EmulatorSettings] = []
    said = {"chip": "Ascend910B3", "numerics": {"conv.allow_hf32": False}, "physical": [4, 5], "buses": ["C1", "C2"]}
    monkeypatch.setattr("pytest_ascend.emulator.activate", asked.append)
    monkeypatch.setattr(preparation, "_device_facts", lambda *_: said)
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    prepared = prepare("emulated:1", look=tuple, probe=never)
    assert [each.devices for each in asked] == [2]
    assert (prepared.device.label, prepared.device.emulated, prepared.indices) == ("emulated npu:1", True, (1, 0))
    assert (prepared.chip, prepared.numerics, prepared.notice) == ("Ascend910B3", said["numerics"], "")
    assert [(each.index, each.physical, each.bus) for each in prepared.identities] == [(0, 4, "C1"), (1, 5, "C2")]
    assert prepare("auto", look=tuple, probe=never).notice == "This machine shows no sign of Ascend."


@pytest.mark.parametrize(
    ("asked_for", "devices", "prepared"),
    [("emulated", 0, 2), ("emulated:1", 1, 2), ("emulated:4", 3, 5), ("emulated", 3, 3)],
)
def test_there_are_at_least_two_emulated_devices_and_the_one_asked_for(
    asked_for: str, devices: int, prepared: int, emulated: list[tuple[Any, ...]]
) -> None:
    prepare(asked_for, look=tuple, settings=EmulatorSettings(devices=devices))
    ((request, settings),) = emulated
    assert settings.devices == prepared > request.index


@pytest.mark.parametrize(
    ("device", "isolation", "isolated"),
    [("cpu", "off", False), ("cpu", "auto", False), ("cpu", "on", True), ("npu", "off", False)],
)
def test_children_alone_use_a_device_that_can_die(
    device: str, isolation: str, isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Npu, "pin_numerics", lambda self: {})
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        prepared = prepare(device, isolation=isolation, look=tuple, probe=well)
        assert (prepared.isolated, torch.get_num_threads()) == (isolated, 1 if isolated else 3)
        assert prepared.threads == (3 if isolated else 1)
    finally:
        torch.set_num_threads(threads)


def test_the_device_that_was_asked_for_is_the_first_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Npu, "pin_numerics", lambda self: {})
    prepared = prepare("npu:2", look=tuple, probe=lambda _: Answer(chip="Ascend910B3", count=4))
    assert prepared.indices == (2, 0, 1, 3)
    assert prepared.identity(99) == Identity(index=99, logical=99)


def test_a_gpu_is_the_only_device_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ascend.device.open_cuda", lambda index: (Device(index, kind="cuda"), f"GPU {index}"))
    prepared = prepare("cuda:3", look=tuple, probe=never)
    assert (prepared.device, prepared.chip, prepared.indices) == (Device(3, kind="cuda"), "GPU 3", (3,))
