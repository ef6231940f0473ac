"""Compile the emulated CANN into a per-user cache, once for each combination of everything that matters."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import filelock
import platformdirs

from pytest_ascend.emulator import elf, entrypoints
from pytest_ascend.emulator.signature import Parameter, Signature
from pytest_ascend.errors import EmulatorUnavailable

HERE = Path(__file__).resolve().parent

#: Libraries that torch_npu opens at run time, beside those that it links against.
_OPENED_AT_RUN_TIME = ("libascendcl.so", "libacl_op_compiler.so", "libnnopbase.so")

_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-rpath,$ORIGIN")


def emulated_cann() -> Path:
    """Return the folder of the compiled emulated CANN (laid out as ``ASCEND_HOME_PATH``), compiling it at first use.

    Raises EmulatorUnavailable without torch_npu, without a C compiler, or where the cache cannot be written.
    """
    libraries = elf.torch_npu_libraries()
    compiler = _compiler()
    target = _cache() / _key(compiler, libraries)
    if target.is_dir():
        return target
    with filelock.FileLock(f"{target}.lock"):
        if not target.is_dir():
            _build(compiler, libraries, target)
    return target


def _cache() -> Path:
    folder = Path(os.environ.get("PYTEST_ASCEND_CACHE") or platformdirs.user_cache_path("pytest-ascend"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise EmulatorUnavailable(
            f"the cache for the compiled emulated CANN cannot be written: {folder}: {error.strerror}",
            hint="make the folder writable, or set PYTEST_ASCEND_CACHE to another one",
        ) from error
    return folder


def _compiler() -> str:
    wanted = os.environ.get("CC")
    for name in [wanted] if wanted else ["cc", "gcc", "clang"]:
        if found := shutil.which(name):
            return found
    raise EmulatorUnavailable(
        f"the emulated device needs a C compiler, and there is no {wanted or 'cc, gcc or clang'} on the PATH",
        hint="install gcc (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc) or set CC to a compiler",
    )


def _key(compiler: str, libraries: list[Path]) -> str:
    digest = hashlib.sha256()
    for part in _what_matters(compiler, libraries):
        digest.update(part + b"\0")
    return f"cann-{digest.hexdigest()[:24]}"


def _what_matters(compiler: str, libraries: list[Path]) -> Iterator[bytes]:
    for source in sorted(
        [*HERE.glob("*.py"), *HERE.glob("kernels/**/*.py"), *HERE.glob("runtime/*"), *HERE.glob("hccl/*")]
    ):
        yield source.name.encode()
        yield source.read_bytes()
    yield compiler.encode()
    yield subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout  # noqa: S603
    yield platform.machine().encode()
    for library in libraries:  # stands for its undefined symbols, which take longer to read
        status = library.stat()
        yield f"{library} {status.st_size} {status.st_mtime_ns}".encode()


def _build(compiler: str, libraries: list[Path], target: Path) -> None:
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"{target.name}."))
    try:
        for folder in ("lib64", "runtime", "compiler", "opp"):  # torch_npu looks for all of them
            (beside / folder).mkdir()
        _compile_all(compiler, libraries, beside)
        beside.chmod(0o755)
        beside.replace(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _compile_all(compiler: str, libraries: list[Path], home: Path) -> None:
    needed, names = elf.needed_from_cann(libraries)
    runtime = sorted((HERE / "runtime").glob("*.c"))
    missing = _write(home, "missing.c", entrypoints.missing_source(needed - _defined(runtime)))
    operators = _write(home, "operators.c", entrypoints.operators_source(declared_signatures()))
    empty = _write(home, "empty.c", "typedef int nothing;\n")
    _link(compiler, home, "libascendcl.so", [*runtime, missing], "-ldl", "-lpthread")
    _link(compiler, home, "libopapi.so", [operators], "-lascendcl")
    _link(compiler, home, "libhccl.so", sorted((HERE / "hccl").glob("*.c")), "-lascendcl", "-lpthread", "-lm")
    _link(compiler, home, "libhcomm.so", [empty], "-Wl,--no-as-needed", "-lhccl")
    for name in {*names, *_OPENED_AT_RUN_TIME} - {"libascendcl.so", "libopapi.so", "libhccl.so"}:
        _link(compiler, home, name, [empty], "-Wl,--no-as-needed", "-lascendcl")


def _write(home: Path, name: str, text: str) -> Path:
    path = home / name
    path.write_text(text)
    return path


def _defined(sources: list[Path]) -> set[str]:
    """Names of the functions that the runtime defines: each is introduced by API, at the start of a line."""
    return {name for path in sources for name in re.findall(r"^API [^;={]*?\b(\w+)\(", path.read_text(), re.MULTILINE)}


def declared_signatures() -> list[Signature]:
    """Return the signatures of all kernels, in the order of their indices."""
    command = [sys.executable, "-m", "pytest_ascend.emulator.declarations"]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise EmulatorUnavailable(
            f"the kernels of the emulated device cannot be imported:\n{done.stderr.strip()}",
            hint="look at the last line above; is torch installed, in the version that torch_npu was built for?",
        )
    declared = json.loads(done.stdout)
    return [Signature(name, tuple(Parameter(*each) for each in parameters)) for name, parameters in declared]


def _link(compiler: str, home: Path, name: str, sources: list[Path], *libraries: str) -> None:
    libs = home / "lib64"
    command = [compiler, *_FLAGS, f"-I{HERE / 'runtime'}", f"-Wl,-soname,{name}", "-o", str(libs / name)]
    command += [*map(str, sources), f"-L{libs}", *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise EmulatorUnavailable(
            f"compiling {name} of the emulated CANN failed:\n{' '.join(command)}\n{done.stderr.strip()}",
            hint="the C compiler must be able to make shared libraries for this Python's architecture",
        )
