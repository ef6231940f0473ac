"""How a fault of the whole device is written, and when it happens."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_ascend.emulator import device_faults
from pytest_ascend.emulator.device_faults import inject
from pytest_ascend.emulator.faults import apply_faults
from pytest_ascend.emulator.kernels import all_kernels
from pytest_ascend.emulator.registry import Kernel
from pytest_ascend.errors import UsageError


@pytest.fixture(autouse=True)
def first_device(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SimpleNamespace(aclrtGetDevice=lambda _: 0, emu_logical=lambda device: device.value)
    monkeypatch.setattr(device_faults, "runtime", lambda: first)


def test_a_kind_alone_happens_from_the_first_call_on() -> None:
    assert device_faults.parse("poison").fits("aclnnAdd", [])


def test_settings_say_when() -> None:
    found = device_faults.parse("crash:operator=Add:after=2:times=1")
    calls = ["aclnnMul", "aclnnAdd", "aclnnAdd", "aclnnAdd", "aclnnAdd"]
    assert [found.fits(name, []) for name in calls] == [False, False, False, True, False]


def test_a_number_of_elements_singles_out_a_tensor() -> None:
    found = device_faults.parse("crash:numel=6")
    assert not found.fits("aclnnAdd", [torch.ones(7)])
    assert found.fits("aclnnAdd", [torch.ones(7), torch.ones(2, 3)])


def test_another_device_is_well() -> None:
    assert not device_faults.parse("crash:device=1").fits("aclnnAdd", [])


def test_a_fault_may_happen_to_one_process_only(tmp_path: Path) -> None:
    text = f"crash:once={tmp_path / 'spent'}"
    assert device_faults.parse(text).fits("aclnnAdd", [])
    assert not device_faults.parse(text).fits("aclnnAdd", [])


@pytest.mark.parametrize(
    "text",
    [
        "crash:when=now",
        "crash:after",
        "crash:after=-1",
        "crash:after=1e3",
        "slow:seconds=nan",
        "hang:gil=lost",
        "hang:by=x",
    ],
)
def test_a_setting_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=text.partition(":")[2].partition("=")[0]):
        device_faults.parse(text)


def test_an_operator_that_is_not_emulated_is_named() -> None:
    with pytest.raises(UsageError, match="aclnnNothing"):
        apply_faults(all_kernels(), ["crash:operator=Nothing"])


def test_all_kernels_keep_their_order() -> None:
    names = [kernel.name for kernel in all_kernels()]
    assert [kernel.name for kernel in apply_faults(all_kernels(), ["slow:seconds=0"])] == names


def test_a_share_makes_an_operator_longer_in_proportion() -> None:
    def body() -> None:
        time.sleep(0.01)

    add = next(kernel for kernel in all_kernels() if kernel.name == "aclnnAdd")
    faulty = inject({"aclnnAdd": replace(add, body=body)}, "slow:operator=Add:share=2")
    start = time.perf_counter()
    faulty["aclnnAdd"].body()
    assert time.perf_counter() - start >= 0.03


def test_a_fault_of_one_operator_leaves_the_others_alone() -> None:
    kernels = {kernel.name: kernel for kernel in all_kernels()}
    faulty = inject(kernels, "slow:operator=Add:share=2")
    assert [name for name in kernels if faulty[name] is not kernels[name]] == ["aclnnAdd"]


@pytest.mark.parametrize("scale", [2.0**-6, 1.0, 2.0**40])
def test_noise_leaves_sums_that_are_exact_in_every_order(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a card is well is asked by such products: their size must not matter."""
    monkeypatch.setattr(device_faults._first_asked, "deterministic", False, raising=False)
    numbers = torch.arange(11.0, 19.0).reshape(2, 4) * scale
    kernel = inject({kernel.name: kernel for kernel in all_kernels()}, "noisy")["aclnnMatmul"]

    def is_right(given: torch.Tensor) -> bool:
        result = torch.empty(2, 2)
        kernel.body(given, given.T, 0, out=result)
        return torch.equal(result, given @ given.T)

    assert all(is_right(numbers) for _ in range(9))
    assert not all(is_right(numbers / 3) for _ in range(9))


#: A kernel with one result, and one with a list of them: both write where they are told.
DOUBLED = dict.fromkeys(("aclnnExp", "aclnnForeachExp"), lambda correct: lambda x: _doubled(correct(x)))


def _doubled(result: Any) -> Any:
    return [each * 2 for each in result] if isinstance(result, list) else result * 2


@pytest.mark.parametrize(("name", "is_list"), [("aclnnExp", False), ("aclnnForeachExp", True)])
def test_a_wrong_kernel_writes_its_results_where_it_is_told(name: str, is_list: bool) -> None:
    kernel = next(kernel for kernel in all_kernels() if kernel.name == name)
    (faulty,) = apply_faults([kernel, *_others(name)], [f"{__name__}:DOUBLED"])[:1]
    given = [torch.zeros(3), torch.zeros(2, 2)]
    there = [torch.full_like(each, -1) for each in given]
    faulty.body(*((given,) if is_list else given[:1]), out=there if is_list else there[0])
    assert all((each == 2).all() for each in (there if is_list else there[:1]))


def _others(name: str) -> list[Kernel]:
    return [kernel for kernel in all_kernels() if kernel.name in DOUBLED and kernel.name != name]
