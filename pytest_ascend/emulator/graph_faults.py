"""Planted faults of captured graphs: what a capture records, what a replay does, what an update changes.

They replace the functions in ``graphs.BODIES``, under the name of the CANN function, as other faults replace kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from pytest_ascend.emulator.graphs import GRAPHS, Graph, Task, carry_out
from pytest_ascend.emulator.tensors import tensors_in

Body: TypeAlias = Callable[..., Any]
_FILLS = ("MEMSET_ASYNC", "aclnnInplaceZero", "aclnnInplaceFillScalar")
_COPIES = ("MEMCPY_ASYNC", "aclnnInplaceCopy")


def _outputs(task: Task) -> list[torch.Tensor]:
    """Return what an operator writes, as far as it is declared as an output."""
    return tensors_in(task.given[2]) if len(task.given) > 2 else []


def _of_replay(change: Callable[[Graph], list[Task]]) -> Callable[[Body], Body]:
    """Carry out other tasks than the captured ones."""

    def plant(_: Body) -> Body:
        def body(graph: Graph) -> None:
            graph.replays += 1
            for task in change(graph):
                carry_out(task)

        return body

    return plant


def instead(wrong: Callable[..., Any]) -> Callable[[Body], Body]:
    """Compute something else; the wrong body gets the correct one before its arguments."""
    return lambda correct: lambda *given: wrong(correct, *given)


def _keep(task: Task, which: Callable[[torch.Tensor], bool]) -> None:
    """Have an operator read copies of some of its inputs."""
    kept = [each.clone() if isinstance(each, torch.Tensor) and which(each) else each for each in task.given[1]]
    task.given = (task.given[0], kept, *task.given[2:])


def _frozen(correct: Body, graph: Graph, task: Task) -> None:
    """Keep copies of what the graph does not write itself: the capture's inputs."""
    if len(task.given) > 2:
        written = {each.data_ptr() for other in graph.tasks for each in _outputs(other)}
        written |= {each.data_ptr() for each in tensors_in(task.given[1][:1]) if "Inplace" in task.name}
        _keep(task, lambda each: each.data_ptr() not in written)
    correct(graph, task)


def _at_capture(correct: Body, graph: Graph, task: Task) -> None:
    correct(graph, task)
    carry_out(task)


def _over_the_others(correct: Body, graph: Graph) -> None:
    """Write to the results of other graphs too, as graphs do whose private pools are one."""
    correct(graph)
    mine = [each for task in graph.tasks for each in _outputs(task)]
    for other in list(GRAPHS.values()):
        if other is not graph:
            theirs = [each for task in other.tasks for each in _outputs(task)]
            for target, value in zip(theirs, mine, strict=False):
                if target.shape == value.shape and target.dtype == value.dtype:
                    target.copy_(value)


def _same_random_numbers(correct: Body, graph: Graph, task: Task) -> None:
    """Draw from the state at capture: seed and offset are tensors that each replay would read."""
    if len(task.given) > 2 and task.name.endswith("Tensor"):
        _keep(task, lambda each: each.dtype is torch.int64 and each.numel() == 1)
    correct(graph, task)


def _without_last_copy(graph: Graph) -> list[Task]:
    places = [place for place, task in enumerate(graph.tasks) if task.name in _COPIES]
    return [task for place, task in enumerate(graph.tasks) if not places or place != places[-1]]


def _without(*names: str) -> Callable[[Body], Body]:
    return _of_replay(lambda graph: [task for task in graph.tasks if task.name not in names])


def _by_stream(graph: Graph) -> list[Task]:
    """Put what was captured from other streams before the rest, whatever waits for what."""
    return sorted(graph.tasks, key=lambda task: bool(graph.tasks) and task.stream == graph.tasks[0].stream)


#: Name -> what it replaces, and with what.
GRAPH_FAULTS: Mapping[str, Mapping[str, Callable[[Body], Body]]] = {
    "graph-reads-old-inputs": {"aclmdlRICaptureBegin": instead(_frozen)},
    "graph-runs-at-capture": {"aclmdlRICaptureBegin": instead(_at_capture)},
    "graph-loses-a-copy": {"aclmdlRIExecuteAsync": _of_replay(_without_last_copy)},
    "graph-loses-a-fill": {"aclmdlRIExecuteAsync": _without(*_FILLS)},
    "graph-shares-its-pool": {"aclmdlRIExecuteAsync": instead(_over_the_others)},
    "graph-is-stale-twice": {
        "aclmdlRIExecuteAsync": _of_replay(lambda graph: graph.tasks[: -1 if graph.replays > 1 else None])
    },
    "graph-repeats-random-numbers": {"aclmdlRICaptureBegin": instead(_same_random_numbers)},
    "graph-ignores-updates": {"aclmdlRICaptureTaskUpdateEnd": instead(lambda *_: None)},
    "graph-ignores-waits": {"aclmdlRIExecuteAsync": _of_replay(_by_stream)},
    "graph-ignores-external-waits": {"aclmdlRIExecuteAsync": _without("EVENT_WAIT", "VALUE_WAIT")},
    "graph-forgets-last-task": {"aclmdlRIExecuteAsync": _of_replay(lambda graph: graph.tasks[:-1])},
    "graph-replays-twice": {"aclmdlRIExecuteAsync": _of_replay(lambda graph: graph.tasks * 2)},
    "graph-loses-host-calls": {"aclmdlRIExecuteAsync": _without("HOST_FUNC")},
}
