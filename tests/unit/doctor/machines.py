"""Machines as they are met: healthy, wrong, mixed, partial, damaged and hostile, each with what must be found on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .trees import (
    ARM,
    ASCEND,
    LOADERS,
    NEW,
    X86,
    Files,
    Link,
    Mode,
    cann,
    devices,
    driver,
    elf,
    host,
    new_cann,
    python,
    smi_310p,
    smi_950,
    smi_a2,
    smi_a3,
    sourced,
)


@dataclass(frozen=True, kw_only=True)
class Box:
    """A machine; ``finds`` are the ids of all findings, once each time. ``user``: without root's rights."""

    files: Files
    environ: Mapping[str, str] = field(default_factory=dict)
    smi: str | None = None
    finds: str = ""
    user: bool = False


DRIVER, FIRMWARE = f"{ASCEND}/driver/version.info", f"{ASCEND}/firmware/version.info"
LIBRARIES = f"{ASCEND}/cann-8.5.0/lib64"
OLD_HOME = f"{ASCEND}/ascend-toolkit/8.2.RC1"
A2 = {**host(), **devices(8), **driver("25.5.1", firmware="7.8.0.5.216"), **new_cann("8.5.0", kernels="ascend910b")}
PY = python("2.9.0", "2.9.0", pin="2.9.0")
SMI = smi_a2("910B3", 8)
WELL: Files = {**A2, **PY}
OLD: Files = {
    **host(),
    **devices(8),
    **driver("25.2.0", firmware="7.7.0.6.236"),
    **cann("8.2.RC1", kernels="ascend910b", line="22"),
    **python("2.6.0", "2.6.0"),
}
OLD_SMI = smi_a2("910B4", 8, driver="25.2.0")
#: No npu-smi output came with the files.
UNSEEN = "unknown"

#: As in a wheel of torch from PyPI for x86-64.
CUDA_BUILD = "__version__ = '2.9.0+cpu'\ncuda: Optional[str] = '12.8'\n"
_MINE = "Metadata-Version: 2.1\nName: pytest-ascend\nVersion: 0.1.0\n"
_PINS = "Requires-Dist: torch==2.13.0; extra == 'emulated'\nRequires-Dist: torch-npu==2.13.0; extra == 'emulated'\n"
EXTRA = {"usr/local/lib/python3.11/site-packages/pytest_ascend-0.1.0.dist-info/METADATA": f"{_MINE}{_PINS}\n"}


def libraries(vllm: str, triton: str, nnal: str) -> Files:
    """Return vllm-ascend, triton-ascend and ATB in these versions."""
    site, names = "usr/local/lib/python3.11/site-packages", (("vllm_ascend", vllm), ("triton_ascend", triton))
    found = {
        f"{site}/{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n"
        for name, version in names
    }
    return {**found, f"{ASCEND}/nnal/atb/latest/version.info": f"Ascend-cann-atb Version : {nnal}\n"}


MACHINES: dict[str, Box] = {
    # healthy ones, of each family
    "a2-8.5": Box(files=WELL, environ=sourced(NEW), smi=SMI),
    "a2-8.2": Box(files=OLD, environ=sourced(), smi=OLD_SMI),
    "a2-9.0-newer-driver": Box(
        files={
            **host(),
            **devices(8),
            **driver("26.0.rc1", firmware="7.8.0.7.220"),
            **new_cann("9.0.0", kernels="ascend910b", line=""),
            **python("2.9.0", "2.9.0.post2"),
        },
        environ=sourced(NEW),
        smi=smi_a2("910B2C", 8, driver="26.0.rc1"),
    ),
    "a3-9.1": Box(
        files={
            **host(),
            **devices(16),
            **driver("26.0.rc1"),
            **new_cann("9.1.0", kernels="ascend910_93", line=""),
            **python("2.12.0", "2.12.0", "3.12", numpy="2.1.2"),
        },
        environ=sourced(NEW),
        smi=smi_a3("26.0.rc1"),
        finds="unknown",
    ),
    "950-9.0": Box(
        files={
            **host(),
            **devices(1),
            "dev/devmm_svm": None,  # which its driver does not have
            **driver("25.1.rc2", firmware="9.0.0.1.220", accepts_fw="[9.0.0,9.9.9]"),
            **new_cann("9.0.0", kernels="ascend950", line=""),
            **python("2.10.0", "2.10.0"),
        },
        environ=sourced(NEW),
        smi=smi_950("25.1.rc2"),
    ),
    "310p-8.0": Box(
        files={
            **host(X86, "Ubuntu 22.04.5 LTS"),
            **devices(2),
            **driver("24.1.rc2", lines="13 15 17 18 19 20", accepts_fw="[7.0.0,7.2.99]", firmware="7.1.0.9.220"),
            f"{ASCEND}/driver/lib64/driver/libascend_hal.so": elf(X86, "libc_sec.so"),
            f"{ASCEND}/driver/lib64/common/libc_sec.so": elf(X86),
            **cann("8.0.0", kernels="ascend310p", line="20", arch=X86),
            **python("2.1.0", "2.1.0.post10", "3.10"),
        },
        environ=sourced(),
        smi=smi_310p("24.1.rc2"),
        finds="chip.halves chip.saturates chip.no-bfloat16",
    ),
    "910a-7.0": Box(
        files={
            **host(name="EulerOS 2.8"),
            **devices(8),
            **driver("23.0.6", lines="13 15 17", accepts_fw="[7.0.0,7.2.99]", firmware="7.1.0.5.220"),
            **cann("7.0.0", kernels="ascend910", line="15", internal="7.0.0.5.242"),
            **python("2.1.0", "2.1.0", "3.9"),
        },
        environ=sourced(),
        smi=smi_a2("910A", 8, driver="23.0.6"),
        finds="chip.halves chip.saturates chip.no-bfloat16",
    ),
    "910b-first-generation-6.3": Box(
        files={
            **host(),
            **devices(8),
            **driver("23.0.rc2", lines="10 11 12 13", accepts_fw="[6.0.0,6.9.99]", firmware="6.4.12.1.241"),
            **cann("6.3.RC2", kernels="ascend910", line="11", internal="1.85.12.1.221"),
            **python("1.11.0", "1.11.0.post1", "3.8"),
        },
        environ=sourced(),
        smi=smi_a2("910B", 8, driver="23.0.rc2"),
        finds="chip.halves chip.saturates chip.no-bfloat16",
    ),
    # nothing, or half of it
    "laptop": Box(files=host(X86, "Debian GNU/Linux 12"), finds="ascend.absent"),
    "laptop-with-torch-npu": Box(
        files={**host(X86), **python("2.13.0", "2.13.0")}, environ={"HOME": "/home/me"}, finds="ascend.absent"
    ),
    "container-without-driver": Box(
        files={
            **host(),
            **devices(1),
            ".dockerenv": "",
            **new_cann("8.5.0", kernels="ascend910b"),
            **PY,
        },
        environ=sourced(NEW),
        finds=f"devices.locks driver.not-mounted {UNSEEN}",
    ),
    "container-without-devices": Box(
        files={**host(), ".dockerenv": "", **driver("25.5.1"), **new_cann("8.5.0", kernels="ascend910b"), **PY},
        environ=sourced(NEW),
        finds=f"devices.absent {UNSEEN}",
    ),
    "container-for-building": Box(
        files={**host(), ".dockerenv": "", **new_cann("8.5.0", kernels="ascend910b"), **PY},
        environ=sourced(NEW),
        finds=f"driver.absent {UNSEEN}",
    ),
    "half-of-the-driver": Box(
        files={**WELL, f"{ASCEND}/driver/lib64/common/libc_sec.so": None, ".dockerenv": ""},
        environ=sourced(NEW),
        smi=SMI,
        finds="devices.locks library.needed library.needed",
    ),
    "only-driver": Box(
        files={**host(), **devices(8), **driver("25.5.1", firmware="7.8.0.5.216"), **python("2.9.0", "")},
        smi=SMI,
        finds=f"cann.absent torch-npu.absent {UNSEEN}",
    ),
    "no-python": Box(files=A2, environ=sourced(NEW), smi=SMI, finds=f"torch.absent {UNSEEN}"),
    "control-file-missing": Box(
        files={**WELL, "dev/hisi_hdc": None}, environ=sourced(NEW), smi=SMI, finds="devices.control-files"
    ),
    "no-permission": Box(
        files={**WELL, **devices(8, 0o600)}, environ=sourced(NEW), smi=SMI, user=True, finds="devices.permission"
    ),
    "no-permission-for-one": Box(
        files={**WELL, "dev/davinci3": Mode(0o600)},
        environ=sourced(NEW),
        smi=SMI,
        user=True,
        finds="devices.permission",
    ),
    "kernels-of-another-chip": Box(
        files={**host(), **devices(8), **driver("25.5.1"), **new_cann("8.5.0", kernels="ascend310p"), **PY},
        environ=sourced(NEW),
        smi=SMI,
        finds=f"cann.kernels {UNSEEN}",
    ),
    # wrong environment
    "not-sourced": Box(files=WELL, smi=SMI, finds="cann.not-sourced"),
    "home-gone": Box(
        files=WELL,
        environ={**sourced(NEW), "ASCEND_HOME_PATH": "/opt/gone", "ASCEND_TOOLKIT_HOME": NEW},
        smi=SMI,
        finds="cann.home-gone",
    ),
    "libraries-of-another-cann-first": Box(
        files={**WELL, **cann("8.2.RC1", kernels="ascend910b"), f"{ASCEND}/ascend-toolkit/latest": Link("8.2.RC1")},
        environ={
            **sourced(NEW),
            "LD_LIBRARY_PATH": f"/{OLD_HOME}/lib64:{sourced(NEW)['LD_LIBRARY_PATH']}",
        },
        smi=SMI,
        finds="cann.library-path cann.several",
    ),
    "operators-of-another-cann": Box(
        files={**WELL, **cann("8.2.RC1", kernels="ascend910b"), f"{ASCEND}/ascend-toolkit/latest": Link("8.2.RC1")},
        environ={
            **sourced(NEW),
            "ASCEND_OPP_PATH": f"/{OLD_HOME}/opp",
            "LD_LIBRARY_PATH": f"{sourced(NEW)['LD_LIBRARY_PATH']}:/{OLD_HOME}/lib64",
        },
        smi=SMI,
        finds="cann.other-operators cann.two-in-library-path cann.several",
    ),
    "stubs": Box(
        files=WELL,
        environ={**sourced(NEW), "LD_LIBRARY_PATH": f"{NEW}/devlib:{sourced(NEW)['LD_LIBRARY_PATH']}"},
        smi=SMI,
        finds="cann.stubs",
    ),
    "stubs-where-there-is-no-driver": Box(
        files={**host(), ".dockerenv": "", **new_cann("8.5.0", kernels="ascend910b"), **PY},
        environ={**sourced(NEW), "LD_LIBRARY_PATH": f"{NEW}/devlib:{sourced(NEW)['LD_LIBRARY_PATH']}"},
        finds=f"driver.absent {UNSEEN}",
    ),
    "hidden-devices": Box(
        files=WELL, environ={**sourced(NEW), "ASCEND_RT_VISIBLE_DEVICES": "0,9"}, smi=SMI, finds="devices.visible"
    ),
    "settings": Box(
        files=WELL,
        environ={
            **sourced(NEW),
            "INF_NAN_MODE_ENABLE": "0",
            "TASK_QUEUE_ENABLE": "2",
            "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True, max_split_size_mb:64",
            "PYTORCH_ALLOC_CONF": "x",
            "ALLOW_MATMUL_HF32": "0",
        },
        smi=SMI,
        finds="settings.numbers settings.order settings.speed settings.speed settings.two-allocators "
        "settings.allocator",
    ),
    # wrong and mixed versions
    "mixed-8.2": Box(
        files={**OLD, **cann("8.2.RC1", kernels="ascend910b", line="22", parts={"opp_kernel": "8.0.RC3.alpha003"})},
        environ=sourced(),
        smi=OLD_SMI,
        finds="cann.mixed",
    ),
    "numbers-of-another-count": Box(
        files={**OLD, f"{OLD_HOME}/version.cfg": None}, environ=sourced(), smi=OLD_SMI, finds=""
    ),
    "ops-of-another-release": Box(
        files={**WELL, **new_cann("8.5.0", kernels="ascend910b", ops="9.0.0")},
        environ=sourced(NEW),
        smi=SMI,
        finds="cann.mixed",
    ),
    "ops-that-may-be-mixed": Box(
        files={
            **host(),
            **devices(8),
            **driver("26.0.rc1", firmware="7.8.0.7.220"),
            **new_cann("9.0.0", kernels="ascend910b", ops="8.5.2", line=""),
            **python("2.9.0", "2.9.0.post2"),
        },
        environ=sourced(NEW),
        smi=smi_a2("910B3", 8, driver="26.0.rc1"),
    ),
    "constraint": Box(
        files={**WELL, **new_cann("8.5.0", kernels="ascend910b", needs=">=9.0")},
        environ=sourced(NEW),
        smi=SMI,
        finds="cann.constraint",
    ),
    "torch-npu-of-another-cann": Box(
        files={**A2, **python("2.1.0", "2.1.0.post10", "3.10")},
        environ=sourced(NEW),
        smi=SMI,
        finds="combination.incompatible",
    ),
    "python-that-only-the-other-torch-takes": Box(
        files={**A2, **python("2.1.0", "2.9.0", "3.8", pin="2.9.0")},
        environ=sourced(NEW),
        smi=SMI,
        finds="combination.torch combination.python",
    ),
    "torch-with-cuda": Box(
        files={**WELL, "usr/local/lib/python3.11/site-packages/torch/version.py": CUDA_BUILD},
        environ=sourced(NEW),
        smi=SMI,
        finds="torch.cuda",
    ),
    "torch-npu-of-the-extra": Box(
        files={**A2, **python("2.13.0", "2.13.0"), **EXTRA},
        environ=sourced(NEW),
        smi=SMI,
        finds="combination.undocumented torch.emulated-extra",
    ),
    "torch-npu-of-another-torch": Box(
        files={**A2, **python("2.8.0", "2.9.0", pin="2.9.0")}, environ=sourced(NEW), smi=SMI, finds="combination.torch"
    ),
    "disputed": Box(
        files={**A2, **new_cann("9.0.0", kernels="ascend910b"), f"{ASCEND}/cann-8.5.0/version.cfg": None, **PY},
        environ=sourced(NEW),
        smi=SMI,
        finds="combination.disputed cann.several",
    ),
    "wrong-python": Box(
        files={**A2, **python("2.6.0", "2.6.0.post5", "3.13")},
        environ=sourced(NEW),
        smi=SMI,
        finds="combination.python",
    ),
    "libraries-of-their-table": Box(
        files={**WELL, **libraries("0.15.0rc1", "3.2.0", "8.5.0")}, environ=sourced(NEW), smi=SMI
    ),
    "libraries-of-another-cann": Box(
        files={**WELL, **libraries("0.23.0", "3.2.1", "9.1.0")},
        environ=sourced(NEW),
        smi=SMI,
        finds="combination.libraries combination.libraries combination.libraries",
    ),
    "number-used-twice": Box(
        files={
            **host(),
            **devices(8),
            **driver("24.1.rc1", lines="13 15 17 18 19 30", accepts_fw="[7.0.0,7.2.99]", firmware="7.1.0.9.220"),
            **cann("8.0.RC1", kernels="ascend910b", line="17"),
            **python("2.1.0", "2.1.0.post4", "3.10"),
        },
        environ=sourced(),
        smi=smi_a2("910B1", 8, driver="24.1.rc1"),
        finds="combination.ambiguous",
    ),
    "number-used-twice-and-no-commit": Box(
        files={
            **host(),
            **devices(8),
            **driver("24.1.rc1", lines="13 15 17 18 19 30", accepts_fw="[7.0.0,7.2.99]", firmware="7.1.0.9.220"),
            **cann("8.0.RC1", kernels="ascend910b", line="17"),
            **python("2.1.0", "2.1.0.post4", "3.10"),
            "usr/local/lib/python3.10/site-packages/torch_npu/version.py": None,
        },
        environ=sourced(),
        smi=smi_a2("910B1", 8, driver="24.1.rc1"),
        finds="combination.ambiguous",
    ),
    "not-the-recommended-pair": Box(
        files={
            **host(),
            **devices(8),
            **driver("25.3.rc1", firmware="7.8.0.2.212"),
            **cann("8.3.RC1", kernels="ascend910b", line="23"),
            **python("2.7.1", "2.7.1.post2"),
        },
        environ=sourced(),
        smi=smi_a2("910B2", 8, driver="25.3.rc1"),
        finds="combination.unpaired",
    ),
    "torch-npu-of-no-known-cann": Box(
        files={**A2, **python("2.13.0", "2.13.0", "3.12")},
        environ=sourced(NEW),
        smi=SMI,
        finds="combination.undocumented",
    ),
    "two-kinds-of-chips": Box(files=WELL, environ=sourced(NEW), smi=SMI + smi_a2("910B4", 1), finds="chip.several"),
    "a-correction-of-cann": Box(
        files={**host(), **devices(8), **driver("25.5.1"), **new_cann("8.5.1", kernels="ascend910b"), **PY},
        environ=sourced(NEW),
        smi=SMI,
        finds=UNSEEN,
    ),
    "unknown-torch-npu": Box(
        files={**A2, **python("2.30.0", "2.30.0")}, environ=sourced(NEW), smi=SMI, finds="combination.unlisted"
    ),
    "driver-too-old-for-cann": Box(
        files={**WELL, **driver("23.0.6", firmware="7.8.0.5.216", lines="13 15 17")},
        environ=sourced(NEW),
        smi=smi_a2("910B3", 8, driver="23.0.6"),
        finds="driver.cann driver.older",
    ),
    "firmware-out-of-range": Box(
        files={**WELL, **driver("25.5.1", firmware="6.4.12.1.241")},
        environ=sourced(NEW),
        smi=SMI,
        finds="driver.firmware",
    ),
    "driver-not-rebooted": Box(
        files=WELL,
        environ=sourced(NEW),
        smi=smi_a2("910B3", 8, driver="25.2.0"),
        finds="version.disagreement driver.older",
    ),
    "cann-for-another-processor": Box(
        files={**WELL, LOADERS[ARM]: None, LOADERS[X86]: ""},
        environ=sourced(NEW),
        smi=SMI,
        finds="cann.architecture" + " library.architecture" * 5,
    ),
    "compiler-needs": Box(
        files={
            **WELL,
            "usr/local/lib/python3.11/site-packages/scipy-1.0.dist-info/METADATA": None,
        },
        environ=sourced(NEW),
        smi=SMI,
        finds="python.compiler-needs",
    ),
    "numpy-2-under-8.0": Box(
        files={
            **host(),
            **devices(8),
            **driver("24.1.rc2", lines="20", firmware="7.5.0.1.220"),
            **cann("8.0.0", kernels="ascend910b", line="20"),
            **python("2.4.0", "2.4.0.post2", numpy="2.0.1"),
        },
        environ=sourced(),
        smi=smi_a2("910B1", 8, driver="24.1.rc2"),
        finds="python.numpy",
    ),
    # faulty and busy
    "alarm": Box(files=WELL, environ=sourced(NEW), smi=smi_a2("910B3", 1, health="Alarm"), finds="health.bad"),
    "warning": Box(files=WELL, environ=sourced(NEW), smi=smi_a2("910B3", 1, health="Warning"), finds="health.unsure"),
    "occupied-by-another-container": Box(  # whose processes npu-smi does not list
        files=WELL,
        environ=sourced(NEW),
        smi=smi_a2("910B3", 1).replace("2922 / 65536", "31024/ 65536"),
        finds="devices.occupied",
    ),
    "occupied": Box(
        files=WELL,
        environ=sourced(NEW),
        smi=smi_a2(
            "910B3",
            1,
            processes="| 0       0       | 4711          | python3.11               | 31024                   |",
        ),
        finds="devices.occupied",
    ),
    "unknown-chip": Box(files=WELL, environ=sourced(NEW), smi=smi_a2("777X", 8), finds="chip.unknown"),
    "driver-half-installed": Box(
        files=WELL,
        environ=sourced(NEW),
        smi=f"{SMI}[WARNING]The driver package may not be completely installed.\n",
        finds="driver.incomplete",
    ),
}
