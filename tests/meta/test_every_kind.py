"""Every kind of case and of verdict has a planted fault: no judge is taken at its word."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from pytest_ascend.coverage import manifest
from pytest_ascend.precision.floating import RULES
from pytest_ascend.records.outcome import OUTCOMES
from pytest_ascend.system.bundled import folder

TESTS = Path(__file__).resolve().parents[1]

#: Suite and property of a case -> the test that plants faults into what it looks at.
CASES: Mapping[str, str] = {
    "ops/*": "meta/test_properties.py::test_what_is_wrong_is_seen",
    "fused/*": "meta/test_planted_faults_beyond.py::test_each_fault_is_caught_where_it_is",
    "errors/refused": "meta/test_planted_faults_beyond.py::test_each_fault_is_caught_where_it_is",
    "random/battery": "unit/suites/test_random_statistics.py::test_a_battery_sees_what_a_distribution_does_not_show",
    "random/backward": "meta/test_planted_faults_beyond.py::test_each_fault_is_caught_where_it_is",
    "random/distribution": "meta/test_planted_faults_beyond.py::test_each_fault_is_caught_where_it_is",
    "random/seed": "meta/test_planted_faults_beyond.py::test_each_fault_is_caught_where_it_is",
    "random/state": "meta/test_suites_on_the_cpu.py::test_a_generator_that_forgets_its_state_is_seen",
    "stability/*": "meta/test_planted_faults_beyond.py::test_each_fault_is_caught_where_it_is",
    "numerics/*": "unit/suites/test_numerics.py::test_coarser_than_hf32_is_refused",
    "numerics/accuracy": "unit/operators/test_accuracy.py::test_one_wrong_result_among_65_536_is_too_far_off",
    "numerics/cast": "unit/suites/test_numerics.py::test_every_tie_and_its_neighbours_are_cast",
    "numerics/gradient": "unit/operators/test_accuracy.py::test_a_gradient_that_is_wrong_at_one_input_is_too_far_off",
    "numerics/pairs": "unit/suites/test_numerics.py::test_every_pair_of_8_bits_and_every_integer_of_16_is_an_input",
    "numerics/integers": "unit/suites/test_numerics.py::test_every_pair_of_8_bits_and_every_integer_of_16_is_an_input",
    "numerics/inf-nan": "unit/suites/test_numerics.py::test_saturation_is_told_from_infinities",
    "environment/*": "meta/test_suites_on_the_cpu.py::test_a_device_that_changes_numbers_is_seen",
    "fusion/precision": "meta/test_adaptation_faults.py::test_a_wrong_fused_form_is_seen",
    "fusion/memory": "meta/test_fusion_limits.py::test_a_form_that_takes_more_memory_fails_on_a_chip",
    "fusion/time": "meta/test_fusion_limits.py::test_a_form_that_saves_too_little_time_fails_on_a_chip",
    "models/*": "meta/test_model_faults.py::test_a_fault_is_caught_where_it_is",
    "models/*-batch-*": "meta/test_variant_faults.py::test_a_fault_of_one_layer_is_found_there",
    "training/*": "meta/test_training_faults.py::test_a_fault_of_a_training_is_seen_and_its_first_step_named",
    "adaptation/*": "meta/test_adaptation_faults.py::test_a_slip_is_seen_where_it_is",
    "adaptation/workers-*": "meta/test_adaptation_faults.py::test_a_pipeline_that_depends_on_the_worker_is_seen",
    "distributed/*": "unit/test_distributed.py::test_each_cause_is_named",
    "runtime/*": "meta/test_fault_classes.py::test_a_fault_of_each_class_is_seen",
    "programs/*": "meta/test_fault_classes.py::test_a_fault_of_each_class_is_seen",
    "inference/*": "emulator/test_inference_faults.py::test_a_fault_is_found_with_its_layer",
    "graphs/*": "meta/test_graph_faults.py::test_a_fault_of_a_captured_graph_is_seen_with_its_operator",
    "benchmarks/*": "unit/performance/test_baseline.py::test_a_slowdown_has_to_show_twice",
    "benchmarks/memory": "unit/performance/test_timing.py::test_a_tensor_kept_in_every_tenth_step_is_a_leak",
}
#: Rule that decides a verdict -> the test that shows it decide both ways.
VERDICTS: Mapping[str, str] = {
    "model": "meta/test_judge_strictness.py::test_every_planted_fault_is_seen",
    "ratio": "unit/precision/test_published.py::test_the_ratio_to_a_second_device_decides_as_its_definition_does",
    **dict.fromkeys(
        ("relative", "mixed", "close", "ulp", "thousandth", "binary"),
        "unit/precision/test_published.py::test_a_published_standard_decides_as_its_definition_does",
    ),
    "NaN": "meta/test_judge_strictness.py::test_no_standard_lets_nan_pass",
}


def kinds() -> set[str]:
    return {f"{case.suite}/{case.property}" for case in manifest.load(folder("suites"))}


def matching(kind: str) -> str:
    """Return the pattern that says most of a kind; "" where none does."""
    return max((pattern for pattern in CASES if fnmatchcase(kind, pattern)), key=len, default="")


def absent(names: Iterable[str]) -> list[str]:
    """Return what is no test."""
    missing = []
    for name in set(names):
        path, _, function = name.partition("::")
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        missing += [name] if function and function not in defined else []
    return missing


def test_every_kind_of_case_has_planted_faults() -> None:
    assert sorted(kind for kind in kinds() if not matching(kind)) == []
    assert {matching(kind) for kind in kinds()} == CASES.keys(), "a pattern that nothing matches any more"
    assert absent(CASES.values()) == []


def test_every_rule_has_planted_faults() -> None:
    assert VERDICTS.keys() == {*RULES, "model", "NaN"}
    assert absent(VERDICTS.values()) == []


def test_every_outcome_is_come_to_in_a_test() -> None:
    places = (*(TESTS / "integration").glob("*.py"), *(TESTS / "unit").glob("[rv]*/*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in places)
    assert [name for name in OUTCOMES if f'"{name}"' not in text] == []
