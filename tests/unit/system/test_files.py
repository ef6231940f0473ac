"""Files that anybody may have written: only regular ones, bounded, and JSON that says one thing."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest

import pytest_ascend
from pytest_ascend.errors import UsageError
from pytest_ascend.system.files import read_regular, strict_json, write_file, write_if_new


def test_a_regular_file_is_read_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path / "file", 7) == b"content"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    for name, limit, follow in (
        ("pipe", 9, True),
        ("file", 6, True),
        ("sparse", 1 << 30, True),
        (".", 9, True),
        ("link", 9, False),
        ("missing", 9, True),
        ("a\0b", 9, True),
    ):
        with pytest.raises(OSError, match=r".+"):
            read_regular(tmp_path / name, limit, follow=follow)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(Path("/dev/zero"), 9)


def test_a_file_that_has_the_content_already_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    for data, is_kept in ((b"content", True), (b"conten", False), (b"contents", False)):
        before = path.stat().st_ino
        write_if_new(path, data)
        assert (path.read_bytes(), path.stat().st_ino == before) == (data, is_kept)


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    """A pipe is written to, a link stays a link, and what leads elsewhere or cannot be written is an error."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="No such device"):  # nobody reads
        write_file(tmp_path / "pipe", "x")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "pipe", "text")
    assert os.read(reading, 9) == b"text"
    os.close(reading)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)

    (tmp_path / "inner").mkdir()
    (tmp_path / "latest").symlink_to("file")
    (tmp_path / "inner" / "trap").symlink_to(tmp_path / "file")
    write_file(tmp_path / "latest", "first")
    (tmp_path / "file").chmod(0o640)
    write_file(tmp_path / "latest", b"second")
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    for wrong in ("inner/trap", "inner", "a\0b"):
        with pytest.raises(UsageError, match="cannot write"):
            write_file(tmp_path / wrong, "third")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "second"
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["file", "inner", "latest", "pipe", "trap"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (tmp_path / "null").write_bytes(b"")
    except PermissionError:
        pytest.skip("no devices can be made or opened here")
    write_file(tmp_path / "null", "text")
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)


BAD = (
    *("NaN", "[Infinity]", "1e999", "9" * 5000, '{"a": 1, "a": 1}', "[" * 40 + "]" * 40),
    *("[" * 200_000, "", "{", b"\xff", b"\xff\xfe1\x00"),
)


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_two_readers_may_take_for_two_things_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        strict_json(text)


def test_json_says_what_it_says() -> None:
    assert strict_json(b'{"a": [1, -2.5, null, "\\u00e9"]}') == {"a": [1, -2.5, None, "é"]}


#: Modules that open what is theirs alone: /proc, pipes to their children, a file that they have just made themselves.
OWN = {
    *("system/files.py", "isolation/process.py", "environment/stack.py"),
    *("performance/benchmarking.py", "page/html.py"),
    *("plugin/hooks.py", "runlog/writing.py", "certificate/package.py", "certificate/signing.py"),
    *("coverage/commands.py", "contact/kit.py", "contact/steps.py", "contact/redaction.py"),
    *(
        "cli.py",
        "system/bundled.py",
        "verdict/phrase.py",
        "system/suites.py",
        "migration/output.py",
    ),  # the package's own data
    "isolation/cards.py",
    # What their own processes said, and /proc.
    *("upstream/child.py", "upstream/running.py", "certificate/rerun.py", "plugin/worker.py", "system/programs.py"),
    *("distributed/ranks.py", "distributed/recorder.py"),
}


def test_every_reader_takes_the_one_safe_way() -> None:
    root = Path(pytest_ascend.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name not in OWN and not name.startswith(("emulator/", "suites/")):
            calls = (
                each for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(each, ast.Call)
            )
            found |= {f"{name}: {_called(each)}" for each in calls if _called(each) in READING}
    assert not found


READING = {"open", "read_text", "read_bytes", "fdopen"}


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
