"""What becomes of a case, in the log, in the terminal and as an exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]
Outcomes = Callable[[], dict[str, str]]


def test_each_case_has_its_outcome(ascend: Run, three_cases: Path, outcomes: Outcomes) -> None:
    result = ascend()
    assert outcomes() == {"test_passes": "passed", "test_fails": "failed", "test_raises": "errored"}
    result.assert_outcomes(passed=1, failed=1, errors=1)
    assert result.ret == 1


def test_a_failure_says_where_how_much_and_how_much_was_allowed(ascend: Run, three_cases: Path, lines: Lines) -> None:
    result = ascend("-k", "fails")
    result.stdout.fnmatch_lines(["*Disagreement*", "failed *user/test_three.py::test_fails/test*", "*again: pytest*"])
    record = lines("record")[0]
    assert record["verdicts"][0]["agrees"] is False
    assert record["detail"]


def test_everything_well_ends_with_zero(ascend: Run, three_cases: Path) -> None:
    assert ascend("-k", "passes").ret == 0


@pytest.mark.parametrize(
    ("body", "outcome", "status"),
    [
        ("pass", "not-judged", {"passed": 1}),
        ("assert torch.ones(1).to(npu_device).item() == 1", "not-judged", {"passed": 1}),
        ("assert torch.ones(1).to(npu_device).item() == 2", "failed", {"failed": 1}),
        ("pytest.fail('no good')", "failed", {"failed": 1}),
        ("pytest.skip('needs two devices')", "not-judged", {"skipped": 1}),
        ("pytest.xfail('known')", "not-judged", {"xfailed": 1}),
        ("raise RuntimeError('aclnnFoo is not supported')", "unsupported", {}),
        ("raise NotImplementedError", "unsupported", {}),
        ("raise RuntimeError('NPU out of memory')", "errored", {"errors": 1}),
        ("ascend_measure('latency_us', 3)", "passed", {"passed": 1}),
        ("ascend_measure('latency_us', 'fast')", "errored", {"errors": 1}),
    ],
)
def test_a_body_and_its_outcome(
    ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes, body: str, outcome: str, status: dict[str, int]
) -> None:
    pytester.makepyfile(f"import pytest, torch\ndef test_x(npu_device, ascend_measure):\n    {body}\n")
    result = ascend()
    assert outcomes() == {"test_x": outcome}
    result.assert_outcomes(**status)
    assert (result.ret == 0) is (outcome in ("passed", "not-judged"))


@pytest.mark.parametrize(
    ("keyword", "said"), [("pasess", "no test matches: did you mean passes*"), ("zzz", "no test matches what *")]
)
def test_a_keyword_that_matches_nothing_is_told_the_nearest_test(
    ascend: Run, three_cases: object, keyword: str, said: str
) -> None:
    result = ascend("-k", keyword)
    assert result.ret == 5
    result.stdout.fnmatch_lines([said])


def test_an_outcome_that_pytest_lacks_has_a_category_of_its_own(ascend: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_x(npu_device):\n    raise RuntimeError('aclnnFoo is not supported')\n")
    result = ascend("-v")
    result.stdout.fnmatch_lines(["*test_x UNSUPPORTED*", "*1 unsupported*"])


def test_in_tests_of_the_users_pytests_conventions_hold(
    ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes
) -> None:
    """Skips, expected failures and caught disagreements fail nothing, and are no pass of the stack."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def golden_store():
            return {}

        @pytest.fixture
        def broken(npu_device):
            assert False, "no data"

        @pytest.mark.skipif(True, reason="not today")
        def test_skipif(npu_device):
            pass

        @pytest.mark.xfail(reason="known")
        def test_xfail(npu_device):
            assert False

        @pytest.mark.xfail(strict=True)
        def test_xpass(precision_compare):
            precision_compare(1.0, 1.0)

        def test_broken(broken):
            pass

        def test_own_fixture(golden_store, cpu_reference, precision_compare):
            precision_compare(2.0, cpu_reference(lambda: 2.0))
        """
    )
    result = ascend()
    assert outcomes() == {
        "test_skipif": "not-judged",
        "test_xfail": "not-judged",
        "test_xpass": "failed",
        "test_broken": "errored",
        "test_own_fixture": "passed",
    }
    assert result.ret == 1
    result.stdout.fnmatch_lines(["failed *::test_xpass/test*", "errored *::test_broken/test*error at setup: *no data*"])


def test_a_disagreement_that_the_test_catches_fails_nothing_and_is_no_pass(
    ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes
) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        def test_x(precision_compare):
            with pytest.raises(AssertionError):
                precision_compare(torch.ones(1), torch.zeros(1, dtype=torch.float64))
        """
    )
    result = ascend()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["Selected cases not judged: 0 of 1 case*"])
    assert outcomes() == {"test_x": "not-judged"}


def test_an_error_in_a_fixture_is_the_outcome_of_its_case(
    ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def broken(npu_device):
            raise KeyError("x")

        def test_x(broken):
            pass
        """
    )
    assert ascend().ret == 1
    assert outcomes() == {"test_x": "errored"}


def test_an_error_while_tidying_up_is_an_error_of_the_case(
    ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def untidy():
            yield
            raise KeyError("x")

        def test_x(npu_device, untidy, ascend_measure):
            ascend_measure("latency_us", 1)
        """
    )
    assert ascend().ret == 1
    assert outcomes() == {"test_x": "errored"}


def test_an_ordinary_test_beside_is_no_case_but_its_failure_counts(
    ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes
) -> None:
    pytester.makepyfile(
        """
        def test_case(npu_device, ascend_measure):
            ascend_measure("latency_us", 1)

        def test_ordinary():
            assert False
        """
    )
    assert ascend().ret == 1
    assert outcomes() == {"test_case": "passed"}


def test_a_lost_device_stops_every_later_case(
    ascend: Run, pytester: pytest.Pytester, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_ascend.plugin.hooks.lost", lambda device: "it adds wrongly")
    pytester.makepyfile(
        """
        def test_a(npu_device):
            raise RuntimeError("507015")

        def test_b(npu_device, ascend_measure):
            ascend_measure("latency_us", 1)
        """
    )
    ascend()
    first, second = lines("record")
    assert first["outcome"] == second["outcome"] == "errored"
    assert "the device is lost: after user/" in second["reason"]


def test_expected_failures_of_pytest_are_still_told_as_what_they_are(
    ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes
) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.xfail\ndef test_x(npu_device):\n    assert False\n")
    result = ascend()
    result.assert_outcomes(xfailed=1)
    assert outcomes() == {"test_x": "not-judged"}
    assert result.ret == 0


def test_tensors_of_a_case_are_gone_before_the_next(ascend: Run, pytester: pytest.Pytester, outcomes: Outcomes) -> None:
    """pytest keeps every item to the end: of thousands of cases that would be gigabytes."""
    pytester.makepyfile(
        """
        import gc, weakref, torch
        held = []

        def test_first(npu_device, ascend_measure, _ascend_reproduce):
            tensor = torch.ones(3)
            _ascend_reproduce(lambda verdict: str(tensor))
            held.append(weakref.ref(tensor))
            ascend_measure("latency_us", 3)

        def test_second(npu_device, ascend_measure):
            gc.collect()
            ascend_measure("latency_us", 3)
            assert held and held[0]() is None
        """
    )
    assert ascend().ret == 0
    assert outcomes() == {"test_first": "passed", "test_second": "passed"}
