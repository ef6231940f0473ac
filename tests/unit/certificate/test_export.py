"""A certificate for other tools: theirs verify the envelope and open the workbook."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytest_ascend.certificate import commands, export
from pytest_ascend.certificate.judgement import verify
from pytest_ascend.certificate.package import CertificateError
from pytest_ascend.cli import cli
from pytest_ascend.errors import UsageError

from . import runs
from .test_package import evidence, forge
from .test_second_issuer import pem

HOSTILE = '=HYPERLINK("http://x")\x1b[2J\u202e'
FATES = {
    **runs.ended(5, "fallback"),
    **runs.ended(7, "waived", waiver={**runs.WAIVER, "reason": HOSTILE}),
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.certificate(tmp_path_factory.mktemp("certificate"), "performance", FATES)


@pytest.fixture(scope="module")
def found(certificate: Path) -> Any:
    return verify(certificate, runs.KEY.public_key(), runs.release_for(FATES))


def test_the_envelope_is_verified_by_securesystemslib(found: Any) -> None:
    dsse = pytest.importorskip("securesystemslib.dsse")
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    text = export.in_toto(found.claims, found.summary, runs.KEY)
    keyid = json.loads(text)["signatures"][0]["keyid"]
    mine, other = (SSlibKey.from_crypto(each.public_key(), keyid) for each in (runs.KEY, runs.OTHER_KEY))
    assert len(dsse.Envelope.from_dict(json.loads(text)).verify([mine], 1)) == 1
    with pytest.raises(VerificationError):
        dsse.Envelope.from_dict(json.loads(text)).verify([other], 1)
    tampered = json.loads(base64.b64decode(json.loads(text)["payload"]))
    tampered["predicate"]["warnedTests"] = []
    payload = base64.b64encode(json.dumps(tampered).encode()).decode()
    with pytest.raises(VerificationError):
        dsse.Envelope.from_dict({**json.loads(text), "payload": payload}).verify([mine], 1)


def test_the_statement_is_one_of_in_toto(found: Any) -> None:
    pytest.importorskip("in_toto_attestation")
    from google.protobuf.json_format import ParseDict
    from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    payload = json.loads(base64.b64decode(json.loads(export.in_toto(found.claims, found.summary, runs.KEY))["payload"]))
    Statement.copy_from_pb(ParseDict(payload, statement_pb2.Statement())).validate()
    result = ParseDict(payload["predicate"], test_result_pb2.TestResult())
    assert (result.result, list(result.failed_tests)) == ("WARNED", [])
    assert sorted(result.warned_tests) == sorted(FATES)
    assert len(result.passed_tests) + 2 == sum(sum(each.values()) for each in found.claims["counts"].values())


def test_the_workbook_is_opened_by_another_library_and_computes_nothing(found: Any) -> None:
    pytest.importorskip("xlsxwriter")
    book = pytest.importorskip("openpyxl").load_workbook(io.BytesIO(export.workbook(found.claims, found.summary)))
    assert book.sheetnames == ["Certificate", "Summary", "Cases", "Deviations", "Machine"]
    facts = {row[0].value: row[1].value for row in book["Certificate"].rows}
    assert facts["chip"] == runs.STACK.chip
    cases = list(book["Cases"].rows)
    assert len(cases) - 1 == sum(sum(each.values()) for each in found.claims["counts"].values())
    reasons = [row[3].value for row in book["Deviations"].rows]
    assert '=HYPERLINK("http://x")\\x1b[2J\\u202e' in reasons
    widths = [each.width for sheet in book for each in sheet.column_dimensions.values()]
    assert 5 < min(widths) < max(widths) < 100  # as wide as the text, within what a screen shows
    assert {sheet.title: sheet.auto_filter.ref for sheet in book} == {sheet.title: sheet.dimensions for sheet in book}
    kinds = {cell.data_type for sheet in book for row in sheet.rows for cell in row}
    assert kinds <= {"s", "n"}
    assert not any(cell.hyperlink for sheet in book for row in sheet.rows for cell in row)


@pytest.mark.parametrize(("form", "key"), [("in-toto", "key"), ("xlsx", "key.pub")])
def test_the_command_writes_both(certificate: Path, tmp_path: Path, form: str, key: str) -> None:
    pytest.importorskip("xlsxwriter")
    pem(tmp_path / "key", runs.KEY)
    line = [str(certificate), "--format", form, "--key", str(tmp_path / key), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, ["certificate-export", *line], catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, f"{form}: {tmp_path / 'out'}\n")
    assert (tmp_path / "out").stat().st_size > 1000


@pytest.mark.parametrize("form", ["xlsx", "in-toto"])
def test_a_signed_statement_that_lacks_something_is_refused(tmp_path: Path, form: str) -> None:
    genuine = runs.certificate(tmp_path)
    said = {**json.loads((genuine / "certificate.json").read_text(encoding="utf-8")), "stack": {}}
    said["run"] = {name: said["run"][name] for name in ("id", "finished", "level")}
    del said["id"]
    forge(tmp_path, said, evidence(genuine))
    key = pem(tmp_path / "key", runs.KEY)
    arguments = [str(tmp_path / "forged"), f"--format={form}", f"--output={tmp_path / 'out'}"]
    with pytest.raises(CertificateError, match="is none of this release: KeyError"):
        CliRunner().invoke(
            commands.certificate_export,
            [*arguments, f"--key={key if form == 'in-toto' else f'{key}.pub'}"],
            catch_exceptions=False,
        )


def test_without_the_library_one_line_says_what_to_install(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xlsxwriter", None)
    with pytest.raises(UsageError) as caught:
        export.workbook(found.claims, found.summary)
    assert caught.value.hint == "pip install 'pytest-ascend[certificate]'"


def test_a_passed_run_is_passed(tmp_path: Path) -> None:
    folder = runs.certificate(tmp_path)
    clean = verify(folder, runs.KEY.public_key(), runs.RELEASE)
    payload = json.loads(base64.b64decode(json.loads(export.in_toto(clean.claims, clean.summary, runs.KEY))["payload"]))
    assert payload["predicate"]["result"] == "PASSED"
    assert replace(clean.summary).results
    assert commands.certificate_export.name == "certificate-export"
