"""Run one file of third-party tests as ``python file.py`` does, and send each test's outcome to the parent.

    python -m pytest_ascend.upstream.child FILE cpu|npu|emulated [everything] READ WRITE

However a unittest file is started, including torch's ``run_tests``, it ends in ``TextTestRunner.run``, which is
replaced. The process sends the names of all tests, receives those to run, and sends an event at the beginning and end
of each test. Errors are classified here, while they are still exceptions.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_ascend.isolation.process import Channel
from pytest_ascend.records.census import FALLBACK, NATIVE
from pytest_ascend.run.outcomes import classify
from pytest_ascend.system.errors import answered


class _Results(unittest.TestResult):
    """Sends an event when a test begins, and one when it is over. Its first result that is not a pass counts."""

    def __init__(self, channel: Channel, device: str) -> None:
        super().__init__()
        self.channel, self.say, self.device = channel, channel.send, device
        self.found: dict[str, Any] = {}
        self.began_s = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.found, self.began_s = {}, time.monotonic()
        self.say(test=name_of(test))

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        found = self.found or {"outcome": "errored", "reason": "the test ended without a result"}
        self.say(test=name_of(test), seconds=time.monotonic() - self.began_s, **found)
        if self.device == "npu" and found["outcome"] in {"errored", "unsupported"}:
            from pytest_ascend.device.probe import known_answer

            if answered(lambda: known_answer("npu")):
                self.say(lost=name_of(test))
                os._exit(1)

    def addSuccess(self, test: unittest.TestCase) -> None:
        # The operator that the test is about, if torch_npu has no kernel for it, so that the CPU computes it.
        method = getattr(type(test), getattr(test, "_testMethodName", ""), None)
        given: Any = (getattr(method, "__defaults__", None) or ({},))[0]
        name = f"aten::{getattr(given.get('op'), 'aten_name', '')}" if isinstance(given, dict) else ""
        by_cpu = name if self.device != "cpu" and name and _falls_back(name) else ""
        self._note(test, "fallback" if by_cpu else "passed", f"computed on the CPU: {by_cpu}")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ARG002
        self._note(test, "passed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "failed", "passes, which its author did not expect")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)  # torch's TestCase reads the errors and failures of a result
        from pytest_ascend import emulator

        error = err[1]
        while error.__cause__ is not None and not isinstance(error, AssertionError):
            error = error.__cause__  # PyTorch's tests wrap the operator's error in one that names the sample
        is_emulated = emulator.is_active()
        found = classify(error, emulated=is_emulated, missing=emulator.missing() if is_emulated else ())
        self._note(test, found.name, found.reason, found.detail[-6000:])

    addFailure = addError  # noqa: N815

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: ARG002
        if err is not None:
            self.addError(test, err)

    def _note(self, test: unittest.TestCase, outcome: str, reason: str = "", detail: str = "") -> None:
        if self.found.get("outcome", "passed") == "passed":
            self.found = {"outcome": outcome, "reason": reason, "detail": detail}
        if not isinstance(test, unittest.TestCase):  # class-level setup
            self.say(test=str(test), **self.found)


def name_of(test: unittest.TestCase) -> str:
    """Return CLASS::TEST."""
    return f"{type(test).__name__}::{test.id().rpartition('.')[2]}"


class _Runner(unittest.TextTestRunner):
    results: _Results

    def run(self, test: Any) -> Any:
        cases = {name_of(each): each for each in _flat(test)}
        self.results.say(all=list(cases))
        unittest.TestSuite(cases[each] for each in self.results.channel.receive()["wanted"]).run(self.results)
        self.results.say(over=True)
        return self.results


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    for each in suite:
        yield from _flat(each) if isinstance(each, unittest.TestSuite) else (each,)


@functools.cache  # many tests are about one operator, and torch has thousands
def _falls_back(name: str) -> bool:
    from pytest_ascend.device import dispatcher

    kinds = {dispatcher.kind(each) for each in dispatcher.names(["aten"]) if each.partition(".")[0] == name}
    return FALLBACK in kinds and NATIVE not in kinds


def _prepare(*, device: str, everything: bool) -> None:
    """Give torch.testing the names that copies of tests from other versions import, and apply each test's skips once.

    torch_npu.testing adds an operator's skips to its decorators again for every test, in quadratic time. With
    ``everything``, they are omitted.
    """
    if device != "cpu":
        importlib.import_module("torch_npu")  # before torch looks up the devices that tests are generated for
    operators: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    for module, name, value in (
        (operators, "binary_ufuncs_and_refs", operators.binary_ufuncs),
        (common_utils, "skipIfMps", lambda test: test),
    ):
        if not hasattr(module, name):
            setattr(module, name, value)
    if device == "cpu":
        return
    information: Any = core.OpInfo
    torchs = information.get_decorators
    importlib.import_module("torch_npu.testing")  # replaces it

    def get_decorators(self: Any, *test: Any) -> list[Any]:
        more = [] if everything else [each for each in self.skips if each not in self.decorators]
        found = [each.decorators for each in more if hasattr(each, "is_active") and bool(each.is_active(*test))]
        return [*torchs(self, *test), *(one for each in found for one in each)]

    information.get_decorators = get_decorators


def main() -> None:
    """Run the file as the main module of this process."""
    file, device = Path(sys.argv[1]), sys.argv[2]
    _Runner.results = _Results(Channel(int(sys.argv[-2]), int(sys.argv[-1])), device)
    unittest.TextTestRunner = unittest.runner.TextTestRunner = _Runner  # type: ignore[misc]
    everything, sys.argv = "everything" in sys.argv, [str(file)]
    sys.path[:0] = [str(file.parent), str(file.parent.parent)]
    os.chdir(file.parent)
    text = file.read_text(encoding="utf-8", errors="replace")
    if "torch.testing._internal" in text:
        _prepare(device=device, everything=everything)
    space = sys.modules["__main__"].__dict__
    space.update(__file__=str(file), __spec__=None, __doc__=None)
    with contextlib.suppress(SystemExit):
        exec(compile(text, str(file), "exec"), space)  # noqa: S102  the file's own tests are the purpose


if __name__ == "__main__":
    main()
