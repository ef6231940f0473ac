"""Every overload that torch_npu registers is asked by a suite, or left out for a reason that is written down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import torch

from pytest_ascend.device import dispatcher
from pytest_ascend.emulator.kernels import all_kernels, all_named

HERE = Path(__file__).parent
#: By reason; with a function of CANN where that is what the reason is about.
LEFT_OUT: dict[str, list[str] | dict[str, str]] = json.loads((HERE / "registered.json").read_text(encoding="utf-8"))
_ENDS = re.compile(r"(_(backward|forward|out|grad|data|input|v\d|functional))+$")


def essence(name: str) -> str:
    """Return what variants of an operator, and cases about it, have in common: relu for aten::relu_.out."""
    packet = name.rpartition(".")[2] if re.match(r"nn|special|linalg|fft|_C", name) else name.partition(".")[0]
    return _ENDS.sub("", re.sub(r"^(special|linalg|fft|npu)_", "", packet.strip("_")))


def unknown(registered: Iterable[str]) -> set[str]:
    """Return operators without a case whose subject is named for them, and without a reason."""
    cases = json.loads((HERE.parents[1] / "suites" / "manifest.json").read_text(encoding="utf-8"))["cases"]
    subjects = {each["subject"] for each in cases}
    asked = {essence(part) for each in subjects for part in (each, *re.split(r"[./]", each))}
    expected = {name for names in LEFT_OUT.values() for name in names}
    packets = {each.partition("::")[2].partition(".")[0] for each in registered}
    return {each for each in packets - expected if essence(each) not in asked}


def test_every_overload_is_asked_or_left_out_for_a_reason() -> None:
    torch.npu.current_device()
    registered = [each for each in dispatcher.names(["aten", "npu"]) if dispatcher.has_kernel(each, dispatcher.OWN)]
    assert len(registered) > 1000
    assert not unknown(registered), "add a case, or the reason for none to registered.json"


def test_an_operator_that_nobody_knows_is_found() -> None:
    assert unknown(["aten::relu_", "aten::add.out", "npu::npu_new_operator"]) == {"npu_new_operator"}


def _by_function(reason: str) -> set[str]:
    [found] = (each for why, each in LEFT_OUT.items() if reason in why and isinstance(each, dict))
    return set(found.values())


def test_functions_that_are_said_not_to_be_emulated_are_not() -> None:
    emulated = {each.name for each in (*all_kernels(), *all_named())}
    assert not _by_function("is not emulated") & emulated, "it is emulated now: add a case, or another reason"


def test_functions_that_are_said_to_be_held_against_a_golden_are() -> None:
    page = (HERE.parents[1] / "docs" / "evaluation" / "goldens.md").read_text(encoding="utf-8")
    judged = set(re.findall(r"^\| \S+ \| (\w+) \| [^|]*agrees", page, re.MULTILINE))
    assert _by_function("CANN's golden") <= judged


def test_operators_that_are_said_to_have_a_test_are_named_in_one() -> None:
    texts = "".join(each.read_text(encoding="utf-8") for each in HERE.glob("test_*.py"))
    [names] = (each for why, each in LEFT_OUT.items() if "a test of the emulated device" in why)
    assert not [each for each in names if each.rstrip("_") not in texts]


def test_no_operator_has_two_reasons() -> None:
    names = [each for group in LEFT_OUT.values() for each in group]
    assert len(names) == len(set(names))
