"""Errors of torch, torch_npu and CANN, as they are reported, are told apart; what no table knows is a plain bug."""

from __future__ import annotations

import pytest

from pytest_ascend.diagnosis import diagnose
from pytest_ascend.environment.codes import BY_NAME, CODES, codes_in

ACL = "InnerRun:torch_npu/csrc/framework/OpParamMaker.cpp:281 NPU function error: {call}, error code is {code}\n"
BELOW = "[ERROR] 2025-04-29-18:46:11 (PID:1, Device:0, RankID:-1) ERR00100 PTA call acl api failed\n"

REPORTED = [
    ("OutOfMemoryError", "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 64.00 GiB total)", "out-of-memory"),
    ("RuntimeError", ACL.format(call="aclrtMalloc", code=207001) + BELOW, "out-of-memory"),
    ("RuntimeError", "EL0004: Failed to allocate memory. EE9999: Inner Error!", "out-of-memory"),
    ("RuntimeError", ACL.format(call="aclrtSynchronizeStream", code=507015) + BELOW, "aicore-error"),
    ("RuntimeError", ACL.format(call="AclrtSynchronizeDevice", code=507035) + BELOW, "aicore-error"),
    ("RuntimeError", ACL.format(call="aclrtSetDevice", code=507033), "device-lost"),
    ("RuntimeError", "UCE ERROR. error code is 507053", "device-lost"),
    ("RuntimeError", "FORCE STOP.", "device-lost"),
    ("RuntimeError", "HcclAllreduce, error code is 6\nERR02005 DIST internal error\nEI0006: no socket", "hccl"),
    ("RuntimeError", ACL.format(call="sync", code=507048) + "EI0002: The wait execution times out.", "hccl"),
    ("RuntimeError", "EI0008: the HCCL versions differ", "version-mismatch"),
    ("ImportError", "libtorch_npu.so: undefined symbol: _ZN2at4", "version-mismatch"),
    ("ImportError", "libhccl.so: cannot open shared object file: No such file or directory", "version-mismatch"),
    ("RuntimeError", "aclnnFoo or aclnnFooGetWorkspaceSize not in libopapi.so", "version-mismatch"),
    ("RuntimeError", "call aclnnAdd failed, error code is 561103", "dtype"),
    ("RuntimeError", "\"addmm_impl_cpu_\" not implemented for 'Half'", "dtype"),
    ("RuntimeError", "grid_sampler_2d_cpu not implemented for Half", "dtype"),
    ("AttributeError", "'_OpNamespace' 'aten' object has no attribute 'foo'", "operator-missing"),
    ("RuntimeError", "expected scalar type Float but found Half", "dtype"),
    ("RuntimeError", "EZ9010: Tensor dtype DT_DOUBLE is not supported", "dtype"),
    ("NotImplementedError", "offline inference is not supported without ATC, which is neither on PATH", "tool-missing"),
    ("NotImplementedError", "Could not run 'aten::foo' with arguments from the 'NPU' backend", "operator-missing"),
    (
        "RuntimeError",
        "Expected all tensors to be on the same device. Expected NPU tensor.\nERR01002",
        "device-mismatch",
    ),
    ("RuntimeError", "Expected a 'npu' device type for generator but found 'cpu'", "device-mismatch"),
    ("RuntimeError", "ERR01007 OPS feature not supported", "operator-missing"),
    ("ValueError", "not enough values to unpack (expected 2, got 1)", "bug"),
    ("RuntimeError", "shape '[2, 3]' is invalid for input of size 5", "bug"),
    ("KeyError", "507015", "bug"),
    ("RuntimeError", ACL.format(call="SetDevice", code=507008) + "The resources are busy.", "device-busy"),
    ("RuntimeError", ACL.format(call="SetDevice", code=507899) + "EL0005: The resources are busy.", "device-busy"),
    ("RuntimeError", ACL.format(call="SetDevice", code=507899), "device-lost"),
    ("RuntimeError", ACL.format(call="SetDevice", code=507008), "device-lost"),
    ("RuntimeError", "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)", "driver-unreachable"),
    ("AssertionError", "Invalid device id", "no-such-device"),
    ("RuntimeError", "EL0007: You have no permission.", "no-permission"),
]


@pytest.mark.parametrize(("name", "message", "kind"), REPORTED)
def test_an_error_is_of_its_kind(name: str, message: str, kind: str) -> None:
    assert diagnose(name, message).kind == kind


def test_codes_are_explained_with_their_source_and_layers_are_left_out() -> None:
    found = list(codes_in(ACL.format(call="x", code=507035) + BELOW + "EZ9999: Inner Error!"))
    assert [(each.code, each.says) for each in found] == [("507035", "vector core exception")]
    assert "rt_error_codes.h" in found[0].source


def test_a_code_that_no_table_has_falls_under_its_rule() -> None:
    assert [each.code for each in codes_in("error code is 507777")] == ["507777"]
    assert diagnose("RuntimeError", "error code is 507777").kind == "aicore-error"


def test_a_number_that_is_no_code_is_none() -> None:
    assert list(codes_in("size 507015, pid 207001, 2025-507015")) == []


def test_every_code_has_a_kind_and_a_source() -> None:
    assert all(code.kind in BY_NAME and code.source and code.says for code in CODES.values())


def test_a_diagnosis_has_a_remedy() -> None:
    found = diagnose("RuntimeError", "error code is 207018", ("the largest: x",))
    assert "remedy: a smaller batch" in "\n".join(found.lines())


def test_every_code_of_canns_own_tables_has_its_name_and_revision() -> None:
    """Counted in the tables themselves: 143 return codes of the runtime, 78 of its reference that are no warnings."""
    own = [each for each in CODES.values() if each.source.startswith("hicann/runtime@")]
    assert len(CODES) > 350
    for code in ("EE1001", "EE1023", "EH0014", "EK0203", "E40024", "EP0008", "EZ2001", "107039", "507916", "EL0015"):
        assert CODES[code].source.startswith("hicann/runtime@"), code
        assert CODES[code].says
    assert all("/" in each.source for each in own)
