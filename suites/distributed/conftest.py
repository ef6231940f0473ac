"""The ranks of a run, started once and used by all cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_ascend.distributed.ranks import Ranks
from pytest_ascend.plugin.keys import RANKS, SETUP


@pytest.fixture(scope="session")
def ascend_ranks(pytestconfig: pytest.Config) -> Iterator[tuple[Ranks, int]]:
    """Return the ranks, and how many of them a case uses. Skips where there is but one device."""
    setup = pytestconfig.stash.get(SETUP, None)
    if setup is None:
        pytest.skip("needs --ascend")
    if not setup.ranks:
        pytest.skip("needs two devices; --ascend-ranks=N asks for as many ranks")
    ranks = pytestconfig.stash.get(RANKS, None) or Ranks(setup.prepared.device.kind)
    yield ranks, setup.ranks
    ranks.close()
