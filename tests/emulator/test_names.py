"""Which operators the emulated CANN has: to torch_npu, one without its name is missing, as on an old CANN."""

from __future__ import annotations

import ctypes
import os
from collections import Counter
from pathlib import Path

import pytest

from pytest_ascend.emulator.kernels import FAMILIES, _once, all_kernels, all_named

#: One name per line, in alphabetical order: to add an operator, add its line.
KNOWN = (Path(__file__).parent / "operators.txt").read_text(encoding="utf-8").split()


def test_no_operator_is_lost_and_none_is_added_unnoticed() -> None:
    left_out = [name for family in FAMILIES for name in family.left_out]  # as the installed torch lacks what they call
    found = Counter(each.name for each in (*all_kernels(), *all_named())) + Counter(left_out)
    assert found == Counter(KNOWN)
    assert sorted(KNOWN) == KNOWN


def test_an_operator_that_is_declared_twice_is_named() -> None:
    kernels = all_kernels()[:3]
    assert _once(iter(kernels)) == kernels
    with pytest.raises(ValueError, match=f"declared twice: {kernels[0].name}, {kernels[2].name}"):
        _once([*kernels, kernels[2], kernels[0]])


def test_a_function_that_only_an_ascend_950_has_is_found_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ctypes.CDLL(str(Path(os.environ["ASCEND_HOME_PATH"]) / "lib64" / "libopapi.so"))
    lookup = ctypes.CDLL(None).dlsym
    lookup.restype, lookup.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    found = {}
    for chip in ("Ascend910B1", "Ascend310P3", "Ascend950PR"):
        monkeypatch.setenv("PYTEST_ASCEND_EMULATED_CHIP", chip)
        found[chip] = [bool(lookup(library._handle, name)) for name in (b"aclnnLSTM", b"aclnnAdd")]
    assert found == {"Ascend910B1": [False, True], "Ascend310P3": [False, True], "Ascend950PR": [True, True]}
