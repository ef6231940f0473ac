"""Export a run to other formats: JUnit XML, CSV, JSON, annotations, and PyTorch's cross-repository relay.

Texts in a log are untrusted: they are truncated, invisible characters are escaped, and each format's quoting applies.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree as ET

from msgspec import to_builtins

from pytest_ascend.records.record import ResultRecord
from pytest_ascend.system import figures
from pytest_ascend.system.groups import by_key
from pytest_ascend.system.version import __version__
from pytest_ascend.verdict import evidence
from pytest_ascend.verdict.causes import Cause, causes_of
from pytest_ascend.verdict.columns import COLUMNS
from pytest_ascend.verdict.phrase import say
from pytest_ascend.verdict.summary import Summary


def properties(record: ResultRecord) -> Iterator[tuple[str, str]]:
    """Yield names and values for JUnit XML: outcome, share of the limit, standard, and measurements with units."""
    yield "ascend_case", evidence.line(record.case.id)
    yield "ascend_outcome", record.outcome_name
    if record.reason:
        yield "ascend_reason", evidence.line(record.reason)
    used = evidence.limit_used(record)
    if used is not None:
        yield "ascend_limit_used", f"{used:.6g}"
    if named := _STANDARD.shown(record, ""):
        yield "ascend_standard", named
    for name, value in record.measurements.items():
        yield evidence.line(f"ascend_{name}"), f"{value:.6g}"


def attachment(record: ResultRecord) -> str:
    """Return the findings of a case as text, or "" for a pass, whose figures are in the columns."""
    if record.outcome_name == "passed":
        return ""
    parts = [f"{record.case.id}: {record.outcome_name}", record.reason, record.detail]
    for each in record.verdicts:
        parts += [f"{evidence.line(each.path)}: {evidence.line(each.headline)}", evidence.line(each.pattern)]
        parts.append(evidence.text(each.message))
        parts += [f"{say(f'worst.{name}')}: {value}" for name, value in evidence.decided(each)]
        parts += [f"{index}: {found}, expected {right}" for index, found, right in evidence.elements(each)]
        parts += [f"{figures.words(name)}: {value:.6g}" for name, value in each.metrics.items() if value is not None]
    return evidence.text("\n".join(part for part in parts if part), limit=20_000)


#: Incremented whenever an older reader would misread the JSON format.
JSON_SCHEMA = 1
#: Limits of the relay: tests in full, characters of a message and of a stack trace, lines of evidence.
RELAY_TESTS, RELAY_MESSAGE, RELAY_TRACE, RELAY_EVIDENCE = 1_000, 1_000, 4_000, 10
#: GitHub shows ten annotations of each kind for a step.
ANNOTATIONS_LIMIT = 10

#: JUnit's names for our outcomes; all others are reported as passed.
_JUNIT = {
    **dict.fromkeys(("failed", "fallback", "unsupported", "flaky"), "failure"),
    **dict.fromkeys(("errored", "not-run"), "error"),
    **dict.fromkeys(("disputed", "waived", "not-emulated", "not-judged"), "skipped"),
}
#: The relay's triage category for each outcome.
_TRIAGE = {"failed": "backend", "fallback": "backend", "unsupported": "backend", "flaky": "flake", "not-run": "infra"}
#: Kinds of errors (:mod:`pytest_ascend.environment.codes`) caused by the machine.
_INFRASTRUCTURE = ("device-lost", "hccl", "tool-missing", "version-mismatch")

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_STANDARD = next(each for each in COLUMNS if each.name == "standard")


def junit(summary: Summary) -> str:
    """Return JUnit XML: a test suite for each suite, a test case for each case, with our outcome as a property."""
    root = ET.Element("testsuites", name="pytest-ascend")
    for suite, results in by_key((each.case.suite, each) for each in summary.results).items():
        kinds = Counter(_JUNIT.get(each.outcome_name, "") for each in results)
        counts = {"failures": kinds["failure"], "errors": kinds["error"], "skipped": kinds["skipped"]}
        head = ET.SubElement(root, "testsuite", name=evidence.line(suite), tests=str(len(results)))
        head.attrib.update({name: str(count) for name, count in counts.items()})
        head.set("time", f"{sum(each.duration_s for each in results):.3f}")
        head.set("timestamp", evidence.line(summary.run.header.started))
        for each in results:
            name, seconds = evidence.line(f"{each.case.property}/{each.case.dtype}"), f"{each.duration_s:.3f}"
            element = ET.SubElement(head, "testcase", classname=_class_name(each), name=name, time=seconds)
            named = ET.SubElement(element, "properties")
            for key, value in properties(each):
                ET.SubElement(named, "property", name=key, value=value)
            if kind := _JUNIT.get(each.outcome_name):
                message = f"{each.outcome_name}: {evidence.finding(each)}"
                ET.SubElement(element, kind, message=message).text = attachment(each)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def table(summary: Summary) -> str:
    """Return CSV with a row for each case; texts that look like formulas but not numbers get a leading apostrophe."""
    causes = _by_case(causes_of(summary.results))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([each.name for each in COLUMNS])
    for each in summary.results:
        writer.writerow([_inert(str(value)) for value in _row(each, causes).values()])
    return stream.getvalue()


def _inert(text: str) -> str:
    if _NUMBER.fullmatch(text):
        return text
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def document(summary: Summary) -> str:
    """Return JSON: the verdict, the stack, the counts, the causes, and a row for each case."""
    causes = causes_of(summary.results)
    by_case = _by_case(causes)
    header = summary.run.header
    found = {
        "schema": JSON_SCHEMA,
        "pytest_ascend": __version__,
        "run": header.run_id,
        "started": header.started,
        "level": header.level,
        "stack": asdict(header.stack),
        "verdict": to_builtins(summary.verdict.in_footer()),
        "counts": dict(summary.counts),
        "causes": [
            {
                "id": each.id,
                "outcome": each.outcome,
                "title": each.title,
                "cases": len(each.cases),
                "of": each.ran or len(each.cases),
                "example": evidence.line(each.representative.case.id),
                "finding": each.finding,
            }
            for each in causes
        ],
        "cases": [_row(each, by_case) for each in summary.results],
    }
    return json.dumps(found, allow_nan=False) + "\n"


def _row(result: ResultRecord, causes: Mapping[str, str]) -> dict[str, Any]:
    return {column.name: column.value(result, causes.get(result.case.id, "")) for column in COLUMNS}


def _by_case(causes: Iterable[Cause]) -> Mapping[str, str]:
    return {record.case.id: cause.id for cause in causes for record in cause.cases}


def relay(summary: Summary) -> str:
    """Return the inputs of the callback of PyTorch's cross-repository CI relay, as one JSON object of JSON texts.

    Its limits are respected: at most 1,000 tests in full, messages of 1 KB, stack traces of 4 KB, ten lines of evidence
    (pytorch/test-infra, ``.github/actions/cross-repo-ci-relay-callback``).
    """
    kinds = Counter(_JUNIT.get(each.outcome_name, "passed") for each in summary.results)
    bad = [each for each in summary.results if _JUNIT.get(each.outcome_name) in ("failure", "error")]
    inputs = {
        "conclusion": "failure" if bad else "success",
        "test-results": {
            "passed": kinds["passed"],
            "failed": kinds["failure"] + kinds["error"],
            "skipped": kinds["skipped"],
        },
        "failed-tests-detail": [
            {
                "name": evidence.line(each.case.id),
                "classname": _class_name(each),
                "message": _cut(f"{each.outcome_name}: {evidence.finding(each)}", RELAY_MESSAGE),
                "stacktrace": _cut(attachment(each), RELAY_TRACE),
                "duration": each.duration_s,
            }
            for each in bad[:RELAY_TESTS]
        ],
        "triage-verdict": _triage(causes_of(summary.results)),
    }
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, allow_nan=False) for name, value in inputs.items()
    }
    return json.dumps(texts) + "\n"


def _cut(text: str, size_bytes: int) -> str:
    return text.encode()[:size_bytes].decode(errors="ignore")


def _class_name(result: ResultRecord) -> str:
    return evidence.line(f"{result.case.suite}.{result.case.subject}")


def _triage(causes: tuple[Cause, ...]) -> dict[str, Any]:
    votes: Counter[str] = Counter()
    for cause in causes:
        is_machines = cause.representative.diagnosis.get("kind") in _INFRASTRUCTURE
        side = "infra" if cause.outcome == "errored" and is_machines else _TRIAGE.get(cause.outcome, "unknown")
        votes[side] += len(cause.cases)
    side, count = votes.most_common(1)[0] if votes else ("unknown", 0)
    lines = [f"{each.outcome}: {each.title}, {len(each.cases)} cases: {each.finding}" for each in causes]
    return {
        "schema_version": 1,
        "category": side,
        "confidence": round(count / votes.total(), 2) if votes else 0.0,
        "summary": _cut(lines[0] if lines else "nothing deviates", RELAY_MESSAGE),
        "evidence": [_cut(line, RELAY_MESSAGE) for line in lines[:RELAY_EVIDENCE]],
        "reproduced_on_retry": bool(causes) and votes["flake"] == 0,
        "analyzer": {"name": "pytest-ascend", "version": __version__},
    }


def github(summary: Summary) -> str:
    """Return GitHub workflow commands that annotate a pull request: one for each cause, the worst first."""
    lines = []
    for cause in causes_of(summary.results)[:ANNOTATIONS_LIMIT]:
        title = _command_data(f"{cause.outcome}: {cause.title} ({len(cause.cases):,} cases)")
        title = title.replace(":", "%3A").replace(",", "%2C")  # these characters end a property
        lines.append(f"::error title={title}::{_command_data(f'{cause.representative.case.id}: {cause.finding}')}\n")
    return "".join((*lines, f"::notice title=pytest-ascend::{_command_data(summary.verdict.sentence)}\n"))


def _command_data(text: str) -> str:
    return evidence.line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


FORMATS: Mapping[str, Callable[[Summary], str]] = {
    "junit": junit,
    "csv": table,
    "json": document,
    "crcr": relay,
    "github": github,
}
