"""Compile the emulated CANN into a per-user cache, once for each combination of its inputs."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from string import Template

import filelock

from pytest_ascend.emulator.profiling import BESIDE, PROGRAM, SCRIPT
from pytest_ascend.emulator.signature import C_TYPES, Parameter, Signature
from pytest_ascend.environment.signs import CLASH
from pytest_ascend.system.errors import EmulatorUnavailable, as_error
from pytest_ascend.system.files import cache_folder

HERE = Path(__file__).resolve().parent

#: Libraries that torch_npu opens at run time, in addition to those that it links against.
_OPENED_AT_RUN_TIME = (
    *("libascendcl.so", "libacl_op_compiler.so", "libnnopbase.so", "libascendsk.so", "libascend_hal.so"),
    *("libmsprofiler.so", "libmspti.so", "libms_tools_ext.so"),
)
_FLAGS = ("-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-rpath,$ORIGIN")


def emulated_cann() -> Path:
    """Return the folder of the compiled emulated CANN (laid out as ``ASCEND_HOME_PATH``), compiling it at first use.

    Raises EmulatorUnavailable without torch_npu, without a C compiler, if the cache cannot be written, or if this
    torch_npu cannot be loaded with this torch.
    """
    libraries = torch_npu_libraries()
    wanted = os.environ.get("CC")
    compiler = next(filter(None, map(shutil.which, [wanted] if wanted else ["cc", "gcc", "clang"])), None)
    if compiler is None:
        raise EmulatorUnavailable(
            f"the emulated device needs a C compiler, and there is no {wanted or 'cc, gcc or clang'} on the PATH",
            hint="install gcc (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc) or set CC to a compiler",
        )
    clash = clashes(libraries)
    message = "the cache for the compiled emulated CANN cannot be written"
    hint = "make the folder writable, or set PYTEST_ASCEND_CACHE to another one"
    with as_error(message, hint, why=str, raises=EmulatorUnavailable):
        folder = cache_folder()
        tempfile.TemporaryFile(dir=folder).close()
    target = folder / _key(compiler, libraries, clash=clash)
    if target.is_dir():
        return target
    with filelock.FileLock(f"{target}.lock"):
        if not target.is_dir():
            _build(compiler, libraries, target, clash=clash)
    return target


def _key(compiler: str, libraries: list[Path], *, clash: bool = False) -> str:
    folders = (HERE, *(HERE / name for name in ("kernels", "runtime", "hccl")))
    sources = sorted(path for folder in folders for path in folder.glob("*.*"))
    matters = [part for source in sources for part in (source.name.encode(), source.read_bytes())]
    matters += [compiler.encode(), subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout]  # noqa: S603
    matters.append(platform.machine().encode())
    for library in libraries:  # replaces its undefined symbols, which take longer to read
        status = library.stat()
        matters.append(f"{library} {status.st_size} {status.st_mtime_ns}".encode())
    digest = hashlib.sha256(b"\0".join([b"clash" if clash else b"", *matters]))
    return f"cann-{digest.hexdigest()[:24]}"


def _build(compiler: str, libraries: list[Path], target: Path, *, clash: bool) -> None:
    with tempfile.TemporaryDirectory(None, f"{target.name}.", target.parent, ignore_cleanup_errors=True) as made:
        home = Path(made)
        link = functools.partial(_link, compiler, home)
        for folder in ("lib64", "runtime", "compiler", "opp"):  # torch_npu checks that all of them exist
            (home / folder).mkdir()
        needed, names = needed_from_cann(libraries)
        runtime = sorted(each for each in (HERE / "runtime").glob("*.c") if each.name != "atb.c")
        boost = HERE / "runtime" / "atb.c"
        collectives = sorted((HERE / "hccl").glob("*.c"))
        # An old torch_npu, whose libraries need libascendcl.so first, would find a stub there before the real function.
        absent = (needed | _SHARING) - _defined([*runtime, *collectives, boost])
        missing = _write(home, "missing.c", missing_source(absent))
        operators = _write(home, "operators.c", operators_source(declared_signatures()))
        empty = _write(home, "empty.c", "typedef int nothing;\n")
        others = _write(home, "others.c", _OPENS_CLASH) if clash else empty
        link("libascendcl.so", [*runtime, missing], "-ldl", "-lpthread")
        link("libopapi.so", [operators], "-lascendcl")
        link("libhccl.so", collectives, "-lascendcl", "-lpthread", "-lm")
        link("libhcomm.so", [empty], "-Wl,--no-as-needed", "-lhccl")
        link("libatb.so", [boost], "-lascendcl")
        if clash:
            _link_clash(compiler, home)
        for name in {*names, *_OPENED_AT_RUN_TIME} - {"libascendcl.so", "libopapi.so", "libhccl.so", "libatb.so"}:
            link(name, [others], "-Wl,--no-as-needed", "-lascendcl", "-ldl")
        for path, text in ((PROGRAM, SCRIPT), (BESIDE, "")):
            (home / path).parent.mkdir(parents=True)
            _write(home, str(path), text).chmod(0o755)
        home.chmod(0o755)
        home.replace(target)


#: Interprocess functions, which torch_npu looks up by name; without stubs it would only report a missing function.
_SHARING = {f"aclrtIpc{each}" for each in ("MemGetExportKey", "MemImportByKey", "GetEventHandle", "OpenEventHandle")}

#: Libraries that libtorch_npu.so needs are initialised before it. Without torch it is too early: an activated process
#: loads them before torch, and must not bring in a C++ library that may be older than torch's.
_OPENS_CLASH = f"""\
#include <dlfcn.h>

__attribute__((constructor)) static void open_clash(void) {{
    if (dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY)) dlopen("{CLASH}", RTLD_NOW);
}}
"""


def _write(home: Path, name: str, text: str) -> Path:
    path = home / name
    path.write_text(text, encoding="utf-8")
    return path


def _defined(sources: list[Path]) -> set[str]:
    """Return the names of the functions that the runtime defines: lines that begin with API or OPERATION."""
    each = re.compile(r"^(?:API [^;={]*?\b(?=\w+\()|OPERATION\(\"\w+\", )(\w+)", re.MULTILINE)
    return {name for path in sources for name in each.findall(path.read_text(encoding="utf-8"))}


def declared_signatures() -> list[Signature]:
    """Return the signatures of all kernels, in the order of their indices.

    They are read in another process: kernels import torch, which must not happen in a process before its activation.
    """
    command = [sys.executable, "-m", __name__]
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
    # The standard applies to C: C++ sources take no such flag, and are compiled one by one.
    standard = [] if sources[0].suffix == ".cpp" else ["-std=gnu11"]
    command = [compiler, *standard, *_FLAGS, f"-I{HERE / 'runtime'}", f"-Wl,-soname,{name}", "-o", str(libs / name)]
    command += [*map(str, sources), f"-L{libs}", *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise EmulatorUnavailable(
            f"compiling {name} of the emulated CANN failed:\n{' '.join(command)}\n{done.stderr.strip()}",
            hint="the C compiler must be able to make shared libraries for this Python's architecture",
        )


#: Operators whose largest workspace torch_npu queries before it captures a graph with them.
_WITH_MAX_WORKSPACE = re.compile(r"aclnn(FusedInferAttention|FlashAttentionVarLen|FlashAttentionUnpadding)Score\w*")

#: Functions that the emulated CANN has on some chips only: elsewhere torch_npu would no longer call the older
#: operators, which are emulated too. A lookup of one gets what its resolver returns.
_ONLY_ON = {"aclnnLSTM": "Ascend950"}


def operators_source(signatures: Iterable[Signature]) -> str:
    """Return the source of libopapi.so. The order of the signatures is that of the operators' indices."""
    first, second, on_one_chip = (
        Template((HERE / "runtime" / f"{name}.c.in").read_text(encoding="utf-8")).substitute
        for name in ("first_phase", "second_phase", "second_phase_of_one_chip")
    )
    parts = ['#include "emulated.h"']
    for index, signature in enumerate(signatures):
        name, types = signature.name, [C_TYPES[each.type] for each in signature.parameters]
        arguments = "".join(f"{c_type} a{i}, " for i, (c_type, _) in enumerate(types))
        words = "\n    ".join(f"executor->words[{i}] = {word.format(f'a{i}')};" for i, (_, word) in enumerate(types))
        given = {"name": name, "index": index, "count": len(types), "arguments": arguments, "words": words}
        kinds = ("", "Max") if _WITH_MAX_WORKSPACE.fullmatch(name) else ("",)
        parts += [first(given, largest=largest) for largest in kinds]
        if chip := _ONLY_ON.get(name):
            parts.append(on_one_chip(name=name, chip=chip, length=len(chip)))
        else:
            # ATB operators get a context, whose second word is the stream: see runtime/atb.c.
            parts.append(second(name=name, stream="((void **)stream)[1]" if name.startswith("Atb") else "stream"))
    return "\n".join(parts)


def missing_source(names: Iterable[str]) -> str:
    """Return stubs that fail with their name, for functions that torch_npu links against and we do not implement."""
    said = ((name, f'emu_missing("function", "{name}")') for name in sorted(names))
    # torch_npu only warns of an unsupported feature, and would continue with invalid handles.
    lines = (f"API int {name}(void) {{ return {call}{' ? 500000 : 0' * (name in _SHARING)}; }}" for name, call in said)
    return '#include "emulated.h"\n' + "\n".join(lines) + "\n"


#: Prefixes of CANN's symbols: ACL, runtime, HCCL, profiling, graph engine (C++ too) and ATB. The other undefined
#: symbols of torch_npu are those of torch, Python and the C library.
_CANN_SYMBOL = re.compile(r"(acl|rt[A-Z]|Hccl|hccl|Msprof|Aml|ge[A-Z]|mstx|_ZNK?2ge|_ZTVN2ge|_ZN3atb)")

#: CANN's libraries that torch_npu may name in DT_NEEDED; everything else there belongs to torch or the system.
_CANN_LIBRARY = re.compile(r"lib(ascendcl|hccl|acl_\w+|ge_\w+|graph|runtime|atb|ascend\w*|opapi|nnopbase)\.so")


def torch_npu_libraries() -> list[Path]:
    """Return the shared libraries of the installed torch_npu, without importing it.

    Raises EmulatorUnavailable if it is not installed.
    """
    spec = importlib.util.find_spec("torch_npu")
    if spec is None or not spec.submodule_search_locations:
        raise EmulatorUnavailable(
            "the emulated device runs the torch_npu wheel, which is not installed",
            hint="python -m pip install 'pytest-ascend[emulated]'  (or: torch-npu==2.13.0 beside torch==2.13.0)",
        )
    root = Path(spec.submodule_search_locations[0])
    return sorted([*root.glob("*.so"), *(root / "lib").glob("*.so")])


def needed_from_cann(libraries: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Return the names of the CANN functions and CANN libraries that these libraries link against."""
    from elftools.elf.dynamic import DynamicSection  # noqa: PLC0415  (these three only to compile)
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415
    from elftools.elf.sections import SymbolTableSection  # noqa: PLC0415

    symbols: set[str] = set()
    names: set[str] = set()
    for path in libraries:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            table = elf.get_section_by_name(".dynsym")
            if isinstance(table, SymbolTableSection):
                undefined = (each.name for each in table.iter_symbols() if each["st_shndx"] == "SHN_UNDEF")
                symbols.update(name for name in undefined if _CANN_SYMBOL.match(name))
            dynamic = elf.get_section_by_name(".dynamic")
            if isinstance(dynamic, DynamicSection):
                needed = (str(getattr(tag, "needed", "")) for tag in dynamic.iter_tags("DT_NEEDED"))
                names.update(name for name in needed if _CANN_LIBRARY.fullmatch(name))
    return symbols, names


#: An allocator setting that newer builds of both torch_npu and torch's CUDA part register. Torch aborts the process at
#: the second registration, without a Python error.
_SETTING, _REGISTERS = b"pinned_reserve_segment_size_mb", b"registerDeviceConfigParserHook"

#: Where torch keeps setting names: a function that returns the set, or the set's own symbol. See runtime/clash.cpp.
_NAMES = b"N3c1016CachingAllocator26AcceleratorAllocatorConfig14getMutableKeysB5cxx11Ev"


def clashes(libraries: Iterable[Path]) -> bool:
    """Return whether loading this torch_npu with this torch would abort the process if the clash were not removed.

    It would if both register the same setting. This is read from their libraries, so that nothing is loaded.
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.submodule_search_locations:
        return False
    folder = Path(torch.submodule_search_locations[0], "lib")
    cuda, mine = folder / "libc10_cuda.so", [each for each in libraries if each.name == "libtorch_npu.so"]
    if not (cuda.exists() and mine and all(_has(each, _SETTING, _REGISTERS) for each in (cuda, *mine))):
        return False
    if not _has(folder / "libc10.so", _NAMES):
        raise _cannot_be_beside_cuda("what torch registered cannot be found in this version of it")
    return True


def _link_clash(compiler: str, home: Path) -> None:
    try:
        _link(compiler, home, CLASH, [HERE / "runtime" / "clash.cpp"], "-lstdc++", "-ldl")
    except EmulatorUnavailable as error:
        raise _cannot_be_beside_cuda(f"removing the clash needs a compiler for C++: {error.message}") from error


def _cannot_be_beside_cuda(why: str) -> EmulatorUnavailable:
    return EmulatorUnavailable(
        "this torch_npu cannot be loaded beside a torch that was built with CUDA: both register the allocator's"
        f" setting {_SETTING.decode()}, and torch ends the process; {why}",
        hint="install the build of torch without CUDA (its version ends in +cpu), or g++ (Debian, Ubuntu: apt install"
        " g++; Fedora: dnf install gcc-c++)",
    )


def _has(library: Path, *texts: bytes) -> bool:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return all(content.find(each) >= 0 for each in texts)


if __name__ == "__main__":  # write the declarations of all kernels as JSON: a list of [name, [[role, type, name], ...]]
    from pytest_ascend.emulator.kernels import all_kernels

    signatures = [kernel.signature for kernel in all_kernels()]
    json.dump([[each.name, [[p.role, p.type, p.name] for p in each.parameters]] for each in signatures], sys.stdout)
