"""User settings that affect times: two runs are comparable if all are equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

#: Names and values, builtins only.
Settings: TypeAlias = Mapping[str, object]

#: Their key among the options of a run log.
NAME = "timing"
#: Faults are planted to be detected: a run with faults is compared with a baseline without them.
FAULTS = "faults"

#: Variables that affect the queueing and launching of operators, memory allocation, or the host's computing.
VARIABLES = (
    *("TASK_QUEUE_ENABLE", "ASCEND_LAUNCH_BLOCKING", "COMBINED_ENABLE", "ACLNN_CACHE_LIMIT", "CPU_AFFINITY_CONF"),
    *("PER_STREAM_QUEUE", "STREAMS_PER_DEVICE", "MULTI_STREAM_MEMORY_REUSE", "HCCL_DETERMINISTIC"),
    *("LCCL_DETERMINISTIC", "ASCEND_GLOBAL_LOG_LEVEL", "ASCEND_GLOBAL_EVENT_ENABLE", "ASCEND_SLOG_PRINT_TO_STDOUT"),
    *("ASCEND_PROCESS_LOG_PATH", "PYTORCH_NPU_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
)


def differences(then: Settings, now: Settings) -> Iterator[str]:
    """Yield the settings that differ, e.g. "TASK_QUEUE_ENABLE 1 then, not set now"."""
    for name in sorted({*then, *now} - ({FAULTS} if not then.get(FAULTS) else set())):
        if (name in then, then.get(name)) != (name in now, now.get(name)):
            said = [str(each[name]) if name in each else "not set" for each in (then, now)]
            yield f"{name} {said[0]} then, {said[1]} now"
