"""What the installed torch_npu needs from CANN, read from its libraries."""

from __future__ import annotations

import importlib.util
import mmap
import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from pytest_ascend.errors import EmulatorUnavailable

#: How CANN's own symbols begin: ACL, runtime, HCCL, profiling, graph engine (C++ too) and ATB. The other undefined
#: symbols of torch_npu are those of torch, Python and the C library.
_CANN_SYMBOL = re.compile(r"(acl|rt[A-Z]|Hccl|hccl|Msprof|Aml|ge[A-Z]|mstx|_ZNK?2ge|_ZTVN2ge|_ZN3atb)")

#: CANN's libraries that torch_npu may name in DT_NEEDED; everything else there belongs to torch or the system.
_CANN_LIBRARY = re.compile(r"lib(ascendcl|hccl|acl_\w+|ge_\w+|graph|runtime|atb|ascend\w*|opapi|nnopbase)\.so")


def torch_npu_libraries() -> list[Path]:
    """Return the shared libraries of the installed torch_npu, without importing it.

    Raises EmulatorUnavailable where it is not installed.
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
    """Return the names of CANN's functions and of CANN's libraries that these libraries link against."""
    symbols: set[str] = set()
    names: set[str] = set()
    for path in libraries:
        with path.open("rb") as stream:
            _collect(stream, symbols, names)
    return symbols, names


def _collect(stream: BinaryIO, symbols: set[str], names: set[str]) -> None:
    elf = ELFFile(stream)
    table = elf.get_section_by_name(".dynsym")
    if isinstance(table, SymbolTableSection):
        undefined = (each.name for each in table.iter_symbols() if each["st_shndx"] == "SHN_UNDEF")
        symbols.update(name for name in undefined if _CANN_SYMBOL.match(name))
    dynamic = elf.get_section_by_name(".dynamic")
    if isinstance(dynamic, DynamicSection):
        needed = (str(getattr(tag, "needed", "")) for tag in dynamic.iter_tags("DT_NEEDED"))
        names.update(name for name in needed if _CANN_LIBRARY.fullmatch(name))


#: A setting of allocators that torch_npu and CUDA's part of torch both register from 2.13 on. Torch ends the process on
#: the second one, with no Python to say anything.
_SETTING, _REGISTERS = b"pinned_reserve_segment_size_mb", b"registerDeviceConfigParserHook"


def refuse_clash() -> None:
    """Raise EmulatorUnavailable where this torch_npu would end the process beside this torch while it is loaded.

    Both have to register the same setting: read from their libraries, so that nothing is loaded.
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.submodule_search_locations:
        return
    cuda = Path(torch.submodule_search_locations[0], "lib", "libc10_cuda.so")
    mine = [each for each in torch_npu_libraries() if each.name == "libtorch_npu.so"]
    if cuda.exists() and mine and all(_registers(each) for each in (cuda, *mine)):
        raise EmulatorUnavailable(
            "this torch_npu cannot be loaded beside a torch that was built with CUDA: both register the allocator's"
            f" setting {_SETTING.decode()}, and torch ends the process",
            hint="install the build of torch without CUDA (its version ends in +cpu)",
        )


def _registers(library: Path) -> bool:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_REGISTERS) >= 0 and content.find(_SETTING) >= 0
