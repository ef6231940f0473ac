"""The folders that come with the package."""

from __future__ import annotations

import pytest

from pytest_ascend.errors import AscendError
from pytest_ascend.system.bundled import folder


def test_the_suites_are_found() -> None:
    assert (folder("suites") / "environment").is_dir()


def test_an_installation_that_lacks_a_folder_says_so() -> None:
    with pytest.raises(AscendError, match="lacks its folder 'nonsense'"):
        folder("nonsense")
