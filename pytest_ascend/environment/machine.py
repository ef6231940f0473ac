"""A machine to examine: this one, or a copy of another's files, variables and npu-smi output."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from pytest_ascend.system.files import read_regular
from pytest_ascend.system.programs import Reply, run

#: Version files have a few hundred bytes, install logs a few kilobytes; a larger file is neither.
LARGEST_BYTES = 1 << 20
#: Why a file that exists was not read.
LOOP = "a loop of links"
TOO_LARGE = f"larger than {LARGEST_BYTES >> 20} MiB"
NOT_A_FILE = "not a regular file"
BINARY = "binary, not text"


@dataclass(frozen=True, slots=True)
class Text:
    """The content of a file, or why there is none. ``problem`` is also "" for a file that does not exist."""

    content: str = ""
    problem: str = ""
    exists: bool = False


#: Why a file that exists was not read, by error number.
_PROBLEMS = {
    errno.EFBIG: TOO_LARGE,
    errno.EINVAL: NOT_A_FILE,
    errno.EISDIR: NOT_A_FILE,
    errno.ELOOP: LOOP,
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
}


class Tree:
    """The files below ``root``, named by their absolute paths on their own machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root.resolve()
        #: Why requested files were not read, by path.
        self.problems: dict[str, str] = {}
        self._reals: dict[str, Path] = {}

    def real(self, path: str) -> Path:
        """Return where ``path`` is on this machine, with links followed inside the tree. Raises OSError for a loop."""
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
        """Return the absolute path, inside the tree, that ``path`` leads to; ``path`` itself for a loop."""
        with contextlib.suppress(OSError):
            return "/" + self.real(path).relative_to(self.root).as_posix().removeprefix(".")
        return path

    def exists(self, path: str) -> bool:
        """Return whether ``path`` exists, through all links."""
        return self.status(path) is not None

    def is_folder(self, path: str) -> bool:
        """Return whether ``path`` is a folder, through all links."""
        status = self.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of ``path``, or None."""
        with contextlib.suppress(OSError):
            return self.real(path).lstat()
        return None

    def names(self, path: str) -> list[str]:
        """Return the first 4096 names in a folder, sorted; empty if it cannot be read."""
        with contextlib.suppress(OSError), os.scandir(self.real(path)) as entries:
            return sorted(entry.name for entry in islice(entries, 4096))
        return []

    def read(self, path: str) -> Text:
        """Read a text file of up to 1 MiB. Never raises and never blocks: a pipe is not read."""
        try:
            data = read_regular(self.real(path), LARGEST_BYTES, follow=False)
            problem = BINARY if b"\0" in data else ""
        except (FileNotFoundError, NotADirectoryError):
            return Text()
        except OSError as error:
            data, problem = b"", _PROBLEMS.get(error.errno or 0) or error.strerror or type(error).__name__
        if problem:
            self.problems[path] = problem
            return Text(problem=problem, exists=True)
        return Text(content=data.decode("utf-8", errors="replace"), exists=True)

    def _follow(self, path: PurePosixPath) -> Path:
        """Resolve links as the kernel does, with ``root`` in place of "/"."""
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
            if links > 40:  # Linux follows as many
                raise OSError(errno.ELOOP, LOOP, str(path))
            target = PurePosixPath(step.readlink())
            here = self.root if target.is_absolute() else here
            waiting.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))
        return here


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """A distribution: ``name`` in normalised form (PEP 503), ``path`` its METADATA, ``requires`` its requirements."""

    name: str
    version: str
    folder: str
    path: str
    requires: tuple[str, ...] = ()


def installed(machine: Machine, names: frozenset[str]) -> dict[str, Package]:
    """Return the distributions with these normalised names; of duplicates, the one that an import would find."""
    found: dict[str, Package] = {}
    for folder in machine.packages:
        names_here = (
            re.fullmatch(r"([A-Za-z0-9._-]+)-([^-]+)\.dist-info", each) for each in machine.tree.names(folder)
        )
        for match in filter(None, names_here):
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            if name in names:
                path = f"{folder}/{match[0]}/METADATA"
                head = machine.tree.read(path).content.split("\n\n", 1)[0]
                version = re.search(r"^Version:\s*(\S+)", head, re.MULTILINE)
                requires = tuple(re.findall(r"^Requires-Dist:\s*(\S.*?)\s*$", head, re.MULTILINE))
                number = version[1] if version else match[2]
                package = Package(name=name, version=number, folder=folder, path=path, requires=requires)
                found.setdefault(name, package)
    return found


#: Seconds to wait for npu-smi, which queries each device in turn and hangs if a driver does: for the doctor, whose user
#: is waiting, and for a run, which takes minutes anyway.
NPU_SMI_LIMIT_S = 1.2
PATIENT_S = 20.0

#: Possible locations of Python on another machine.
_PYTHON_HOMES = ("usr/local", "usr", "opt/conda", "root/miniconda3", "opt/venv", "usr/local/miniconda3")

NOT_INSTALLED = Reply(failure="not installed")
NOT_ASKED = Reply(failure="not asked: these are the files of another machine")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine that the probes examine. Each fact is read once, and nothing outside ``tree`` is read.

    ``packages`` are folders of Python packages, as absolute paths inside the tree; ``arch`` is "aarch64" or "x86_64";
    ``uid`` and ``groups`` are those of the devices' user; ``npu_smi`` returns the output of ``npu-smi info``, and
    ``npu_smi_map`` that of ``npu-smi info -m``.
    """

    tree: Tree
    environ: Mapping[str, str]
    packages: tuple[str, ...]
    python: str
    arch: str
    uid: int
    groups: frozenset[int]
    npu_smi: Callable[[], Reply]
    npu_smi_map: Callable[[], Reply] = lambda: NOT_ASKED

    @property
    def is_this(self) -> bool:
        """Return whether it is the current machine, not a copy of another's files."""
        return self.tree.root == Path("/")

    def is_mine(self, path: str) -> bool | None:
        """Return whether the user may read and write ``path``, by its mode; None if it does not exist."""
        status = self.tree.status(path)
        if status is None:
            return None
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid in self.groups else 0
        return self.uid == 0 or (status.st_mode >> shift) & 0o6 == 0o6


def this_machine(environ: Mapping[str, str] = os.environ, *, limit_s: float = NPU_SMI_LIMIT_S) -> Machine:
    """Return the current machine, with the variables and packages of this process.

    npu-smi is started at once and given ``limit_s`` seconds, so that it runs while files are read; 0 skips it.
    """
    executor = ThreadPoolExecutor(max_workers=2)
    answer = executor.submit(_ask, environ, limit_s)
    mapped = executor.submit(_ask, environ, limit_s, "-m")
    executor.shutdown(wait=False)
    return Machine(
        tree=Tree(),
        environ=dict(environ),
        packages=tuple(dict.fromkeys(str(Path(each).resolve()) for each in sys.path if each)),
        python=platform.python_version(),
        arch=platform.machine(),
        uid=os.geteuid(),
        groups=frozenset({os.getegid(), *os.getgroups()}),
        npu_smi=answer.result,
        npu_smi_map=mapped.result,
    )


def copied_machine(root: Path, environ: Mapping[str, str], npu_smi: str | None) -> Machine:
    """Return a machine with the files below ``root``: a mounted image, a container's file system, a copy.

    ``environ`` has its variables, ``npu_smi`` its output of ``npu-smi info``. Permissions are judged for its root user.
    """
    tree = Tree(root)
    active = [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    versioned = [f"usr/local/{name}" for name in tree.names("usr/local") if name.startswith("python3")]
    pythons = [
        f"/{home.strip('/')}/lib/{name}"
        for home in (*active, *_PYTHON_HOMES, *versioned)
        for name in tree.names(f"{home}/lib")
        if name.startswith("python3")
    ]
    packages = [f"{python}/{name}" for python in pythons for name in ("site-packages", "dist-packages")]
    packages = list(filter(tree.is_folder, packages))
    # The architecture of a copy follows from the name of its dynamic loader.
    names = [name for folder in ("lib64", "lib", "usr/lib64", "usr/lib") for name in tree.names(folder)]
    loaders = {"ld-linux-aarch64.so.1": "aarch64", "ld-linux-x86-64.so.2": "x86_64"}
    reply = NOT_ASKED if npu_smi is None else Reply(npu_smi)
    return Machine(
        tree=tree,
        environ=environ,
        packages=tuple(packages),
        python=next((found[0][6:] for each in packages if (found := re.search(r"python3\.\d{1,2}", each))), ""),
        arch=next((loaders[name] for name in names if name in loaders), ""),
        uid=0,
        groups=frozenset({0}),
        npu_smi=lambda: reply,
    )


def _ask(environ: Mapping[str, str], limit_s: float, *options: str) -> Reply:
    program = shutil.which("npu-smi", path=environ.get("PATH", "")) if limit_s else None
    return run([program, "info", *options], environ, limit_s) if program else NOT_INSTALLED
