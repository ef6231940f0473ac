"""Imported by every Python that ``pytest-ascend diagnose distributed`` starts: has a rank's training recorded."""

import importlib
import os
import sys
from pathlib import Path

if "PYTEST_ASCEND_RECORD" in os.environ and "RANK" in os.environ:
    from pytest_ascend.distributed import recorder

    recorder.install(Path(os.environ["PYTEST_ASCEND_RECORD"]))

# The environment may have a module of this name of its own, which this one hides.
here = str(Path(__file__).parent)
sys.path[:] = [each for each in sys.path if each != here]
own = sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ImportError:  # site takes the module from sys.modules after this one has run
    if own is not None:
        sys.modules["sitecustomize"] = own
