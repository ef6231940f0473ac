"""A torch_npu that would end the process beside a torch with CUDA is found, and loaded all the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from pytest_ascend.emulator import bootstrap, build
from pytest_ascend.environment import signs
from pytest_ascend.errors import EmulatorUnavailable

BOTH = b"\0registerDeviceConfigParserHook\0pinned_reserve_segment_size_mb\0"
NAMES = b"\0_ZZ" + build._NAMES + b"E4keys\0"

#: As torch keeps the names of settings: in a function that libc10.so exports, or in an inline one that it does not.
TORCH = """
#include <string>
#include <unordered_set>
namespace c10::CachingAllocator {{
struct __attribute__((visibility("default"))) AcceleratorAllocatorConfig {{
    static std::unordered_set<std::string> &getMutableKeys();
}};
{inline} std::unordered_set<std::string> &AcceleratorAllocatorConfig::getMutableKeys() {{
    static std::unordered_set<std::string> keys{{
        "expandable_segments", "pinned_reserve_segment_size_mb", "per_process_memory_fraction"}};
    return keys;
}}
}}
extern "C" int count() {{ return c10::CachingAllocator::AcceleratorAllocatorConfig::getMutableKeys().size(); }}
"""
#: What a process loads, and how many settings torch knows then.
LOADED = {
    "torch = CDLL('./libc10.so')": 3,
    "torch = CDLL('./libc10.so'); CDLL('lib64/libclash.so')": 1,
    "torch = CDLL('./libc10.so'); CDLL('lib64/libgraph.so')": 1,
    "CDLL('lib64/libgraph.so'); torch = CDLL('./libc10.so')": 3,
    "CDLL('lib64/libgraph.so'); torch = CDLL('./libc10.so'); CDLL('lib64/libclash.so')": 1,
}


def install(monkeypatch: pytest.MonkeyPatch, root: Path, cuda: bytes | None, npu: bytes, c10: bytes = NAMES) -> bool:
    """Put the two packages into a folder, with libraries of this content; return whether they clash."""
    libraries = {"libc10_cuda.so": cuda, "libc10.so": c10, "libtorch_npu.so": npu}
    for name, content in libraries.items():
        if content is not None:
            (root / "lib").mkdir(exist_ok=True)
            (root / "lib" / name).write_bytes(content)

    def find(name: str) -> ModuleSpec:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(root)]
        return spec

    monkeypatch.setattr("importlib.util.find_spec", find)
    return build.clashes([root / "lib" / "libtorch_npu.so"])


def test_both_register_the_same_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert install(monkeypatch, tmp_path, BOTH, BOTH)


@pytest.mark.parametrize(("cuda", "npu"), [(None, BOTH), (b"other", BOTH), (BOTH, b"pinned_reserve_segment_size_mb")])
def test_others_do_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cuda: bytes | None, npu: bytes) -> None:
    assert not install(monkeypatch, tmp_path, cuda, npu)


def test_a_torch_that_keeps_the_names_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(EmulatorUnavailable, match="beside a torch that was built with CUDA"):
        install(monkeypatch, tmp_path, BOTH, BOTH, b"other")


def test_without_a_compiler_for_cxx_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmulatorUnavailable, match=r"beside a torch that was built with CUDA(.|\n)*C\+\+(.|\n)*g\+\+"):
        build._link_clash("/bin/false", tmp_path)


def test_the_key_changes_with_the_clash() -> None:
    assert build._key("/bin/true", []) != build._key("/bin/true", [], clash=True)


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not installed")
@pytest.mark.parametrize("inline", ["", "inline"])
def test_torch_forgets_the_settings_that_both_register(tmp_path: Path, inline: str) -> None:
    (tmp_path / "torch.cpp").write_text(TORCH.format(inline=inline), encoding="utf-8")
    flags = ("-shared", "-fPIC", "-fvisibility-inlines-hidden", "-Wl,-soname,libc10.so", "-olibc10.so")
    subprocess.run(["g++", *flags, "torch.cpp"], cwd=tmp_path, check=True)
    (tmp_path / "lib64").mkdir()
    build._link_clash("gcc", tmp_path)
    build._link("gcc", tmp_path, "libgraph.so", [build._write(tmp_path, "others.c", build._OPENS_CLASH)], "-ldl")
    for order, count in LOADED.items():
        code = f"from ctypes import CDLL; {order}; print(torch.count())"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == f"{count}\n", f"{order}: {done.stderr}"


def test_they_are_forgotten_when_torch_npu_is_about_to_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(bootstrap, "library", loaded.append)
    finder = bootstrap.BeforeTorchNpu()
    monkeypatch.setattr(sys, "meta_path", [finder])
    for name in ("torch", "torch_npu"):
        finder.find_spec(name)
    assert not loaded
    finder.find_spec("torch_npu._C")
    assert loaded == [signs.CLASH]
    assert not sys.meta_path
