"""What a forger may do to a run log before it is signed, and to a certificate afterwards: each by a name.

A forgery picks the record that it needs: a log without one (no benchmark at level smoke) raises :class:`Absent`. One in
``UNSEEN`` follows from nothing else in the log or the release; docs/certification.md says of each what reveals it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from pytest_ascend.records.case import Case

from .genuine import Log

Change = Callable[[Log], object]


class Absent(LookupError):
    """The log has no record that a forgery needs."""


def _is_compared(record: Log, limit: str = "") -> bool:
    """Whether a case passed by a comparison of one tensor, with a limit (of this name)."""
    first = record["verdicts"][0] if record["verdicts"] else {}
    named = (first.get("limit") or {}).get("name", "")
    return record["outcome"] == "passed" and len(first.get("leaves", ())) == 1 and limit in named and bool(named)


def _used(record: Log) -> float:
    return float(record["verdicts"][0]["metrics"]["limit_used"])


#: Role -> which records play it.
ROLES: Mapping[str, Callable[[Log], bool]] = {
    "compared": lambda each: _is_compared(each, "largest error in ulp"),
    "rounded": lambda each: _is_compared(each) and _used(each) > 0.1,
    "in bfloat16": lambda each: _is_compared(each) and each["case"]["id"].endswith("bfloat16"),
    "defect": lambda each: (each.get("waiver") or {}).get("kind") == "defect",
    "by the CPU": lambda each: (each.get("waiver") or {}).get("outcome") == "fallback",
    "generated": lambda each: bool(each.get("digests")),
    "exact": lambda each: any(one["exact"] for one in each.get("digests", {}).values()),
    "benchmark": lambda each: each["case"]["suite"] == "benchmarks" and each["outcome"] == "passed",
}


def of(log: Log, role: str = "compared", place: int = 0) -> Log:
    """Return the record that plays a role, the first or a later one. Raises Absent if there is none.

    It is the same one after it was changed.
    """
    known = log.setdefault("roles", {})
    if role not in known:
        known[role] = [each for each in log["records"] if ROLES[role](each)]
        known[role].sort(key=lambda each: -_used(each) if role == "compared" else 0)
    if len(known[role]) <= place:
        raise Absent(role)
    found: Log = known[role][place]
    return found


def leaf(log: Log, **changes: Any) -> None:
    """Change the only part of a comparison, and nothing beside it."""
    of(log)["verdicts"][0]["leaves"][0].update(changes)


def both(log: Log, **changes: Any) -> None:
    """Change a comparison and its part alike."""
    of(log)["verdicts"][0].update(copy.deepcopy(changes))
    leaf(log, **changes)


def metrics(log: Log, **changes: Any) -> None:
    """Change figures of a comparison and of its part alike."""
    for each in (of(log)["verdicts"][0], of(log)["verdicts"][0]["leaves"][0]):
        each["metrics"] = {**each["metrics"], **changes}


def record(role: str = "compared", **changes: Any) -> Change:
    return lambda log: of(log, role).update(copy.deepcopy(changes))


def header(**changes: Any) -> Change:
    return lambda log: log["header"].update(copy.deepcopy(changes))


def stack(**changes: Any) -> Change:
    return lambda log: log["header"]["stack"].update(changes)


def options(**changes: Any) -> Change:
    return lambda log: log["header"]["options"].update(changes)


def doctor(**changes: Any) -> Change:
    return lambda log: log["header"]["doctor"].update(copy.deepcopy(changes))


def device(**changes: Any) -> Change:
    return lambda log: log["header"]["doctor"]["devices"][0].update(changes)


def footer(**changes: Any) -> Change:
    return lambda log: log["footer"].update(changes)


def times(started: int = 0, finished: int | None = None) -> Change:
    """Move the start of the run by seconds, and its end to seconds after the start."""

    def change(log: Log) -> None:
        began = datetime.fromisoformat(log["header"]["started"])
        if finished is not None:
            log["footer"]["finished"] = (began + timedelta(seconds=finished)).isoformat()
        log["header"]["started"] = (began + timedelta(seconds=started)).isoformat()

    return change


def resumed(after_s: int, records: int) -> Change:
    """Say that the run was continued some seconds after its start."""

    def change(log: Log) -> None:
        at = datetime.fromisoformat(log["header"]["started"]) + timedelta(seconds=after_s)
        event("resumed", at=at.isoformat(), records=records)(log)

    return change


def host(cpus: str) -> Change:
    return lambda log: log["header"]["stack"].update(host=f"{log['header']['stack']['host'].partition(',')[0]}, {cpus}")


def cards(**changes: Any) -> Change:
    """Change what the log says of the first card after the run."""

    def change(log: Log) -> None:
        [*_, after] = [each for each in log["events"] if each["kind"] == "cards"]
        after["cards"][0].update(changes)

    return change


def better(record: Log) -> None:
    """Make the errors of a case a tenth."""
    for verdict in record["verdicts"]:
        for part in (verdict, *verdict["leaves"]):
            names = ("max_abs", "mean_abs", "rmse", "ulp_max", "ulp_mean", "limit_used")
            part["metrics"] |= {each: part["metrics"][each] / 10 for each in names if each in part["metrics"]}


def faster(record: Log) -> None:
    """Make the times of a benchmark a tenth."""
    for name, value in record["measurements"].items():
        if isinstance(value, float) and name.endswith("_us"):
            record["measurements"][name] = value / 10
    for name, values in record.get("series", {}).items():
        record["series"][name] = [each / 10 for each in values] if name.endswith("_us") else values


def fewer(log: Log) -> None:
    """Leave out the last comparison of a case that made several."""
    found = [each for each in log["records"] if each["outcome"] == "passed" and len(each["verdicts"]) > 1]
    if not found:
        raise Absent("several comparisons")
    found[0]["verdicts"].pop()


def component(name: str, value: str, *, evidence: bool = False) -> Change:
    def change(log: Log) -> None:
        components = log["header"]["doctor"]["components"]
        if name not in [each["name"] for each in components]:
            components.append({"name": name, "version": "", "evidence": []})
        found = next(each for each in components if each["name"] == name)
        found["version"] = value
        if evidence:
            found["evidence"] = found["evidence"] or [{"value": "", "source": "its metadata", "internal": False}]
            for each in found["evidence"]:
                each["value"] = value

    return change


def everywhere(part: str, name: str, value: str) -> Change:
    """Change a version in the stack, and what the doctor saw of it."""

    def change(log: Log) -> None:
        stack(**{part: value})(log)
        component(name, value, evidence=True)(log)

    return change


def event(kind: str, **data: Any) -> Change:
    return lambda log: log["events"].append({"type": "event", "kind": kind, **data})


def self_test(**changes: Any) -> Change:
    return lambda log: next(each for each in log["events"] if each["kind"] == "self-test").update(changes)


def finding(**changes: Any) -> Change:
    def change(log: Log) -> None:
        given = {"id": "x", "severity": "note", "what": "seen", "evidence": [], "why": "why", "remedy": "do"}
        log["header"]["doctor"]["findings"].append({**given, **changes})

    return change


def invented(count: int) -> Change:
    def change(log: Log) -> None:
        template = copy.deepcopy(of(log))
        for index in range(count):
            case = to_builtins(Case(suite="ops", subject=f"new{index}", property="forward", dtype="float32"))
            log["header"]["manifest"].append(case)
            log["records"].append({**template, "case": case})

    return change


def waived(count: int, **changes: Any) -> Change:
    def change(log: Log) -> None:
        waiver = {"cause": "my-own", "kind": "defect", "outcome": "failed", "reason": "known", "owner": "me"}
        waiver |= {"issue": "https://example.org", "expires": "2027-01-01", "confirmed": "on hardware", **changes}
        for each in [each for each in log["records"] if each["outcome"] == "passed"][:count]:
            each.update(outcome="waived", reason="known", detail="failed: known", waiver=waiver)

    return change


def attempts(*answers: str, ends: str = "answered", card: str = "npu:0") -> Change:
    def change(log: Log) -> None:
        given = {"card": card, "end": ends, "reason": "", "alone": False}
        of(log).update(attempts=[{**given, "outcome": each} for each in answers])

    return change


def shards(log: Log) -> None:
    options(shards=2)(log)
    stack(host=f"{log['header']['stack']['host']}; aarch64, 64 CPUs")(log)


def shorter(log: Log) -> None:
    """Leave out a case, in the manifest and in the records."""
    gone = log["records"].pop()["case"]["id"]
    log["header"]["manifest"] = [each for each in log["header"]["manifest"] if each["id"] != gone]


def swapped(log: Log) -> None:
    one, other = of(log), of(log, place=1)
    one["case"], other["case"] = other["case"], one["case"]
    one["node_id"] = "suites/fused/test.py::x"


LOOSE = {"name": "largest error in ulp", "value": 1e9}
#: Name -> what is done to the log before it is signed.
BEFORE: Mapping[str, Change] = {
    # A record that contradicts itself.
    "a leaf that disagrees": lambda log: leaf(log, agrees=False),
    "a leaf that disagrees, with words": lambda log: leaf(log, agrees=False, headline="3 of 9 elements differ"),
    "a verdict that disagrees in a pass": lambda log: of(log)["verdicts"][0].update(agrees=False),
    "another figure in the leaf": lambda log: leaf(log, metrics={"count": 9.0, "limit_used": 0.1}),
    "another figure in the verdict": lambda log: of(log)["verdicts"][0].update(metrics={"count": 9.0}),
    "figures without a leaf": lambda log: of(log)["verdicts"][0].update(leaves=[]),
    "a limit used 1.5 times": lambda log: metrics(log, limit_used=1.5),
    "a limit used 1.0001 times": lambda log: metrics(log, limit_used=1.0001),
    "a limit used 400 times": lambda log: metrics(log, limit_used=400.0),
    "a limit of which nan was used": lambda log: metrics(log, limit_used={"$float": "nan"}),
    "15 of 20 elements differ": lambda log: both(log, headline="15 of 20 elements differ"),
    "15 mismatches": lambda log: metrics(log, mismatches=15.0),
    "a message in a pass": lambda log: both(log, message="off by 0.2"),
    "a pattern in a pass": lambda log: both(log, pattern="every second element"),
    "a larger error than the limit": lambda log: metrics(log, ulp_max=4e5),
    "a limit of 1e9": lambda log: [each.update(limit=LOOSE) for verdict in of(log, "rounded")["verdicts"]
                                   for each in (verdict, *verdict["leaves"])],
    "a share of the limit that the error does not give": lambda log: metrics(log, limit_used=0.01),
    "no share of the limit": lambda log: [each["metrics"].pop("limit_used") for each in
                                          (of(log)["verdicts"][0], of(log)["verdicts"][0]["leaves"][0])],
    "a negative error": lambda log: metrics(log, max_abs=-1.0),
    "half an element": lambda log: metrics(log, count=99.5),
    "another standard": lambda log: both(log, standard="torch@1"),
    "another standard in a leaf": lambda log: leaf(log, standard="thousandth@1"),
    "a standard of the issuer's": lambda log: both(log, standard="vendor@1"),
    "a later version of the standard": lambda log: both(log, standard="error-model@2"),
    "a waiver of the limit": lambda log: both(log, waiver="needed for our chip"),
    "no verdicts": record(verdicts=[]),
    "one made-up measurement for all verdicts": record(verdicts=[], measurements={"accuracy": 1.0}),
    "made-up measurements in every record": lambda log: [each.update(verdicts=[], measurements={"ok": 1.0})
                                                         for each in log["records"]],
    "a reason in a pass": record(reason="nearly"),
    "a detail in a pass": record(detail="failed: 3 of 9"),
    "a waiver in a pass": record(waiver={"reason": "known"}),
    "a diagnosis in a pass": record(diagnosis={"kind": "operator-missing"}),
    "a program that shows what is wrong with a pass": record(snippet="import torch"),
    "an operator that the CPU computed in a pass": record(fallbacks=["aten::lcm"]),
    "a fallback that disagrees": lambda log: (record(outcome="fallback", reason="CPU", fallbacks=["aten::lcm"])(log),
                                              both(log, agrees=False, headline="9 differ"),
                                              metrics(log, limit_used=2.0)),
    "a fallback of nothing": record(outcome="fallback", reason="CPU"),
    "fallbacks of a whole suite": lambda log: [each.update(
        outcome="fallback", reason="CPU", fallbacks=["aten::lcm"])
        for each in log["records"] if each["case"]["suite"] == "ops" and each["outcome"] == "passed"],
    "a failure": record(outcome="failed", reason="differs"),
    "an error": record(outcome="errored", reason="crashed"),
    "a flaky case": record(outcome="flaky", reason="changed its answer"),
    "an unsupported case": record(outcome="unsupported", reason="says so"),
    "a case that is not emulated": record(outcome="not-emulated", reason="lacks it"),
    "a case that was not run": record(outcome="not-run", reason="late"),
    "a disputed case of the issuer's": record(outcome="disputed", reason="who knows", detail="failed: x"),
    "a test of another suite": record(node_id="suites/fused/test_fused.py::x"),
    "a test of the issuer's": record(node_id="tests/mine.py::test"),
    "a test of the issuer's in every record": lambda log: [each.update(node_id="mine.py::test")
                                                           for each in log["records"]],
    "a latency that is not its samples'": lambda log: of(log, "benchmark").update(
        measurements={"latency_p50_us": 1.0}, series={"latency_us": [900.0, 1000.0, 1100.0]}),
    "a latency that is no number": lambda log: of(log, "benchmark").update(
        measurements={"latency_us": {"$float": "nan"}}),
    "no figure of a benchmark": lambda log: of(log, "benchmark").update(measurements={}),
    "no test": record(node_id=""),
    "no test in any record": lambda log: [each.update(node_id="") for each in log["records"]],
    "the test of another case": lambda log: of(log).update(node_id=of(log, place=1)["node_id"]),
    "a case that has no reason for its waiver": record("defect", reason=""),
    "two records that changed places": swapped,
    # Attempts.
    "failed, then passed": attempts("failed", "passed"),
    "errored, then passed": attempts("errored", "passed"),
    "passed, failed, passed": attempts("passed", "failed", "passed"),
    "failed, then passed, in every record": lambda log: [
        each.update(attempts=[{"card": "npu:0", "end": "answered", "outcome": answer, "reason": "", "alone": False}
                              for answer in ("failed", "passed")]) for each in log["records"]],
    "a failure in every attempt": attempts("failed", "failed"),
    "a crash in every attempt": attempts("", "", ends="crashed"),
    "an end that there is not": attempts("passed", "passed", ends="well"),
    "an attempt that no record has": lambda log: event("attempt", case=of(log)["case"]["id"], card="npu:0",
                                                       end="answered", outcome="failed", reason="differs",
                                                       alone=False)(log),
    "a crash that no record has": lambda log: event("attempt", case=of(log)["case"]["id"], card="npu:0",
                                                    end="crashed", outcome="", reason="died", alone=False)(log),
    "an attempt on a device that is not there": attempts("passed", "passed", card="npu:7"),
    # The release.
    "one invented case": invented(1),
    "500 invented cases": invented(500),
    "a case of another level": lambda log: log["header"]["manifest"][1].update(level="full"),
    "a case of another family": lambda log: log["header"]["manifest"][1].update(family="mine"),
    "a case less": shorter,
    "half of the cases": lambda log: [shorter(log) for _ in range(len(log["records"]) // 2)],
    "a waiver of the issuer's": waived(1),
    "370 limits of design that the release does not have": waived(370, kind="limit"),
    "370 waivers that the release does not have": waived(370),
    "a waiver until 2099": waived(1, expires="2099-01-01"),
    "a waiver that is over": waived(1, expires="2026-01-01"),
    "another reason for a waiver": lambda log: of(log, "defect")["waiver"].update(reason="harmless"),
    "a longer waiver": lambda log: of(log, "defect")["waiver"].update(expires="2030-01-01"),
    "a waiver without an issue": lambda log: of(log, "defect")["waiver"].pop("issue"),
    "a limit of design in place of a defect": lambda log: of(log, "defect")["waiver"].update(
        kind="limit"),
    "a crash under a waiver for a failure": lambda log: of(log, "defect").update(
        detail="errored: died"),
    "a pass where the release expects a failure": lambda log: (
        of(log, "defect").update(outcome="passed", reason="", detail=""),
        of(log, "defect").pop("waiver")),
    "another manifest": lambda log: log["header"]["used"].update(manifest="0" * 64),
    "other goldens": lambda log: log["header"]["used"].update(goldens="0" * 64),
    "other known deviations": lambda log: log["header"]["used"].update(expectations="0" * 64),
    "other judges": lambda log: log["header"]["used"].update(rules="0" * 64),
    "nothing that it was judged by": header(used={}),
    "another release": stack(pytest_ascend="9.9.9"),
    # The clock.
    "finished before it started": times(finished=-3600),
    "finished years ahead": times(finished=3 * 365 * 86400),
    "a run in years to come": times(started=3 * 365 * 86400, finished=3 * 365 * 86400 + 7200),
    "issued before the run": times(started=10 * 86400, finished=10 * 86400 + 7200),
    "a run of five years": times(started=-5 * 365 * 86400),
    "a run before the release knew its versions": times(started=-3 * 365 * 86400, finished=-3 * 365 * 86400 + 7200),
    "a run resumed over five years": lambda log: (resumed(-2 * 365 * 86400, 10)(log),
                                                  times(started=-5 * 365 * 86400)(log)),
    "continued after its end": resumed(10 * 86400, 10),
    "continued before its start": resumed(-3600, 10),
    "continued with more records than there are": resumed(0, 99_999),
    "continued backwards": lambda log: (resumed(1, 9)(log), resumed(0, 20)(log)),
    "a case that took longer than the run": record(duration_s=50_000.0),
    "a run that was faster than its cases": lambda log: (record(duration_s=5.0)(log), times(finished=1)(log)),
    "a run that ended after its deadline": lambda log: (options(deadline_s=60.0)(log), times(finished=7200)(log)),
    "a time without an offset": header(started="2026-09-01T10:00:00"),
    # The stack and the machine.
    "CANN 99.0.0": everywhere("cann", "CANN toolkit", "99.0.0"),
    "CANN 99.0.0 in the stack alone": stack(cann="99.0.0"),
    "a CANN that does not belong to torch_npu": lambda log: (
        everywhere("torch", "torch", "2.9.0+cpu")(log), everywhere("torch_npu", "torch_npu", "2.9.0")(log),
        everywhere("cann", "CANN toolkit", "7.0.0")(log)),
    "a torch_npu that was never published": everywhere("torch_npu", "torch_npu", "2.13.77"),
    "torch_npu 2.1 in what the doctor saw": component("torch_npu", "2.1.0", evidence=True),
    "torch_npu 2.1 in the stack": stack(torch_npu="2.1.0"),
    "a torch that torch_npu is not for": everywhere("torch", "torch", "2.5.1"),
    "another driver in the stack": stack(driver="99.1"),
    "no driver": everywhere("driver", "driver", ""),
    "another firmware in the stack": stack(firmware="1.0"),
    "another commit in the stack": stack(torch_npu_commit="f" * 40),
    "a library in the stack that the doctor did not see": stack(vllm_ascend="0.23.0"),
    "a library that the doctor saw and the stack does not name": component("triton-ascend", "3.2.0", evidence=True),
    "a library without evidence of its version": lambda log: (
        stack(sgl_kernel_npu="2026.5.1")(log), component("sgl-kernel-npu", "2026.5.1")(log)),
    "another Python in the stack": stack(python="3.9.1"),
    "a version that its evidence does not give": component("driver", "25.5.9"),
    "another architecture": stack(host="riscv64, 8 CPUs", os="Linux, riscv64"),
    "no components": doctor(components=[]),
    "no doctor": lambda log: log["header"].pop("doctor"),
    "the doctor of another machine": doctor(machine="the files below /mnt/other"),
    "this process runs on the emulated CANN": finding(id="emulated", what="this process runs on the emulated CANN"),
    "no sign of Ascend": finding(id="ascend.absent", what="no trace of Ascend on this machine"),
    "an error that the doctor found": finding(id="health.bad", severity="error", what="Critical"),
    "an error as a note": finding(id="combination.incompatible", what="does not belong together"),
    "a finding of the issuer's": finding(id="all.well", what="all is well"),
    "a setting that changes numbers": finding(id="settings.numbers", severity="warning", what="HF32"),
    "a disagreement that the doctor did not find": lambda log: log["header"]["doctor"]["components"][3][
        "evidence"].append({"value": "7.0.0", "source": "elsewhere", "internal": False}),
    "Ascend310 in what npu-smi saw": device(name="310B4"),
    "health Critical": device(health="Critical"),
    "health Warning": device(health="Warning"),
    "no devices": doctor(devices=[]),
    "one device twice": lambda log: log["header"]["doctor"]["devices"].append(log["header"]["doctor"]["devices"][0]),
    "another card after the run": cards(npu=5),
    "a card of another address": cards(bus="0000:ff:00.0"),
    "a card with other memory": cards(memory_total_mb=8192),
    "a card more after the run": lambda log: [each for each in log["events"] if each["kind"] == "cards"][-1][
        "cards"].append({"index": 7, "npu": 7, "chip": 0}),
    "an attempt noted on a card that the run did not have": lambda log: event(
        "left-behind", case=of(log)["case"]["id"], card="npu:9", bytes=1)(log),
    "a 310P that passed in bfloat16": lambda log: (
        of(log, "in bfloat16"), stack(chip="Ascend310P3")(log), component("chip", "Ascend310P3", evidence=True)(log),
        [each.update(name="310P3") for each in log["header"]["doctor"]["devices"]]),
    "chip NVIDIA H100": stack(chip="NVIDIA H100"),
    "chip NVIDIA H100, and so npu-smi": lambda log: (stack(chip="NVIDIA H100")(log), device(name="NVIDIA H100")(log),
                                                     component("chip", "NVIDIA H100", evidence=True)(log)),
    "another chip in the stack": stack(chip="Ascend310P3"),
    "no chip": stack(chip=""),
    "the device cuda": stack(device="cuda"),
    "an emulated stack": stack(emulated=True),
    "an emulated log of which only the stack is relabelled": finding(
        id="emulated", what="this process runs on the emulated CANN"),
    # Options, and what follows from them.
    "another level in the options": options(level="full"),
    "no level in the options": lambda log: log["header"]["options"].pop("level"),
    "suites in the options": options(suites=["ops"]),
    "a model in the options": options(model="mine:model"),
    "inputs of a model in the options": options(model_input="8x3"),
    "cases of one's own in the options": options(cases="mine"),
    "a shard in the options": options(shard="1/5"),
    "shards in the options": options(shards=5),
    "exploring in the options": options(explore_s=60.0),
    "another seed of exploring": options(seed=7),
    "goldens stored in the run": options(store_goldens=True),
    "a slow-down of a half allowed": options(slowdown=0.5),
    "an option that there is not": options(lenient=True),
    "other baselines": options(baselines="/home/me/golden"),
    "known deviations of the issuer's in the options": options(expectations=["ops/*: failed until 2099-01-01"]),
    "a known deviation less in the options": lambda log: log["header"]["options"]["expectations"].pop(),
    "arguments of another level": options(arguments=["--ascend-level=full"]),
    "arguments of another challenge": lambda log: log["header"]["options"]["arguments"].append(
        "--ascend-certify=challenge=5"),
    "a challenge that was not among the arguments": options(challenge=20260301),
    "ranks that were not among the arguments": options(ranks=8),
    "other numerics while something was timed": lambda log: log["header"]["options"]["timing"].update(
        {"conv.allow_hf32": True}),
    "more cards while something was timed": lambda log: log["header"]["options"]["timing"].update(cards=8),
    "the emulated device while something was timed": lambda log: log["header"]["options"]["timing"].update(
        emulated_numerics="exact"),
    "asked for on the emulated device": options(device="emulated"),
    "asked for on the CPU": options(device="cpu"),
    "the numerics of the emulated device": options(emulated_numerics="exact"),
    "an emulator among the options": options(emulator={"numerics": "exact"}),
    "the memory of the emulated device": options(timing={"emulated_memory_bytes": 1 << 30}),
    "forced precision": options(numerics={"ACL_PRECISION_MODE": "force_fp16"}),
    "HF32 in convolutions": lambda log: log["header"]["options"]["numerics"].update({"conv.allow_hf32": True}),
    "no numerics": lambda log: log["header"]["options"].pop("numerics"),
    "a planted fault": options(faults=["wrong"]),
    "another standard asked for": options(standard="loose"),
    # The chain of hashes.
    "a line that was changed after it was written": lambda log: (log.update(keeps_chain=True),
                                                                 record(duration_s=0.2)(log)),
    "a line of another run": lambda log: (log.update(keeps_chain=True), record(previous="0" * 64)(log)),
    "two lines that changed places": lambda log: (log.update(keeps_chain=True),
                                                  log["records"].insert(0, log["records"].pop())),
    "no chain": lambda log: log["header"].pop("chain"),
    # The whole.
    "one of 15 planted errors": self_test(planted=1, detected=1),
    "14 of 15 planted errors seen": self_test(detected=14),
    "no right result tried": self_test(correct=0),
    "a planted error missed": self_test(missed=["all is zero"]),
    "no planted errors": lambda log: log["events"].clear(),
    "a card that was taken out": event("quarantined", card="npu:0", reason="wrong sums"),
    "a subset": header(selection={"kind": "subset", "reason": "-k relu"}),
    "level smoke": header(level="smoke"),
    "the header of one shard of five": header(shard={"index": 1, "count": 5, "cases": 999, "digest": "0" * 64,
                                                     "selection": {"kind": "full", "reason": ""}}),
    "shards of two machines": shards,
    "shards of two years": lambda log: (options(shards=2)(log), header(started="2024-03-01T10:00:00+00:00")(log)),
    "a record less": lambda log: log["records"].pop(),
    "a footer that counts otherwise": lambda log: (log.update(keeps_footer=True), footer(counts={"passed": 9999})(log)),
    "a footer that says otherwise": lambda log: (
        log.update(keeps_footer=True), footer(verdict={"kind": "x", "conforms": True, "sentence": "Well."})(log)),
    "no footer": lambda log: log.update(footer={"type": "event", "kind": "lost", "cases": [], "reason": "x"},
                                        keeps_footer=True),
}  # fmt: skip


#: Forgeries that agree with themselves: nobody can tell them from the truth by the log alone.
UNSEEN: Mapping[str, Change] = {
    "better figures within the limit": lambda log: better(of(log, "rounded")),
    "better figures in every record": lambda log: [better(each) for each in log["records"] if ROLES["rounded"](each)],
    "a failed case rewritten as a pass in every field": lambda log: of(log, "rounded").update(duration_s=0.0),
    "a fallback rewritten as a pass": lambda log: (
        of(log, "by the CPU").update(outcome="passed", reason="", detail="", fallbacks=[], snippet=""),
        of(log, "by the CPU").pop("waiver")),
    "a benchmark and its samples made faster": lambda log: faster(of(log, "benchmark")),
    "fewer elements in a comparison": lambda log: metrics(log, count=1.0),
    "a comparison less": fewer,
    "other inputs of a generated call": lambda log: next(iter(of(log, "generated")["digests"].values())).update(
        inputs="0" * 32),
    "other outputs of a generated call": lambda log: next(
        each for each in of(log, "exact")["digests"].values() if each["exact"]).update(outputs="0" * 32),
    "another time of a case": record(duration_s=0.0),
    "other percentiles": lambda log: metrics(log, ulp_p50=0.0, ulp_p99=0.0),
    "another machine of the same kind": host("64 CPUs"),
    "another day": times(started=-86400, finished=-86400 + 7200),
    "another driver, in the stack and in what the doctor saw": everywhere("driver", "driver", "25.5.2"),
    "another library, in the stack and in what the doctor saw": everywhere("vllm_ascend", "vllm-ascend", "0.23.0"),
    "another address of the device": lambda log: (device(bus="0000:c1:00.0")(log),
        [card.update(bus="0000:c1:00.0") for each in log["events"] if each["kind"] == "cards" for card in each["cards"]
         if card["index"] == 0]),
    "another size of the device's memory": device(memory_total_mb=8192),
    "an emulated log, relabelled throughout": lambda log: None,
}  # fmt: skip


#: Forgery -> what another run says of it. Of all others in UNSEEN it says nothing.
REVEALED = {
    "better figures within the limit": "of its limit",
    "better figures in every record": "of its limit",
    "a failed case rewritten as a pass in every field": "says passed, and is failed here",
    "a fallback rewritten as a pass": "says passed, and is fallback here",
    "a benchmark and its samples made faster": "µs here",
    "fewer elements in a comparison": "of 1 elements, and",
    "a comparison less": "comparisons of",
    "other inputs of a generated call": "is of other inputs",
    "other outputs of a generated call": "has other bits than every right device gives",
}


def _json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        data = json.loads((folder / name).read_text(encoding="utf-8"))
        change(data)
        (folder / name).write_text(json.dumps(data, sort_keys=True, indent=1) + "\n", encoding="utf-8")

    return apply


def _bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


_FILES = (
    *("certificate.json", "certificate.txt", "certificate.zh.txt", "certificate.sig", "run.jsonl", "manifest.json"),
    *("expectations.json", "goldens.json", "rules.json"),
)
#: Name -> what is done to a certificate after it was signed.
AFTER: Mapping[str, Callable[[Path], object]] = {
    **{f"a byte more in {name}": _bytes(name, lambda data: data + b" ") for name in _FILES},
    **{f"a byte less in {name}": _bytes(name, lambda data: data[:-2] + data[-1:]) for name in _FILES},
    **{f"no {name}": lambda folder, name=name: (folder / name).unlink() for name in _FILES},  # type: ignore[misc]
    "another tier": _json("certificate.json", lambda said: said.update(tier="models")),
    "another issuer": _json("certificate.json", lambda said: said.update(issuer="Somebody")),
    "another expiry": _json("certificate.json", lambda said: said.update(expires="2099-01-01")),
    "another log": _bytes("run.jsonl", lambda data: data.replace(b'"passed"', b'"failed"', 1)),
    "another signature": _json("certificate.sig", lambda said: said.update(signature="AAAA")),
    "a file beside": lambda folder: (folder / "readme.txt").write_text("endorsed", encoding="utf-8"),
}
#: Name -> what the issuer adds to the statement, which is signed then.
SAID: Mapping[str, Mapping[str, Any]] = {
    "endorsed_by": {"endorsed_by": "Huawei"},
    "an extra key": {"warranty": "for ever"},
    "another tier than the run's": {"means": ["everything"]},
    "more counts": {"counts": {"ops": {"passed": 99_999}}},
    "nothing waived": {"waived": []},
    "nothing left out": {"not_covered": []},
    "another expiry": {"expires": "2099-01-01"},
    "another release": {"release": "99.0"},
    "a day to come": {"issued": "2099-01-01"},
    "another stack": {"stack": {"chip": "Ascend910B1"}},
    "other figures": {"figures": {"benchmarks/x": {"latency_us": 1.0}}},
    "another run": {"run": {"id": "x", "started": "2026-01-01", "finished": "2026-01-01", "level": "full"}},
}
