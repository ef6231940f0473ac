"""Small suites, run on a CPU that is made wrong: they say so, and of a right one nothing."""

from __future__ import annotations

import pytest

from pytest_ascend.system.bundled import folder
from tests.forks import apart
from tests.integration.conftest import Run, as_pytest_was_started, ascend  # noqa: F401  (fixtures)

#: A plugin of pytest that makes the CPU wrong in what the environment suite and random/state look at.
WRONG = """
import torch

to, zeros = torch.Tensor.to, torch.zeros


def changed(x):
    found = x.clone()
    found.view(-1)[0] = ~found.view(-1)[0] if found.dtype is torch.bool else found.view(-1)[0] + 1
    return found


def pytest_runtest_call(item):
    if "environment" in item.nodeid:
        torch.Tensor.to = lambda x, *a, **k: changed(x) if a and isinstance(a[0], torch.device) else to(x, *a, **k)
        torch.zeros = lambda *a, device=None, **k: changed(zeros(*a, **k)) if device else zeros(*a, **k)
    else:
        torch.random.set_rng_state = lambda state: None
"""


@pytest.fixture
def wrong(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(made_wrong=WRONG)
    pytester.syspathinsert()


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    return {name: count for name, count in result.parseoutcomes().items() if name in ("passed", "failed", "errors")}


ENVIRONMENT = ("--ascend-level=standard", "-q")


@pytest.mark.drawn(4, "long")
def test_a_device_that_changes_numbers_is_seen(pytester: pytest.Pytester, wrong: None) -> None:
    suite = folder("suites") / "environment"
    usual = ("--ascend", "--ascend-device=cpu", *ENVIRONMENT, str(suite))
    assert set(outcomes(apart(pytester, *usual))) == {"passed"}
    assert set(outcomes(apart(pytester, "-p", "made_wrong", *usual))) == {"failed"}


def test_a_generator_that_forgets_its_state_is_seen(pytester: pytest.Pytester, wrong: None) -> None:
    node = f"{folder('suites')}/random/test_random.py::test_state"
    usual = ("--ascend", "--ascend-device=cpu", "--ascend-level=full", "-q", "-k", "rand/state", node)
    assert set(outcomes(apart(pytester, *usual))) == {"passed"}
    assert set(outcomes(apart(pytester, "-p", "made_wrong", *usual))) == {"failed"}
