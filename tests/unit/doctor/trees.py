"""File systems of machines, made up from the documented formats of installers, part by part."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ASCEND = "usr/local/Ascend"
ARM, X86 = "aarch64", "x86_64"
LOADERS = {ARM: "lib/ld-linux-aarch64.so.1", X86: "lib64/ld-linux-x86-64.so.2"}
EM = {ARM: 183, X86: 62}


@dataclass(frozen=True)
class Link:
    target: str


@dataclass(frozen=True)
class Mode:
    """A file of this mode."""

    mode: int


@dataclass(frozen=True)
class Sparse:
    """A file that claims this size."""

    size_bytes: int


class Pipe:
    """A named pipe, whose reader waits for ever."""


class Folder:
    """An empty folder."""


#: What is at a path, None for nothing: tables are merged, and a later one takes out what it does not want.
Files = Mapping[str, "str | bytes | Link | Mode | Sparse | Pipe | Folder | None"]


def build(root: Path, files: Files) -> None:
    for name, content in files.items():
        if content is None:
            continue
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, Link):
            path.symlink_to(content.target)
        elif isinstance(content, Folder):
            path.mkdir()
        elif isinstance(content, Pipe):
            os.mkfifo(path)
        elif isinstance(content, Mode):
            path.touch()
            path.chmod(content.mode)
        else:
            path.touch()
            os.truncate(path, content.size_bytes)


def host(arch: str = ARM, name: str = "openEuler 22.03 (LTS-SP4)") -> Files:
    return {LOADERS[arch]: "", "etc/os-release": f'NAME="x"\nPRETTY_NAME="{name}"\n'}


def devices(count: int, mode: int = 0o660) -> Files:
    control = ("davinci_manager", "devmm_svm", "hisi_hdc")
    return {f"dev/{name}": Mode(mode) for name in (*control, *(f"davinci{index}" for index in range(count)))}


LINES = "21 22 23 25 10"


def driver(version: str, *, firmware: str = "", accepts_fw: str = "[7.0.0,8.9.9]", lines: str = LINES) -> Files:
    """A driver, for CANNs of these ``lines``, and its firmware, if there is one."""
    accepted = ",".join(f"[V100R001C{line}]" for line in lines.split())
    text = (
        f"Version={version}\nascendhal_version=7.35.23\naicpu_version=1.0\ntdt_version=1.0\nlog_version=1.0\n"
        f"prof_version=2.0\ndvppkernels_version=1.1\ntsfw_version=1.0\nInnerversion=V100R001C25SPC001B210\n"
        f"compatible_version={accepted}\ncompatible_version_fw={accepts_fw}\npackage_version={version}\n"
    )
    files: dict[str, object] = {
        f"{ASCEND}/driver/version.info": text,
        f"{ASCEND}/driver/lib64/driver/libascend_hal.so": elf(ARM, "libc_sec.so"),
        f"{ASCEND}/driver/lib64/common/libc_sec.so": elf(ARM),
        "etc/ascend_install.info": "Driver_Install_Path_Param=/usr/local/Ascend\nDriver_Install_Status=complete\n",
    }
    if firmware:
        files[f"{ASCEND}/firmware/version.info"] = (
            f"Version={firmware}\nfirmware_version=1.0\npackage_version={version}\n"
        )
    return files  # type: ignore[return-value]


def cann(
    version: str,
    *,
    kernels: str,
    internal: str = "7.6.0.1.220",
    line: str = "25",
    arch: str = ARM,
    parts: Mapping[str, str] | None = None,
    home: str = "",
) -> Files:
    """CANN up to 8.3, with ``version.cfg``; ``parts`` gives versions of parts that differ."""
    home = home or f"{ASCEND}/ascend-toolkit/{version}"
    of = dict.fromkeys(("toolkit", "runtime", "compiler", "hccl", "opp", "opp_kernel"), version) | dict(parts or {})
    running = "".join(
        f"{part}_running_version=[{internal if v == version else '7.0.0.5.1'}:{v}]\n" for part, v in of.items()
    )
    record = (
        f"package_name=Ascend-cann-toolkit\nversion={of['toolkit']}\ninnerversion=V100R001C{line}SPC001B231\n"
        f"compatible_version=[V100R001C15],[V100R001C19],[V100R001C30]\narch={arch}\nos=linux\npath=/{home}/{arch}-linux\n"
    )
    return {
        f"{home}/{arch}-linux/ascend_toolkit_install.info": record,
        f"{home}/version.cfg": f"# version: 1.0\n{running}",
        f"{home}/opp/version.info": f"Version={internal}\nversion_dir={of['opp']}\n",
        f"{home}/runtime/version.info": f"Version={internal}\n",
        **libraries(f"{home}/lib64", arch),
        **compiled(home, kernels),
        f"{ASCEND}/ascend-toolkit/latest": Link(version),
    }


def new_cann(
    version: str, *, kernels: str, ops: str = "", line: str = "25", needs: str = ">=8.5", arch: str = ARM
) -> Files:
    """CANN from 8.5 on: a folder of the version, ``share/info``, operators in a package of their own."""
    home = f"{ASCEND}/cann-{version}"
    inner = f"innerversion=V100R001C{line}SPC001B231\n" if line else ""
    record = "package_name=Ascend-cann-{}\nversion={}\n{}" + f"arch={arch}\npath=/{home}/{arch}-linux\n"
    info = "Version={0}\nversion_dir={0}\ntimestamp=20260101_112233456\n"
    required = f'required_package_runtime_version="{needs}"\n'
    return {
        f"{home}/{arch}-linux/ascend_toolkit_install.info": record.format("toolkit", version, inner),
        f"{home}/{arch}-linux/ascend_ops_install.info": record.format(f"{kernels}-ops", ops or version, ""),
        f"{home}/share/info/runtime/version.info": info.format(version),
        f"{home}/share/info/hccl/version.info": info.format(version),
        f"{home}/share/info/ops_nn/version.info": info.format(ops or version) + required,
        **libraries(f"{home}/lib64", arch),
        **compiled(home, kernels),
        f"{ASCEND}/cann": Link(f"cann-{version}"),
        f"{ASCEND}/ascend-toolkit/latest": Link("/usr/local/Ascend/cann"),
    }


def libraries(folder: str, arch: str) -> Files:
    return {
        f"{folder}/libascendcl.so": elf(arch, "libruntime.so", "libascend_hal.so", "libc.so.6"),
        f"{folder}/libruntime.so": elf(arch, "libc_sec.so"),
        f"{folder}/libhccl.so": elf(arch, "libruntime.so"),
    }


def compiled(home: str, kernels: str) -> Files:
    folder = f"{home}/opp/built-in/op_impl/ai_core/tbe/kernel"
    return {f"{folder}/{kernels}/operator_{index}": "" for index in range(24)} if kernels else {f"{home}/opp/x": ""}


TBE_NEEDS = ("decorator", "attrs", "psutil", "scipy")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def python(torch: str, torch_npu: str, minor: str = "3.11", *, numpy: str = "1.26.4", pin: str = "") -> Files:
    folder = f"usr/local/lib/python{minor}/site-packages"
    versions = {"torch": f"{torch}+cpu", "torch_npu": torch_npu, "numpy": numpy, **dict.fromkeys(TBE_NEEDS, "1.0")}
    files: dict[str, str] = {f"{folder}/torch/version.py": f"__version__ = '{torch}+cpu'\n"}
    for name, version in versions.items():
        pins = f"Requires-Dist: torch (=={pin})\n" if pin and name == "torch_npu" else ""
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{pins}\nText\n"
        files |= {f"{folder}/{name}-{version}.dist-info/METADATA": metadata} if version else {}
    if torch_npu:
        files[f"{folder}/torch_npu/version.py"] = f"__version__ = '{torch_npu}'\ngit_version = '{COMMIT}'\n"
    return dict(files)


def sourced(home: str = f"/{ASCEND}/ascend-toolkit/latest") -> dict[str, str]:
    """What set_env.sh sets."""
    driver = f"/{ASCEND}/driver/lib64"
    return {
        "ASCEND_HOME_PATH": home,
        "ASCEND_TOOLKIT_HOME": home,
        "ASCEND_OPP_PATH": f"{home}/opp",
        "LD_LIBRARY_PATH": f"{home}/lib64:{home}/lib64/plugin/opskernel:{driver}:{driver}/common:{driver}/driver",
        "PATH": "/usr/bin",
    }


NEW = f"/{ASCEND}/cann"


def elf(arch: str, *needed: str) -> bytes:
    """A shared library with nothing but a dynamic section."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    offsets, at = [], 1
    for name in needed:
        offsets.append(at)
        at += len(name) + 1
    head, dynamic_at = 64, 64 + 2 * 56
    entries = [(1, offset) for offset in offsets]
    strings_at = dynamic_at + 16 * (len(entries) + 3)
    entries += [(5, strings_at), (10, len(names)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = strings_at + len(names)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, EM[arch], 1, 0, head, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    segment = struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    return header + load + segment + dynamic + names


def smi(driver: str, rows: list[str]) -> str:
    ruler = "+" + "-" * 88 + "+\n"
    head = f"| npu-smi {driver}                   Version: {driver}                          |\n"
    return ruler + head + ruler + "\n".join(rows) + "\n"


NO_PROCESS = "| No running processes found in NPU 0                                                            |"


def smi_a2(name: str, count: int = 1, driver: str = "25.5.1", health: str = "OK", processes: str = NO_PROCESS) -> str:
    rows = [
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
    ]
    for index in range(count):
        rows += [
            f"| {index}     {name}              | {health}           | 89.9        39                0    / 0   |",
            "| 0                         | 0000:41:00.0  | 0           0    / 0          2922 / 65536         |",
        ]
    rows.append("| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |")
    return smi(driver, [*rows, processes])


def smi_310p(driver: str) -> str:
    rows = [
        "| NPU     Name                  | Health          | Power(W)     Temp(C)     Hugepages-Usage(page)     |",
        "| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |",
        "| 1       310P3                 | OK              | NA           49                0     / 0             |",
        "| 0       0                     | 0000:01:00.0    | 0            1448 / 44278                            |",
        "| 1       310P3                 | OK              | NA           45                0     / 0             |",
        "| 1       1                     | 0000:01:00.0    | 0            1511 / 43693                            |",
    ]
    return smi(driver, rows)


def smi_a3(driver: str) -> str:
    rows = [
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        "| 0     Ascend910           | OK            | 166.9       38                0    / 0             |",
        "| 0     0                   | 0000:9D:00.0  | 0           0    / 0          2536 / 65536         |",
        "| 0     Ascend910           | OK            | -           37                0    / 0             |",
        "| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2084 / 65536         |",
    ]
    return smi(driver, rows)


def smi_950(driver: str) -> str:
    rows = [
        "| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |",
        "|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |",
        "| 0      | Ascend950PR      | OK            | 204.4       56                0     / 0             |",
        "|        |                  | 0000:91:00.0  | 0           0    / 0          4439  / 86016         |",
        "| NPU ID                    | Process id    | Process name             | Process memory(MB)       |",
        "| No running processes found in NPU 0                                                             |",
    ]
    return smi(driver, rows)
