"""Questions on operators: how long, in which dtypes, with which bits, and what happens where something is wrong."""

from __future__ import annotations

import importlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

#: Calls a function in a fresh thread, and gives its result or what it raised as a text.
Fresh = Callable[[Callable[[], Any]], Any]

_UNARY = """
    abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log
    log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc relu isnan isinf
    logical_not bitwise_not
"""
_BINARY = """
    add sub mul div maximum minimum pow atan2 fmod remainder floor_divide hypot copysign eq lt logical_and bitwise_and
    bitwise_or bitwise_xor
"""
_REDUCING = "sum mean prod amax amin argmax any all std var cumsum cumprod sort median logsumexp"
_DTYPES = "float32 float16 bfloat16 float64 int8 uint8 int16 int32 int64 bool complex64 complex128"
UNARY, BINARY, REDUCING, DTYPES = (each.split() for each in (_UNARY, _BINARY, _REDUCING, _DTYPES))
OTHER: Mapping[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda x, _: x @ x,
    "softmax": lambda x, torch: torch.softmax(x, -1),
    "layer_norm": lambda x, torch: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "batch_norm": lambda x, torch: torch.nn.functional.batch_norm(x, None, None, training=True),
    "conv2d": lambda x, torch: torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3]),
    "gelu": lambda x, torch: torch.nn.functional.gelu(x),
    "silu": lambda x, torch: torch.nn.functional.silu(x),
    "index_select": lambda x, torch: x.index_select(0, torch.arange(2, device=x.device)),
    "index_add": lambda x, torch: x.index_add(0, torch.zeros(len(x), dtype=torch.int64, device=x.device), x),
    "scatter_add": lambda x, torch: x.scatter_add(0, torch.zeros(x.shape, dtype=torch.int64, device=x.device), x),
    "topk": lambda x, _: x.topk(2),
    "where": lambda x, torch: torch.where(x > 0, x, -x),
    "cat": lambda x, torch: torch.cat([x, x]),
    "flip": lambda x, _: x.flip(0),
    "tril": lambda x, _: x.tril(),
    "clamp": lambda x, _: x.clamp(0, 1),
}
#: Called first and second, for what the first call costs.
TIMED = [*UNARY[:10], *BINARY[:8], *REDUCING[:5], "matmul", "softmax", "layer_norm", "conv2d", "gelu", "topk", "cat"]
RANDOM = (
    "matmul",
    "sum",
    "mean",
    "cumsum",
    "batch_norm",
    "layer_norm",
    "softmax",
    "index_add",
    "scatter_add",
    "conv2d",
)
FUNCTIONS = [each for each in UNARY if each not in ("isnan", "isinf", "logical_not", "bitwise_not")]


def _torch() -> Any:
    """Return torch, whose tensors have ``npu()`` where torch_npu is loaded, which type checkers do not know."""
    return importlib.import_module("torch")


def _call(name: str, x: Any, torch: Any) -> Any:
    if name in OTHER:
        return OTHER[name](x, torch)
    function = getattr(torch, name)
    if name in BINARY:
        return function(x, x)
    return function(x, -1) if name in REDUCING else function(x)


def _values(torch: Any, dtype: Any, shape: tuple[int, ...] = (8, 8)) -> Any:
    x = torch.linspace(0.1, 0.9, shape[0] * shape[1], dtype=torch.float64).reshape(shape)
    if dtype.is_floating_point or dtype.is_complex:
        return x.to(dtype)
    return (x * 10).to(torch.int32).to(dtype)


def dtypes(_: Fresh) -> dict[str, Any]:
    """Call every operator once in each dtype: who computes it, and what is said where nobody does."""
    torch = _torch()

    from pytest_ascend.run.fallback import FallbackWatch

    found: dict[str, Any] = {}
    for name in (*UNARY, *BINARY, *REDUCING, *OTHER):
        for text in DTYPES:
            x = _values(torch, getattr(torch, text))
            try:
                with warnings.catch_warnings(), FallbackWatch("npu") as watch:
                    warnings.simplefilter("ignore")
                    result = _call(name, x.npu(), torch)
                    (result if isinstance(result, torch.Tensor) else result[0]).cpu()
                said = {"by": "cpu" if watch.seen else "npu"}
            except Exception as error:  # noqa: BLE001  (what is refused is the answer)
                said = {"by": "", "said": f"{type(error).__name__}: {error}"[:600], "cpu": _cpu(name, x, torch)}
            found.setdefault(name, {})[text] = said
    return found


def _cpu(name: str, x: Any, torch: Any) -> str:
    """Whether torch's own CPU takes it, as it otherwise says nothing of the device."""
    try:
        _call(name, x, torch)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:200]
    return "taken"


def times(_: Fresh) -> dict[str, Any]:
    """Time first and second calls, a launch, a synchronisation, and events beside the host's clock."""
    torch = _torch()

    npu: Any = torch.npu
    x = _values(torch, torch.float32, (256, 256)).npu()
    npu.synchronize()
    calls = {name: [_timed(name, x, torch) for _ in range(2)] for name in TIMED}
    began = time.perf_counter()
    for _unused in range(100):
        torch.abs(x)
    launch_us = (time.perf_counter() - began) * 1e4
    npu.synchronize()
    began = time.perf_counter()
    for _unused in range(100):
        npu.synchronize()
    sync_us = (time.perf_counter() - began) * 1e4
    start, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    began = time.perf_counter()
    start.record()
    for _unused in range(50):
        x = (x @ x).clamp(0, 1)
    end.record()
    npu.synchronize()
    host_ms = (time.perf_counter() - began) * 1e3
    return {
        "calls_s": calls,
        "launch_us": launch_us,
        "synchronize_us": sync_us,
        "events_ms": start.elapsed_time(end),
        "host_ms": host_ms,
    }


def _timed(name: str, x: Any, torch: Any) -> Any:
    began = time.perf_counter()
    try:
        _call(name, x, torch)
        torch.npu.synchronize()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:200]
    return time.perf_counter() - began


def determinism(fresh: Fresh) -> dict[str, Any]:
    """Ask for the same eight times, with the switch off, on and off again, at two sizes, each in a fresh thread."""
    torch = _torch()

    def same(name: str, size: int, switch: bool) -> Any:
        def work() -> int:
            torch.use_deterministic_algorithms(switch)
            x = torch.randn(size, size, generator=torch.Generator().manual_seed(1)).npu()
            return len({_call(name, x, torch).cpu().numpy().tobytes() for _ in range(8)})

        return fresh(work)

    try:
        return {
            name: {
                str(size): {
                    f"{i}: {'on' if switch else 'off'}": same(name, size, switch)
                    for i, switch in enumerate((False, True, False))
                }
                for size in (64, 512)
            }
            for name in RANDOM
        }
    finally:
        torch.use_deterministic_algorithms(False)


def special(_: Fresh) -> dict[str, Any]:
    """Ask for denormals, overflow, HF32, the width of accumulation, large integers and ties."""
    torch = _torch()

    npu: Any = torch.npu

    def one(work: Callable[[], Any]) -> Any:
        try:
            return work().cpu().tolist()
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"[:300]

    tiny = torch.tensor([1e-40, 1e-44, -1e-39])
    half = torch.tensor([6e-8, 3e-6], dtype=torch.float16)
    large = torch.tensor([2**31, 2**53 + 1, -(2**31) - 1, 2**62], dtype=torch.int64)
    found = {
        "denormals float32 * 1": one(lambda: tiny.npu() * 1),
        "denormals float32 + 0": one(lambda: tiny.npu() + 0),
        "denormals float16 * 1": one(lambda: half.npu() * 1),
        "overflow float16 60000 * 2": one(lambda: torch.tensor([6e4], dtype=torch.float16).npu() * 2),
        "overflow float16 exp(12)": one(lambda: torch.tensor([12.0], dtype=torch.float16).npu().exp()),
        "sqrt(-1), log(0), 1/0": one(
            lambda: torch.stack([torch.tensor([-1.0]).npu().sqrt(), torch.tensor([0.0]).npu().log()])
        ),
        "int64 + 1": one(lambda: large.npu() + 1),
        "int64 * 1": one(lambda: large.npu() * 1),
        "int64 to float64": one(lambda: large.npu().double()),
        "float32 to int64": one(lambda: torch.tensor([2.0**40, -(2.0**33)]).npu().long()),
        "round of ties": one(lambda: torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]).npu().round()),
        "float32 to float16 ties": one(lambda: torch.tensor([2049.0, 2051.0]).npu().half().float()),
    }
    for allowed in (False, True):
        npu.matmul.allow_hf32 = allowed
        ones = [1 + 2.0**-bits for bits in range(8, 24)]
        found[f"bits of a product of float32, hf32 {allowed}"] = one(partial(_products, ones))
    npu.matmul.allow_hf32 = False
    wide = torch.ones(1, 4097, dtype=torch.float16)
    found["accumulation of float16: 4097 ones"] = one(lambda: wide.npu() @ wide.T.npu())
    found["accumulation of float32: 2^24 and ones"] = one(lambda: torch.tensor([2.0**24] + [1.0] * 64).npu().sum())
    return found


def _products(values: list[float]) -> Any:
    """Multiply numbers by 1 as matrices; what is left beside 1 shows how many bits the inputs keep."""
    torch = _torch()
    return torch.stack([(torch.tensor([[each]]).npu() @ torch.ones(1, 1).npu() - 1)[0, 0] for each in values])


def ulps(_: Fresh) -> dict[str, Any]:
    """Count by how many ulp functions are off, in float32 and float16, on 4,096 points each."""
    torch = _torch()

    found: dict[str, Any] = {}
    for name in FUNCTIONS:
        for text in ("float32", "float16"):
            dtype = getattr(torch, text)
            x = torch.linspace(0.01, 0.99, 4096, dtype=torch.float64).to(dtype)
            try:
                actual = _call(name, x.npu(), torch).cpu()
                expected = _call(name, x.double(), torch)
            except Exception as error:  # noqa: BLE001
                found.setdefault(name, {})[text] = f"{type(error).__name__}: {error}"[:200]
                continue
            off = _ulps(actual, expected, dtype, torch)
            counts = Counter(min(each, 64) for each in off)
            found.setdefault(name, {})[text] = {str(each): counts[each] for each in sorted(counts)}
    return found


def _ulps(actual: Any, expected: Any, dtype: Any, torch: Any) -> list[int]:
    """Return the distance of each value from the expected one, rounded, in representable numbers."""
    integer = torch.int32 if dtype == torch.float32 else torch.int16
    sides = [torch.nan_to_num(each.to(dtype)).view(integer).to(torch.int64) for each in (actual, expected)]
    lowest = -(2 ** (31 if dtype == torch.float32 else 15))
    ordered = [torch.where(each < 0, lowest - each, each) for each in sides]
    return [int(each) for each in (ordered[0] - ordered[1]).abs()]


def _error(work: Callable[[Any], Any]) -> dict[str, Any]:
    """Tell which call raises, what it says, and whether the process goes on."""
    torch = _torch()

    said: dict[str, Any] = {"raised": "nothing did"}
    try:
        result = work(torch)
        said["raised"] = "waiting"
        torch.npu.synchronize()
        said["raised"] = "reading"
        result.cpu()
        said["raised"] = "nothing did"
    except Exception as error:  # noqa: BLE001
        said["raised"] = "the call" if said["raised"] == "nothing did" else said["raised"]
        said["said"] = f"{type(error).__name__}: {error}"[:3000]
    try:
        said["goes_on"] = (torch.ones(2, device="npu") + 1).cpu().tolist() == [2.0, 2.0]
    except Exception as error:  # noqa: BLE001
        said["goes_on"], said["afterwards"] = False, f"{type(error).__name__}: {error}"[:1000]
    return said


def error_index(_: Fresh) -> dict[str, Any]:
    """Take rows that do not exist."""
    return _error(lambda torch: torch.ones(4, 4, device="npu")[torch.tensor([9], device="npu")])


def error_memory(_: Fresh) -> dict[str, Any]:
    """Ask for more memory than there is."""
    return _error(lambda torch: torch.empty(2**44, dtype=torch.uint8, device="npu"))


def error_dtype(_: Fresh) -> dict[str, Any]:
    """Multiply matrices of a dtype that no NPU multiplies."""
    return _error(
        lambda torch: (
            torch.ones(4, 4, dtype=torch.float64, device="npu") @ torch.ones(4, 4, dtype=torch.float64, device="npu")
        )
    )


def error_device(_: Fresh) -> dict[str, Any]:
    """Ask for a card that does not exist."""
    return _error(lambda torch: torch.ones(2, device="npu:99"))


def load(_: Fresh) -> dict[str, Any]:
    """Keep the card busy for ten seconds, so that somebody else can ask for its clock."""
    torch = _torch()

    x = torch.ones(2048, 2048, dtype=torch.float16, device="npu")
    end, count = time.monotonic() + 10, 0
    while time.monotonic() < end:
        x = (x @ x).clamp(0, 1)
        torch.npu.synchronize()
        count += 1
    return {"products_of_2048": count, "seconds": 10}


STEPS: Mapping[str, Callable[[Fresh], dict[str, Any]]] = {
    "dtypes": dtypes,
    "times": times,
    "determinism": determinism,
    "special": special,
    "ulps": ulps,
    "error-index": error_index,
    "error-memory": error_memory,
    "error-dtype": error_dtype,
    "error-device": error_device,
    "load": load,
}
