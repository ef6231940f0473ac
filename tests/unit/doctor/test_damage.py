"""Whatever stands in files, variables and npu-smi's output: the doctor ends, and says what it saw."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pytest_ascend.doctor import examine
from pytest_ascend.environment.machine import copied_machine

from .machines import MACHINES
from .trees import build

#: What files are damaged with: bytes of all kinds, and texts that readers of versions stumble over.
WORDS = (
    b"\0",
    b"\xff\xfe",
    b"=",
    b"[",
    b"]",
    b",",
    b"\n",
    b"version=",
    b"9" * 400,
    b"V100R001C",
    "８.0".encode(),
    b"\x1b[2J",
)


def damaged(data: bytes, chance: Random) -> bytes:
    """Cut, double, and replace at random places."""
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        word = chance.choice((*WORDS, bytes([chance.randrange(256)])))
        data = chance.choice(
            (data[:at], data[:at] + word + data[at:], data[:at] + word + data[at + 1 :], data[at:] + data)
        )
        data = data[:20_000]
    return data


@pytest.mark.parametrize("seed", range(24))
def test_no_damage_makes_the_doctor_fail(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)  # noqa: S311 (to be repeated)
    box = MACHINES[chance.choice(("a2-8.5", "a2-8.2", "310p-8.0", "950-9.0"))]
    files = dict(box.files)
    for name in chance.sample(sorted(files), k=len(files) // 2):
        content = files[name]
        if isinstance(content, str | bytes):
            files[name] = damaged(content.encode() if isinstance(content, str) else content, chance)
    build(tmp_path, files)
    environ = {key: damaged(value.encode(), chance).decode("utf-8", "replace") for key, value in box.environ.items()}
    smi = damaged((box.smi or "").encode(), chance).decode("utf-8", "replace")
    for finding in examine(copied_machine(tmp_path, environ, smi)).findings:
        assert all(text.isprintable() for text in (finding.what, *finding.evidence, finding.remedy))
