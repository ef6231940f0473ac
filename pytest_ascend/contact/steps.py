"""The kit's questions that need torch, each in a process of its own, which prints the answer.

A step with many questions (``questions.py``) writes each answer to a file at once, so that a question that kills or
hangs the process costs no other answer. Nothing here judges.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pytest_ascend.isolation.process import start
from pytest_ascend.system.errors import answered
from pytest_ascend.system.programs import tell

#: Questions by name, e.g. "abs/float32", with functions that answer them and never raise.
Questions: TypeAlias = Iterator[tuple[str, Callable[[], Any]]]
#: Format of the kit, raised whenever an older reader would misread it.
SCHEMA = 1


class Notebook:
    """The answers so far to a list of questions, one line of JSON each, in a file that later processes read too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.answers: dict[str, Any] = {}
        self.asked = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            question, *answer = json.loads(line)
            self.asked = "" if answer else question
            self.answers |= {question: answer[0]} if answer else {}

    def note(self, *line: Any) -> None:
        """Write a question, or a question and its answer."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")

    def work(self, questions: Questions, end: float, health: Callable[[], str] = str) -> None:
        """Answer the open questions until ``end`` (``time.monotonic``, which all processes share).

        ``health`` returns what is wrong with the device, "" for nothing. If a rejection leaves it unhealthy, exit.
        """
        for question, ask in questions:
            if question not in self.answers:
                if time.monotonic() > end:
                    return
                self.note(question)
                answer = ask()
                said = answer.get("said", "") if isinstance(answer, dict) else answer
                if isinstance(said, str) and re.match(r"\w+: ", said) and (wrong := health()):  # a rejection
                    # After a fatal error, every later call of this process would fail; another one continues.
                    sys.exit(f"the device is lost after {answer!s:.300}: {wrong}")
                self.note(question, answer)

    def nested(self) -> dict[str, Any]:
        """Return the answers nested by the parts of their questions, e.g. {"abs": {"float32": answer}}."""
        found: dict[str, Any] = {}
        for question, answer in self.answers.items():
            *parents, last = question.split("/")
            place = found
            for each in parents:
                place = place.setdefault(each, {})
            place[last] = answer
        return found


def threads_and_handlers() -> dict[str, Any]:
    """List threads and caught signals before and after each import, and after the first use of the device."""
    found = {"at the start": _process()}
    import torch

    found["after import torch"] = _process()
    import torch_npu  # noqa: F401

    found["after import torch_npu"] = _process()
    torch.ones(2, device="npu").cpu()
    found["after the first use"] = _process()
    return found


def _process() -> dict[str, Any]:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    caught = int((re.search(r"SigCgt:\s*([0-9a-f]+)", status) or ["", "0"])[1], 16)
    names = [signal.Signals(n).name for n in signal.Signals if caught >> (n - 1) & 1]
    tasks = sorted(Path("/proc/self/task").iterdir())
    return {"threads": [(each / "comm").read_text(errors="replace").strip() for each in tasks], "caught": names}


def forks() -> dict[str, str]:
    """Fork before and after the first use, and return what a child can do."""
    import torch
    import torch_npu  # noqa: F401

    before = _in_child(lambda: torch.ones(2, device="npu").cpu().tolist())
    torch.ones(2, device="npu").cpu()
    after = _in_child(lambda: int(ctypes.CDLL("libascendcl.so").aclrtSetDevice(0)))
    return {"before the first use": before, "after the first use": after}


def _in_child(work: Callable[[], object], limit_s: float = 60.0) -> str:
    answer = start(lambda channel: channel.send(said=str(answered(work, 4000))[:4000])).result(limit_s)
    return str(answer.get("said") or answer["failure"])


def recovery() -> dict[str, Any]:
    """Kill a process that is working, and measure how long it takes until the card can be used again."""
    import torch
    import torch_npu  # noqa: F401  (importing alone is safe for those that are forked)

    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        x = torch.ones(1024, 1024, device="npu")
        os.write(writing, b"x")
        while True:
            x = (x @ x).clamp(0, 1)
    os.read(reading, 1)
    time.sleep(1.0)  # until its queue is full of products
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    os.waitpid(pid, 0)
    gone_s = time.monotonic() - began
    refusals: list[str] = []
    while time.monotonic() - began < 45:
        answer = _in_child(lambda: torch.ones(2, device="npu").cpu().tolist(), 30.0)
        if answer == "[1.0, 1.0]":
            return {"process_gone_s": gone_s, "usable_after_s": time.monotonic() - began, "said": refusals}
        refusals.append(answer[:1000])
        time.sleep(1.0)
    return {"process_gone_s": gone_s, "usable_after_s": None, "said": refusals}


def start_up() -> dict[str, Any]:
    """Time the imports and the first use, and return the device memory that a context takes."""
    began = time.perf_counter()
    import torch

    torch_s = time.perf_counter() - began
    import torch_npu

    npu_s = time.perf_counter() - began - torch_s
    began = time.perf_counter()
    torch.ones(2, device="npu").cpu()
    init_s = time.perf_counter() - began
    free, total = torch.npu.mem_get_info()  # type: ignore[attr-defined]
    return {
        "import_torch_s": torch_s,
        "import_torch_npu_s": npu_s,
        "first_use_s": init_s,
        "memory_total_bytes": int(total),
        "memory_used_by_context_bytes": int(total - free),
        "chip": str(torch.npu.get_device_name(0)),  # type: ignore[attr-defined]
        "properties": str(torch.npu.get_device_properties(0)),  # type: ignore[attr-defined]
        "count": int(torch.npu.device_count()),  # type: ignore[attr-defined]
        "torch": torch.__version__,
        "torch_npu": torch_npu.__version__,
    }


def numbering() -> dict[str, Any]:
    """Return the runtime's numbers of the cards."""
    import torch
    import torch_npu  # noqa: F401

    from pytest_ascend.device.probe import numbering as asked

    return asked(torch.npu.device_count())  # type: ignore[attr-defined]


#: Steps that import torch and torch_npu themselves: when and how is part of the answer.
IMPORTING: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "threads": threads_and_handlers,
    "forks": forks,
    "recovery": recovery,
    "start-up": start_up,
    "numbering": numbering,
}


if __name__ == "__main__":
    tell(IMPORTING[sys.argv[1]]())
