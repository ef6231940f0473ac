"""A child process: how it ends, what it leaves behind, and that nobody can make its parent wait for ever."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_ascend.isolation import Channel, Child, start


@contextmanager
def child(main: Callable[[Channel], None]) -> Iterator[Child]:
    made = start(main)
    try:
        yield made
    finally:
        made.kill()
        made.close()


def code(made: Child, within_s: float = 20) -> int | None:
    end = time.monotonic() + within_s
    while made.code() is None and time.monotonic() < end:
        time.sleep(0.01)
    return made.code()


def fails(_: Channel) -> None:
    raise ValueError("in the child")


def hangs(channel: Channel) -> None:
    channel.send(ready="")
    signal.pause()


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (lambda _: None, 0),
        (lambda _: sys.exit(3), 3),
        (lambda _: sys.exit("in words"), 1),
        (lambda _: os._exit(9), 9),
        (lambda _: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
        (fails, 70),
    ],
    ids=["well", "exit", "exit in words", "at once", "killed", "raises"],
)
def test_how_it_ended_is_told(main: Callable[[Channel], None], expected: int) -> None:
    with child(main) as made:
        assert code(made) == expected
        assert made.code() == expected  # asked again, as a process is waited for once only
        assert ("ValueError: in the child" in made.notes()) is (main is fails)


def test_it_is_alive_until_it_is_killed_and_so_is_what_it_started() -> None:
    def family(channel: Channel) -> None:
        grandchild = os.fork()
        if not grandchild:
            signal.pause()
        channel.send(ready=str(grandchild))
        signal.pause()

    with child(family) as made:
        grandchild = int(heard(made)["ready"])
        assert made.code() is None
        assert made.kill()
        assert made.code() == -signal.SIGKILL
        assert gone(grandchild)


def test_its_stacks_are_written_when_asked_for() -> None:
    with child(hangs) as made:
        heard(made)
        assert "in hangs" in made.ask_for_stacks(20)


def test_a_dead_child_is_killed_again_without_harm_and_its_notes_are_removed() -> None:
    with child(lambda _: None) as made:
        code(made)
        assert made.kill()
        notes = made._notes
        assert notes.exists()
    assert not notes.exists()


def heard(made: Child) -> dict[str, str]:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if found := list(made.read()):
            return dict(found[0])
        time.sleep(0.01)
    raise AssertionError("the child said nothing")


def gone(pid: int) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False
