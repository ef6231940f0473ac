"""The cases of the suite on modes that change numbers on a chip: each judged by what the mode promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_ascend.device.npu import Mode
from pytest_ascend.records.case import Case

from .products import PRODUCTS, Product

#: Mode -> what is set for it; all other suites run with everything off. On by default are HF32 in convolutions and
#: internal formats, and on old chips half precision and just-in-time compilation.
MODES: Mapping[str, Mapping[str, Mode]] = {
    "conv-hf32": {"conv.allow_hf32": True},
    "matmul-hf32": {"matmul.allow_hf32": True},
    "internal-format": {"allow_internal_format": True},
    "half-allowed": {"ACL_PRECISION_MODE": "allow_fp32_to_fp16"},
    "deterministic-1": {"deterministic_level": 1},
    "deterministic-2": {"deterministic_level": 2},
    "jit-compile": {"jit_compile": True},
}
#: Modes in which the same call gives the same bits.
DETERMINISTIC = ("deterministic-1", "deterministic-2")
#: Modes that are asked at level full alone.
_FULL = ("deterministic-2", "jit-compile")

#: Case of what overflows, in each dtype: infinities, or the largest numbers where the chip is in its old mode.
OVERFLOWING = tuple(
    Case(suite="numerics", subject="overflow", property="inf-nan", dtype=dtype, family="inf-nan", level="standard")
    for dtype in ("float32", "float16", "bfloat16")
)


def _modes(product: Product) -> Iterator[str]:
    yield from (mode for mode in MODES if not mode.endswith("hf32") or mode == product.mode)


def _asked(product: Product, mode: str) -> bool:
    # torch_npu keeps just-in-time compilation in the thread that goes backwards, where nobody can turn it off again.
    return not (mode == "jit-compile" and product.name.endswith("gradient"))


OF_PRODUCTS: tuple[Case, ...] = tuple(
    Case(
        suite="numerics",
        subject=product.name,
        property=mode,
        dtype="float32",
        family=product.mode,
        level="full" if mode in _FULL else "standard",
    )
    for product in PRODUCTS
    for mode in _modes(product)
    if _asked(product, mode)
)

CASES: tuple[Case, ...] = (*OF_PRODUCTS, *OVERFLOWING)
