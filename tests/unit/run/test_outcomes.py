"""What an exception says about its case."""

from __future__ import annotations

import time

import pytest

from pytest_ascend.distributed.ranks import RankFailed
from pytest_ascend.errors import AscendError, GoldenError
from pytest_ascend.run.outcomes import classify

UNSUPPORTED = [
    "aclnnFoo or aclnnFooGetWorkspaceSize not in libopapi.so, or libopapi.so not found.",
    "aclnnMatmulCompressDequantGetWorkspaceSize not found, please upgrade CANN.",
    "Could not run 'aten::foo' with arguments from the 'PrivateUse1' backend.",
    "\"addmm_impl\" not implemented for 'Half'",
    "grid_sampler_2d_cpu not implemented for Half",
    "'_OpNamespace' 'aten' object has no attribute '_batch_norm_with_update'",
    "This function was deprecated since version 1.9 and is now removed. `torch.qr` is deprecated in favor of ...",
    "[ERROR] ERR01007 OPS feature not supported",
    "call aclnnFoo failed, error code 561103",
    "Op Foo does not has any binary",
    "DT_COMPLEX64 is not supported by aclnnFoo",
    "aclnnFoo does not support double",
    "Unsupported dtype: torch.float64",
    "svd_npu only supported Float, but get double",
    "The function 'stft' is not differentiable with respect to argument 'window'.",
    'false INTERNAL ASSERT FAILED at "DispatchStub.cpp":281. DispatchStub: missing kernel for npu',
    "call aclnnMatmul failed, error code is 161002\nEZ1001: Tensor matB not implemented for DT_INT8",
    "call aclnnExp failed, error code is 161002\nEZ1001: The self tensor cannot be larger than 8 dimensions.",
    "self scalar_type:UInt32is not surpported.",
]


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_a_device_that_says_it_cannot_is_taken_at_its_word(text: str) -> None:
    assert classify(RuntimeError(text), emulated=False).name == "unsupported"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("NPU out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("The Inner error is reported as above. 507015"),
        KeyError("x"),
        RuntimeError(""),
        GoldenError("the golden 'ops/relu' is damaged", path="/b/relu.safetensors", hint="build it"),
    ],
)
def test_what_says_nothing_of_the_kind_is_an_error(error: BaseException) -> None:
    assert classify(error, emulated=False).name == "errored"


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_a_rank_is_taken_at_its_word_too(text: str) -> None:
    error = RankFailed(f"rank 1 of 4: RuntimeError: {text}", rank=1, detail="rank 0: Connection closed by peer")
    assert classify(error, emulated=False).name == "unsupported"
    assert "Connection closed" in classify(error, emulated=False).detail


def test_the_words_of_ranks_that_are_not_to_blame_excuse_nothing() -> None:
    error = RankFailed("rank 1 of 4 was killed by SIGSEGV", rank=1, detail="rank 0: this is not supported")
    assert classify(error, emulated=False).name == "errored"


def test_the_error_of_a_golden_is_told_whole() -> None:
    error = GoldenError("the golden is damaged: /b/relu.safetensors", path="/b/relu.safetensors", hint="build it")
    outcome = classify(error, emulated=True, missing=["aclnnFoo"])
    assert outcome.name == "errored"
    assert "/b/relu.safetensors" in outcome.reason


def test_a_wrong_number_is_a_failure() -> None:
    outcome = classify(AssertionError("output[3] is 2 instead of 1\nmore"), emulated=False)
    assert outcome.name == "failed"
    assert outcome.reason == "output[3] is 2 instead of 1"


def test_a_wrong_number_is_a_failure_on_the_emulated_device_too() -> None:
    assert classify(AssertionError("wrong"), emulated=True, missing=["aclnnFoo"]).name == "failed"


def test_a_silent_assertion_has_a_reason_all_the_same() -> None:
    assert classify(AssertionError(), emulated=False).reason


def test_the_emulated_device_names_what_it_lacks() -> None:
    outcome = classify(RuntimeError("call aclnnFoo failed"), emulated=True, missing=["aclnnFoo", "aclnnFoo"])
    assert outcome.name == "not-emulated"
    assert outcome.reason == "not emulated: aclnnFoo"


def test_the_emulated_device_is_believed_by_its_message_alone() -> None:
    outcome = classify(RuntimeError("emulated CANN: the operator type Mul is not emulated"), emulated=True)
    assert outcome.name == "not-emulated"
    assert "Mul" in outcome.reason


def test_an_operator_that_the_emulated_cann_does_not_export_is_not_emulated() -> None:
    said = "aclnnFoo or aclnnFooGetWorkspaceSize not in libopapi.so, or libopapi.so not found."
    assert classify(RuntimeError(said), emulated=True).reason == "not emulated: aclnnFoo"
    assert classify(RuntimeError(said), emulated=False).name == "unsupported"


def test_an_operator_that_cann_lacks_on_the_emulated_chip_too_is_unsupported() -> None:
    error = RuntimeError(
        "Current device only support aclnn operators, but aclnnGRU or aclnnGRUGetWorkspaceSize not found"
    )
    names = ("Ascend950PR", "Ascend910B1", "")
    assert [classify(error, emulated=True, chip=each).name for each in names] == ["unsupported", *["not-emulated"] * 2]


def test_an_operator_of_atb_is_named() -> None:
    said = "GetApiFuncAddr not found AtbPagedCacheLoadGetWorkspaceSize\n[ERROR] 2026"
    assert classify(RuntimeError(said), emulated=True).reason == "not emulated: AtbPagedCacheLoad"
    assert classify(RuntimeError(said), emulated=False).name == "unsupported"


def test_no_real_device_is_excused_as_not_emulated() -> None:
    assert classify(RuntimeError("Mul is not emulated"), emulated=False).name == "errored"


def test_what_torch_npu_lacks_itself_is_unsupported_on_the_emulated_device_too() -> None:
    assert classify(RuntimeError(UNSUPPORTED[2]), emulated=True).name == "unsupported"


def test_a_device_error_without_a_missing_operator_is_an_error_on_the_emulated_device() -> None:
    assert classify(RuntimeError("index 5 is out of bounds"), emulated=True).name == "errored"


def test_a_damaged_project_file_is_no_word_of_the_device() -> None:
    assert classify(AscendError("x is not supported", hint="y"), emulated=False).name == "errored"


def test_a_long_message_keeps_its_detail() -> None:
    outcome = classify(RuntimeError("x" * 1000), emulated=False)
    assert len(outcome.reason) == 300
    assert len(outcome.detail) > 1000


def test_a_message_of_one_long_word_takes_no_time_that_grows_with_its_square() -> None:
    began = time.process_time()
    assert classify(RuntimeError("x" * 20_000), emulated=True).name == "errored"
    assert time.process_time() - began < 1.0
