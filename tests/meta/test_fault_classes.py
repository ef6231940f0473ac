"""The suites runtime and programs see faults that no kernel has, and name the cause; late streams are no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forks import records

#: Fault -> the case that sees it, and the cause that it names.
CAUGHT = {
    "stream-device-waits-for-one": ("runtime/synchronize/streams", "torch.npu.synchronize() returns before the work"),
    "stream-wait-is-ignored": ("runtime/wait-stream/streams", "does not wait for the other stream's work"),
    "stream-event-query-lies": ("runtime/event-query/streams", "Event.query() says that it is over"),
    # Of the bytes that were not written, from 4,194,304 on, some may be right by chance.
    "copy-cut-at-4-mib": ("runtime/there-and-back/movement", "from byte 419430"),
    "copy-between-loses-end": ("distributed/movement/cards", "a copy of 4097 bytes is wrong"),
    "memory-is-lost-with-none-left": ("runtime/out-of-memory/refusals", "after an out-of-memory error"),
    "silu-gradient-halved": ("programs/silu/autograd", "gradient 0"),
    "late-streams": ("runtime/order/streams", ""),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("fault", CAUGHT)
def test_a_fault_of_each_class_is_seen(fault: str, tmp_path: Path) -> None:
    case, words = CAUGHT[fault]
    suite = case.partition("/")[0]
    test = "test_collectives.py::test_cards" if suite == "distributed" else f"test_{suite}.py::test_{suite}"
    node = f"{suite}/{test}[{case}]"
    for attempt in range(3 if "stream" in fault and words else 1):  # on a busy machine late work may be in time
        how = "--ascend-level=standard", f"--ascend-emulate=fault={fault}"
        found = records(tmp_path / f"report-{attempt}", [node], *how)[case]
        if found["outcome"] == "failed":
            break
    assert found["outcome"] == ("failed" if words else "passed"), found["reason"]
    assert words in found["reason"] + found["detail"]
