"""Rules on what changes numbers or speed without any version saying so: environment variables and the chip itself.

Source: the environment variable pages of Ascend/pytorch@9e73e708ab93 and the chips' defaults in NpuVariables.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_ascend.doctor.findings import Observation, rule
from pytest_ascend.doctor.survey import Survey
from pytest_ascend.environment.evidence import CHIP

#: What a setting changes: numbers, the order of events and what errors show, or only speed.
NUMBERS, ORDER, SPEED = "numbers", "order", "speed"


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: what it changes, its ``defaults`` (values that change nothing), and its effect."""

    changes: str
    defaults: tuple[str, ...]
    effect: str


SETTINGS: Mapping[str, Setting] = {
    "ALLOW_CONV_HF32": Setting(NUMBERS, (), "float32 convolutions round their inputs to HF32"),
    "ALLOW_MATMUL_HF32": Setting(NUMBERS, ("0", "False"), "float32 matrix products round their inputs to HF32"),
    "ACL_PRECISION_MODE": Setting(NUMBERS, (), "in which format operators compute"),
    "ACL_OP_SELECT_IMPL_MODE": Setting(NUMBERS, (), "high_performance implementations compute with less precision"),
    "ACL_OPTYPELIST_FOR_IMPLMODE": Setting(NUMBERS, (), "the operators that the implementation mode applies to"),
    "INF_NAN_MODE_ENABLE": Setting(NUMBERS, ("1",), "0: infinity and NaN become the largest number and 0"),
    "INF_NAN_MODE_FORCE_DISABLE": Setting(NUMBERS, ("0",), "infinity and NaN become the largest number and 0"),
    "HCCL_DETERMINISTIC": Setting(NUMBERS, ("false",), "the order in which collectives add"),
    "HCCL_ALGO": Setting(NUMBERS, (), "the order in which collectives add"),
    "HCCL_OP_EXPANSION_MODE": Setting(NUMBERS, (), "where collectives are scheduled, and so their order"),
    "LCCL_DETERMINISTIC": Setting(NUMBERS, ("0",), "the order in which collectives add"),
    "TORCH_NPU_USE_COMPATIBLE_IMPL": Setting(NUMBERS, ("0",), "implementations that are identical to PyTorch's"),
    "TORCH_NPU_LEGACY_IMPL_LIST": Setting(NUMBERS, (), "older implementations, such as another stream of randomness"),
    "TORCH_NPU_LAZY_FUSION": Setting(NUMBERS, ("0",), "operators are fused, which changes rounding"),
    "TORCH_NPU_FALLBACK_CPU_DISABLE": Setting(ORDER, ("0",), "operators that would fall back to the CPU fail"),
    "TORCH_TRANSFER_TO_NPU": Setting(ORDER, ("0",), "torch.cuda is replaced by torch.npu"),
    "TASK_QUEUE_ENABLE": Setting(ORDER, ("1",), "how operators are queued, and when errors show"),
    "PER_STREAM_QUEUE": Setting(ORDER, ("0",), "one queue for each stream"),
    "ASCEND_LAUNCH_BLOCKING": Setting(ORDER, ("0",), "operators run one after the other, which hides races"),
    "COMBINED_ENABLE": Setting(ORDER, ("0",), "transformations to contiguous tensors are fused"),
    "MULTI_STREAM_MEMORY_REUSE": Setting(ORDER, ("1",), "when memory is reused"),
    "PYTORCH_NPU_ALLOC_CONF": Setting(SPEED, (), "how memory is allocated"),
    "PYTORCH_ALLOC_CONF": Setting(SPEED, (), "how memory is allocated"),
    "PYTORCH_NO_NPU_MEMORY_CACHING": Setting(SPEED, ("0",), "memory is not kept for later use"),
    "ACL_OP_COMPILER_CACHE_MODE": Setting(SPEED, ("enable",), "whether compiled operators are kept"),
    "ACL_OP_COMPILER_CACHE_DIR": Setting(SPEED, (), "where compiled operators are kept: old ones may be used"),
    "ASCEND_CACHE_PATH": Setting(SPEED, (), "where compiled operators are kept: old ones may be used"),
    "ACLNN_CACHE_LIMIT": Setting(SPEED, (), "how many calls are cached"),
    "STREAMS_PER_DEVICE": Setting(SPEED, ("32",), "how many streams there are"),
    "CPU_AFFINITY_CONF": Setting(SPEED, ("0",), "on which CPUs threads run"),
    "NPU_ASD_ENABLE": Setting(SPEED, ("0",), "silent errors are searched for"),
    "TORCH_ACL_INIT_CONFIG_PATH": Setting(ORDER, (), "dumps, profiles and overflow detection of the runtime"),
    "TORCH_NPU_DISABLED_WARNING": Setting(ORDER, ("0",), "warnings are not shown, fallback to the CPU among them"),
    "TORCH_NPU_WARNING_DISABLE": Setting(ORDER, ("0",), "warnings are not shown, fallback to the CPU among them"),
    "ASCEND_GLOBAL_LOG_LEVEL": Setting(SPEED, ("3",), "how much CANN writes into its log"),
    "ASCEND_GLOBAL_EVENT_ENABLE": Setting(SPEED, ("0",), "events in CANN's log"),
    "ASCEND_SLOG_PRINT_TO_STDOUT": Setting(SPEED, ("0",), "CANN's log goes to the terminal, and waits for it"),
    "ASCEND_PROCESS_LOG_PATH": Setting(SPEED, (), "where CANN's log of each process is"),
    "TORCH_DEVICE_BACKEND_AUTOLOAD": Setting(ORDER, ("1",), "0: torch does not load torch_npu by itself"),
}


def in_force(survey: Survey) -> dict[str, str]:
    """Return the variables that are set, by name; what this process has set for itself too."""
    return {name: survey.environ[name][:200] for name in SETTINGS if name in survey.environ}


def changed(survey: Survey, changes: str) -> Iterator[Observation]:
    """Yield the settings of one kind that are not at their default."""
    for name, setting in SETTINGS.items():
        value = survey.environ.get(name)
        is_default = value is None or value.lower() in [each.lower() for each in setting.defaults]
        if setting.changes == changes and not is_default and survey.concerns_ascend:
            yield Observation(f"{name} is set: {setting.effect}", (f"{name}={str(value)[:200]}",))


@rule("settings.numbers")
def numbers(survey: Survey) -> Iterator[Observation]:
    """Settings that change numbers."""
    return changed(survey, NUMBERS)


@rule("settings.order")
def order(survey: Survey) -> Iterator[Observation]:
    """Settings that change the order of events."""
    return changed(survey, ORDER)


@rule("settings.speed")
def speed(survey: Survey) -> Iterator[Observation]:
    """Settings that change time or memory."""
    return changed(survey, SPEED)


@rule("settings.two-allocators")
def two_allocators(survey: Survey) -> Iterator[Observation]:
    """Two variables that exclude each other in torch_npu."""
    names = ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    if all(survey.environ.get(name) for name in names) and survey.concerns_ascend:
        yield Observation("memory is configured twice", tuple(f"{name}={survey.environ[name][:100]}" for name in names))


@rule("settings.allocator")
def clashing_allocator(survey: Survey) -> Iterator[Observation]:
    """Settings of the allocator that exclude each other."""
    text = survey.environ.get("PYTORCH_NPU_ALLOC_CONF", "").replace(" ", "").lower()
    others = [name for name in ("max_split_size_mb", "garbage_collection_threshold") if name in text]
    if "expandable_segments:true" in text and others:
        yield Observation(
            f"expandable_segments and {others[0]} exclude each other", (f"PYTORCH_NPU_ALLOC_CONF={text[:200]}",)
        )


@rule("chip.halves")
def halves(survey: Survey) -> Iterator[Observation]:
    """A chip that computes float32 in float16 unless told otherwise."""
    if survey.family and survey.family.halves:
        yield Observation(
            f"{survey.version(CHIP)} computes float32 convolutions and matrix products in float16 by default"
        )


@rule("chip.saturates")
def saturates(survey: Survey) -> Iterator[Observation]:
    """A chip without infinity."""
    if survey.family and survey.family.saturates:
        yield Observation(f"{survey.version(CHIP)} gives the largest number instead of infinity, and 0 for NaN")


@rule("chip.no-bfloat16")
def no_bfloat16(survey: Survey) -> Iterator[Observation]:
    """A chip without bfloat16."""
    if survey.family and not survey.family.bfloat16:
        yield Observation(f"{survey.version(CHIP)} does not have bfloat16")
