"""What goes with every run beside the conformance hooks: the reports of other plugins, and progress."""

from __future__ import annotations

from functools import partial

import pytest

from pytest_ascend.coverage import selection, shards
from pytest_ascend.plugin.integrations import Integrations
from pytest_ascend.plugin.progress import ProgressLine
from pytest_ascend.plugin.session import RunRecorder


def register(config: pytest.Config, recorder: RunRecorder) -> None:
    """Let the reporters of a run hear of its results, in the process where these come together."""
    manager = config.pluginmanager
    manager.register(Integrations(), "ascend-integrations")
    durations = partial(shards.load, recorder.setup.suites)
    is_bundled = recorder.setup.scope != selection.OWN
    progress = ProgressLine(config, lambda: recorder.cases, durations, is_bundled=is_bundled)
    manager.register(progress, "ascend-progress")
