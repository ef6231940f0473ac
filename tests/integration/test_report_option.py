"""``--ascend-report``: one log and one page in a folder, and one run at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.integration.conftest import Run

Lines = Callable[..., list[dict[str, Any]]]


def test_the_folder_holds_the_log_and_the_page(
    ascend: Run, three_cases: Path, pytester: pytest.Pytester, lines: Lines
) -> None:
    result = ascend("--ascend-report=there/here")
    folder = pytester.path / "there/here"
    result.stdout.fnmatch_lines([f"report: {folder}/conformance.html"])
    kinds = [line["type"] for line in lines(folder="there/here")]
    assert kinds == ["header", "event", *["record"] * 3, "footer"]  # the event: the judge on trial
    assert "test_fails" in (folder / "conformance.html").read_text(encoding="utf-8")


def test_a_second_run_at_the_same_time_is_one_message(
    ascend: Run, three_cases: Path, pytester: pytest.Pytester
) -> None:
    folder = pytester.mkdir("ascend-report")
    with FileLock(folder / ".run.jsonl.lock"):
        result = ascend()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: another run is writing*", "*hint: *--ascend-report=DIR*"])
    assert "Traceback" not in str(result.stdout) + str(result.stderr)


def test_a_folder_that_cannot_be_made_is_one_message(ascend: Run, three_cases: Path, pytester: pytest.Pytester) -> None:
    (pytester.path / "file").touch()
    result = ascend("--ascend-report=file/here")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: cannot write the run log*", "*hint:*"])


def test_an_interrupted_run_has_no_footer_and_keeps_its_exit_code(
    ascend_apart: Run, pytester: pytest.Pytester, lines: Lines
) -> None:
    pytester.makepyfile(
        """
        def test_a(npu_device, ascend_measure):
            ascend_measure("latency_us", 1)

        def test_b(npu_device):
            raise KeyboardInterrupt
        """
    )
    result = ascend_apart("--ascend-device=cpu")
    assert result.ret == 2
    assert [line["type"] for line in lines()] == ["header", "event", "record"]
    assert "stopped" in (pytester.path / "ascend-report/conformance.html").read_text(encoding="utf-8")


def test_an_error_of_collection_writes_no_log(ascend: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import nowhere_to_be_found\n")
    assert ascend().ret == 2
    assert not (pytester.path / "ascend-report/run.jsonl").exists()


def test_the_page_says_what_changed_since_an_earlier_run_in_the_same_folder(
    ascend: Run, three_cases: Path, pytester: pytest.Pytester
) -> None:
    ascend("-k", "passes or fails")
    ascend("--ascend-against=ascend-report", "-k", "passes or raises")
    page = (pytester.path / "ascend-report/conformance.html").read_text(encoding="utf-8")
    assert "1 case run in only one" in page
    assert "1 new case" in page


def test_an_earlier_run_that_is_not_there_or_damaged_is_one_message(
    ascend: Run, three_cases: Path, pytester: pytest.Pytester
) -> None:
    result = ascend("--ascend-against=nowhere")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: --ascend-against=nowhere: there is no run log*", "*hint:*"])
    pytester.makefile(".jsonl", damaged="{")
    result = ascend("--ascend-against=damaged.jsonl")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *damaged.jsonl, line 1: cut short*", "*hint:*"])


def test_a_page_that_cannot_be_written_is_one_message_and_the_verdict_stays(
    ascend: Run, three_cases: Path, pytester: pytest.Pytester, lines: Lines
) -> None:
    pytester.mkdir("ascend-report").joinpath("conformance.html").mkdir()
    result = ascend("-k", "passes")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["no page: cannot write */conformance.html*", "*'pytest-ascend report render *run.jsonl'*"]
    )
    assert lines()[-1]["type"] == "footer"
    assert "Traceback" not in str(result.stdout) + str(result.stderr)


def test_a_release_that_is_replaced_while_it_runs_costs_the_page_and_not_the_verdict(
    ascend: Run, three_cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pytest_ascend.page", None)
    for chosen, code in (("passes", 0), ("fails", 1)):
        result = ascend("-k", chosen)
        assert result.ret == code
        result.stdout.fnmatch_lines(["no page: *Error: *pytest_ascend.page*"])
        assert "Traceback" not in str(result.stdout) + str(result.stderr)


def test_resuming_a_complete_run_ends_with_its_verdict(ascend_apart: Run, three_cases: Path) -> None:
    for chosen, code in (("passes", 0), ("fails", 1)):
        assert ascend_apart("--ascend-device=cpu", "-k", chosen).ret == code
        assert ascend_apart("--ascend-device=cpu", "-k", chosen, "--ascend-resume").ret == code


@pytest.mark.parametrize("is_second", [True, False])
def test_an_interrupt_of_the_ending_ends_at_once_and_without_a_traceback(
    ascend_apart: Run, pytester: pytest.Pytester, lines: Lines, *, is_second: bool
) -> None:
    pytester.makeconftest(
        """
        import os, signal

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

        def pytest_sessionfinish():
            os.kill(os.getpid(), signal.SIGINT)
        """
    )
    pytester.makepyfile(
        f"""
        import os, signal

        def test_a(npu_device, ascend_measure):
            ascend_measure("latency_us", 1)

        def test_b(npu_device, ascend_measure):
            ascend_measure("latency_us", 1)
            if {is_second}:
                os.kill(os.getpid(), signal.SIGINT)
        """
    )
    result = ascend_apart("--ascend-device=cpu")
    assert result.ret == 2
    assert "Traceback" not in str(result.stdout) + str(result.stderr)
    assert "interrupted while it ended: ended at once" in str(result.stderr)
    written = ["header", "event", "record"] + ([] if is_second else ["record", "footer"])
    assert [line["type"] for line in lines()] == written


def test_an_interrupt_that_a_background_job_ignores_is_ignored_while_it_ends(
    ascend_apart: Run, pytester: pytest.Pytester, three_cases: Path
) -> None:
    pytester.makeconftest(
        """
        import os, signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)

        def pytest_sessionfinish():
            os.kill(os.getpid(), signal.SIGINT)
        """
    )
    assert ascend_apart("--ascend-device=cpu", "-k", "passes").ret == 0


def test_a_disk_that_does_not_take_the_end_is_one_clear_message(
    ascend_apart: Run, pytester: pytest.Pytester, three_cases: Path
) -> None:
    pytester.makeconftest(
        """
        import os, resource, pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_runtestloop():
            done = yield
            size = os.stat("ascend-report/run.jsonl").st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            return done
        """
    )
    result = ascend_apart("--ascend-device=cpu", "-k", "passes")
    assert result.ret == 7
    said = str(result.stdout) + str(result.stderr)
    assert "Traceback" not in said
    assert "cannot write the run log" in said
    assert "then continue with --ascend-resume" in said
