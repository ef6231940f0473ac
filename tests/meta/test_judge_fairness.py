"""Reference runs are not rejected. ``tools/judge.py --full`` has the thorough set."""

import importlib

import pytest
import torch

from pytest_ascend.precision import compare


@pytest.fixture(autouse=True)
def _one_thread():
    """Many small tensors: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def situations(monkeypatch, request):
    monkeypatch.syspath_prepend(request.config.rootpath / "tools")
    return importlib.import_module("judge_situations").situations


def test_no_false_alarm_in_any_correct_situation(situations):
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
