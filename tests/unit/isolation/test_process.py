"""A child process: how it ends, what it leaves behind, and that nobody can make its parent wait for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.isolation import process
from pytest_ascend.isolation.process import Channel, Child, native, plogs, start


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


def test_a_child_dies_with_its_parent_whatever_ends_that() -> None:
    def family(channel: Channel) -> None:
        channel.send(grandchild=start(hangs).pid)
        os.kill(os.getpid(), signal.SIGKILL)

    with child(family) as made:
        grandchild = int(heard(made)["grandchild"])
        assert code(made) == -signal.SIGKILL
        try:
            assert gone(grandchild)
        finally:
            with suppress(ProcessLookupError):
                os.kill(grandchild, signal.SIGKILL)


def test_a_child_whose_parent_is_gone_before_it_begins_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ascend.isolation.process.os.getpid", lambda: 1)
    with child(hangs) as made:
        assert code(made) == 0
        assert made.read() == []


def test_a_child_that_ends_does_not_wait_for_a_reader() -> None:
    """It says more than a pipe holds, 64 KiB."""
    with child(lambda channel: channel.send(text="x" * 2**20)) as made:
        assert made.is_gone(20)
        assert made.code() == 0


def test_a_child_that_does_not_end_is_waited_for_no_longer_than_asked() -> None:
    with child(hangs) as made:
        began = time.monotonic()
        assert not made.is_gone(0.05)
        assert 0.05 <= time.monotonic() - began < 10


def pipes(process: str = "self") -> set[tuple[str, str]]:
    """Return the pipes that a process holds: the number of each, and which it is."""
    found = set()
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            found.add((each.name, str(each.readlink())))
    return {(number, target) for number, target in found if target.startswith("pipe:")}


def test_each_side_holds_its_own_ends_of_the_two_pipes_alone() -> None:
    """Who held the other's would never see an end of file."""
    before = pipes()
    with child(hangs) as made:
        heard(made)
        ours, theirs = pipes() - before, pipes(str(made.pid)) - before
        assert len(ours) == len(theirs) == 2
        assert {target for _, target in ours} == {target for _, target in theirs}
    assert pipes() == before


@pytest.mark.parametrize(
    ("tools", "wanted"),
    [
        ({"eu-stack": "echo of elfutils $2", "gdb": "echo of gdb"}, "eu-stack:\nof elfutils {pid}"),
        ({"eu-stack": "exit 1", "gdb": "echo of gdb $2"}, "gdb:\nof gdb {pid}"),
        ({"eu-stack": ":", "py-spy": "echo of py-spy $4"}, "py-spy:\nof py-spy {pid}"),
        ({"eu-stack": "echo half; exit 1"}, "no tool for native stacks"),
        ({}, "no tool for native stacks"),
    ],
)
def test_native_stacks_are_those_of_the_best_tool_that_has_any(
    tools: dict[str, str], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native(os.getpid()).startswith(wanted.format(pid=os.getpid()))


def test_without_a_tool_the_kernel_names_what_each_thread_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with child(hangs) as made:
        heard(made)
        said = native(made.pid).splitlines()[1:]
    assert said[0].startswith(f"  {made.pid}: {Path('/proc/self/comm').read_text(encoding='utf-8').strip()}")


def test_its_stacks_are_written_when_asked_for() -> None:
    with child(hangs) as made:
        heard(made)
        assert "in hangs" in made.ask_for_stacks(20)


def test_a_dead_child_is_killed_again_without_harm() -> None:
    with child(lambda _: None) as made:
        code(made)
        assert made.kill()


def test_a_process_that_is_killed_leaves_no_files_of_its_children(tmp_path: Path) -> None:
    """As the host of ranks, which is ended with the run."""
    program = (
        "import os, signal, time; from pytest_ascend.isolation.process import start;"
        "start(lambda _: time.sleep(60)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def heard(made: Child) -> dict[str, Any]:
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
            if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


#: As published in reports of users: the level, the module with the process, the time, the place, the thread.
PLOG = "[ERROR] RUNTIME({pid},python3):2024-05-27-15:26:09.482.138 [engine.cc:1263]{pid} ReportExceptProc:{what}\n"


def _plog(folder: Path, pid: int, what: str, *, file_of: int = 0) -> Path:
    path = folder / "debug" / "plog" / f"plog-{file_of or pid}_20240527152609482.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PLOG.format(pid=pid, what=what) + PLOG.format(pid=77, what="of another process"), encoding="utf-8")
    return path


def _log_of(pid: int, since: float, **variables: str) -> str:
    return "\n".join(plogs(pid, since, variables))


def test_the_log_of_cann_is_found_where_its_manual_says(tmp_path: Path) -> None:
    _plog(tmp_path / "named", 12, "in the named folder")
    _plog(tmp_path / "work" / "log", 12, "in the folder of work")
    _plog(tmp_path / "home" / "ascend" / "log", 12, "in the home")
    named = {"ASCEND_PROCESS_LOG_PATH": str(tmp_path / "named")}
    work, home = {"ASCEND_WORK_PATH": str(tmp_path / "work")}, {"HOME": str(tmp_path / "home")}
    assert "in the named folder" in _log_of(12, 0, **named, **work, **home)
    assert "in the folder of work" in _log_of(12, 0, **work, **home)
    assert "in the home" in _log_of(12, 0, **home)
    assert _log_of(13, 0, HOME=str(tmp_path / "nowhere")) == ""


def test_of_a_log_that_a_parent_opened_only_the_lines_of_the_process_are_kept(tmp_path: Path) -> None:
    _plog(tmp_path, 12, "of the fork", file_of=11)
    said = _log_of(12, 0, ASCEND_PROCESS_LOG_PATH=str(tmp_path))
    assert "of the fork" in said
    assert "of another process" not in said


def test_what_the_card_said_for_the_process_is_kept_too(tmp_path: Path) -> None:
    _plog(tmp_path, 12, "of the fork", file_of=11)
    for pid in (12, 13):
        path = tmp_path / "debug" / "device-0" / f"device-{pid}_20240527152609482.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"[ERROR] TSCH(-1,null): of the card, for {pid}\n", encoding="utf-8")
    said = _log_of(12, 0, ASCEND_PROCESS_LOG_PATH=str(tmp_path))
    assert "of the fork" in said
    assert "of the card, for 12" in said
    assert "for 13" not in said


def test_a_log_of_an_earlier_process_with_this_number_is_none(tmp_path: Path) -> None:
    path = _plog(tmp_path, 12, "long ago")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert _log_of(12, time.time() - 60, ASCEND_PROCESS_LOG_PATH=str(tmp_path)) == ""


def test_of_a_long_log_both_ends_are_kept_and_nothing_that_moves_a_terminal(tmp_path: Path) -> None:
    path = _plog(tmp_path, 12, "the cause \x1b[2J\x07 \u202e")
    path.write_text(
        path.read_text(encoding="utf-8") + "x" * 300_000 + "\n" + PLOG.format(pid=12, what="the end"), encoding="utf-8"
    )
    said = _log_of(12, 0, ASCEND_PROCESS_LOG_PATH=str(tmp_path))
    assert "the cause ?[2J? ?" in said
    assert "the end" in said
    assert " bytes ..." in said
    assert len(said) < 25_000


def test_a_log_that_is_a_link_or_a_pipe_is_left_alone(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("(12,secret", encoding="utf-8")
    path = _plog(tmp_path, 12, "x")
    path.unlink()
    path.symlink_to(secret)
    assert _log_of(12, 0, ASCEND_PROCESS_LOG_PATH=str(tmp_path)) == ""
    path.unlink()
    os.mkfifo(path)
    assert _log_of(12, 0, ASCEND_PROCESS_LOG_PATH=str(tmp_path)) == ""


def test_who_does_not_answer_is_not_waited_for_and_not_left_behind() -> None:
    made = start(lambda _: signal.pause())
    said = made.result(0.3)["failure"]
    assert said.startswith("its process gave no answer within 0.3 s")
    assert made.code() == -signal.SIGKILL


@pytest.mark.parametrize("line", [b"[1]", b"1", b"x", b""])
def test_a_message_is_an_object(line: bytes) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb"):
        made = Child(0, reading, writing, 0)
        os.write(writing, b'{"a": 1}\n')
        assert made.read() == [{"a": 1}]
        os.write(writing, line + b"\n")
        with pytest.raises(ValueError, match=r"not an object|Expecting value"):
            made.read()


def test_a_message_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MESSAGE_LIMIT_BYTES", 1000)
    with child(lambda channel: channel.send(text="x" * 2000)) as made, pytest.raises(ValueError, match="of more than"):
        heard(made)


def test_the_wait_for_a_cpu_is_the_kernels_figure_of_a_process_and_its_descendants() -> None:
    before = int(Path("/proc/self/schedstat").read_text(encoding="utf-8").split()[1]) / 1e9
    with child(lambda _: start(lambda _: signal.pause()) and signal.pause()) as made:
        below: list[str] = []
        while not below:
            below = Path(f"/proc/{made.pid}/task/{made.pid}/children").read_text(encoding="utf-8").split()
        found = process.cpu_waits(os.getpid())
    assert before <= found[str(os.getpid())] < time.monotonic()
    assert {str(made.pid), *below} <= set(found)
    assert process.cpu_waits(2**30) == {}


def test_a_process_that_ends_while_it_is_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with child(lambda _: signal.pause()) as made:
        for name in ("listdir", "scandir"):
            usual = getattr(os, name)

            def there(path: object, usual: Callable[..., Any] = usual) -> Any:
                if str(path) == f"/proc/{made.pid}/task":
                    raise FileNotFoundError(2, "No such file or directory", path)
                return usual(path)

            monkeypatch.setattr(os, name, there)
        found = process.cpu_waits(os.getpid())
    assert str(os.getpid()) in found
    assert str(made.pid) not in found


def test_waiting_for_a_cpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([{"1": 1000.0, "2": 3.0}, {"1": 1000.0, "2": 903.0}, {"1": 1000.0, "2": 903.0, "3": 0.5}])
    monkeypatch.setattr(process, "cpu_waits", lambda _: next(waits))
    made = process.Deadline(1, -1)
    assert not made.is_over()
    assert made.at > time.monotonic() + 890
    made.allow(-1)  # what was known seconds ago is not asked again
    assert made.is_over()  # it hangs, with a CPU or asleep
