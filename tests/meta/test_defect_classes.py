"""Each class of defect that an operator suite can show is shown by two operators, at level standard, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ascend.coverage import manifest
from pytest_ascend.system.bundled import folder
from tests.forks import records
from tests.meta import test_planted_faults_beyond as beyond
from tests.meta import test_planted_faults_ops as ops
from tests.meta import test_planted_faults_recorded as recorded

#: Class -> two cases that fail with a fault of that class. Those that no other test shows are in HERE.
CLASSES: Mapping[str, tuple[str, str]] = {
    "approximate functions": ("ops/gelu/forward/float32", "ops/exp/forward/float32"),
    "float32 rounded to HF32": ("ops/mm/forward/float32", "ops/conv2d/forward/float32"),
    "sums in half precision": ("ops/sum/forward/float16", "ops/mm/forward/bfloat16"),
    "float32 computed in half precision": ("ops/bmm/forward/float32", "ops/addmm/forward/float32"),
    "saturation": ("ops/exp2/special/float32", "ops/reciprocal/special/float32"),
    "NaN dropped": ("ops/maximum/special/bfloat16", "ops/sort/special/float32"),
    "denormals and signs of zero": ("ops/mul/special/float32", "ops/neg/special/float32"),
    "strides ignored": ("ops/tanh/layout/float32", "ops/logit/layout/float32"),
    "offset or stride 0 ignored": ("ops/sigmoid/layout/float32", "ops/sub/layout/float32"),
    "strides of results": ("ops/clone/layout/float32", "ops/permute/layout/float32"),
    "dtype of results": ("ops/argmax/forward/float32", "ops/eq/forward/float32"),
    "too few bits of integers": ("ops/cumsum/forward/int64", "ops/bitwise_or/forward/int64"),
    "broadcasting": ("ops/add/shapes/float32", "ops/mul/shapes/float32"),
    "argument ignored": ("ops/leaky_relu/forward/float32", "ops/renorm/forward/float32"),
    "in-place": ("ops/add/in-place/float32", "ops/mul/in-place/float32"),
    "random numbers": ("random/rand/distribution/float32", "random/randperm/seed/int64"),
    "not deterministic": ("ops/tanh/repeat/float32", "ops/exp2/repeat/float32"),
    "stale memory": ("stability/sum/stale-memory/float32", "ops/erf/forward/float32"),
    "gradients": ("ops/silu/backward/float32", "ops/logit/backward/float32"),
}
#: Class -> why it cannot be shown by an operator, and what shows it.
ELSEWHERE: Mapping[str, str] = {
    "automatic mixed precision": "a matter of autocast and of a scaler: suites/training",
    "silent fallback to the CPU": "the numbers are right: an outcome of its own, tests/integration/test_outcomes.py",
    "asynchronous copies": "a matter of streams: the emulated device has none that run beside each other",
    "late errors and hangs": "of the device as a whole: tests/meta/test_survival.py",
    "leaks": "over many calls: suites/benchmarks measures memory",
    "collectives": "need several devices",
    "slower": "suites/benchmarks",
    "versions that do not belong together": "suites/environment, and the doctor",
    "a judge that is blind": "tests/meta/test_judge_strictness.py",
}
#: Cases that fail with the faults of spoiled_classes, and a part of what they say.
HERE: Mapping[str, str] = {
    "ops/conv2d/forward/float32": "error of one element",
    "ops/addmm/forward/float32": "error",
    "ops/clone/layout/float32": "strides of its results",
    "ops/permute/layout/float32": "strides of its results",
    "ops/argmax/forward/float32": "dtype: expected int64, got int32",
    "ops/eq/forward/float32": "dtype: expected bool, got uint8",
    "ops/add/shapes/float32": "error",
    "ops/mul/shapes/float32": "error",
    "ops/tanh/repeat/float32": "backward",
    "ops/exp2/repeat/float32": "in place",
}


def known() -> set[str]:
    """Return every case that some test of planted faults shows to fail."""
    of_ops = {f"ops/{case}" for case, _ in ops.CAUGHT.values()}
    return of_ops | {*recorded.CAUGHT.values()} | {*beyond.CAUGHT} | {*HERE}


def test_each_class_is_shown_by_two_operators_at_level_standard() -> None:
    levels = {case.id: case.level for case in manifest.load(folder("suites"))}
    for shown in CLASSES.values():
        assert set(shown) <= known()
        assert len({case.split("/")[1] for case in shown}) == 2
        assert {levels[case] for case in shown} <= {"smoke", "standard"}
    assert not CLASSES.keys() & ELSEWHERE.keys()


def run(report: Path, *options: str) -> dict[str, Any]:
    """Run the cases of HERE on the emulated device, at level standard; give the record of each."""
    nodes = [f"ops/test_ops.py::test_{case.split('/')[2]}[{case}]" for case in HERE]
    return records(report, nodes, *options)


def test_a_chip_without_a_fault_is_accused_of_nothing(tmp_path: Path) -> None:
    found = run(tmp_path / "report", "--ascend-emulate=numerics=chip:4")
    assert {case: found[case]["reason"] for case in HERE if found[case]["outcome"] != "passed"} == {}


def test_each_fault_is_caught_by_the_name_of_its_operator(tmp_path: Path) -> None:
    plugin = ("-p", "tests.meta.spoiled_classes", "--ascend-emulate=fault=tests.meta.spoiled_classes:SPOILED")
    found = run(tmp_path / "report", *plugin)
    missed = [f"{case}: {said}" for case, words in HERE.items() if (said := complaint(found[case], words))]
    assert not missed, "\n".join(missed)


def complaint(record: Mapping[str, Any], words: str) -> str:
    """Say what is wrong with how a fault was reported; "" where its case failed with its name and these words."""
    is_named = record["reason"].startswith(record["case"]["subject"])
    is_right = record["outcome"] == "failed" and is_named and words in record["reason"] + record["detail"]
    return "" if is_right else f"{record['outcome']}: {record['reason']}"
