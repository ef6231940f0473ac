"""A torch_npu that would end the process beside a torch with CUDA is refused in words, before anything is loaded."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from pytest_ascend.emulator import build
from pytest_ascend.errors import EmulatorUnavailable

BOTH = b"\0registerDeviceConfigParserHook\0pinned_reserve_segment_size_mb\0"


def install(monkeypatch: pytest.MonkeyPatch, root: Path, cuda: bytes | None, npu: bytes) -> None:
    """Put the two packages into a folder, with libraries of this content."""
    for package, name, content in (("torch", "libc10_cuda.so", cuda), ("torch_npu", "libtorch_npu.so", npu)):
        (root / package / "lib").mkdir(parents=True)
        if content is not None:
            (root / package / "lib" / name).write_bytes(content)

    def find(name: str) -> ModuleSpec:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(root / name)]
        return spec

    monkeypatch.setattr(build.importlib.util, "find_spec", find)


def test_both_register_the_same_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, BOTH, BOTH)
    with pytest.raises(EmulatorUnavailable, match="beside a torch that was built with CUDA"):
        build.refuse_clash()


@pytest.mark.parametrize(("cuda", "npu"), [(None, BOTH), (b"other", BOTH), (BOTH, b"pinned_reserve_segment_size_mb")])
def test_others_are_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cuda: bytes | None, npu: bytes) -> None:
    install(monkeypatch, tmp_path, cuda, npu)
    build.refuse_clash()
