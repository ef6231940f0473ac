"""Lets torch be imported where torch_npu is installed and CANN is not: the tests themselves need no NPU."""

import gc
import os
import random
import tempfile
from collections import defaultdict
from pathlib import Path

import platformdirs
import pytest


def cache() -> str:
    """Return where the emulated CANN is compiled once: the user's folder, and where that cannot be written, another."""
    usual = Path(platformdirs.user_cache_dir("pytest-ascend"))
    try:
        usual.mkdir(parents=True, exist_ok=True)
    except OSError:
        return f"{tempfile.gettempdir()}/pytest-ascend-{os.getuid()}"
    return str(usual) if os.access(usual, os.W_OK) else f"{tempfile.gettempdir()}/pytest-ascend-{os.getuid()}"


os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
# pytester gives each test a home of its own, where the emulated CANN would be compiled again.
os.environ.setdefault("PYTEST_ASCEND_CACHE", cache())

#: The environment before any test activates the emulated device. What tests start is no worker of pytest-xdist, where
#: pytest-benchmark would measure nothing.
AT_START = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}

#: Seconds after which a test is stopped and fails, by the folder it is in: a supervisor that hangs must not stop CI.
LIMIT_S = {"unit": 120, "emulator": 120, "integration": 600, "meta": 600}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the time limit of each test that has none of its own; leave out what this commit does not draw.

    Folders with long tests come first: pytest-xdist gives files away in this order, and a long one that comes last
    would run alone.

    Of a test marked ``drawn(count)`` CI runs ``count`` parameters, chosen by its --random-order-seed, the commit; of
    all tests marked ``drawn(count, group)`` it runs ``count``. Without that option all run.
    """
    seed, drawn = config.getoption("random_order_seed", None), defaultdict(list)
    is_given = seed and seed != "0" and not seed.startswith("default:")  # as the plugin says where none was given
    for item in items:
        if (marker := item.get_closest_marker("drawn")) and is_given:
            count, group = (*marker.args, item.nodeid.partition("[")[0])[:2]
            drawn[group, count].append(item)
    left_out: set[pytest.Item] = set()
    for (group, count), each in sorted(drawn.items()):
        chosen = random.Random(f"{seed} {group}").sample(  # noqa: S311  (no secret)
            sorted(item.nodeid for item in each), min(len(each), count)
        )
        left_out.update(item for item in each if item.nodeid not in chosen)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))
    limits = {item: LIMIT_S[item.path.relative_to(config.rootpath).parts[1]] for item in items}
    items.sort(key=lambda item: -limits[item])
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limits[item]))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is imported and collected, and look less often."""
    gc.set_threshold(7_000)
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``drawn``, and remove hypothesis's deadline: how long an example takes says nothing.

    Not imported above: ``tests/forks.py`` imports this file before pytest, which warns of plugins imported earlier.
    """
    config.addinivalue_line(
        "markers", "drawn(count, group): CI runs so many of the parameters or of the group, drawn by the commit"
    )
    from hypothesis import HealthCheck, settings

    settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tests")
