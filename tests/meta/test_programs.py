"""What stands beside a case that failed runs by itself, in a process of its own, and shows the wrong element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import forks

FAULTS = ("sort-ignores-descending", "tanh-ignores-strides", "silu-gradient-halved", "add-forgets-views")
SPOILED = ("tests.meta.spoiled_recorded:SPOILED", "tests.meta.spoiled:SPOILED")
CASES = (
    "ops/sort/forward/int64",
    "ops/tanh/layout/float32",
    "ops/silu/backward/float32",
    "ops/add/in-place/float32",
    "ops/logit/layout/float32",
    "ops/std_mean/forward/float32",
    "fused/npu_rms_norm/forward/float16",
)
#: Runs each program as if it was the only one.
_ALL = """
import runpy, sys
for path in sys.argv[1:]:
    print(path)
    try:
        runpy.run_path(path)
    except SystemExit as end:
        print("ended with", int(end.code))
"""


def run(*command: str, where: Path = forks.ROOT) -> str:
    done = forks.run(*command, where=where)
    return done.stdout + done.stderr


def place(case: str) -> str:
    suite, _, asked, _ = case.split("/")
    return "fused/test_fused.py::test_fused" if suite == "fused" else f"ops/test_ops.py::test_{asked.replace('-', '_')}"


def failing(report: Path) -> dict[str, Any]:
    planted = [f"--ascend-emulate=fault={fault}" for fault in (*FAULTS, *SPOILED)]
    return forks.records(report, [f"{place(case)}[{case}]" for case in CASES], *planted)


@pytest.mark.drawn(4, "long")
def test_the_program_of_each_failed_case_shows_the_wrong_element(tmp_path: Path) -> None:
    found = failing(tmp_path / "report")
    assert {case: found[case]["outcome"] for case in CASES} == dict.fromkeys(CASES, "failed")
    paths = {case: tmp_path / f"{place}.py" for place, case in enumerate(CASES)}
    for case, path in paths.items():
        path.write_text(found[case]["snippet"], encoding="utf-8")
    planted = [part for fault in (*FAULTS, *SPOILED) for part in ("--fault", fault)]
    program = tmp_path / "all.py"
    program.write_text(_ALL, encoding="utf-8")
    files = [str(path) for path in paths.values()]
    said = run("pytest_ascend.cli", "emulate", *planted, "--", "python", str(program), *files)
    for case, path in paths.items():
        shown = said.partition(f"{path}\n")[2].partition(str(tmp_path))[0]
        index = tuple(found[case]["verdicts"][-1]["worst"]["index"])
        assert f"element {index}: " in shown, f"{case}: {shown or said}"
        assert any(not line.endswith("difference 0") for line in shown.splitlines() if line), f"{case}: {shown}"
        assert ": FAILED\nended with 1" in shown, f"{case}: {shown}"
    said = run("pytest_ascend.cli", "emulate", "--", "python", str(program), *files)
    for case, path in paths.items():
        shown = said.partition(f"{path}\n")[2].partition(str(tmp_path))[0]
        assert ": passed\nended with 0" in shown, f"{case} on the healthy device: {shown or said}"


def test_a_case_that_passes_has_none(tmp_path: Path) -> None:
    report = tmp_path / "report"
    forks.records(report, ["ops/test_ops.py::test_forward[ops/sort/forward/int64]"])
    assert '"snippet"' not in (report / "run.jsonl").read_text(encoding="utf-8")


MODEL = """
import torch


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU("tanh"), torch.nn.Linear(32, 4))
"""
MODEL_CASES = ("user/my_model:make_model/forward/float32", "user/my_model:make_model/layers/float32")


@pytest.mark.drawn(4, "long")
def test_the_program_of_a_model_fails_on_the_faulty_device_and_passes_on_the_healthy_one(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(MODEL, encoding="utf-8")
    fault = "gelu-by-sigmoid"
    given = ("--ascend-device=emulated", f"--ascend-emulate=fault={fault}", f"--ascend-report={tmp_path / 'report'}")
    model = ("--ascend-model=my_model:make_model", "--ascend-model=input=2x16")
    run("pytest", "--ascend", "-q", *given, *model, where=tmp_path)
    found = forks.recorded(tmp_path / "report")
    (tmp_path / "all.py").write_text(_ALL, encoding="utf-8")
    files = [f"{place}.py" for place, _ in enumerate(MODEL_CASES)]
    for file, case in zip(files, MODEL_CASES, strict=True):
        (tmp_path / file).write_text(found[case]["snippet"], encoding="utf-8")
    for planted, code in ((("--fault", fault), 1), ((), 0)):
        said = run("pytest_ascend.cli", "emulate", *planted, "--", "python", "all.py", *files, where=tmp_path)
        assert said.count(f"ended with {code}") == len(files), said
