"""Puts this process on the emulated device, whether or not torch is already imported in it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from pytest_ascend import emulator

emulator.activate()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch_npu says about its installation is no subject of these tests
    import torch_npu  # noqa: F401  comes with torch by itself only where torch was not imported before

import torch  # noqa: E402  (after the device is up)

#: torch_npu's thread keeps the number of threads that torch had at its first kernel, whichever test began it, and bits
#: of sums depend on it. Tests that set another number set this one again.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _as_many_threads_as_the_device() -> None:
    """Tests that run the plugin in this process may leave the CPU with another number."""
    torch.set_num_threads(1)


@pytest.fixture
def full_float32() -> Iterator[None]:
    """Switch HF32 off, which torch_npu allows for convolutions until it is told otherwise."""
    torch.npu.conv.allow_hf32 = False
    yield
    torch.npu.conv.allow_hf32 = True
