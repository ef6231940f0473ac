"""Where the memory went, beside tensors that have no storage."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pytest_ascend.diagnosis import memory


def test_tensors_without_storage_are_passed_over() -> None:
    sparse = torch.eye(3).to_sparse()
    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(NotImplementedError):
        sparse.untyped_storage()
    kept = torch.ones(1 << 23)
    (line,) = memory.findings(RuntimeError("out of memory"), "cpu")
    assert f"float32{list(kept.shape)} 32 MiB" in line
    assert fake.device.type == sparse.device.type == "cpu"
