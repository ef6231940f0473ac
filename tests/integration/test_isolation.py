"""Cases in child processes: a faulty one takes its process down, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.forks import apart

FAULTY = """
import ctypes, os, signal, warnings
import pytest, torch

HERE = os.path.dirname(__file__)
BEGUN = []

def is_first(name):
    path = os.path.join(HERE, name)
    if os.path.exists(path):
        return False
    open(path, "w", encoding="utf-8").close()
    return True

@pytest.fixture(scope="module")
def whole():
    BEGUN.append(1)
    yield len(BEGUN)
    with open(os.path.join(HERE, "torn-down"), "a", encoding="utf-8") as file:
        file.write("x")

@pytest.fixture
def right(npu_device, precision_compare):
    return lambda: precision_compare(torch.ones(3, device=npu_device), torch.ones(3, dtype=torch.float64))

def test_well(right, whole):
    right()
    assert whole == 1

def test_says_something(right, whole):
    print("said by the child")
    warnings.warn("warned by the child")
    right()
    assert whole == 1

def test_segfault(right):
    os.kill(os.getpid(), signal.SIGSEGV)

def test_hang(right):
    ctypes.PyDLL(None).pause()

def test_crashes_once(right):
    if is_first("crash"):
        os.abort()
    right()

def test_fails_once(npu_device, precision_compare):
    x = torch.ones(3, device=npu_device)
    precision_compare(x * (2 if is_first("failure") else 1), torch.ones(3, dtype=torch.float64))

def test_killed_once(right):
    if is_first("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    right()

def test_stopped_once(right):
    if is_first("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
    right()

def test_always_blocking_when_alone(right):
    if is_first("alone"):
        os.kill(os.getpid(), signal.SIGSEGV)
    assert os.environ["ASCEND_LAUNCH_BLOCKING"] == "1"
    right()

def test_ordinary():
    print("an ordinary test")
    raise ValueError("as usual")

@pytest.mark.skip(reason="not now")
def test_skipped(right):
    pass

def test_also_well(right, whole, tmp_path):
    tmp_path.joinpath("file").write_text("x", encoding="utf-8")
    right()
"""

Ran = tuple[pytest.RunResult, dict[str, dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture
def ran(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Ran:
    pytester.makepyfile(test_faulty=FAULTY)
    monkeypatch.setenv("PATH", "/nonexistent")  # without debuggers, which take their time
    options = ("--ascend-device=cpu", "--ascend-isolation=on", "--ascend-deadline=case=3", "-rA")
    result = apart(pytester, "--ascend", *options, "test_faulty.py")
    lines = [
        json.loads(line)
        for line in Path(pytester.path, "ascend-report/run.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    records = {line["node_id"].split("::")[1]: line for line in lines if line["type"] == "record"}
    return result, records, lines


def test_each_case_gets_what_it_deserves_and_the_run_ends(ran: Ran, pytester: pytest.Pytester) -> None:
    result, records, lines = ran
    assert {name: record["outcome"] for name, record in records.items()} == {
        "test_well": "passed",
        "test_says_something": "passed",
        "test_segfault": "errored",
        "test_hang": "errored",
        "test_crashes_once": "flaky",
        "test_fails_once": "flaky",
        "test_killed_once": "passed",
        "test_stopped_once": "passed",
        "test_always_blocking_when_alone": "flaky",
        "test_skipped": "not-judged",
        "test_also_well": "passed",
    }
    assert result.ret == 1
    attempts = [attempt["end"] for attempt in records["test_segfault"]["attempts"]]
    assert attempts == ["crashed", "crashed"]
    assert [attempt["alone"] for attempt in records["test_segfault"]["attempts"]] == [False, True]
    assert "test_segfault" in records["test_segfault"]["detail"], "the Python stack is kept"
    assert "no end within 3 s" in records["test_hang"]["reason"]
    assert "test_hang" in records["test_hang"]["detail"]
    assert records["test_killed_once"]["attempts"][0]["end"] == "killed"
    assert "3 of 3 elements differ" in records["test_fails_once"]["reason"], "what the first answer found is kept"
    assert "3 of 3 elements differ" in records["test_fails_once"]["attempts"][0]["reason"]
    assert "stopped from outside" in records["test_stopped_once"]["attempts"][0]["reason"]
    self_test = next(line for line in lines if line.get("kind") == "self-test")
    assert self_test["planted"] == self_test["detected"] > 10
    assert lines[-1]["type"] == "footer"
    result.stdout.fnmatch_lines(["*an ordinary test*", "*ValueError: as usual*"])
    result.stdout.fnmatch_lines(["*UserWarning: warned by the child*"])
    result.stdout.fnmatch_lines(["*, 1 warning*in *"])  # though children that follow know of it from the start
    assert "x" in Path(pytester.path, "torn-down").read_text(encoding="utf-8"), (
        "fixtures of the session end with their process"
    )


SMALL = """
import pytest, torch

@pytest.mark.parametrize("i", range(4))
def test_it(npu_device, precision_compare, i):
    precision_compare(torch.ones(3, device=npu_device) + (i == 1), torch.ones(3, dtype=torch.float64))
"""


def test_the_first_failure_can_stop_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_small=SMALL)
    options = ("--ascend-device=cpu", "--ascend-isolation=on", "-x", "-k", "not 3")
    result = apart(pytester, "--ascend", *options, "test_small.py")
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])


@pytest.mark.parametrize("isolation", ["on", "off"])
def test_a_test_that_exits_decides_the_exit_code(pytester: pytest.Pytester, isolation: str) -> None:
    pytester.makepyfile(test_small=SMALL + "    if i == 2:\n        pytest.exit('enough', returncode=9)\n")
    options = ("--ascend-device=cpu", f"--ascend-isolation={isolation}", "-k", "not 1")
    result = apart(pytester, "--ascend", *options, "test_small.py")
    assert result.ret == 9
    result.stdout.fnmatch_lines(["*enough*"])


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only"])
def test_tests_that_pytest_only_sets_up_are_no_errors(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile(test_small=SMALL)
    result = apart(pytester, "--ascend", "--ascend-device=cpu", "--ascend-isolation=on", option, "test_small.py")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*SETUP*npu_device*"])
    result.stdout.no_fnmatch_line("*errored*")


def test_a_debugger_needs_this_process(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_small=SMALL)
    result = apart(pytester, "--ascend", "--ascend-device=cpu", "--ascend-isolation=on", "--pdb", ".")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--pdb cannot debug child processes*"])


@pytest.mark.parametrize("option", ["--ascend-deadline=case=soon", "--ascend-deadline=-1", "--ascend-deadline=nan"])
def test_a_deadline_that_is_no_time_is_refused(pytester: pytest.Pytester, option: str) -> None:
    result = pytester.runpytest_inprocess("--ascend", "--ascend-device=cpu", option, ".")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*invalid duration*"])


@pytest.mark.parametrize("isolation", ["on", "off"])
def test_a_deadline_that_start_up_took_leaves_every_case_in_one_event(
    pytester: pytest.Pytester, isolation: str
) -> None:
    path = pytester.makepyfile(
        """
        import pytest
        from pytest_ascend.records.case import Case

        CASES = [Case(suite="user", subject=f"s{i}", property="p", dtype="float32") for i in range(50)]

        @pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.ascend_case(c)) for c in CASES])
        def test(case, ascend_measure):
            ascend_measure("x_us", 1.0)
        """
    )
    options = ("--ascend-device=cpu", f"--ascend-isolation={isolation}", "--ascend-deadline=0.01")
    done = apart(pytester, "--ascend", *options, path)
    assert done.ret == 7
    done.stdout.fnmatch_lines(["*stopped: the deadline of the run passed; continue with --ascend-resume*"])
    lines = [
        json.loads(line)
        for line in (pytester.path / "ascend-report/run.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["type"] for line in lines if line.get("kind") != "self-test"] == ["header", "event"]
    assert len(next(each for each in lines if each.get("kind") == "lost")["cases"]) == 50
