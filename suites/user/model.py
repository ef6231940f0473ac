"""The model that ``--ascend-model`` names. Without that option this file is not collected: it is no ``test_*.py``."""

from __future__ import annotations

from collections.abc import Callable


def test_model(ascend_model_case: Callable[[], None]) -> None:
    ascend_model_case()
