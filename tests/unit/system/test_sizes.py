"""Sizes of memory are read as people write them."""

import pytest

from pytest_ascend.errors import UsageError
from pytest_ascend.system.text import parse_size

SIZES = (
    ("1000", 1000),
    ("1000B", 1000),
    ("2K", 2048),
    ("512MiB", 512 << 20),
    ("8 GiB", 8 << 30),
    ("8G", 8 << 30),
    ("1.5kb", 1500),
)


@pytest.mark.parametrize(("text", "size"), SIZES)
def test_sizes_are_read_with_their_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "8GiBs", "8 parsecs", "1e9", "\u0663"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a memory size"):
        parse_size(text)
