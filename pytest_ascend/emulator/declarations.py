"""Print the declarations of all kernels as JSON, for the generator of entry points.

Run in a process of its own: the kernels import torch, which must not happen in a process that is still to be activated.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Write a list of [name, [[role, type, name], ...]] to the standard output."""
    from pytest_ascend.emulator.kernels import all_kernels  # noqa: PLC0415  imports torch

    signatures = [kernel.signature for kernel in all_kernels()]
    json.dump([[each.name, [[p.role, p.type, p.name] for p in each.parameters]] for each in signatures], sys.stdout)


if __name__ == "__main__":
    main()
