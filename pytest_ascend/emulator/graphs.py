"""Tasks of captured graphs: recorded by runtime/capture.c while a stream is captured, and executed here.

A graph is a list of tasks in the order in which the program issued them. Faults replace one of the three functions in
``BODIES``, under the name of the CANN function that it implements.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

#: Requests that the runtime passes in place of an operator's index: see emulated.h.
TASK, REPLAY, FORGET, GROUP, UPDATE, PRINT = range(-2, -8, -1)
_UPDATE_FAILED = 107040  # ACL_ERROR_RT_MODEL_UPDATE_FAILED

_WORK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_THREE = ctypes.c_int64 * 3


class TaskFailed(Exception):
    """A task of the runtime that returned this error code; its message is already set in the thread."""


class InTask(Exception):
    """An operator of a graph, by its name, raised an error when it was executed."""


@dataclass(slots=True)
class Task:
    """One task, executed by ``run(*given)``. For an operator, ``given`` is its words, inputs and outputs."""

    name: str
    stream: int
    run: Callable[..., Any]
    given: tuple[Any, ...] = ()
    group: int = 0
    data: int = 0  # of the runtime, to be released


@dataclass(slots=True)
class Graph:
    """The tasks of a graph, of an update, or queued behind a waiting stream."""

    tasks: list[Task] = field(default_factory=list)
    group: int = 0  # of the tasks that are being added
    replays: int = 0


#: All graphs of this process by id, oldest first.
GRAPHS: dict[int, Graph] = {}


def add(graph: Graph, task: Task) -> None:
    """Add a task to a graph that is being captured."""
    task.group = graph.group
    graph.tasks.append(task)


def replay(graph: Graph) -> None:
    """Execute a graph's tasks. An update may replace those that were not reached yet."""
    graph.replays += 1
    for place in range(len(graph.tasks)):
        carry_out(graph.tasks[place])


def carry_out(task: Task) -> None:
    """Execute one task. Raises TaskFailed for a task of the runtime, and InTask for an operator."""
    try:
        task.run(*task.given)
    except (TaskFailed, InTask):
        raise
    except Exception as error:
        raise InTask(task.name, error) from error


def update(graph: Graph, group: int, tasks: list[Task]) -> None:
    """Replace the tasks of a group. Raises ValueError if their number differs."""
    places = [place for place, task in enumerate(graph.tasks) if task.group == group]
    if len(places) != len(tasks):
        raise ValueError(f"the task group has {len(places)} tasks, and its update {len(tasks)}")
    for place, task in zip(places, tasks, strict=True):
        task.group = group
        graph.tasks[place] = task


#: Functions that faults of captured graphs replace.
BODIES: dict[str, Callable[..., None]] = {
    "aclmdlRICaptureBegin": add,
    "aclmdlRIExecuteAsync": replay,
    "aclmdlRICaptureTaskUpdateEnd": update,
}


class Graphs:
    """Handles the runtime's requests about graphs."""

    def __init__(self, runtime: Any, bodies: dict[str, Callable[..., None]], measured: Callable[..., None]) -> None:
        self._runtime, self._add, self._replay, self._update = runtime, *(bodies[each] for each in BODIES)
        self._measured = measured

    def add(self, into: int, name: str, stream: int, run: Callable[..., Any], *given: Any, data: int = 0) -> None:
        """Add an operator, or a task of the runtime with its ``data``, to a list of tasks."""
        run = partial(self._measured, name, stream, run)
        self._add(GRAPHS.setdefault(into, Graph()), Task(name, stream, run, given, data=data))

    def answer(self, what: int, words: int, into: int, stream: int) -> int:
        """Handle a request of the runtime; return CANN's error code. Raises what a task raises."""
        first = ctypes.c_int64.from_address(words).value
        if what == TASK:
            address, function, data = _THREE.from_address(words)
            self.add(into, ctypes.string_at(address).decode(), stream, _called, _WORK(function), data, data=data)
        elif what == REPLAY:
            if first in GRAPHS:  # else nothing was captured
                self._replay(GRAPHS[first])
        elif what == FORGET:
            for task in GRAPHS.pop(first, Graph()).tasks:
                self._runtime.emu_release(ctypes.c_void_p(task.data))
        elif what == GROUP:
            GRAPHS.setdefault(into, Graph()).group = first
        elif what == UPDATE:
            try:
                self._update(GRAPHS.get(first, Graph()), _THREE.from_address(words)[1], GRAPHS.pop(into, Graph()).tasks)
            except ValueError as error:
                reason = f"Updating a task group failed. Reason: {error}."
                self._runtime.emu_fail(_UPDATE_FAILED, b"%s", reason.encode())
                return _UPDATE_FAILED
        else:
            tasks = list(enumerate(GRAPHS.get(first, Graph()).tasks))
            of = {"ph": "X", "pid": f"aclGraph_{first}", "dur": 1}
            if path := _THREE.from_address(words)[1]:
                events = [{"name": task.name, **of, "tid": f"stream{task.stream}", "ts": i} for i, task in tasks]
                Path(ctypes.string_at(path).decode()).write_text(json.dumps(events, indent=1), encoding="utf-8")
            else:
                sys.stdout.writelines(f"stream {task.stream}, task {i}: {task.name}\n" for i, task in tasks)
        return 0


def _called(function: Callable[[int], int], data: int) -> None:
    if code := function(data):
        raise TaskFailed(code)
