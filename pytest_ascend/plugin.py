"""The pytest plugin: its options, its start, and the fixtures.

Nothing heavier than a table of options is imported before ``--ascend`` is on or a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ascend import options
from pytest_ascend.bundled import folder
from pytest_ascend.environment.autoload import spare_torch

if TYPE_CHECKING:
    import torch

    from pytest_ascend.device import Device
    from pytest_ascend.golden import GoldenStore
    from pytest_ascend.run.comparing import PrecisionCompare
    from pytest_ascend.run.reference import CpuReference
    from pytest_ascend.run.trial import Trial
    from pytest_ascend.session import Setup

SETUP: pytest.StashKey[Setup] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    options.declare(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Bring the device up before any conftest can import torch; without ``--ascend``, see that it can."""
    if not options.is_on(early_config.known_args_namespace):
        spare_torch()
        return
    from pytest_ascend import hooks

    early_config.stash[SETUP] = hooks.set_up(early_config, args)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and all the rest where ``--ascend`` is on."""
    config.addinivalue_line("markers", "ascend_case(case): the pytest_ascend Case that a test decides")
    if options.is_on(config.option):
        from pytest_ascend import hooks

        hooks.register(config, config.stash.get(SETUP, None))


@pytest.fixture(scope="session")
def ascend_device(pytestconfig: pytest.Config) -> Device:
    """Give the device under test: its ``label``, ``synchronize()`` and peak of memory. Skips without ``--ascend``."""
    setup = pytestconfig.stash.get(SETUP, None)
    if setup is None:
        pytest.skip("needs --ascend")
    return setup.prepared.device


@pytest.fixture(scope="session")
def npu_device(ascend_device: Device) -> torch.device:
    """Give the device under test as a ``torch.device``. Skips without ``--ascend``."""
    return ascend_device.torch_device()


@pytest.fixture(scope="session")
def golden_store(pytestconfig: pytest.Config) -> GoldenStore:
    """Give the goldens of ``--ascend-baselines``, or the bundled ones."""
    from pytest_ascend.golden import GoldenStore

    setup = pytestconfig.stash.get(SETUP, None)
    return GoldenStore((setup.options.baselines if setup else folder("baselines")) / "golden")


@pytest.fixture(scope="session")
def cpu_reference(pytestconfig: pytest.Config, golden_store: GoldenStore) -> CpuReference:
    """Call a function or module on the CPU in float64; ``golden="name"`` reads a stored result instead.

    ``expected = cpu_reference(block, x)`` leaves ``block`` and ``x`` as they are.
    """
    from pytest_ascend.run.reference import CpuReference

    setup = pytestconfig.stash.get(SETUP, None)
    return CpuReference(golden_store, stores=bool(setup and setup.options.store_goldens))


@pytest.fixture
def precision_compare(request: pytest.FixtureRequest) -> PrecisionCompare:
    """Compare what the device computed with what was expected, by dtype; raises where they disagree.

    ``precision_compare(actual, expected)`` gives the verdict; see :func:`pytest_ascend.precision.compare`.
    ``precision_compare.layers(model, *inputs)`` judges every module of a model and names the first wrong one.
    """
    from pytest_ascend.run.comparing import PrecisionCompare

    setup, trial = request.config.stash.get(SETUP, None), _trial(request)
    note = trial.verdicts.append if trial else _forget
    if setup is None:
        return PrecisionCompare(note)
    return PrecisionCompare(note, setup.options.standard, str(setup.prepared.device.torch_device()))


@pytest.fixture
def ascend_measure(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """Keep a figure with the case: ``ascend_measure("latency_us", 12.5)``. The unit belongs into the name."""
    trial = _trial(request)
    return trial.measure if trial else _forget


def _trial(request: pytest.FixtureRequest) -> Trial | None:
    """Give where the test's evidence is gathered; None without ``--ascend``."""
    if SETUP not in request.config.stash:
        return None
    from pytest_ascend.hooks import TRIAL

    trial: Trial | None = request.node.stash.get(TRIAL, None)
    return trial


def _forget(*_: Any) -> None:
    """Take what nobody keeps without ``--ascend``."""
