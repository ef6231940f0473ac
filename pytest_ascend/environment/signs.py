"""Signs that this machine has, or should have, an Ascend NPU. Every pytest run imports this, so it loads little."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

#: torch's own switch for autoloading backends of other packages.
VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def disable_backend_autoload(environ: MutableMapping[str, str] = os.environ, root: Path = Path("/")) -> None:
    """Stop torch from loading torch_npu if there is no CANN, in this process and its children.

    Without this, ``import torch`` fails on every machine with torch_npu and no CANN. A user's own setting is kept.
    """
    if environ.get(EMULATED_VARIABLE) != "1" and not signs(environ, root):
        environ.setdefault(VARIABLE, "0")


#: Set by the emulated device for itself and its child processes, along with variables that would otherwise be signs.
EMULATED_VARIABLE = "PYTEST_ASCEND_EMULATED"
#: The release that the emulated CANN reports.
EMULATED_CANN_VARIABLE = "PYTEST_ASCEND_EMULATED_CANN"
#: Whether torch_npu cannot be loaded with this torch on a real NPU: ``emulator/runtime/clash.cpp``.
CLASH_VARIABLE = "PYTEST_ASCEND_EMULATED_CLASH"
#: The library, if there is one, that lets torch_npu load with a CUDA build of torch (emulator/runtime/clash.cpp). It is
#: loaded between the two; in children, the libraries that torch_npu needs load it.
CLASH = "libclash.so"

#: Patterns below the root of the file system, and what a match means.
FILES = (
    ("dev/davinci[0-9]*", "device file"),
    ("dev/davinci_manager", "device file"),
    ("dev/devmm_svm", "device file"),
    ("dev/hisi_hdc", "device file"),
    ("usr/local/Ascend/*", "Ascend software"),
    ("etc/ascend_install.info", "record of an installed driver"),
    ("etc/Ascend/ascend_cann_install.info", "record of an installed CANN"),
)


class Sign(NamedTuple):
    """One piece of evidence: its kind ("device file") and its place ("/dev/davinci0", "ASCEND_HOME_PATH=/x")."""

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where} ({self.what})"


def signs(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> tuple[Sign, ...]:
    """Return device files, Ascend software, tools and variables; nothing is imported, started or opened.

    The emulated device's own variables are ignored.
    """
    # CANN can be installed below these without root permissions.
    folders = (Path(environ[name]) / "Ascend" for name in ("HOME", "CONDA_PREFIX") if environ.get(name))
    tool = shutil.which("npu-smi", path=environ.get("PATH", ""))
    names = sorted(name for name in environ if name.startswith("ASCEND_") and environ.get(EMULATED_VARIABLE) != "1")
    return (
        *(Sign(what, str(path)) for pattern, what in FILES for path in sorted(root.glob(pattern))),
        *(Sign("Ascend software", str(folder)) for folder in folders if folder.is_dir()),
        *([Sign("driver tool", tool)] if tool else []),
        *(Sign("environment variable", f"{name}={environ[name]}") for name in names),
    )
