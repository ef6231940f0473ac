"""The emulated CANN's libraries, and the runtime state that kernels query."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

#: ACL_OPT_DETERMINISTIC, and its value for results that do not depend on the batch: torch_npu's level 3
#: (torch_npu.npu.set_deterministic_level in the documentation of Ascend/op-plugin, 517f2e7d).
_DETERMINISTIC, IN_ANY_BATCH = 0, 3


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Return a library of the emulated CANN, such as libhccl.so."""
    return ctypes.CDLL(str(Path(os.environ["ASCEND_HOME_PATH"], "lib64", name)))


def runtime() -> ctypes.CDLL:
    """Return the library of the emulated runtime."""
    return library("libascendcl.so")


def determinism() -> int:
    """Return the level of determinism that torch_npu set: 0, 1, or 3; 0 without a device."""
    value = ctypes.c_int64(0)
    if os.environ.get("ASCEND_HOME_PATH"):
        runtime().aclrtGetSysParamOpt(_DETERMINISTIC, ctypes.byref(value))
    return value.value
