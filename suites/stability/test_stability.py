"""The same call gives the same bits: repeated, with other rows in its batch, and with any content in free memory."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from pytest_ascend.operators.calling import tensors
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run import inputs
from pytest_ascend.run.comparing import PrecisionCompare

from ..runtime.rows import deterministic
from . import BATCH, COMPUTATIONS, DETERMINISM, PROMISED, STALE

#: By name, 32 bits that fill memory: NaN in float32; large numbers in any format; NaN in 16 bits and -1 in integers;
#: zeros, which hide many bugs.
PATTERNS = {"NaN": 0x7FC00000, "0x7F": 0x7F7F7F7F, "0xFF": -1, "zeros": 0}


def poison(device: torch.device, pattern: int) -> None:
    """Fill the memory for the next small tensors: blocks that the allocator holds and no tensor uses."""
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()
        # Caching allocators split tensors up to 1 MiB from segments of their own, in steps of 512 bytes, and add a few
        # bytes to each, which must not change its size class. Gaps are filled piece by piece.
        counts = [(2**exponent - 64) // 4 for exponent in range(20, 8, -1) for _ in range(3)]
        held = [torch.full((count,), pattern, dtype=torch.int32, device=device) for count in counts]
        held.clear()


#: Repetitions of a call: a race that affects every second call is missed once in 500 runs.
TIMES = 10
#: Parts of the batch that are computed separately.
PARTS = {"the first row": slice(0, 1), "the third row": slice(2, 3), "two rows": slice(0, 2)}


def results(case: Case, device: torch.device, part: slice = slice(None)) -> list[torch.Tensor]:
    """Run the case's call on ``part`` of 33 rows, which are drawn from its name."""
    dtype = getattr(torch, case.dtype)
    x, weights = (inputs.normal(f"stability/{case.subject}/{rows}", (rows, 64), dtype=dtype) for rows in (33, 64))
    with torch.no_grad():
        found = COMPUTATIONS[case.subject](x[part].to(device), weights.to(device))
    return [each.detach().cpu() for each in tensors(found)]


@pytest.mark.ascend_cases("stability", DETERMINISM)
def test_determinism(
    case: Case, npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    """Require equal bits with deterministic algorithms, where promised; only measure without them."""

    def calls() -> list[list[torch.Tensor]]:
        return [results(case, npu_device) for _ in range(TIMES)]

    with deterministic(True):
        first, *again = calls()
    name = f"{case.subject}, called again, deterministic algorithms asked for"
    precision_compare(again, [first] * len(again), standard="binary", name=name)
    # CANN keeps a thread's first setting, and autograd's thread, for gradients, has already seen the one above.
    with deterministic(False), ThreadPoolExecutor(1) as fresh:
        first, *again = fresh.submit(calls).result()
    ascend_measure("differing_elements_share", max(_differing_share({"": each}, {"": first}) for each in again))


@pytest.mark.ascend_cases("stability", STALE)
def test_stale_memory(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    found: dict[str, Any] = {}
    for name, pattern in PATTERNS.items():
        poison(npu_device, pattern)
        with deterministic():
            found[name] = results(case, npu_device)
    clean = found.pop("zeros")
    precision_compare(found, dict.fromkeys(found, clean), standard="binary", name=f"{case.subject} in memory full of")


@pytest.mark.ascend_cases("stability", BATCH)
def test_batch_invariance(
    case: Case, npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    whole = results(case, npu_device)
    alone = {name: results(case, npu_device, part) for name, part in PARTS.items()}
    wanted = {name: [each[part] for each in whole] for name, part in PARTS.items()}
    ascend_measure("differing_elements_share", _differing_share(alone, wanted))
    if case.subject in PROMISED:
        precision_compare(alone, wanted, standard="binary", name=f"{case.subject} of")


def _differing_share(alone: Mapping[str, list[torch.Tensor]], wanted: Mapping[str, list[torch.Tensor]]) -> float:
    pairs = [pair for name, found in alone.items() for pair in zip(found, wanted[name], strict=True)]
    return sum(int((mine != other).sum()) for mine, other in pairs) / max(sum(mine.numel() for mine, _ in pairs), 1)
