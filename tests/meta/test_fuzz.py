"""The fuzzer damages files that are well formed: each reader takes its own as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from .fuzz import _readers
from .well_formed import scene


def test_each_reader_takes_what_is_well_formed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scene(tmp_path)
    for name, use in _readers().values():
        use(tmp_path / name)
