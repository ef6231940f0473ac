"""Stash keys for the data of a run or a test. Imports nothing expensive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_ascend.distributed.ranks import Ranks
    from pytest_ascend.plugin.hooks import RunState
    from pytest_ascend.plugin.session import RunSetup
    from pytest_ascend.records.case import Case
    from pytest_ascend.run.case_context import CaseContext

#: Setup known before collection; in the config of a run with ``--ascend``.
SETUP: pytest.StashKey[RunSetup] = pytest.StashKey()
#: The state of a run in this process.
STATE: pytest.StashKey[RunState] = pytest.StashKey()
#: The case that a test decides, and the context filled while it runs.
CASE: pytest.StashKey[Case] = pytest.StashKey()
CONTEXT: pytest.StashKey[CaseContext] = pytest.StashKey()
#: The ranks of distributed cases, if their process was forked in time.
RANKS: pytest.StashKey[Ranks] = pytest.StashKey()
#: Number of cases of the level that were deselected before their tests were built.
NOT_BUILT: pytest.StashKey[int] = pytest.StashKey()
