"""Record a rank's training; imported by every Python that ``pytest-ascend diagnose distributed`` starts."""

import importlib
import os
import sys
from pathlib import Path

if "PYTEST_ASCEND_RECORD" in os.environ and "RANK" in os.environ:
    # Children of a rank inherit its environment, e.g. a DataLoader's workers: they are not recorded in its place.
    rank, pid = (os.environ["RANK"], os.environ.get("LOCAL_RANK", "")), str(os.getpid())
    *recorded, by = os.environ.get("PYTEST_ASCEND_RECORDED", "").split(",")
    if recorded != [*rank] or by == pid:
        from pytest_ascend.distributed import recorder

        os.environ["PYTEST_ASCEND_RECORDED"] = ",".join([*rank, pid])
        recorder.install(Path(os.environ["PYTEST_ASCEND_RECORD"]))

# The environment may have its own module of this name, which this one hides.
here = str(Path(__file__).parent)
sys.path[:] = [each for each in sys.path if each != here]
own = sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ImportError:  # site takes the module from sys.modules after this one has run
    if own is not None:
        sys.modules["sitecustomize"] = own
