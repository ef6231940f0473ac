"""Reference runs are not rejected. ``python -m tools.evaluation judge --full`` has the thorough set."""

import pytest
import torch

from pytest_ascend.precision import compare
from tests.meta.correct_results import situations


@pytest.fixture(autouse=True)
def _one_thread():
    """Many small tensors: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_no_false_alarm_in_any_correct_situation():
    count, alarms = 0, []
    for each in situations():
        verdict = compare(
            each.actual, each.expected, reference_runs=each.reference_runs, accumulation=each.accumulation
        )
        count += 1
        if not verdict.agrees:
            alarms.append(f"{each.name}: {verdict.headline}")
    assert count >= 300
    assert alarms == []
