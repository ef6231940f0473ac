"""Sizes of memory are read as people write them."""

import pytest

from pytest_ascend.emulator.sizes import parse_size
from pytest_ascend.errors import UsageError


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), ("2K", 2048), ("8G", 8 << 30), ("1 GiB", 1 << 30)])
def test_units_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1G", "8X", "big"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no size of memory"):
        parse_size(text)
