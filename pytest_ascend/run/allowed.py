"""The operators that files of others may name. Cases and dumps are data: they can call nothing else.

``allowed.txt`` has their full names, made by ``tools/operator_names.py`` from torch's database of operators (OpInfo),
the operators that torch tags as core, those of gradients, and torch_npu's public ones. Each takes and returns tensors
and plain values. What opens, saves, loads, seeds, shares memory, sets state or takes a function is not among them.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_ascend.system.files import read_regular

#: Bytes that a call may need beside :data:`TIMES` its arguments: copies in float64, gradients, results of the operator.
BASE_BYTES, TIMES = 256 * 2**20, 64


@functools.cache
def names() -> frozenset[str]:
    """Return the full names: "torch.add", "torch.Tensor.add_", "torch.ops.aten.add", "torch_npu.npu_swiglu"."""
    return frozenset(read_regular(Path(__file__).with_name("allowed.txt"), 1 << 20).decode().split())


@functools.cache
def function(name: str) -> Callable[..., Any] | None:
    """Return the operator of a full name; None if it is not on the list, or the installed version lacks it."""
    if name not in names():
        return None
    module, _, path = name.partition(".")
    try:
        found: Callable[..., Any] = operator.attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError):
        return None
    return found


def memory_bytes(tensors_bytes: int) -> int:
    """Return how much memory a call with these many bytes of tensors may take."""
    return BASE_BYTES + TIMES * tensors_bytes
