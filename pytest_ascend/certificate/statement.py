"""Derive a certificate's statement from a run and a release: the same evidence always gives the same statement."""

from __future__ import annotations

import calendar
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date, timezone
from typing import Any

from pytest_ascend.certificate.requirements import Candidate, is_limit
from pytest_ascend.certificate.tiers import MONTHS, TIERS, included
from pytest_ascend.certificate.timestamp import moment_of
from pytest_ascend.certificate.words import outside
from pytest_ascend.environment.compatibility import Compatibility
from pytest_ascend.environment.versions import Version, is_version
from pytest_ascend.records.bounds import moment
from pytest_ascend.records.outcome import Disputed, Fallback, Waived
from pytest_ascend.records.record import ResultRecord
from pytest_ascend.runlog.contents import Run, TimeStamped
from pytest_ascend.system.files import canonical_json
from pytest_ascend.verdict.causes import known_causes
from pytest_ascend.verdict.summary import NOT_EXECUTED

SCHEMA = 1

#: Fields that the signer chooses; all others follow from the evidence.
CHOSEN = ("issued", "issuer", "key")


def statement(
    candidate: Candidate, *, issuer: str, key: str, confirms: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the content of a certificate, as builtins. ``key`` is the fingerprint of the public key.

    ``confirms`` identifies the certificate of another issuer that this run confirms, by ``id``, ``issuer``, ``key`` and
    the ``sha256`` of its statement. The package adds the hashes of the parts.
    """
    run = candidate.summary.run
    finished = run.footer.finished if run.footer else run.header.started
    challenge = run.header.options.get("challenge")
    measured = (each for each in candidate.results if each.case.suite == "benchmarks")
    waived = candidate.of(Waived.name)
    counts = Counter((each.case.suite, each.outcome_name) for each in candidate.results)
    return {
        "schema": SCHEMA,
        "kind": "pytest-ascend certificate",
        "release": candidate.release.version,
        "tier": candidate.tier.name,
        "means": [tier.means for tier in included(candidate.tier)],
        "issued": candidate.on.isoformat(),
        "issuer": issuer,
        "key": key,
        "expires": expiry(finished).isoformat(),
        "stack": asdict(run.header.stack),
        "run": {
            "id": run.header.run_id,
            "started": run.header.started,
            "finished": finished,
            "level": run.header.level,
            # The seed that the verifier chose for generated calls.
            "challenge": "" if challenge is None else str(int(challenge)),
        },
        "time_stamps": time_stamps(run),
        "counts": {
            suite: {name: n for (of, name), n in sorted(counts.items()) if of == suite}
            for suite in dict.fromkeys(each.case.suite for each in candidate.results)
        },
        "figures": {each.case.id: dict(each.measurements) for each in measured},
        "fallbacks": [each.case.id for each in candidate.of(Fallback.name)],
        # What this version of torch_npu lacks by design: each cause with its cases.
        "limits": [
            {
                "cause": each.cause,
                "reason": str(each.waiver.get("reason", "")),
                "issue": str(each.waiver.get("issue", "")),
                "cases": sorted(result.case.id for result in each.cases),
            }
            for each in known_causes(filter(is_limit, waived))
        ],
        "waived": [{"case": each.case.id, **dict(each.waiver or {})} for each in waived if not is_limit(each)],
        "disputed": [each.case.id for each in candidate.of(Disputed.name)],
        "not_covered": not_covered(candidate),
        "not_again": dict(Counter(each.case.suite for each in candidate.results if not can_run_again(each))),
        **({"confirms": dict(confirms)} if confirms else {}),
    }


def time_stamps(run: Run) -> list[dict[str, str]]:
    """Return the authorities and times of the log's time-stamps."""
    stamps = (each for each in run.events if isinstance(each, TimeStamped) and each.answer)
    times = ((each.authority, moment_of(each.answer, each.digest)) for each in stamps)
    return [{"authority": authority, "time": time.isoformat(timespec="seconds")} for authority, time in times]


def not_covered(candidate: Candidate) -> list[str]:
    """Return what the certificate does not cover."""
    mine = included(candidate.tier)
    parts = [outside(tier) for tier in TIERS.values() if tier not in mine]
    if candidate.summary.run.header.level != "full":
        parts.append(f"cases of higher levels than {candidate.summary.run.header.level}")
    between = "machines" if TIERS["distributed"] in mine else "devices, and between machines"
    return [*parts, f"communication between {between}", "any other version of any part"]


def can_run_again(result: ResultRecord) -> bool:
    """Return whether ``verify --rerun`` may draw a case: it was executed, and needs no second device."""
    return result.case.suite != "distributed" and result.outcome_name not in NOT_EXECUTED


def identity(content: Mapping[str, Any]) -> str:
    """Return the number of a certificate, by which it is cited and revoked.

    A run certified again on another day keeps its number.
    """
    kept = {name: value for name, value in content.items() if name not in ("id", "issued")}
    return hashlib.sha256(canonical_json(kept).encode()).hexdigest()[:32]


def expiry(finished: str) -> date:
    """Return the last day of validity: twelve months after the end of the run."""
    day = moment(finished).astimezone(timezone.utc).date()
    year, month = divmod(day.year * 12 + day.month - 1 + MONTHS, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def newer_releases(cann: str, compatibility: Compatibility) -> tuple[str, ...]:
    """Return the releases of CANN that came after one."""
    if not is_version(cann):
        return ()
    return tuple(str(each) for each in compatibility.cann_releases if each > Version(cann))
