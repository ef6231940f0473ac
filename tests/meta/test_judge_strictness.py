"""Planted faults are rejected, at every size at which they have to be seen."""

import pytest
import torch

from pytest_ascend.precision import compare
from tests.meta import planted_errors as planted


@pytest.fixture(autouse=True)
def _one_thread():
    """Many small tensors: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.drawn(4, "long")
def test_every_planted_fault_is_seen():
    bases, missed = planted.bases(), []
    for fault in planted.FAULTS:
        base = bases[fault.base]
        for size, spoilt in planted.spoilt(fault, base):
            if not planted.must_be_seen(fault, size):
                continue
            verdict = compare(spoilt, base.expected, reference_runs=base.reference_runs, accumulation=base.accumulation)
            if verdict.agrees:
                missed.append(f"{fault.name} in {fault.base} at {size:g}")
    assert len(planted.FAULTS) >= 40
    assert missed == []


def test_what_is_spoilt_was_correct_before():
    for name, base in planted.bases().items():
        verdict = compare(base.other, base.expected, reference_runs=base.reference_runs, accumulation=base.accumulation)
        assert verdict.agrees, name


@pytest.mark.parametrize("standard", [None, "mere-mare", "mixed", "torch", "ulp", "thousandth", "binary"])
def test_no_standard_lets_nan_pass(standard):
    expected = planted.bases()["product"].expected.float()
    spoilt = expected.clone()
    spoilt[7, 7] = float("nan")
    assert not compare(spoilt, expected, standard=standard).agrees
