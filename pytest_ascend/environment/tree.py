"""A file system to look at, which may be another machine's: nothing in it leads out of it, blocks or fills memory."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_ascend.system.untrusted import read_regular

#: Version files have a few hundred bytes, install logs some kilobytes. What claims more is none of them.
LARGEST_BYTES = 1 << 20
#: As many links as Linux follows.
MOST_LINKS = 40
#: Most entries of a folder that are looked at.
MOST_ENTRIES = 4096

#: What keeps a file that is there from being read.
UNREADABLE = "no permission"
LOOP = "a loop of links"
TOO_LARGE = f"larger than {LARGEST_BYTES >> 20} MiB"
NOT_A_FILE = "not a regular file"
BINARY = "binary, no text"


@dataclass(frozen=True, slots=True)
class Text:
    """What a file says, or why it says nothing. ``problem`` is "" also for a file that is not there."""

    content: str = ""
    problem: str = ""
    exists: bool = False


class LoopError(OSError):
    """Links that lead to themselves."""


class Tree:
    """The files below ``root``, named by the absolute paths that they have on their own machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root.resolve()
        #: What kept files that were asked for from being read, by path.
        self.problems: dict[str, str] = {}
        self._reals: dict[str, Path] = {}

    def real(self, path: str) -> Path:
        """Return where ``path`` is on this machine, each link followed inside the tree. Raises OSError for a loop."""
        if path not in self._reals:
            try:
                os.fsencode(path)
                if "\0" in path:
                    raise ValueError(path)
            except ValueError:
                raise FileNotFoundError(errno.ENOENT, "no name that a file can have", path) from None
            self._reals[path] = self._follow(PurePosixPath("/", path))
        return self._reals[path]

    def target(self, path: str) -> str:
        """Return the absolute path, inside the tree, that ``path`` leads to; ``path`` itself where that is a loop."""
        try:
            return "/" + self.real(path).relative_to(self.root).as_posix().removeprefix(".")
        except OSError:
            return path

    def exists(self, path: str) -> bool:
        """Whether there is something of that name, through all links."""
        return self.status(path) is not None

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of that name, through all links."""
        status = self.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of what is there, or None."""
        try:
            return self.real(path).lstat()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none where it cannot be read."""
        try:
            with os.scandir(self.real(path)) as entries:
                return sorted(entry.name for _, entry in zip(range(MOST_ENTRIES), entries, strict=False))
        except OSError:
            return []

    def read(self, path: str) -> Text:
        """Read a text file of up to 1 MiB. Never raises, and waits for nothing: a pipe is no file."""
        try:
            text = self._text(self.real(path))
        except (FileNotFoundError, NotADirectoryError):
            return Text()
        except OSError as error:
            text = Text(problem=_said(error), exists=True)
        if text.problem:
            self.problems[path] = text.problem
        return text

    def _text(self, real: Path) -> Text:
        try:
            data = read_regular(real, LARGEST_BYTES, follow=False)
        except OSError as error:
            if error.errno not in (errno.EFBIG, errno.EINVAL):
                raise
            return Text(problem=TOO_LARGE if error.errno == errno.EFBIG else NOT_A_FILE, exists=True)
        if b"\0" in data:
            return Text(problem=BINARY, exists=True)
        return Text(content=data.decode("utf-8", errors="replace"), exists=True)

    def _follow(self, path: PurePosixPath) -> Path:
        """Resolve links as the kernel does, with ``root`` in the place of "/"."""
        here, waiting, links = self.root, list(reversed(path.parts[1:])), 0
        while waiting:
            part = waiting.pop()
            if part == "..":
                here = here.parent if here != self.root else here
                continue
            step = here / part
            if not step.is_symlink():
                here = step
                continue
            links += 1
            if links > MOST_LINKS:
                raise LoopError(errno.ELOOP, LOOP, str(path))
            target = PurePosixPath(step.readlink())
            here = self.root if target.is_absolute() else here
            waiting.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
        return here


def _said(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return LOOP
    if isinstance(error, PermissionError):
        return UNREADABLE
    return NOT_A_FILE if isinstance(error, IsADirectoryError) else error.strerror or type(error).__name__
