"""Lets torch be imported where torch_npu is installed and CANN is not: the tests themselves need no NPU."""

import os

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
