"""How a run comes to its device: limits of the emulated one, what a child says of it, and the words of what fails."""

from __future__ import annotations

import os
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.device import Request
from pytest_ascend.device.npu import Npu
from pytest_ascend.device.probe import LIMIT_S, Answer
from pytest_ascend.emulator import EmulatorSettings
from pytest_ascend.emulator.choices import MOST_DEVICES
from pytest_ascend.environment.identity import Identity
from pytest_ascend.environment.signs import Sign
from pytest_ascend.errors import DeviceUnavailable, UsageError
from pytest_ascend.plugin import preparation
from pytest_ascend.plugin.preparation import Prepared
from pytest_ascend.run.outcomes import classify
from pytest_ascend.run.reference import CpuReference, cpu_reference

from .test_preparation import prepare

SAID = {"chip": "Ascend910B3", "numerics": {"a": 1}, "physical": list(range(16)), "buses": [""] * 16}


@pytest.fixture
def activated(monkeypatch: pytest.MonkeyPatch) -> list[EmulatorSettings]:
    """Note what the emulated device is started with, and start none."""
    asked: list[EmulatorSettings] = []
    monkeypatch.delenv("PYTEST_ASCEND_EMULATED", raising=False)
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("pytest_ascend.emulator.activate", asked.append)
    monkeypatch.setattr(preparation, "_device_facts", lambda *_: SAID)
    return asked


def emulated(index: int = 0, **settings: Any) -> Prepared:
    return preparation._emulated(Request(kind="emulated", index=index), EmulatorSettings(**settings), isolated=False)


def test_there_are_sixteen_emulated_devices_and_no_more(activated: list[EmulatorSettings]) -> None:
    assert MOST_DEVICES == 16
    assert emulated(15, devices=16).indices == tuple(range(16))
    with pytest.raises(UsageError, match="emulated:16: there are at most 16"):
        emulated(16, devices=16)
    with pytest.raises(UsageError, match="17 devices were asked for"):
        emulated(0, devices=17)
    assert [each.devices for each in activated] == [16]


@pytest.mark.parametrize(
    ("shown", "count"), [("", 2), ("0", 2), ("5,3", 6), ("5,x,²", 6), ("99", 16), ("1", 2), (" 4", 2)]
)
def test_devices_that_are_shown_exist(
    shown: str, count: int, activated: list[EmulatorSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", shown)
    emulated(devices=2)
    assert [each.devices for each in activated] == [count]


def test_the_settings_that_counted_are_kept(activated: list[EmulatorSettings]) -> None:
    made = emulated(devices=3)
    assert made.emulator == activated[0].resolved()
    assert (made.isolated, made.threads, made.notice) == (False, 1, "")


@pytest.mark.usefixtures("activated")
@pytest.mark.parametrize("isolated", [False, True])
def test_an_isolated_device_is_asked_in_a_child(isolated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    said = {**SAID, "chip": "of a child"}
    monkeypatch.setattr(
        preparation, "_device_facts_in_child", lambda npu, count: asked.append((npu.label, count)) or said
    )
    made = preparation._emulated(Request(kind="emulated", index=1), EmulatorSettings(devices=3), isolated=isolated)
    assert asked == [("emulated npu:1", 3)] * isolated
    assert made.chip == ("of a child" if isolated else "Ascend910B3")


def test_a_real_device_is_asked_in_a_child_for_its_numerics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_device_facts_in_child", lambda *_: {"numerics": {"b": 2}})
    monkeypatch.setattr(Npu, "pin_numerics", lambda self: {"c": 3})
    monkeypatch.setattr(
        preparation, "of_machine", lambda _, **given: (Identity(index=0, logical=0, physical=len(given["physical"])),)
    )
    monkeypatch.setattr(preparation, "ask", lambda _: Answer(chip="Ascend910B3", count=0))
    for isolated, numerics in ((True, {"b": 2}), (False, {"c": 3})):
        made = preparation._npu(Request(kind="npu", index=0), (), isolated=isolated)
        assert (made.numerics, made.chip, made.indices, made.device.label) == (numerics, "Ascend910B3", (0,), "npu:0")
        assert made.identities[0].physical == 0


class Child:
    """A child process that is this one."""

    def __init__(self, ask: Any) -> None:
        self.sent: dict[str, Any] = {}
        ask(self)

    def send(self, **answer: Any) -> None:
        self.sent = answer

    def result(self, limit_s: float) -> dict[str, Any]:
        assert limit_s == LIMIT_S
        return self.sent


def test_what_a_child_says_is_returned_and_what_fails_there_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[bool] = []
    npu: Any = SimpleNamespace(load=lambda: loaded.append(True))
    monkeypatch.setattr("pytest_ascend.isolation.process.start", Child)
    monkeypatch.setattr(preparation, "_device_facts", lambda *given: {"given": given})
    assert preparation._device_facts_in_child(npu, 3) == {"given": (npu, 3)}
    assert loaded == [True], "before the fork, so that children need not"

    def broken(*_: Any) -> dict[str, Any]:
        raise OSError("no driver")

    monkeypatch.setattr(preparation, "_device_facts", broken)
    with pytest.raises(RuntimeError, match=r"^OSError: no driver$"):
        preparation._device_facts_in_child(npu, 3)


def test_what_a_device_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "numbering", lambda count: {"physical": [count]})
    npu: Any = SimpleNamespace(chip=lambda: "chip", pin_numerics=lambda: {"a": 1})
    assert preparation._device_facts(npu, 3) == {"chip": "chip", "numerics": {"a": 1}, "physical": [3]}


def test_a_stack_that_does_not_come_up_says_why_with_every_cause() -> None:
    def broken() -> None:
        try:
            raise OSError("inner")
        except OSError as error:
            raise ImportError("outer") from error

    with pytest.raises(DeviceUnavailable) as raised, preparation._comes_up("npu:0", hint="do this"):
        broken()
    said = "npu:0 does not come up in this process: ImportError: outer, because of OSError: inner"
    assert str(raised.value).startswith(said)
    assert raised.value.hint == "do this"


def test_warnings_while_it_comes_up_are_no_failures() -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("error")
        with preparation._comes_up("npu:0", hint=""):
            warnings.warn("old CANN", stacklevel=1)
        with pytest.raises(UserWarning):
            warnings.warn("afterwards", stacklevel=1)


@pytest.mark.parametrize(("kind", "asked"), [("auto", "this machine shows signs"), ("npu", "npu:1 was asked for")])
def test_what_was_found_and_what_failed_are_told(kind: str, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "in_short", lambda _: ["one", "two"])
    found = (Sign("environment variable", "A=1"), Sign("file", "/b"))
    monkeypatch.setattr(preparation, "ask", lambda _: Answer(failure="it broke"))
    with pytest.raises(DeviceUnavailable, match=asked) as raised:
        preparation._npu(Request(kind=kind, index=1), found, isolated=True)
    assert [line.strip() for line in raised.value.message.splitlines()[1:]] == [
        *(f"found: {each}" for each in found), "failed: it broke", "doctor: one", "doctor: two",
    ]  # fmt: skip
    with pytest.raises(DeviceUnavailable, match="found: no sign of Ascend"):
        preparation._npu(Request(kind=kind, index=1), (), isolated=True)


def test_cards_have_a_number_whether_or_not_they_are_known() -> None:
    known = Identity(index=0, logical=4)
    made = Prepared(device=SimpleNamespace(), identities=(known,))  # type: ignore[arg-type]
    assert made.identity(0) is known
    assert made.identity(1) == Identity(index=1, logical=1)


@pytest.mark.parametrize(("devices", "indices"), [(0, (0,)), (1, (0,)), (3, (0, 1, 2))])
def test_a_processor_counts_as_many_devices_as_were_asked_for(
    devices: int, indices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    before = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
    assert preparation._other(Request(kind="cpu", index=0), devices).indices == indices
    assert os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == before, "without torch_npu nothing needs to be kept away"


def test_emulated_settings_are_refused_elsewhere_by_name() -> None:
    with pytest.raises(UsageError, match="and this run is on cuda") as raised:
        prepare("cuda", settings=EmulatorSettings(faults=("x",)))
    assert raised.value.hint == preparation.EMULATE


@pytest.mark.parametrize("isolation", ["auto", "on"])
def test_isolated_runs_say_how_many_threads_they_had_and_leave_one(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ASCEND_EMULATED", raising=False)
    given: list[bool] = []

    def stand_in(*_: Any, isolated: bool) -> Prepared:
        given.append(isolated)
        return Prepared(device=SimpleNamespace())  # type: ignore[arg-type]

    monkeypatch.setattr(preparation, "_emulated", stand_in)
    monkeypatch.setattr(preparation, "_npu", stand_in)
    threads = torch.get_num_threads()
    try:
        for device in ("emulated", "npu"):
            torch.set_num_threads(3)
            made = prepare(device, isolation=isolation, look=tuple, probe=lambda _: Answer(count=1))
            assert (made.isolated, made.threads, torch.get_num_threads()) == (True, 3, 1)
    finally:
        torch.set_num_threads(threads)
    assert given == [True, True]


# --- outcomes and references ---


@pytest.mark.parametrize(("length", "shown"), [(300, "x" * 300), (301, "x" * 299 + "…")])
def test_a_reason_has_at_most_300_characters(length: int, shown: str) -> None:
    outcome = classify(AssertionError("\n \n" + "x" * length + "\nmore"), emulated=False)
    assert (outcome.reason, outcome.detail) == (shown, "\n \n" + "x" * length + "\nmore")
    assert classify(AssertionError(), emulated=False).reason == "an assertion failed"


@pytest.mark.parametrize(
    ("error", "name"), [(NotImplementedError("x"), "unsupported"), (MemoryError("out of memory"), "errored")]
)
def test_outcomes_keep_the_whole_message(error: Exception, name: str) -> None:
    outcome = classify(error, emulated=False)
    said = f"{type(error).__name__}: {error}"
    assert (outcome.name, outcome.reason, outcome.detail) == (name, said, said)
    absent = classify(RuntimeError("x"), emulated=True, missing=["b", "a", "b"])
    assert (absent.reason, absent.detail) == ("not emulated: b, a", "RuntimeError: x")


def test_references_pass_on_every_argument(tmp_path: Any) -> None:
    from pytest_ascend.golden import GoldenStore

    x = torch.arange(3.0)
    reference = CpuReference(GoldenStore(tmp_path))
    assert reference(torch.add, x, x, alpha=3).equal((x * 4).double())
    assert cpu_reference(torch.add, x, x, alpha=3).equal((x * 4).double())
    assert repr(reference) == "<cpu_reference>"
    storing = CpuReference(GoldenStore(tmp_path), stores=True)
    stored = storing(torch.add, x, x, golden="mine/sum", alpha=2)
    assert CpuReference(GoldenStore(tmp_path))(torch.add, x, x, golden="mine/sum", alpha=2).equal(stored)
    manifest = GoldenStore(tmp_path).read("mine/sum")
    assert manifest.meta["form"] == "tensor"
    assert len(manifest.meta["made_from"]) == 64
