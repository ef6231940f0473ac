"""Every variant of computing a text gives float64's result for the text alone; failures name the first wrong layer."""

from __future__ import annotations

import pytest
import torch

from pytest_ascend.precision import Samples
from pytest_ascend.records.case import Case, Measure
from pytest_ascend.records.verdict import Verdict
from pytest_ascend.run.comparing import PrecisionCompare
from pytest_ascend.system.dispatching import one_thread

from ..random import statistics
from .serving import served
from .ways import LENGTHS, alone_and_in_a_batch, computed, expected, generation, reference_runs, sampled

#: Number of tokens drawn with a seed, and the temperature, at which some tokens are much more probable than others, so
#: that a different distribution is detected.
DRAWS, TEMPERATURE = 16384, 0.4
DETERMINISTIC = {"HCCL_DETERMINISTIC": "strict", "LCCL_DETERMINISTIC": "1", "ATB_MATMUL_SHUFFLE_K_ENABLE": "0"}


def first_layer(verdict: Verdict) -> str:
    wrong = next(leaf.path for leaf in verdict.leaves if not leaf.agrees)
    return f"first wrong layer: {wrong.partition(chr(39))[2].rpartition(chr(39))[0]}"


def judge_sampling(model: str, dtype: torch.dtype, device: torch.device, compare: PrecisionCompare) -> None:
    """Judge drawn tokens: the same for a seed, others for another seed, as often as they are probable."""
    logits, exact = computed(model, "prefill", dtype, device)["logits"], expected(model, "prefill")["logits"]
    for end in (-1, 0):
        row = logits[end].div(TEMPERATURE).expand(DRAWS, -1)
        first, again, other = (sampled(row.to(device).contiguous(), seed) for seed in (7, 7, 8))
        compare(again, first, standard="binary", name="the tokens of a seed, drawn again")
        probabilities = exact[end].div(TEMPERATURE).softmax(-1)
        agree = float(probabilities.square().sum())  # probability that two draws agree
        for what, cells, of in (
            *(("tokens", first, probabilities.tolist()), ("tokens of another seed", other, probabilities.tolist())),
            ("tokens that two seeds share", (first == other).long(), [1 - agree, agree]),
        ):
            finding = statistics.judge(cells, of)
            if finding.probability < statistics.FALSE_ALARM:
                pytest.fail(f"{what} are not as probable as they are drawn: {finding.what}, {finding.probability:.1e}")


@pytest.mark.ascend_cases("inference")
def test_inference(
    case: Case,
    npu_device: torch.device,
    precision_compare: PrecisionCompare,
    ascend_measure: Measure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dtype = getattr(torch, case.dtype)
    with one_thread():
        if case.property == "sampled":
            judge_sampling(case.subject, dtype, npu_device, precision_compare)
            return
        if case.property in ("greedy", "speculative", "generate"):
            is_server = case.subject == "server"
            found = served(npu_device) if is_server else generation(case.subject, case.property, dtype, npu_device)
            ascend_measure("equal_tokens", float((found.actual.tokens == found.best).double().mean()))
            ascend_measure("largest_allowed_margin", float(found.margin().max()))
            found.judge(precision_compare)
            return
        if case.property.startswith("padded"):
            # vLLM Ascend sets these for batch-invariant results (vllm_ascend/batch_invariant.py at 182b75ea84ff).
            for name, value in DETERMINISTIC.items():
                monkeypatch.setenv(name, value)
            batch, alone, is_promised = alone_and_in_a_batch(case.subject, case.property, dtype, npu_device)
            ascend_measure("equal_bits", float((batch == alone).double().mean()))
            if is_promised:
                pair = batch[: LENGTHS[0]], alone[: LENGTHS[0]]
                precision_compare(*pair, standard="binary", name="the longest text in a batch")
        precision_compare(
            computed(case.subject, case.property, dtype, npu_device),
            expected(case.subject, case.property),
            reference_runs=Samples(reference_runs(case.subject, case.property, dtype)),
            name=case.property,
            locate=first_layer,
        )
