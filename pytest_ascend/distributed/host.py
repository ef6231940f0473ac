"""The host of ranks: a process that uses no device, starts ranks, passes on calls and reports who failed."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_ascend.distributed import rank
from pytest_ascend.isolation.attempts import how_it_ended
from pytest_ascend.isolation.process import Channel, Child, Deadline, is_stopped, start

#: Seconds for new processes to open their devices and find each other, in addition to a call's limit.
START_LIMIT_S = 120.0
#: Seconds that the other ranks have to answer after one failed.
PATIENCE_S = 8.0

#: How the other ranks name one that they wait for in vain.
_NAMED = re.compile(r"EI000[26].{0,400}?(?:remote )?rank \[(\d+)\]", re.DOTALL)


def live(channel: Channel, folder: Path) -> None:
    """Handle calls until the channel is closed; files go into ``folder``."""
    tempfile.tempdir = str(folder)
    # Import what every rank needs, so that forks have it; none of it uses a device.
    import torch.distributed

    if not torch.distributed.is_available():
        raise NotImplementedError("this torch is built without torch.distributed")
    torch.set_num_threads(1)
    groups: dict[tuple[str, int], Group] = {}
    try:
        while "function" in (call := channel.receive()):
            key = (call["kind"], call["count"])
            # Ranks wait for each other half of their group's limit; a shorter call would end before they report.
            is_new = key not in groups or groups[key].limit_s > call["limit_s"]
            if is_new:
                _end(groups)  # they use the same devices
                gc.collect()
                store = Path(call["folder"]) / f"store-{time.monotonic_ns()}"
                of_all = {"kind": call["kind"], "devices": call["devices"], "store": store, "limit_s": call["limit_s"]}
                work = [rank.Work(rank=each, **of_all) for each in range(call["count"])]
                groups[key] = Group([start(each.live) for each in work], store, call["limit_s"])
            message = _supervised(groups[key], call, START_LIMIT_S if is_new else 0.0)
            if "failure" in message:
                _end(groups)
            channel.send(**message)
    finally:
        _end(groups)


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that found each other through a file, their output, and the limit of their first call in seconds."""

    ranks: Sequence[Child]
    store: Path
    limit_s: float


def _end(groups: dict[tuple[str, int], Group]) -> None:
    children, limit = [child for group in groups.values() for child in group.ranks], time.monotonic() + 1
    for child in children:
        child.send(end=True)  # to all, before any is waited for
    for child in children:
        child.end(max(0.0, limit - time.monotonic()))
    groups.clear()


def _supervised(of: Group, call: Mapping[str, Any], extra_s: float) -> dict[str, Any]:
    """Have the ranks run the call; return their answers, or the failure with the rank that caused it."""
    group = of.ranks
    answers: dict[int, dict[str, Any]] = {}
    ended: dict[int, str] = {}
    for child in group:
        child.send(function=call["function"], arguments=call["arguments"], folder=call["folder"])
    deadline = Deadline(os.getpid(), call["limit_s"] + extra_s)
    failed = False
    while len(answers) + len(ended) < len(group) and not deadline.is_over():
        for number in [each for each in range(len(group)) if each not in answers and each not in ended]:
            code = group[number].code()
            found = []
            with contextlib.suppress(ValueError):
                found = group[number].read()
            if found:
                answers[number] = found[-1]
            elif code is not None:
                ended[number] = how_it_ended(code)[1]
        if not failed and (ended or any("failure" in each for each in answers.values())):
            failed = True
            deadline = min(deadline, Deadline(os.getpid(), PATIENCE_S), key=lambda each: each.at)
        time.sleep(0.001)
    if len(answers) == len(group) and not failed:
        return {"answers": [answers[each] for each in range(len(group))]}
    return _blamed(of, answers, ended, call["limit_s"])


def _blamed(
    of: Group, answers: Mapping[int, dict[str, Any]], ended: Mapping[int, str], limit_s: float
) -> dict[str, Any]:
    group = of.ranks
    raised = {number: each for number, each in answers.items() if "failure" in each}
    silent = [number for number in range(len(group)) if number not in answers and number not in ended]
    messages = {number: f"{each['failure']}\n{each['detail']}" for number, each in raised.items()}
    messages |= {number: f"{how}\n{group[number].notes()}" for number, how in ended.items()}
    messages |= {number: f"no answer\n{group[number].ask_for_stacks(1.0)}" for number in silent}
    stopped = [number for number in silent if is_stopped(group[number].pid)]  # whatever the other ranks report
    printed = dict.fromkeys(messages, "")  # the end of it is searched, and the end of that shown
    for number in messages:
        with contextlib.suppress(OSError):
            said = rank.output_file(of.store, number).read_bytes()[-(1 << 18) :]
            printed[number] = said.decode(errors="replace").strip()
    detail = "\n".join(f"rank {n}: {text}\n{printed[n][-3000:]}".strip() for n, text in sorted(messages.items()))
    texts = (*messages.values(), *printed.values())
    named = [int(each) for text in texts for each in _NAMED.findall(text) if int(each) < len(group)]
    # The one that others waited for; else one that ended, one that hangs, or one that raised.
    usual = next(iter([*ended, *(silent if not raised else []), *raised, *silent]))
    worst = stopped[0] if stopped else max(set(named), key=named.count) if named else usual
    how = (
        ended.get(worst)
        or (f"gave no answer within {limit_s:g} s" if worst in silent else "")
        or str(raised.get(worst, {}).get("failure", "is the one that the others waited for"))
    )
    return {"failure": f"rank {worst} of {len(group)}: {how}", "rank": worst, "detail": detail}


if __name__ == "__main__":
    live(Channel(int(sys.argv[2]), int(sys.argv[3])), Path(sys.argv[1]))
