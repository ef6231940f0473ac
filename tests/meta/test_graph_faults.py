"""Planted faults of captured graphs and mistakes of servers are seen by the suite; right devices are not accused."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.forks import run

#: Fault -> a check that sees it, and the operator, or what else is wrong, that its message names.
FAULTS = {
    "graph-reads-old-inputs": ("perceptron", "the first wrong operator is addmm"),
    "graph-runs-at-capture": ("counter", "what add_ counts"),
    "graph-loses-a-copy": ("copies", "what copy_ copies"),
    "graph-loses-a-fill": ("copies", "what zero_ fills"),
    "graph-shares-its-pool": ("pools", "exp and add of graph 0"),
    "graph-is-stale-twice": ("counter", "what add_ counts"),
    "graph-repeats-random-numbers": ("dropout", "dropout"),
    "graph-ignores-updates": ("task-group", "update of add"),
    "graph-ignores-waits": ("streams", "exp of one stream and add"),
    "graph-ignores-external-waits": ("task-group", "update of add"),
    "graph-forgets-last-task": ("growing-cache", "softmax and product"),
    "graph-ends-at-1024": ("thousand-replays", "what 1,100 additions"),
    "graph-replays-twice": ("counter", "what add_ counts"),
    "graph-loses-host-calls": ("host-function", "calls of the host function"),
    "replay-keeps-device-memory": ("thousand-replays", "bytes"),
    "replay-keeps-host-memory": ("many-graphs", "bytes"),
}
#: Without this wait the update may still come in time: the check is made five times.
RACE = "graph-ignores-external-waits"
#: What a server does wrong -> what is named: the step, and the first result of it that is wrong.
SERVERS = {
    "StaleLengths": r"graph of \d rows, step 1: attention of layer 0",
    "PaddingIsComputed": r"graph of \d rows, step \d: (keys|attention)",
    "StaleTableOfPadding": r"graph of \d rows, step \d: (keys|attention)",
    "TableOnlyOnTheHost": r"graph of \d rows, step \d: attention of layer 0",
    "LayersInAnotherOrder": r"graph of \d rows, step \d: (attention of )?layer 0",
    "PaddingNotZeroed": r"graph of 4 rows, step \d: layer 0",
    "DecidedAtCapture": r"graph of \d rows, step 1: logits",
    "SlotsOneStepLate": r"graph of \d rows, step 1: attention of layer 0",
    "BuffersReassigned": r"graph of \d rows, step \d: (keys|attention)",
}
PAGE = Path(__file__).parents[2] / "docs" / "graphs.md"
#: The causes of fixes in vLLM Ascend, as the page of captured graphs lists them: mistake -> what is named first.
CAUSES = dict(re.findall(r"^\| #\d+ \|.*\| `(\w+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
RIGHT = (
    "server right",
    "server chip:1",
    "training-step chip:2",
    "perceptron chip:3",
    "vit-encoder chip:4",
    "server chip:5",
)


@cache
def told() -> dict[str, str]:
    lines = [f"{check} {fault}" for fault, (check, _) in FAULTS.items()] + [f"server {each}" for each in SERVERS]
    lines += 4 * [f"{FAULTS[RACE][0]} {RACE}"]
    done = run("tests.meta.graph_mistakes", *lines, *RIGHT)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = {}
    for name, says in (line.split("\t") for line in done.stdout.splitlines() if "\t" in line):
        if found.get(name, "agrees") == "agrees":
            found[name] = says
    return found


@pytest.mark.drawn(5)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_captured_graph_is_seen_with_its_operator(fault: str) -> None:
    check, named = FAULTS[fault]
    assert named in told()[f"{check} {fault}"]


@pytest.mark.parametrize("mistake", SERVERS)
def test_a_mistake_of_a_server_is_seen_with_the_graph_the_step_and_what_is_wrong(mistake: str) -> None:
    found = told()[f"server {mistake}"]
    assert re.match(SERVERS[mistake], found), found
    assert any(re.search(f"step \\d: {named}", found) for named in CAUSES[mistake].split(", or "))


def test_each_cause_of_a_fix_is_planted() -> None:
    assert CAUSES.keys() == SERVERS.keys()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("line", RIGHT)
def test_right_devices_of_any_numerics_are_not_accused(line: str) -> None:
    assert told()[line] == "agrees"
