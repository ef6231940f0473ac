"""Questions about operators: dtypes, bits, and behaviour on errors."""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pytest_ascend.contact.steps import Notebook, Questions
from pytest_ascend.device.dispatcher import OperatorWatch
from pytest_ascend.device.probe import known_answer
from pytest_ascend.system.bundled import module
from pytest_ascend.system.errors import answered
from pytest_ascend.system.programs import for_now, tell

#: Any, since type checkers do not know ``npu()``, which torch_npu adds to tensors.
torch: Any = importlib.import_module("torch")
tree_map_only: Any = importlib.import_module("torch.utils._pytree").tree_map_only

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
_RANDOM = "matmul sum mean cumsum batch_norm layer_norm softmax index_add scatter_add conv2d"
UNARY, BINARY, REDUCING, DTYPES, RANDOM = (each.split() for each in (_UNARY, _BINARY, _REDUCING, _DTYPES, _RANDOM))
OTHER: Mapping[str, Callable[[Any], Any]] = {
    "matmul": lambda x: x @ x,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "conv2d": lambda x: torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3]),
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "index_select": lambda x: x.index_select(0, torch.arange(2, device=x.device)),
    "index_add": lambda x: x.index_add(0, torch.zeros(len(x), dtype=torch.int64, device=x.device), x),
    "scatter_add": lambda x: x.scatter_add(0, torch.zeros(x.shape, dtype=torch.int64, device=x.device), x),
    "topk": lambda x: x.topk(2),
    "where": lambda x: torch.where(x > 0, x, -x),
    "cat": lambda x: torch.cat([x, x]),
    "flip": lambda x: x.flip(0),
    "tril": torch.tril,
    "clamp": lambda x: x.clamp(0, 1),
}
FUNCTIONS = [*(each for each in UNARY if each not in ("isnan", "isinf", "logical_not", "bitwise_not")), "gelu"]


def _call(name: str, x: Any) -> Any:
    if name in OTHER:
        return OTHER[name](x)
    function = getattr(torch, name)
    if name in BINARY:
        return function(x, x)
    return function(x, -1) if name in REDUCING else function(x)


def dtypes() -> Questions:
    """Call every operator of the suite once in each dtype: return what computes it, or the error."""
    operators = module("suites.ops.table").OPERATORS
    for dtype in DTYPES:
        for operator in operators.values():
            yield f"{operator.name}/{dtype}", partial(_taken, operator, dtype)


def _taken(operator: Any, dtype: str) -> dict[str, Any]:
    """Return what computes an operator: "npu", "cpu" or "" for nothing, and through which torch operators."""
    real, dtype_asked = dtype.replace("complex64", "float32").replace("complex128", "float64"), getattr(torch, dtype)
    try:
        args, kwargs = operator.samples(real)[0].arguments(operator.name, getattr(torch, real))
    except ArithmeticError as error:
        return {"by": "?", "said": f"no call can be made in this dtype: {error}"}
    if real != dtype:  # inputs are sampled as real numbers
        real_dtype = getattr(torch, real)
        args, kwargs = tree_map_only(
            torch.Tensor, lambda x: x.to(dtype_asked) if x.dtype == real_dtype else x, (args, kwargs)
        )

    def on_cpu() -> str:  # if that also fails, it says nothing about the device
        operator.function(*args, **kwargs)
        return "taken"

    watch = OperatorWatch("npu")
    try:
        with warnings.catch_warnings(), watch:
            warnings.simplefilter("ignore")
            on_device = tree_map_only(torch.Tensor, lambda each: each.detach().to("npu"), (args, kwargs))
            tree_map_only(torch.Tensor, torch.Tensor.cpu, operator.function(*on_device[0], **on_device[1]))
    except Exception as error:  # noqa: BLE001 - a refusal is the answer
        message = f"{type(error).__name__}: {error}"
        return {"by": "", "of": list(watch.called), "said": message[:600], "cpu": answered(on_cpu, 200)}
    return {"by": "cpu" if watch.seen else "npu", "of": list(watch.called)}


def determinism() -> Questions:
    """Run the same computation eight times, with determinism off, on and off again, at two sizes, each in a new thread.

    The answer is the number of different results.
    """
    for name in RANDOM:
        for size in (64, 512):
            for switch in ("off", "on", "off again"):
                yield f"{name}/{size}/{switch}", partial(_different, name, size, switch=switch == "on")


def _different(name: str, size: int, *, switch: bool) -> Any:
    def count() -> int:
        with for_now(torch.use_deterministic_algorithms, switch, False):
            x = torch.randn(size, size, generator=torch.Generator().manual_seed(1)).npu()
            return len({_call(name, x).cpu().numpy().tobytes() for _ in range(8)})

    with ThreadPoolExecutor(1) as executor:  # only the first setting of determinism in a thread counts
        return executor.submit(answered, count, 500).result()


def special() -> Questions:
    """Test denormals, overflow, HF32, the width of accumulation, large integers and ties."""
    half, double = torch.float16, torch.float64
    tiny, tiny_half = torch.tensor([1e-40, 1e-44, -1e-39]), torch.tensor([6e-8, 3e-6], dtype=half)
    large = torch.tensor([2**31, 2**53 + 1, -(2**31) - 1, 2**62], dtype=torch.int64)
    wide = torch.ones(1, 4097, dtype=half)
    asked: dict[str, Callable[[], Any]] = {
        "denormals float32 * 1": lambda: tiny.npu() * 1,
        "denormals float32 + 0": lambda: tiny.npu() + 0,
        "denormals float32, product of matrices": lambda: tiny[None].npu() @ torch.ones(3, 1).npu(),
        "denormals float16 * 1": lambda: tiny_half.npu() * 1,
        "overflow float16 60000 * 2": lambda: torch.tensor([6e4], dtype=half).npu() * 2,
        "overflow float16 exp(12)": lambda: torch.tensor([12.0], dtype=half).npu().exp(),
        "overflow float32 3e38 * 2": lambda: torch.tensor([3e38]).npu() * 2,
        "sqrt(-1)": lambda: torch.tensor([-1.0]).npu().sqrt(),
        "log(0)": lambda: torch.tensor([0.0]).npu().log(),
        "1 / 0, -1 / 0, 0 / 0": lambda: torch.tensor([1.0, -1.0, 0.0]).npu() / torch.zeros(3).npu(),
        "infinity - infinity": lambda: torch.tensor([float("inf")]).npu() - torch.tensor([float("inf")]).npu(),
        "int64 + 1": lambda: large.npu() + 1,
        "int64 * 1": lambda: large.npu() * 1,
        "int64 maximum with 0": lambda: torch.maximum(large.npu(), torch.zeros_like(large).npu()),
        "int64 sum": lambda: large[1:2].npu().sum(),
        "int64 to float64": lambda: large.npu().to(double),
        "float32 to int64": lambda: torch.tensor([2.0**40, -(2.0**33)]).npu().long(),
        "round of ties": lambda: torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]).npu().round(),
        "float32 to float16 ties": lambda: torch.tensor([2049.0, 2051.0]).npu().half().float(),
        "accumulation of float16, 4097 ones": lambda: wide.npu() @ wide.T.npu(),
        "accumulation of float32, 2^24 and 64 ones": lambda: torch.tensor([2.0**24] + [1.0] * 64).npu().sum(),
    }
    for allowed in (False, True):
        asked[f"bits of a product of float32, hf32 {allowed}"] = partial(_bits, allowed)
    for name, work in asked.items():
        yield name, partial(answered, partial(_listed, work))


def _listed(work: Callable[[], Any]) -> Any:
    return work().cpu().tolist()


def _bits(allow_hf32: bool) -> Any:
    """Multiply 1 + 2^-8 ... 1 + 2^-23 by 1 as matrices; the difference from 1 shows how many bits the inputs keep."""
    with for_now(partial(setattr, torch.npu.matmul, "allow_hf32"), allow_hf32, False):
        one = torch.ones(1, 1).npu()
        numbers = [1 + 2.0**-bits for bits in range(8, 24)]
        return torch.stack([(torch.tensor([[each]]).npu() @ one - 1)[0, 0] for each in numbers])


def ulps() -> Questions:
    """Count the errors of functions in ulps, in float32 and float16, at 4,096 points each."""
    for name in FUNCTIONS:
        for dtype in ("float32", "float16"):
            yield f"{name}/{dtype}", partial(answered, partial(_histogram, name, dtype), 200)


def _histogram(name: str, text: str) -> Any:
    """Return how many points are 0, 1, 2 ... ulps off; 64 stands for more. Raises the device's errors."""
    dtype = getattr(torch, text)
    integer, lowest = (torch.int32, -(2**31)) if text == "float32" else (torch.int16, -(2**15))
    low, high = (1.01, 9.0) if name == "acosh" else (0.01, 0.99)
    x = torch.linspace(low, high, 4096, dtype=torch.float64).to(dtype)
    ordered = []  # the bits of both as integers in the order of the values, one ulp apart
    for each in (_call(name, x.npu()).cpu(), _call(name, x.double())):
        bits = torch.nan_to_num(each.to(dtype)).view(integer).to(torch.int64)
        ordered.append(torch.where(bits < 0, lowest - bits, bits))
    counts = Counter(min(int(each), 64) for each in (ordered[0] - ordered[1]).abs())
    return {str(each): counts[each] for each in sorted(counts)}


def _error(work: Callable[[], Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"raised": "the call"}
    try:
        result = work()
        answer["raised"] = "waiting"
        torch.npu.synchronize()
        answer["raised"] = "reading"
        result.cpu()
        answer["raised"] = "nothing did"
    except Exception as error:  # noqa: BLE001
        answer["said"] = f"{type(error).__name__}: {error}"[:3000]
    try:
        answer["goes_on"] = (torch.ones(2, device="npu") + 1).cpu().tolist() == [2.0, 2.0]
    except Exception as error:  # noqa: BLE001
        answer["goes_on"], answer["afterwards"] = False, f"{type(error).__name__}: {error}"[:1000]
    return answer


def load() -> dict[str, Any]:
    """Keep the card busy for ten seconds, so that another process can read its clock."""
    x = torch.ones(2048, 2048, dtype=torch.float16, device="npu")
    end, count = time.monotonic() + 10, 0
    while time.monotonic() < end:
        x = (x @ x).clamp(0, 1)
        torch.npu.synchronize()
        count += 1
    return {"products_of_2048": count, "seconds": 10}


STEPS: Mapping[str, Callable[[], dict[str, Any]]] = {
    # Rows and a card that do not exist, more memory than there is, a product in a dtype that no NPU supports.
    "error-index": partial(_error, lambda: torch.ones(4, 4, device="npu")[torch.tensor([9], device="npu")]),
    "error-memory": partial(_error, lambda: torch.empty(2**44, dtype=torch.uint8, device="npu")),
    "error-dtype": partial(
        _error, lambda: torch.linalg.matrix_power(torch.ones(4, 4, dtype=torch.float64, device="npu"), 2)
    ),
    "error-device": partial(_error, lambda: torch.ones(2, device="npu:99")),
    "load": load,
}
#: Steps with many questions.
LISTS: Mapping[str, Callable[[], Questions]] = {each.__name__: each for each in (dtypes, determinism, special, ulps)}


def main(name: str, notebook: str, end: str) -> None:
    """Print the answer of one step, or write those of a list to the notebook."""
    importlib.import_module("torch_npu")  # torch does not autoload it here
    if name in LISTS:  # any exception of a dead device is a finding
        Notebook(Path(notebook)).work(LISTS[name](), float(end), lambda: str(answered(lambda: known_answer("npu"))))
    tell({} if name in LISTS else STEPS[name]())


if __name__ == "__main__":
    main(*sys.argv[1:])
