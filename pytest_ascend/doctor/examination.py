"""From a machine to a diagnosis: apply every rule once."""

from __future__ import annotations

from dataclasses import asdict, replace

from pytest_ascend.doctor import cann, combination, devices, files, settings  # noqa: F401  they register their checks
from pytest_ascend.doctor.findings import CHECKS, SEVERITIES, Diagnosis, Finding
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.compatibility import Compatibility, load
from pytest_ascend.environment.machine import Machine
from pytest_ascend.environment.signs import EMULATED_VARIABLE
from pytest_ascend.system.bundled import table
from pytest_ascend.system.groups import by_key
from pytest_ascend.system.text import one_line

#: All rules. Findings of one severity are in this order: causes of other findings come first.
RULES = tuple(
    Finding(id=name, severity=severity, why=why, remedy=remedy)
    for name, (severity, why, remedy) in table("doctor/rules.json").items()
)

#: Upper limit for damaged output: no machine has this many devices.
_MOST_DEVICES = 256
#: How many findings of one rule are listed.
MOST_OF_ONE = 20


def examine(machine: Machine, compatibility: Compatibility | None = None) -> Diagnosis:
    """Examine a machine, and judge its stack by ``compatibility``, by default the bundled data. Takes under 2 s.

    Nothing is imported, loaded or written, and only npu-smi is started. Damaged and hostile files become findings.
    """
    # Ignore what the emulated device has set for itself: its CANN is not the machine's.
    if machine.environ.get(EMULATED_VARIABLE) == "1":
        environ = {name: value for name, value in machine.environ.items() if not name.startswith("ASCEND_")}
        machine = replace(machine, environ=environ)
    survey = Survey(machine, compatibility or load())
    seen = by_key((each.rule, each) for check in CHECKS for each in check(survey))
    found = [rule.at(each) for rule in RULES for each in seen.get(rule.id, ())[:MOST_OF_ONE]]
    where = "this machine" if survey.machine.is_this else f"the files below {survey.machine.tree.root}"
    return Diagnosis(
        machine=(f"{where}{', a container' if survey.is_container else ''}"),
        components=tuple(
            {
                "name": each.name,
                "version": each.version,
                "evidence": [{"value": e.value, "source": e.source, "internal": e.internal} for e in each.evidence],
                "disagreeing": [e.source for e in each.disagreeing],
            }
            for each in survey.components.values()
        ),
        findings=tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))),
        settings=settings.in_force(survey),
        devices=tuple(
            {
                **{name: value for name, value in asdict(chip).items() if name != "physical"},
                "index": devices.index_of(survey, chip),
                "name": one_line(chip.name)[:40],
            }
            for chip in survey.npu_smi.chips[:_MOST_DEVICES]
        ),
        judged_by=f"{survey.compatibility.path.name}, as of {survey.compatibility.as_of}",
    )


def in_short(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the errors, one per line, or a sentence that there are none; for an NPU that does not work."""
    lines = [f"{finding.what}; {finding.remedy} [{finding.id}]" for finding in diagnosis.errors]
    return tuple(lines) or ("nothing that it knows to look for; 'pytest-ascend doctor' shows what it saw",)
