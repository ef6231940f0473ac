"""A conformance suite for Huawei Ascend NPUs, as a pytest plugin.

Importing this package loads neither torch nor torch_npu: starting pytest without ``--ascend`` must cost nothing.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  (openEuler 22.03 brings 3.9, which would end in a syntax error)
    sys.exit(
        "pytest-ascend needs Python 3.10 or newer, and this is Python {}.{}: install one beside it, such as "
        "python3.11 (openEuler 22.03: dnf install python3.11, or conda), with the torch and torch_npu for it".format(
            *sys.version_info[:2]
        )
    )

from pytest_ascend.system.version import __version__

__all__ = ["__version__"]
