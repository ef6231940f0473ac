"""Every reader of what others may have written: a file that is well, and how it is read. For :mod:`fuzzing`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pytest_ascend.certificate import revocation
from pytest_ascend.coverage import expectations
from pytest_ascend.environment.npu_smi import parse as parse_npu_smi
from pytest_ascend.golden.files import Entry, Golden, Provenance, decode, decode_manifest, encode, encode_manifest
from pytest_ascend.migration import census
from pytest_ascend.migration.sources import scan
from pytest_ascend.page import html
from pytest_ascend.page.matrix import render_matrix
from pytest_ascend.page.matrix import scan as scan_run
from pytest_ascend.performance import baseline
from pytest_ascend.performance.baseline import Baseline, MeasuredRun
from pytest_ascend.records.census import Census
from pytest_ascend.runlog.resuming import whole_part
from pytest_ascend.runlog.writing import read as read_log
from pytest_ascend.verdict.summary import summarise
from tests.unit.environment.test_npu_smi import A2
from tests.unit.runlog import synthetic

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


@dataclass(frozen=True, slots=True)
class Target:
    """A reader: ``seed`` writes a file that is well to a path, ``use`` reads one as the tool does."""

    seed: Callable[[Path], object]
    use: Callable[[Path], object]


def _log(path: Path) -> None:
    synthetic.write_log(path, synthetic.op_cases(2))


def _golden(path: Path) -> None:
    path.write_bytes(encode(Golden("ops/one", {"x": torch.ones(3)}, {"a": 1})))


def _manifest(path: Path) -> None:
    made = Provenance(how="h", generator="g@1", seed="0", torch="2", numpy="2", machine="m")
    path.write_bytes(encode_manifest({"ops/one": Entry.of(b"x", made)}))


def _expectations(path: Path) -> None:
    one = {"cases": "ops/*", "outcome": "failed", "reason": "r", "source": "s", "expires": "2030-01-01", "cann": ">=8"}
    path.write_text(json.dumps({"schema": 1, "expectations": [one]}), encoding="utf-8")


def _baseline(path: Path) -> None:
    times = [100.0 + each % 7 for each in range(40)]
    runs = tuple(MeasuredRun.of([each + run for each in times], [each / 2 for each in times]) for run in range(2))
    stack, benchmarks = synthetic.EMULATED, {"benchmarks/x": runs}
    made = Baseline(recorded="2026-01-01T00:00:00+00:00", stack=stack, settings={}, benchmarks=benchmarks)
    path.write_text(json.dumps(made.to_dict()), encoding="utf-8")


def _census(path: Path) -> None:
    operators = {"aten::add.Tensor": "native", "npu::npu_swiglu": "native", "aten::foo": "fallback"}
    names = [each.name for each in fields(Census) if each.name != "operators"]
    stack = dict.fromkeys(names, "2.13.0")
    path.write_text(
        json.dumps({"schema": 1, "type": "census", "stack": stack, "operators": operators}), encoding="utf-8"
    )


def _program(path: Path) -> None:
    path.write_text(
        "import torch\nx = torch.ones(3).cuda()\nwith torch.cuda.amp.autocast():\n    x = x.to('cuda:0')\n",
        encoding="utf-8",
    )


def _revocations(path: Path) -> None:
    revocation.add(path, "a" * 64, "because", KEY, on=date(2026, 1, 1))


def _without_its_hash(read: Callable[[bytes], object]) -> Callable[[Path], object]:
    """Read past the hash, as one who can write the manifest as well would have it; a store names the file besides."""

    def use(path: Path) -> None:
        with contextlib.suppress(ValueError):
            read(path.read_bytes())

    return use


def _torn(path: Path) -> None:
    with contextlib.suppress(OSError):
        whole_part(path)


TARGETS: Mapping[str, Target] = {
    "log": Target(_log, lambda path: html.render(summarise(read_log(path)))),
    "torn-log": Target(_log, _torn),
    "matrix": Target(_log, lambda path: render_matrix([scan_run(path)])),
    "golden": Target(_golden, _without_its_hash(decode)),
    "manifest": Target(_manifest, _without_its_hash(decode_manifest)),
    "expectations": Target(_expectations, lambda path: expectations.load([path], synthetic.EMULATED)),
    "baseline": Target(_baseline, baseline.read),
    "revocations": Target(_revocations, lambda path: revocation.read(path, KEY.public_key())),
    "census": Target(_census, census.read),
    "npu-smi": Target(
        lambda path: path.write_text(A2, encoding="utf-8"),
        lambda path: parse_npu_smi(path.read_text("utf-8", "replace")),
    ),
    "source": Target(_program, lambda path: list(scan(path.parent))),
}
