"""Machines whose files are damaged, or want to do harm, each with what must be found on it."""

from __future__ import annotations

from .machines import DRIVER, FIRMWARE, LIBRARIES, PY, SMI, UNSEEN, WELL, Box
from .trees import ASCEND, NEW, Folder, Link, Pipe, Sparse, cann, devices, driver, host, new_cann, sourced

KERNELS = f"{ASCEND}/cann-8.5.0/opp/built-in/op_impl/ai_core/tbe/kernel"

HOSTILE: dict[str, Box] = {
    "damaged-libraries": Box(
        files={
            **WELL,
            f"{LIBRARIES}/libhccl.so": b"\x7fELF",
            f"{LIBRARIES}/libascendcl.so": "text",
        },
        environ=sourced(NEW),
        smi=SMI,
        finds="library.broken library.broken",
    ),
    "binary-garbage": Box(
        files={
            **WELL,
            DRIVER: bytes(range(256)) * 40,
            FIRMWARE: b"\xff\xfe\xfd",
        },
        environ=sourced(NEW),
        smi=SMI,
        finds=f"file.damaged file.no-version {UNSEEN}",
    ),
    "escape-sequences": Box(
        files={
            **WELL,
            FIRMWARE: "Version=\x1b[2J\x1b]0;owned\x07\nVersion=7.8.0\n",
        },
        environ={**sourced(NEW), "HCCL_ALGO": "\x1b[31mred\u202e"},
        smi=f"\x1b[2J{SMI}| 0 | \x1b]0;x\x07 | ; | 9 |\n",
        finds=f"file.no-version settings.numbers {UNSEEN}",
    ),
    "huge-files": Box(
        files={
            **WELL,
            DRIVER: Sparse(1 << 40),
            f"{ASCEND}/cann-8.5.0/version.cfg": Sparse(1 << 30),
        },
        environ=sourced(NEW),
        smi=SMI,
        finds="file.damaged file.damaged",
    ),
    "loops-of-links": Box(
        files={
            **WELL,
            DRIVER: Link("/usr/local/Ascend/driver/version.info"),
            f"{ASCEND}/nnae/latest": Link("../nnae/latest"),
            f"{ASCEND}/cann-8.5.0/version.cfg": Link("x/../version.cfg"),
        },
        environ=sourced(NEW),
        smi=SMI,
        finds="file.loop file.loop",
    ),
    "links-that-lead-out": Box(
        files={**WELL, FIRMWARE: Link("../../../../../../../../../../../etc/hostname")},
        environ=sourced(NEW),
        smi=SMI,
        finds=UNSEEN,
    ),
    "pipes-and-folders": Box(
        files={**WELL, DRIVER: Pipe(), FIRMWARE: Folder()},
        environ=sourced(NEW),
        smi=SMI,
        finds=f"file.damaged file.damaged {UNSEEN}",
    ),
    "endless-npu-smi": Box(files=WELL, environ=sourced(NEW), smi="| 0 910B3 | OK | x |\n" * 200_000, finds=UNSEEN),
    "absurd-numbers": Box(
        files={**WELL, FIRMWARE: f"Version={'9' * 5000}\n"},
        environ={**sourced(NEW), "ASCEND_RT_VISIBLE_DEVICES": "9" * 5000},
        smi=SMI,
        finds=f"file.no-version devices.visible {UNSEEN}",
    ),
    # More of everything than a finding tells: nine CANNs, kernels of eight other chips, twenty closed devices.
    "too-much": Box(
        files={
            **new_cann("8.5.0", kernels="ascend910b"),
            **{path: None for path in new_cann("8.5.0", kernels="ascend910b") if "/kernel/ascend910b/" in path},
            **{f"{KERNELS}/ascend{chip}/x.json": "" for chip in range(101, 109)},
            **{
                path: content
                for minor in range(1, 9)
                for path, content in cann(f"7.{minor}.0", kernels="ascend910b").items()
            },
            **host(),
            **devices(20, mode=0o600),
            **driver("25.5.1", firmware="7.8.0.5.216"),
            **PY,
        },
        environ={
            **sourced(NEW),
            "LD_LIBRARY_PATH": ":".join(
                (f"/{LIBRARIES}", *(f"/{ASCEND}/ascend-toolkit/7.{minor}.0/lib64" for minor in range(1, 9)))
            ),
            "ASCEND_RT_VISIBLE_DEVICES": ",".join(map(str, range(15, 60))),
        },
        smi=SMI,
        user=True,
        finds="devices.permission devices.visible cann.kernels cann.two-in-library-path cann.several",
    ),
}
