"""torch loads torch_npu by itself from 2.5 on, and cannot be imported where that fails."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from pytest_ascend.environment.signs import EMULATED_VARIABLE, signs

#: torch's own switch for loading the backends of other packages.
VARIABLE = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def spare_torch(environ: MutableMapping[str, str] = os.environ, root: Path = Path("/")) -> None:
    """Have torch leave torch_npu alone where there is no CANN below it, in this process and its children.

    Without this, ``import torch`` fails on every machine that has torch_npu and no CANN. What the user has set stays.
    """
    if environ.get(EMULATED_VARIABLE) != "1" and not signs(environ, root):
        environ.setdefault(VARIABLE, "0")
