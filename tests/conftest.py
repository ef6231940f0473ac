"""Lets torch be imported where torch_npu is installed and CANN is not: the tests themselves need no NPU."""

import os

import platformdirs

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
# pytester gives each test a home of its own, where the emulated CANN would be compiled again.
os.environ.setdefault("PYTEST_ASCEND_CACHE", platformdirs.user_cache_dir("pytest-ascend"))

#: The environment before any test activates the emulated device.
AT_START = dict(os.environ)
