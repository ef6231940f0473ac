"""Groups of ranks for tests: each rank is a process with its own device, started once and used by many cases.

A process that has used a device must not be forked. Therefore a host forks the ranks: a process that was forked before
any device was used, and uses none. It supervises the ranks: if a rank dies, hangs or raises, the call fails with its
number, and the next call gets new processes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ascend.isolation.process import Channel, Child, Deadline, fresh, is_stopped, start
from pytest_ascend.system.attempts import how_it_ended
from pytest_ascend.system.errors import FailedElsewhere

if TYPE_CHECKING:
    import torch

#: Seconds for new processes to open their devices and find each other, in addition to a call's limit.
START_LIMIT_S = 120.0
#: Seconds that the other ranks have to answer after one failed.
PATIENCE_S = 8.0
#: The message by which other ranks name one that they waited for in vain.
_NAMED = re.compile(r"EI000[26].{0,400}?(?:remote )?rank \[(\d+)\]", re.DOTALL)
#: The default limit of a call in seconds: less than a case's shortest deadline.
LIMIT_S = 45.0


class RankFailed(FailedElsewhere):
    """A rank died, did not answer in time, or raised. ``rank`` is its number, ``detail`` the messages of all ranks."""

    def __init__(self, message: str, *, rank: int, detail: str) -> None:
        hint = "the ranks' own words are above; the next case gets new ones"
        super().__init__(f"{message}\n{detail}".strip(), hint=hint)
        self.rank = rank
        self.said = message
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rank returned: its tensors by name, on the CPU, and other values."""

    tensors: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.tensors[name] if name in self.tensors else self.values[name]


class Ranks:
    """Runs functions on ``count`` ranks. ``kind`` is the device type: npu, cuda or cpu; ``within`` a folder.

    ``devices`` are the indices of the ranks' devices, by rank; further ranks get the first devices not among them.
    """

    def __init__(self, kind: str, count: int, within: Path | None = None, devices: Sequence[int] = ()) -> None:
        self.kind = kind
        self.count = count
        self._devices = devices
        self._within = within
        self._environ = dict(os.environ)  # later, a worker with its own card sees no other card
        self._host: Child | None = None
        self._folder: Path | None = None

    def prepare(self) -> None:
        """Fork the host. Call it before this process uses a device."""
        self._folder = folder = self._new_folder()
        self._host = start(lambda channel: live(channel, folder))

    def run(
        self, function: Callable[..., Any], *, count: int = 0, limit_s: float = LIMIT_S, **arguments: Any
    ) -> Sequence[Answer]:
        """Call ``function(place, **arguments)`` on each rank, or ``count`` of them, and return the results, by rank.

        The function is found by its name, and must return a mapping from names to tensors or JSON values. Arguments
        must be JSON values, too. Raises RankFailed.
        """
        if self._host and self._host.code() is not None:
            self.close()
        if not self._host or not self._folder:
            self._folder = self._new_folder()
            environ = {**self._environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._host = fresh(__name__, str(self._folder), environ=environ)  # this process can no longer be forked
        child, folder = self._host, self._folder
        name = f"{function.__module__}:{function.__qualname__}"
        count = count or self.count
        devices = [*self._devices, *(each for each in range(count) if each not in self._devices)]
        call = {"count": count, "kind": self.kind, "devices": devices[:count]}
        child.send(**call, function=name, arguments=arguments, limit_s=limit_s, folder=str(folder))
        found = child.wait(Deadline(child.pid, limit_s + START_LIMIT_S))
        if not found:
            why = "gave no answer" if child.code() is None else f"ended with {child.code()}"
            said = child.notes()
            self.close()
            raise RankFailed(f"the host of the ranks {why}", rank=-1, detail=said)
        message = found[0]
        if "failure" in message:
            raise RankFailed(message["failure"], rank=message["rank"], detail=message["detail"])
        from safetensors.torch import load_file

        answers = []
        for each in message["answers"]:
            answers.append(Answer(load_file(each["path"]) if each["path"] else {}, each["values"]))
            if each["path"]:
                Path(each["path"]).unlink()
        return answers

    def close(self) -> None:
        """Stop the ranks and their host, and remove their files."""
        if self._host:
            self._host.end(5)
            self._host = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="pytest-ascend-ranks-", dir=self._within))


# --- a rank ---


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function runs: the rank, the number of ranks, its device, and a folder that all ranks share."""

    rank: int
    count: int
    device: torch.device
    folder: Path


def _work(rank: int, store: Path, first: Mapping[str, Any], channel: Channel) -> None:
    """Run a rank: join the group that the ``first`` call needs, then answer calls until there are none."""
    # Redirect the output of this process and its libraries to a file: the terminal belongs to the parent.
    with output_file(store, rank).open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    warnings.simplefilter("ignore")  # torch's warnings about its own names are irrelevant here
    device = None
    while "function" in (call := channel.receive()):
        try:
            device = device or _joined(rank, store, first)
            place = Place(rank, first["count"], device, Path(call["folder"]))
            module, _, attribute = call["function"].partition(":")
            function = reduce(getattr, attribute.split("."), importlib.import_module(module))
            answer = _answer(function(place, **call["arguments"]), place)  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001 - whatever a rank raises is its answer
            answer = {"failure": f"{type(error).__name__}: {error}", "detail": traceback.format_exc()}
        channel.send(**answer)


def _joined(rank: int, store: Path, call: Mapping[str, Any]) -> torch.device:
    count, kind, devices, limit_s = (call[name] for name in ("count", "kind", "devices", "limit_s"))
    emulated = max(max(devices) + 1, count, int(os.environ.get("PYTEST_ASCEND_EMULATED_DEVICES", "1")))
    # A rank that waits for another reports it before the call's time is over.
    waits_s = str(max(2, int(limit_s / 2)))
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(count),
        LOCAL_WORLD_SIZE=str(count),
        PYTEST_ASCEND_EMULATED_DEVICES=str(emulated),
        HCCL_EXEC_TIMEOUT=waits_s,
        HCCL_CONNECT_TIMEOUT=waits_s,
    )
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    if kind == "npu":
        from pytest_ascend.device.npu import Npu, show_only

        npu = Npu(show_only(devices)[rank], emulated=os.environ.get("PYTEST_ASCEND_EMULATED") == "1")
        device = npu.torch_device()
        npu.pin_numerics()
    else:
        device = torch.device(kind, devices[rank]) if kind != "cpu" else torch.device("cpu")
    distributed.init_process_group(
        {"npu": "hccl", "cuda": "nccl", "cpu": "gloo"}[kind],
        store=distributed.FileStore(str(store), count),  # type: ignore[attr-defined]
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=max(30.0, limit_s)),
    )
    return device


def output_file(store: Path, rank: int) -> Path:
    """Return the file for the output of a rank and its libraries."""
    return store.with_name(f"{store.name}-said-{rank}")


def _answer(found: Mapping[str, Any] | None, place: Place) -> dict[str, Any]:
    """Write tensors to a file, and put everything else into the message."""
    import torch
    from safetensors.torch import save_file

    found = found or {}
    tensors = {name: each.detach().cpu().contiguous() for name, each in found.items() if isinstance(each, torch.Tensor)}
    path = place.folder / f"answer-{place.rank}.safetensors" if tensors else None
    if path:
        save_file({name: each.clone() for name, each in tensors.items()}, path)
    return {"path": str(path or ""), "values": {name: each for name, each in found.items() if name not in tensors}}


# --- the host ---


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
            # Ranks wait for each other for half of their group's limit; a shorter call would end before they report.
            is_new = key not in groups or groups[key].limit_s > call["limit_s"]
            if is_new:
                _end(groups)  # they use the same devices
                gc.collect()
                store = Path(call["folder"]) / f"store-{time.monotonic_ns()}"
                ranks = [start(partial(_work, each, store, call)) for each in range(call["count"])]
                groups[key] = Group(ranks, store, call["limit_s"])
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
        child.send(end=True)  # to all, before waiting for any
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
    stopped = [number for number in silent if is_stopped(group[number].pid)]  # regardless of the other ranks' reports
    printed = dict.fromkeys(messages, "")  # its end is searched, and the end of that is shown
    for number in messages:
        with contextlib.suppress(OSError):
            said = output_file(of.store, number).read_bytes()[-(1 << 18) :]
            printed[number] = said.decode(errors="replace").strip()
    detail = "\n".join(f"rank {n}: {text}\n{printed[n][-3000:]}".strip() for n, text in sorted(messages.items()))
    texts = (*messages.values(), *printed.values())
    named = [int(each) for text in texts for each in _NAMED.findall(text) if int(each) < len(group)]
    # The rank that others waited for; else one that ended, one that hangs, or one that raised.
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
