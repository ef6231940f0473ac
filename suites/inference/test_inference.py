"""Each way of computing a text gives what float64 gives for the text alone; a failure names the first wrong layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_ascend.device import Device
from pytest_ascend.parity.ensemble import one_thread
from pytest_ascend.precision import Samples
from pytest_ascend.records.case import Case
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.comparing import PrecisionCompare

from . import CASES
from .serving import served
from .ways import LENGTHS, alone_and_in_a_batch, computed, expected, generation, reference_runs

DETERMINISTIC = {"HCCL_DETERMINISTIC": "strict", "LCCL_DETERMINISTIC": "1", "ATB_MATMUL_SHUFFLE_K_ENABLE": "0"}


def first_layer(verdict: Verdict) -> str:
    """Name the first wrong result."""
    wrong = next(leaf.path for leaf in verdict.leaves if not leaf.agrees)
    return f"first wrong layer: {wrong.partition(chr(39))[2].rpartition(chr(39))[0]}"


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_inference(
    case: Case,
    npu_device: torch.device,
    _ascend_device: Device,
    precision_compare: PrecisionCompare,
    ascend_measure: Callable[[str, float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dtype = getattr(torch, case.dtype)
    with one_thread():
        if case.property in ("greedy", "generate"):
            found = served(npu_device) if case.subject == "server" else generation(case.subject, dtype, npu_device)
            ascend_measure("equal_tokens", float((found.actual.tokens == found.best).double().mean()))
            ascend_measure("largest_allowed_margin", float(found.margin().max()))
            found.judge(precision_compare)
            return
        if case.property.startswith("padded"):
            # What vLLM Ascend sets for the same numbers in any batch (vllm_ascend/batch_invariant.py at 182b75ea84ff).
            for name, value in DETERMINISTIC.items():
                monkeypatch.setenv(name, value)
            batch, alone, is_promised = alone_and_in_a_batch(case.subject, case.property, dtype, npu_device)
            ascend_measure("equal_bits", float((batch == alone).double().mean()))
            if is_promised and not _ascend_device.emulated:  # which accepts the level, and computes as the CPU does
                longest = slice(0, LENGTHS[0])
                precision_compare(batch[longest], alone[longest], standard="binary", name="the longest text in a batch")
        precision_compare(
            computed(case.subject, case.property, dtype, npu_device),
            expected(case.subject, case.property),
            reference_runs=Samples(reference_runs(case.subject, case.property, dtype)),
            name=case.property,
            locate=first_layer,
        )
