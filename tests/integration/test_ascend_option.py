"""``--ascend``: nothing happens without it."""

from __future__ import annotations

import gc
import sys

import pytest

from tests.integration.conftest import Run

WITHOUT = """
import sys
import pytest

class Look:
    def pytest_unconfigure(self):
        heavy = {"torch", "numpy", "safetensors", "pytest_ascend.plugin.session", "pytest_ascend.plugin.hooks"}
        print("LOADED", sorted(heavy & set(sys.modules)))

sys.exit(pytest.main(["-p", "no:benchmark", "-p", "no:hypothesispytest", *sys.argv[1:]], plugins=[Look()]))
"""


def test_without_it_nothing_heavy_is_loaded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_x():\n    pass\n")
    script = pytester.makefile(".py", start=WITHOUT)
    result = pytester.run(sys.executable, script, "test_without_it_nothing_heavy_is_loaded.py")
    result.stdout.fnmatch_lines(["*1 passed*", "LOADED []"])


def test_without_it_tests_for_the_device_are_skipped_with_the_reason(
    pytester: pytest.Pytester, three_cases: object
) -> None:
    result = pytester.runpytest_inprocess("-rs")
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(["*needs --ascend*"])
    assert not (pytester.path / "ascend-report").exists()


def test_without_it_comparisons_work_all_the_same(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch

        def test_right(cpu_reference, precision_compare, ascend_measure):
            ascend_measure("latency_us", 1)
            precision_compare(torch.ones(2) + 1, cpu_reference(torch.add, torch.ones(2), 1))

        def test_wrong(cpu_reference, precision_compare):
            precision_compare(torch.ones(2), cpu_reference(torch.add, torch.ones(2), 1))
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1, failed=1)


def test_the_marker_is_known_without_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.ascend_case('x')\ndef test_x():\n    pass\n")
    pytester.runpytest_inprocess("--strict-markers").assert_outcomes(passed=1)


def test_help_starts_no_device(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--ascend", "--ascend-device=nonsense", "--help")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--ascend-level*"])


def test_it_is_too_late_from_a_conftest(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("pytest_plugins = ['pytest_ascend.plugin']")
    pytester.makepyfile("def test_x():\n    pass\n")
    result = pytester.runpytest_subprocess("-p", "no:ascend", "--ascend")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*too late for --ascend*", "*-p pytest_ascend.plugin*"])


def test_garbage_is_looked_for_in_tests_and_not_while_they_are_collected(
    ascend: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import gc
        WHILE_COLLECTED = gc.isenabled()

        def test_it(npu_device, ascend_measure):
            assert (WHILE_COLLECTED, gc.isenabled()) == (False, True)
            ascend_measure("a_us", 1)
        """
    )
    ascend().assert_outcomes(passed=1)
    assert gc.isenabled()
