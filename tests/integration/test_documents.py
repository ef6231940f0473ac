"""What README and docs show is run, and what they list is complete."""

import re
import sys
from pathlib import Path

import pytest

from pytest_ascend.certificate.package import FILES
from pytest_ascend.certificate.requirements import REQUIREMENTS
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.coverage.manifest import load
from pytest_ascend.doctor import RULES
from pytest_ascend.emulator.faults import FAULTS
from pytest_ascend.plugin.options import names
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.system.bundled import folder
from tests.forks import apart

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EMULATOR = (ROOT / "docs" / "emulator.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def as_users_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users let torch load torch_npu by itself."""
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)


def indented(text: str, first: str) -> str:
    """Return the indented block that begins with a line."""
    found = re.search(rf"^    {re.escape(first)}\n(?:(?:    .*)?\n)*", text, re.MULTILINE)
    assert found, f"no block begins with {first!r}"
    return "\n".join(line[4:] for line in found[0].rstrip().splitlines()) + "\n"


def commands(text: str) -> list[str]:
    return re.findall(r"^    (python3 -m venv .*)$", text, re.MULTILINE)


def test_the_test_of_the_readme_passes(pytester: pytest.Pytester) -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block
    pytester.makepyfile(test_my_block=block[1])
    pytester.runpytest_subprocess("--ascend", "--ascend-device=cpu", "test_my_block.py").assert_outcomes(passed=1)
    apart(pytester, "test_my_block.py").assert_outcomes(skipped=1)


def test_the_custom_operator_of_the_manual_passes_and_a_wrong_one_fails(pytester: pytest.Pytester) -> None:
    block = re.search(
        r"```python\n(.*?)```", (ROOT / "docs" / "custom-operators.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert block
    arguments = ("--ascend", "--ascend-device=cpu", "test_my_op.py")
    pytester.makepyfile(test_my_op=block[1])
    apart(pytester, *arguments).assert_outcomes(passed=12)
    pytester.makepyfile(test_my_op=block[1].replace("silu(gate.clamp(max=limit))", "silu(gate)"))
    apart(pytester, *arguments).assert_outcomes(failed=11, passed=1)  # wrong, but always the same


def test_the_kernel_of_the_manual_passes_interpreted_and_a_wrong_one_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="an emulated device has no compiler; Triton's interpreter is optional")
    text = (ROOT / "docs" / "custom-operators.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(# test_my_kernel.*?)```", text, re.DOTALL)
    assert block
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for places, outcome in (("count", {"passed": 8}), ("count - 1", {"failed": 8})):
        pytester.makepyfile(test_my_kernel=block[1].replace("places < count", f"places < {places}"))
        # In a process of its own: what Triton is to do is read when it is imported.
        done = pytester.runpytest_subprocess("--ascend", "--ascend-device=emulated", "test_my_kernel.py")
        done.assert_outcomes(**outcome, deselected=2)


def test_the_benchmark_of_the_manual_runs(pytester: pytest.Pytester) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block
    pytester.makepyfile(test_product=block[1])
    apart(pytester, "--ascend", "--ascend-device=cpu", "test_product.py").assert_outcomes(passed=1)
    apart(pytester, "test_product.py").assert_outcomes(skipped=1)


def test_the_program_of_the_emulators_manual_runs(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(program=indented(EMULATOR, "from pytest_ascend import emulator"))
    assert pytester.run(sys.executable, path).ret == 0


def test_the_fault_of_the_emulators_manual_is_noticed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(my_faults=indented(EMULATOR, "# my_faults.py"))
    pytester.makepyfile(
        test_add="""
        import torch

        def test_add(npu_device, precision_compare):
            x = torch.linspace(0, 1, 100)
            precision_compare(x.to(npu_device) + x.to(npu_device), 2 * x.double())
        """
    )
    planted = "--ascend-emulate=fault=my_faults:COARSE_ADD"
    arguments = ("--ascend", "--ascend-device=emulated", "test_add.py")
    pytester.syspathinsert()
    apart(pytester, *arguments).assert_outcomes(passed=1)
    apart(pytester, planted, *arguments).assert_outcomes(failed=1)


def test_every_option_and_outcome_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert not [name for name in [*names(), *OUTCOMES] if f"`{name}" not in text]


def test_the_integration_runs_what_the_readme_says() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    conformance, tests = commands(README)
    assert conformance.endswith("&& .venv/bin/pytest --ascend")
    assert tests.endswith("&& .venv/bin/pytest -n auto --dist loadfile")
    assert "-c constraints.txt -e '.[emulated,test" in tests
    assert "run pytest --ascend " in script
    assert "run pytest -q -n auto --dist loadfile" in script


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_of_the_readme_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_every_tier_and_reason_is_in_the_manual_of_certification() -> None:
    manual = (ROOT / "docs" / "certification.md").read_text(encoding="utf-8")
    assert not [name for name in [*TIERS, *REQUIREMENTS, *FILES] if f"`{name}`" not in manual]


def test_every_rule_of_the_doctor_is_in_its_manual() -> None:
    manual = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert not [rule.id for rule in RULES if f"| `{rule.id}` | {rule.severity} | {rule.why} |" not in manual]


def test_the_manual_of_the_operator_suite_counts_right() -> None:
    manual = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    cases = [case for case in load(folder("suites")) if case.suite == "ops"]
    standard = sum(case.is_in("standard") for case in cases)
    operators = len({case.subject for case in cases})
    names = len((ROOT / "tools" / "ops" / "names.txt").read_text(encoding="utf-8").split())
    for said in (
        f"It has {standard:,} cases at level standard and {len(cases):,} at level full, for {operators} operators.",
        f"(OpInfo): {names} names",
        f"plants one of {len(FAULTS)} faults",
    ):
        assert said in manual


@pytest.mark.parametrize("name", ["laptop.md", "laptop.zh.md"])
def test_the_first_run_of_the_tutorial_counts_right(name: str) -> None:
    smoke = sum(case.is_in("smoke") for case in load(folder("suites")))
    assert f"of {smoke:,} cases passed" in (ROOT / "docs" / "tutorials" / name).read_text(encoding="utf-8")
