"""The same call gives the same bits: repeated, with other rows beside it, in memory with any content."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from pytest_ascend.operators import InputFactory, Sample
from pytest_ascend.operators.calling import on_tensors, tensors
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.run.comparing import PrecisionCompare

from ..runtime.rows import deterministic
from . import BATCH, COMPUTATIONS, DETERMINISM, PROMISED, STALE, Computation

#: By name, 32 bits that fill memory: NaN in float32; large numbers in any format; NaN in 16 bits and -1 in integers;
#: zeros, which hide many a mistake.
PATTERNS = {"NaN": 0x7FC00000, "0x7F": 0x7F7F7F7F, "0xFF": -1, "zeros": 0}


def poison(device: torch.device, pattern: int) -> None:
    """Fill the memory for the next small tensors: what the allocator holds and nothing uses."""
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()
        # Caching allocators split tensors up to 1 MiB from segments of their own, in steps of 512 bytes, and add some
        # bytes to each, which must not change its size class. Gaps are filled piece by piece.
        counts = [(2**exponent - 64) // 4 for exponent in range(20, 8, -1) for _ in range(3)]
        held = [torch.full((count,), pattern, dtype=torch.int32, device=device) for count in counts]
        held.clear()


_BY_NAME = {computation.name: computation for computation in COMPUTATIONS}

#: Repetitions of a call: a race that shows in every second call is missed once in 500 runs.
TIMES = 10
#: Rows that are computed alone, or in small batches.
PARTS = {"the first row": slice(0, 1), "the third row": slice(2, 3), "two rows": slice(0, 2)}


def drawn(case: Case, device: torch.device) -> tuple[Computation, Sample]:
    computation = _BY_NAME[case.subject]
    made = computation.inputs(InputFactory(f"stability/{computation.name}", getattr(torch, case.dtype)))
    given = made.args, dict(made.kwargs)
    args, kwargs = on_tensors(lambda each: each.detach().to(device).requires_grad_(each.requires_grad), given)
    return computation, Sample(name=made.name, args=args, kwargs=kwargs)


def results(computation: Computation, call: Sample) -> list[torch.Tensor]:
    with torch.no_grad():
        return [each.detach().cpu() for each in tensors(computation.function(*call.args, **call.kwargs))]


@pytest.mark.ascend_cases("stability", DETERMINISM)
def test_determinism(
    case: Case, npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    """Require equal bits if they are promised, with deterministic algorithms; measure without them."""
    computation, call = drawn(case, npu_device)

    def calls() -> list[list[torch.Tensor]]:
        return [results(computation, call) for _ in range(TIMES)]

    with deterministic(True):
        first, *again = calls()
    name = f"{computation.name}, called again, deterministic algorithms asked for"
    precision_compare(again, [first] * len(again), standard="binary", name=name)
    # CANN keeps a thread's first setting; autograd's thread, for gradients, has seen the one above.
    with deterministic(False), ThreadPoolExecutor(1) as fresh:
        first, *again = fresh.submit(calls).result()
    ascend_measure("differing_elements_share", max(_differing_share({"": each}, {"": first}) for each in again))


@pytest.mark.ascend_cases("stability", STALE)
def test_stale_memory(case: Case, npu_device: torch.device, precision_compare: PrecisionCompare) -> None:
    found: dict[str, Any] = {}
    for name, pattern in PATTERNS.items():
        poison(npu_device, pattern)
        with deterministic(_BY_NAME[case.subject].adds):
            found[name] = results(*drawn(case, npu_device))
    clean = found.pop("zeros")
    precision_compare(found, dict.fromkeys(found, clean), standard="binary", name=f"{case.subject} in memory full of")


@pytest.mark.ascend_cases("stability", BATCH)
def test_batch_invariance(
    case: Case, npu_device: torch.device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> None:
    computation, call = drawn(case, npu_device)
    whole = results(computation, call)
    alone = {name: results(computation, _rows(call, part)) for name, part in PARTS.items()}
    wanted = {name: [each[part] for each in whole] for name, part in PARTS.items()}
    ascend_measure("differing_elements_share", _differing_share(alone, wanted))
    if computation.rows == PROMISED:
        precision_compare(alone, wanted, standard="binary", name=f"{computation.name} of")


def _rows(call: Sample, part: slice) -> Sample:
    shapes = call.args[0].shape, call.args[0].shape[:1]
    has_rows = (isinstance(each, torch.Tensor) and each.shape in shapes for each in call.args)
    args = (each[part].clone() if has else each for each, has in zip(call.args, has_rows, strict=True))
    return Sample(name=call.name, args=tuple(args), kwargs=call.kwargs)


def _differing_share(alone: Mapping[str, list[torch.Tensor]], wanted: Mapping[str, list[torch.Tensor]]) -> float:
    pairs = [pair for name, found in alone.items() for pair in zip(found, wanted[name], strict=True)]
    return sum(int((mine != other).sum()) for mine, other in pairs) / max(sum(mine.numel() for mine, _ in pairs), 1)
