"""A certificate for other tools: an in-toto statement of test results in a DSSE envelope, and a workbook.

The statement follows https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md (v0.1) in the form
of in-toto statements v1; the envelope follows https://github.com/secure-systems-lab/dsse/blob/master/envelope.md (v1).
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pytest_ascend.certificate import package, signing
from pytest_ascend.certificate.requirements import is_limit
from pytest_ascend.certificate.timestamp import INSTALL
from pytest_ascend.certificate.words import parts_of
from pytest_ascend.records.outcome import Passed
from pytest_ascend.system.errors import as_error
from pytest_ascend.system.text import visible
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.summary import Summary

#: A row of a sheet.
_Row = Sequence[Any]
PAYLOAD = "application/vnd.in-toto+json"
#: The limit of characters in a cell of a workbook; Excel's is 32,767.
_CELL_CHARACTERS = 2_000
_NOTE = "If the log is true, the run earns the tier. Independent of Huawei, who has neither issued nor reviewed it."


def in_toto(claims: Mapping[str, Any], summary: Summary, key: Ed25519PrivateKey) -> bytes:
    """Return the statement of a certificate's results in an envelope, signed by ``key``.

    Subjects are the certificate and the tested build of torch_npu. Passed cases are in ``passedTests``; cases that are
    unsupported by design, waived, disputed or computed by the CPU are in ``warnedTests``, which makes the result
    WARNED. A certified run has no failed tests.
    """
    names = {False: list[str](), True: list[str]()}
    for each in sorted(summary.results, key=lambda each: each.case.id):
        if each.case.suite in claims["counts"]:
            names[each.outcome_name == Passed.name].append(each.case.id)
    stack = claims["stack"]
    where = {name: str(stack.get(name) or "") for name in ("chip", "driver", "cann", "torch", "torch_npu")}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": f"certificate {claims['id']}", "digest": {"sha256": sha256(package.encoded(claims)).hexdigest()}},
            {
                "name": f"torch_npu {stack['torch_npu']}",
                "digest": {"gitCommit": str(stack["torch_npu_commit"])},
                "annotations": {"tier": claims["tier"], **where},
            },
        ],
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
        "predicate": {
            "result": "WARNED" if names[False] else "PASSED",
            "configuration": [
                {"name": name, "digest": {"sha256": part["sha256"]}} for name, part in sorted(claims["parts"].items())
            ],
            "passedTests": names[True],
            "warnedTests": names[False],
            "failedTests": [],
        },
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload))
    signatures = [{"keyid": signing.fingerprint(key.public_key()), "sig": base64.b64encode(signature).decode()}]
    envelope = {"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD, "signatures": signatures}
    return f"{json.dumps(envelope, sort_keys=True, indent=1)}\n".encode()


def workbook(claims: Mapping[str, Any], summary: Summary) -> bytes:
    """Return the evidence of a certificate as an Excel workbook: the certificate, all cases, deviations, the machine.

    Every cell is text or a number, without formulas or links. Raises UsageError without the library.
    """
    with as_error("a workbook needs the library XlsxWriter", INSTALL, ImportError):
        import xlsxwriter  # noqa: PLC0415  (an extra)
    made = io.BytesIO()
    book = xlsxwriter.Workbook(made, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    bold = book.add_format({"bold": True, "bottom": 1})
    for name, rows in _sheets(claims, summary).items():
        sheet = book.add_worksheet(name)
        sheet.freeze_panes(1, 0)
        last = column = 0
        for last, row in enumerate(rows):
            for column, value in enumerate(row):
                form = bold if last == 0 else None
                if isinstance(value, (int, float)) and value == value and abs(value) != float("inf"):  # noqa: PLR0124
                    sheet.write_number(last, column, value, form)
                else:
                    sheet.write_string(last, column, visible(str(value))[:_CELL_CHARACTERS], form)
        sheet.autofilter(0, 0, last, column)
        sheet.autofit(600)  # maximum width in pixels
    book.close()
    return made.getvalue()


def _sheets(claims: Mapping[str, Any], summary: Summary) -> dict[str, list[_Row]]:
    headings = "Case, Suite, Subject, Property, Dtype, Outcome, Limit used, Judged by, Duration (s), Finding"
    cases: list[_Row] = [tuple(headings.split(", "))]
    deviations: list[_Row] = [("Case", "Outcome", "Kind", "Reason", "Source", "Until")]
    for each in summary.results:
        case, used, outcome, waiver = each.case, evidence.limit_used(each), each.outcome_name, each.waiver or {}
        if case.suite not in claims["counts"]:
            continue
        named = (case.id, case.suite, case.subject, case.property, case.dtype, outcome)
        standards = ", ".join(dict.fromkeys(verdict.standard for verdict in each.verdicts))
        cases.append((*named, "" if used is None else used, standards, each.duration_s, evidence.finding(each)))
        if outcome != Passed.name:
            kind = "lacking by design" if is_limit(each) else "defect" if waiver else "computed by the CPU"
            reason = waiver.get("reason") or each.reason
            deviations.append((case.id, outcome, kind, reason, waiver.get("issue", ""), waiver.get("expires", "")))
    counts = [(suite, *pair) for suite, found in claims["counts"].items() for pair in found.items()]
    machine: list[_Row] = [("Component", "Version", "Seen in")]
    for part in summary.run.header.doctor.get("components", ()):
        seen = "; ".join(f"{one.get('value')}: {one.get('source')}" for one in part.get("evidence", ()))
        machine.append((str(part.get("name", "")), str(part.get("version", "")), seen))
    run, stack, confirms = claims["run"], claims["stack"], claims.get("confirms")
    facts: list[_Row] = [
        *(("What", "Value"), ("certificate", claims["id"]), ("tier", claims["tier"])),
        *(("means", each) for each in claims["means"]),
        *((name, stack.get(part) or "not known") for part, name in parts_of(stack).items()),
        *(("pytest-ascend", claims["release"]), ("run", run["id"])),
        *((name, run[name]) for name in ("started", "finished", "level")),
        ("challenge", run["challenge"] or "none"),
        *(("time-stamp", f"{each['time']} by {each['authority']}") for each in claims["time_stamps"]),
        *((name, claims[name]) for name in ("issuer", "key", "issued", "expires")),
        *([("confirms", f"the certificate {confirms['id']} by {confirms['issuer']}")] if confirms else []),
        *(("not covered", each) for each in claims["not_covered"]),
        ("note", _NOTE),
    ]
    return {
        "Certificate": facts,
        "Summary": [("Suite", "Outcome", "Cases"), *counts],
        "Cases": cases,
        "Deviations": deviations,
        "Machine": machine,
    }
