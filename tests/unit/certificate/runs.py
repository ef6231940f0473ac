"""Logs that look like a real NPU's, and a release that is small: nobody who builds these has an NPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import convert, to_builtins

from pytest_ascend import __version__
from pytest_ascend.certificate.judgement import certify
from pytest_ascend.certificate.release import Release
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.coverage.expectations import parse
from pytest_ascend.doctor import Diagnosis
from pytest_ascend.doctor.examination import RULES
from pytest_ascend.environment.chips import pinned
from pytest_ascend.records.case import Case, Stack
from pytest_ascend.records.outcome import OUTCOMES, Passed
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.runlog.contents import FULL, Cards, Event, Header, Selection, SelfTest
from pytest_ascend.runlog.writing import RunLog
from pytest_ascend.verdict.summary import summarise
from tests.unit.runlog.synthetic import replace

STACK = Stack(
    device="npu",
    emulated=False,
    chip="Ascend910B3",
    driver="25.5.1",
    firmware="7.8.0.5.216",
    cann="8.5.0",
    torch="2.9.0+cpu",
    torch_npu="2.9.0",
    torch_npu_commit="0123456789abcdef0123456789abcdef01234567",
    python="3.11.9",
    os="openEuler 22.03, Linux 5.10, aarch64",
    host="aarch64, 192 CPUs",
    pytest_ascend=__version__,
)
STARTED, FINISHED = "2026-09-01T10:00:00+00:00", "2026-09-01T12:00:00+00:00"
ISSUED = date(2026, 9, 2)
#: With a seed, so that the same tests give the same bytes.
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))

CASES = (
    Case(suite="environment", subject="device", property="found"),
    *(
        Case(suite="ops", subject=f"op{index}", property="forward", dtype="float32", family="made up", level="standard")
        for index in range(120)
    ),
    *(Case(suite="fused", subject=f"fused{index}", property="forward", dtype="float16") for index in range(3)),
    *(Case(suite="models", subject=name, property="loss", dtype="float32") for name in ("resnet50", "vit_b_16")),
    Case(suite="benchmarks", subject="resnet50", property="inference", dtype="float32", level="standard"),
    Case(suite="ops", subject="rare", property="forward", level="full"),
)

_KEPT = ("reason", "owner", "expires")
WAIVER = {
    "cause": "made-up",
    "kind": "defect",
    "outcome": "failed",
    "reason": "known",
    "issue": "https://example.org/1",
    "owner": "kernels",
    "expires": "2026-12-30",
    "confirmed": "on hardware",
}


def release_for(fates: Mapping[str, ResultRecord]) -> Release:
    """Return the release that knows the deviations which are waived in these fates."""
    waived = [(name, each) for name, each in fates.items() if each.outcome.name in ("waived", "disputed")]
    known = [
        {"cause": waiver["cause"], "cases": [name], "source": waiver["issue"], "outcome": waiver["outcome"]}
        | {key: waiver[key] for key in _KEPT}
        | ({"outcome": "disputed"} if each.outcome.name == "disputed" else {})
        for name, each in waived
        for waiver in (each.waiver,)
        if set(WAIVER) <= set(waiver) and waiver["expires"][:1].isdigit()
    ]
    parts = {
        "manifest": json.dumps({"schema": 1, "cases": [to_builtins(case) for case in CASES]}).encode(),
        "goldens": b'{"goldens": {}}\n',
        "expectations": json.dumps({"schema": 2, "causes": known}).encode(),
        "rules": b'{"pytest_ascend/precision/error_model.py": "00", "suites/ops/test_ops.py": "11"}\n',
    }
    return Release(version=__version__, parts=parts)


RELEASE = release_for({})
DEVICE = {"npu": 0, "chip": 0, "name": "910B3", "bus": "0000:41:00.0", "health": "OK", "memory_total_mb": 65536}


def doctor_of(stack: Stack) -> dict[str, Any]:
    """Return what the doctor finds on the machine of a stack: each component in one place."""
    seen = {
        "chip": stack.chip,
        "driver": stack.driver,
        "firmware": stack.firmware,
        "CANN toolkit": stack.cann,
        "torch": stack.torch,
        "torch_npu": stack.torch_npu,
        "torch_npu commit": stack.torch_npu_commit,
        "NNAL (ATB)": stack.nnal,
        "triton-ascend": stack.triton_ascend,
        "vllm-ascend": stack.vllm_ascend,
        "Python": stack.python,
        "architecture": "aarch64",
    }
    components = tuple(
        {"name": name, "version": value, "evidence": [{"value": value, "source": "made up", "internal": False}]}
        for name, value in seen.items()
    )
    found = Diagnosis(
        machine="this machine", components=components, findings=(), settings={}, devices=(DEVICE,), judged_by=""
    )
    return found.to_dict()


DOCTOR = doctor_of(STACK)


def options_of(chip: str, level: str, known: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options of an ordinary run as its log has them."""
    numerics, level_given = pinned(chip), [] if level == "standard" else [f"--ascend-level={level}"]
    return {
        "device": "npu",
        "level": level,
        "baselines": "baselines",
        "faults": [],
        "standard": "",
        "cards": 0,
        "arguments": ["--ascend-device=npu", *level_given],
        "numerics": numerics,
        "expectations": list(known),
        "timing": {"cards": 1, **numerics},
    }


OPTIONS = options_of(STACK.chip, "standard")
SELF_TEST: tuple[Event, ...] = (SelfTest(planted=15, detected=15, correct=5, missed=()),)

#: What becomes of a case, by its id; the others pass.
Fates = Mapping[str, ResultRecord]


def passed(case: Case) -> ResultRecord:
    leaf: dict[str, Any] = {
        "path": "output",
        "agrees": True,
        "standard": "error-model@1",
        "headline": "agrees",
        "message": "",
        "metrics": {"count": 100.0, "max_abs": 1e-7, "ulp_max": 0.95, "limit_used": 0.5},
        "worst": None,
        "limit": {"name": "largest error in ulp", "value": 1.9},
        "pattern": "",
        "waiver": "",
    }
    figures = {"latency_us": 1234.5} if case.suite == "benchmarks" else {}
    return ResultRecord.of(
        case,
        f"suites/{case.suite}/test_{case.suite}.py::test_case[{case.id}]",
        Passed(),
        verdicts=(convert({**leaf, "leaves": [leaf]}, Verdict),),
        measurements=figures,
        duration_s=0.1,
    )


def ended(index: int, outcome: str, **changes: Any) -> dict[str, ResultRecord]:
    """Return another fate to one case."""
    explained = {} if outcome == "passed" else {"reason": "made up", "detail": "failed: made up"}
    changes.setdefault("fallbacks", ("aten::op",) if outcome == "fallback" else ())
    record = replace(passed(CASES[index]), outcome=OUTCOMES[outcome](**explained))
    return {CASES[index].id: replace(record, **changes)}


def cards(**changes: Any) -> Cards:
    """Return what a log says of the only card of a run after it."""
    return convert({"when": "after", "cards": [{"index": 0, "npu": 0, "chip": 0, **changes}]}, Cards)


def finding(name: str, **changes: Any) -> dict[str, Any]:
    rule = next(each for each in RULES if each.id == name)
    found = {"id": name, "severity": rule.severity, "what": f"seen: {name}", "evidence": []}
    return {**DOCTOR, "findings": [{**found, "why": rule.why, "remedy": "do", **changes}]}


def write_log(
    path: Path,
    fates: Fates | None = None,
    *,
    level: str = "standard",
    skipped: int = 0,
    finish: bool = True,
    finished: str = FINISHED,
    events: tuple[dict[str, Any], ...] | None = None,
    change: Callable[[Header], Header] = lambda header: header,
) -> Path:
    """Write the log of a run that conforms, but for what is asked for; the last ``skipped`` cases have no record."""
    release = release_for(fates or {})
    header = Header(
        run_id="20260901-run",
        started=STARTED,
        stack=STACK,
        level=level,
        selection=Selection(FULL),
        manifest=tuple(case for case in CASES if case.is_in(level)),
        options=options_of(STACK.chip, level, parse(release.parts["expectations"], STACK).summaries()),
        doctor=DOCTOR,
        used=release.hashes(),
    )
    header = change(header)
    log = RunLog.create(path, header)
    for event in SELF_TEST if events is None else events:
        log.note(event)
    for case in header.manifest[: len(header.manifest) - skipped]:
        log.append((fates or {}).get(case.id, passed(case)))
    if finish:
        log.finish(summarise(log.contents()).footer(finished))
    log.close()
    return path


def issue(log: Path, folder: Path, tier: str = "operators") -> dict[str, Any]:
    return {"log": log, "tier": TIERS[tier], "issuer": "A Vendor", "key": KEY, "folder": folder}


def certificate(folder: Path, tier: str = "performance", fates: Fates | None = None) -> Path:
    """Write a log and certify it."""
    log = write_log(folder / "run" / "run.jsonl", fates)
    certify(**issue(log, folder / "certificate", tier), release=release_for(fates or {}), on=ISSUED)
    return folder / "certificate"
