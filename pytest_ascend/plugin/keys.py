"""Where the plugin keeps what belongs to a run or to a test. Imports nothing that is heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_ascend.distributed.ranks import Ranks
    from pytest_ascend.plugin.session import Setup
    from pytest_ascend.plugin.state import RunState
    from pytest_ascend.records.case import Case
    from pytest_ascend.run.case_context import CaseContext

#: What is settled before anything is collected; in the configuration of a run with ``--ascend``.
SETUP: pytest.StashKey[Setup] = pytest.StashKey()
#: What this process knows of its run.
STATE: pytest.StashKey[RunState] = pytest.StashKey()
#: The case that a test decides, and what is gathered while it runs.
CASE: pytest.StashKey[Case] = pytest.StashKey()
CONTEXT: pytest.StashKey[CaseContext] = pytest.StashKey()
#: The ranks that distributed cases run on, where a process was forked for them in time.
RANKS: pytest.StashKey[Ranks] = pytest.StashKey()
#: How many cases of the level were left out before tests were made of them.
NOT_BUILT: pytest.StashKey[int] = pytest.StashKey()
