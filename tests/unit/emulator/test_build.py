"""The emulated CANN is compiled once, for what matters, and says what is missing where it cannot be."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ascend.emulator import build
from pytest_ascend.emulator.build import needed_from_cann, torch_npu_libraries
from pytest_ascend.emulator.signature import parse
from pytest_ascend.errors import EmulatorUnavailable

ADD = parse("aclnnAdd(Tensor self, double factor, float bias, text mode, uint64 seed, out Tensor out)")


def compiles(compiler: str, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    source = folder / "source.c"
    source.write_text(text, encoding="utf-8")
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-c", f"-I{build.HERE / 'runtime'}"]
    return subprocess.run([*command, "-o", folder / "o", source], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("compiler", ["cc", "aarch64-linux-gnu-gcc", "x86_64-linux-gnu-gcc"])
def test_runtime_and_entry_points_compile_without_a_warning(compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    texts = [path.read_text(encoding="utf-8") for path in sorted((build.HERE / "runtime").glob("*.c"))]
    for text in [*texts, build.operators_source([ADD]), build.missing_source({"aclrtNew"})]:
        assert compiles(compiler, tmp_path, text).stderr == ""


def test_functions_that_the_runtime_has_are_not_filled_in() -> None:
    defined = build._defined(sorted((build.HERE / "runtime").glob("*.c")))
    assert {"aclrtMalloc", "aclGetRecentErrMsg", "aclCreateTensor", "emu_run"} <= defined
    assert "missing_lock" not in defined


def test_collectives_are_not_filled_in_either() -> None:
    assert {"HcclGetRootInfo", "HcclAllReduce"} <= build._defined(sorted((build.HERE / "hccl").glob("*.c")))


def test_what_torch_npu_needs_is_read_from_its_libraries() -> None:
    symbols, libraries = needed_from_cann(torch_npu_libraries())
    assert {"aclInit", "aclrtMalloc", "rtKernelLaunch"} <= symbols
    assert "PyObject_Str" not in symbols
    assert {"libascendcl.so", "libhccl.so"} <= libraries
    assert "libtorch_cpu.so" not in libraries


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_message_says_what_to_install() -> None:
    with pytest.raises(EmulatorUnavailable, match=r"C compiler(.|\n)*apt install gcc"):
        build.emulated_cann()


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("", encoding="utf-8")
    monkeypatch.setenv("PYTEST_ASCEND_CACHE", str(blocker / "cache"))
    with pytest.raises(EmulatorUnavailable, match=r"cannot be written(.|\n)*PYTEST_ASCEND_CACHE"):
        build.emulated_cann()


def test_the_key_changes_with_the_compiler_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = torch_npu_libraries()
    key = build._key("/bin/true", libraries)
    assert key == build._key("/bin/true", libraries)
    assert key != build._key("/bin/false", libraries)
    assert key != build._key("/bin/true", libraries[1:])
    monkeypatch.setattr(platform, "machine", lambda: "another")
    assert key != build._key("/bin/true", libraries)


def test_processes_that_start_together_share_one_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTEST_ASCEND_CACHE", str(tmp_path))
    code = "from pytest_ascend.emulator.build import emulated_cann; print(emulated_cann())"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    homes = {process.communicate()[0].strip() for process in started}
    assert len(homes) == 1
    assert {each.name for each in tmp_path.iterdir() if each.is_dir()} == {Path(homes.pop()).name}
