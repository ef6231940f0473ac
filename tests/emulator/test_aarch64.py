"""The emulated CANN's C sources are built for aarch64 and run there, under an emulator of the architecture."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_ascend.emulator import build

COMPILER, MACHINE = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")

#: Sets a device, copies through its memory, and has a fork refused.
PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int aclrtSetDevice(int32_t); const char *aclrtGetSocName(void); int aclrtGetPhyDevIdByUserDevId(int32_t, int32_t *);
int aclrtMalloc(void **, size_t, int); int aclrtFree(void *); int aclrtSynchronizeDevice(void);
int aclrtMemcpy(void *, size_t, const void *, size_t, int);
int main(void) {
    int32_t number;
    void *memory;
    char text[8] = "abcdefg", back[8];
    printf("%s %d\\n", aclrtGetSocName(), aclrtSetDevice(0));
    aclrtGetPhyDevIdByUserDevId(0, &number);
    aclrtMalloc(&memory, 512, 0);
    aclrtMemcpy(memory, 8, text, 8, 1);
    aclrtMemcpy(back, 8, memory, 8, 2);
    printf("physical %d copied %s waited %d\\n", number, back, aclrtSynchronizeDevice());
    fflush(stdout);
    if (!fork()) {
        printf("forked %d\\n", aclrtSetDevice(0));
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    return aclrtFree(memory);
}
"""


def _compile(folder: Path, name: str, *sources: Path, options: tuple[str, ...]) -> Path:
    here = Path(build.HERE, "runtime")
    command = [str(COMPILER), "-std=gnu11", "-O1", "-fPIC", f"-I{here}", "-o", str(folder / name), *map(str, sources)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / name


@pytest.mark.skipif(not (COMPILER and MACHINE), reason="needs gcc-aarch64-linux-gnu and qemu-user")
def test_the_runtime_works_on_aarch64(tmp_path: Path) -> None:
    shared = ("-shared", "-fvisibility=hidden", "-ldl", "-lpthread")
    runtime = sorted(Path(build.HERE, "runtime").glob("*.c"))
    _compile(tmp_path, "libascendcl.so", *runtime, options=(*shared, "-Wl,-soname,libascendcl.so"))
    (tmp_path / "main.c").write_text(PROGRAM, encoding="utf-8")
    libraries = (f"-L{tmp_path}", "-lascendcl", "-Wl,-rpath,$ORIGIN")
    program = _compile(tmp_path, "main", tmp_path / "main.c", options=libraries)
    environ = {"PYTEST_ASCEND_EMULATED_PHYSICAL": "4,6", "PYTEST_ASCEND_EMULATED_MEMORY": "1048576"}
    command = [str(MACHINE), "-L", "/usr/aarch64-linux-gnu", str(program)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == [
        "Ascend910B1 0",
        "physical 4 copied abcdefg waited 0",
        "forked 107002",
    ], done.stderr
    assert done.returncode == 0
