"""Read files as untrusted input, and write them so that nothing is lost.

Every reader of a file that is not the package's own goes through here: regular files only, of a bounded size, and JSON
of a bounded shape.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import platformdirs

from pytest_ascend.system.errors import UsageError, as_error

#: Deepest nesting of JSON that is read. What this package writes needs eight.
DEPTH_LIMIT = 32
#: Longest whole number of JSON that is read: 2**64 has 20 digits, and Python 3.10 takes seconds for 100,000.
DIGITS_LIMIT = 20
#: Most values in one text; the frozen manifest has 200,000, and an empty list of two bytes takes 60 of memory.
VALUES_LIMIT = 2_500_000


def open_regular(path: Path, limit_bytes: int, *, follow: bool = True) -> BinaryIO:
    """Open a regular file to read; ``follow`` allows ``path`` to be a symbolic link.

    Raises OSError as ``open`` does, and for anything but a regular file of at most ``limit_bytes``: a pipe would
    have the reader wait for ever, a device never end.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        file = os.fdopen(os.open(path, flags), "rb", 1 << 18)  # logs have lines of some KB
    except ValueError as error:  # a NUL inside of the name
        raise OSError(errno.EINVAL, str(error)) from error
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit_bytes:
        return file
    file.close()
    if stat.S_ISREG(status.st_mode):
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and at most {limit_bytes:,} are read")
    raise OSError(errno.EINVAL, "not a regular file")


def read_regular(path: Path, limit_bytes: int, *, follow: bool = True) -> bytes:
    """Return the content of such a file, without what is appended meanwhile."""
    with open_regular(path, limit_bytes, follow=follow) as file:
        # Python reserves what it is asked for. What the kernel answers has no size.
        return file.read(min(max(os.fstat(file.fileno()).st_size, 1 << 20), limit_bytes))


def write_file(path: Path, data: bytes | str) -> None:
    """Write a file beside, then replace ``path``, so that nobody reads half of it. Text is written as UTF-8.

    Only regular files are replaced: a device or a pipe gets the data, and a link stays. One that leads out of its
    folder may be somebody's trap, and is refused, except in /dev. Raises UsageError.
    """
    with as_error(f"cannot write {path}", "choose another place, or make room there"):
        _write(_target(path), data.encode() if isinstance(data, str) else data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC), "wb") as file:
            os.set_blocking(file.fileno(), True)
            file.write(data)
        return
    beside = path.with_name(f".{path.name[:200]}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        with beside.open("xb") as file:
            file.write(data)
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Return the file that a path means. Raises OSError for a link that leads out of its folder."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name contains a NUL")
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if path.parent == Path("/dev"):  # /dev/stdout leads to a pipe without a name
        return target if _mode(target) else path
    if target.parent != Path(os.path.realpath(path.parent)):
        raise OSError(errno.ELOOP, f"it is a link to {target}; name that file itself")
    return target


def _mode(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mode
    return None


def write_between(path: Path, mark: str, text: str, limit_bytes: int = 64 << 20) -> None:
    """Replace what a file has between the lines ``<!-- MARK -->`` and ``<!-- end of MARK -->``. Raises UsageError."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, found, rest = read_regular(path, limit_bytes).decode().partition(begin)
    if not found or end not in rest:
        raise UsageError(f"{path} has no lines {begin.strip()} and {end}", hint="add both where the text is to be")
    write_file(path, before + begin + text + rest[rest.index(end) :])


def write_if_new(path: Path, data: bytes) -> None:
    """Write a file as :func:`write_file` does; one that already holds ``data`` is left alone."""
    with contextlib.suppress(OSError):
        if read_regular(path, len(data), follow=False) == data:
            return
    write_file(path, data)


def canonical_json(data: Any, *, indent: int | None = None) -> str:
    """Return the one JSON text of ``data``. Raises ValueError for NaN and infinity, TypeError for what JSON lacks."""
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(data, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=indent, separators=separators)


def count_values(text: str) -> int:
    """Return how many values a text of JSON has at most, nearly."""
    return text.count(",") + text.count("[") + text.count("{")


def strict_json(
    text: str | bytes, *, constants: bool = False, objects: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return parsed JSON. Raises ValueError for whatever two parsers may read differently, or fail on.

    That is: NaN and infinities, numbers beyond float64 or with more than 20 digits, a key twice in one object, nesting
    deeper than 32, text that is not UTF-8. ``constants`` allows NaN and infinities, which Python's own writer makes;
    ``objects`` makes an object of its pairs.
    """
    text = text if isinstance(text, str) else text.decode("utf-8")
    if count_values(text) > VALUES_LIMIT:
        raise ValueError(f"more than {VALUES_LIMIT} values")
    constant = float if constants else _refuse_constant
    try:
        value = json.loads(
            text, parse_constant=constant, parse_int=_whole, parse_float=_finite, object_pairs_hook=objects or _unique
        )
    except RecursionError:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT}") from None
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_LIMIT + 1):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for children in inner for each in children if isinstance(each, dict | list)]
        if not level:
            return value
    raise ValueError(f"nested deeper than {DEPTH_LIMIT}")


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS_LIMIT:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    value = float(text) if len(text) <= 100 else math.inf
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is beyond what a number can be")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return table


def cache_folder() -> Path:
    """Return the folder of what is kept between runs, made if need be.

    It is PYTEST_ASCEND_CACHE, or the user's cache folder. Raises OSError where it cannot be made.
    """
    folder = Path(os.environ.get("PYTEST_ASCEND_CACHE") or platformdirs.user_cache_path("pytest-ascend"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
