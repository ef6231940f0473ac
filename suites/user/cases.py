"""The cases that ``--ascend-cases`` names. Without that option this file is not collected: it is no ``test_*.py``."""

from __future__ import annotations

from collections.abc import Callable


def test_case(_ascend_community_case: Callable[[], None]) -> None:
    _ascend_community_case()
