"""Files of a store, read and written with care: bounded, no links out, never half-written."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from pytest_ascend.errors import GoldenError
from pytest_ascend.system.untrusted import holds, read_regular

#: Far above every bundled golden (a few MB); a file that claims more is not read.
LARGEST_BYTES = 256 * 1024 * 1024
BUILD = "pytest-ascend baseline build"


def read_bounded(root: Path, path: Path, golden_id: str) -> bytes:
    """Read a regular file below ``root``, up to a size. Raises GoldenError for links, other kinds and larger files."""
    try:
        if not path.resolve(strict=True).is_relative_to(root.resolve()):
            raise damaged(path, "it leads out of the store", golden_id)
        return read_regular(path, LARGEST_BYTES, follow=False)
    except FileNotFoundError as error:
        raise GoldenError(f"{path} is missing", path=str(path), hint=_hint(golden_id)) from error
    except (OSError, RuntimeError) as error:
        raise damaged(path, f"it cannot be read: {getattr(error, 'strerror', None) or error}", golden_id) from error


def write_if_new(path: Path, data: bytes) -> None:
    """Write beside, then replace; a file that already holds ``data`` is left alone."""
    if holds(path, data):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Let one process at a time change a store. The lock is kept out of the store, which is copied and published."""
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()
    folder = user_cache_path("pytest-ascend", ensure_exists=True) / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"golden-{name[:32]}.lock"):
        yield


def damaged(path: Path, reason: str, golden_id: str) -> GoldenError:
    """Say that a file cannot be trusted, and how to get a good one."""
    return GoldenError(f"{path} is damaged: {reason}", path=str(path), hint=_hint(golden_id))


def _hint(golden_id: str) -> str:
    if golden_id:
        return f"restore the file from version control or the package, or make it anew: '{BUILD} {golden_id}'"
    return f"restore the file from version control or the package, or delete it and make all anew: '{BUILD}'"
