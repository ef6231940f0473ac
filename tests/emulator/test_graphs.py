"""Captured graphs on the emulated device: what a capture records, what it refuses, what a replay does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch_npu


def captured(work: Callable[[], torch.Tensor], **options: object) -> tuple[torch.npu.NPUGraph, torch.Tensor]:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = work()
    return graph, result


def test_a_capture_computes_nothing_and_each_replay_reads_the_inputs_of_its_time() -> None:
    x, total = torch.arange(4.0, device="npu"), torch.zeros(1, device="npu")
    graph, _ = captured(lambda: total.add_((x * 2 + 1).sum()))
    assert total.item() == 0
    graph.replay()
    assert total.item() == 16
    x.fill_(1)
    graph.replay()
    assert total.item() == 28


def test_copies_fills_and_copies_from_the_host_are_tasks_in_their_order() -> None:
    x, host = torch.arange(4.0, device="npu"), torch.full((4,), 7.0).pin_memory()
    y, z = torch.empty_like(x), torch.empty_like(x)

    def work() -> torch.Tensor:
        y.copy_(x)
        z.copy_(host, non_blocking=True)
        x.zero_()
        return y + z

    graph, result = captured(work)
    graph.replay()
    assert (result.tolist(), x.tolist()) == ([7.0, 8.0, 9.0, 10.0], [0.0] * 4)
    host.fill_(1)
    graph.replay()
    assert result.tolist() == [1.0] * 4


def test_streams_that_wait_for_each_other_belong_to_one_graph() -> None:
    x, side = torch.ones(4, device="npu"), torch.npu.Stream()

    def work() -> torch.Tensor:
        a = x * 2
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            b = a + 1
        torch.npu.current_stream().wait_stream(side)
        return b * 3

    graph, result = captured(work)
    x.fill_(2)
    graph.replay()
    assert result.tolist() == [15.0] * 4


def _beside(call: Callable[[], object]) -> object:
    """Call on a stream that no capture has."""
    with torch.npu.stream(torch.npu.Stream()):
        return call()


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        (107027, lambda x: x.sum().item()),
        (107027, lambda _: torch.npu.synchronize()),
        (107030, lambda x: x.cpu()),
        (107030, lambda _: torch.ones(3).to("npu")),
        (107030, lambda x: x.nonzero()),
        (107030, lambda x: x[x > 1]),
        (107000, lambda _: torch.ones(3).to("npu", non_blocking=True)),
        (107000, lambda x: torch.empty(4).copy_(x, non_blocking=True)),
        (107041, lambda _: _beside(lambda: torch.ones(3).to("npu", non_blocking=True))),
        (107041, lambda x: _beside(lambda: torch.empty(4).copy_(x, non_blocking=True))),
    ],
    ids=[
        "item",
        "synchronize",
        "cpu",
        "to-npu",
        "nonzero",
        "mask",
        "paged",
        "paged-to-host",
        "beside",
        "beside-to-host",
    ],
)
def test_what_a_capture_forbids_has_canns_code_and_leaves_the_device_usable(
    code: int, forbidden: Callable[[torch.Tensor], object]
) -> None:
    x = torch.arange(4.0, device="npu")

    def work() -> torch.Tensor:
        with pytest.raises(RuntimeError, match=str(code)):
            forbidden(x)
        return x + 1

    graph, result = captured(work)
    graph.replay()
    assert result.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (x * 2).sum().item() == 12


def test_a_stream_that_was_not_joined_fails_the_capture() -> None:
    x, side = torch.ones(4, device="npu"), torch.npu.Stream()

    def work() -> torch.Tensor:
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            return x + 1

    with pytest.raises(RuntimeError, match="107025"):
        captured(work)
    assert (x + 1).tolist() == [2.0] * 4
    assert captured(lambda: x + 1)[1].shape == (4,)


def test_random_numbers_go_on_from_replay_to_replay_and_begin_again_with_the_seed() -> None:
    ones = torch.ones(64, device="npu")

    def work() -> torch.Tensor:
        drawn = [torch.randn(64, device="npu"), torch.rand(64, device="npu"), torch.nn.functional.dropout(ones)]
        drawn += [torch.empty(64, device="npu").exponential_(), torch.randint(9, (64,), device="npu").float()]
        return torch.stack([*drawn, torch.multinomial(ones, 64, replacement=True).float()])

    graph, result = captured(work)

    def replayed() -> torch.Tensor:
        graph.replay()
        return result.cpu()

    torch.npu.manual_seed(3)
    first, second = replayed(), replayed()
    torch.npu.manual_seed(3)
    assert torch.equal(replayed(), first)
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    torch.npu.manual_seed(3)
    assert torch.equal(torch.randn(64, device="npu").cpu(), first[0])


def test_an_update_replaces_the_tasks_of_a_group() -> None:
    x, y, out = torch.ones(4, device="npu"), torch.full((4,), 5.0, device="npu"), torch.empty(4, device="npu")
    stream, graph = torch.npu.Stream(), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
        torch.add(x, y, out=out)
        handle = torch.npu.graph_task_group_end(torch.npu.current_stream())
        result = out * 2
    graph.replay()
    assert result.tolist() == [12.0] * 4
    with torch.npu.stream(stream):
        torch.npu.graph_task_update_begin(stream, handle)
        torch.add(x, y, alpha=3, out=out)
        torch.npu.graph_task_update_end(stream)
    graph.replay()
    assert result.tolist() == [32.0] * 4
    with torch.npu.stream(stream):
        torch.npu.graph_task_update_begin(stream, handle)
        with pytest.raises(RuntimeError, match="has 1 tasks, and its update 0"):
            torch.npu.graph_task_update_end(stream)


def test_a_replay_waits_for_an_external_event_that_is_recorded_later_and_what_comes_after_it_waits_too() -> None:
    x, event, stream = torch.ones(4, device="npu"), torch.npu.ExternalEvent(), torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        event.wait(torch.npu.current_stream())
        event.reset(torch.npu.current_stream())
        result = x * 2
    for value in (3.0, 4.0):
        graph.replay()
        after = result + 1
        with torch.npu.stream(stream):
            x.fill_(value)
            event.record(stream)
        assert after.tolist() == [2 * value + 1] * 4


def test_a_host_function_is_called_at_each_replay() -> None:
    x, calls = torch.ones(4, device="npu"), list[int]()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        torch_npu.npu._launch_host_func(torch.npu.current_stream(), calls.append, 1)
    assert not calls
    graph.replay()
    graph.replay()
    torch.npu.synchronize()
    assert (calls, x.tolist()) == ([1, 1], [3.0] * 4)


@pytest.mark.filterwarnings("ignore:calling NPUGraph")
def test_a_dump_names_the_tasks(tmp_path: Path) -> None:
    x = torch.ones(4, device="npu")
    graph, _ = captured(lambda: torch.exp(x + 1))
    graph.debug_dump(str(tmp_path / "graph.json"))
    assert [task["name"] for task in json.loads((tmp_path / "graph.json").read_text())] == ["aclnnAdds", "aclnnExp"]
