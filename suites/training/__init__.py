"""The cases of the training suite: curves and resulting states, GradScaler, autocast's lists, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pytest_ascend.records.case import Case


class Run(NamedTuple):
    """One training of twenty steps. ``optimizer`` is a name of ``recipes.OPTIMIZERS``, ``mode`` one of its MODES."""

    model: str
    optimizer: str
    mode: str
    level: str


RUNS = (
    Run("small-resnet", "sgd-steplr", "float32", "standard"),
    Run("small-resnet", "sgd-steplr", "autocast-float16", "standard"),
    Run("small-resnet", "sgd-steplr", "autocast-bfloat16", "full"),
    Run("small-resnet", "adamw", "float32", "full"),
    Run("small-resnet", "adamw-loop", "float32", "full"),
    Run("small-resnet", "fused-sgd", "float32", "full"),
    Run("small-resnet", "fused-adamw", "autocast-float16", "full"),
    Run("small-vit", "sgd-steplr", "float32", "full"),
    Run("small-vit", "adamw", "float32", "full"),
    Run("small-vit", "adamw", "autocast-bfloat16", "standard"),
    Run("small-vit", "adamw", "autocast-float16", "full"),
    Run("small-vit", "fused-adamw", "float32", "standard"),
    Run("small-vit", "fused-adam", "float32", "full"),
    Run("small-vit", "fused-rmsprop", "float32", "full"),
    Run("small-vit", "fused-adadelta", "float32", "full"),
)

#: The results of a training; only batch normalisation has statistics.
KINDS = {"small-resnet": ("curve", "weights", "state", "statistics"), "small-vit": ("curve", "weights", "state")}

_SKIPS = ("inf-skips-the-step", "nan-skips-the-step")
SCALER = (*_SKIPS, "scale-halves", "scale-grows-back", "unscale-is-exact", "disabled")

#: Operators by their dtype under autocast, from torch.amp's documented lists for CUDA, which torch_npu follows; those
#: in CPU_FLOAT32 are on the CPU's list, too.
FLOAT32 = (
    "softmax", "log_softmax", "layer_norm", "group_norm", "mse_loss", "l1_loss", "smooth_l1_loss", "cross_entropy",
    "nll_loss", "kl_div", "binary_cross_entropy_with_logits", "exp", "expm1", "log", "log1p", "log10", "log2", "pow",
    "rsqrt", "reciprocal", "sum", "prod", "cumsum", "cumprod", "norm", "cosine_similarity", "softplus", "tan", "sinh",
    "cosh", "acos", "asin",
)  # fmt: skip
CPU_FLOAT32 = (
    "prod", "mse_loss", "l1_loss", "smooth_l1_loss", "cross_entropy", "nll_loss", "kl_div",
    "binary_cross_entropy_with_logits",
)  # fmt: skip
CPU_UNLISTED = ("mv",)
LOWER = ("matmul", "mm", "bmm", "addmm", "linear", "conv1d", "conv2d", "conv_transpose2d", "baddbmm", "mv")
AUTOCAST = (*FLOAT32, *LOWER, "add", "cat", "stack", "addcmul")

CHECKPOINTS = (
    "device-to-cpu", "cpu-to-device", "map-location", "other-device", "shared-parameters", "strided-parameters",
    "optimizer-state", "generator-state", "resumed-curve", "resumed-curve-scaled",
)  # fmt: skip


def _runs() -> Iterator[tuple[Case, Run, str]]:
    for run in RUNS:
        autocast, dtype = run.mode.rpartition("-")[::2]
        name = "-".join(part for part in (run.optimizer, autocast) if part)
        for kind in KINDS[run.model]:
            how = {"property": f"{name}-{kind}", "dtype": dtype, "family": "training", "level": run.level}
            yield Case(suite="training", subject=run.model, **how), run, kind


#: Id of a case -> its training, and which of the results it is about.
RUN_OF = {case.id: (run, kind) for case, run, kind in _runs()}
RUN_PROPERTIES = tuple(dict.fromkeys(case.property for case, _, _ in _runs()))
_OTHERS = ("grad-scaler", SCALER, "smoke"), ("autocast", AUTOCAST, "standard"), ("checkpoint", CHECKPOINTS, "standard")
CASES = (
    *(case for case, _, _ in _runs()),
    *(
        Case(suite="training", subject=subject, property=name, family=subject, level=level)
        for subject, names, level in _OTHERS
        for name in names
    ),
)
