"""A conformance suite for Huawei Ascend NPUs, as a pytest plugin.

Importing this package loads neither torch nor torch_npu: starting pytest without ``--ascend`` must cost nothing.
"""

__version__ = "0.1.0"
